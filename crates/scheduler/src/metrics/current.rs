//! The page of now: what board, agents, tally and database know, copied into a snapshot.

use super::page::{Snapshot, page};
use crate::context::Context;
use crate::grpc::idle;
use pillion_metrics::Page;
use pillion_store::postgres::PgStore;
use std::sync::Arc;

/// The page of now. `store`: the database, where there is one.
pub fn current(context: &Context, store: Option<&PgStore>) -> Page {
    let refusal = context.refusal();
    let counts = context.tally.counts();
    let agents = context.agents.all();
    let board = context.board();
    let snapshot = Snapshot {
        mode: context.settings.mode,
        objective: context.settings.policy.objective,
        broken_budget_fraction: context.settings.policy.broken_budget_fraction,
        is_leading: context.is_leading(),
        is_acting: refusal.is_none(),
        scan: board.scan.clone(),
        active: Arc::clone(&board.active),
        reasons: board.reason_counts.clone(),
        stopped: board.stopped.len(),
        violation_count: board.violation_count,
        dropped_line_count: board.dropped_line_count,
        held: board.observed.at.map(|_| idle::counts(&board.observed, context.now())),
        heartbeat_at: board.heartbeat_at,
        reported_at: board.reported_at,
        model: board.model.clone(),
        agents,
        turned_away: context.turned_away.counts(),
        counts,
        store: store.map(PgStore::figures),
    };
    drop(board);
    page(&snapshot)
}
