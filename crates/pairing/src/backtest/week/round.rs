//! One round as the planner sees it: jobs of known names wait, each with a device of its own if it needs one; those that run for
//! the first time began some minutes before, each on its own device.

use super::super::trials::Begins;
use super::super::truth::Truth;
use super::calendar::Round;
use super::names::Names;
use super::{FIRST_RUN_ALONE_HOURS, Week};
use crate::allow::AllowList;
use crate::policy::{FirstRuns, Policy, UserPolicy};
use crate::trials::TrialBook;
use crate::view::{ClusterView, DeviceView, FirstRun, NodeView, ProfileBook, Tenant, WaitingJob};
use pillion_core::isolation::Isolation;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, JobStart, NodeName, Revision, Shards, SlurmJobId, UnixTime, UserId, WorkloadKey,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NODE: &str = "week";
const JOB_SECONDS: f64 = 3600.0;
/// Nothing is too large for it: whether two fit is part of what is to be found out.
const MEMORY_BOUNDLESS_BYTES: u64 = 1 << 50;
/// Job numbers and groups of first runs begin here.
const FIRST_RUN_ID_MIN: u32 = 1_000_000;
/// How far a mean over a first run's minutes may be off: a standard deviation, of the mean.
pub(super) const PROFILE_SO_FAR_ERROR_FRACTION: f64 = 0.05;

/// The policy of a site that shares as this week asks, among combinations that were measured.
pub(super) fn policy(week: &Week<'_>, round: &Round, names: &Names) -> Policy {
    let present: BTreeSet<usize> = round.names.iter().copied().collect();
    let mut of_workload: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for name in present {
        of_workload.entry(names.workload_of[name]).or_default().push(name);
    }
    let mut allowed = AllowList::default();
    for combination in &week.truth.combinations {
        let [a, b] = combination.workloads.map(|workload| of_workload.get(&workload));
        let (Some(a), Some(b)) = (a, b) else { continue };
        let [cap_a, cap_b] = combination.caps;
        for a in a {
            for b in b {
                allowed.allow((&names.keys[*a], cap_a), (&names.keys[*b], cap_b));
            }
        }
    }
    Policy {
        users: UserPolicy::Any,
        slowdown_ratio_max: week.options.slowdown_ratio_max,
        first_runs: week.options.first_runs,
        allowed: Some(allowed),
        ..Policy::default()
    }
}

/// What the scheduler would see. `seen`: of each first run what was measured of it so far, by name.
pub(super) fn view(
    week: &Week<'_>,
    round: &Round,
    names: &Names,
    seen: &BTreeMap<usize, WorkloadProfile>,
) -> ClusterView {
    let (mut waiting, mut devices) = (Vec::new(), Vec::new());
    for (at, name) in (0..).zip(&round.names) {
        let tenants = if *name < round.known_count {
            waiting.push(job(week, &names.profiles[*name], at));
            Vec::new()
        } else if week.options.first_runs == FirstRuns::Host {
            seen.get(name).map(|so_far| first_run(week, so_far, at)).into_iter().collect()
        } else {
            continue;
        };
        devices.push(device(&week.truth, at, tenants));
    }
    cluster(round, names, devices, waiting)
}

/// All jobs of a round as if they waited, each with a free device: what [`super::super::trials`] plays out.
pub(super) fn scene_view(week: &Week<'_>, round: &Round, names: &Names) -> ClusterView {
    let jobs = (0..).zip(&round.names);
    let devices = jobs.clone().map(|(at, _)| device(&week.truth, at, Vec::new())).collect();
    let waiting = jobs.map(|(at, name)| job(week, &names.profiles[*name], at)).collect();
    cluster(round, names, devices, waiting)
}

/// With the profiles of the round's known jobs.
fn cluster(round: &Round, names: &Names, devices: Vec<DeviceView>, waiting: Vec<WaitingJob>) -> ClusterView {
    let known: BTreeSet<usize> =
        round.names.iter().copied().filter(|name| *name < round.known_count).collect();
    let book: Vec<WorkloadProfile> = known.into_iter().map(|name| names.profiles[name].clone()).collect();
    ClusterView {
        trials: TrialBook::default(),
        revision: Revision(0),
        taken_at: UnixTime::from_epoch(0),
        nodes: vec![NodeView::boundless(NODE)],
        devices,
        waiting,
        alone_claims: Vec::new(),
        copies: crate::CopyBook::default(),
        slices: crate::mig::SliceBook::default(),
        profiles: ProfileBook::from(book),
    }
}

/// How these jobs are met.
pub(super) fn scene_jobs(
    week: &Week<'_>,
    round: &Round,
    names: &Names,
    seen: &BTreeMap<usize, WorkloadProfile>,
) -> Vec<(usize, Begins)> {
    let is_host = week.options.first_runs == FirstRuns::Host;
    let begins = round.names.iter().map(|name| {
        let begins = if *name < round.known_count {
            Begins::Waits
        } else {
            let so_far = seen.get(name).filter(|_| is_host).map(|so_far| Box::new(seen_of(so_far)));
            Begins::Runs { for_seconds: FIRST_RUN_ALONE_HOURS * JOB_SECONDS, seen: so_far }
        };
        (names.workload_of[*name], begins)
    });
    begins.collect()
}

fn device(truth: &Truth, at: u32, tenants: Vec<Tenant>) -> DeviceView {
    let taken: u32 = tenants.iter().map(|tenant| u32::from(tenant.shards.count())).sum();
    DeviceView {
        node: NodeName::new(NODE),
        gres_type: GresType::new(format!("g{at}")),
        model: truth.device_model.clone(),
        gpu_types: Vec::new(),
        memory_bytes: MEMORY_BOUNDLESS_BYTES,
        mechanism: truth.mechanism,
        shards_free: 100 - taken,
        tenants,
        blocked: None,
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: BTreeMap::new(),
    }
}

/// A first run after its first minutes.
fn first_run(week: &Week<'_>, so_far: &WorkloadProfile, at: u32) -> Tenant {
    Tenant {
        job_id: SlurmJobId::plain(FIRST_RUN_ID_MIN + at),
        uid: UserId(1000),
        account: String::new(),
        workload: Some(so_far.workload.clone()),
        group: Some(DecisionId(u64::from(FIRST_RUN_ID_MIN + at))),
        is_running: true,
        sharing: Sharing::by(week.truth.mechanism, None, None),
        shards: Shards::try_new(50).expect("it is 1 to 100"),
        slowdown_ratio_max: week.options.slowdown_ratio_max,
        memory_bytes: None,
        time_limit_at: None,
        expected_end_at: Some(
            UnixTime::from_epoch(0) + Duration::from_secs_f64(JOB_SECONDS * (1.0 - FIRST_RUN_ALONE_HOURS)),
        ),
        isolation: Isolation::Shared,
        first_run: Some(Box::new(seen_of(so_far))),
        rules: None,
        guest: None,
        session: None,
        set: None,
    }
}

fn seen_of(so_far: &WorkloadProfile) -> FirstRun {
    FirstRun {
        profile: so_far.clone(),
        measured_seconds: Policy::default().first_run_seconds_min,
        sample_count: 150,
        activity_error_fraction: Some(PROFILE_SO_FAR_ERROR_FRACTION),
        drift_fraction: Some(0.0),
        has_memory_settled: true,
        memory_bytes_declared: Some(0),
    }
}

/// One solo hour of a known workload; one user's, so that caps may be relied on.
fn job(week: &Week<'_>, profile: &WorkloadProfile, at: u32) -> WaitingJob {
    let key: &WorkloadKey = &profile.workload;
    WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(at + 1), restart_count: 0 },
        uid: UserId(1000),
        account: "".into(),
        partition: NODE.into(),
        workload: key.clone(),
        submitted_at: UnixTime::from_epoch(0),
        starts_alone_at: UnixTime::from_epoch(0),
        slowdown_ratio_max: week.options.slowdown_ratio_max,
        memory_bytes_declared: profile.memory_bytes_peak.is_none().then_some(0),
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: 0,
        memory_mib: 0,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: None,
        duration_seconds_expected: Some(JOB_SECONDS),
        held: None,
    }
}
