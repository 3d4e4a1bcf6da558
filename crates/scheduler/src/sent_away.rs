//! How a guest is told to make room, for whoever it is: written down as a requeue with its event. `failure::requeue` carries it out, and
//! hears whoever acts in between. Chooses nobody.

use crate::context::Context;
use crate::room_asked::RoomAsked;
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::{JobStart, NodeName};
use pillion_store::{Event, Requeue, RequeueCause};

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
