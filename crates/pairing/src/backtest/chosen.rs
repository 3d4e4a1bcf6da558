//! Observations that an optimist chooses: again and again the pairs of the queue are planned as if everything that may well be fast
//! were, a few of those that were never seen are observed, and the model learns them.

use super::draw::{History, Part, Queue, Split, observe as observed_once};
use super::{Backtest, exact, guess, score};
use crate::history::Observation;
use crate::model::{TrainOptions, train};
use std::collections::{BTreeMap, BTreeSet};

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
    let mut sighted = BTreeSet::new();
    while observed.len() < most {
        let next = wanted(backtest, split, queue, &known, &sighted);
        if next.is_empty() {
            break;
        }
        for at in next.into_iter().take(OBSERVED_AT_ONCE.min(most - observed.len())) {
            let observation = observed_once(backtest.truth(), at, rng);
            sighted.insert(at);
            known.push(observation.clone());
            observed.push((at, observation));
        }
    }
    history.observe_first(observed);
}

/// What was not seen of an optimistic plan, the most promising first.
fn wanted(
    backtest: &Backtest<'_>,
    split: &Split,
    queue: &Queue,
    known: &[Observation],
    seen: &BTreeSet<usize>,
) -> Vec<usize> {
    let (truth, counts) = (backtest.truth(), queue.counts());
    let model = train(backtest.profiles, known, &TrainOptions::default());
    let mut best: BTreeMap<[usize; 2], (f64, usize)> = BTreeMap::new();
    for (at, guesses) in guess::of_model(backtest, split, &model) {
        let workloads = truth.combinations[at].workloads;
        let are_there = workloads.iter().all(|workload| counts.contains_key(workload));
        let keep = guesses[0].kept.0 * guesses[1].kept.0;
        let gain = score::hours_saved(guesses.map(|guess| guess.kept.1));
        // What was seen is known: as it was seen, or not at all.
        let weight = if seen.contains(&at) && keep < 0.5 { 0.0 } else { gain * keep };
        if are_there && weight > best.get(&workloads).map_or(0.0, |(weight, _)| *weight) {
            best.insert(workloads, (weight, at));
        }
    }
    let weights = best.iter().map(|(ends, (weight, _))| (*ends, *weight)).collect();
    let planned = exact::matched(&counts, &weights);
    let mut wanted: Vec<(f64, usize)> =
        planned.keys().map(|ends| best[ends]).filter(|(_, at)| !seen.contains(at)).collect();
    if wanted.is_empty() {
        wanted = best.values().copied().filter(|(_, at)| !seen.contains(at)).collect();
    }
    wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    wanted.into_iter().map(|(_, at)| at).collect()
}
