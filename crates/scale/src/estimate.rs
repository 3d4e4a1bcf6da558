//! A quantity with its doubt.

use serde::Serialize;

/// Deviations from the mean between which nine of ten normal values lie.
const NORMAL_90: f64 = 1.644_853_627;

/// A positive quantity, and between what it lies nine of ten times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// One of twenty lies below.
    pub low: f64,
    /// The best guess.
    pub expected: f64,
    /// One of twenty lies above.
    pub high: f64,
}

impl Estimate {
    /// What is known exactly.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, expected: value, high: value }
    }

    /// Of a value whose logarithm has this deviation, known from so many degrees of freedom.
    pub(crate) fn around(expected: f64, deviation: f64, freedom: f64) -> Self {
        let factor = (student_90(freedom) * deviation).exp();
        Self { low: expected / factor, expected, high: expected * factor }
    }

    /// Each part times `factor`, which is positive.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, expected: self.expected * factor, high: self.high * factor }
    }

    /// `of / self`: the lowest comes from the highest. The doubt about `of` is that of an independent value.
    #[must_use]
    pub(crate) fn under(self, of: Self) -> Self {
        let expected = of.expected / self.expected;
        // Independent doubts add up in squares of logarithms.
        let together = |own: f64, other: f64| own.ln().hypot(other.ln()).exp();
        Self {
            low: expected / together(self.high / self.expected, of.expected / of.low),
            expected,
            high: expected * together(self.expected / self.low, of.high / of.expected),
        }
    }

    /// Half of the interval: what stands behind a `+-`.
    pub fn half_width(self) -> f64 {
        f64::midpoint(self.high, -self.low)
    }
}

/// How many deviations of Student's distribution nine of ten values lie between, by Cornish and Fisher's expansion: within 2 % of
/// the tables from three degrees of freedom on (Abramowitz and Stegun, 26.7.5).
fn student_90(freedom: f64) -> f64 {
    let z = NORMAL_90;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / freedom + second / freedom.powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_distribution_is_that_of_the_tables() {
        for (freedom, tabled) in [(3.0, 2.353), (5.0, 2.015), (10.0, 1.812), (30.0, 1.697), (1e9, 1.645)] {
            assert!((student_90(freedom) / tabled - 1.0).abs() < 0.02, "{freedom}: {}", student_90(freedom));
        }
    }

    #[test]
    fn a_quotient_has_the_doubts_of_both() {
        let time = Estimate { low: 50.0, expected: 100.0, high: 200.0 };
        let speedup = time.under(Estimate::exact(200.0));
        assert_eq!(speedup, Estimate { low: 1.0, expected: 2.0, high: 4.0 });
        let doubted = time.under(Estimate { low: 100.0, expected: 200.0, high: 400.0 });
        assert!(doubted.low < 1.0 && doubted.high > 4.0 && doubted.low > 0.5, "{doubted:?}");
    }
}
