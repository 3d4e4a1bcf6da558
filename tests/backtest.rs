//! The whole engine against measurements that nobody here made, few seeds of `pillion backtest`. Gavel's are MIT and stand
//! in fixtures/gavel; what may not be copied is read from ../shared/data and passed over, saying so, where it is missing.

use pillion_core::SlowdownRatio;
use pillion_core::device::Mechanism;
use pillion_pairing::backtest::{
    Backtest, BacktestOptions, Observe, PolicyName, PolicyScore, Report, WARM_OBSERVATIONS,
};
use pillion_pairing::files::{FileOptions, NamedText, read_measured};
use pillion_tests::convert::{Set, convert};
use std::path::{Path, PathBuf};

const QUEUE: usize = 100;
const PROMISES: [f64; 2] = [1.67, 1.25];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gavel")
}

fn replayed(set: Set, data: &Path, promise: f64, seeds: u64) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let written = convert(set, data, folder.path()).expect("the published files are well formed");
    replayed_files([&written[0], &written[1]], promise, seeds)
}

/// SOLO.csv and PAIRS.csv.
fn replayed_files(files: [&Path; 2], promise: f64, seeds: u64) -> Report {
    let [solo, pairs] = files.map(|file| std::fs::read(file).expect("it is there"));
    let slowdown_ratio_max = SlowdownRatio::try_promise(promise).expect("a promise");
    let options = FileOptions {
        device_model: None,
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max,
    };
    let named = |name, bytes| NamedText { name, bytes };
    let measured = read_measured(named("SOLO.csv", &solo), Some(named("PAIRS.csv", &pairs)), &options)
        .expect("what we write we can read");
    let warm_observations = WARM_OBSERVATIONS.to_vec();
    let options = BacktestOptions {
        queues: vec![QUEUE],
        seeds,
        slowdown_ratio_max,
        warm_observations,
        observe: Observe::Random,
        trials: None,
    };
    let backtest = Backtest::new(&measured.profiles, &measured.observations, &measured.device_model, options)
        .expect("there is enough to replay");
    let outcomes: Vec<_> = (0..seeds).map(|seed| backtest.seed(seed)).collect();
    backtest.report(&outcomes)
}

fn score(report: &Report, policy: PolicyName, observations: Option<usize>) -> &PolicyScore {
    let found =
        report.policies.iter().find(|score| (score.policy, score.observations) == (policy, observations));
    found.expect("every policy is scored")
}

/// What must hold whatever was learnt.
fn check_always(report: &Report) {
    for score in &report.policies {
        eprintln!(
            "{:?} {:?}: kept {:?}, broken {:?}, saved {:.3}",
            score.policy, score.observations, score.s_kept, score.broken_fraction, score.saved_fraction
        );
        assert_eq!(score.unmeasured_pairs, 0, "chose what nobody measured: {score:?}");
        assert!(score.s_kept.is_none_or(|kept| kept <= 1.0 + 1e-9), "better than the oracle: {score:?}");
    }
    let oracle = score(report, PolicyName::Oracle, None);
    assert!(oracle.broken_fraction.is_none_or(|broken| broken == 0.0), "{oracle:?}");
}

/// Promises are kept: under 5 % broken before anything was seen of a workload, under 2 % once pairings were.
fn check_promises(report: &Report) {
    for (observations, broken_max) in [(0, 0.05), (20, 0.02), (50, 0.02), (100, 0.02)] {
        let ours = score(report, PolicyName::Ours, Some(observations));
        assert!(ours.broken_fraction.is_none_or(|broken| broken < broken_max), "{ours:?}");
    }
}

#[test]
fn promises_are_kept_on_a_p100() {
    for promise in PROMISES {
        let report = replayed(Set::GavelP100, &fixtures(), promise, 6);
        check_always(&report);
        check_promises(&report);
    }
    let report = replayed(Set::GavelP100, &fixtures(), PROMISES[0], 6);
    // Nothing is known of a workload here but its speed alone: only what was observed can tell.
    let [ours, trees] =
        [PolicyName::Ours, PolicyName::ExtraTrees].map(|policy| score(&report, policy, Some(100)).s_kept);
    assert!(ours.expect("there is gain") > trees.expect("there is gain"), "Extra Trees keep more");
}

/// Programs of `PyTorch` under MPS, by `tests/gpu programs` on an H200 (docs/measurements). What they do alone varies by a tenth to
/// a quarter from time to time, for they wait for the host: what was never seen may break a promise by that alone.
#[test]
fn promises_are_kept_on_an_h200_once_pairs_were_seen() {
    let measured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measurements");
    let [solo, pairs] =
        ["SOLO", "PAIRS"].map(|what| measured.join(format!("2026-11-26-nvidia-h200-programs-{what}.csv")));
    for promise in PROMISES {
        let report = replayed_files([&solo, &pairs], promise, 6);
        check_always(&report);
        for observations in [20, 50, 100] {
            let ours = score(&report, PolicyName::Ours, Some(observations));
            assert!(ours.broken_fraction.is_some_and(|broken| broken < 0.02), "{ours:?}");
            assert!(ours.s_kept.is_some_and(|kept| kept > 0.8), "{ours:?}");
        }
    }
}

#[test]
fn nothing_is_lost_on_a_k80_where_sharing_does_not_pay() {
    for promise in PROMISES {
        let report = replayed(Set::GavelK80, &fixtures(), promise, 6);
        check_always(&report);
        for observations in [0, 20, 50, 100] {
            let ours = score(&report, PolicyName::Ours, Some(observations));
            assert!(ours.saved_fraction > -0.002, "{ours:?}");
        }
    }
}

/// KACE's files may not be copied.
fn beside_the_checkout() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let is_there = data.join("kace_pairs.csv").exists();
    if !is_there {
        pillion_test_kit::without_data(&data);
    }
    is_there.then_some(data)
}

#[test]
fn promises_are_kept_under_mps() {
    let Some(data) = beside_the_checkout() else { return };
    let report = replayed(Set::Kace, &data, PROMISES[0], 3);
    check_always(&report);
    check_promises(&report);
}

#[test]
#[ignore = "the bar, on enough seeds to tell: minutes; by hand with --ignored"]
fn promises_are_kept_under_mps_and_more_is_kept_than_by_extra_trees() {
    let Some(data) = beside_the_checkout() else { return };
    for promise in PROMISES {
        let report = replayed(Set::Kace, &data, promise, 12);
        check_always(&report);
        check_promises(&report);
        let [ours, trees] =
            [PolicyName::Ours, PolicyName::ExtraTrees].map(|policy| score(&report, policy, Some(100)).s_kept);
        assert!(ours > trees, "Extra Trees keep more: {trees:?}, ours {ours:?}");
    }
}
