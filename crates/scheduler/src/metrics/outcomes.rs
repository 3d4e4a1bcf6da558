//! From a run that ended to what it used and gained, by the same sums as `pillion acct`.

use crate::store::{AccountedRun, MeasuredRun};
use crate::story::{Account, Accounts, GroupBy};
use pillion_slurm::Ending;

/// One run's account; `speed_fraction`: as measured; `solo_energy_joules`: of its workload's runs alone.
pub(crate) fn account(
    run: &MeasuredRun,
    speed_fraction: Option<f64>,
    solo_energy_joules: Option<f64>,
) -> Account {
    let summary = &run.summary;
    let members = run.decision.iter().flat_map(|decision| &decision.members);
    let own = members.into_iter().find(|member| member.plan.start == summary.start);
    let accounted = AccountedRun {
        user: run.job.user.clone(),
        account: run.job.account.clone(),
        partition: run.job.partition.clone(),
        workload: run.job.workload.clone(),
        node: run.node.clone(),
        started_at: summary.started_at,
        ended_at: summary.ended_at,
        shared_seconds: summary.shared_seconds,
        energy_joules: summary.energy_joules,
        solo_energy_joules,
        speed_fraction,
        slowdown_ratio_max: own.map(|member| member.plan.slowdown_ratio_max),
        is_completed: run.job.restart_count == summary.start.restart_count
            && run.job.ending == Some(Ending::Completed),
    };
    let mut accounts = Accounts::new(GroupBy::Nothing);
    accounts.extend(&[accounted]);
    accounts.rows().next().unwrap_or_default()
}
