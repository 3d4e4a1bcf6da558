//! Observations that an optimist chooses: again and again the pairs of the queue are planned as if everything that may well be fast
//! were, a few of those that the bounds do not admit yet are observed, and the model learns them.

use super::draw::{History, Part, Queue, Split, observe as observed_once};
use super::{Backtest, exact, guess, score};
use crate::history::Observation;
use crate::model::{TrainOptions, train};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// So many are observed before the model learns again.
const OBSERVED_AT_ONCE: usize = 5;

/// Chooses what the warm stages have observed first, for the needs of this queue. What is left is drawn by chance.
pub(super) fn observe(
    backtest: &Backtest<'_>,
    split: &Split,
    queue: &Queue,
    history: &mut History,
    seed: u64,
) {
    let most = backtest.options().warm_observations.iter().max().copied().unwrap_or(0);
    let rng = &mut Part::Chosen.of_seed(seed);
    let mut known = history.known(0);
    let mut observed: Vec<(usize, Observation)> = Vec::new();
    let mut looked_at = BTreeMap::new();
    while observed.len() < most {
        let next = wanted(backtest, split, queue, &known, &looked_at);
        if next.is_empty() {
            break;
        }
        for at in next.into_iter().take(OBSERVED_AT_ONCE.min(most - observed.len())) {
            let observation = observed_once(backtest.truth(), at, rng);
            looked_at.insert(at, observation.fits);
            known.push(observation.clone());
            observed.push((at, observation));
        }
    }
    history.observe_first(observed);
}

/// What the bounds do not admit of an optimistic plan, the most promising first. What was never seen is hoped to be as fast as its
/// upper bound; what was seen is known, as it was seen or not at all, and is looked at once more only where nothing else is left.
/// `looked_at`: whether it fitted.
fn wanted(
    backtest: &Backtest<'_>,
    split: &Split,
    queue: &Queue,
    known: &[Observation],
    looked_at: &BTreeMap<usize, bool>,
) -> Vec<usize> {
    let (truth, counts, speed_min) = (backtest.truth(), queue.counts(), backtest.speed_min());
    let model = train(backtest.profiles, known, &TrainOptions::default());
    let mut best: BTreeMap<[usize; 2], Hope> = BTreeMap::new();
    for (at, guesses) in guess::of_model(backtest, split, &model) {
        let workloads = truth.combinations[at].workloads;
        let are_there = workloads.iter().all(|workload| counts.contains_key(workload));
        let hoped = guesses.map(|guess| if looked_at.contains_key(&at) { guess.speed } else { guess.high });
        if !are_there || looked_at.get(&at) == Some(&false) || !score::keeps(hoped, speed_min) {
            continue;
        }
        let is_admitted = score::keeps(guesses.map(|guess| guess.low), speed_min);
        let expected = score::hours_saved(guesses.map(|guess| guess.speed));
        let hope = Hope { weight: score::hours_saved(hoped), expected, at, is_admitted };
        if best.get(&workloads).is_none_or(|best| hope.compared(best).is_gt()) {
            best.insert(workloads, hope);
        }
    }
    let weights = best.iter().map(|(ends, hope)| (*ends, hope.weight)).collect();
    let planned = exact::matched(&counts, &weights);
    let mut wanted: Vec<Hope> =
        planned.keys().map(|ends| best[ends]).filter(|hope| !hope.is_admitted).collect();
    // What was never seen tells more than a second look.
    if wanted.iter().any(|hope| !looked_at.contains_key(&hope.at)) {
        wanted.retain(|hope| !looked_at.contains_key(&hope.at));
    }
    wanted.sort_by(|a, b| b.compared(a));
    wanted.into_iter().map(|hope| hope.at).collect()
}

/// What a pair may save.
#[derive(Debug, Clone, Copy)]
struct Hope {
    /// Hours that it saves at the speeds that are hoped for.
    weight: f64,
    /// And at the expected ones: where bounds end at 1, they tell pairs apart.
    expected: f64,
    at: usize,
    is_admitted: bool,
}

impl Hope {
    /// The more promising is greater; of two alike the one that stands first.
    fn compared(&self, other: &Self) -> Ordering {
        let by_hours = self.weight.total_cmp(&other.weight).then(self.expected.total_cmp(&other.expected));
        by_hours.then(other.at.cmp(&self.at))
    }
}
