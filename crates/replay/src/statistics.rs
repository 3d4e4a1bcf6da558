//! Medians, percentiles, and how far a few draws may be from the truth.

use serde::Serialize;

/// The value below which this part of all values lies, 0..=1; 0 of none.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list"
)]
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let mut sorted = values.to_vec();
    let at = ((sorted.len() - 1) as f64 * part).round() as usize;
    let (_, value, _) = sorted.select_nth_unstable_by(at, f64::total_cmp);
    *value
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// A figure with how low and how high it may be: nine of ten times it is expected between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Of ten times it is expected lower once or never.
    pub low: f64,
    /// The mean.
    pub expected: f64,
    /// The same above.
    pub high: f64,
}

/// Of Student's distribution, two-sided 90 %, by degrees of freedom from 1.
const STUDENT: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
const STUDENT_OF_MANY: f64 = 1.75;

impl Estimate {
    /// Where one more draw would lie, from draws that were made: at least two.
    pub(crate) fn of(draws: &[f64]) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a count of draws")]
        let count = draws.len().max(1) as f64;
        let expected = draws.iter().sum::<f64>() / count;
        let variance =
            draws.iter().map(|draw| (draw - expected).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let quantile = STUDENT.get(draws.len().saturating_sub(2)).copied().unwrap_or(STUDENT_OF_MANY);
        let reach = quantile * (variance * (1.0 + 1.0 / count)).sqrt();
        Self { low: expected - reach, expected, high: expected + reach }
    }

    /// Low, expected and high with so many digits behind the point; what rounds to nothing is `0`, never `-0`.
    pub fn texts(self, digits: usize) -> [String; 3] {
        [self.low, self.expected, self.high].map(|value| {
            let text = format!("{value:.digits$}");
            let is_nothing = text.chars().all(|letter| matches!(letter, '-' | '0' | '.'));
            if is_nothing { text.trim_start_matches('-').to_owned() } else { text }
        })
    }

    /// Of the opposite.
    pub(crate) fn negated(self) -> Self {
        Self { low: -self.high, expected: -self.expected, high: -self.low }
    }

    /// The same of what can only be positive.
    pub(crate) fn of_counts(draws: &[f64]) -> Self {
        Self::of(draws).at_least(0.0)
    }

    /// Of what can be no less than this.
    pub(crate) fn at_least(self, least: f64) -> Self {
        Self { low: self.low.max(least), ..self }
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, expected: self.expected * factor, high: self.high * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found() {
        let values: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!((median(&values), percentile(&values, 0.95), median(&[])), (50.0, 95.0, 0.0));
    }

    #[test]
    fn draws_that_differ_leave_room_and_those_that_do_not_leave_none() {
        let one = Estimate::of(&[5.0, 5.0, 5.0]);
        assert_eq!((one.low, one.expected, one.high), (5.0, 5.0, 5.0));
        let apart = Estimate::of(&[4.0, 5.0, 6.0]);
        assert!((apart.expected - 5.0).abs() < 1e-9 && (apart.high - 8.37).abs() < 0.01, "{apart:?}");
        assert!(Estimate::of_counts(&[0.0, 1.0, 0.0]).low >= 0.0);
    }
}
