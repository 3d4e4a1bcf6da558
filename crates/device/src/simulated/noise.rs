//! Seeded noise: the same machine with the same seed and the same steps is noisy in the same way.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Draws factors around 1.
#[derive(Debug)]
pub(super) struct Noise {
    rng: StdRng,
    deviation: f64,
}

impl Noise {
    /// `deviation`: the standard deviation of the factors; 0 makes them all 1.
    pub(super) fn new(seed: u64, deviation: f64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), deviation }
    }

    /// A factor around 1, at most three deviations away.
    pub(super) fn factor(&mut self) -> f64 {
        if self.deviation <= 0.0 {
            return 1.0;
        }
        // Twelve uniform numbers sum to a good bell of variance 1.
        let bell: f64 = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
        1.0 + self.deviation * bell.clamp(-3.0, 3.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Noise;

    #[test]
    fn the_same_seed_is_noisy_in_the_same_way() {
        let draw = |seed| {
            let mut noise = Noise::new(seed, 0.02);
            (0..100).map(|_| noise.factor()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|factor| (0.93..1.07).contains(factor)));
        assert!(draw(7).iter().any(|factor| (factor - 1.0).abs() > 0.005));
    }

    #[test]
    fn no_noise_is_exactly_one() {
        let mut noise = Noise::new(1, 0.0);
        assert!((0..5).all(|_| (noise.factor() - 1.0).abs() < f64::EPSILON));
    }
}
