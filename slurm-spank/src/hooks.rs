//! What each hook does, over the small safe trait [`Spank`], so that a test can play Slurm.
//!
//! The order in one task's life (slurmstepd's forked child, one process): [`task_init_privileged`] as root asks the agent
//! and applies the answer; [`task_init`] as the user applies it again, because slurmstepd rewrites device variables in
//! between for steps with a GPU binding. In `srun` itself, [`init`] drops the GPU request that `sbatch` left behind.

use crate::agent_client;
use crate::env::{self, PluginArguments, STALE_REQUESTS, TRES_PER_TASK, VARIABLES_MAX};
use pillion_core::handoff::{HANDOFF_VERSION, HandoffReply, HandoffRequest, Verdict};
use pillion_core::ids::{JobStart, UserId};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Set in every task that a decision was applied to; read only as a hint.
pub const DECISION_VARIABLE: &str = "PILLION_DECISION";

/// Where Slurm has loaded us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// `srun`.
    Local,
    /// slurmstepd.
    Remote,
    /// `sbatch` or `salloc`.
    Allocator,
    /// slurmd, or its prolog and epilog.
    Other,
}

/// A number that Slurm knows of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Item {
    /// The job's user.
    Uid,
    /// The job's group.
    Gid,
    /// The job id (of an array task: its own).
    JobId,
    /// The step id.
    StepId,
    /// How often the job was restarted.
    RestartCount,
    /// The array's job id, 0 for none.
    ArrayId,
    /// The task of the array.
    ArrayTaskId,
}

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Only with `SlurmdDebug=debug`.
    Debug,
    /// In the daemon's log; never in the job's own output.
    Info,
}

/// What the hooks need of Slurm. Every call may fail, and a failure reads as "not there".
pub trait Spank {
    /// Where we are loaded.
    fn context(&self) -> Context;
    /// Registers `--colocate`; only inside `init`.
    fn register_option(&mut self) -> bool;
    /// What followed `--colocate=`, empty for nothing; `None` if the option was not given.
    fn option(&mut self) -> Option<String>;
    /// A number of the task.
    fn item(&mut self, item: Item) -> Option<u32>;
    /// A variable of the task's environment.
    fn getenv(&mut self, name: &str) -> Option<String>;
    /// Sets a variable of the task's environment, overwriting.
    fn setenv(&mut self, name: &str, value: &str) -> bool;
    /// Removes a variable of the task's environment.
    fn unsetenv(&mut self, name: &str);
    /// A variable of the process that we are loaded into (slurmstepd, `srun`).
    fn process_variable(&self, name: &str) -> Option<String>;
    /// Removes a variable of the process that we are loaded into.
    fn remove_process_variable(&mut self, name: &str);
    /// The command line of the process that we are loaded into.
    fn process_arguments(&self) -> Vec<String>;
    /// Leaves a word with the job that `pillion.lua` sees; the user could leave it as well.
    fn tell_controller(&mut self, name: &str, value: &str);
    /// Writes a line to Slurm's log.
    fn log(&mut self, level: Level, line: &str);
}

/// What [`task_init_privileged`] found, for [`task_init`] in the same process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Applied {
    /// The agent's answer, where it knew the start.
    reply: Option<HandoffReply>,
}

/// Registers the option. In `srun`, inside a colocated job, also removes what would make it ask for a GPU that became
/// shards.
pub fn init(spank: &mut impl Spank, arguments: &[&str]) {
    let context = spank.context();
    if context == Context::Other {
        return;
    }
    if !spank.register_option() {
        spank.log(Level::Debug, "pillion: --colocate could not be registered");
    }
    if context == Context::Allocator && env::names_deadline(&spank.process_arguments()) {
        spank.tell_controller(env::DEADLINE_HINT, "1");
    }
    if context == Context::Remote {
        for complaint in PluginArguments::parse(arguments.iter().copied()).1 {
            spank.log(Level::Debug, &format!("pillion: {complaint}"));
        }
    }
    // Only a hint, and harmless: whoever sets it himself loses a default of his own srun.
    if context == Context::Local && spank.process_variable(DECISION_VARIABLE).is_some() {
        for name in STALE_REQUESTS {
            spank.remove_process_variable(name);
        }
    }
}

/// As root, in the process that becomes the task: asks the agent for a job of ours, and applies what it says. `None` for a
/// job that is not ours, of which nothing else is read.
pub fn task_init_privileged(spank: &mut impl Spank, arguments: &[&str]) -> Option<Applied> {
    let wish = env::wish(spank.option());
    let job_id = spank.item(Item::JobId)?;
    let start = JobStart {
        job_id: env::job_id(job_id, spank.item(Item::ArrayId), spank.item(Item::ArrayTaskId)),
        restart_count: spank.item(Item::RestartCount).unwrap_or(0),
    };
    let (arguments, _) = PluginArguments::parse(arguments.iter().copied());
    let socket = arguments.socket_path(spank.process_variable("SLURMD_NODENAME").as_deref());
    if wish.is_none() && !socket.as_deref().is_some_and(|socket| is_marked(socket, start)) {
        return None;
    }
    let reply = consult(spank, &arguments, socket, start, wish);
    let applied = Applied { reply };
    apply(spank, &applied);
    Some(applied)
}

/// As the user, right before the task: applies the same again.
pub fn task_init(spank: &mut impl Spank, applied: &Applied) {
    apply(spank, applied);
}

/// Whether the agent has left its marker for this start. Only one made by root (or by ourselves, in a cluster without root)
/// counts.
fn is_marked(socket: &Path, start: JobStart) -> bool {
    let metadata = env::marker_path(socket, start.job_id).and_then(|path| path.symlink_metadata().ok());
    metadata.is_some_and(|found| {
        found.is_file() && (found.uid() == 0 || found.uid() == crate::ffi::effective_uid())
    })
}

fn consult(
    spank: &mut impl Spank,
    arguments: &PluginArguments,
    socket: Option<PathBuf>,
    start: JobStart,
    option: Option<String>,
) -> Option<HandoffReply> {
    let Some(socket) = socket else {
        spank.log(Level::Info, "pillion: plugstack.conf says socket=..%n.. and this node has no usable name");
        return None;
    };
    let request = HandoffRequest {
        version: HANDOFF_VERSION,
        start,
        inner_job_id: spank.item(Item::JobId),
        uid: UserId(spank.item(Item::Uid)?),
        gid: spank.item(Item::Gid)?,
        step_id: spank.item(Item::StepId)?,
        devices: spank.getenv("SLURM_JOB_GPUS").map(|text| env::parse_devices(&text)).unwrap_or_default(),
        option,
    };
    match agent_client::ask(&socket, &request, arguments.deadline) {
        Ok(reply) if reply.verdict == Verdict::Decided => Some(reply),
        Ok(_) => {
            spank.log(Level::Debug, &format!("pillion: no decision for job {start}"));
            None
        }
        Err(error) => {
            let line = format!("pillion: job {start} starts without a share: {error}");
            spank.log(Level::Info, &env::printable(&line));
            None
        }
    }
}

fn drop_stale_requests(spank: &mut impl Spank) {
    for name in STALE_REQUESTS {
        spank.unsetenv(name);
    }
    match spank.getenv(TRES_PER_TASK).and_then(|request| env::without_gpus(&request)) {
        Some(rest) if rest.is_empty() => spank.unsetenv(TRES_PER_TASK),
        Some(rest) => drop(spank.setenv(TRES_PER_TASK, &rest)),
        None => {}
    }
}

/// Unsets, then sets. A name or value that has no place in an environment is left out, and said so.
fn apply(spank: &mut impl Spank, applied: &Applied) {
    // Only a job that holds shards had its GPU request rewritten; one that was left alone keeps what its user wrote.
    if spank.getenv("SLURM_SHARDS_ON_NODE").is_some() {
        drop_stale_requests(spank);
    }
    let Some(reply) = &applied.reply else { return };
    for name in reply.unset.iter().take(VARIABLES_MAX).filter(|name| env::is_variable_name(name)) {
        spank.unsetenv(name);
    }
    for (name, value) in reply.set.iter().take(VARIABLES_MAX) {
        let fits = env::is_variable_name(name) && env::is_variable_value(value);
        if !(fits && spank.setenv(name, value)) {
            spank.log(Level::Info, &format!("pillion: could not set {}", env::printable(name)));
        }
    }
}
