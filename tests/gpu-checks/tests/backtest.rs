//! What a run leaves is what `pillion backtest` reads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gpu_checks::caps::CAPS;
use gpu_checks::kernels::Workload;
use gpu_checks::pairs::SPLITS;
use gpu_checks::results::{Results, Solo, Together};
use pillion_core::device::{Mechanism, Reading};
use pillion_core::metric::Metric;
use pillion_core::{Fraction, SlowdownRatio, WorkloadKey};
use pillion_pairing::backtest::{Backtest, BacktestOptions, Observe, PolicyName};
use pillion_pairing::files::{FileOptions, Measured, NamedText, read_measured};

/// A whole run, in which caps cost what they say and neighbours a tenth.
fn results() -> Results {
    let mut results = Results { device_model: "h100".to_owned(), ..Results::default() };
    for workload in Workload::ALL {
        let speeds = CAPS.map(|cap| (cap, vec![f64::from(cap) * 10.0, f64::from(cap) * 10.0]));
        let reading = Reading::from([
            (Metric::SmActiveFraction, 0.5),
            (Metric::MemoryBandwidthFraction, 0.25),
            (Metric::PowerWatts, 412.5),
        ]);
        let (family, memory_bytes_peak) = (workload.entry().to_owned(), Some(1 << 30));
        let solo = Solo { family, reading, memory_bytes_peak, speeds: speeds.into() };
        results.solo.insert(workload.name().to_owned(), solo);
    }
    for caps in SPLITS {
        for (index, first) in Workload::ALL.into_iter().enumerate() {
            for second in Workload::ALL.into_iter().skip(index) {
                let speed_fractions = caps.map(|cap| 0.9 * f64::from(cap) / 100.0);
                let power_watts = Some(500.0);
                results.pairs.push(Together {
                    workloads: [first, second].map(|workload| workload.name().to_owned()),
                    caps,
                    speed_fractions,
                    power_watts,
                });
            }
        }
    }
    results
}

fn read(results: &Results) -> Measured {
    let (solo, pairs) = (results.solo_csv(), results.pairs_csv());
    let named = |name, text: &'static str| NamedText { name, bytes: text.as_bytes() };
    let options = FileOptions {
        device_model: None,
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
    };
    let (solo, pairs) = (named("SOLO.csv", solo.leak()), named("PAIRS.csv", pairs.leak()));
    read_measured(solo, Some(pairs), &options).unwrap()
}

#[test]
fn every_value_is_read_back() {
    let measured = read(&results());
    assert_eq!(measured.device_model, "h100", "every row names it");
    let profiles = measured.profiles.clone();
    let workload = WorkloadKey::new("compute-small");
    let profile = profiles.get(&workload, "h100").unwrap();
    assert_eq!(profile.family.as_deref(), Some("compute"));
    assert_eq!(profile.throughput_per_second, Some(1000.0));
    let at_caps = [None, None, Some(300.0), None, Some(500.0), None, Some(700.0), None, None];
    assert_eq!(profile.throughput_per_second_at_cap, at_caps);
    assert_eq!(profile.metrics.fraction(Metric::SmActiveFraction), Some(Fraction::clamped(0.5)));
    assert_eq!(
        (profile.memory_bytes_peak, profile.metrics.get(Metric::PowerWatts)),
        (Some(1 << 30), Some(412.5))
    );
    assert_eq!(
        profile.metrics.fraction(Metric::SmOccupancyFraction),
        None,
        "what was not measured stays unknown"
    );
    let seen = &measured.observations;
    assert_eq!(seen.len(), 4 * 15);
    assert!(seen.iter().all(|seen| seen.mechanism() == Mechanism::Mps && seen.fits));
    let tenant = &seen[2 * 15].tenants[1];
    assert_eq!((tenant.sharing.cap(), tenant.speed_fraction), (Some(Fraction::clamped(0.7)), Some(0.63)));
    assert_eq!(seen[0].tenants[0].sharing.cap(), None, "100 is no cap");
}

#[test]
fn a_run_can_be_replayed() {
    let measured = read(&results());
    let options = BacktestOptions {
        queues: vec![10],
        seeds: 1,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25).unwrap(),
        warm_observations: Vec::new(),
        observe: Observe::Random,
        trials: None,
    };
    let backtest =
        Backtest::new(&measured.profiles, &measured.observations, &measured.device_model, options).unwrap();
    let report = backtest.report(&[backtest.seed(0)]);
    let exclusive = report.policies.iter().find(|score| score.policy == PolicyName::Exclusive);
    assert!(exclusive.is_some_and(|score| score.gpu_hours > 0.0), "{:?}", report.policies);
}
