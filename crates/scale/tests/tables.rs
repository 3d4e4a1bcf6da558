//! What docs/benchmarks.md says of the public table, as far as it may not get worse unseen: break-even of the four published curves, and
//! that a count estimated from small ones is never too large.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use pillion_scale::read::read;
use pillion_scale::{Curve, Fit, Measure, Run};
use std::collections::BTreeMap;

const MLPERF: &str = include_str!("../../../tests/fixtures/mlperf/mlperf_v41_scaling.csv");

fn fastest(name: &str) -> Curve {
    let history = read(MLPERF.as_bytes()).unwrap().0;
    let of =
        history.workloads.iter().find(|it| it.name == name && it.gpu_model.contains("H100-SXM5")).unwrap();
    let mut best: BTreeMap<u32, Run> = BTreeMap::new();
    for run in &of.runs {
        let known = best.entry(run.gpus).or_insert(*run);
        if run.seconds < known.seconds {
            *known = *run;
        }
    }
    Curve::of_runs(Measure::Elapsed, &best.into_values().collect::<Vec<_>>())
}

#[test]
fn the_four_published_curves_have_their_break_even() {
    for (name, half, most) in
        [("bert", 64, 8), ("llama2_70b_lora", 128, 8), ("ssd", 64, 8), ("stable_diffusion", 64, 8)]
    {
        let curve = fastest(name);
        assert_eq!((curve.break_even(0.5), curve.break_even(0.8)), (Some(half), Some(most)), "{name}");
    }
}

#[test]
fn a_count_estimated_from_the_three_smallest_never_flatters() {
    let history = read(MLPERF.as_bytes()).unwrap().0;
    let mut looked_at = 0;
    for workload in &history.workloads {
        let curve = Curve::of(workload);
        if curve.points.len() < 4 {
            continue;
        }
        looked_at += 1;
        let mut three = curve.clone();
        three.points.truncate(3);
        let fit = Fit::of(&three).unwrap();
        let first = &three.points[0];
        let measured = curve.break_even(0.5).unwrap();
        for point in curve.points[3..].iter().filter(|point| point.gpus <= fit.reach()) {
            let told = first.seconds() / fit.time_for_counts(point.gpus).unwrap() * f64::from(first.gpus)
                / f64::from(point.gpus);
            assert!(told < 0.5 || point.gpus <= measured, "{} at {}: {told}", workload.name, point.gpus);
        }
    }
    assert!(looked_at >= 8, "{looked_at}");
}
