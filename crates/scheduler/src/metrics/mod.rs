//! What the scheduler reports to Prometheus. Everything is on the board, with the agents or counted here already: a scrape asks
//! neither Slurm nor the store, and holds no lock longer than it takes to copy.
//!
//! ```text
//! reconcilers ─► Tally (counters) ─┐
//! board, agents, PgStore ──────────┴─► Snapshot ─► page (pure) ─► pillion_metrics::serve
//! ```

mod current;
mod families;
mod page;
mod queue;
mod slurm_calls;
mod tally;

pub use current::current;
pub use families::ALL;
pub use page::{Snapshot, page};
pub use slurm_calls::CountedSlurm;
pub use tally::{Counts, DecisionKind, Miss, SlurmCalls, Tally, Ticks};
