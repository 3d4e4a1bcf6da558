//! The rivals' choices, and the oracle's.

use super::draw::Queue;
use super::exact;
use super::guess::{Guess, Guesses};
use super::score::{self, Chosen};
use super::truth::{Combination, Truth};
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The best admitted combination of two workloads.
#[derive(Debug, Clone, Copy)]
struct Offer {
    combination: usize,
    weight: f64,
    lows: Option<[f64; 2]>,
}

type Offers = BTreeMap<[usize; 2], Offer>;

fn keep_better(offers: &mut Offers, workloads: [usize; 2], offer: Offer) {
    let best = offers.entry(workloads).or_insert(offer);
    if offer.weight > best.weight {
        *best = offer;
    }
}

/// Offers that the truth makes: promises are kept, hours are saved.
fn true_offers(truth: &Truth, queue: &Queue, speed_min: f64) -> Offers {
    let counts = queue.counts();
    let mut offers = Offers::new();
    for (at, combination) in in_queue(truth, &counts) {
        let Some(speeds) = combination.speeds.filter(|speeds| score::keeps(*speeds, speed_min)) else {
            continue;
        };
        let offer = Offer { combination: at, weight: score::hours_saved(speeds), lows: None };
        if offer.weight > 0.0 {
            keep_better(&mut offers, combination.workloads, offer);
        }
    }
    offers
}

/// Offers that guesses make: the promise holds at the bound of each, and hours are expected to be saved.
fn guessed_offers(
    truth: &Truth,
    queue: &Queue,
    guesses: &Guesses,
    seen_unfit: &BTreeSet<usize>,
    speed_min: f64,
) -> Offers {
    let counts = queue.counts();
    let mut offers = Offers::new();
    for (at, combination) in in_queue(truth, &counts).filter(|(at, _)| !seen_unfit.contains(at)) {
        let Some(guess) = guesses.get(&at) else { continue };
        let weight = score::hours_saved(guess.map(|guess| guess.speed));
        let lows = guess.map(|Guess { low, .. }| low);
        if weight > 0.0 && score::keeps(lows, speed_min) {
            let offer = Offer { combination: at, weight, lows: Some(lows) };
            keep_better(&mut offers, combination.workloads, offer);
        }
    }
    offers
}

/// The combinations that jobs of the queue could form.
fn in_queue<'t>(
    truth: &'t Truth,
    counts: &'t BTreeMap<usize, usize>,
) -> impl Iterator<Item = (usize, &'t Combination)> {
    truth.combinations.iter().enumerate().filter(|(_, combination)| {
        let [a, b] = combination.workloads;
        let [of_a, of_b] = [a, b].map(|workload| counts.get(&workload).copied().unwrap_or(0));
        if a == b { of_a > 1 } else { of_a > 0 && of_b > 0 }
    })
}

/// Exact matching on the truth.
pub(super) fn oracle(truth: &Truth, queue: &Queue, speed_min: f64) -> Vec<Chosen> {
    matched(&true_offers(truth, queue, speed_min), queue)
}

/// Exact matching on guesses; no combination that was seen not to fit.
pub(super) fn best_guessed(
    truth: &Truth,
    queue: &Queue,
    guesses: &Guesses,
    seen_unfit: &BTreeSet<usize>,
    speed_min: f64,
) -> Vec<Chosen> {
    let chosen = matched(&guessed_offers(truth, queue, guesses, seen_unfit, speed_min), queue);
    // Without a bound of its own a model has stated nothing that could be checked.
    if guesses.values().flatten().any(|guess| guess.low < guess.speed) {
        return chosen;
    }
    chosen.into_iter().map(|pairs| Chosen { lows: None, ..pairs }).collect()
}

fn matched(offers: &Offers, queue: &Queue) -> Vec<Chosen> {
    let weights = offers.iter().map(|(ends, offer)| (*ends, offer.weight)).collect();
    let pairs = exact::matched(&queue.counts(), &weights);
    let pairs = pairs.into_iter().map(|(ends, count)| (&offers[&ends], count));
    pairs.map(|(offer, count)| Chosen { combination: offer.combination, count, lows: offer.lows }).collect()
}

/// The best guessed pair first, as often as there are jobs for it, then the next.
pub(super) fn greedy(
    truth: &Truth,
    queue: &Queue,
    guesses: &Guesses,
    seen_unfit: &BTreeSet<usize>,
    speed_min: f64,
) -> Vec<Chosen> {
    let offers = guessed_offers(truth, queue, guesses, seen_unfit, speed_min);
    let mut order: Vec<(&[usize; 2], &Offer)> = offers.iter().collect();
    order.sort_by(|a, b| b.1.weight.total_cmp(&a.1.weight).then_with(|| a.0.cmp(b.0)));
    let mut left = queue.counts();
    let mut chosen = Vec::new();
    for ([a, b], offer) in order {
        let [of_a, of_b] = [a, b].map(|workload| left.get(workload).copied().unwrap_or(0));
        let count = if a == b { of_a / 2 } else { of_a.min(of_b) };
        if count > 0 {
            for workload in [a, b] {
                *left.entry(*workload).or_insert(count) -= count;
            }
            chosen.push(Chosen { combination: offer.combination, count, lows: offer.lows });
        }
    }
    chosen
}

/// In random order, each job takes the next one that it may share with. `may_use` says which combinations count.
pub(super) fn random(
    truth: &Truth,
    queue: &Queue,
    may_use: impl Fn(&Combination) -> bool,
    rng: &mut ChaCha8Rng,
) -> Vec<Chosen> {
    let mut usable: BTreeMap<[usize; 2], Vec<usize>> = BTreeMap::new();
    for (at, combination) in truth.combinations.iter().enumerate().filter(|(_, found)| may_use(found)) {
        usable.entry(combination.workloads).or_default().push(at);
    }
    let mut waiting = queue.jobs.clone();
    waiting.shuffle(rng);
    let mut chosen = Vec::new();
    while let Some(job) = waiting.pop() {
        let place =
            waiting.iter().rposition(|other| usable.contains_key(&[job.min(*other), job.max(*other)]));
        let Some(place) = place else { continue };
        let partner = waiting.remove(place);
        let all = usable.get(&[job.min(partner), job.max(partner)]);
        if let Some(combination) = all.and_then(|all| all.choose(rng)) {
            chosen.push(Chosen { combination: *combination, count: 1, lows: None });
        }
    }
    chosen
}

/// Which combinations a random partner may be taken under: those that fit, without caps where that was measured.
pub(super) fn fits_uncapped_first(truth: &Truth) -> impl Fn(&Combination) -> bool {
    let uncapped: BTreeSet<[usize; 2]> = truth
        .combinations
        .iter()
        .filter(|combination| combination.speeds.is_some() && combination.is_uncapped())
        .map(|combination| combination.workloads)
        .collect();
    move |combination| {
        combination.speeds.is_some()
            && (combination.is_uncapped() || !uncapped.contains(&combination.workloads))
    }
}
