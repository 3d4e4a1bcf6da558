//! When a device that is gone is looked for again: to look for it can take NVML seconds, in which it tells nothing of the
//! others. So one that stays away is looked for ever more rarely. Pure.

use std::time::Duration;
use tokio::time::Instant;

/// How long a device that is gone is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPauses {
    /// After the first failure; each further one doubles it.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
}

impl Default for SearchPauses {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_mins(10) }
    }
}

/// Whether one device is there, as far as anybody looked.
#[derive(Debug)]
pub(super) struct Search {
    pauses: SearchPauses,
    gone: Option<Gone>,
}

#[derive(Debug)]
struct Gone {
    searched_at: Instant,
    pause: Duration,
    reason: String,
}

impl Search {
    /// Of a device that was just found.
    pub(super) fn new(pauses: SearchPauses) -> Self {
        Self { pauses, gone: None }
    }

    /// Why it is gone, while it is to be left alone.
    pub(super) fn rests(&self, now: Instant) -> Option<&str> {
        let gone = self.gone.as_ref()?;
        (now.saturating_duration_since(gone.searched_at) < gone.pause).then_some(gone.reason.as_str())
    }

    /// It was looked for, or asked, and is gone.
    pub(super) fn missed(&mut self, now: Instant, reason: String) {
        let SearchPauses { first, longest } = self.pauses;
        let pause = self.gone.as_ref().map_or(first, |gone| gone.pause.saturating_mul(2));
        self.gone = Some(Gone { searched_at: now, pause: pause.min(longest), reason });
    }

    pub(super) fn answered(&mut self) {
        self.gone = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many seconds it rests after each of `count` failures.
    fn rests(search: &mut Search, count: usize) -> Vec<u64> {
        let mut now = Instant::now();
        let mut rest = |search: &mut Search| {
            search.missed(now, "lost".to_owned());
            let seconds = (0..100_000)
                .find(|seconds| search.rests(now + Duration::from_secs(*seconds)).is_none())
                .unwrap();
            now += Duration::from_secs(seconds);
            seconds
        };
        (0..count).map(|_| rest(search)).collect()
    }

    #[test]
    fn one_that_stays_away_is_looked_for_ever_more_rarely() {
        let mut search = Search::new(SearchPauses::default());
        assert_eq!(search.rests(Instant::now()), None, "it is there");
        assert_eq!(rests(&mut search, 9), [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        search.answered();
        assert_eq!(search.rests(Instant::now()), None);
        assert_eq!(rests(&mut search, 2), [10, 20], "the next loss begins anew");
    }

    #[test]
    fn the_last_reason_is_told() {
        let mut search = Search::new(SearchPauses::default());
        let now = Instant::now();
        search.missed(now, "lost".to_owned());
        search.missed(now, "not found".to_owned());
        assert_eq!(search.rests(now + Duration::from_secs(19)), Some("not found"));
    }

    #[test]
    fn without_a_pause_it_is_looked_for_each_time() {
        let mut search = Search::new(SearchPauses { first: Duration::ZERO, longest: Duration::ZERO });
        assert_eq!(rests(&mut search, 3), [0, 0, 0]);
    }
}
