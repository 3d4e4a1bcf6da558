//! Guests that were asked to make room: pure. Whoever was told and stayed (Slurm did not answer in time, an admin forbade it, its end could
//! have harmed its neighbours) is told again, each time later: what stood against it may be over.

use pillion_core::UnixTime;

/// So long a guest that was asked to make room may go on before it is taken for one that stays: Slurm would not end it.
const LEAVING_SECONDS_MAX: f64 = 15.0;
/// When who stayed is asked for the second time; doubled each time.
const AGAIN_SECONDS: f64 = 60.0;
/// Each asking is an event that its user reads.
const AGAIN_SECONDS_MAX: f64 = 3600.0;

/// When a guest was last asked to make room, and how often it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoomAsked {
    at: UnixTime,
    times: u32,
}

/// What became of asking a guest that still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It is on its way.
    Going,
    /// It did not go, and is left in peace for a while.
    Stays,
    /// It was not asked, or so long ago that it is asked again.
    Unasked,
}

impl RoomAsked {
    /// For the first time.
    pub const fn first(at: UnixTime) -> Self {
        Self { at, times: 1 }
    }

    /// Once more.
    pub const fn again(self, at: UnixTime) -> Self {
        Self { at, times: self.times.saturating_add(1) }
    }

    /// See [`Leave`].
    pub fn leave(asked: Option<&Self>, now: UnixTime) -> Leave {
        let Some(asked) = asked else { return Leave::Unasked };
        let ago = now.seconds_since(asked.at);
        let doublings = asked.times.saturating_sub(1).min(6);
        let patience = (AGAIN_SECONDS * f64::from(1_u32 << doublings)).min(AGAIN_SECONDS_MAX);
        if ago <= LEAVING_SECONDS_MAX {
            Leave::Going
        } else if ago < patience {
            Leave::Stays
        } else {
            Leave::Unasked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stayed_is_asked_again_each_time_later() {
        let at = |seconds: u64| UnixTime::from_epoch(1_000_000 + seconds);
        let leave = |asked: RoomAsked, seconds: u64| RoomAsked::leave(Some(&asked), at(seconds));
        assert_eq!(RoomAsked::leave(None, at(0)), Leave::Unasked);
        let first = RoomAsked::first(at(0));
        assert_eq!([0, 15, 16, 59, 60].map(|seconds| leave(first, seconds)), {
            use Leave::{Going, Stays, Unasked};
            [Going, Going, Stays, Stays, Unasked]
        });
        let second = first.again(at(0));
        assert_eq!([60, 119, 120].map(|seconds| leave(second, seconds)), {
            [Leave::Stays, Leave::Stays, Leave::Unasked]
        });
        let last = (0..u32::MAX.count_ones() * 2).fold(first, |asked, _| asked.again(at(0)));
        assert_eq!([3599, 3600].map(|seconds| leave(last, seconds)), [Leave::Stays, Leave::Unasked]);
    }
}
