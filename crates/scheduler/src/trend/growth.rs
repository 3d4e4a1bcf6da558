//! Whether a job that has so much device memory, and no more, will run out of it, by how what it holds has grown. Pure.
//!
//! Allocators grow in steps and level off after the first iterations, so a line through the beginning says nothing: only the last
//! minute counts, only close to the limit, and by the median of all slopes, which a single step does not move.

use pillion_core::UnixTime;
use std::collections::VecDeque;
use std::time::Duration;

/// For how long it has to grow.
const GROWING: Duration = Duration::from_mins(1);
/// Of how much of its limit on it is looked at.
const NEAR_FRACTION: f64 = 0.85;
/// Where it is taken to have run out: the next step does not fit.
const FULL_FRACTION: f64 = 0.97;
/// Within which part of the time that it has left it must be there.
const TIME_LEFT_FRACTION: f64 = 0.5;
/// The time that is left of a job without a time limit.
const TIME_LEFT_SECONDS: f64 = 3600.0;
/// The part of the slopes that are steeper than the one by which it is all but certain.
const SURE_PART: usize = 4;

/// What one start held in the last minute.
#[derive(Debug, Default)]
pub(super) struct Growth {
    looks: VecDeque<(UnixTime, u64)>,
}

/// It will probably run out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Soon {
    /// What it holds.
    pub(super) memory_bytes: u64,
    /// How fast that grows.
    pub(super) bytes_per_second: f64,
    /// When it is full at this pace.
    pub(super) seconds: f64,
    /// Whether it is so also by the slope than which three of four are steeper: of what has all but levelled off it is not.
    pub(super) is_sure: bool,
}

impl Growth {
    /// It was seen to hold so much. What was seen already is passed over.
    pub(super) fn look(&mut self, at: UnixTime, memory_bytes: u64) {
        if self.looks.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.looks.push_back((at, memory_bytes));
        // One look stays that is a minute old or older.
        while self.looks.get(1).is_some_and(|(second, _)| *second + GROWING <= at) {
            self.looks.pop_front();
        }
    }

    /// Whether it will probably run out of `limit_bytes`. `time_left_seconds`: until Slurm ends it, where it does.
    pub(super) fn runs_out(&self, limit_bytes: u64, time_left_seconds: Option<f64>) -> Option<Soon> {
        let (&(first_at, first), &(at, memory_bytes)) = (self.looks.front()?, self.looks.back()?);
        let (limit, held) = (float(limit_bytes), float(memory_bytes));
        if at < first_at + GROWING || held < NEAR_FRACTION * limit {
            return None;
        }
        // In each third: a single step is none, and what has levelled off neither.
        let (second, third) = (self.held_before(at, GROWING / 3 * 2)?, self.held_before(at, GROWING / 3)?);
        if !(first < second && second < third && third < memory_bytes) {
            return None;
        }
        let slopes = self.slopes();
        let bytes_per_second = slopes.get(slopes.len() / 2).copied().filter(|slope| *slope > 0.0)?;
        let is_in_time =
            |seconds: f64| seconds <= TIME_LEFT_FRACTION * time_left_seconds.unwrap_or(TIME_LEFT_SECONDS);
        let until_full = |slope: f64| ((FULL_FRACTION * limit - held) / slope).max(0.0);
        let seconds = until_full(bytes_per_second);
        let shallow = slopes.get(slopes.len() / SURE_PART).filter(|slope| **slope > 0.0);
        let is_sure = shallow.is_some_and(|slope| is_in_time(until_full(*slope)));
        is_in_time(seconds).then_some(Soon { memory_bytes, bytes_per_second, seconds, is_sure })
    }

    /// What it held so long before, or a look later.
    fn held_before(&self, at: UnixTime, ago: Duration) -> Option<u64> {
        self.looks.iter().find(|(seen_at, _)| *seen_at + ago >= at).map(|(_, held)| *held)
    }

    /// The slopes between all looks, the shallowest first; the one in the middle is Theil's and Sen's.
    fn slopes(&self) -> Vec<f64> {
        let mut slopes: Vec<f64> = Vec::new();
        for (place, (later_at, later)) in self.looks.iter().enumerate() {
            for (at, held) in self.looks.iter().take(place) {
                slopes.push((float(*later) - float(*held)) / later_at.seconds_since(*at));
            }
        }
        slopes.sort_by(f64::total_cmp);
        slopes
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 10_000 * MIB;

    /// What is said at each of the looks, five seconds apart, of what it held in MiB.
    fn told(held_mib: &[u64], time_left_seconds: Option<f64>) -> Vec<Option<Soon>> {
        let mut growth = Growth::default();
        let looks = held_mib.iter().enumerate().map(|(place, mib)| {
            growth.look(UnixTime::from_epoch(1_000 + 5 * place as u64), mib * MIB);
            growth.runs_out(LIMIT, time_left_seconds)
        });
        looks.collect()
    }

    fn line(from_mib: u64, mib_a_look: u64, looks: u64) -> Vec<u64> {
        (0..looks).map(|place| from_mib + mib_a_look * place).collect()
    }

    #[test]
    fn what_grows_for_a_minute_near_its_limit_runs_out() {
        let told = told(&line(8_600, 50, 20), None);
        assert_eq!(told.iter().position(Option::is_some), Some(12), "after a minute: {told:?}");
        let first = told[12].unwrap();
        assert_eq!(first.memory_bytes, 9_200 * MIB);
        assert!((first.bytes_per_second - 10.0 * float(MIB)).abs() < 1.0, "{first:?}");
        assert!((first.seconds - 50.0).abs() < 0.1, "{first:?}");
        assert!(first.is_sure, "{first:?}");
    }

    #[test]
    fn what_has_all_but_levelled_off_is_told_and_not_sure() {
        // By the median it goes on as in the first half minute, and in the second it crept.
        let held: Vec<u64> =
            (0..14).map(|place: u64| 8_700 + 60 * place.min(6) + place.saturating_sub(6)).collect();
        let told = told(&held, None);
        let soon = told.into_iter().flatten().next().unwrap();
        assert!(!soon.is_sure, "{soon:?}");
    }

    #[test]
    fn what_levels_off_steps_once_or_is_far_from_its_limit_does_not() {
        let nothing = |held: &[u64], left| assert!(told(held, left).iter().all(Option::is_none), "{held:?}");
        nothing(&line(2_000, 50, 60), None);
        // The first iterations, and then as much as it needs.
        let mut levels = line(8_000, 150, 9);
        levels.extend([9_200; 40]);
        nothing(&levels, None);
        let mut step = vec![8_600; 20];
        step.extend([9_600; 20]);
        nothing(&step, None);
        nothing(&[9_600; 40], None);
        let sinking: Vec<u64> = line(8_600, 20, 40).into_iter().rev().collect();
        nothing(&sinking, None);
    }

    #[test]
    fn who_ends_before_is_left_alone() {
        let slow = line(8_600, 1, 14);
        assert!(told(&slow, Some(20_000.0)).iter().any(Option::is_some));
        assert!(told(&slow, Some(10_000.0)).iter().all(Option::is_none), "5,450 s at a fifth of a MiB");
        assert!(told(&slow, None).iter().all(Option::is_none));
    }

    #[test]
    fn a_look_that_was_seen_before_counts_once_and_no_more_than_a_minute_is_kept() {
        let mut growth = Growth::default();
        for second in 0..1_000 {
            growth.look(UnixTime::from_epoch(1_000 + second / 5 * 5), MIB * second);
        }
        assert_eq!(growth.looks.len(), 13);
        assert!(growth.looks.iter().all(|(_, held)| held % (5 * MIB) == 0));
    }
}
