//! What the scheduler reports to Prometheus. Everything is on the board, with the agents or counted here already: a scrape asks
//! neither Slurm nor the store, and holds no lock longer than it takes to copy.
//!
//! ```text
//! reconcilers ─► Tally (counters) ─┐
//! board, agents, PgStore ──────────┴─► Snapshot ─► page (pure) ─► pillion_metrics::serve
//! ```

mod families;
mod page;
mod queue;
mod slurm_calls;
mod tally;

pub use families::ALL;
pub use page::{Snapshot, page};
pub use slurm_calls::CountedSlurm;
pub use tally::{Counts, DecisionKind, Miss, SlurmCalls, Tally, Ticks};

use crate::context::Context;
use crate::store::postgres::PgStore;
use pillion_metrics::Page;
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
