//! The backtest: random queues replayed against pairs that were measured, so that policies can be compared on what
//! really happened. Pure: chance comes from a seed, one for each repetition; whoever calls may run seeds side by side.
//!
//! ```text
//! observations ─► truth (combinations, clipped, averaged) ─┐
//! seed ─► draw (old and new families, history, queue) ─────┼─► guesses (ours, trees) ─► choose / ours ─► score ─► report
//! ```
//!
//! Half of the families are old, half new; the queue is drawn from the new ones. No policy may choose a combination that
//! was not measured. The oracle alone sees the truth.

mod choose;
mod chosen;
mod draw;
mod exact;
pub mod groups;
mod guess;
mod informed;
pub mod mig;
mod ours;
mod report;
mod score;
mod seed;
#[cfg(test)]
mod tests;
mod trees;
mod trials;
mod truth;
pub mod week;

pub use report::{EstimateScore, PolicyScore, Protocol, Report, SetSize, SplitScore, TrialScore};
pub use seed::{CalibrationPoint, SeedOutcome};
pub use truth::{Combination, Truth};

use crate::history::Observation;
use crate::trials::TrialPolicy;
use crate::view::ProfileBook;
use pillion_core::SlowdownRatio;
use pillion_core::device::Mechanism;
use serde::Serialize;

/// How many observed pairings the warm stages know besides the history of the old families.
pub const WARM_OBSERVATIONS: [usize; 3] = [20, 50, 100];
/// Noise of the speeds in those observations: standard deviation of the factor.
const NOISE_FRACTION: f64 = 0.03;
/// Seeds whose oracle saves less than this of the exclusive hours do not count for `s_kept`.
const ORACLE_SAVES_MIN_FRACTION: f64 = 0.05;

/// What is to be replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct BacktestOptions {
    /// Sizes of the queues, each at least 2.
    pub queues: Vec<usize>,
    /// How many seeds: 0, 1, .. so many less one.
    pub seeds: u64,
    /// The promise to every job.
    pub slowdown_ratio_max: SlowdownRatio,
    /// How many observed pairings are known when warm, each a stage of its own; [`WARM_OBSERVATIONS`] by default.
    pub warm_observations: Vec<usize>,
    /// Which pairings were observed then.
    pub observe: Observe,
    /// How pairs outside the bounds are tried; absent = that is not replayed.
    pub trials: Option<TrialPolicy>,
}

/// Which pairings the warm stages have observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observe {
    /// Half among new workloads, half of a new one with an old one, by chance.
    #[default]
    Random,
    /// Those that an optimist would let share in the first queue, a few at a time.
    Chosen,
}

/// Why nothing can be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BacktestError {
    /// There is no truth.
    #[error("no measured pair is of the device '{device_model}'")]
    NothingMeasured {
        /// The device model.
        device_model: String,
    },
    /// There must be an old family and a new one.
    #[error("the measured pairs are of {families} families; at least 2 are needed")]
    TooFewFamilies {
        /// How many there are.
        families: usize,
    },
    /// A queue of one job has nothing to pair.
    #[error("a queue has at least 2 jobs")]
    QueueTooShort,
    /// Nothing would be replayed.
    #[error("at least one queue and one seed are needed")]
    NothingToReplay,
}

/// The policies that are compared on each queue, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Every job has a device to itself.
    Exclusive,
    /// A random partner among those that fit beside it.
    RandomThatFits,
    /// A random partner, both capped at one half, where that was measured.
    HalfHalf,
    /// The best predicted pair first; our predictions and bounds.
    Greedy,
    /// Extra Trees on both solo profiles and caps, exact matching under the promise.
    ExtraTrees,
    /// Pillion: the learned model and the planner as they are on a cluster.
    Ours,
    /// The planner with trials, from the same model, learning as it goes.
    Trials,
    /// The planner with one observation of every combination: what noise leaves possible.
    Informed,
    /// Exact matching on the truth under the promise.
    Oracle,
}

/// Measured pairs, ready to be replayed.
#[derive(Debug, Clone)]
pub struct Backtest<'a> {
    profiles: &'a ProfileBook,
    observations: &'a [Observation],
    options: BacktestOptions,
    truth: Truth,
}

impl<'a> Backtest<'a> {
    /// Sorts what was measured. Observations of `device_model`, with the mechanism that most of these have, are the truth;
    /// the others are left to the history of the old families.
    ///
    /// # Errors
    /// [`BacktestError`] where nothing can be replayed.
    pub fn new(
        profiles: &'a ProfileBook,
        observations: &'a [Observation],
        device_model: &str,
        options: BacktestOptions,
    ) -> Result<Self, BacktestError> {
        if options.queues.is_empty() || options.seeds == 0 {
            return Err(BacktestError::NothingToReplay);
        }
        if options.queues.iter().any(|length| *length < 2) {
            return Err(BacktestError::QueueTooShort);
        }
        let truth = Truth::new(profiles, observations, device_model);
        if truth.combinations.is_empty() {
            return Err(BacktestError::NothingMeasured { device_model: device_model.to_owned() });
        }
        let families = truth.families().len();
        if families < 2 {
            return Err(BacktestError::TooFewFamilies { families });
        }
        Ok(Self { profiles, observations, options, truth })
    }

    /// What was measured.
    pub const fn truth(&self) -> &Truth {
        &self.truth
    }

    /// What is replayed, as it was given to [`Backtest::new`].
    pub const fn options(&self) -> &BacktestOptions {
        &self.options
    }

    /// Replays one seed: every queue, every policy.
    pub fn seed(&self, seed: u64) -> SeedOutcome {
        seed::replay(self, seed)
    }

    /// What the seeds come to, in the order of queue and policy. The order of `outcomes` must be that of the seeds.
    pub fn report(&self, outcomes: &[SeedOutcome]) -> Report {
        report::report(self, outcomes)
    }

    /// The speed below which a promise is broken.
    fn speed_min(&self) -> f64 {
        self.options.slowdown_ratio_max.value().recip()
    }

    fn device_model(&self) -> &str {
        &self.truth.device_model
    }

    const fn mechanism(&self) -> Mechanism {
        self.truth.mechanism
    }
}
