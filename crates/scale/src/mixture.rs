//! A sum of normal distributions with weights: what is believed of one number by a grid of laws.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Normal {
    pub(crate) weight: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

/// How often the half of the search is taken: of a width of a hundred deviations what is left is nothing.
const HALVES: u32 = 40;

/// Weights sum up to 1; not empty.
#[derive(Debug, Clone)]
pub(crate) struct Mixture(pub(crate) Vec<Normal>);

impl Mixture {
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().map(|part| part.weight * part.mean).sum()
    }

    /// How probable it is to be at most `value`.
    pub(crate) fn below(&self, value: f64) -> f64 {
        let each = self.0.iter();
        each.map(|part| part.weight * normal_below((value - part.mean) / part.deviation)).sum()
    }

    /// Below what it lies with this probability.
    pub(crate) fn quantile(&self, probability: f64) -> f64 {
        let ends = |sign: f64| self.0.iter().map(move |part| part.mean + sign * 8.0 * part.deviation);
        let mut low = ends(-1.0).fold(f64::INFINITY, f64::min);
        let mut high = ends(1.0).fold(f64::NEG_INFINITY, f64::max);
        for _ in 0..HALVES {
            let middle = f64::midpoint(low, high);
            if self.below(middle) < probability {
                low = middle;
            } else {
                high = middle;
            }
        }
        f64::midpoint(low, high)
    }

    /// Itself to this part, the rest of the other.
    pub(crate) fn mixed_with(mut self, other: Self, own_fraction: f64) -> Self {
        for part in &mut self.0 {
            part.weight *= own_fraction;
        }
        let rest = 1.0 - own_fraction;
        self.0.extend(other.0.into_iter().map(|part| Normal { weight: part.weight * rest, ..part }));
        self
    }
}

fn normal_below(deviations: f64) -> f64 {
    libm::erfc(-deviations * std::f64::consts::FRAC_1_SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_normal_and_lie_between_two() {
        let one = Mixture(vec![Normal { weight: 1.0, mean: 3.0, deviation: 2.0 }]);
        assert!((one.quantile(0.5) - 3.0).abs() < 1e-6);
        assert!((one.quantile(0.95) - (3.0 + 2.0 * 1.644_853_627)).abs() < 1e-6);
        let far = Mixture(vec![Normal { weight: 1.0, mean: 13.0, deviation: 2.0 }]);
        let both = one.clone().mixed_with(far, 0.5);
        assert!((both.mean() - 8.0).abs() < 1e-9 && (both.below(8.0) - 0.5).abs() < 1e-9);
        assert!(both.quantile(0.05) < one.quantile(0.11) && both.quantile(0.95) > 13.0);
    }
}
