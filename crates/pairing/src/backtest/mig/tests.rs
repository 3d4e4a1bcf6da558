use super::*;
use crate::files::{NamedText, read_slices};

const MISO: &str = include_str!("../../../../../tests/fixtures/miso/miso_mig_solo.csv");

/// Never below one at a time, but for the last bits of sums.
const NEVER_LOSES: f64 = 1.0 - 1e-9;

fn a100() -> &'static Geometry {
    Geometry::of_model("a100-40").unwrap()
}

fn measured(promises: &[f64]) -> SliceBacktest {
    let speeds = read_slices(NamedText::new("miso.csv", MISO), a100()).unwrap();
    let bounds = promises.iter().map(|promise| SlowdownRatio::try_promise(*promise).unwrap()).collect();
    SliceBacktest::new(&speeds, a100(), bounds).unwrap()
}

fn score<'s>(scores: &'s [RuleScore], mix: Mix, rule: &str) -> &'s RuleScore {
    scores.iter().find(|score| score.mix == mix && score.rule == rule).unwrap_or_else(|| panic!("{scores:?}"))
}

/// What is asked of the policy on the published measurements.
#[test]
fn on_measured_trainings_a_slice_chosen_by_speed_under_a_bound_never_loses() {
    let scores = measured(&[2.5, 1.67, 1.25]).run(8);
    let counts = Mix::ALL.map(|mix| score(&scores, mix, "one at a time").workload_count);
    assert_eq!(counts, [32, 28, 12]);
    for (mix, promise, throughput_min) in [
        (Mix::All, "2.5", 1.30),
        (Mix::Small, "2.5", 1.40),
        (Mix::Heavy, "2.5", NEVER_LOSES),
        (Mix::All, "1.67", 1.20),
        (Mix::Small, "1.67", 1.22),
        (Mix::Heavy, "1.67", NEVER_LOSES),
        (Mix::All, "1.25", 1.10),
        (Mix::Small, "1.25", 1.11),
        (Mix::Heavy, "1.25", NEVER_LOSES),
    ] {
        let score = score(&scores, mix, &format!("Pillion, promise {promise}"));
        assert!(score.throughput_ratio >= throughput_min, "{score:?}");
        let promise: f64 = promise.parse().unwrap();
        assert!(score.slowdown_ratio_most <= promise + 1e-9, "{score:?}");
        assert!(score.turnaround_ratio <= 1.001, "{score:?}");
    }
    let seeds_rule = score(&scores, Mix::Heavy, "tightest by memory");
    assert!(seeds_rule.throughput_ratio < 0.9 && seeds_rule.slowdown_ratio_p95 > 3.0, "{seeds_rule:?}");
}

#[test]
fn rules_play_on_the_same_queues_and_one_at_a_time_is_the_measure() {
    let scores = measured(&[2.5]).run(1);
    for mix in Mix::ALL {
        let own = score(&scores, mix, "one at a time");
        assert!((own.throughput_ratio - 1.0).abs() < 1e-12 && (own.turnaround_ratio - 1.0).abs() < 1e-12);
        assert!((own.slowdown_ratio_most - 1.0).abs() < 1e-12);
    }
    let best = score(&scores, Mix::Small, "best static in hindsight").throughput_ratio;
    for shape in ["static 4g+2g", "static 2g+2g+2g"] {
        assert!(score(&scores, Mix::Small, shape).throughput_ratio <= best);
    }
    assert!(
        !scores.iter().any(|score| score.mix == Mix::All && score.rule == "static 2g+2g+2g"),
        "some have no room"
    );
    assert_eq!(measured(&[2.5]).run(1), scores, "the same seeds give the same");
}

#[test]
fn what_measures_no_part_of_a_device_is_refused() {
    let header = "model,mig_profile,norm_speed_vs_7g\n";
    let read = |rows: &str| read_slices(NamedText::new("S.csv", &format!("{header}{rows}")), a100());
    let whole = read("bert,7g.40gb,1\n").unwrap();
    let error = SliceBacktest::new(&whole, a100(), vec![]).unwrap_err();
    assert_eq!(error.to_string(), "no workload was measured in the whole of 7g.40gb and in a part of it");
    for (rows, why) in [
        ("bert,3g.40gb,1\n", "column mig_profile: '3g.40gb' where one of 7g.40gb, 4g.20gb"),
        ("bert,3g,1\n", "column mig_profile: '3g' where"),
        ("bert,2g.10gb,0\n", "column norm_speed_vs_7g: '0' where a number above 0, at most 10 was expected"),
        ("bert,2g.10gb,nan\n", "column norm_speed_vs_7g: 'nan'"),
        ("bert,2g.10gb,1\nbert,2g.10gb,1\n", "line 3, column mig_profile"),
        (",2g.10gb,1\n", "column model: nothing where a name was expected"),
    ] {
        let error = read(rows).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
