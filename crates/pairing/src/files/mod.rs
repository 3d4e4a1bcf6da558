//! Planning on files: `pillion plan --solo SOLO.csv --queue QUEUE.csv [--history PAIRS.csv] ..`. Texts in, a view of a
//! cluster in which every job may have a device of its own; and the answer as scripts read it. Opens no file itself.
//!
//! ```text
//! SOLO ─► solo ─┐                  ┌─► ClusterView ─► plan ─► answer ─► Answer
//! PAIRS ► pairs ├─► measured ──────┤
//! QUEUE, RUNNING ► jobs            └─► observations ─► train
//! ALLOW ► pairs ─► Policy.allowed
//! ```
//!
//! On files, unlike on a cluster, unknown memory means that it fits, no job has a time limit, and a workload needs no
//! solo run: what is known only from PAIRS.csv, or only by name, is planned with what the model makes of that.

mod answer;
mod candidates;
mod jobs;
mod pairs;
mod solo;
mod table;

pub use answer::{Alone, Answer, AnswerMember, AnswerModel, AnswerPairing, answer};
pub use candidates::{AnswerCandidate, CandidateMember};
pub use table::{InvalidFile, NamedText};

use crate::allow::AllowList;
use crate::history::Observation;
use crate::view::{ClusterView, DeviceView, NodeView, ProfileBook};
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, NodeName, Revision, SlowdownRatio, UnixTime, WorkloadKey};
use std::collections::BTreeMap;

/// What the device is called where nothing names it.
pub(crate) const DEVICE_MODEL_UNNAMED: &str = "device";
/// Ids of running jobs start here; those of waiting jobs are their row and one.
const RUNNING_ID_FIRST: u32 = 1_000_000_000;
/// Memory of a device where none is given: nothing is too large for it.
const MEMORY_BOUNDLESS_BYTES: u64 = 1 << 50;

const NODE: &str = "files";

/// What the files do not say.
#[derive(Debug, Clone, PartialEq)]
pub struct FileOptions {
    /// The device model that the jobs are to run on and that SOLO.csv was measured on; absent = the one that every row
    /// of PAIRS.csv names, else `device`.
    pub device_model: Option<String>,
    /// How its tenants are kept apart.
    pub mechanism: Mechanism,
    /// Its memory; absent = everything fits.
    pub device_memory_bytes: Option<u64>,
    /// The promise to jobs that name none.
    pub slowdown_ratio_max: SlowdownRatio,
}

/// The files of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanFiles<'t> {
    /// SOLO.csv: how workloads run alone.
    pub solo: NamedText<'t>,
    /// QUEUE.csv: who waits; a job is its row, from 0.
    pub queue: NamedText<'t>,
    /// PAIRS.csv: what was measured of workloads together.
    pub history: Option<NamedText<'t>>,
    /// RUNNING.csv: who runs and may be joined.
    pub running: Option<NamedText<'t>>,
    /// ALLOW.csv: the only combinations that may be chosen.
    pub allow: Option<NamedText<'t>>,
}

/// What was measured, alone and together.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The device model that the profiles are of, and the rows of PAIRS.csv that name none.
    pub device_model: String,
    /// A profile for every workload that is named, empty for one that was never measured alone.
    pub profiles: ProfileBook,
    /// A row of PAIRS.csv each, in their order; of any device and mechanism.
    pub observations: Vec<Observation>,
}

/// What the files of a plan amount to.
#[derive(Debug, Clone, PartialEq)]
pub struct FromFiles {
    /// The cluster that they describe.
    pub view: ClusterView,
    /// What the model is trained from, besides the view's profiles.
    pub observations: Vec<Observation>,
    /// For the policy.
    pub allowed: Option<AllowList>,
    /// The device model that the jobs are to run on.
    pub device_model: String,
    /// How its tenants are kept apart.
    pub mechanism: Mechanism,
}

/// Reads SOLO.csv and PAIRS.csv.
///
/// # Errors
/// [`InvalidFile`] for the first thing that is wrong, on one line.
pub fn read_measured(
    solo: NamedText<'_>,
    history: Option<NamedText<'_>>,
    options: &FileOptions,
) -> Result<Measured, InvalidFile> {
    let (profiles, observations, ground) = measured(solo, history, options)?;
    Ok(Measured { device_model: ground.device_model, profiles: book(profiles), observations })
}

/// Reads all files of a plan.
///
/// # Errors
/// [`InvalidFile`] for the first thing that is wrong, on one line.
pub fn read(files: &PlanFiles<'_>, options: &FileOptions) -> Result<FromFiles, InvalidFile> {
    let (mut profiles, observations, ground) = measured(files.solo, files.history, options)?;
    let mut users = jobs::Users::default();
    let waiting = jobs::read_queue(files.queue, &mut profiles, &ground, &mut users)?;
    let running = files.running.map(|source| jobs::read_running(source, &mut profiles, &ground, &mut users));
    let mut devices = running.transpose()?.unwrap_or_default();
    let allowed = files.allow.map(pairs::read_allow).transpose()?;
    let joinable = devices.len();
    devices.extend((0..waiting.len()).map(|index| ground.device(joinable + index)));
    let view = ClusterView {
        revision: Revision(0),
        taken_at: UnixTime::from_epoch(0),
        nodes: vec![NodeView::boundless(NODE)],
        devices,
        waiting,
        alone_claims: Vec::new(),
        profiles: book(profiles),
    };
    let Ground { device_model, mechanism, .. } = ground;
    Ok(FromFiles { view, observations, allowed, device_model, mechanism })
}

fn measured(
    solo: NamedText<'_>,
    history: Option<NamedText<'_>>,
    options: &FileOptions,
) -> Result<(Profiles, Vec<Observation>, Ground), InvalidFile> {
    let mut profiles = solo::read(solo)?;
    let mut observations = match history {
        Some(source) => pairs::read_history(source, options.mechanism)?,
        None => Vec::new(),
    };
    let named = options.device_model.as_deref();
    let ground = Ground {
        device_model: pairs::resolve(named, DEVICE_MODEL_UNNAMED, &mut observations),
        mechanism: options.mechanism,
        device_memory_bytes: options.device_memory_bytes,
        slowdown_ratio_max: options.slowdown_ratio_max,
    };
    for profile in profiles.values_mut() {
        profile.device_model.clone_from(&ground.device_model);
    }
    for tenant in observations.iter().flat_map(|observation| &observation.tenants) {
        ground.profile(&mut profiles, &tenant.workload);
    }
    Ok((profiles, observations, ground))
}

type Profiles = BTreeMap<WorkloadKey, WorkloadProfile>;

fn book(profiles: Profiles) -> ProfileBook {
    ProfileBook::from(profiles.into_values().collect::<Vec<_>>())
}

/// What all jobs have in common.
struct Ground {
    device_model: String,
    mechanism: Mechanism,
    device_memory_bytes: Option<u64>,
    slowdown_ratio_max: SlowdownRatio,
}

impl Ground {
    /// The profile of a workload; of one that is known by name only, an empty one.
    fn profile<'p>(&self, profiles: &'p mut Profiles, workload: &WorkloadKey) -> &'p WorkloadProfile {
        profiles.entry(workload.clone()).or_insert_with(|| WorkloadProfile {
            // Counted as run: on files a workload needs no solo run.
            run_count: 1,
            ..WorkloadProfile::empty(workload.clone(), &*self.device_model)
        })
    }

    fn device(&self, index: usize) -> DeviceView {
        DeviceView {
            node: NodeName::new(NODE),
            gres_type: GresType::new(format!("g{index}")),
            model: self.device_model.clone(),
            gpu_types: Vec::new(),
            memory_bytes: self.device_memory_bytes.unwrap_or(MEMORY_BOUNDLESS_BYTES),
            mechanism: self.mechanism,
            shards_free: 100,
            tenants: Vec::new(),
            blocked: None,
        }
    }
}

#[cfg(test)]
mod tests;
