//! Devices on which a share could not be set up, and when one is tried there again: pure. A node whose disk is full or whose MPS does
//! not start refuses at once, and is the emptiest for it: without a pause it would be given each job of the queue in turn, and the first
//! of them would wait longest.

use crate::idle::Place;
use pillion_core::{NodeName, UnixTime, UserId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// For how long a device takes nobody after the first time; twice as long after each that follows.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest, where only one user's shares failed: if it is his jobs, nobody else is to be kept away by them.
const PAUSE_MAX_OF_ONE_USER: Duration = Duration::from_secs(8);
const PAUSE_MAX: Duration = Duration::from_secs(64);
/// After how long without another try what failed before says nothing of the next.
const REMEMBERED: Duration = Duration::from_mins(10);
/// How much of an agent's sentence is kept, in characters.
const ERROR_LENGTH_MAX: usize = 200;

/// What is remembered of all devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SetupBackoff(BTreeMap<Place, Failures>);

/// Shares that could not be set up on one device, with none between them that could.
#[derive(Debug, Clone, PartialEq)]
pub struct Failures {
    count: u32,
    /// Whose they were.
    users: BTreeSet<UserId>,
    /// What the agent said last.
    error: String,
    until: UnixTime,
    is_over: bool,
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 | 1 => write!(f, "a share could not be set up there: {}", self.error),
            count => write!(f, "{count} shares in a row could not be set up there: {}", self.error),
        }
    }
}

impl SetupBackoff {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A share of this user could not be set up there.
    pub fn failed(&mut self, place: Place, user: UserId, error: &str, at: UnixTime) {
        let known = self.0.remove(&place).filter(|known| at < known.until + REMEMBERED);
        let failures = match known {
            // It was decided before the device was closed, and says nothing of how it is now.
            Some(known) if !known.is_over => known,
            Some(known) => known.and(user, error, at),
            None => Failures::none(at).and(user, error, at),
        };
        self.0.insert(place, failures);
    }

    /// One was set up there.
    pub fn succeeded(&mut self, place: &Place) {
        self.0.remove(place);
    }

    /// Another agent is there, or the same one anew: what failed may not fail again.
    pub fn forget(&mut self, node: &NodeName) {
        self.0.retain(|(known, _), _| known != node);
    }

    /// Opens those again whose pause is over.
    pub fn reopen(&mut self, at: UnixTime) {
        for failures in self.0.values_mut() {
            // A clock that was set back keeps no device closed.
            failures.is_over |= at >= failures.until || failures.until > at + PAUSE_MAX;
        }
    }

    /// Why this device takes nobody.
    pub fn closed(&self, place: &Place) -> Option<&Failures> {
        self.0.get(place).filter(|failures| !failures.is_over)
    }
}

impl Failures {
    const fn none(at: UnixTime) -> Self {
        Self { count: 0, users: BTreeSet::new(), error: String::new(), until: at, is_over: true }
    }

    /// With one more.
    fn and(mut self, user: UserId, error: &str, at: UnixTime) -> Self {
        self.users.insert(user);
        let most = if self.users.len() == 1 { PAUSE_MAX_OF_ONE_USER } else { PAUSE_MAX };
        let pause = PAUSE_FIRST.saturating_mul(1 << self.count.min(16)).min(most);
        Self {
            count: self.count.saturating_add(1),
            error: error.chars().take(ERROR_LENGTH_MAX).collect(),
            until: at + pause,
            is_over: false,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at};
    use pillion_core::GresType;

    fn place() -> Place {
        (NodeName::new("n1"), GresType::new("g0"))
    }

    /// For how many seconds the device is closed after a failure for each of these users, each as soon as one may be tried.
    fn pauses(users: &[u32]) -> Vec<u64> {
        let (mut backoff, mut now) = (SetupBackoff::new(), NOW);
        let mut pauses = Vec::new();
        for user in users {
            backoff.failed(place(), UserId(*user), "No space left on device", at(now));
            let begun = now;
            while backoff.closed(&place()).is_some() {
                now += 1;
                backoff.reopen(at(now));
            }
            pauses.push(now - begun);
        }
        pauses
    }

    #[test]
    fn each_failure_in_a_row_closes_it_for_longer() {
        assert_eq!(pauses(&[1, 2, 1, 2, 3, 1, 2]), [2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn one_users_jobs_close_it_for_no_longer_than_a_few_seconds() {
        assert_eq!(pauses(&[1, 1, 1, 1, 1, 1]), [2, 4, 8, 8, 8, 8]);
    }

    #[test]
    fn what_was_decided_before_counts_once() {
        let mut backoff = SetupBackoff::new();
        for user in 1..9 {
            backoff.failed(place(), UserId(user), "it hangs", at(NOW));
        }
        let told = backoff.closed(&place()).map(ToString::to_string);
        assert_eq!(told.as_deref(), Some("a share could not be set up there: it hangs"), "and not eight");
    }

    #[test]
    fn a_share_that_is_set_up_a_long_time_and_a_new_agent_end_it() {
        let mut backoff = SetupBackoff::new();
        let failed = |backoff: &mut SetupBackoff, seconds| {
            backoff.failed(place(), UserId(1), "it hangs", at(NOW + seconds));
            let count = backoff.closed(&place()).map(|failures| failures.count);
            backoff.reopen(at(NOW + seconds + 60));
            count
        };
        assert_eq!([failed(&mut backoff, 0), failed(&mut backoff, 60)], [Some(1), Some(2)]);
        assert_eq!(failed(&mut backoff, 1_000), Some(1));
        backoff.succeeded(&place());
        assert_eq!(failed(&mut backoff, 1_100), Some(1));
        backoff.forget(&NodeName::new("n2"));
        assert_eq!(failed(&mut backoff, 1_200), Some(2));
        backoff.forget(&place().0);
        assert_eq!(failed(&mut backoff, 1_300), Some(1), "its agent began anew");
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_nothing_closed() {
        let mut backoff = SetupBackoff::new();
        backoff.failed(place(), UserId(1), "it hangs", at(NOW));
        backoff.reopen(at(NOW - 3_600));
        assert_eq!(backoff.closed(&place()), None);
    }
}
