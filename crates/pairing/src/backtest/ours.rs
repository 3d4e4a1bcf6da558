//! Pillion itself: the planner as it runs on a cluster, on a view in which every job may have a device of its own.

use super::Backtest;
use super::draw::Queue;
use super::score::Chosen;
use crate::model::InterferenceModel;
use crate::plan::Pairing;
use crate::planner::plan;
use crate::policy::{Policy, UserPolicy};
use crate::view::{ClusterView, DeviceView, NodeView, ProfileBook, WaitingJob};
use pillion_core::isolation::Isolation;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, UserId, WorkloadKey};

const NODE: &str = "backtest";
const JOB_SECONDS: f64 = 3600.0;
/// Nothing is too large for it: whether two fit is part of what is to be found out.
const MEMORY_BOUNDLESS_BYTES: u64 = 1 << 50;

/// What the planner starts together, and how many of its pairs nobody measured.
pub(super) fn choose(
    backtest: &Backtest<'_>,
    queue: &Queue,
    model: &dyn InterferenceModel,
) -> (Vec<Chosen>, usize) {
    let view = view(backtest, queue);
    let plan = plan(&view, model, &policy(backtest));
    let mut unmeasured = 0;
    let mut chosen = Vec::new();
    for pairing in plan.pairings.iter().filter(|pairing| pairing.members.len() > 1) {
        match measured(backtest, pairing) {
            Some(pair) => chosen.push(pair),
            None => unmeasured += 1,
        }
    }
    (chosen, unmeasured)
}

/// The combination that a pairing is.
fn measured(backtest: &Backtest<'_>, pairing: &Pairing) -> Option<Chosen> {
    let [a, b] = pairing.members.as_slice() else { return None };
    let truth = backtest.truth();
    let ends = [truth.workload(&a.workload)?, truth.workload(&b.workload)?];
    let caps = [a.sharing.cap(), b.sharing.cap()];
    let at = truth.find(ends, caps)?;
    let combination = &truth.combinations[at];
    let is_straight = combination.workloads == ends && combination.caps == caps;
    let estimates = a.estimate.as_ref().zip(b.estimate.as_ref());
    let lows = estimates.map(|(a, b)| [a.speed_fraction_low, b.speed_fraction_low]);
    let lows = lows.map(|[a, b]| if is_straight { [a, b] } else { [b, a] });
    Some(Chosen { combination: at, count: 1, lows })
}

pub(super) fn policy(backtest: &Backtest<'_>) -> Policy {
    Policy {
        users: UserPolicy::Any,
        slowdown_ratio_max: backtest.options().slowdown_ratio_max,
        allowed: Some(backtest.truth().allow_list()),
        ..Policy::default()
    }
}

pub(super) fn view(backtest: &Backtest<'_>, queue: &Queue) -> ClusterView {
    let device_model = backtest.device_model();
    let mut profiles: Vec<WorkloadProfile> = Vec::new();
    for workload in queue.counts().into_keys() {
        let key = &backtest.truth().workloads[workload];
        let profile = backtest.profiles.get(key, device_model).cloned();
        let profile = profile.unwrap_or_else(|| WorkloadProfile::empty(key.clone(), device_model));
        profiles.push(WorkloadProfile { run_count: profile.run_count.max(1), ..profile });
    }
    let book = ProfileBook::from(profiles);
    let workloads = queue.jobs.iter().map(|workload| &backtest.truth().workloads[*workload]);
    let waiting = (1..).zip(workloads).map(|(id, workload)| job(backtest, &book, id, workload)).collect();
    let devices = (0..queue.jobs.len()).map(|index| DeviceView {
        node: NodeName::new(NODE),
        gres_type: GresType::new(format!("g{index}")),
        model: device_model.to_owned(),
        gpu_types: Vec::new(),
        memory_bytes: MEMORY_BOUNDLESS_BYTES,
        mechanism: backtest.mechanism(),
        shards_free: 100,
        tenants: Vec::new(),
        blocked: None,
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: std::collections::BTreeMap::new(),
    });
    ClusterView {
        revision: Revision(0),
        taken_at: UnixTime::from_epoch(0),
        nodes: vec![NodeView::boundless(NODE)],
        devices: devices.collect(),
        waiting,
        alone_claims: Vec::new(),
        copies: crate::CopyBook::default(),
        slices: crate::mig::SliceBook::default(),
        profiles: book,
        trials: crate::TrialBook::default(),
    }
}

/// One solo hour of a workload; one user's, so that caps may be relied on.
fn job(backtest: &Backtest<'_>, book: &ProfileBook, id: u32, workload: &WorkloadKey) -> WaitingJob {
    let profile = book.get(workload, backtest.device_model());
    let peak = profile.and_then(|profile| profile.memory_bytes_peak);
    WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 },
        uid: UserId(1000),
        account: "".into(),
        partition: NODE.into(),
        workload: workload.clone(),
        submitted_at: UnixTime::from_epoch(0),
        starts_alone_at: UnixTime::from_epoch(0),
        slowdown_ratio_max: backtest.options().slowdown_ratio_max,
        memory_bytes_declared: peak.is_none().then_some(0),
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
