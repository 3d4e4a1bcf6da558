//! Chance: which families are old, what was observed of the new ones, and who stands in the queue. Everything from a
//! seed.

use super::truth::Truth;
use super::{Backtest, NOISE_FRACTION};
use crate::history::{Observation, ObservedTenant};
use pillion_core::share::Sharing;
use rand::SeedableRng as _;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Normal};
use std::collections::{BTreeMap, BTreeSet};

/// Which workloads are new, by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) is_new: Vec<bool>,
}

impl Split {
    /// The first half of the shuffled families is old; the rest, one more where they are odd, is new.
    pub(super) fn draw(truth: &Truth, rng: &mut ChaCha8Rng) -> Self {
        let mut order: Vec<usize> = (0..truth.families().len()).collect();
        order.shuffle(rng);
        let old: BTreeSet<usize> = order[..order.len() / 2].iter().copied().collect();
        Self { is_new: truth.family_of.iter().map(|family| !old.contains(family)).collect() }
    }

    /// How many of the two workloads are new.
    pub(super) fn new_count(&self, workloads: [usize; 2]) -> usize {
        workloads.iter().filter(|workload| self.is_new[**workload]).count()
    }

    fn new_workloads(&self) -> Vec<usize> {
        (0..self.is_new.len()).filter(|workload| self.is_new[*workload]).collect()
    }
}

/// A queue: of each workload in it, how many jobs; and the jobs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) jobs: Vec<usize>,
}

impl Queue {
    /// Jobs of new workloads, each as likely as the other.
    pub(super) fn draw(split: &Split, length: usize, rng: &mut ChaCha8Rng) -> Self {
        let new = split.new_workloads();
        Self { jobs: (0..length).filter_map(|_| new.choose(rng).copied()).collect() }
    }

    /// How many jobs of each workload.
    pub(super) fn counts(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for workload in &self.jobs {
            *counts.entry(*workload).or_insert(0) += 1;
        }
        counts
    }
}

/// What is known at each stage: cold, then with more and more observed pairings.
pub(super) struct History {
    /// What was measured among old families only, as it was.
    cold: Vec<Observation>,
    /// Observed combinations, half among new workloads, half of a new one with an old one, in the order of stages.
    observed: Vec<(usize, Observation)>,
}

impl History {
    pub(super) fn draw(backtest: &Backtest<'_>, split: &Split, rng: &mut ChaCha8Rng) -> Self {
        let truth = backtest.truth();
        let of_old = backtest.observations.iter().filter(|observation| {
            observation.tenants.iter().all(|tenant| {
                truth.workload(&tenant.workload).is_some_and(|workload| !split.is_new[workload])
            })
        });
        let cold = of_old.cloned().collect();
        let (mut among, mut between) = (Vec::new(), Vec::new());
        for (at, combination) in truth.combinations.iter().enumerate() {
            match split.new_count(combination.workloads) {
                2 => among.push(at),
                1 => between.push(at),
                _ => {}
            }
        }
        among.shuffle(rng);
        between.shuffle(rng);
        let half = backtest.options().warm_observations.iter().max().map_or(0, |most| most.div_ceil(2));
        let mut observed = Vec::new();
        for at in 0..half {
            for drawn in [among.get(at), between.get(at)].into_iter().flatten() {
                observed.push((*drawn, observe(truth, *drawn, rng)));
            }
        }
        Self { cold, observed }
    }

    /// Has these observed before all others.
    pub(super) fn observe_first(&mut self, observed: Vec<(usize, Observation)>) {
        let first: BTreeSet<usize> = observed.iter().map(|(at, _)| *at).collect();
        self.observed.retain(|(at, _)| !first.contains(at));
        self.observed.splice(0..0, observed);
    }

    /// What is known after so many observed pairings.
    pub(super) fn known(&self, count: usize) -> Vec<Observation> {
        let observed = self.observed.iter().take(count).map(|(_, observation)| observation);
        self.cold.iter().chain(observed).cloned().collect()
    }

    /// The combinations that were observed by then.
    pub(super) fn observed_places(&self, count: usize) -> BTreeSet<usize> {
        self.observed.iter().take(count).map(|(at, _)| *at).collect()
    }
}

/// One more run of a measured combination: the truth with noise.
pub(super) fn observe(truth: &Truth, at: usize, rng: &mut ChaCha8Rng) -> Observation {
    let combination = &truth.combinations[at];
    let noise = Normal::new(1.0, NOISE_FRACTION).expect("a standard deviation above 0");
    let tenants = [0, 1].map(|end| ObservedTenant {
        workload: truth.workloads[combination.workloads[end]].clone(),
        sharing: Sharing::by(truth.mechanism, combination.caps[end], None),
        speed_fraction: combination.speeds.map(|speeds| (speeds[end] * noise.sample(rng)).max(0.0)),
        is_self_reported: false,
    });
    Observation {
        device_model: truth.device_model.clone(),
        tenants: tenants.to_vec(),
        power_watts: None,
        fits: combination.speeds.is_some(),
        run_count: 1.0,
        speed_fraction_deviation: None,
    }
}

/// Far from the streams of all queues.
const TRIALS_STREAM: u64 = 1 << 40;

/// Which part of a seed's chance is asked for: each has a stream of its own, so that a change in one moves no other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Split,
    History,
    /// The queue of so many jobs.
    Queue(usize),
    /// One observation of everything.
    Informed,
    /// Random partners for that queue.
    Partners(usize),
    /// What the watch reads in that queue.
    Trials(usize),
    /// What an optimist chose to observe.
    Chosen,
}

impl Part {
    /// The generator of this part.
    pub(super) fn of_seed(self, seed: u64) -> ChaCha8Rng {
        let (kind, length) = match self {
            Self::Split => (0, 0),
            Self::History => (1, 0),
            Self::Informed => (2, 0),
            Self::Queue(length) => (2, length),
            Self::Partners(length) => (3, length),
            Self::Trials(length) => (TRIALS_STREAM, length),
            Self::Chosen => (TRIALS_STREAM + 1, 0),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(4 * length as u64 + kind);
        rng
    }
}
