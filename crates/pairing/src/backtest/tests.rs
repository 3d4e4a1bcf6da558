//! Small sets whose truth is known: what is scored is computed by hand, and chance comes from the seed alone.

use super::draw::{History, Queue, Split};
use super::guess::{Guess, Guesses};
use super::score::{Chosen, pair_hours};
use super::*;
use crate::history::ObservedTenant;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, WorkloadKey};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

pub(super) const DEVICE: &str = "v100";

pub(super) fn observation(
    workloads: [&str; 2],
    caps: [Option<f64>; 2],
    speeds: Option<[f64; 2]>,
) -> Observation {
    let tenant = |end: usize| ObservedTenant {
        workload: WorkloadKey::new(workloads[end]),
        sharing: Sharing::by(Mechanism::Mps, caps[end].map(Fraction::clamped), None),
        speed_fraction: speeds.map(|speeds| speeds[end]),
        is_self_reported: false,
    };
    Observation {
        device_model: DEVICE.to_owned(),
        tenants: vec![tenant(0), tenant(1)],
        power_watts: None,
        fits: speeds.is_some(),
        run_count: 1.0,
        speed_fraction_deviation: None,
    }
}

pub(super) fn uncapped(a: &str, b: &str, speeds: [f64; 2]) -> Observation {
    observation([a, b], [None, None], Some(speeds))
}

/// Families by the first letter.
pub(super) fn profiles(workloads: &[(&str, f64)]) -> ProfileBook {
    let profile = |(workload, active): &(&str, f64)| WorkloadProfile {
        metrics: Metrics::from([(Metric::SmActiveFraction, *active)]),
        family: workload.get(..1).map(str::to_owned),
        run_count: 1,
        ..WorkloadProfile::empty(WorkloadKey::new(*workload), DEVICE)
    };
    ProfileBook::from(workloads.iter().map(profile).collect::<Vec<_>>())
}

fn options(queues: &[usize], seeds: u64, promise: f64) -> BacktestOptions {
    BacktestOptions {
        queues: queues.to_vec(),
        seeds,
        slowdown_ratio_max: SlowdownRatio::try_promise(promise).unwrap(),
        warm_observations: WARM_OBSERVATIONS.to_vec(),
        observe: Observe::Random,
        trials: None,
    }
}

/// Four families of three, light to heavy; two slow each other by what both use, more so without caps.
pub(super) fn made_up() -> (ProfileBook, Vec<Observation>) {
    let names = ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3", "d1", "d2", "d3"];
    let workloads: Vec<(&str, f64)> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, 0.05 + 0.08 * score::as_float(at * 7 % 12)))
        .collect();
    let mut observations = Vec::new();
    for (at, (a, use_a)) in workloads.iter().enumerate() {
        for (b, use_b) in &workloads[at..] {
            let slowed = |own: f64, other: f64| 1.0 / (1.0 + 1.2 * own * other);
            observations.push(uncapped(a, b, [slowed(*use_a, *use_b), slowed(*use_b, *use_a)]));
            let halved = |own: f64| (0.5 / own).min(1.0);
            let half = [Some(0.5), Some(0.5)];
            observations.push(observation([a, b], half, Some([halved(*use_a), halved(*use_b)])));
        }
    }
    (profiles(&workloads), observations)
}

fn replayed(seeds: u64, promise: f64) -> Report {
    let (profiles, observations) = made_up();
    let backtest =
        Backtest::new(&profiles, &observations, DEVICE, options(&[4, 40], seeds, promise)).unwrap();
    let outcomes: Vec<SeedOutcome> = (0..seeds).map(|seed| backtest.seed(seed)).collect();
    backtest.report(&outcomes)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_pair_costs_what_both_and_then_the_slower_one_need() {
    assert!(near(pair_hours([1.0, 1.0]), 1.0));
    assert!(near(pair_hours([0.5, 1.0]), 1.5));
    assert!(near(pair_hours([0.8, 0.6]), 1.5));
    assert!(near(pair_hours([0.5, 0.5]), 2.0));
}

#[test]
fn hours_and_promises_are_counted_as_by_hand() {
    let seen = [
        uncapped("a", "b", [1.0, 0.8]),
        uncapped("a", "c", [0.9, 0.5]),
        uncapped("b", "c", [0.5, 0.4]),
        observation(["c", "c"], [None, None], None),
    ];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let names =
        |at: usize| truth.combinations[at].workloads.map(|workload| truth.workloads[workload].as_str());
    assert_eq!([0, 1, 2, 3].map(names), [["a", "b"], ["a", "c"], ["b", "c"], ["c", "c"]]);
    let chosen = |combination, lows| Chosen { combination, count: 1, lows };
    let all = [
        chosen(0, Some([0.9, 0.85])),
        chosen(1, Some([0.9, 0.6])),
        chosen(2, None),
        Chosen { count: 2, ..chosen(3, None) },
    ];
    let tally = score::Tally::of(&truth, 12, &all, 0.8);
    assert_eq!((tally.jobs, tally.paired, tally.unfit), (12, 10, 2));
    // Slower than promised: c beside a, both of b and c, and the four that did not fit.
    assert_eq!(tally.broken, 7);
    let (kept, broken, lost, unfit) = (2.0 - 1.2, 2.0 - 1.4 / 0.9, 2.0 - 1.1 / 0.5, -2.0 * 10.0 / 60.0);
    assert!(near(tally.hours_saved, kept + broken + lost + unfit), "{}", tally.hours_saved);
    assert!(near(tally.hours_kept, kept + lost + unfit), "{}", tally.hours_kept);
    assert_eq!(tally.above_low, (2, 4));
    assert_eq!(tally.slowdowns.len(), 10);
}

#[test]
fn runs_of_one_combination_are_averaged_in_either_order_and_clipped() {
    let twice = Observation { run_count: 3.0, ..uncapped("b", "a", [0.5, 0.9]) };
    let seen = [uncapped("a", "b", [0.5, 0.9]), twice, uncapped("a", "a", [1.2, 1.1])];
    let mut other = uncapped("a", "b", [0.1, 0.1]);
    other.tenants.iter_mut().for_each(|tenant| tenant.sharing = Sharing::TimeSliced);
    let unknown = Observation { tenants: Vec::new(), ..uncapped("a", "b", [0.1, 0.1]) };
    let truth = Truth::new(&profiles(&[]), &[&seen[..], &[other, unknown]].concat(), DEVICE);
    let speeds: Vec<_> = truth.combinations.iter().map(|combination| combination.speeds.unwrap()).collect();
    assert!(near(speeds[0][0], 1.0) && near(speeds[0][1], 1.0), "{speeds:?}");
    assert!(near(speeds[1][0], 0.8) && near(speeds[1][1], 0.6), "{speeds:?}");
    assert_eq!((speeds.len(), truth.left_out), (2, 2));
}

#[test]
fn a_combination_is_found_in_either_order() {
    let seen = [observation(["b", "a"], [Some(0.3), Some(0.7)], Some([0.4, 0.9]))];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let (tight, wide) = (Some(Fraction::clamped(0.3)), Some(Fraction::clamped(0.7)));
    assert_eq!(truth.combinations[0].speeds, Some([0.9, 0.4]));
    assert_eq!(truth.find([0, 1], [wide, tight]), Some(0));
    assert_eq!(truth.find([1, 0], [tight, wide]), Some(0));
    assert_eq!(truth.find([0, 1], [tight, wide]), None);
}

#[test]
fn history_knows_no_new_workload_until_it_was_observed() {
    let (profiles, observations) = made_up();
    let backtest = Backtest::new(&profiles, &observations, DEVICE, options(&[8], 1, 1.25)).unwrap();
    let truth = backtest.truth();
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let split = Split::draw(truth, &mut rng);
        let history = History::draw(&backtest, &split, &mut rng);
        let queue = Queue::draw(&split, 50, &mut rng);
        let new_of = |observation: &Observation| {
            let places = [0, 1].map(|end: usize| truth.workload(&observation.tenants[end].workload).unwrap());
            split.new_count(places)
        };
        let cold = history.known(0);
        // Two of four families are old: six workloads, 21 pairs, two combinations each.
        assert_eq!((cold.len(), cold.iter().map(new_of).max()), (42, Some(0)));
        let warm = &history.known(20)[42..];
        let of_kind = |kind| warm.iter().filter(|observation| new_of(observation) == kind).count();
        assert_eq!((of_kind(2), of_kind(1)), (10, 10));
        assert_eq!(history.observed_places(20).len(), 20);
        assert_eq!(history.known(50)[..62], history.known(20)[..]);
        assert!(queue.jobs.iter().all(|workload| split.is_new[*workload]));
    }
}

#[test]
fn observed_speeds_have_the_noise_that_is_stated() {
    let (profiles, observations) = made_up();
    let backtest = Backtest::new(&profiles, &observations, DEVICE, options(&[8], 1, 1.25)).unwrap();
    let truth = backtest.truth();
    let mut errors = Vec::new();
    for seed in 0..10 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let split = Split::draw(truth, &mut rng);
        let history = History::draw(&backtest, &split, &mut rng);
        for observation in &history.known(50)[42..] {
            let [a, b] = [0, 1].map(|end: usize| &observation.tenants[end]);
            let ends = [a, b].map(|tenant| truth.workload(&tenant.workload).unwrap());
            let at = truth.find(ends, [a.sharing.cap(), b.sharing.cap()]).unwrap();
            let speeds = truth.combinations[at].speeds.unwrap();
            errors.extend(
                [a, b].iter().zip(speeds).map(|(seen, speed)| seen.speed_fraction.unwrap() / speed - 1.0),
            );
        }
    }
    let rms = (errors.iter().map(|error| error * error).sum::<f64>() / score::as_float(errors.len())).sqrt();
    assert!((0.027..0.033).contains(&rms), "{rms}");
}

#[test]
fn exclusive_use_keeps_nothing_and_the_oracle_everything() {
    let report = replayed(4, 1.25);
    let of = |policy| report.policies.iter().filter(move |score| score.policy == policy);
    assert_eq!(of(PolicyName::Exclusive).count(), 2);
    for score in of(PolicyName::Exclusive) {
        assert_eq!((score.s_kept, score.broken_fraction, score.slowdown_ratio_p95), (Some(0.0), None, None));
        assert!(near(score.gpu_hours, score::as_float(score.queue)));
    }
    for score in of(PolicyName::Oracle) {
        assert_eq!((score.s_kept, score.broken_fraction), (Some(1.0), Some(0.0)));
        assert!(score.slowdown_ratio_p95.unwrap() <= 1.25 && score.saved_fraction > 0.1, "{score:?}");
    }
    for score in &report.policies {
        assert!(score.s_kept.unwrap() <= 1.0 + 1e-9, "better than the oracle: {score:?}");
        assert_eq!(score.unmeasured_pairs, 0, "{score:?}");
    }
}

#[test]
fn a_seed_replays_alike_and_another_does_not() {
    let (profiles, observations) = made_up();
    let backtest = Backtest::new(&profiles, &observations, DEVICE, options(&[12], 2, 1.67)).unwrap();
    assert_eq!(backtest.seed(3), backtest.seed(3));
    assert_ne!(backtest.seed(3), backtest.seed(4));
}

#[test]
fn another_queue_leaves_the_first_as_it_was() {
    let (profiles, observations) = made_up();
    let seed = |queues: &[usize]| {
        Backtest::new(&profiles, &observations, DEVICE, options(queues, 9, 1.67)).unwrap().seed(1)
    };
    let (one, two) = (seed(&[12]), seed(&[12, 20]));
    assert_eq!((&one.tallies[0], &one.errors), (&two.tallies[0], &two.errors));
}

fn guessed(speeds: [f64; 2]) -> [Guess; 2] {
    speeds.map(|speed| Guess { speed, low: speed, high: speed, deviation: 0.0 })
}

#[test]
fn greedy_spends_the_light_jobs_on_each_other_and_matching_does_not() {
    let seen =
        [uncapped("l", "l", [1.0, 1.0]), uncapped("h", "l", [0.9, 0.95]), uncapped("h", "h", [0.5, 0.5])];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let guesses: Guesses = truth
        .combinations
        .iter()
        .enumerate()
        .map(|(at, found)| (at, guessed(found.speeds.unwrap())))
        .collect();
    let queue = Queue { jobs: vec![1, 1, 0, 0] };
    let of = |chosen: &[Chosen]| {
        let pairs = chosen.iter().map(|pairs| (truth.combinations[pairs.combination].workloads, pairs.count));
        pairs.collect::<Vec<_>>()
    };
    let nothing = BTreeSet::new();
    assert_eq!(of(&choose::greedy(&truth, &queue, &guesses, &nothing, 0.8)), [([1, 1], 1)]);
    assert_eq!(of(&choose::best_guessed(&truth, &queue, &guesses, &nothing, 0.8)), [([0, 1], 2)]);
    assert_eq!(of(&choose::oracle(&truth, &queue, 0.8)), [([0, 1], 2)]);
    // What was seen not to fit is not tried again.
    let light_and_heavy = BTreeSet::from([truth.find([0, 1], [None, None]).unwrap()]);
    assert_eq!(of(&choose::best_guessed(&truth, &queue, &guesses, &light_and_heavy, 0.8)), [([1, 1], 1)]);
}

#[test]
fn random_partners_fit_and_have_caps_only_where_nothing_else_was_measured() {
    let half = [Some(0.5), Some(0.5)];
    let seen = [
        uncapped("a", "a", [0.7, 0.7]),
        observation(["a", "a"], half, Some([0.5, 0.5])),
        observation(["b", "b"], half, Some([0.5, 0.5])),
        observation(["c", "c"], [None, None], None),
    ];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let queue = Queue { jobs: vec![0, 0, 1, 1, 2, 2] };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let of = |chosen: Vec<Chosen>| {
        let found = chosen.iter().map(|pairs| &truth.combinations[pairs.combination]);
        found.map(|found| (found.workloads[0], found.is_uncapped())).collect::<BTreeSet<_>>()
    };
    let fits = choose::fits_uncapped_first(&truth);
    assert_eq!(of(choose::random(&truth, &queue, fits, &mut rng)), BTreeSet::from([(0, true), (1, false)]));
    let halves = choose::random(&truth, &queue, Combination::is_half_half, &mut rng);
    assert_eq!(of(halves), BTreeSet::from([(0, false), (1, false)]));
}

#[test]
fn trees_tell_more_than_the_mean() {
    let (profiles, observations) = made_up();
    let backtest = Backtest::new(&profiles, &observations, DEVICE, options(&[8], 1, 1.67)).unwrap();
    let (mut square, mut spread) = (0.0, 0.0);
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let split = Split::draw(backtest.truth(), &mut rng);
        let known = History::draw(&backtest, &split, &mut rng).known(0);
        let taught: Vec<f64> =
            known.iter().flat_map(|seen| &seen.tenants).filter_map(|tenant| tenant.speed_fraction).collect();
        let mean = taught.iter().sum::<f64>() / score::as_float(taught.len());
        for (at, guesses) in trees::guesses(&backtest, &split, &known, seed) {
            for (guess, speed) in guesses.iter().zip(backtest.truth().combinations[at].speeds.unwrap()) {
                square += (guess.speed - speed).powi(2);
                spread += (mean - speed).powi(2);
            }
        }
    }
    assert!(square < 0.9 * spread, "{square} of {spread}");
}

#[test]
fn caps_are_judged_by_what_they_really_gave() {
    let report = replayed(2, 1.67);
    assert_eq!(report.splits.len(), 9);
    for score in report.splits.iter().filter(|score| score.observations == Some(0)) {
        let [chosen, best, half, none] =
            [score.chosen_sum, score.best_sum, score.half_half_sum, score.uncapped_sum].map(Option::unwrap);
        assert!(score.pairs > 0 && best >= chosen && best >= half.max(none), "{score:?}");
    }
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let (profiles, observations) = made_up();
    let refused = |observations: &[Observation], device: &str, queues: &[usize], seeds| {
        Backtest::new(&profiles, observations, device, options(queues, seeds, 1.25)).unwrap_err().to_string()
    };
    assert!(refused(&observations, DEVICE, &[], 1).contains("at least one queue"));
    assert!(refused(&observations, DEVICE, &[8], 0).contains("one seed"));
    assert!(refused(&observations, DEVICE, &[8, 1], 1).contains("at least 2 jobs"));
    assert!(refused(&observations, "p100", &[8], 1).contains("no measured pair is of the device 'p100'"));
    assert!(refused(&observations[..3], DEVICE, &[8], 1).contains("of 1 families"), "only a1 to a3");
}

#[test]
fn whoever_saw_everything_once_comes_close_to_the_oracle() {
    let report = replayed(6, 1.6);
    let of = |policy| report.policies.iter().find(|score| score.policy == policy).unwrap();
    let informed = of(PolicyName::Informed);
    assert!(
        informed.s_kept.unwrap() > 0.8 && informed.s_kept < of(PolicyName::Oracle).s_kept,
        "{informed:?}"
    );
    assert!(informed.broken_fraction.unwrap() < 0.05, "{informed:?}");
    let split = report.splits.iter().find(|score| score.policy == PolicyName::Informed).unwrap();
    assert!(split.chosen_sum.unwrap() > 0.97 * split.best_sum.unwrap(), "{split:?}");
}

/// The made-up set with counters, so that the watch can follow.
fn counted() -> (ProfileBook, Vec<Observation>) {
    let (book, observations) = made_up();
    let counted = book.iter().map(|own| WorkloadProfile { throughput_per_second: Some(5.0), ..own.clone() });
    (ProfileBook::from(counted.collect::<Vec<_>>()), observations)
}

fn with_trials(trial_seconds: f64, restart_seconds: f64) -> Report {
    let (book, observations) = counted();
    let trials = Some(crate::TrialPolicy { trial_seconds, restart_seconds });
    let options = BacktestOptions { trials, warm_observations: vec![20], ..options(&[24], 2, 1.4) };
    let backtest = Backtest::new(&book, &observations, DEVICE, options).unwrap();
    let outcomes: Vec<SeedOutcome> = (0..2).map(|seed| backtest.seed(seed)).collect();
    backtest.report(&outcomes)
}

fn cold(report: &Report, policy: PolicyName) -> &PolicyScore {
    let is_it = |score: &&PolicyScore| score.policy == policy && score.observations == Some(0);
    report.policies.iter().find(is_it).unwrap()
}

#[test]
fn trials_are_replayed_with_every_cost() {
    let report = with_trials(60.0, 60.0);
    assert_eq!(report, with_trials(60.0, 60.0), "equal input, equal answer");
    let (tried, passive) = (cold(&report, PolicyName::Trials), cold(&report, PolicyName::Ours));
    assert!(report.trials[0].tried > 0 && report.trials[0].held > 0, "{:?}", report.trials);
    assert!(tried.gpu_hours < passive.gpu_hours, "{tried:?} {passive:?}");
    assert!(tried.gpu_hours <= 24.0 && tried.unmeasured_pairs == 0);
    // Whoever goes back loses its restart at the least.
    let of = &report.trials[0];
    assert!(of.went_back > 0, "{of:?}");
    let restarts_hours = f64::from(u32::try_from(of.went_back).unwrap()) * 60.0 / 3600.0;
    assert!(of.hours_lost * 2.0 >= restarts_hours - 1e-9, "{of:?}");
}

#[test]
fn an_optimist_observes_what_the_queue_could_use() {
    let (book, observations) = counted();
    let observed = |observe| {
        let options = BacktestOptions { observe, warm_observations: vec![10], ..options(&[40], 4, 1.4) };
        let backtest = Backtest::new(&book, &observations, DEVICE, options).unwrap();
        let outcomes: Vec<SeedOutcome> = (0..4).map(|seed| backtest.seed(seed)).collect();
        let report = backtest.report(&outcomes);
        let ours = report
            .policies
            .iter()
            .find(|score| score.policy == PolicyName::Ours && score.observations == Some(10));
        (ours.unwrap().gpu_hours, report.protocol.observe)
    };
    let (chosen, by_chance) = (observed(Observe::Chosen), observed(Observe::Random));
    assert!(chosen.0 < by_chance.0, "{chosen:?} {by_chance:?}");
}
