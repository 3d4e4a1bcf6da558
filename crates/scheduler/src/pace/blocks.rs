//! A progress counter in blocks of time: pure. How much a job counted from one advance of its counter to a later one, so that a
//! counter of whole epochs is measured as well as one of single steps. What is dropped teaches nothing: its start-up, a counter
//! that went back (its program was started again), one that leapt further than any neighbour lets it (a checkpoint was read),
//! and a time without samples. Of a job that stands still nothing is said: it may write a checkpoint, and no neighbour stops one.

use pillion_core::UnixTime;
use pillion_core::units::SPEED_FRACTIONS;

/// How long a block is at first; every time that there are [`BLOCKS_MAX`] of them, two become one.
const BLOCK_SECONDS: f64 = 5.0;
/// How long the counter is not believed after it moved first: kernels are compiled and caches filled.
const SETTLE_SECONDS: f64 = 10.0;
/// A longer time without a sample is nobody's: the agent was away, or its clock was set.
const GAP_SECONDS_MAX: f64 = 30.0;
/// How many blocks are kept: enough to know how they vary.
const BLOCKS_MAX: usize = 64;

/// What was counted in some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) seconds: f64,
    pub(super) progress: f64,
}

impl Block {
    pub(super) fn rate_per_second(&self) -> f64 {
        self.progress / self.seconds
    }

    fn with(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, progress: self.progress + other.progress }
    }
}

/// The counter at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    at: UnixTime,
    counter: f64,
}

/// The blocks of one tenant beside one company.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    length_seconds: f64,
    closed: Vec<Block>,
    /// Where the open block begins: at an advance.
    begun: Option<Mark>,
    /// The last sample.
    last: Option<Mark>,
    /// Until when the counter is not believed; `None`: it has not moved yet.
    settles_until: Option<UnixTime>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            length_seconds: BLOCK_SECONDS,
            closed: Vec::new(),
            begun: None,
            last: None,
            settles_until: None,
        }
    }
}

impl Blocks {
    /// All that are closed, oldest first.
    pub(super) fn closed(&self) -> &[Block] {
        &self.closed
    }

    /// How much time they are together, in seconds.
    pub(super) fn measured_seconds(&self) -> f64 {
        self.closed.iter().map(|block| block.seconds).sum()
    }

    /// Whether the job counts at all.
    pub(super) const fn has_moved(&self) -> bool {
        self.settles_until.is_some()
    }

    /// The counter in one sample more. `rate_alone_per_second`: how fast the workload counts alone.
    pub(super) fn add(&mut self, at: UnixTime, counter: f64, rate_alone_per_second: f64) {
        let now = Mark { at, counter };
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        if at <= last.at || !counter.is_finite() {
            return;
        }
        self.last = Some(now);
        if counter < last.counter || at.seconds_since(last.at) > GAP_SECONDS_MAX {
            self.begun = None;
        } else if counter > last.counter {
            self.advance(now, rate_alone_per_second);
        }
    }

    fn advance(&mut self, now: Mark, rate_alone_per_second: f64) {
        let settles_until = *self
            .settles_until
            .get_or_insert_with(|| UnixTime::from_seconds(now.at.seconds() + SETTLE_SECONDS));
        if now.at < settles_until {
            return;
        }
        let Some(begun) = self.begun else {
            self.begun = Some(now);
            return;
        };
        let block = Block { seconds: now.at.seconds_since(begun.at), progress: now.counter - begun.counter };
        if block.seconds < self.length_seconds {
            return;
        }
        self.begun = Some(now);
        if block.rate_per_second() <= rate_alone_per_second * SPEED_FRACTIONS.end() {
            self.close(block);
        }
    }

    fn close(&mut self, block: Block) {
        self.closed.push(block);
        if self.closed.len() >= BLOCKS_MAX {
            self.closed =
                self.closed.chunks(2).map(|two| two[1..].iter().fold(two[0], |a, b| a.with(*b))).collect();
            self.length_seconds *= 2.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALONE: f64 = 10.0;

    fn at(seconds: f64) -> UnixTime {
        UnixTime::from_seconds(1_000_000.0 + seconds)
    }

    /// The blocks of these samples, in seconds and counts.
    fn blocks(samples: impl IntoIterator<Item = (f64, f64)>) -> Blocks {
        let mut blocks = Blocks::default();
        for (seconds, counter) in samples {
            blocks.add(at(seconds), counter, ALONE);
        }
        blocks
    }

    fn each_second(count: u32, counter: impl Fn(f64) -> f64) -> Blocks {
        blocks((0..count).map(|second| (f64::from(second), counter(f64::from(second)))))
    }

    fn mean(blocks: &Blocks) -> f64 {
        let progress: f64 = blocks.closed().iter().map(|block| block.progress).sum();
        progress / blocks.measured_seconds()
    }

    #[test]
    fn a_steady_counter_makes_a_block_every_five_seconds_after_its_start() {
        // It imports its libraries for 20 s, and warms up for 10.
        let blocks = each_second(60, |second| (second - 20.0).max(0.0) * 7.0);
        assert_eq!(blocks.closed().len(), 5, "{blocks:?}");
        assert!(blocks.closed().iter().all(|block| (block.rate_per_second() - 7.0).abs() < 1e-9));
    }

    #[test]
    fn a_counter_of_epochs_is_measured_from_advance_to_advance() {
        let blocks = each_second(600, |second| (second / 40.0).floor() * 200.0);
        assert!((mean(&blocks) - 5.0).abs() < 1e-9, "{blocks:?}");
        assert!(blocks.closed().iter().all(|block| (block.seconds - 40.0).abs() < 1e-9));
    }

    #[test]
    fn what_goes_back_leaps_or_is_not_seen_teaches_nothing() {
        let odd = |second: f64| match second {
            // A checkpoint was read: a million steps in a second.
            100.0.. => 1e6 + 7.0 * second,
            // It was started again.
            50.0.. => 7.0 * (second - 50.0),
            _ => 7.0 * second,
        };
        let steady = each_second(200, odd);
        assert!((mean(&steady) - 7.0).abs() < 1e-9, "{steady:?}");
        let away = |second: f64| if second < 60.0 { second } else { second + 400.0 };
        let gap = blocks((0..200).map(|n| (away(f64::from(n)), 7.0 * f64::from(n))));
        assert!((mean(&gap) - 7.0).abs() < 1e-9, "the clock leapt: {gap:?}");
    }

    #[test]
    fn samples_that_come_twice_or_late_change_nothing() {
        let once: Vec<(f64, f64)> = (0..90).map(|n| (f64::from(n), 7.0 * f64::from(n))).collect();
        let twice = once.iter().flat_map(|(second, counter)| [(*second, *counter), (second - 3.0, 0.0)]);
        assert_eq!(blocks(twice).closed(), blocks(once.iter().copied()).closed());
        let mad = blocks(once.iter().map(|(second, _)| (*second, f64::NAN)));
        assert!(mad.closed().is_empty() && !mad.has_moved());
    }

    #[test]
    fn a_job_that_stands_still_is_not_measured() {
        let blocks = each_second(1_000, |second| second.min(100.0) * 7.0);
        assert!(blocks.measured_seconds() <= 90.0 && (mean(&blocks) - 7.0).abs() < 1e-9, "{blocks:?}");
    }

    proptest! {
        #[test]
        fn a_week_takes_no_more_room_than_an_hour_and_loses_no_time(count in 1_000..40_000_u32) {
            let blocks = each_second(count, |second| 7.0 * second);
            prop_assert!(blocks.closed().len() < BLOCKS_MAX);
            prop_assert!((mean(&blocks) - 7.0).abs() < 1e-6);
            prop_assert!(blocks.measured_seconds() > f64::from(count) * 0.8);
        }
    }
}
