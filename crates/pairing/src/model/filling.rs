//! What is waited for compute units that neighbours hold. A kernel that is there keeps its units until it ends, so that whoever
//! fills a device lets nobody in, and whoever leaves a part of it free costs nobody anything: the wait grows steeply as the
//! neighbours come near to all of it, and hardly with what one needs oneself.
//!
//! The constants are of pairs without caps on a V100: beside 0.75 of the device 0.85 of the speed, beside 0.85 of it 0.55,
//! beside 0.95 of it 0.3. An H200, which was not used for them, has the same shape (docs/benchmarks.md).

/// How much is waited, and how late that begins.
const WAIT: f64 = 0.38;
const EXPONENT: i32 = 6;
const CAPACITY: f64 = 1.05;
/// Who uses less of the device than this is seldom there to wait.
const WAITS_ALWAYS_FRACTION: f64 = 0.15;

/// Tenants on the same compute units, as one of them meets the others; fractions, 0..=1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    /// The part of the units that it uses alone.
    pub(super) needed: f64,
    /// The part that it fills: on which others find it at work.
    pub(super) own: f64,
    /// The part of those that it may use which the others fill.
    pub(super) filled: f64,
}

/// How much of the smaller of two caps is shared where the other is at work too, 0..=1: caps that sum to one keep apart.
pub(super) fn overlap(cap: f64, other_cap: f64) -> f64 {
    ((cap + other_cap - 1.0) / cap.min(other_cap)).clamp(0.0, 1.0)
}

impl Met {
    /// Its time beside the others over its time alone. `loss`: what is lost besides, of its time alone.
    pub(super) fn delay(self, loss: f64) -> f64 {
        (1.0 + loss + self.waiting()).min(self.turns())
    }

    /// The time for which it waits for units, over its time alone. Grows with what the others fill.
    fn waiting(self) -> f64 {
        let filled = self.filled.clamp(0.0, 1.0);
        let is_there = (self.needed / WAITS_ALWAYS_FRACTION).clamp(0.0, 1.0);
        is_there * WAIT * filled.powi(EXPONENT) / (CAPACITY - filled)
    }

    /// Its time over its time alone where it and the others take turns at what they fill, 1 or more. Who of two that fill the device
    /// lets the other wait is not known, but what one loses the other gets done: nobody is expected to have less than this.
    fn turns(self) -> f64 {
        1.0 + self.filled / self.own.max(f64::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(needed: f64, filled: f64) -> f64 {
        Met { needed, own: needed, filled }.waiting()
    }

    #[test]
    fn who_leaves_a_part_free_costs_little_and_who_fills_all_much() {
        assert!(beside(0.5, 0.5) < 0.02);
        let speed = |filled| 1.0 / (1.0 + beside(0.3, filled));
        assert!((0.7..0.9).contains(&speed(0.75)), "{}", speed(0.75));
        assert!((0.5..0.65).contains(&speed(0.85)), "{}", speed(0.85));
        assert!((0.2..0.35).contains(&speed(0.95)), "{}", speed(0.95));
        assert!(beside(0.01, 0.95) < 0.1 * beside(0.5, 0.95), "hardly ever there");
    }

    #[test]
    fn two_that_fill_the_device_do_together_what_one_does() {
        let heavy = Met { needed: 0.9, own: 0.9, filled: 0.9 };
        assert!((heavy.turns() - 2.0).abs() < 1e-9);
        let light = Met { needed: 0.1, own: 0.1, filled: 0.9 };
        assert!(light.turns() > 1.0 + light.waiting(), "its turn is no help to it");
    }
}
