//! What must hold of the contention model whatever its constants are, and the two published pairs that shaped it.

use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, WorkloadKey};
use pillion_pairing::model::{Contention, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use proptest::prelude::*;

type Tenant = (WorkloadProfile, Option<Fraction>);

const MPS: Sharing = Sharing::Mps { cap: None, memory_limit_bytes: None };
const CCS: Sharing = Sharing::Ccs { mode: 2 };
const TURNS: Sharing = Sharing::TimeSliced;

fn predict(tenants: &[Tenant], sharing: Sharing) -> Result<Vec<SpeedEstimate>, PredictError> {
    let inputs: Vec<TenantInput<'_>> = tenants
        .iter()
        .map(|(profile, cap)| {
            let sharing = Sharing::by(sharing.mechanism(), *cap, sharing.ccs_mode());
            TenantInput { profile, sharing }
        })
        .collect();
    Contention.predict(&inputs, "h100")
}

fn speeds(tenants: &[WorkloadProfile], device: Sharing) -> Vec<f64> {
    let tenants: Vec<Tenant> = tenants.iter().map(|profile| (profile.clone(), None)).collect();
    let estimates = predict(&tenants, device).expect("features are known");
    estimates.iter().map(|estimate| estimate.speed_fraction).collect()
}

fn xe(active: f64, stall: f64, cache: f64, bandwidth: f64) -> WorkloadProfile {
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, active),
            (Metric::StallFraction, stall),
            (Metric::CacheBandwidthFraction, cache),
            (Metric::MemoryBandwidthFraction, bandwidth),
        ]),
        run_count: 4,
        ..WorkloadProfile::empty(WorkloadKey::new("w"), "max-1550")
    }
}

#[test]
fn the_best_published_pair_loses_nothing() {
    // Costa et al. 2025, ResNet-50 with batches of 2, twice: together in half the time.
    let light = xe(0.10, 0.0, 0.13, 0.01);
    for speed in speeds(&[light.clone(), light], CCS) {
        assert!(speed > 0.97, "{speed}");
    }
}

#[test]
fn the_worst_published_pair_is_worse_than_taking_turns() {
    // Costa et al. 2025, BERT with batches of 8 beside Llama with 64: 1.10 times as long as one after the other.
    let sum: f64 = speeds(&[xe(0.96, 0.02, 0.43, 0.03), xe(0.68, 0.29, 0.41, 0.24)], CCS).iter().sum();
    assert!((0.8..1.0).contains(&sum), "{sum}");
}

#[test]
fn a_lone_tenant_has_half_the_units_of_a_card_in_two_parts() {
    assert!(speeds(&[xe(0.97, 0.0, 0.1, 0.1)], CCS)[0] < 0.55);
    assert!(speeds(&[xe(0.05, 0.0, 0.1, 0.1)], CCS)[0] > 0.98);
    assert!(
        (speeds(&[xe(0.97, 0.0, 0.1, 0.1)], MPS)[0] - 1.0).abs() < 1e-9,
        "MPS leaves a lone tenant all of them"
    );
}

#[test]
fn a_cap_on_the_hog_frees_its_neighbour() {
    let tenants = |cap: Option<f64>| {
        [(xe(1.0, 0.0, 0.1, 0.1), cap.map(Fraction::clamped)), (xe(0.35, 0.0, 0.1, 0.1), None)]
    };
    let free = predict(&tenants(None), MPS).unwrap();
    let capped = predict(&tenants(Some(0.6)), MPS).unwrap();
    assert!(capped[1].speed_fraction > free[1].speed_fraction + 0.05);
    assert!(capped[0].speed_fraction < free[0].speed_fraction);
}

#[test]
fn jobs_that_are_always_busy_take_turns_where_nothing_runs_side_by_side() {
    let mut busy = xe(0.2, 0.0, 0.1, 0.1);
    busy.metrics.set(Metric::GpuBusyFraction, 1.0);
    let sum: f64 = speeds(&[busy.clone(), busy], TURNS).iter().sum();
    assert!((0.75..1.0).contains(&sum), "{sum}");
}

#[test]
fn without_any_feature_nothing_is_said() {
    let nothing = WorkloadProfile::empty(WorkloadKey::new("w"), "h100");
    let result = predict(&[(nothing.clone(), None), (nothing, None)], MPS);
    assert!(matches!(result, Err(PredictError::NoProfile { .. })));
}

#[test]
fn what_is_not_known_makes_the_bound_wider() {
    let width = |profile: &WorkloadProfile| {
        let estimates = predict(&[(profile.clone(), None), (profile.clone(), None)], MPS).unwrap();
        estimates[0].speed_fraction - estimates[0].speed_fraction_low
    };
    let full = xe(0.1, 0.0, 0.05, 0.04);
    let without = |change: fn(&mut WorkloadProfile)| {
        let mut profile = full.clone();
        change(&mut profile);
        width(&profile)
    };
    let bounds = [
        width(&full),
        without(|profile| profile.run_count = 1),
        without(|profile| {
            profile.run_count = 1;
            profile.metrics.remove(Metric::MemoryBandwidthFraction);
        }),
    ];
    assert!(bounds.is_sorted_by(|narrow, wide| narrow < wide), "{bounds:?}");
    let busy_only = without(|profile| {
        profile.metrics.set_known(Metric::GpuBusyFraction, profile.metrics.get(Metric::SmActiveFraction));
        profile.metrics.remove(Metric::SmActiveFraction);
    });
    let no_compute = without(|profile| profile.metrics.remove(Metric::SmActiveFraction));
    assert!(bounds[0] < busy_only && busy_only < no_compute);
}

fn fraction() -> impl Strategy<Value = Option<Fraction>> {
    prop_oneof![1 => Just(None), 4 => (0.0..=1.0_f64).prop_map(|value| Some(Fraction::clamped(value)))]
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let features = [fraction(), fraction(), fraction(), fraction(), fraction()];
    let known = (features, 1..20_u32).prop_map(|([active, stall, busy, memory, cache], run_count)| {
        let mut metrics = Metrics::from([(Metric::GpuBusyFraction, busy.unwrap_or(Fraction::ONE).value())]);
        metrics.set_known(Metric::SmActiveFraction, active);
        metrics.set_known(Metric::StallFraction, stall);
        metrics.set_known(Metric::MemoryBandwidthFraction, memory);
        metrics.set_known(Metric::CacheBandwidthFraction, cache);
        WorkloadProfile { metrics, run_count, ..WorkloadProfile::empty(WorkloadKey::new("w"), "h100") }
    });
    (
        known,
        prop_oneof![2 => Just(None), 1 => (1..=9_u8).prop_map(|t| Some(Fraction::clamped(f64::from(t) / 10.0)))],
    )
}

fn device() -> impl Strategy<Value = Sharing> {
    prop_oneof![Just(MPS), Just(CCS), Just(TURNS)]
}

proptest! {
    #[test]
    fn speeds_are_fractions_and_bounds_enclose_them(tenants in prop::collection::vec(tenant(), 1..=4), device in device()) {
        for estimate in predict(&tenants, device).unwrap() {
            prop_assert!(estimate.speed_fraction > 0.0 && estimate.speed_fraction <= 1.0);
            prop_assert!(estimate.speed_fraction_low > 0.0 && estimate.speed_fraction_low <= estimate.speed_fraction);
            prop_assert!(estimate.speed_fraction_high >= estimate.speed_fraction && estimate.speed_fraction_high <= 1.0);
        }
    }

    #[test]
    fn the_order_of_tenants_does_not_matter(tenants in prop::collection::vec(tenant(), 2..=4), device in device(), by in 1..4_usize) {
        let mut turned = tenants.clone();
        turned.rotate_left(by % tenants.len());
        let mut expected = predict(&tenants, device).unwrap();
        expected.rotate_left(by % tenants.len());
        for (a, b) in expected.iter().zip(predict(&turned, device).unwrap()) {
            prop_assert!((a.speed_fraction - b.speed_fraction).abs() < 1e-9);
            prop_assert!((a.speed_fraction_low - b.speed_fraction_low).abs() < 1e-9);
        }
    }

    /// Whoever fills more of the device takes his turn of it from others: for himself only the rest holds.
    #[test]
    fn more_demand_makes_nobody_faster_but_for_a_turn_on_the_units(
        tenants in prop::collection::vec(tenant(), 2..=3), device in device(), who in 0..3_usize, what in 0..5_usize, more in 0.0..1.0_f64,
    ) {
        let mut heavier = tenants.clone();
        let profile = &mut heavier[who % tenants.len()].0;
        let features = [
            Metric::SmActiveFraction, Metric::StallFraction, Metric::GpuBusyFraction, Metric::MemoryBandwidthFraction,
            Metric::CacheBandwidthFraction,
        ];
        // Only what is known can grow: to learn a feature is not to demand more.
        if let Some(feature) = features.into_iter().nth(what) {
            profile.metrics.set_known(feature, profile.metrics.get(feature).map(|value| value + more));
        }
        let estimates = predict(&tenants, device).unwrap().into_iter().zip(predict(&heavier, device).unwrap());
        for (index, (before, after)) in estimates.enumerate() {
            if index == who % tenants.len() && what < 2 {
                continue;
            }
            prop_assert!(after.speed_fraction <= before.speed_fraction + 1e-9);
            prop_assert!(after.speed_fraction_low <= before.speed_fraction_low + 1e-9);
        }
    }

    #[test]
    fn one_more_tenant_never_makes_anybody_faster(tenants in prop::collection::vec(tenant(), 2..=4), device in device()) {
        let fewer = predict(&tenants[..tenants.len() - 1], device).unwrap();
        for (before, after) in fewer.iter().zip(predict(&tenants, device).unwrap()) {
            prop_assert!(after.speed_fraction <= before.speed_fraction + 1e-9);
        }
    }
}
