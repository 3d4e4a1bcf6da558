//! Connections that found no place: counted by cause, and reported in the log, once a minute at most, so that whoever makes them
//! cannot fill it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The least time between two lines of one cause.
const SILENCE: Duration = Duration::from_mins(1);

/// Why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It had not said who it is, and made room for another.
    Unproven,
    /// Its address has too many.
    Address,
    /// Its user or its node has too many; `guest` in the metric.
    Identity,
    /// Too many of its user wait at the socket.
    Line,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unproven, Self::Address, Self::Identity, Self::Line];

    /// As metrics call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::Address => "address",
            Self::Identity => "guest",
            Self::Line => "line",
        }
    }

    const fn report(self) -> &'static str {
        match self {
            Self::Unproven => {
                "too many do not say who they are; the oldest of whoever holds the most made room"
            }
            Self::Address => "too many connections of one address; the next was sent away",
            Self::Identity => "too many connections of one user or node; the next was sent away",
            Self::Line => "too many connections of one user wait at the socket; the next was closed",
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: u64,
    reported_count: u64,
    reported_at: Option<Instant>,
}

/// How many, by cause.
#[derive(Debug, Default)]
pub struct TurnedAway(Mutex<[Tally; Cause::ALL.len()]>);

impl TurnedAway {
    fn lock(&self) -> MutexGuard<'_, [Tally; Cause::ALL.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; and a line in the log, if there was none for a while. Whether there is one.
    pub fn note(&self, cause: Cause, who: &dyn fmt::Display) -> bool {
        let mut tallies = self.lock();
        let tally = &mut tallies[cause as usize];
        tally.count += 1;
        let is_news = tally.reported_at.is_none_or(|at| at.elapsed() >= SILENCE);
        if is_news {
            warn!(%who, count = tally.count - tally.reported_count, "{}", cause.report());
            (tally.reported_count, tally.reported_at) = (tally.count, Some(Instant::now()));
        }
        is_news
    }

    /// How many there were of each cause.
    pub fn counts(&self) -> [(&'static str, u64); Cause::ALL.len()] {
        let tallies = self.lock();
        Cause::ALL.map(|cause| (cause.as_str(), tallies[cause as usize].count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_are_counted_and_one_a_minute_is_reported() {
        let turned_away = TurnedAway::default();
        let reported = (0..1_000).filter(|_| turned_away.note(Cause::Address, &"10.0.0.7")).count();
        assert_eq!(reported, 1);
        assert!(turned_away.note(Cause::Identity, &"uid 7"), "another cause is other news");
        tokio::time::advance(SILENCE).await;
        assert!(turned_away.note(Cause::Address, &"10.0.0.7"));
        assert_eq!(turned_away.counts(), [("unproven", 0), ("address", 1_001), ("guest", 1), ("line", 0)]);
    }
}
