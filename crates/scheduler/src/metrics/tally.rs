//! What has happened since this scheduler started, counted where it happens. Counters begin anew with the process: Prometheus
//! knows that of counters, and what must not be lost is in the store.

use pillion_core::UnixTime;
use pillion_core::device::Mechanism;
use pillion_core::event::EventKind;
use pillion_metrics::Durations;
use pillion_pairing::Pairing;
use pillion_store::Sums;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a decision was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// Two or more start together.
    Pair,
    /// Beside a job that runs.
    Join,
    /// One job on a device of its own, for now at least.
    Alone,
}

impl DecisionKind {
    /// Of a pairing in a plan.
    pub fn of(pairing: &Pairing) -> Self {
        match (pairing.joins, pairing.members.len()) {
            (Some(_), _) => Self::Join,
            (None, 0 | 1) => Self::Alone,
            (None, _) => Self::Pair,
        }
    }

    /// As the label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Join => "join",
            Self::Alone => "alone",
        }
    }
}

/// Calls of Slurm of one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlurmCalls {
    /// How long they took.
    pub durations: Durations,
    /// Slurm said no.
    pub refused: u64,
    /// Slurm, or its program, did not answer.
    pub unanswered: u64,
}

/// Ticks of one reconciler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ticks {
    /// How long they took.
    pub durations: Durations,
    /// Those that failed.
    pub failures: u64,
    /// When the last one succeeded.
    pub succeeded_at: Option<UnixTime>,
}

/// Why a job started without what was decided for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// Its node never reported the start.
    NotResponding,
    /// Its node had no decision for it.
    NoDecision,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counts {
    pub decisions: BTreeMap<(DecisionKind, Mechanism), u64>,
    /// Plans that came too late.
    pub plans_refused: u64,
    /// How long plans took.
    pub plan: Durations,
    /// How long decisions took.
    pub decision: Durations,
    pub releases: u64,
    /// Starts as planned.
    pub starts: u64,
    /// Events by kind: see [`Tally::event`].
    pub events: BTreeMap<EventKind, u64>,
    /// What reconcilers did, by their names.
    pub ticks: BTreeMap<&'static str, Ticks>,
    /// Starts without what was decided.
    pub misses: BTreeMap<Miss, u64>,
    /// What agents reported and nobody believed, by the reason.
    pub doubted: BTreeMap<&'static str, u64>,
    /// Rows that a task could not do its work for and went past, by task.
    pub passed_over: BTreeMap<&'static str, u64>,
    /// What runs used and gained: sums over single runs.
    pub account: Sums,
    /// Of their device time, what was shared.
    pub shared_device_seconds: f64,
    /// The part of what was gained that is a loss, each above zero.
    pub gpu_seconds_lost: f64,
    /// As above, of energy.
    pub energy_joules_lost: f64,
    /// Shared runs whose speed is known.
    pub measured_runs: u64,
    /// Observations that were new.
    pub observations: u64,
    /// Models trained, by whether they were promoted.
    pub models: BTreeMap<&'static str, u64>,
    /// Calls of Slurm by name.
    pub slurm: BTreeMap<&'static str, SlurmCalls>,
}

impl Counts {
    pub(super) fn happened(&self, kind: &EventKind) -> u64 {
        self.events.get(kind).copied().unwrap_or(0)
    }
    pub(super) fn missed(&self, why: Miss) -> u64 {
        self.misses.get(&why).copied().unwrap_or(0)
    }
}

/// The counters, shared by all tasks. The lock is held for an addition.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Each change is one addition.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// The choice took so long.
    pub fn planned(&self, duration: Duration) {
        self.lock().plan.add(duration);
    }

    /// A plan was committed, that long after its view was begun.
    pub fn committed(&self, pairings: &[Pairing], duration: Duration) {
        let mut counts = self.lock();
        counts.decision.add(duration);
        for pairing in pairings {
            *counts.decisions.entry((DecisionKind::of(pairing), pairing.mechanism())).or_default() += 1;
        }
    }

    /// A plan came too late.
    pub fn plan_refused(&self) {
        self.lock().plans_refused += 1;
    }

    /// A job was released.
    pub fn released(&self) {
        self.lock().releases += 1;
    }

    /// A job started as planned.
    pub fn started(&self) {
        self.lock().starts += 1;
    }

    /// Something happened that is kept as an event too.
    pub fn event(&self, kind: &EventKind) {
        *self.lock().events.entry(kind.clone()).or_default() += 1;
    }

    /// A tick of a reconciler ended; `succeeded_at`: absent where it failed.
    pub fn ticked(&self, task: &'static str, duration: Duration, succeeded_at: Option<UnixTime>) {
        let mut counts = self.lock();
        let ticks = counts.ticks.entry(task).or_default();
        ticks.durations.add(duration);
        ticks.failures += u64::from(succeeded_at.is_none());
        ticks.succeeded_at = succeeded_at.or(ticks.succeeded_at);
    }

    /// A job started without what was decided for it.
    pub fn missed(&self, why: Miss) {
        *self.lock().misses.entry(why).or_default() += 1;
    }

    /// Something that an agent reported is not believed.
    pub fn doubted(&self, reason: &'static str) {
        *self.lock().doubted.entry(reason).or_default() += 1;
    }

    /// A task went past a row that it cannot do its work for.
    pub fn passed_over(&self, task: &'static str) {
        *self.lock().passed_over.entry(task).or_default() += 1;
    }

    /// An outcome was handed to the learning.
    pub fn observed(&self) {
        self.lock().observations += 1;
    }

    /// A model was trained; `outcome`: `promoted` or `rejected`.
    pub fn trained(&self, outcome: &'static str) {
        *self.lock().models.entry(outcome).or_default() += 1;
    }

    /// A run ended; of its device time, `shared_device_seconds` were shared.
    pub fn ran(&self, run: &Sums, shared_device_seconds: f64) {
        self.lock().add_run(run, shared_device_seconds);
    }

    /// A call of Slurm took so long.
    pub fn slurm_called(&self, call: &'static str, duration: Duration, failed: Option<SlurmFailure>) {
        let mut counts = self.lock();
        let calls = counts.slurm.entry(call).or_default();
        calls.durations.add(duration);
        match failed {
            None => {}
            Some(SlurmFailure::Refused) => calls.refused += 1,
            Some(SlurmFailure::Unanswered) => calls.unanswered += 1,
        }
    }
}

/// How a call of Slurm failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlurmFailure {
    /// It said no.
    Refused,
    /// It did not answer.
    Unanswered,
}

impl Counts {
    fn add_run(&mut self, run: &Sums, shared_device_seconds: f64) {
        self.shared_device_seconds += shared_device_seconds;
        let sum = &mut self.account;
        sum.run_count += run.run_count;
        sum.shared_run_count += run.shared_run_count;
        sum.gpu_seconds += run.gpu_seconds;
        sum.shared_seconds += run.shared_seconds;
        sum.unmeasured_seconds += run.unmeasured_seconds;
        sum.energy_joules += run.energy_joules;
        sum.promises_kept += run.promises_kept;
        sum.promises_broken += run.promises_broken;
        // A counter only grows: gains and losses are two.
        sum.gpu_seconds_saved += run.gpu_seconds_saved.max(0.0);
        self.gpu_seconds_lost += (-run.gpu_seconds_saved).max(0.0);
        sum.energy_joules_saved += run.energy_joules_saved.max(0.0);
        self.energy_joules_lost += (-run.energy_joules_saved).max(0.0);
        let is_measured = run.shared_run_count > 0 && run.unmeasured_seconds <= 0.0;
        self.measured_runs += u64::from(is_measured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_and_losses_are_kept_apart_so_that_neither_falls() {
        let tally = Tally::default();
        let run = |saved: f64, unmeasured: f64| Sums {
            shared_run_count: 1,
            gpu_seconds_saved: saved,
            energy_joules_saved: -saved,
            unmeasured_seconds: unmeasured,
            ..Sums::default()
        };
        for run in [run(40.0, 0.0), run(-10.0, 0.0), run(0.0, 5.0)] {
            tally.ran(&run, 20.0);
        }
        let counts = tally.counts();
        assert!((counts.shared_device_seconds - 60.0).abs() < 1e-9);
        assert!((counts.account.gpu_seconds_saved - 40.0).abs() < 1e-9);
        assert!((counts.gpu_seconds_lost - 10.0).abs() < 1e-9);
        assert!((counts.account.energy_joules_saved - 10.0).abs() < 1e-9);
        assert!((counts.energy_joules_lost - 40.0).abs() < 1e-9);
        assert_eq!((counts.account.shared_run_count, counts.measured_runs), (3, 2));
    }
}
