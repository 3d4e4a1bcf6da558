//! The engine's part of guests: writes down which of them make room (`pillion_pairing::make_room`), and why. `failure::requeue`
//! carries it out, and hears whoever acts in between.

use super::Engine;
use crate::scan::Scan;
use crate::sent_away::send_away;
use crate::tick_error::TickError;
use pillion_core::{JobStart, SlurmJobId};
use pillion_pairing::{ClusterView, Plan, RoomMade, make_room};
use std::collections::BTreeSet;
use tracing::info;

/// How long after somebody has gone his devices may not be free yet.
const CLEARING_SECONDS: f64 = 10.0;
/// Read by the guest's user: it tells nothing of who waits.
const REASON: &str = "it is a guest, and somebody else needs its GPU";

impl Engine {
    /// Has guests go whose devices others wait for.
    pub(super) async fn make_room(
        &self,
        view: &ClusterView,
        plan: &Plan,
        scan: &Scan,
    ) -> Result<(), TickError> {
        let now = self.context.now();
        let settling: BTreeSet<SlurmJobId> = {
            let mut board = self.context.board_mut();
            board.room_asked.retain(|start, _| scan.job_of(*start).is_some());
            board.room_expected.retain(|_, at| now.seconds_since(*at) < CLEARING_SECONDS);
            board.room_expected.keys().copied().collect()
        };
        let made = make_room(view, plan, &settling);
        self.context.board_mut().room_expected.extend(made.expected.iter().map(|job| (*job, now)));
        let mut first_error = None;
        for room in made.going {
            let Some(start) = scan.jobs.get(&room.guest).map(pillion_slurm::Job::start) else { continue };
            let asked = self.ask(start, &room).await;
            if let Err(error) = asked.or_else(|error| self.context.pass_over("engine", start, error)) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn ask(&self, start: JobStart, room: &RoomMade) -> Result<(), TickError> {
        if send_away(&self.context, start, &room.node, REASON).await? {
            info!(%start, node = %room.node, waits = %room.waits, "a guest makes room");
        }
        Ok(())
    }
}
