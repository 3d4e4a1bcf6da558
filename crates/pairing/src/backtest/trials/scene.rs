//! What is played out, and what came of it.

use super::TrialTally;
use crate::backtest::score::Tally;
use crate::backtest::truth::Truth;
use crate::history::Observation;
use crate::policy::Policy;
use crate::trials::{TrialPolicy, TrialVerdict};
use crate::view::{ClusterView, FirstRun, ProfileBook};

/// How a job is met.
pub(in crate::backtest) enum Begins {
    /// It waits.
    Waits,
    /// It has a device to itself since so long before, for its workload runs for the first time. Who may join it has to know what
    /// was seen of it; absent = nobody may.
    Runs { for_seconds: f64, seen: Option<Box<FirstRun>> },
}

/// What is played out.
pub(in crate::backtest) struct Scene<'s> {
    pub(in crate::backtest) truth: &'s Truth,
    /// What is known of workloads alone, to learn from.
    pub(in crate::backtest) profiles: &'s ProfileBook,
    /// With [`Policy::trials`].
    pub(in crate::backtest) policy: Policy,
    pub(in crate::backtest) trial: TrialPolicy,
    /// All jobs as if they waited, their numbers from 1, and as many free devices.
    pub(in crate::backtest) view: ClusterView,
    /// Of each job its workload, by place in the truth, and how it is met.
    pub(in crate::backtest) jobs: Vec<(usize, Begins)>,
    /// What was observed of sharings before.
    pub(in crate::backtest) known: Vec<Observation>,
    /// What came of trials before.
    pub(in crate::backtest) verdicts: Vec<TrialVerdict>,
}

/// What came of it.
pub(in crate::backtest) struct Played {
    pub(in crate::backtest) tally: Tally,
    pub(in crate::backtest) trials: TrialTally,
    /// Jobs that were met running, and shared later.
    pub(in crate::backtest) joined_count: usize,
    pub(in crate::backtest) known: Vec<Observation>,
    pub(in crate::backtest) verdicts: Vec<TrialVerdict>,
}
