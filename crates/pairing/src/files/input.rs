//! The files of a plan, and what they amount to.

use super::ground::{Ground, NODE, Profiles};
use super::table::{InvalidFile, NamedText};
use super::{jobs, pairs, solo};
use crate::allow::AllowList;
use crate::history::Observation;
use crate::view::{ClusterView, NodeView, ProfileBook};
use pillion_core::device::Mechanism;
use pillion_core::{Revision, SlowdownRatio, UnixTime};

/// What the device is called where nothing names it.
pub(super) const DEVICE_MODEL_UNNAMED: &str = "device";

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
        copies: crate::CopyBook::of(&observations),
        slices: crate::mig::SliceBook::default(),
        profiles: book(profiles),
        trials: crate::TrialBook::default(),
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

fn book(profiles: Profiles) -> ProfileBook {
    ProfileBook::from(profiles.into_values().collect::<Vec<_>>())
}
