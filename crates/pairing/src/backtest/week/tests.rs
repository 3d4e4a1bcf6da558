//! Weeks whose truth is known: what is counted is computed by hand, and chance comes from the seed alone.

use super::super::score;
use super::super::tests::{DEVICE, made_up, observation, profiles, uncapped};
use super::outcome::{Sharing, Tally, hours_saved};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn options(jobs: usize, seeds: u64, first_runs: FirstRuns) -> WeekOptions {
    WeekOptions {
        jobs,
        seeds,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.67).unwrap(),
        recur_fraction: 0.75,
        first_runs,
        recurrence: Recurrence::Unknown,
        watch: None,
        trials: None,
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn replayed(options: WeekOptions) -> WeekReport {
    let (profiles, observations) = made_up();
    let seeds = options.seeds;
    let week = Week::new(&profiles, &observations, DEVICE, options).unwrap();
    let outcomes: Vec<WeekOutcome> = (0..seeds).map(|seed| week.seed(seed)).collect();
    week.report(&outcomes)
}

fn of(report: &WeekReport, policy: WeekPolicy, day: Option<usize>) -> &DayScore {
    report.days.iter().find(|score| score.policy == policy && score.day == day).unwrap()
}

#[test]
fn a_guest_that_comes_later_costs_what_is_left_of_the_host() {
    // Nothing is lost where nobody is slowed: the host's hour, and what of the guest's comes after it.
    assert!(near(hours_saved(0.25, [1.0, 1.0]), 0.75));
    // Three quarters of an hour at half speed; by then the guest is done but for a quarter.
    assert!(near(hours_saved(0.25, [0.5, 0.5]), 2.0 - (0.25 + 1.5 + 0.25)));
    // The guest is done first.
    assert!(near(hours_saved(0.1, [0.5, 1.0]), 2.0 - (0.1 + 1.0 + 0.4)));
    assert!(near(hours_saved(0.1, [0.0, 0.0]), -score::UNFIT_HOURS_LOST));
}

proptest! {
    #[test]
    fn who_starts_together_saves_what_the_backtest_says(a in 0.05f64..1.0, b in 0.05f64..1.0) {
        prop_assert!(near(hours_saved(0.0, [a, b]), score::hours_saved([a, b])));
    }

    #[test]
    fn to_wait_for_the_first_minutes_saves_less_where_sharing_saves(a in 0.3f64..1.0, b in 0.3f64..1.0, alone in 0.0f64..0.5) {
        let at_once = hours_saved(0.0, [a, b]);
        prop_assume!(at_once > 0.0 && a + b > 1.0);
        prop_assert!(hours_saved(alone, [a, b]) <= at_once + 1e-9);
    }
}

#[test]
fn a_quarter_of_the_jobs_is_new_and_each_of_them_another() {
    let week = Calendar::draw(12, &options(40, 1, FirstRuns::Alone), 7);
    assert_eq!(week, Calendar::draw(12, &options(40, 1, FirstRuns::Alone), 7));
    assert_ne!(week, Calendar::draw(12, &options(40, 1, FirstRuns::Alone), 8));
    assert_eq!(week.rounds.len(), 28);
    assert!(week.jobs(&week.rounds[0]).iter().all(|(_, is_first)| *is_first), "nothing ran before");
    let mut new = 0;
    for (round, next) in week.rounds.iter().zip(&week.rounds[1..]) {
        let first: Vec<usize> =
            round.names.iter().copied().filter(|name| *name >= round.known_count).collect();
        assert_eq!(first, (round.known_count..next.known_count).collect::<Vec<_>>(), "one job each");
        new += if round.known_count == 0 { 0 } else { first.len() };
    }
    let share = score::as_float(new) / score::as_float(26 * 40);
    assert!((0.2..0.3).contains(&share), "{share}");
}

#[test]
fn an_oracle_may_do_what_its_rule_says() {
    // a and b beside each other save half an hour, a with itself and b with itself nothing.
    let seen =
        [uncapped("a", "b", [0.75, 0.75]), uncapped("a", "a", [0.5, 0.5]), uncapped("b", "b", [0.5, 0.5])];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let best = |jobs: &[(usize, bool)], rule| oracle::best(&truth, jobs, 0.6, rule).hours_saved;
    let save = score::hours_saved([0.75, 0.75]);
    let later = hours_saved(FIRST_RUN_ALONE_HOURS, [0.75, 0.75]);
    assert!(later < save && later > 0.0);
    for (first, alone, host, free) in [
        ([false, false], save, save, save),
        ([true, false], 0.0, later, save),
        ([false, true], 0.0, later, save),
        ([true, true], 0.0, 0.0, save),
    ] {
        let jobs = [(0, first[0]), (1, first[1])];
        let found = [Rule::FirstRunsAlone, Rule::FirstRunsHost, Rule::Free].map(|rule| best(&jobs, rule));
        assert!(
            near(found[0], alone) && near(found[1], host) && near(found[2], free),
            "{first:?}: {found:?}"
        );
    }
}

#[test]
fn a_first_run_is_no_guest_and_has_no_cap() {
    let seen = [observation(["a", "b"], [Some(0.5), None], Some([0.7, 0.9]))];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let best = |jobs: &[(usize, bool)]| oracle::best(&truth, jobs, 0.6, Rule::FirstRunsHost);
    // Only b may host: a would need a cap, and has run without one.
    assert_eq!(best(&[(0, true), (1, false)]).paired, 0);
    let hosted = best(&[(0, false), (1, true)]);
    assert_eq!((hosted.paired, hosted.first_runs_joined), (2, 1));
    assert!(near(hosted.hours_saved, hours_saved(FIRST_RUN_ALONE_HOURS, [0.9, 0.7])), "b is the host");
}

#[test]
fn broken_and_unfit_pairs_are_counted_as_by_hand() {
    let seen = [uncapped("a", "b", [1.0, 0.5]), observation(["b", "b"], [None, None], None)];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let mut tally = Tally::of_jobs(&[(0, false), (1, true), (1, false), (1, false)]);
    let sharing = |combination| Sharing { combination, is_turned: false, alone_hours: 0.0 };
    tally.add(&truth, &sharing(0), 1, 0.6);
    tally.add(&truth, &sharing(1), 1, 0.6);
    assert_eq!((tally.jobs, tally.first_runs, tally.paired, tally.broken, tally.unfit), (4, 1, 4, 3, 1));
    assert!(near(tally.hours_saved, 0.5 - score::UNFIT_HOURS_LOST));
    assert!(near(tally.hours_kept, -score::UNFIT_HOURS_LOST), "half an hour with a broken promise is none");
}

#[test]
fn a_week_adds_up_and_is_the_same_again() {
    let report = replayed(options(12, 2, FirstRuns::Alone));
    assert_eq!(report, replayed(options(12, 2, FirstRuns::Alone)));
    let mut sums: BTreeMap<WeekPolicy, f64> = BTreeMap::new();
    for score in report.days.iter().filter(|score| score.day.is_some()) {
        *sums.entry(score.policy).or_default() += score.kept_hours;
        assert_eq!(score.unmeasured_pairs, 0);
        assert!(near(score.exclusive_hours, 48.0), "four rounds of twelve");
    }
    for policy in POLICIES {
        assert!(near(sums[&policy], of(&report, policy, None).kept_hours), "{policy:?}");
    }
    let at_the_end = report.regret.iter().filter(|point| point.round == 28);
    for point in at_the_end {
        let lost = sums[&WeekPolicy::Oracle] - sums[&point.policy];
        assert!(near(point.regret_hours, lost), "{point:?}");
    }
    let day_one = of(&report, WeekPolicy::OracleAlone, Some(1));
    assert_eq!(day_one.first_run_joined_fraction, Some(0.0));
}

#[test]
fn who_may_do_more_saves_no_less_and_learning_from_nothing_saves_something() {
    let report = replayed(options(12, 3, FirstRuns::Alone));
    let share = |policy, day| of(&report, policy, day).oracle_share.unwrap();
    for day in (1..=DAYS).map(Some).chain([None]) {
        let [ours, alone, hosts, free] = POLICIES.map(|policy| share(policy, day));
        assert!(ours <= alone + 1e-9 && alone <= hosts + 1e-9 && hosts <= free + 1e-9, "{day:?}");
        assert!(near(free, 1.0));
    }
    assert!(share(WeekPolicy::Ours, None) > 0.2, "{}", share(WeekPolicy::Ours, None));
    assert!(share(WeekPolicy::OracleAlone, None) < share(WeekPolicy::OracleHosts, None) - 0.05);
}

#[test]
fn first_runs_as_hosts_are_joined_and_save_more() {
    let (alone, host) =
        (replayed(options(12, 3, FirstRuns::Alone)), replayed(options(12, 3, FirstRuns::Host)));
    let joined = |report| of(report, WeekPolicy::Ours, None).first_run_joined_fraction.unwrap();
    assert!(joined(&alone) == 0.0 && joined(&host) > 0.1, "{}", joined(&host));
    let kept = |report| of(report, WeekPolicy::Ours, None).kept_hours;
    assert!(kept(&host) > kept(&alone), "{} after {}", kept(&host), kept(&alone));
    for policy in [WeekPolicy::OracleAlone, WeekPolicy::OracleHosts, WeekPolicy::Oracle] {
        assert!(
            near(of(&alone, policy, None).kept_hours, of(&host, policy, None).kept_hours),
            "the same weeks"
        );
    }
}

fn with_trials(first_runs: FirstRuns) -> WeekOptions {
    WeekOptions { trials: Some(TrialPolicy::default()), ..options(12, 1, first_runs) }
}

#[test]
fn a_week_with_trials_is_played_out_and_is_the_same_again() {
    let (alone, host) = (replayed(with_trials(FirstRuns::Alone)), replayed(with_trials(FirstRuns::Host)));
    assert_eq!(host, replayed(with_trials(FirstRuns::Host)));
    let ours = |report| of(report, WeekPolicy::Ours, None).clone();
    let (alone, host) = (ours(&alone), ours(&host));
    assert_eq!(alone.first_run_joined_fraction, Some(0.0), "they have their devices to themselves");
    assert!(host.first_run_joined_fraction.is_some_and(|joined| joined > 0.1), "{host:?}");
    assert!(near(host.exclusive_hours, 28.0 * 12.0) && host.unmeasured_pairs == 0, "{host:?}");
    assert!(host.kept_hours > alone.kept_hours && alone.kept_hours > 0.0, "{alone:?} {host:?}");
    // Each of the sharings that were taken apart was a trial, or broke its promise beyond doubt.
    assert!(host.sent_back_fraction.is_some_and(|share| (0.0..0.5).contains(&share)), "{host:?}");
}

#[test]
fn where_nothing_holds_a_week_of_trials_ends_and_loses_little() {
    let profiles = profiles(&[("a1", 0.9), ("b1", 0.9), ("c1", 0.9), ("d1", 0.9)]);
    let names = ["a1", "b1", "c1", "d1"];
    let pairs = names.iter().enumerate().flat_map(|(at, a)| names[at..].iter().map(move |b| (a, b)));
    let seen: Vec<Observation> = pairs.map(|(a, b)| uncapped(a, b, [0.5, 0.5])).collect();
    let week = Week::new(&profiles, &seen, DEVICE, with_trials(FirstRuns::Host)).unwrap();
    let report = week.report(&[week.seed(0), week.seed(1)]);
    let ours = of(&report, WeekPolicy::Ours, None);
    assert!(ours.broken_fraction.is_none_or(|broken| broken < 1e-9), "{ours:?}");
    assert!(ours.kept_hours > -0.01 * ours.exclusive_hours, "{ours:?}");
    let last = of(&report, WeekPolicy::Ours, Some(DAYS));
    assert!(last.kept_hours > -0.1, "by then nothing is tried any more: {last:?}");
}

#[test]
fn who_goes_back_costs_what_both_did_in_vain() {
    let seen = [uncapped("a", "b", [0.4, 0.8])];
    let truth = Truth::new(&profiles(&[]), &seen, DEVICE);
    let watch = Watch { read_hours: 0.1, restart_hours: 0.05 };
    let mut tally = Tally::of_jobs(&[(0, false), (1, false)]);
    tally.add_parted(&truth, &Sharing { combination: 0, is_turned: false, alone_hours: 0.0 }, watch);
    // The host did 0.04 of its hour in a tenth, and the guest's hour begins anew after another twentieth.
    assert!(near(tally.hours_kept, -(0.1 - 0.04) - 0.05) && near(tally.hours_saved, tally.hours_kept));
    assert_eq!((tally.paired, tally.sent_back, tally.broken), (2, 1, 0));
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let (profiles, observations) = made_up();
    let refused = |options, device| Week::new(&profiles, &observations, device, options).unwrap_err();
    assert_eq!(refused(options(1, 1, FirstRuns::Alone), DEVICE), BacktestError::QueueTooShort);
    assert_eq!(refused(options(4, 0, FirstRuns::Alone), DEVICE), BacktestError::NothingToReplay);
    let elsewhere = BacktestError::NothingMeasured { device_model: "k80".to_owned() };
    assert_eq!(refused(options(4, 1, FirstRuns::Alone), "k80"), elsewhere);
}
