//! What is learnt, from whom, and what is not.

mod noisy_caps;

use super::*;
use crate::history::ObservedTenant;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{SlowdownRatio, WorkloadKey};
use proptest::prelude::*;

const DEVICE: &str = "v100";
const FREE: Sharing = Sharing::Mps { cap: None, memory_limit_bytes: None };

fn profile(name: &str, family: &str, active: f64) -> WorkloadProfile {
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, active),
            (Metric::PowerWatts, 100.0 + 200.0 * active),
        ]),
        family: Some(family.to_owned()),
        run_count: 1,
        ..WorkloadProfile::empty(WorkloadKey::new(name), "v100")
    }
}

#[test]
fn who_fills_the_device_lets_nobody_in_and_hardly_notices() {
    let model = trained(&[]);
    let (full, light) = (profile("full", "f", 0.96), profile("light", "l", 0.2));
    let speeds = |first: &WorkloadProfile, second: &WorkloadProfile| {
        let tenants = [first, second].map(|profile| TenantInput { profile, sharing: FREE });
        let said = model.predict(&tenants, DEVICE).unwrap();
        [said[0].speed_fraction, said[1].speed_fraction]
    };
    // As measured on a V100 and on an H200 (docs/benchmarks.md): the one keeps nine tenths (less what is in doubt), the other a fifth.
    let [of_light, of_full] = speeds(&light, &full);
    assert!(of_light < 0.35, "{of_light}");
    assert!(of_full > 0.8, "{of_full}");
    // Who of two that fill it wins is open; together they do what one does.
    let both: f64 = speeds(&full, &full).iter().sum();
    assert!((0.7..1.1).contains(&both), "{both}");
}

/// Eight workloads of four families, from light to heavy.
fn profiles() -> Vec<WorkloadProfile> {
    let of = |at: u32| profile(&format!("w{at}"), &format!("f{}", at / 2), 0.1 + 0.1 * f64::from(at));
    (0..8).map(of).collect()
}

fn observed(a: &str, b: &str, speeds: [f64; 2]) -> Observation {
    observed_under(FREE, a, b, speeds)
}

fn observed_under(sharing: Sharing, a: &str, b: &str, speeds: [f64; 2]) -> Observation {
    let tenant = |name: &str, speed: f64| ObservedTenant {
        workload: WorkloadKey::new(name),
        sharing,
        speed_fraction: Some(speed),
        is_self_reported: false,
    };
    Observation {
        device_model: DEVICE.to_owned(),
        tenants: vec![tenant(a, speeds[0]), tenant(b, speeds[1])],
        power_watts: None,
        fits: true,
        run_count: 1.0,
        speed_fraction_deviation: None,
    }
}

fn trained(observations: &[Observation]) -> Learned {
    train(&ProfileBook::from(profiles()), observations, &TrainOptions::default())
}

/// The speed of `a` beside `b`.
fn said(model: &Learned, a: &str, b: &str) -> SpeedEstimate {
    let all = profiles();
    let find = |name: &str| {
        let known = all.iter().find(|profile| profile.workload == WorkloadKey::new(name));
        known.cloned().unwrap_or_else(|| WorkloadProfile::empty(WorkloadKey::new(name), "v100"))
    };
    let (first, second) = (find(a), find(b));
    let tenants = [&first, &second].map(|profile| TenantInput { profile, sharing: FREE });
    model.predict(&tenants, DEVICE).unwrap().swap_remove(0)
}

#[test]
fn with_nothing_observed_and_nothing_measured_it_is_modest() {
    let estimate = said(&trained(&[]), "nobody", "knows");
    assert!((0.4..0.8).contains(&estimate.speed_fraction), "{estimate:?}");
    assert!(estimate.speed_fraction_low < 0.5, "{estimate:?}");
    let promise = SlowdownRatio::try_promise(1.25).unwrap();
    assert!(estimate.break_probability(promise) > 0.5);
}

#[test]
fn two_light_tenants_may_share_before_anything_was_observed_and_two_heavy_ones_may_not() {
    let model = trained(&[]);
    assert!(said(&model, "w0", "w1").speed_fraction_low > 0.8, "{:?}", said(&model, "w0", "w1"));
    assert!(said(&model, "w6", "w7").speed_fraction_low < 0.6, "{:?}", said(&model, "w6", "w7"));
}

#[test]
fn light_tenants_are_expected_to_be_faster_than_heavy_ones() {
    let model = trained(&[]);
    assert!(said(&model, "w0", "w1").speed_fraction > said(&model, "w6", "w7").speed_fraction + 0.1);
}

#[test]
fn a_pair_that_was_misjudged_is_known_better_after_it_was_tried() {
    let before = said(&trained(&[]), "w0", "w2");
    let tried = [observed("w0", "w2", [0.45, 0.9])];
    let after = said(&trained(&tried), "w0", "w2");
    assert!(before.speed_fraction > 0.7, "{before:?}");
    assert!(after.speed_fraction < 0.6, "{after:?}");
    assert!(after.speed_fraction_deviation < before.speed_fraction_deviation);
    let other = said(&trained(&tried), "w6", "w4");
    let untouched = said(&trained(&[]), "w6", "w4");
    let moved = |one: &SpeedEstimate, two: &SpeedEstimate| (one.speed_fraction - two.speed_fraction).abs();
    assert!(moved(&other, &untouched) < 0.9 * moved(&after, &before));
    assert!(after.terms["pair"] < 0.0 && after.terms["workloads"] < 0.0, "{:?}", after.terms);
}

#[test]
fn a_workload_that_presses_hard_is_remembered_beside_others() {
    let hog = [observed("w3", "w0", [0.95, 0.5]), observed("w3", "w1", [0.95, 0.45])];
    let model = trained(&hog);
    assert!(said(&model, "w4", "w3").speed_fraction < said(&model, "w4", "w2").speed_fraction - 0.03);
}

#[test]
fn another_device_and_another_mechanism_teach_nothing() {
    let elsewhere = Observation { device_model: "k80".to_owned(), ..observed("w0", "w2", [0.3, 0.3]) };
    let mut otherwise = observed("w0", "w2", [0.3, 0.3]);
    otherwise.tenants.iter_mut().for_each(|tenant| tenant.sharing = Sharing::TimeSliced);
    let (before, after) =
        (said(&trained(&[]), "w0", "w2"), said(&trained(&[elsewhere, otherwise]), "w0", "w2"));
    assert_eq!(before, after);
}

#[test]
fn what_a_job_says_of_itself_teaches_of_itself_only() {
    let claims = |speed: f64| {
        let mut claim = observed("w0", "w2", [speed, 0.3]);
        claim.tenants[0].is_self_reported = true;
        claim.tenants[1].speed_fraction = None;
        trained(&[claim])
    };
    let (slow, fast) = (claims(0.3), claims(0.9));
    let between = |a: &str| said(&fast, a, "w2").speed_fraction - said(&slow, a, "w2").speed_fraction;
    assert!(between("w0") > 0.1, "{}", between("w0"));
    assert!(between("w1").abs() < 1e-9, "{}", between("w1"));
}

/// Two hundred pairings of mallory's in which everybody crawls, and a hundred of others in which nobody does.
fn reported_by_mallory(owners: Owners) -> SpeedEstimate {
    let mut profiles = Vec::new();
    let mut observations = Vec::new();
    for (owner, count, speed) in [("mallory", 20, 0.35), ("alice", 10, 0.9), ("bob", 5, 0.9)] {
        let name = |number: usize| format!("{owner}/{number}");
        for number in 0..count {
            let like = profiles_like(name(number), number);
            profiles.push(like);
        }
        for number in 0..count {
            for other in 1..=10 {
                let pair = (name(number), name((number + other) % count));
                observations.push(observed(&pair.0, &pair.1, [speed, speed]));
            }
        }
    }
    profiles.extend(["carol/1", "carol/2"].map(|name| profiles_like(name.to_owned(), 3)));
    let book = ProfileBook::from(profiles);
    let model = train(&book, &observations, &TrainOptions { owners, ..TrainOptions::default() });
    let carol = ["carol/1", "carol/2"].map(|name| book.get(&WorkloadKey::new(name), "v100").unwrap());
    let tenants = carol.map(|profile| TenantInput { profile, sharing: FREE });
    model.predict(&tenants, DEVICE).unwrap().remove(0)
}

fn profiles_like(name: String, number: usize) -> WorkloadProfile {
    WorkloadProfile { workload: WorkloadKey::new(name), ..profiles()[number % 6].clone() }
}

#[test]
fn one_users_jobs_do_not_decide_what_is_expected_of_anybody_elses() {
    let (unbounded, bounded) = (reported_by_mallory(Owners::Unknown), reported_by_mallory(Owners::InKeys));
    assert!(bounded.speed_fraction > unbounded.speed_fraction + 0.03, "{bounded:?} beside {unbounded:?}");
}

/// By how much what is expected of two of carol's may be off, whom nobody has seen, where so many jobs of mallory's say of themselves now
/// this and now that, and everybody else's are measured.
fn reach_beside_a_liar(job_count: usize) -> f64 {
    let names = |owner: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{owner}/{number}")).collect()
    };
    let (mallory, others) = (names("mallory", job_count), [names("alice", 6), names("bob", 6)].concat());
    let all = [names("carol", 2), others.clone(), mallory.clone()].concat();
    let profiles: Vec<_> = all.iter().enumerate().map(|(at, name)| profiles_like(name.clone(), at)).collect();
    let mut observations = Vec::new();
    for (at, name) in others.iter().enumerate() {
        observations.extend(others[at + 1..].iter().map(|other| observed(name, other, [0.85, 0.85])));
    }
    for (at, name) in mallory.iter().enumerate() {
        for (place, other) in mallory.iter().enumerate().skip(at + 1) {
            let lie = if (at * 7 + place * 3).is_multiple_of(2) { 0.2 } else { 1.0 };
            let mut lies = observed(name, other, [lie, lie]);
            lies.tenants.iter_mut().for_each(|tenant| tenant.is_self_reported = true);
            observations.push(lies);
        }
    }
    let book = ProfileBook::from(profiles);
    let owners = Owners::InKeys;
    let model = train(&book, &observations, &TrainOptions { owners, ..TrainOptions::default() });
    let carol = ["carol/0", "carol/1"].map(|name| book.get(&WorkloadKey::new(name), "v100").unwrap());
    let tenants = carol.map(|profile| TenantInput { profile, sharing: FREE });
    let said = model.predict(&tenants, DEVICE).unwrap().remove(0);
    said.speed_fraction - said.speed_fraction_low
}

#[test]
fn one_users_counters_do_not_decide_how_exact_everybody_elses_are() {
    // It was 0.37 beside ten of them, and 0.95 beside sixty.
    let reach = [0, 10, 60].map(reach_beside_a_liar);
    assert!(reach[1..].iter().all(|one| (one / reach[0] - 1.0).abs() < 0.2), "{reach:?}");
}

#[test]
fn what_did_not_fit_is_expected_not_to_fit() {
    let misfit = Observation { fits: false, ..observed("w0", "w2", [0.5, 0.5]) };
    let model = trained(&[misfit]);
    let all = profiles();
    let probability = |a: usize, b: usize| {
        let tenants = [&all[a], &all[b]].map(|profile| TenantInput { profile, sharing: FREE });
        model.misfit_probability(&tenants, DEVICE)
    };
    assert!(probability(2, 0) > 0.9);
    assert!(probability(0, 5) > probability(4, 5) && probability(4, 5) < 0.05);
}

#[test]
fn measured_power_corrects_what_profiles_say() {
    let watts = |model: &Learned| {
        let all = profiles();
        let tenants = [&all[0], &all[1]].map(|profile| TenantInput { profile, sharing: FREE });
        model.power_watts(&tenants, DEVICE).unwrap()
    };
    let hot = |other: usize| {
        let pair = observed("w0", &format!("w{other}"), [0.9, 0.9]);
        Observation { power_watts: Some(400.0), ..pair }
    };
    let nothing = watts(&trained(&[]));
    let pairs: Vec<Observation> = (1..7).map(hot).collect();
    assert!(watts(&trained(&pairs)) > 1.3 * nothing);
    let [once, often] = [1, 600].map(|count| watts(&trained(&vec![hot(1); count])));
    // Its speeds are known better then, which moves what is expected of it a little.
    assert!(
        once > nothing && often < 1.1 * once,
        "one pair tells no more the more often it runs: {once} {often}"
    );
    let mut told = pairs.clone();
    for observation in &mut told {
        observation.tenants[0].is_self_reported = true;
    }
    assert!(watts(&trained(&told)) < 1.05 * nothing, "by speeds that jobs say of themselves");
}

#[test]
fn a_model_that_was_stored_and_read_back_says_the_same() {
    let model = trained(&[observed("w0", "w2", [0.7, 0.8]), observed("w1", "w5", [0.6, 0.9])]);
    let text = serde_json::to_string(&model).unwrap();
    let back: Learned = serde_json::from_str(&text).unwrap();
    assert_eq!(said(&model, "w0", "w5"), said(&back, "w0", "w5"));
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bounds_enclose_estimates_and_training_is_deterministic(
        tried in prop::collection::vec((0..8_usize, 0..8_usize, 0.05..1.1_f64, 0.05..1.1_f64), 0..30),
        asked in (0..9_usize, 0..9_usize),
    ) {
        let observations: Vec<Observation> = tried
            .iter()
            .map(|(a, b, x, y)| observed(&format!("w{a}"), &format!("w{b}"), [*x, *y]))
            .collect();
        let (one, two) = (trained(&observations), trained(&observations));
        let (a, b) = (format!("w{}", asked.0), format!("w{}", asked.1));
        let estimate = said(&one, &a, &b);
        prop_assert!(estimate.speed_fraction_low <= estimate.speed_fraction);
        prop_assert!(estimate.speed_fraction <= estimate.speed_fraction_high);
        prop_assert!((0.0..=1.0).contains(&estimate.speed_fraction_low) && estimate.speed_fraction_high <= 1.0);
        prop_assert!(estimate.speed_fraction_deviation.is_finite() && estimate.speed_fraction_deviation > 0.0);
        prop_assert_eq!(estimate, said(&two, &a, &b));
    }
}

/// Two families of five sizes each, of which nothing but the throughput alone is known.
fn sizes() -> Vec<WorkloadProfile> {
    let of = |(family, size): (&str, i32)| WorkloadProfile {
        family: Some(family.to_owned()),
        run_count: 1,
        throughput_per_second: Some(40.0 * 2.0_f64.powi(-size)),
        ..WorkloadProfile::empty(WorkloadKey::new(format!("{family}{size}")), "v100")
    };
    ["a", "b"].iter().flat_map(|family| (0..5).map(move |size| of((family, size)))).collect()
}

/// Whoever is larger than its neighbour is faster beside it.
fn by_size(own: i32, other: i32) -> f64 {
    0.7 + 0.04 * f64::from(own - other)
}

fn trained_on_sizes(keep: impl Fn(i32, i32) -> bool) -> Learned {
    let pairs = (0..5).flat_map(|a| (0..5).map(move |b| (a, b))).filter(|(a, b)| keep(*a, *b));
    let of = |(a, b)| observed(&format!("a{a}"), &format!("b{b}"), [by_size(a, b), by_size(b, a)]);
    train(&ProfileBook::from(sizes()), &pairs.map(of).collect::<Vec<_>>(), &TrainOptions::default())
}

fn said_of_sizes(model: &Learned, own: i32, other: i32) -> SpeedEstimate {
    let all = sizes();
    let find = |name: String| all.iter().find(|profile| profile.workload == WorkloadKey::new(&name)).unwrap();
    let tenants = [find(format!("a{own}")), find(format!("b{other}"))];
    let tenants = tenants.map(|profile| TenantInput { profile, sharing: FREE });
    model.predict(&tenants, DEVICE).unwrap().swap_remove(0)
}

#[test]
fn within_a_family_the_throughput_says_what_sizes_do_that_were_never_seen() {
    // The largest of one family was seen beside nobody.
    let model = trained_on_sizes(|a, _| a < 4);
    for other in 0..5 {
        let estimate = said_of_sizes(&model, 4, other);
        // As fast as the members that were seen are on average is what the family alone would say.
        let of_family = (0..4).map(|own| by_size(own, other)).sum::<f64>() / 4.0;
        assert!(estimate.speed_fraction > of_family + 0.015, "beside {other}: {of_family} {estimate:?}");
    }
}

#[test]
fn one_measurement_is_trusted_no_more_because_others_were_predicted_well() {
    let model = trained_on_sizes(|_, _| true);
    let estimate = said_of_sizes(&model, 2, 2);
    assert!(!estimate.has_heavy_tail, "it was measured: {estimate:?}");
    assert!(estimate.speed_fraction_deviation > 0.75 * NOISE_OF_ONE, "{estimate:?}");
}

/// Standard deviation of one measurement of a speed of 0.7.
const NOISE_OF_ONE: f64 = 0.033 * 0.7;
