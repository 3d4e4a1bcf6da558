//! How fast a workload is alone under each cap, from rates that were measured once each or a few times. A wider cap makes nobody
//! slower: where the measured rates say so, they tell how noisy they are, and what is expected of that workload under a cap
//! is in doubt by that much before it was seen beside others.
//!
//! The constants are of KACE's solo runs, each measured twice without a cap and under one of a half: two thirds differ by less than
//! two hundredths and some by a fifth, most of those of workloads whose rates fall with wider caps. No other set was used for them.

use pillion_core::profile::WorkloadProfile;

/// The caps under which throughput may have been measured alone: 0.1, 0.2, .. 0.9.
const CAP_STEPS: usize = 9;
/// Standard deviation of one measured speed, of the speed.
pub(super) const NOISE_FRACTION: f64 = 0.033;
/// The least speed that is expected of anybody.
const SPEED_MIN: f64 = 0.02;
/// Standard deviation of one measured rate, of the rate, before anything is known of its workload, and how many measurements that
/// counts for.
const DEVIATION_USUAL: f64 = 0.01;
const USUAL_COUNT: f64 = 1.0;

/// Something about the speeds alone under caps of 0, 0.1, .. 1.0.
type ByCap = [f64; CAP_STEPS + 2];

/// Speeds alone under caps, over the speed alone without one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SoloCurve {
    /// Never falling with a wider cap: who is disturbed while it is measured is slow, so the fastest counts.
    speeds: ByCap,
    /// Variance of each for what its workload's rates vary by more than is usual, of the square of the speed.
    variances: ByCap,
}

/// Rates under caps of which none is known to be faster than the others.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    /// The widest cap among them, in steps.
    last: usize,
    rate: f64,
    /// How many measurements it is the mean of.
    weight: f64,
}

impl Level {
    fn with(self, wider: Self) -> Self {
        let weight = self.weight + wider.weight;
        let rate = (self.rate * self.weight + wider.rate * wider.weight) / weight;
        Self { last: wider.last, rate, weight }
    }
}

/// Rates in the order of their caps as growing levels: what falls is put together (isotonic regression).
fn levels(rates: &[Level]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::with_capacity(rates.len());
    for rate in rates {
        let mut level = *rate;
        while let Some(narrower) = levels.pop_if(|narrower| narrower.rate > level.rate) {
            level = narrower.with(level);
        }
        levels.push(level);
    }
    levels
}

impl SoloCurve {
    /// `None` where nothing was measured under a cap.
    pub(super) fn of(profile: &WorkloadProfile) -> Option<Self> {
        let known = &profile.throughput_per_second_at_cap;
        let most = known.iter().flatten().copied().reduce(f64::max).filter(|most| *most > 0.0)?;
        let full = profile.rate_per_second().unwrap_or(most);
        let capped = (1..).zip(known).filter_map(|(last, rate)| Some((last, (*rate)?)));
        let mut rates: Vec<Level> = capped.map(|(last, rate)| Level { last, rate, weight: 1.0 }).collect();
        let mut best = 0.0_f64;
        let speeds = rates.iter().map(|rate| {
            best = best.max((rate.rate / full).clamp(SPEED_MIN, 1.0));
            (rate.last, best)
        });
        let speeds = speeds.chain([(CAP_STEPS + 1, 1.0)]).collect::<Vec<(usize, f64)>>();
        rates.push(Level { last: CAP_STEPS + 1, rate: full, weight: f64::from(profile.run_count.max(1)) });
        let variances = variances(profile, &rates);
        Some(Self { speeds: between(0.0, &speeds), variances })
    }

    /// The speed alone under a cap, 0..=1.
    pub(super) fn at(&self, cap: f64) -> f64 {
        at(&self.speeds, cap).clamp(SPEED_MIN, 1.0)
    }

    /// Standard deviation of that speed, of the speed, for what its workload's rates vary by more than is usual; 0 without a cap.
    pub(super) fn deviation_fraction_at(&self, cap: f64) -> f64 {
        at(&self.variances, cap).sqrt()
    }

    /// How much is lost to caps on average, 0..=1.
    pub(super) fn sensitivity(&self) -> f64 {
        let lost: f64 = self.speeds[1..=CAP_STEPS].iter().map(|speed| 1.0 - speed).sum();
        lost / (small(CAP_STEPS) / 2.0)
    }
}

/// A speed is the mean of some rates over that of others: both vary. Without a cap there is nothing to compare.
fn variances(profile: &WorkloadProfile, rates: &[Level]) -> ByCap {
    let levels = levels(rates);
    let of_one = variance_beyond_usual(profile, rates, &levels);
    let Some(full) = levels.last().filter(|_| of_one > 0.0) else { return ByCap::default() };
    let capped = &rates[..rates.len() - 1];
    let points = capped.iter().map(|rate| {
        let weight = level_of(&levels, rate).map_or(rate.weight, |level| level.weight);
        (rate.last, of_one * (weight.recip() + full.weight.recip()))
    });
    let points: Vec<(usize, f64)> = points.collect();
    let (first, last) =
        (points.first().map_or(0.0, |point| point.1), points.last().map_or(0.0, |point| point.1));
    let widest = [(CAP_STEPS + 1, last)];
    let mut variances = between(first, &[&points[..], &widest].concat());
    variances[CAP_STEPS + 1] = 0.0;
    variances
}

fn level_of<'l>(levels: &'l [Level], rate: &Level) -> Option<&'l Level> {
    levels.iter().find(|level| level.last >= rate.last)
}

/// Variance of one measured rate, of its square, less what every speed is taken to vary by. Where runs a second are compared,
/// the durations of whole runs tell of it too.
fn variance_beyond_usual(profile: &WorkloadProfile, rates: &[Level], levels: &[Level]) -> f64 {
    let of_rates: f64 = rates
        .iter()
        .filter_map(|rate| Some(rate.weight * (rate.rate / level_of(levels, rate)?.rate - 1.0).powi(2)))
        .filter(|square| square.is_finite())
        .sum();
    let durations = profile.duration_variation_fraction.filter(|_| profile.throughput_per_second.is_none());
    let (spare_runs, variation) =
        durations.map_or((0.0, 0.0), |variation| (f64::from(profile.run_count.saturating_sub(1)), variation));
    let count = USUAL_COUNT + small(rates.len() - levels.len()) + spare_runs;
    let squares = USUAL_COUNT * DEVIATION_USUAL.powi(2) + of_rates + spare_runs * variation.powi(2);
    // Both speeds of a quotient have half of its variance.
    (squares / count - 0.5 * NOISE_FRACTION.powi(2)).max(0.0)
}

/// Straight lines from a first value at no cap at all through those that are known; the last is of no cap.
fn between(first: f64, known: &[(usize, f64)]) -> ByCap {
    let mut filled = [first; CAP_STEPS + 2];
    let mut from = (0, first);
    for to in known {
        for (at, value) in filled.iter_mut().enumerate().take(to.0 + 1).skip(from.0) {
            *value = from.1 + (to.1 - from.1) * small(at - from.0) / small(to.0 - from.0);
        }
        from = *to;
    }
    filled
}

/// The value under a cap, which may lie between two that are known.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=10")]
fn at(values: &ByCap, cap: f64) -> f64 {
    let place = (cap * 10.0).clamp(0.0, 10.0);
    let low = (place.floor() as usize).min(CAP_STEPS);
    values[low] + (values[low + 1] - values[low]) * (place - small(low))
}

#[expect(clippy::cast_precision_loss, reason = "at most a dozen")]
pub(super) fn small(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use pillion_core::WorkloadKey;
    use proptest::prelude::*;

    /// Rates under caps of 0.3, 0.5 and 0.7 and without one.
    pub(in crate::model::learned) fn profile([at_30, at_50, at_70, full]: [f64; 4]) -> WorkloadProfile {
        let mut throughput_per_second_at_cap = [None; 9];
        for (step, rate) in [(3, at_30), (5, at_50), (7, at_70)] {
            throughput_per_second_at_cap[step - 1] = Some(rate);
        }
        WorkloadProfile {
            throughput_per_second: Some(full),
            throughput_per_second_at_cap,
            run_count: 1,
            ..WorkloadProfile::empty(WorkloadKey::new("w"), "v100")
        }
    }

    fn curve(rates: [f64; 4]) -> SoloCurve {
        SoloCurve::of(&profile(rates)).expect("rates under caps are known")
    }

    #[test]
    fn rates_that_fall_with_a_wider_cap_tell_that_they_are_noisy() {
        let calm = curve([30.0, 50.0, 70.0, 100.0]);
        assert!(calm.deviation_fraction_at(0.5).abs() < 1e-12);
        assert!((calm.at(0.5) - 0.5).abs() < 1e-9 && (calm.at(0.4) - 0.4).abs() < 1e-9);
        let noisy = curve([36.0, 37.0, 37.0, 30.0]);
        assert!((noisy.at(0.5) - 1.0).abs() < 1e-9);
        assert!((0.04..0.1).contains(&noisy.deviation_fraction_at(0.5)), "{noisy:?}");
        let noisier = curve([40.0, 45.0, 50.0, 25.0]);
        assert!(noisier.deviation_fraction_at(0.5) > 2.0 * noisy.deviation_fraction_at(0.5), "{noisier:?}");
        assert!(noisy.deviation_fraction_at(1.0).abs() < 1e-12, "nothing is compared without a cap");
    }

    #[test]
    fn more_runs_make_a_mean_surer() {
        // Those without a cap are compared with nothing that tells of noise.
        let rates = [49.0, 40.0, 60.0, 100.0];
        let of_runs = |run_count| {
            let curve = SoloCurve::of(&WorkloadProfile { run_count, ..profile(rates) });
            curve.expect("rates under caps are known").deviation_fraction_at(0.5)
        };
        assert!(of_runs(1) > of_runs(9) && of_runs(9) > 0.0, "{} {}", of_runs(1), of_runs(9));
    }

    #[test]
    fn durations_tell_of_the_noise_of_runs_a_second_only() {
        let of = |throughput_per_second| {
            let mut runs = profile([0.003, 0.005, 0.007, 0.01]);
            runs = WorkloadProfile { throughput_per_second, duration_seconds: Some(100.0), ..runs };
            let runs = WorkloadProfile { run_count: 5, duration_variation_fraction: Some(0.2), ..runs };
            SoloCurve::of(&runs).expect("rates under caps are known").deviation_fraction_at(0.5)
        };
        assert!((0.1..0.3).contains(&of(None)), "{}", of(None));
        assert!(of(Some(0.01)).abs() < 1e-12, "how long a job takes is not how fast it counts");
    }

    proptest! {
        #[test]
        fn whatever_was_measured_speeds_grow_and_doubts_are_numbers(
            rates in prop::array::uniform4(0.0..1e6_f64), run_count in 0..20_u32,
        ) {
            if let Some(curve) = SoloCurve::of(&WorkloadProfile { run_count, ..profile(rates) }) {
                let caps: Vec<f64> = (1..=20).map(|step| f64::from(step) / 20.0).collect();
                prop_assert!(caps.is_sorted_by(|a, b| curve.at(*a) <= curve.at(*b) + 1e-12), "{curve:?}");
                for cap in caps {
                    prop_assert!((0.0..=1.0).contains(&curve.at(cap)));
                    let deviation = curve.deviation_fraction_at(cap);
                    prop_assert!(deviation >= 0.0 && deviation.is_finite(), "{curve:?}");
                }
            }
        }
    }
}
