//! How long things took, counted by bounds: from a millisecond to ten seconds, the deadline of most calls.

use std::time::Duration;

/// The upper bounds, in seconds; one more bucket holds all that took longer.
const BOUNDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Durations {
    counts: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

impl Durations {
    /// Something took so long.
    pub fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[place] += 1;
        self.seconds += seconds;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together.
    pub(crate) const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Each bound with the number of those above the one before it; the last bound is greater than all.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        BOUNDS.into_iter().chain([f64::MAX]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_a_bound_is_below_it_and_what_is_beyond_all_is_kept() {
        let mut durations = Durations::default();
        for milliseconds in [0, 1, 2, 10_000, 10_001] {
            durations.add(Duration::from_millis(milliseconds));
        }
        let counts: Vec<u64> = durations.buckets().into_iter().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts[1], counts[12], counts[13]), (2, 1, 1, 1));
        assert_eq!(durations.count(), 5);
        assert!((durations.seconds() - 20.004).abs() < 1e-9);
    }
}
