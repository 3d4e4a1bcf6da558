//! What the SPANK plugin and the agent say to each other over the agent's Unix socket: one JSON line each way, then the
//! connection ends. The plugin gives up at its deadline; the agent answers uid 0 only.

use crate::ids::{DecisionId, JobStart, UserId};
use serde::{Deserialize, Serialize};

/// The version of the conversation; the agent answers an unknown one with [`Verdict::Unknown`].
pub const HANDOFF_VERSION: u32 = 1;
/// The longest line that either side reads.
pub const HANDOFF_LENGTH_MAX: usize = 64 * 1024;
/// Where the agent listens, unless configured. `%n` in a configured path stands for the node's name.
pub const HANDOFF_SOCKET: &str = "/run/pillion/agent.sock";
/// How long the plugin waits in all, in milliseconds.
pub const HANDOFF_DEADLINE_MILLISECONDS: u64 = 200;

/// What the agent's marker of a job says where the plugin is only to tell, and not to wait for an answer: its user did not ask for
/// co-location, and does not notice an agent that stands still. A marker of any other job is empty.
pub const MARKER_TELLS: &str = "tells";

/// The step id of a batch script, Slurm's own number.
pub const BATCH_STEP: u32 = 0xffff_fffb;

/// What the plugin asks in the process that is about to become the task: the peer's pid is therefore the root of the task's
/// process tree, and the agent attributes its children to the job. It connects as root (`task_init_privileged`; the kernel
/// remembers who connected) and asks some milliseconds later as the user (`task_init`), because only then does slurmstepd
/// say how often the job was restarted. A job that runs cannot change what is asked: no task of it is there yet, or it
/// is another step than the script, of which nothing but Slurm's own numbers is believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandoffRequest {
    /// [`HANDOFF_VERSION`] of the plugin that asks.
    pub version: u32,
    /// The job from `spank_get_item`. The restart count is Slurm's word in the request of a batch script
    /// ([`HandoffRequest::is_batch`]) and 0 in that of any other step, which nobody tells it.
    pub start: JobStart,
    /// Slurm's own number for the job (`S_JOB_ID`): for an array task another than the array's, and the one that names
    /// its cgroup.
    #[serde(default)]
    pub inner_job_id: Option<u32>,
    /// The job's user.
    pub uid: UserId,
    /// The job's group, for the progress file.
    pub gid: u32,
    /// The step; Slurm's own large numbers for batch (0xfffffffb) and interactive steps.
    pub step_id: u32,
    /// Of a batch script: `SLURM_JOB_GPUS` as slurmstepd set it, global device indexes.
    pub devices: Vec<u32>,
    /// `SLURM_SHARDS_ON_NODE` as slurmstepd set it, what Slurm booked: of a batch script, and of the step that begins an interactive job.
    /// Only ever a reason to give less; absent: not told, or a plugin of an earlier release.
    #[serde(default)]
    pub shards: Option<u32>,
    /// The job's value of `--colocate`, `None` where the step did not carry it.
    pub option: Option<String>,
}

impl HandoffRequest {
    /// Whether this is the job's script. Only then do its restart count, devices and shards come from Slurm: other steps
    /// are begun by the script, or by who sits in front of it, with an environment of their making.
    pub const fn is_batch(&self) -> bool {
        self.step_id == BATCH_STEP
    }
}

/// What the agent found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A decision exists for this start; the environment carries it out.
    Decided,
    /// None exists: the task runs without a cap, and the miss is counted.
    Unknown,
}

/// What the plugin is to do before the task's first instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandoffReply {
    /// What was found.
    pub verdict: Verdict,
    /// The decision, for the log.
    pub decision_id: Option<DecisionId>,
    /// Set, overwriting: name and value.
    pub set: Vec<(String, String)>,
    /// Removed, before the settings above.
    pub unset: Vec<String>,
    /// A directory that programs in containers must see under its own path.
    #[serde(default)]
    pub container_bind: Option<String>,
}

impl HandoffReply {
    /// The answer when nothing is known: change nothing.
    pub const fn unknown() -> Self {
        Self {
            verdict: Verdict::Unknown,
            decision_id: None,
            set: Vec::new(),
            unset: Vec::new(),
            container_bind: None,
        }
    }
}
