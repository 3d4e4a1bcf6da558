//! How a guest is told to make room, for whoever it is: written down as a requeue with its event. `failure::requeue` carries it out, and
//! hears whoever acts in between. Chooses nobody. Whoever was told and stayed (Slurm did not answer in time, an admin forbade it, its end
//! could have harmed its neighbours) is told again, each time later: what stood against it may be over.

use crate::context::Context;
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::{JobStart, NodeName, UnixTime};
use pillion_store::{Event, Requeue, RequeueCause};

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

    const fn again(self, at: UnixTime) -> Self {
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

/// Has this guest go; `reason` is read by its user. `false`: that was intended already, by whoever led before us too, and is on its
/// way.
///
/// # Errors
/// [`TickError`] where the store did not answer.
pub(crate) async fn send_away(
    context: &Context,
    start: JobStart,
    node: &NodeName,
    reason: &str,
) -> Result<bool, TickError> {
    let at = context.now();
    let (cause, node, reason) = (RequeueCause::MadeRoom, node.clone(), reason.to_owned());
    let event = Event {
        at,
        kind: EventKind::MadeRoom,
        job_id: Some(start.job_id),
        node: Some(node.clone()),
        detail: format!("{reason}; it is to be ended and started again"),
    };
    let requeue = Requeue { cause, start, node, decided_at: at, reason };
    let is_new = context.store.intend_requeue(&requeue, &event).await?;
    if is_new {
        context.tally.event(&EventKind::MadeRoom);
    }
    let mut board = context.board_mut();
    board
        .room_asked
        .entry(start)
        .and_modify(|asked| *asked = asked.again(at))
        .or_insert(RoomAsked::first(at));
    drop(board);
    context.nudges.requeue.notify_one();
    Ok(is_new)
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
