//! What a choice costs and whether it kept its promises.

use super::truth::Truth;

/// What two jobs that do not fit together lose, in hours of each one solo hour: each runs five minutes for nothing, then
/// alone.
pub(super) const UNFIT_HOURS_LOST: f64 = 2.0 * UNFIT_HOURS_EACH;
const UNFIT_HOURS_EACH: f64 = 5.0 / 60.0;
/// Speeds this near to the promise keep it: what is between is rounding.
const ROUNDING: f64 = 1e-9;

/// Device hours that a pair needs for one solo hour of each: both together until the faster one is done, then the slower
/// one alone at full speed. Alone, one after the other, it would be 2.
pub(super) fn pair_hours(speeds: [f64; 2]) -> f64 {
    let (fast, slow) = (speeds[0].max(speeds[1]), speeds[0].min(speeds[1]));
    (1.0 + fast - slow) / fast
}

/// Device hours that a pair saves; below 0 where taking turns would be better.
pub(super) fn hours_saved(speeds: [f64; 2]) -> f64 {
    if speeds[0].max(speeds[1]) <= 0.0 { -UNFIT_HOURS_LOST } else { 2.0 - pair_hours(speeds) }
}

/// Whether both run as fast as promised.
pub(super) fn keeps(speeds: [f64; 2], speed_min: f64) -> bool {
    speeds.iter().all(|speed| keeps_one(*speed, speed_min))
}

pub(super) fn keeps_one(speed: f64, speed_min: f64) -> bool {
    speed >= speed_min - ROUNDING
}

/// Pairs that a policy starts together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chosen {
    /// The combination, by place.
    pub(super) combination: usize,
    /// How many such pairs.
    pub(super) count: usize,
    /// The bound above which each speed was said to lie, in the combination's order.
    pub(super) lows: Option<[f64; 2]>,
}

/// What came of one queue under one policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Tally {
    /// Jobs in the queue.
    pub(super) jobs: usize,
    /// Jobs that shared, or tried to.
    pub(super) paired: usize,
    /// Of these, how many ran slower than promised; two that did not fit count.
    pub(super) broken: usize,
    /// Pairs that did not fit.
    pub(super) unfit: usize,
    /// Device hours saved, all counted.
    pub(super) hours_saved: f64,
    /// Hours saved by pairs that kept the promise, less hours lost by any.
    pub(super) hours_kept: f64,
    /// Slowdowns of the jobs that shared.
    pub(super) slowdowns: Vec<f64>,
    /// Of the speeds that were given a bound, how many lay above it, and how many there were.
    pub(super) above_low: (usize, usize),
    /// Pairs chosen that nobody measured; they count as alone.
    pub(super) unmeasured: usize,
}

impl Tally {
    /// Scores a choice for a queue of so many jobs of one solo hour each.
    pub(super) fn of(truth: &Truth, jobs: usize, chosen: &[Chosen], speed_min: f64) -> Self {
        let mut tally = Self { jobs, ..Self::default() };
        for pairs in chosen {
            tally.add(truth, pairs, speed_min);
        }
        tally
    }

    fn add(&mut self, truth: &Truth, pairs: &Chosen, speed_min: f64) {
        let count = pairs.count;
        self.paired += 2 * count;
        let repeated = as_float(count);
        let Some(speeds) = truth.combinations[pairs.combination].speeds else {
            self.unfit += count;
            self.broken += 2 * count;
            self.hours_saved -= UNFIT_HOURS_LOST * repeated;
            self.hours_kept -= UNFIT_HOURS_LOST * repeated;
            self.slowdowns.extend(std::iter::repeat_n(1.0 + UNFIT_HOURS_EACH, 2 * count));
            return;
        };
        let saved = hours_saved(speeds);
        self.hours_saved += saved * repeated;
        if keeps(speeds, speed_min) || saved < 0.0 {
            self.hours_kept += saved * repeated;
        }
        for (end, speed) in speeds.into_iter().enumerate() {
            self.broken += if keeps_one(speed, speed_min) { 0 } else { count };
            self.slowdowns.extend(std::iter::repeat_n(speed.max(ROUNDING).recip(), count));
            if let Some(lows) = pairs.lows {
                self.above_low.0 += if speed >= lows[end] { count } else { 0 };
                self.above_low.1 += count;
            }
        }
    }
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
pub(super) const fn as_float(count: usize) -> f64 {
    count as f64
}
