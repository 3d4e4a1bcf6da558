//! A fresh installation over a simulated week of recurring jobs: nothing is known on its first morning, and what shares is
//! learnt from. Pure; chance comes from the seed.
//!
//! ```text
//! seed ─► calendar (who runs in each of the rounds) ─► round: view ─► plan ─► outcome (the truth) ─┬─► tally, by day
//!                                                         ▲                                        │
//!                                                         └── installation: profiles, model ◄──────┘ what was observed
//! ```
//!
//! A round is planned by the planner as it is. What it starts together goes one way only: [`outcome`] says what came of it
//! and [`installation`] is told. Whatever else observes pairs (trials, a watch that parts them) comes between these two.

mod calendar;
mod installation;
mod names;
mod oracle;
mod outcome;
mod report;
mod round;
#[cfg(test)]
mod tests;

pub use report::{DayScore, RegretPoint, WeekProtocol, WeekReport};

use super::BacktestError;
use super::truth::Truth;
use crate::history::Observation;
use crate::policy::FirstRuns;
use crate::trials::TrialPolicy;
use crate::view::ProfileBook;
use calendar::Calendar;
use installation::Installation;
use oracle::Rule;
use outcome::Tally;
use pillion_core::SlowdownRatio;
use serde::Serialize;

/// Days of a week.
pub const DAYS: usize = 7;
/// How often a day jobs are planned.
pub const ROUNDS_PER_DAY: usize = 4;
/// How long a first run was measured alone when the others of its round come, in hours of a run that takes one: the
/// usual `policy.first_run_seconds_min`.
const FIRST_RUN_ALONE_HOURS: f64 = 300.0 / 3600.0;

/// A promise is seen to break where a speed is measured so far below it, of the speed that it asks for.
const WATCH_MARGIN: f64 = 0.02;

/// A watch that takes pairs apart, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Watch {
    /// How long both are together before their speeds can be read, in hours.
    pub read_hours: f64,
    /// What it takes the guest to begin anew, in hours.
    pub restart_hours: f64,
}

impl Default for Watch {
    /// One minute until the speeds are read, two to begin anew.
    fn default() -> Self {
        Self { read_hours: 60.0 / 3600.0, restart_hours: 120.0 / 3600.0 }
    }
}

/// Whether a new workload is known as a later version of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recurrence {
    /// What is new has nothing to do with anything before.
    Unknown,
    /// Versions of one workload are of one family.
    Versions,
}

/// What is to be replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct WeekOptions {
    /// Jobs in each round, at least 2.
    pub jobs: usize,
    /// How many weeks, each of its own seed: 0, 1, .. so many less one.
    pub seeds: u64,
    /// The promise to every job.
    pub slowdown_ratio_max: SlowdownRatio,
    /// How probably a job runs what ran in an earlier round, 0..=1; the others run something new.
    pub recur_fraction: f64,
    /// What becomes of first runs.
    pub first_runs: FirstRuns,
    /// What is known of new workloads.
    pub recurrence: Recurrence,
    /// Whether pairs that break a promise are taken apart.
    pub watch: Option<Watch>,
    /// How pairs outside the bounds are tried, under a watch of their own; absent = they are not.
    pub trials: Option<TrialPolicy>,
}

/// Measured pairs, ready for weeks.
#[derive(Debug, Clone)]
pub struct Week<'a> {
    profiles: &'a ProfileBook,
    options: WeekOptions,
    truth: Truth,
}

/// Who fared so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeekPolicy {
    /// Pillion from an empty history.
    Ours,
    /// Exact matching on the truth; first runs share with nobody.
    OracleAlone,
    /// The same; first runs are joined by others after their first minutes.
    OracleHosts,
    /// Exact matching of all jobs on the truth.
    Oracle,
}

/// All of them, in the order of the report.
pub(crate) const POLICIES: [WeekPolicy; 4] =
    [WeekPolicy::Ours, WeekPolicy::OracleAlone, WeekPolicy::OracleHosts, WeekPolicy::Oracle];

/// What came of one week: a tally of each round, each in the order of the policies.
#[derive(Debug, Clone, PartialEq)]
pub struct WeekOutcome {
    rounds: Vec<[Tally; POLICIES.len()]>,
}

impl<'a> Week<'a> {
    /// Sorts what was measured, as [`super::Backtest::new`].
    ///
    /// # Errors
    /// [`BacktestError`] where nothing can be replayed.
    pub fn new(
        profiles: &'a ProfileBook,
        observations: &[Observation],
        device_model: &str,
        options: WeekOptions,
    ) -> Result<Self, BacktestError> {
        if options.seeds == 0 {
            return Err(BacktestError::NothingToReplay);
        }
        if options.jobs < 2 {
            return Err(BacktestError::QueueTooShort);
        }
        let truth = Truth::new(profiles, observations, device_model);
        if truth.combinations.is_empty() {
            return Err(BacktestError::NothingMeasured { device_model: device_model.to_owned() });
        }
        Ok(Self { profiles, options, truth })
    }

    /// Replays one week.
    pub fn seed(&self, seed: u64) -> WeekOutcome {
        let calendar = Calendar::draw(self.truth.workloads.len(), &self.options, seed);
        let mut installation = Installation::new(self, &calendar, seed);
        let rounds = calendar.rounds.iter().map(|round| {
            let ours = installation.round(round);
            let best = |rule| oracle::best(&self.truth, &calendar.jobs(round), self.speed_min(), rule);
            [ours, best(Rule::FirstRunsAlone), best(Rule::FirstRunsHost), best(Rule::Free)]
        });
        WeekOutcome { rounds: rounds.collect() }
    }

    /// What the weeks come to. The order of `outcomes` must be that of the seeds.
    pub fn report(&self, outcomes: &[WeekOutcome]) -> WeekReport {
        report::report(self, outcomes)
    }

    /// The speed below which a promise is broken.
    fn speed_min(&self) -> f64 {
        self.options.slowdown_ratio_max.value().recip()
    }
}
