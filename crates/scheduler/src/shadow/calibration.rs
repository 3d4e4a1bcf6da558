//! Speeds that were foretold of pairs in the pool, held against those that were measured there: how far the bounds can be trusted that a
//! report of the shadow goes by. Pure.

use pillion_core::shadow::ShadowFit;
use pillion_store::{ForetoldSpeed, ShadowSums};

/// A speed that was foretold as surely as this has no bound of its own to speak of.
const UNSURE_MIN: f64 = 1e-6;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Calibration {
    pub(crate) speed_count: u32,
    pub(crate) above_bound_count: u32,
    pub(crate) promises_broken: u32,
    pub(crate) promises_broken_expected: f64,
    /// By how much the way from the expected speed down to the bound has to be stretched so that as many speeds lie above it as are
    /// meant to, at least 0. `None`: too few were measured to say, or no stretch would do.
    pub(crate) stretch_ratio: Option<f64>,
}

/// Counts.
pub(crate) fn calibration(speeds: &[ForetoldSpeed]) -> Calibration {
    let mut calibration = Calibration::default();
    let mut missed: Vec<f64> = Vec::new();
    for ForetoldSpeed { estimate, promise, measured_speed_fraction } in speeds {
        calibration.speed_count += 1;
        calibration.above_bound_count += u32::from(*measured_speed_fraction >= estimate.speed_fraction_low);
        calibration.promises_broken += u32::from(measured_speed_fraction * promise.value() < 1.0);
        calibration.promises_broken_expected += estimate.break_probability(*promise);
        let way = estimate.speed_fraction - estimate.speed_fraction_low;
        let short = estimate.speed_fraction - measured_speed_fraction;
        missed.push(if way > UNSURE_MIN {
            short / way
        } else if short > UNSURE_MIN {
            f64::INFINITY
        } else {
            0.0
        });
    }
    calibration.stretch_ratio = stretch(missed);
    calibration
}

/// The stretch that the next speed keeps with the wanted probability, whatever the distribution is: of n that were measured the
/// ceil((n + 1) x 0.9)th smallest (split conformal prediction; Lei and others, Distribution-Free Predictive Inference for Regression,
/// Journal of the American Statistical Association 2018, section 2.2).
fn stretch(mut missed: Vec<f64>) -> Option<f64> {
    missed.sort_by(f64::total_cmp);
    // The bound of an estimate is meant to be kept by nine of ten.
    let rank = ((missed.len() + 1) * 9).div_ceil(10);
    let found = *missed.get(rank.checked_sub(1)?)?;
    found.is_finite().then_some(found.max(0.0))
}

/// GPU time that would have been saved, by bounds that are stretched so; nothing of what was not scored. What rests on memory alone is not touched: of what does not
/// fit, or is not known to, nothing is claimed by a bound of speeds.
pub(crate) fn saved_seconds_low(sums: &[ShadowSums], stretch_ratio: f64) -> f64 {
    let saved = sums.iter().map(|sum| match sum.fit {
        Some(ShadowFit::Fits | ShadowFit::Near) => {
            stretch_ratio.mul_add(-(sum.saved_seconds - sum.saved_seconds_low), sum.saved_seconds)
        }
        _ => sum.saved_seconds_low,
    });
    saved.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::SlowdownRatio;
    use pillion_pairing::SpeedEstimate;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Foretold at 0.9 with a bound of 0.8.
    fn measured(speed: f64) -> ForetoldSpeed {
        ForetoldSpeed {
            estimate: SpeedEstimate {
                speed_fraction: 0.9,
                speed_fraction_deviation: 0.08,
                has_heavy_tail: false,
                speed_fraction_low: 0.8,
                speed_fraction_high: 1.0,
                terms: Arc::default(),
            },
            promise: SlowdownRatio::try_promise(1.25).unwrap(),
            measured_speed_fraction: speed,
        }
    }

    #[test]
    fn speeds_below_their_bounds_stretch_them() {
        // Nine tenths of nineteen and one more: the eighteenth of the nineteen, which lies 0.15 below what was foretold.
        let speeds: Vec<ForetoldSpeed> =
            std::iter::repeat_n(0.9, 17).chain([0.75, 0.7]).map(measured).collect();
        let found = calibration(&speeds);
        assert_eq!((found.speed_count, found.above_bound_count, found.promises_broken), (19, 17, 2));
        assert!((found.stretch_ratio.unwrap() - 1.5).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn eight_speeds_say_nothing_of_nine_of_ten() {
        let speeds: Vec<ForetoldSpeed> = std::iter::repeat_n(0.9, 8).map(measured).collect();
        assert_eq!(calibration(&speeds).stretch_ratio, None);
        assert_eq!(calibration(&[]), Calibration::default());
    }

    #[test]
    fn what_was_foretold_for_certain_and_did_not_come_no_stretch_mends() {
        let mut sure = measured(0.5);
        sure.estimate.speed_fraction_low = 0.9;
        let speeds: Vec<ForetoldSpeed> = std::iter::repeat_n(sure, 9).collect();
        assert_eq!(calibration(&speeds).stretch_ratio, None);
    }

    proptest! {
        /// With bounds that are stretched so, nine of ten of those lie above that it was made from.
        #[test]
        fn nine_of_ten_lie_above_a_stretched_bound(speeds in prop::collection::vec(0.1..1.1_f64, 9..60)) {
            let speeds: Vec<ForetoldSpeed> = speeds.into_iter().map(measured).collect();
            let stretch = calibration(&speeds).stretch_ratio.unwrap();
            let above = speeds.iter().filter(|one| one.measured_speed_fraction >= 0.9 - 0.1 * stretch - 1e-9);
            prop_assert!(above.count() * 10 >= speeds.len() * 9);
        }
    }
}
