//! When the driver is asked again which devices the node has: its library or a device may come later than the agent, and a
//! device that is lost may come back. To ask can take a driver seconds, so that what stays away is asked for ever more
//! rarely. Pure.

use std::time::Duration;
use tokio::time::Instant;

/// The pause after the first question, and after one that brought something new; each further one doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause of a node on which nothing is shared meanwhile.
const PAUSE_MAX_WITHOUT_DEVICES: Duration = Duration::from_mins(1);
/// The longest pause of a node that has devices.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// When the next question is due.
#[derive(Debug)]
pub struct Backoff {
    asked_at: Instant,
    pause: Duration,
}

impl Backoff {
    /// The devices were asked for just now, for the first time.
    pub fn new(now: Instant) -> Self {
        Self { asked_at: now, pause: PAUSE_FIRST }
    }

    /// Whether it is time to ask again.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked_at) >= self.pause
    }

    /// They were asked for: whether there was a new one, and whether the node has any.
    pub fn asked(&mut self, now: Instant, is_new: bool, has_devices: bool) {
        let max = if has_devices { PAUSE_MAX } else { PAUSE_MAX_WITHOUT_DEVICES };
        self.asked_at = now;
        self.pause = if is_new { PAUSE_FIRST } else { self.pause.saturating_mul(2).min(max) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many seconds pass between questions that bring nothing new.
    fn pauses(backoff: &mut Backoff, has_devices: bool, count: usize) -> Vec<u64> {
        let mut now = backoff.asked_at;
        let mut pause = || {
            let seconds =
                (0..10_000).find(|seconds| backoff.is_due(now + Duration::from_secs(*seconds))).unwrap();
            now += Duration::from_secs(seconds);
            backoff.asked(now, false, has_devices);
            seconds
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn what_stays_away_is_asked_for_ever_more_rarely() {
        let mut backoff = Backoff::new(Instant::now());
        assert_eq!(pauses(&mut backoff, false, 9), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(pauses(&mut backoff, true, 6), [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn where_one_came_others_may_follow() {
        let mut backoff = Backoff::new(Instant::now());
        pauses(&mut backoff, false, 5);
        let now = backoff.asked_at;
        backoff.asked(now, true, true);
        assert_eq!(pauses(&mut backoff, true, 3), [1, 2, 4]);
    }
}
