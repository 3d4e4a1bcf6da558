//! The planner with trials, on a site that is played out: pairs start, are watched, and are taken apart where they break; what
//! was seen is learnt before the next choice. Every cost is charged in device hours: the host's slowing, the guest's
//! work done for nothing, its restart, and two that do not fit.

mod site;

use super::Backtest;
use super::draw::{Part, Queue};
use super::score::Tally;
use crate::history::Observation;
use crate::trials::TrialPolicy;
use site::Site;

/// What came of the trials of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct TrialTally {
    /// Pairs that were tried.
    pub(super) tried: usize,
    /// Of these, how many kept their promises as far as the watch saw.
    pub(super) held: usize,
    /// Guests that went back, of trials or of others.
    pub(super) went_back: usize,
    /// Device hours that pairs lost that were taken apart, restarts and misfits included.
    pub(super) hours_lost: f64,
    /// Device hours that whoever waited for a verdict kept a device waiting.
    pub(super) hours_waited: f64,
}

/// Plays a queue to its end, from what was observed before.
pub(super) fn replay(
    backtest: &Backtest<'_>,
    queue: &Queue,
    known: Vec<Observation>,
    policy: TrialPolicy,
    seed: u64,
) -> (Tally, TrialTally) {
    let rng = Part::Trials(queue.jobs.len()).of_seed(seed);
    Site::new(backtest, queue, known, policy, rng).played_out()
}
