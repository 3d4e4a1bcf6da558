//! The checks: each a pure function of [`Facts`], one file a subject, with a table of broken set-ups in `tests`.

mod container;
mod hooks;
mod identity;
mod limits;
mod lua;
mod munge;
mod node;
mod open;
mod plugin;
mod pool;
mod scheduler;
mod slurm;
#[cfg(test)]
mod tests;

use super::facts::Facts;
use super::finding::Finding;

/// Every check, in the order in which a site is set up.
pub const ALL: [fn(&Facts) -> Vec<Finding>; 42] = [
    identity::config,
    munge::munge,
    slurm::version,
    slurm::select_type,
    slurm::gres_types_setting,
    slurm::accounting_tres,
    container::job_container,
    slurm::job_requeue,
    slurm::min_job_age,
    slurm::prolog_flags,
    slurm::proctrack_type,
    slurm::accounting_enforce,
    identity::constrain_devices,
    pool::partitions,
    pool::overlap,
    pool::gres_types,
    pool::shard_counts,
    pool::billing_weights,
    pool::preemption,
    pool::exclusive,
    pool::over_subscribe,
    limits::twins,
    slurm::job_submit_plugins,
    lua::module,
    lua::heartbeat,
    plugin::plugstack,
    plugin::version,
    hooks::hooks,
    hooks::rescue_timer,
    scheduler::scheduler,
    identity::slurm_user,
    identity::leader,
    scheduler::queue_scan,
    scheduler::database,
    scheduler::tcp,
    open::web,
    open::metrics,
    scheduler::refused,
    scheduler::agents,
    node::setup,
    scheduler::devices,
    scheduler::device_health,
];
