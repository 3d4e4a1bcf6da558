//! Properties of the mechanism: nothing is lost, nothing is made, caps bind.

use super::*;
use crate::simulated::hardware::{all, by_name};
use crate::simulated::workload::{catalogue, find};
use proptest::prelude::*;

/// How tenants share in a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// One context for all, as MPS clients.
    Together,
    /// A context each on one engine.
    Turns,
    /// An engine each, of so many.
    Engines(usize),
}

/// The speed of each workload, of its speed alone, when all share one device.
fn speeds(hardware: &Hardware, way: Way, tenants: &[(&str, f64)]) -> (Vec<f64>, Use) {
    let placed: Vec<_> = tenants.iter().map(|(name, _)| find(name, None).unwrap().on(hardware)).collect();
    let engine_count = if let Way::Engines(count) = way { count } else { 1 };
    let seat = |(order, (_, cap)): (usize, &(&str, f64))| Seat {
        cycle: placed[order].cycle.clone(),
        engine: order % engine_count,
        context: if way == Way::Together { 0 } else { order },
        // Only MPS clients have caps.
        units_max: if way == Way::Together { hardware.units() * cap } else { hardware.units() },
    };
    let seats: Vec<Seat> = tenants.iter().enumerate().map(seat).collect();
    let settled = evaluate(hardware, engine_count, &seats);
    let speeds = settled
        .shares
        .iter()
        .zip(&placed)
        .map(|(share, placed)| share.cycles_per_second * placed.cycle_seconds);
    (speeds.collect(), settled.used)
}

fn h200() -> Hardware {
    by_name("h200").unwrap()
}

#[test]
fn whoever_is_alone_goes_at_full_speed() {
    for hardware in all() {
        for workload in catalogue().iter().filter(|workload| workload.batch_size.is_none()) {
            for way in [Way::Together, Way::Turns, Way::Engines(1)] {
                let (speeds, used) = speeds(&hardware, way, &[(&workload.name, 1.0)]);
                assert!((speeds[0] - 1.0).abs() < 1e-6, "{} on {}: {speeds:?}", workload.name, hardware.name);
                assert!(used.issue + used.stall <= 1.0 + 1e-9 && used.memory <= 1.0 + 1e-9, "{used:?}");
            }
        }
    }
}

#[test]
fn two_that_want_every_unit_share_the_units_and_lose_nothing() {
    let (together, _) = speeds(&h200(), Way::Together, &[("gemm-hog", 1.0), ("gemm-hog", 1.0)]);
    let sum: f64 = together.iter().sum();
    assert!((together[0] - together[1]).abs() < 1e-6);
    assert!((0.95..=1.1).contains(&sum), "{together:?}");
    let (turns, _) = speeds(&h200(), Way::Turns, &[("gemm-hog", 1.0), ("gemm-hog", 1.0)]);
    let sum_in_turns: f64 = turns.iter().sum();
    assert!(sum_in_turns < sum - 0.03, "changing contexts costs: {turns:?}");
}

#[test]
fn the_host_bound_hide_behind_the_busy_but_not_with_turns_for_small_kernels() {
    let pair = [("launch-bound", 1.0), ("gemm-hog", 1.0)];
    let (together, _) = speeds(&h200(), Way::Together, &pair);
    assert!(together[0] > 0.9 && together[1] > 0.9, "{together:?}");
    let (turns, _) = speeds(&h200(), Way::Turns, &pair);
    assert!(turns[1] < together[1] - 0.03, "a small kernel takes the whole device in its turn: {turns:?}");
}

#[test]
fn two_that_live_on_bandwidth_do_not_gain() {
    let hardware = by_name("a100-40").unwrap();
    let (speeds, used) =
        speeds(&hardware, Way::Together, &[("spmv-bandwidth", 1.0), ("spmv-bandwidth", 1.0)]);
    let sum: f64 = speeds.iter().sum();
    assert!((0.9..1.15).contains(&sum), "{speeds:?}");
    assert!(used.memory > 0.8, "{used:?}");
}

#[test]
fn a_neighbour_that_takes_the_cache_makes_misses() {
    let hardware = by_name("a100-40").unwrap();
    let (alone, one) = speeds(&hardware, Way::Together, &[("stencil-cache", 0.5)]);
    let (both, two) = speeds(&hardware, Way::Together, &[("stencil-cache", 0.5), ("unet3d-train", 0.5)]);
    assert!(both[0] < alone[0] * 0.9, "{alone:?} {both:?}");
    assert!(two.memory > one.memory);
}

#[test]
fn a_cap_binds_whoever_fills_it_and_nobody_else() {
    for cap in [0.1, 0.25, 0.5, 0.75] {
        let (speeds, used) = speeds(&h200(), Way::Together, &[("gemm-hog", cap)]);
        assert!((speeds[0] - cap).abs() < 0.06, "cap {cap}: {speeds:?}");
        assert!(used.issue + used.stall <= cap + 1e-9, "cap {cap}: {used:?}");
    }
    let (narrow, _) = speeds(&h200(), Way::Together, &[("launch-bound", 0.25)]);
    assert!((narrow[0] - 1.0).abs() < 1e-6, "{narrow:?}");
}

#[test]
fn alone_in_mode_2_has_half_the_units() {
    let hardware = by_name("max-1550").unwrap();
    let (speeds, used) = speeds(&hardware, Way::Engines(2), &[("gemm-hog", 1.0)]);
    assert!((0.45..0.55).contains(&speeds[0]), "{speeds:?}");
    assert!(used.issue <= 0.5 + 1e-9, "{used:?}");
}

#[test]
fn the_power_limit_is_kept_by_the_clock() {
    let hot: Vec<(&str, f64)> = vec![("gemm-hog", 1.0), ("llama-finetune", 1.0), ("spmv-bandwidth", 1.0)];
    for hardware in all() {
        let (_, used) = speeds(&hardware, Way::Together, &hot);
        assert!(used.power_watts <= hardware.power.watts_max + 0.5, "{}: {used:?}", hardware.name);
    }
    let mut weak = h200();
    weak.power.watts_max = 400.0;
    let (_, used) = speeds(&weak, Way::Together, &hot);
    assert!(used.clock < 0.95 && used.power_watts <= 400.0 && used.power_watts > 390.0, "{used:?}");
}

#[test]
fn a_crowd_is_settled_too() {
    let crowd = vec![("resnet50-train", 1.0); TENANTS_MAX];
    let (speeds, _) = speeds(&h200(), Way::Together, &crowd);
    assert!(speeds.iter().all(|speed| *speed > 0.01 && *speed < 0.5), "{speeds:?}");
}

fn tenant() -> impl Strategy<Value = (&'static str, f64)> {
    let names: Vec<&'static str> = catalogue()
        .iter()
        .filter(|workload| workload.batch_size.is_none())
        .map(|row| row.name.as_str())
        .collect();
    (prop::sample::select(names), prop::sample::select(vec![0.1, 0.3, 0.5, 0.8, 1.0]))
}

fn machine() -> impl Strategy<Value = Hardware> {
    prop::sample::select(all())
}

fn way() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![Way::Together, Way::Turns, Way::Engines(2), Way::Engines(4)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn speeds_are_parts_of_the_speed_alone(hardware in machine(), way in way(), tenants in prop::collection::vec(tenant(), 1..4)) {
        let (speeds, used) = speeds(&hardware, way, &tenants);
        for speed in &speeds {
            prop_assert!(*speed > 0.0 && *speed <= 1.0 + 1e-6, "{speeds:?}");
        }
        prop_assert!(used.issue + used.stall <= 1.0 + 1e-9);
        prop_assert!(used.memory <= 1.0 + 1e-6, "{used:?}");
        prop_assert!(used.power_watts <= hardware.power.watts_max + 0.5);
        prop_assert!(used.power_watts >= hardware.power.idle_watts);
    }

    #[test]
    fn a_second_tenant_speeds_nobody_up(hardware in machine(), way in way(), one in tenant(), two in tenant()) {
        let (before, _) = speeds(&hardware, way, &[one]);
        let (after, _) = speeds(&hardware, way, &[one, two]);
        prop_assert!(after[0] <= before[0] + 1e-6, "{one:?} {before:?}, with {two:?} {after:?}");
    }

    /// A third may slow the second so much that the first gains, as on real devices; never more than the second loses, and by little,
    /// unless the third takes turns with the second on a part of the card. Of 120,000 drawn three gained more than 0.02; the most that was ever seen is 0.041.
    #[test]
    fn a_third_tenant_speeds_nobody_up_by_much(hardware in machine(), way in way(), one in tenant(), two in tenant(), three in tenant()) {
        let (before, _) = speeds(&hardware, way, &[one, two]);
        let (after, _) = speeds(&hardware, way, &[one, two, three]);
        let crowded = way == Way::Engines(2);
        for (own, other) in [(0, 1), (1, 0)] {
            let (gain, loss) = (after[own] - before[own], before[other] - after[other]);
            prop_assert!(crowded || gain <= loss.max(1e-6), "{way:?} {one:?} {two:?} with {three:?}: {gain} of a loss of {loss}");
        }
        for (before, after) in before.iter().zip(&after) {
            prop_assert!(*after <= before + if crowded { 0.25 } else { 0.06 }, "{way:?} {one:?} {two:?} {before} with {three:?} {after}");
        }
    }

    #[test]
    fn a_wider_cap_never_slows_its_owner(hardware in machine(), one in tenant(), two in tenant()) {
        let (narrow, _) = speeds(&hardware, Way::Together, &[one, two]);
        let (wide, _) = speeds(&hardware, Way::Together, &[(one.0, 1.0), two]);
        prop_assert!(wide[0] >= narrow[0] - 0.02, "{one:?} {two:?}: {narrow:?} {wide:?}");
    }
}
