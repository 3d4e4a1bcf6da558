//! What agents measured of a sharing while somebody was in it, against what the profiles of all who were there say: pure. How
//! slowly a job goes is its user's to make, by its counter or by sleeping; so a promise that looks broken costs a neighbour
//! nothing, unless what no user writes bears it out.

use super::excess::{Look, Of};
use super::window::BEYOND_MIN;
use pillion_core::{DecisionId, JobStart, UnixTime};

/// How far compute units in use must be beyond the profiles in the mean over a whole sharing: less than while it runs (`excess`),
/// for the mean of minutes is worth more than that of seconds.
const SURPLUS_MIN: f64 = 0.1;
/// Samples that say what a job used beyond its profile: what it is booked with next time is made of them.
const USE_SAMPLES_MIN: usize = 30;
/// How long it is remembered after the sharing: longer than an agent needs to tell of a run.
const KEPT_SECONDS: f64 = 3_600.0;

/// What was measured while one tenant was there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Strain {
    group: DecisionId,
    seen_at: UnixTime,
    /// Samples at which he held more memory than he was let in with.
    memory_count: usize,
    /// Samples that tell of compute units, and how far these were beyond the profiles together.
    surplus_count: usize,
    surplus_sum: f64,
    /// The same of the samples at which that was his, for he was known least.
    own_count: usize,
    own_sum: f64,
}

impl Strain {
    /// Of a tenant of this sharing, of whom nothing was measured yet.
    pub(super) const fn of(group: DecisionId, seen_at: UnixTime) -> Self {
        Self {
            group,
            seen_at,
            memory_count: 0,
            surplus_count: 0,
            surplus_sum: 0.0,
            own_count: 0,
            own_sum: 0.0,
        }
    }

    /// Of a sharing in which far more was done than was known of it.
    #[cfg(test)]
    pub(crate) fn beyond(group: DecisionId) -> Self {
        Self {
            surplus_count: 100,
            surplus_sum: 50.0,
            own_count: 100,
            own_sum: 50.0,
            ..Self::of(group, UnixTime::from_epoch(0))
        }
    }

    /// Of one who held far more memory than he was let in with.
    #[cfg(test)]
    pub(crate) fn of_memory(group: DecisionId) -> Self {
        Self { memory_count: 100, ..Self::of(group, UnixTime::from_epoch(0)) }
    }

    /// One more sample with this tenant in it.
    pub(super) fn add(&mut self, own: JobStart, at: UnixTime, look: &Look) {
        self.seen_at = at;
        let is_own = |of| look.excess.as_ref().is_some_and(|excess| excess.start == own && excess.of == of);
        self.memory_count += usize::from(is_own(Of::Memory));
        if let Some(surplus) = look.surplus {
            self.surplus_count += 1;
            self.surplus_sum += surplus;
            if look.newest == Some(own) {
                self.own_count += 1;
                self.own_sum += surplus;
            }
        }
    }

    /// How much more of the device he used than his profile says, 0..=1; 0 where that is within what profiles are off by anyhow.
    /// `None`: nobody can say, or it was another's.
    #[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
    pub(crate) fn use_beyond(&self) -> Option<f64> {
        if self.own_count < USE_SAMPLES_MIN {
            return None;
        }
        let mean = self.own_sum / self.own_count as f64;
        Some(if mean > SURPLUS_MIN { mean.min(1.0) } else { 0.0 })
    }

    /// Whether somebody beside him may well have been slowed by what was not known of him.
    #[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
    pub(crate) fn bears_out(&self) -> bool {
        let is_measured = self.surplus_count >= BEYOND_MIN;
        self.is_by_memory() || (is_measured && self.surplus_sum / self.surplus_count as f64 > SURPLUS_MIN)
    }

    /// Whether he held far more memory than he was let in with: that is read of each, and nobody else's doing.
    pub(crate) const fn is_by_memory(&self) -> bool {
        self.memory_count >= BEYOND_MIN
    }

    /// Whether it may still be asked for.
    pub(super) fn is_kept(&self, is_active: impl Fn(DecisionId) -> bool, now: UnixTime) -> bool {
        is_active(self.group) || now.seconds_since(self.seen_at).abs() < KEPT_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credit::excess::Excess;
    use pillion_core::{SlurmJobId, UserId};

    fn start(job: u32) -> JobStart {
        JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 }
    }

    /// Whether it is borne out of job 8 by so many samples, each with this surplus and with the memory of this job beyond.
    fn is_borne_out(samples: usize, surplus: Option<f64>, memory_of: Option<u32>) -> bool {
        let mut strain = Strain::of(DecisionId(1), UnixTime::from_epoch(0));
        for _ in 0..samples {
            let excess = memory_of.map(|job| Excess {
                start: start(job),
                uid: UserId(1001),
                of: Of::Memory,
                detail: String::new(),
            });
            strain.add(start(8), UnixTime::from_epoch(1), &Look { excess, surplus, newest: Some(start(8)) });
        }
        strain.bears_out()
    }

    #[test]
    fn only_what_was_measured_often_enough_bears_a_broken_promise_out() {
        assert!(is_borne_out(5, Some(0.11), None) && is_borne_out(5, None, Some(8)));
        assert!(!is_borne_out(4, Some(0.9), None) && !is_borne_out(4, None, Some(8)), "too few samples");
        assert!(!is_borne_out(500, Some(0.09), None), "as the profiles say");
        assert!(!is_borne_out(500, None, None), "a device that tells nothing");
        assert!(!is_borne_out(500, None, Some(7)), "another's memory");
    }

    fn use_beyond(samples: usize, surplus: Option<f64>, newest: u32) -> Option<f64> {
        let mut strain = Strain::of(DecisionId(1), UnixTime::from_epoch(0));
        for _ in 0..samples {
            let look = Look { excess: None, surplus, newest: Some(start(newest)) };
            strain.add(start(8), UnixTime::from_epoch(1), &look);
        }
        strain.use_beyond()
    }

    #[test]
    fn what_he_used_beyond_his_profile_is_his_where_he_is_known_least() {
        assert_eq!(use_beyond(32, Some(0.25), 8), Some(0.25));
        assert_eq!(use_beyond(32, Some(0.09), 8), Some(0.0), "profiles are off by that much");
        assert_eq!(use_beyond(32, Some(-0.5), 8), Some(0.0), "neighbours slow each other");
        assert_eq!(use_beyond(29, Some(0.25), 8), None, "too few samples");
        assert_eq!((use_beyond(500, Some(0.25), 7), use_beyond(500, None, 8)), (None, None));
    }

    #[test]
    fn it_is_forgotten_an_hour_after_the_sharing() {
        let strain = Strain::of(DecisionId(1), UnixTime::from_epoch(0));
        let is_kept = |is_active, now| strain.is_kept(|_| is_active, UnixTime::from_epoch(now));
        assert!(is_kept(true, 100_000) && is_kept(false, 3_599) && !is_kept(false, 3_600));
    }
}
