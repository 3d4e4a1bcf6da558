//! From what is known now to the page. Pure.

use super::families as f;
use super::queue::{Queue, Standing, queue};
use super::tally::{Counts, DecisionKind, Miss};
use crate::agents::AgentState;
use crate::context::ModelSeen;
use crate::grpc::idle::HeldCounts;
use crate::profile::UNBELIEVED_SPEED;
use crate::scan::Scan;
use crate::truth::Doubt;
use pillion_core::device::Mechanism;
use pillion_core::event::EventKind;
use pillion_core::heartbeat::Mode;
use pillion_core::{NodeName, UnixTime};
use pillion_doors::Cause;
use pillion_metrics::Page;
use pillion_pairing::{Objective, Reason};
use pillion_slurm::NodeAvailability;
use pillion_store::Decision;
use pillion_store::postgres::StoreFigures;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Who goes past rows.
const PASSING_TASKS: [&str; 14] = [
    "credit", "engine", "ingest", "judge", "misses", "names", "observe", "pace", "profile", "release",
    "requeue", "train", "trend", "watch",
];

/// What is known now.
pub struct Snapshot {
    /// What is done with decisions.
    pub mode: Mode,
    /// What plans maximise.
    pub objective: Objective,
    /// How many promises may be expected to be broken.
    pub broken_budget_fraction: f64,
    /// Whether we lead.
    pub is_leading: bool,
    /// Whether anything would be released.
    pub is_acting: bool,
    /// The last scan.
    pub scan: Option<Arc<Scan>>,
    /// Decisions that are planned or carried out.
    pub active: Arc<Vec<Decision>>,
    /// What the last plan said of those that it left waiting.
    pub reasons: BTreeMap<Reason, u64>,
    /// Nodes on which releases are stopped.
    pub stopped: usize,
    /// Violations since the start.
    pub violation_count: u64,
    /// Unreadable lines of the queue since the start.
    pub dropped_line_count: u64,
    /// What GPUs do that are held in observed partitions; `None`: nothing is observed.
    pub(crate) held: Option<HeldCounts>,
    /// When the heartbeat was written.
    pub heartbeat_at: Option<UnixTime>,
    /// When a report was stored.
    pub reported_at: Option<UnixTime>,
    /// What is known of models.
    pub model: Option<ModelSeen>,
    /// Agents by node.
    pub agents: BTreeMap<NodeName, AgentState>,
    /// Connections that found no place, by cause.
    pub turned_away: [(&'static str, u64); Cause::ALL.len()],
    pub counts: Counts,
    pub store: Option<StoreFigures>,
}

pub fn page(snapshot: &Snapshot) -> Page {
    let mut page = Page::new();
    scheduler(&mut page, snapshot);
    jobs(&mut page, snapshot);
    decisions(&mut page, &snapshot.counts);
    mishaps(&mut page, snapshot);
    gains(&mut page, snapshot);
    learning(&mut page, snapshot);
    nodes(&mut page, snapshot);
    for (cause, count) in snapshot.turned_away {
        page.count(&f::TURNED_AWAY, &[cause], count);
    }
    if let Some(HeldCounts { working, idle, unseen }) = snapshot.held {
        for (state, count) in [("working", working), ("idle", idle), ("unseen", unseen)] {
            page.count(&f::OBSERVED_GPUS, &[state], count.into());
        }
    }
    slurm(&mut page, snapshot);
    for task in PASSING_TASKS {
        page.count(&f::PASSED_OVER, &[task], snapshot.counts.passed_over.get(task).copied().unwrap_or(0));
    }
    if let Some(store) = &snapshot.store {
        database(&mut page, store);
    }
    page
}

fn scheduler(page: &mut Page, snapshot: &Snapshot) {
    let Snapshot { mode, objective, is_leading, is_acting, scan, .. } = snapshot;
    let objective = match objective {
        Objective::Throughput => "throughput",
        Objective::Energy => "energy",
        Objective::ThroughputPerWatt => "throughput-per-watt",
    };
    page.set(&f::INFO, &[env!("CARGO_PKG_VERSION"), mode.as_str(), objective], 1.0);
    page.count(&f::LEADING, &[], u64::from(*is_leading));
    page.count(&f::ACTING, &[], u64::from(*is_acting));
    page.set_known(&f::HEARTBEAT_AT, &[], snapshot.heartbeat_at.map(UnixTime::seconds));
    page.set_known(&f::SCAN_AT, &[], scan.as_ref().map(|scan| scan.at.seconds()));
    page.set_known(&f::REPORT_AT, &[], snapshot.reported_at.map(UnixTime::seconds));
    for (task, ticks) in &snapshot.counts.ticks {
        page.durations(&f::TASK_SECONDS, &[task], &ticks.durations);
        page.count(&f::TASK_FAILURES, &[task], ticks.failures);
        page.set_known(&f::TASK_SUCCESS, &[task], ticks.succeeded_at.map(UnixTime::seconds));
    }
}

fn jobs(page: &mut Page, snapshot: &Snapshot) {
    if let Some(scan) = &snapshot.scan {
        let Queue { states, wait_seconds_max, sharing } = queue(scan, &snapshot.active);
        for state in Standing::ALL {
            page.count(&f::JOBS, &[state.as_str()], states.get(&state).copied().unwrap_or(0));
        }
        page.set(&f::WAIT_MAX, &[], wait_seconds_max);
        for mechanism in Mechanism::ALL {
            let (devices, jobs) = sharing.get(&mechanism).copied().unwrap_or_default();
            page.count(&f::SHARED_DEVICES, &[mechanism.as_str()], devices);
            page.count(&f::SHARING_JOBS, &[mechanism.as_str()], jobs);
        }
    }
    for (reason, count) in &snapshot.reasons {
        page.count(&f::LEFT_WAITING, &[&reason.to_string()], *count);
    }
}

fn decisions(page: &mut Page, counts: &Counts) {
    for kind in [DecisionKind::Pair, DecisionKind::Join, DecisionKind::Alone] {
        for mechanism in Mechanism::ALL {
            let count = counts.decisions.get(&(kind, mechanism)).copied().unwrap_or(0);
            page.count(&f::DECISIONS, &[kind.as_str(), mechanism.as_str()], count);
        }
    }
    page.count(&f::PLANS_REFUSED, &[], counts.plans_refused);
    page.durations(&f::PLAN_SECONDS, &[], &counts.plan);
    page.durations(&f::DECISION_SECONDS, &[], &counts.decision);
    page.count(&f::RELEASES, &[], counts.releases);
    page.count(&f::STARTS, &[], counts.starts);
}

fn mishaps(page: &mut Page, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    page.count(&f::UNDOS, &["undone"], counts.happened(&EventKind::Undone));
    page.count(&f::UNDOS, &["dropped"], counts.happened(&EventKind::Dropped));
    page.count(&f::SWITCH_MISSES, &["not-responding"], counts.missed(Miss::NotResponding));
    page.count(&f::SWITCH_MISSES, &["no-decision"], counts.missed(Miss::NoDecision));
    page.count(&f::REQUEUES, &["requeued"], counts.happened(&EventKind::Requeued));
    page.count(&f::REQUEUES, &["refused"], counts.happened(&EventKind::RequeueRefused));
    for kind in [EventKind::OutOfMemory, EventKind::DeviceFault, EventKind::ProgramFault, EventKind::Victim] {
        page.count(&f::JOB_FAULTS, &[&kind.to_string()], counts.happened(&kind));
    }
    page.count(&f::LEASES_RESET, &[], counts.happened(&EventKind::Restarted));
    page.count(&f::SHARE_FAILURES, &[], counts.happened(&EventKind::ShareFailed));
    page.count(&f::CREDIT_LOST, &["profile-exceeded"], counts.happened(&EventKind::ProfileExceeded));
    page.count(&f::CREDIT_LOST, &["promise-broken"], counts.happened(&EventKind::CreditLost));
    page.count(&f::VIOLATIONS, &[], snapshot.violation_count);
    page.count(&f::NODES_STOPPED, &[], snapshot.stopped as u64);
}

fn gains(page: &mut Page, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    let sum = &counts.account;
    page.count(&f::PROMISES, &["kept"], u64::from(sum.promises_kept));
    page.count(&f::PROMISES, &["broken"], u64::from(sum.promises_broken));
    page.set(&f::PROMISE_BUDGET, &[], snapshot.broken_budget_fraction);
    let unmeasured = u64::from(sum.shared_run_count).saturating_sub(counts.measured_runs);
    page.count(&f::SHARED_RUNS, &["yes"], counts.measured_runs);
    page.count(&f::SHARED_RUNS, &["no"], unmeasured);
    let shared = counts.shared_device_seconds;
    page.set(&f::GPU_SECONDS, &["shared"], shared);
    page.set(&f::GPU_SECONDS, &["alone"], (sum.gpu_seconds - shared).max(0.0));
    page.set(&f::GPU_SECONDS_SAVED, &[], sum.gpu_seconds_saved);
    page.set(&f::GPU_SECONDS_LOST, &[], counts.gpu_seconds_lost);
    page.set(&f::ENERGY, &[], sum.energy_joules);
    page.set(&f::ENERGY_SAVED, &[], sum.energy_joules_saved);
    page.set(&f::ENERGY_LOST, &[], counts.energy_joules_lost);
}

fn learning(page: &mut Page, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    page.count(&f::OBSERVATIONS, &[], counts.observations);
    for outcome in ["promoted", "rejected"] {
        page.count(&f::MODELS_TRAINED, &[outcome], counts.models.get(outcome).copied().unwrap_or(0));
    }
    let Some(model) = &snapshot.model else { return };
    if let Some(version) = model.version {
        page.count(&f::MODEL_VERSION, &[], version);
    }
    page.count(&f::MODEL_STAND_IN, &[], u64::from(model.is_stand_in));
    page.count(&f::MODEL_WAITING, &[], model.waiting_count);
    page.set_known(&f::MODEL_TRAINED_AT, &[], model.trained_at.map(UnixTime::seconds));
    if let Some(count) = model.observation_count {
        page.count(&f::MODEL_OBSERVATIONS, &[], count);
    }
    page.set_known(&f::MODEL_ERROR, &[], model.error_mean);
}

fn nodes(page: &mut Page, snapshot: &Snapshot) {
    let in_pool = snapshot.scan.iter().flat_map(|scan| &scan.nodes);
    let names: BTreeSet<&NodeName> =
        in_pool.clone().map(|node| &node.name).chain(snapshot.agents.keys()).collect();
    for name in names {
        let agent = snapshot.agents.get(name);
        let is_connected = agent.is_some_and(|agent| agent.is_connected);
        page.count(&f::AGENT_CONNECTED, &[name.as_str()], u64::from(is_connected));
        let Some(agent) = agent else { continue };
        page.set(&f::AGENT_MESSAGE_AT, &[name.as_str()], agent.last_seen_at.seconds());
        page.set(&f::AGENT_SKEW, &[name.as_str()], agent.clock_skew_seconds);
        for condition in agent.conditions.values() {
            for fault in &condition.faults {
                let labels = [name.as_str(), condition.gres_type.as_str(), &fault.kind.to_string()];
                page.set(&f::DEVICE_FAULT, &labels, 1.0);
            }
        }
    }
    for reason in Doubt::ALL.map(Doubt::as_str).into_iter().chain([UNBELIEVED_SPEED]) {
        let count = snapshot.counts.doubted.get(reason).copied().unwrap_or(0);
        page.count(&f::REPORTS_DROPPED, &[reason], count);
    }
    let mut devices: BTreeMap<(&str, Mechanism), u64> = BTreeMap::new();
    for device in snapshot.agents.values().flat_map(|agent| &agent.devices) {
        *devices.entry((&device.model, device.mechanism)).or_default() += 1;
    }
    for ((model, mechanism), count) in devices {
        page.count(&f::DEVICES, &[model, mechanism.as_str()], count);
    }
    let up = in_pool.clone().filter(|node| node.availability == NodeAvailability::Up).count() as u64;
    page.count(&f::NODES, &["up"], up);
    page.count(&f::NODES, &["unavailable"], in_pool.count() as u64 - up);
}

fn slurm(page: &mut Page, snapshot: &Snapshot) {
    page.count(&f::QUEUE_LINES_DROPPED, &[], snapshot.dropped_line_count);
    for (call, calls) in &snapshot.counts.slurm {
        page.durations(&f::SLURM_SECONDS, &[call], &calls.durations);
        page.count(&f::SLURM_ERRORS, &[call, "refused"], calls.refused);
        page.count(&f::SLURM_ERRORS, &[call, "unanswered"], calls.unanswered);
    }
}

fn database(page: &mut Page, store: &StoreFigures) {
    page.count(&f::STORE_UP, &[], u64::from(store.is_up));
    for (access, calls) in [("read", &store.reads), ("write", &store.writes)] {
        page.durations(&f::STORE_SECONDS, &[access], &calls.durations);
        page.count(&f::STORE_ERRORS, &[access], calls.errors);
    }
    for (table, count) in &store.unreadable {
        page.count(&f::UNREADABLE, &[table], *count);
    }
}

#[cfg(test)]
mod tests;
