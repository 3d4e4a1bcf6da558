//! How fast a tenant goes against its speed alone, and how sure that is: pure. The error is of two kinds: how much the blocks vary
//! (Student's distribution, with as many blocks as they are worth where each is like the one before), and how much the workload
//! varies from run to run alone, which no time beside others makes smaller.

use super::blocks::Block;

/// Fewer blocks say nothing of how they vary.
const BLOCKS_MIN: usize = 4;
/// How much a rate alone varies from run to run where only one was measured, and the least and most of what is believed: a run
/// may take longer for there was more to do, and counts as fast all the same.
const VARIATION_UNKNOWN: f64 = 0.05;
const VARIATIONS: std::ops::RangeInclusive<f64> = 0.01..=0.10;
/// Of a hundred promises that are just kept, hardly more than two or three seem broken at one reading.
const QUANTILE_NORMAL: f64 = 1.96;
/// How like the block before a block may be taken for.
const CORRELATION_MAX: f64 = 0.9;
/// A promise that is missed by less is not worth a restart, and a trial that keeps it by less does not hold.
const MARGIN_FRACTION: f64 = 0.02;
/// How far off a speed may be that only the activity of the whole device tells.
const ACTIVITY_ERROR_FRACTION: f64 = 0.25;

/// What the speed alone is known by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reference {
    pub(super) rate_per_second: f64,
    /// Standard deviation of its runs over their mean; `None`: there was one.
    pub(super) variation_fraction: Option<f64>,
    pub(super) run_count: u32,
}

impl Reference {
    /// One standard deviation of how far this run's own speed alone may be from the mean, as a part of it.
    fn deviation_fraction(&self) -> f64 {
        let (least, most) = (*VARIATIONS.start(), *VARIATIONS.end());
        let variation = self.variation_fraction.unwrap_or(VARIATION_UNKNOWN).clamp(least, most);
        variation * (1.0 + 1.0 / f64::from(self.run_count.max(1))).sqrt()
    }
}

/// By what a speed is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    /// The job's own counter.
    Counter,
    /// What the device does, against what its tenants do alone.
    Activity,
}

/// A speed over the speed alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) speed_fraction: f64,
    /// The truth is within so much of it, but for one in twenty.
    pub(super) error_fraction: f64,
    /// Over how long.
    pub(super) seconds: f64,
    pub(super) ground: Ground,
}

/// What an estimate says of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is kept, for certain.
    Kept,
    /// Nobody can say.
    Open,
    /// It is being broken, for certain.
    Broken,
}

impl Estimate {
    pub(super) fn verdict(&self, slowdown_ratio_max: f64) -> Verdict {
        let (low, high) =
            (self.speed_fraction - self.error_fraction, self.speed_fraction + self.error_fraction);
        if high * slowdown_ratio_max < 1.0 - MARGIN_FRACTION {
            Verdict::Broken
        } else if low * slowdown_ratio_max >= 1.0 {
            Verdict::Kept
        } else {
            Verdict::Open
        }
    }
}

impl Estimate {
    /// Of two who are tried: nobody promised that they stay, so that the mean is enough, and the promise has to be kept by a margin.
    pub(super) fn verdict_of_trial(&self, slowdown_ratio_max: f64) -> Verdict {
        match self.ground {
            Ground::Activity => self.verdict(slowdown_ratio_max),
            Ground::Counter if self.speed_fraction * slowdown_ratio_max < 1.0 + MARGIN_FRACTION => {
                Verdict::Broken
            }
            Ground::Counter => Verdict::Kept,
        }
    }
}

/// By the tenant's counter; `None`: too little was measured.
#[expect(clippy::cast_precision_loss, reason = "blocks are few")]
pub(super) fn by_counter(blocks: &[Block], reference: &Reference) -> Option<Estimate> {
    if blocks.len() < BLOCKS_MIN || reference.rate_per_second <= 0.0 {
        return None;
    }
    let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
    let mean = blocks.iter().map(|block| block.progress).sum::<f64>() / seconds;
    let residuals: Vec<f64> = blocks.iter().map(|block| block.rate_per_second() - mean).collect();
    let count = blocks.len() as f64;
    let squares = residuals.iter().zip(blocks).map(|(residual, block)| residual * residual * block.seconds);
    let variance = squares.sum::<f64>() / seconds * count / (count - 1.0);
    let worth = count_worth(&residuals);
    let of_blocks = quantile_student(worth - 1.0) * (variance / worth).sqrt() / reference.rate_per_second;
    let speed_fraction = mean / reference.rate_per_second;
    let of_reference = QUANTILE_NORMAL * reference.deviation_fraction() * speed_fraction;
    Some(Estimate {
        speed_fraction,
        error_fraction: of_blocks.hypot(of_reference),
        seconds,
        ground: Ground::Counter,
    })
}

/// By what the device does, in the mean over `seconds`, against what its tenants do alone: at least what they would if they were
/// active at the same moments by chance alone. A rough word, for a warp that waits for memory counts as active.
pub(super) fn by_activity(sm_active: f64, alone: &[f64], seconds: f64) -> Option<Estimate> {
    let idle: f64 = alone.iter().map(|fraction| 1.0 - fraction.clamp(0.0, 1.0)).product();
    let speed_fraction = sm_active / (1.0 - idle);
    (1.0 - idle > ACTIVITY_ERROR_FRACTION && speed_fraction.is_finite()).then_some(Estimate {
        speed_fraction: speed_fraction.min(1.0),
        error_fraction: ACTIVITY_ERROR_FRACTION,
        seconds,
        ground: Ground::Activity,
    })
}

/// How many independent blocks these are worth, by how like each is to the one before; two at least.
#[expect(clippy::cast_precision_loss, reason = "blocks are few")]
fn count_worth(residuals: &[f64]) -> f64 {
    let count = residuals.len() as f64;
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let products: f64 = residuals.windows(2).map(|two| two[0] * two[1]).sum();
    // What so few blocks seem to have less of, in the mean.
    let correlation = if squares > 0.0 { products / squares + 1.0 / count } else { 0.0 };
    let correlation = correlation.clamp(0.0, CORRELATION_MAX);
    (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0)
}

/// The 97.5 % quantile of Student's distribution with that many degrees of freedom (Cornish and Fisher's expansion, within 2 % from
/// three on; below it is taken as for three, or nothing were ever sure).
fn quantile_student(freedom: f64) -> f64 {
    let freedom = freedom.max(3.0);
    let z = QUANTILE_NORMAL;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    let first = (z3 + z) / (4.0 * freedom);
    let second = (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2));
    let third = (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3));
    z + first + second + third
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const PROMISE: f64 = 1.25;
    const KNOWN: Reference =
        Reference { rate_per_second: 10.0, variation_fraction: Some(0.01), run_count: 20 };

    fn blocks(rates: impl IntoIterator<Item = f64>) -> Vec<Block> {
        rates.into_iter().map(|rate| Block { seconds: 5.0, progress: 5.0 * rate }).collect()
    }

    /// Twelve blocks, a minute, each like the one before by so much, around this speed.
    fn minute(rng: &mut SmallRng, speed: f64, noise: f64, correlation: f64) -> Vec<Block> {
        let mut state = 0.0;
        let step = (1.0 - correlation * correlation).sqrt();
        let mut rates = Vec::new();
        for _ in 0..32 {
            let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            state = correlation * state + step * normal;
            rates.push(10.0 * speed * (1.0 + noise * state));
        }
        blocks(rates.into_iter().skip(20))
    }

    fn broken_of_thousand(speed: f64, noise: f64, correlation: f64) -> usize {
        let mut rng = SmallRng::seed_from_u64(7);
        let is_broken = |_: &u32| {
            let estimate = by_counter(&minute(&mut rng, speed, noise, correlation), &KNOWN).unwrap();
            estimate.verdict(PROMISE) == Verdict::Broken
        };
        (0..1_000).filter(is_broken).count()
    }

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (freedom, tabled) in [(3.0, 3.182), (4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)] {
            let found = quantile_student(freedom);
            assert!((found - tabled).abs() < 0.03 * tabled, "{freedom}: {found} instead of {tabled}");
        }
    }

    /// Seeded: whoever just keeps his promise is hardly ever taken for one whose promise is broken; and not much more
    /// often where his speed swings by a third, in stretches of half a minute.
    #[test]
    fn a_promise_that_is_just_kept_seldom_seems_broken() {
        for (noise, correlation, most) in
            [(0.02, 0.0, 40), (0.1, 0.0, 40), (0.1, 0.5, 50), (0.3, 0.0, 40), (0.3, 0.7, 90)]
        {
            let wrong = broken_of_thousand(0.8, noise, correlation);
            assert!(wrong <= most, "noise {noise}, correlation {correlation}: {wrong} of 1000");
        }
    }

    #[test]
    fn a_promise_that_is_broken_plainly_is_seen_in_a_minute() {
        for (noise, correlation) in [(0.02, 0.0), (0.1, 0.0), (0.1, 0.5)] {
            let seen = broken_of_thousand(0.5, noise, correlation);
            assert!(seen >= 980, "noise {noise}, correlation {correlation}: {seen} of 1000");
        }
    }

    #[test]
    fn who_was_measured_once_needs_more_to_be_sure() {
        let once = Reference { variation_fraction: None, run_count: 1, ..KNOWN };
        let slow = blocks([7.3; 12]);
        let verdict = |reference: &Reference| by_counter(&slow, reference).unwrap().verdict(PROMISE);
        assert_eq!((verdict(&KNOWN), verdict(&once)), (Verdict::Broken, Verdict::Open));
        assert_eq!(by_counter(&blocks([1.0; 3]), &KNOWN), None, "three blocks say nothing");
        let unknown = Reference { rate_per_second: 0.0, ..KNOWN };
        assert_eq!(by_counter(&slow, &unknown), None);
    }

    #[test]
    fn a_promise_that_is_missed_by_a_hair_is_not_broken() {
        let exact = Reference { variation_fraction: Some(0.0), ..KNOWN };
        let verdict = |speed: f64| by_counter(&blocks([speed * 10.0; 12]), &exact).unwrap().verdict(PROMISE);
        assert_eq!([0.70, 0.79, 0.90].map(verdict), [Verdict::Broken, Verdict::Open, Verdict::Kept]);
    }

    #[test]
    fn the_activity_of_a_device_is_a_rough_word() {
        let verdict = |active: f64, alone: &[f64]| {
            by_activity(active, alone, 60.0).map(|estimate| estimate.verdict(PROMISE))
        };
        assert_eq!(verdict(0.3, &[0.6, 0.6]), Some(Verdict::Broken));
        assert_eq!(verdict(0.6, &[0.6, 0.6]), Some(Verdict::Open), "they may overlap");
        assert_eq!(verdict(1.0, &[0.9, 0.9]), Some(Verdict::Open));
        assert_eq!(verdict(0.01, &[0.1, 0.1]), None, "who hardly works cannot be seen to do less");
    }

    proptest! {
        #[test]
        fn nothing_is_infinite_and_slower_is_never_better(
            rates in prop::collection::vec(0.0..20.0_f64, 4..64),
            promise in 1.0..10.0_f64,
        ) {
            let order = |verdict| match verdict { Verdict::Broken => 0, Verdict::Open => 1, Verdict::Kept => 2 };
            let full = by_counter(&blocks(rates.clone()), &KNOWN).unwrap();
            prop_assert!(full.speed_fraction.is_finite() && full.error_fraction.is_finite());
            let half = by_counter(&blocks(rates.iter().map(|rate| rate / 2.0)), &KNOWN).unwrap();
            prop_assert!(order(half.verdict(promise)) <= order(full.verdict(promise)) || order(full.verdict(promise)) == 1);
        }
    }
}
