//! Whether an interactive job leaves its device idle: pure, from one look at the device after the other.

use crate::agents::DeviceSeen;
use pillion_core::metric::Metric;
use pillion_core::{JobStart, UnixTime};
use std::time::Duration;

/// The part of the device's compute units below which nothing runs there.
const REST_FRACTION_MAX: f64 = 0.05;
/// How far what is used may be beyond what guests use alone before that is the session's: profiles are means, and looks are not.
const BEYOND_GUESTS_MAX: f64 = 0.15;
/// So many looks in a row beside guests are needed to say so.
const LOOKS_IN_A_ROW: u32 = 2;
/// What happened between two looks that are further apart nobody knows.
const GAP_SECONDS_MAX: f64 = 10.0;
/// The same where there was nothing to see: agents tell of a device on which nobody is once in ten seconds, and at once when somebody is.
const QUIET_GAP_SECONDS_MAX: f64 = 30.0;

/// One look at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Idle,
    Active,
    /// The device does not tell, or what a guest uses is not known.
    Unknown,
}

/// Whether there was nothing to see.
pub(super) fn is_quiet(sample: &DeviceSeen) -> bool {
    let is_zero = |metric| sample.reading.metrics.get(metric).is_none_or(|used| used <= 0.0);
    sample.tenants.is_empty() && is_zero(Metric::SmActiveFraction) && is_zero(Metric::GpuBusyFraction)
}

/// What a look says of an interactive job. `guests`: what each of the others there uses of the device alone; absent where that is
/// not known. `memory_bytes_declared`: what it may hold.
pub(super) fn look(
    sample: &DeviceSeen,
    start: JobStart,
    guests: &[Option<f64>],
    memory_bytes_declared: Option<u64>,
) -> Look {
    let own = sample
        .tenants
        .iter()
        .find(|tenant| tenant.job_id == start.job_id && tenant.restart_count == start.restart_count);
    let held = own.and_then(|own| own.memory_bytes);
    if held.zip(memory_bytes_declared).is_some_and(|(held, declared)| held > declared) {
        return Look::Active;
    }
    let used = sample.reading.metrics.get(Metric::SmActiveFraction);
    let by_guests: Option<f64> = guests.iter().copied().sum();
    let Some((used, by_guests)) = used.zip(by_guests) else { return Look::Unknown };
    let most = if guests.is_empty() { REST_FRACTION_MAX } else { by_guests.min(1.0) + BEYOND_GUESTS_MAX };
    if used > most { Look::Active } else { Look::Idle }
}

/// What was seen of one interactive job so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// Since when every look said that it is idle.
    idle_since: Option<UnixTime>,
    newest: Option<UnixTime>,
    was_quiet: bool,
    active_in_a_row: u32,
    /// The stream by which its node's agent was there first.
    stream: Option<u64>,
    is_unattended: bool,
}

impl Watched {
    /// One more look; one that is no newer than the last says nothing.
    pub(super) fn add(&mut self, at: UnixTime, look: Look, has_guests: bool, is_quiet: bool) {
        let Some(gap) =
            self.newest.map_or(Some(0.0), |newest| (at > newest).then(|| at.seconds_since(newest)))
        else {
            return;
        };
        self.newest = Some(at);
        let gap_max = self.gap_max();
        self.was_quiet = is_quiet;
        if gap > gap_max {
            (self.idle_since, self.active_in_a_row) = (None, 0);
        }
        match look {
            Look::Idle => {
                self.active_in_a_row = 0;
                self.idle_since.get_or_insert(at);
            }
            Look::Active => {
                self.active_in_a_row += 1;
                // A guest alone may do more for a moment.
                if !has_guests || self.is_active() {
                    self.idle_since = None;
                }
            }
            Look::Unknown => (self.idle_since, self.active_in_a_row) = (None, 0),
        }
    }

    /// By which stream its node's agent is there now. Where that was otherwise for a moment, a task may have begun that shares the device
    /// in another way, and nobody knows of it.
    pub(super) fn attend(&mut self, stream: Option<u64>) {
        match (self.stream, stream) {
            (None, _) => self.stream = stream,
            (Some(first), now) => self.is_unattended |= now != Some(first),
        }
    }

    /// It uses its device, as surely as looks tell.
    pub(super) const fn is_active(&self) -> bool {
        self.active_in_a_row >= LOOKS_IN_A_ROW
    }

    /// How far the next look may be from the last one.
    const fn gap_max(&self) -> f64 {
        if self.was_quiet { QUIET_GAP_SECONDS_MAX } else { GAP_SECONDS_MAX }
    }

    /// Whether it has left its device idle for so long, up to now.
    pub(super) fn is_idle_for(&self, least: Duration, now: UnixTime) -> bool {
        let is_recent = self.newest.is_some_and(|newest| now.seconds_since(newest) <= self.gap_max());
        // Of one on which nobody is nothing is told until somebody is.
        let until = if self.was_quiet { Some(now) } else { self.newest };
        let since = self.idle_since.zip(until).map(|(since, until)| until.seconds_since(since));
        !self.is_unattended && is_recent && since.is_some_and(|seconds| seconds >= least.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at, start};
    use pillion_core::device::{Reading, TenantUse};

    const GIB: u64 = 1 << 30;

    fn sample(used: Option<f64>, own_bytes: Option<u64>) -> DeviceSeen {
        let own = TenantUse {
            job_id: start().job_id,
            restart_count: 0,
            memory_bytes: own_bytes,
            process_count: 1,
            progress: None,
        };
        let reading = used.map_or_else(Reading::default, |used| [(Metric::SmActiveFraction, used)].into());
        DeviceSeen { at: at(NOW), reading, tenants: vec![own] }
    }

    #[test]
    fn what_is_used_beyond_its_guests_is_its_own() {
        let of = |used, guests: &[Option<f64>]| look(&sample(used, None), start(), guests, Some(8 * GIB));
        assert_eq!((of(Some(0.04), &[]), of(Some(0.06), &[])), (Look::Idle, Look::Active));
        assert_eq!((of(Some(0.6), &[Some(0.5)]), of(Some(0.7), &[Some(0.5)])), (Look::Idle, Look::Active));
        assert_eq!(of(Some(0.7), &[Some(0.3), Some(0.3)]), Look::Idle);
        assert_eq!((of(None, &[]), of(Some(0.5), &[None])), (Look::Unknown, Look::Unknown));
    }

    #[test]
    fn who_holds_more_memory_than_he_said_has_guests_in_his_way() {
        let of = |held, declared| look(&sample(Some(0.0), held), start(), &[], declared);
        assert_eq!(
            (of(Some(8 * GIB), Some(8 * GIB)), of(Some(9 * GIB), Some(8 * GIB))),
            (Look::Idle, Look::Active)
        );
        assert_eq!((of(None, Some(8 * GIB)), of(Some(9 * GIB), None)), (Look::Idle, Look::Idle));
    }

    /// What is known after these looks, a second apart: whether it was idle for five seconds, and whether it is active.
    fn after(looks: &[Look], has_guests: bool) -> (bool, bool) {
        let mut watched = Watched::default();
        let mut now = NOW;
        for look in looks {
            now += 1;
            watched.add(at(now), *look, has_guests, false);
        }
        (watched.is_idle_for(Duration::from_secs(5), at(now)), watched.is_active())
    }

    #[test]
    fn it_is_idle_when_every_look_of_so_long_says_so() {
        use Look::{Active, Idle, Unknown};
        assert_eq!((after(&[Idle; 6], false), after(&[Idle; 5], false)), ((true, false), (false, false)));
        assert_eq!(after(&[Idle, Idle, Active, Idle, Idle, Idle, Idle], false), (false, false));
        assert_eq!(
            after(&[Idle, Idle, Active, Idle, Idle, Idle, Idle], true),
            (true, false),
            "one guest's moment"
        );
        assert_eq!(after(&[Idle, Idle, Idle, Idle, Idle, Idle, Active, Active], true), (false, true));
        assert_eq!(after(&[Idle, Idle, Idle, Unknown, Idle, Idle, Idle], true), (false, false));
    }

    #[test]
    fn whose_agent_was_away_is_joined_by_nobody() {
        let mut watched = Watched::default();
        let idle_for = |watched: &Watched| watched.is_idle_for(Duration::from_secs(5), at(NOW + 5));
        for second in [0, 5] {
            watched.add(at(NOW + second), Look::Idle, false, false);
        }
        watched.attend(None);
        watched.attend(Some(3));
        watched.attend(Some(3));
        assert!(idle_for(&watched), "a scheduler that has just begun waits for its agents");
        for other in [None, Some(4)] {
            let mut watched = watched.clone();
            watched.attend(other);
            watched.attend(Some(3));
            assert!(!idle_for(&watched), "{other:?}");
        }
    }

    #[test]
    fn what_nobody_looked_at_was_not_idle() {
        let mut watched = Watched::default();
        let five = Duration::from_secs(5);
        watched.add(at(NOW), Look::Idle, false, false);
        watched.add(at(NOW + 20), Look::Idle, false, false);
        assert!(!watched.is_idle_for(five, at(NOW + 20)));
        watched.add(at(NOW + 25), Look::Idle, false, false);
        assert!(watched.is_idle_for(five, at(NOW + 25)) && !watched.is_idle_for(five, at(NOW + 36)));
        watched.add(at(NOW + 25), Look::Active, false, false);
        assert!(watched.is_idle_for(five, at(NOW + 25)), "the same look again");
    }

    #[test]
    fn where_nobody_is_no_news_are_news() {
        let mut empty = sample(Some(0.0), None);
        assert!(!is_quiet(&empty), "it is there, and may begin at any moment");
        empty.tenants.clear();
        assert!(is_quiet(&empty));
        let mut watched = Watched::default();
        watched.add(at(NOW), Look::Idle, false, true);
        let five = Duration::from_secs(5);
        assert!(!watched.is_idle_for(five, at(NOW + 4)) && watched.is_idle_for(five, at(NOW + 5)));
        watched.add(at(NOW + 25), Look::Idle, false, true);
        assert!(watched.is_idle_for(Duration::from_secs(50), at(NOW + 50)));
        assert!(!watched.is_idle_for(five, at(NOW + 60)), "its agent tells nothing any more");
    }
}
