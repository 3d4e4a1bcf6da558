//! One repetition: draws, trains, lets every policy choose, and scores it.

use super::draw::{History, Part, Queue, Split};
use super::guess::{self, Guess, Guesses};
use super::informed::Informed;
use super::score::{Tally, as_float, hours_saved};
use super::trials::{self, TrialTally};
use super::truth::{Combination, Truth};
use super::{Backtest, Observe, PolicyName, choose, chosen, ours, trees};
use crate::history::Observation;
use crate::model::{Learned, TrainOptions, train};
use crate::planner::candidates::caps::CAP_GAIN_MIN;
use std::collections::{BTreeMap, BTreeSet};

/// Who chose, and from how many observed pairings besides the old families' history; absent = who learns nothing.
pub(super) type Contestant = (PolicyName, Option<usize>);

/// What came of one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedOutcome {
    /// Of each queue, in the order of the options, what each contestant made of it.
    pub(super) tallies: Vec<BTreeMap<Contestant, Tally>>,
    /// How good the estimates were.
    pub(super) errors: BTreeMap<Contestant, ErrorSums>,
    /// How good the caps were that a model would choose.
    pub(super) splits: BTreeMap<Contestant, SplitSums>,
    /// Of each queue, in the order of the options, what came of trials.
    pub(super) trials: Vec<BTreeMap<Contestant, TrialTally>>,
    /// What ours said, cold, of uncapped pairs of new workloads: combination and sum of speeds.
    pub uncapped_sums: Vec<(usize, f64)>,
    /// What ours said of every combination of new workloads that it had not seen.
    pub calibration: Vec<CalibrationPoint>,
}

/// One estimate beside its truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationPoint {
    /// How many pairings had been observed besides the old families' history.
    pub observations: usize,
    /// Expected speed over solo speed, 0..=1.
    pub speed: f64,
    /// The truth was said to lie above it.
    pub low: f64,
    /// Standard deviation; 0 = not given.
    pub deviation: f64,
    /// Measured speed over solo speed, 0..=1.
    pub truth: f64,
}

/// Errors of the estimates for combinations of new workloads that were not seen before, summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ErrorSums {
    pub(super) speeds: usize,
    pub(super) error: f64,
    pub(super) square: f64,
    pub(super) above_low: usize,
    /// Of combinations whose bounds would keep the promise.
    pub(super) admissible: usize,
    pub(super) admissible_above_low: usize,
    /// Of sums of two uncapped speeds.
    pub(super) sums: usize,
    pub(super) sum_square: f64,
    pub(super) sum_relative: f64,
}

/// Sums of speeds over pairs of new workloads of which several splits were measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct SplitSums {
    pub(super) pairs: usize,
    pub(super) chosen: f64,
    pub(super) best: f64,
    pub(super) half_half: f64,
    pub(super) uncapped: f64,
}

pub(super) fn replay(backtest: &Backtest<'_>, seed: u64) -> SeedOutcome {
    let split = Split::draw(backtest.truth(), &mut Part::Split.of_seed(seed));
    let mut history = History::draw(backtest, &split, &mut Part::History.of_seed(seed));
    let lengths = backtest.options().queues.iter();
    let queues = lengths.map(|length| Queue::draw(&split, *length, &mut Part::Queue(*length).of_seed(seed)));
    let queues: Vec<Queue> = queues.collect();
    if backtest.options().observe == Observe::Chosen
        && let Some(queue) = queues.first()
    {
        chosen::observe(backtest, &split, queue, &mut history, seed);
    }
    let mut replay = Replay { backtest, split, history, queues, outcome: empty(backtest) };
    replay.untaught(seed);
    replay.stage(0, seed);
    for observations in &backtest.options().warm_observations {
        replay.stage(*observations, seed);
    }
    replay.outcome
}

fn empty(backtest: &Backtest<'_>) -> SeedOutcome {
    SeedOutcome {
        tallies: vec![BTreeMap::new(); backtest.options().queues.len()],
        errors: BTreeMap::new(),
        splits: BTreeMap::new(),
        trials: vec![BTreeMap::new(); backtest.options().queues.len()],
        uncapped_sums: Vec::new(),
        calibration: Vec::new(),
    }
}

struct Replay<'r, 'a> {
    backtest: &'r Backtest<'a>,
    split: Split,
    history: History,
    queues: Vec<Queue>,
    outcome: SeedOutcome,
}

impl Replay<'_, '_> {
    /// The policies that learn nothing, and the one that knows everything.
    fn untaught(&mut self, seed: u64) {
        let (truth, speed_min) = (self.backtest.truth(), self.backtest.speed_min());
        let fits = choose::fits_uncapped_first(truth);
        let informed = Informed::of(self.backtest, seed);
        for (queue, tallies) in self.queues.iter().zip(&mut self.outcome.tallies) {
            let rng = &mut Part::Partners(queue.jobs.len()).of_seed(seed);
            for (name, chosen) in [
                (PolicyName::Exclusive, Vec::new()),
                (PolicyName::RandomThatFits, choose::random(truth, queue, &fits, rng)),
                (PolicyName::HalfHalf, choose::random(truth, queue, Combination::fits_half_half, rng)),
                (PolicyName::Oracle, choose::oracle(truth, queue, speed_min)),
                (PolicyName::Informed, ours::choose(self.backtest, queue, &informed).0),
            ] {
                tallies.insert((name, None), Tally::of(truth, queue.jobs.len(), &chosen, speed_min));
            }
        }
        let guesses = guess::of_model(self.backtest, &self.split, &informed);
        let contestant = (PolicyName::Informed, None);
        self.outcome.splits.insert(contestant, splits(truth, &guesses, &BTreeSet::new()));
    }

    /// The policies that learn, from so many observed pairings besides the history.
    fn stage(&mut self, observations: usize, seed: u64) {
        let (backtest, truth) = (self.backtest, self.backtest.truth());
        let known = self.history.known(observations);
        let observed = self.history.observed_places(observations);
        let model: Learned = train(backtest.profiles, &known, &TrainOptions::default());
        let ours = guess::of_model(backtest, &self.split, &model);
        let theirs = trees::guesses(backtest, &self.split, &known, seed);
        let unfit: BTreeSet<usize> =
            observed.iter().copied().filter(|at| truth.combinations[*at].speeds.is_none()).collect();
        let speed_min = backtest.speed_min();
        for (queue, tallies) in self.queues.iter().zip(&mut self.outcome.tallies) {
            let greedy = choose::greedy(truth, queue, &ours, &unfit, speed_min);
            let trees = choose::best_guessed(truth, queue, &theirs, &unfit, speed_min);
            for (name, (chosen, unmeasured)) in [
                (PolicyName::Greedy, (greedy, 0)),
                (PolicyName::ExtraTrees, (trees, 0)),
                (PolicyName::Ours, ours::choose(backtest, queue, &model)),
            ] {
                let tally = Tally::of(truth, queue.jobs.len(), &chosen, speed_min);
                tallies.insert((name, Some(observations)), Tally { unmeasured, ..tally });
            }
        }
        self.tried(observations, seed, &known);
        for (name, guesses) in [(PolicyName::Ours, &ours), (PolicyName::ExtraTrees, &theirs)] {
            let contestant = (name, Some(observations));
            self.outcome.errors.insert(contestant, errors(truth, guesses, &observed, speed_min));
            self.outcome.splits.insert(contestant, splits(truth, guesses, &observed));
        }
        self.remember(observations, &ours, &observed);
    }

    /// The planner with trials, where these are replayed.
    fn tried(&mut self, observations: usize, seed: u64, known: &[Observation]) {
        let Some(policy) = self.backtest.options().trials else { return };
        let contestant = (PolicyName::Trials, Some(observations));
        for (at, queue) in self.queues.iter().enumerate() {
            let (tally, trials) = trials::replay(self.backtest, queue, known.to_vec(), policy, seed);
            self.outcome.tallies[at].insert(contestant, tally);
            self.outcome.trials[at].insert(contestant, trials);
        }
    }

    /// What the plots are drawn from.
    fn remember(&mut self, observations: usize, ours: &Guesses, seen: &BTreeSet<usize>) {
        let truth = self.backtest.truth();
        for (at, guesses) in ours.iter().filter(|(at, _)| !seen.contains(at)) {
            let combination = &truth.combinations[*at];
            if observations == 0 && combination.is_uncapped() {
                self.outcome.uncapped_sums.push((*at, sum(guesses)));
            }
            let points = guesses.iter().zip(combination.speeds.into_iter().flatten());
            self.outcome.calibration.extend(points.map(|(guess, truth)| CalibrationPoint {
                observations,
                speed: guess.speed,
                low: guess.low,
                deviation: guess.deviation,
                truth,
            }));
        }
    }
}

fn sum(guesses: &[Guess; 2]) -> f64 {
    guesses[0].speed + guesses[1].speed
}

fn errors(truth: &Truth, guesses: &Guesses, seen: &BTreeSet<usize>, speed_min: f64) -> ErrorSums {
    let mut sums = ErrorSums::default();
    for (at, guesses) in guesses.iter().filter(|(at, _)| !seen.contains(at)) {
        let combination = &truth.combinations[*at];
        let Some(speeds) = combination.speeds else { continue };
        let is_admissible = guesses.iter().all(|guess| super::score::keeps_one(guess.low, speed_min))
            && hours_saved(guesses.map(|guess| guess.speed)) > 0.0;
        for (guess, speed) in guesses.iter().zip(speeds) {
            let above = usize::from(speed >= guess.low);
            sums.speeds += 1;
            sums.error += guess.speed - speed;
            sums.square += (guess.speed - speed).powi(2);
            sums.above_low += above;
            if is_admissible {
                sums.admissible += 1;
                sums.admissible_above_low += above;
            }
        }
        if combination.is_uncapped() {
            let (said, measured) = (sum(guesses), combination.sum());
            sums.sums += 1;
            sums.sum_square += (said - measured).powi(2);
            sums.sum_relative += (said - measured).abs() / measured.max(f64::EPSILON);
        }
    }
    sums
}

/// For each pair of workloads of which no cap, an even split and something else were measured: the caps that the guesses
/// rate highest, by what they really gave. Pairs of which a combination was seen do not count.
fn splits(truth: &Truth, guesses: &Guesses, seen: &BTreeSet<usize>) -> SplitSums {
    let mut of_pair: BTreeMap<[usize; 2], Vec<usize>> = BTreeMap::new();
    for at in guesses.keys().filter(|at| truth.combinations[**at].speeds.is_some()) {
        of_pair.entry(truth.combinations[*at].workloads).or_default().push(*at);
    }
    let mut sums = SplitSums::default();
    for places in of_pair.values().filter(|places| !places.iter().any(|at| seen.contains(at))) {
        let measured: Vec<&Combination> = places.iter().map(|at| &truth.combinations[*at]).collect();
        let uncapped = measured.iter().find(|combination| combination.is_uncapped());
        let half_half = measured.iter().find(|combination| combination.is_half_half());
        let (Some(uncapped), Some(half_half)) = (uncapped, half_half) else { continue };
        // As the planner does: caps only for clearly more than without.
        let rated = places.iter().zip(&measured).map(|(at, combination)| {
            let least = if combination.is_uncapped() { CAP_GAIN_MIN } else { 0.0 };
            (sum(&guesses[at]) + least, combination)
        });
        let chosen = rated.max_by(|a, b| a.0.total_cmp(&b.0));
        sums.pairs += 1;
        sums.chosen += chosen.map_or(0.0, |(_, combination)| combination.sum());
        sums.best += measured.iter().map(|combination| combination.sum()).fold(0.0, f64::max);
        sums.half_half += half_half.sum();
        sums.uncapped += uncapped.sum();
    }
    sums
}

/// Their shares, pooled.
pub(super) fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| as_float(part) / as_float(whole))
}
