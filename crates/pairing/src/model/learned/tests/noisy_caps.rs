//! What speeds alone under caps vary by is in the bound of whoever is capped, until it was seen beside others.

use super::super::{solo_curve, *};
use super::{DEVICE, observed_under};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, WorkloadKey};

const HALF: Option<f64> = Some(0.5);

/// Rates alone under caps of 0.3, 0.5 and 0.7 and without one, each measured once.
fn profile(name: &str, rates: [f64; 4]) -> WorkloadProfile {
    WorkloadProfile {
        workload: WorkloadKey::new(name),
        family: Some(name.to_owned()),
        ..solo_curve::tests::profile(rates)
    }
}

/// Two that lose nothing under a cap of a half: the one's rates agree, the other's do not. And two that use a third and four fifths of the units.
fn profiles() -> ProfileBook {
    ProfileBook::from(vec![
        profile("calm", [100.0, 100.0, 100.0, 100.0]),
        profile("noisy", [130.0, 110.0, 135.0, 100.0]),
        profile("light", [86.0, 90.0, 94.0, 100.0]),
        profile("heavy", [40.0, 60.0, 80.0, 100.0]),
    ])
}

fn sharing(cap: Option<f64>) -> Sharing {
    Sharing::Mps { cap: cap.map(Fraction::clamped), memory_limit_bytes: None }
}

fn observed(a: &str, b: &str, speeds: [f64; 2]) -> Observation {
    observed_under(sharing(HALF), a, b, speeds)
}

fn trained(observations: &[Observation]) -> Learned {
    train(&profiles(), observations, &TrainOptions::default())
}

/// The speed of the first beside the second.
fn said(model: &Learned, names: [&str; 2], cap: Option<f64>) -> SpeedEstimate {
    let book = profiles();
    let tenants = names.map(|name| {
        let profile = book.get(&WorkloadKey::new(name), DEVICE).expect("its profile is known");
        TenantInput { profile, sharing: sharing(cap) }
    });
    model.predict(&tenants, DEVICE).expect("profiles suffice").swap_remove(0)
}

#[test]
fn who_was_measured_noisily_alone_is_promised_less_under_a_cap() {
    let model = trained(&[]);
    let (calm, noisy) = (said(&model, ["calm", "light"], HALF), said(&model, ["noisy", "light"], HALF));
    assert!((calm.speed_fraction - noisy.speed_fraction).abs() < 0.01, "{calm:?} {noisy:?}");
    assert!(noisy.speed_fraction_low < calm.speed_fraction_low - 0.05, "{calm:?} {noisy:?}");
    let (calm, noisy) = (said(&model, ["calm", "light"], None), said(&model, ["noisy", "light"], None));
    let apart = (calm.speed_fraction_low - noisy.speed_fraction_low).abs();
    assert!(apart < 0.01, "without a cap none of it is used: {calm:?} {noisy:?}");
}

#[test]
fn what_it_does_beside_one_neighbour_takes_that_doubt_away_beside_another() {
    let (before, seen) = (trained(&[]), [observed("noisy", "light", [0.97, 0.9])]);
    let after = said(&trained(&seen), ["noisy", "heavy"], HALF).speed_fraction_deviation;
    let before = said(&before, ["noisy", "heavy"], HALF).speed_fraction_deviation;
    assert!(after < 0.75 * before, "{before} {after}");
    let slow = trained(&[observed("noisy", "light", [0.7, 0.9])]);
    let told = said(&slow, ["noisy", "heavy"], HALF).speed_fraction;
    assert!(told < said(&trained(&seen), ["noisy", "heavy"], HALF).speed_fraction - 0.1, "{told}");
}

#[test]
fn a_neighbour_that_uses_a_third_adds_little_doubt_and_one_that_uses_most_much() {
    let model = trained(&[]);
    let beside = |name: &str| said(&model, ["light", name], None).speed_fraction_deviation;
    let (nobody, light, heavy) = (beside("calm"), beside("light"), beside("heavy"));
    assert!(light < 1.4 * nobody && heavy > 2.0 * nobody, "{nobody} {light} {heavy}");
}

#[test]
fn a_model_that_an_earlier_release_stored_is_read() {
    let model = trained(&[observed("calm", "light", [0.97, 0.9])]);
    let now = serde_json::to_string(&model).expect("a model can be written");
    let earlier = now.replace(r#","solo_deviation":0.0"#, "");
    assert!(earlier.len() < now.len(), "nothing was taken out of {now}");
    let read: Learned = serde_json::from_str(&earlier).expect("what was not stored is 0");
    assert_eq!(said(&read, ["calm", "heavy"], HALF), said(&model, ["calm", "heavy"], HALF));
}
