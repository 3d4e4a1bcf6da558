//! The planner with trials, on a site that is played out: pairs start, are watched, and are taken apart where they break; what
//! was seen is learnt before the next choice. Every cost is charged in device hours: the host's slowing, the guest's
//! work done for nothing, its restart, and two that do not fit.

mod record;
mod scene;
mod site;

use super::draw::{Part, Queue};
use super::score::Tally;
use super::{Backtest, ours};
use crate::history::Observation;
use crate::policy::Policy;
use crate::trials::TrialPolicy;
use rand_chacha::ChaCha8Rng;
pub(super) use scene::{Begins, Played, Scene};
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
    let scene = Scene {
        truth: backtest.truth(),
        profiles: backtest.profiles,
        policy: Policy { trials: Some(policy), ..ours::policy(backtest) },
        trial: policy,
        view: ours::view(backtest, queue),
        jobs: queue.jobs.iter().map(|workload| (*workload, Begins::Waits)).collect(),
        known,
        verdicts: Vec::new(),
    };
    let played = play(scene, rng);
    (played.tally, played.trials)
}

/// Plays a scene until every job has ended.
pub(super) fn play(scene: Scene<'_>, rng: ChaCha8Rng) -> Played {
    Site::new(scene, rng).played_out()
}
