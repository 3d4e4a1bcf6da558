//! What each hook does, over the small safe trait [`Spank`], so that a test can play Slurm.
//!
//! In one task's life (slurmstepd's forked child, one process) there are two: [`task_init_privileged`], as root, knows a
//! job of ours and connects to the agent, which answers root only; [`task_init`], as the user, asks and applies the answer.
//! Not earlier, because slurmstepd completes the environment in between: it rewrites device variables for steps with a GPU
//! binding, and only there does it say how often a job was restarted. In `srun` itself, [`init`] drops the GPU request that
//! `sbatch` left behind.

use crate::agent_client::Connection;
use crate::env::{
    self, HANDED_ON_HINTS, HANDED_ON_OPTION, PluginArguments, STALE_REQUESTS, TRES_PER_TASK, VARIABLES_MAX,
};
use crate::ffi::unix;
use crate::inherited::{DECISION_VARIABLE, inherited};
use crate::spank::{Context, Item, Level, Spank};
use pillion_core::handoff::{
    BATCH_STEP, HANDOFF_VERSION, HandoffReply, HandoffRequest, MARKER_TELLS, Verdict,
};
use pillion_core::ids::{JobStart, SlurmJobId, UserId};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often the job was restarted: written by slurmstepd for the script of a later start, else left as the user had it.
const RESTART_COUNT: &str = "SLURM_RESTART_COUNT";

/// The longest that a task stays with an agent that it only tells of itself: no more than to find its socket's backlog full.
const TELLING_MAX: Duration = Duration::from_millis(5);

/// A task of ours, between its two hooks.
#[derive(Debug)]
pub struct Recognised {
    option: Option<String>,
    agent: Option<Connection>,
    manner: Manner,
}

/// How a job of ours goes to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It asks, and takes the answer.
    Asks,
    /// Its user did not ask for co-location: the agent is told that a task begins, and nothing changes for it.
    Tells,
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
    if context == Context::Allocator
        && let Some(value) = env::variable_hint(spank.process_variable(env::VARIABLE))
    {
        spank.tell_controller(env::VARIABLE_HINT, &value);
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

/// As root, in the process that becomes the task: connects to the agent for a job of ours. `None` for a job that is not
/// ours, of which nothing else is read.
pub fn task_init_privileged(spank: &mut impl Spank, arguments: &[&str]) -> Option<Recognised> {
    let option = env::wish(spank.option());
    let job_id = job_id(spank)?;
    let (arguments, _) = PluginArguments::parse(arguments.iter().copied());
    let socket = arguments.socket_path(spank.process_variable("SLURMD_NODENAME").as_deref());
    let manner = match &option {
        Some(_) => Manner::Asks,
        None => socket.as_deref().and_then(|socket| marked(socket, job_id))?,
    };
    let allowed = match manner {
        Manner::Asks => arguments.deadline,
        Manner::Tells => arguments.deadline.min(TELLING_MAX),
    };
    let agent = match socket.map(|socket| Connection::open(&socket, allowed)) {
        Some(Ok(agent)) => Some(agent),
        Some(Err(error)) => {
            log_miss(spank, job_id, manner, &error.to_string());
            None
        }
        None => {
            log_miss(
                spank,
                job_id,
                manner,
                "plugstack.conf says socket=..%n.. and this node has no usable name",
            );
            None
        }
    };
    if manner == Manner::Asks && is_batch(spank) {
        // Or what the user exported would be read as Slurm's word: slurmstepd writes its own only for a later start.
        spank.unsetenv(RESTART_COUNT);
    }
    Some(Recognised { option, agent, manner })
}

/// As the user, right before the task: asks the agent and applies what it says. Of a job that is not ours only two things go: what
/// another job's share has left there, and what would break a plain `srun`, where Slurm gave it shards for the GPUs that its user asked
/// for, without co-location.
pub fn task_init(spank: &mut impl Spank, arguments: &[&str], recognised: Option<Recognised>) {
    // What `pillion.lua` was told at the submission is none of the job's, whosever it is.
    for name in HANDED_ON_HINTS {
        spank.unsetenv(name);
    }
    // Only a job that holds shards had its GPU request rewritten; one that was left alone keeps what its user wrote.
    if spank.getenv("SLURM_SHARDS_ON_NODE").is_some() {
        drop_stale_requests(spank);
    }
    // A step of ours has it of its own script, and keeps it where no agent answers.
    let has_own = recognised.as_ref().is_some_and(|it| it.manner == Manner::Asks) && !is_batch(spank);
    if !has_own {
        drop_inherited(spank, arguments);
    }
    let Some(recognised) = recognised else { return };
    let Recognised { option, agent, manner } = recognised;
    if manner == Manner::Asks {
        // Or an sbatch inside this job would hand our option on to a job that did not ask for it.
        spank.unsetenv(HANDED_ON_OPTION);
    }
    let Some((agent, request)) = agent.zip(request(spank, option)) else { return };
    if manner == Manner::Tells {
        if let Err(error) = agent.tell(&request) {
            log_miss(spank, request.start.job_id, manner, &error.to_string());
        }
        return;
    }
    match agent.ask(&request) {
        Ok(reply) => {
            if reply.verdict == Verdict::Unknown {
                spank.log(Level::Debug, &format!("pillion: no decision for job {}", request.start));
            }
            // Without a decision as well: such a start is measured all the same, by the file that the agent names.
            apply(spank, &reply);
        }
        Err(error) => log_miss(spank, request.start.job_id, manner, &error.to_string()),
    }
}

fn job_id(spank: &mut impl Spank) -> Option<SlurmJobId> {
    let inner = spank.item(Item::JobId)?;
    Some(env::job_id(inner, spank.item(Item::ArrayId), spank.item(Item::ArrayTaskId)))
}

/// What of the task the agent is told. Of a batch script slurmstepd itself has written or removed every variable that is
/// read here; in any other step they are what the script, or its user, made of them, and the agent knows better. Of shards it is told all
/// the same: that is a reason to give less, and the first step of an interactive job has nothing else to be checked by.
fn request(spank: &mut impl Spank, option: Option<String>) -> Option<HandoffRequest> {
    let is_batch = is_batch(spank);
    let mut variable = |name: &str| spank.getenv(name).filter(|_| is_batch);
    let devices = variable("SLURM_JOB_GPUS").map(|text| env::parse_devices(&text)).unwrap_or_default();
    let written = variable(RESTART_COUNT).and_then(|text| text.parse().ok());
    let shards = spank.getenv("SLURM_SHARDS_ON_NODE").and_then(|text| text.parse().ok());
    Some(HandoffRequest {
        version: HANDOFF_VERSION,
        start: JobStart { job_id: job_id(spank)?, restart_count: restart_count(spank, written) },
        inner_job_id: spank.item(Item::JobId),
        uid: UserId(spank.item(Item::Uid)?),
        gid: spank.item(Item::Gid)?,
        step_id: spank.item(Item::StepId)?,
        devices,
        shards,
        option,
    })
}

fn is_batch(spank: &mut impl Spank) -> bool {
    spank.item(Item::StepId) == Some(BATCH_STEP)
}

/// How often the job was restarted. Slurm 24.11 never fills in its own item for it (it reads 0 for every start): then it is
/// what slurmstepd has `written` since the privileged hook removed whatever the user had there, and 0 where it wrote none.
fn restart_count(spank: &mut impl Spank, written: Option<u32>) -> u32 {
    spank.item(Item::RestartCount).filter(|count| *count > 0).or(written).unwrap_or(0)
}

/// The one line for a task that starts without an answer; of one that waited for none only whoever looks for it reads it.
fn log_miss(spank: &mut impl Spank, job: SlurmJobId, manner: Manner, why: &str) {
    let (level, what) = match manner {
        Manner::Asks => (Level::Info, "starts without a share"),
        Manner::Tells => (Level::Debug, "is not measured"),
    };
    spank.log(level, &env::printable(&format!("pillion: job {job} {what}: {why}")));
}

/// What the agent's marker for this job says, where it has left one. Only one made by root (or by ourselves, in a cluster without
/// root) counts.
fn marked(socket: &Path, job: SlurmJobId) -> Option<Manner> {
    let path = env::marker_path(socket, job)?;
    let found = path.symlink_metadata().ok()?;
    if !found.is_file() || !(found.uid() == 0 || found.uid() == unix::effective_uid()) {
        return None;
    }
    // One that cannot be read was left by an agent all the same.
    let is_to_tell = std::fs::read(&path).is_ok_and(|text| text == MARKER_TELLS.as_bytes());
    Some(if is_to_tell { Manner::Tells } else { Manner::Asks })
}

/// Takes out what the job that submitted this one has left: limits of its share, and directories that may be gone or are on another node.
fn drop_inherited(spank: &mut impl Spank, arguments: &[&str]) {
    let (arguments, _) = PluginArguments::parse(arguments.iter().copied());
    let Some(runtime_directory) = Path::new(&arguments.socket).parent() else { return };
    for (name, rest) in inherited(|name| spank.getenv(name), runtime_directory) {
        match rest {
            Some(rest) => drop(spank.setenv(name, &rest)),
            None => spank.unsetenv(name),
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
fn apply(spank: &mut impl Spank, reply: &HandoffReply) {
    for name in reply.unset.iter().take(VARIABLES_MAX).filter(|name| env::is_variable_name(name)) {
        spank.unsetenv(name);
    }
    let bound = reply.container_bind.as_deref();
    let binds = bound.map(|path| env::container_binds(|name| spank.getenv(name), path)).unwrap_or_default();
    for (name, value) in reply.set.iter().take(VARIABLES_MAX).chain(&binds) {
        let fits = env::is_variable_name(name) && env::is_variable_value(value);
        if !(fits && spank.setenv(name, value)) {
            spank.log(Level::Info, &format!("pillion: could not set {}", env::printable(name)));
        }
    }
}
