//! What a site's last month would have looked like with Pillion, from its accounting alone: nothing is installed for it, and
//! nothing of the site is changed. Pure: text comes in by readers, chance by seeds, time from the records.
//!
//! ```text
//! sacct's rows ─► read ─► Accounting ─┐
//! scontrol, shapes ─► site ───────────┴─► Replay ─► queue (whole GPUs, Slurm's order) ───────────► exclusive
//!                                            └────► scenario: queue + pool (Pillion's own planner) ─► with Pillion
//!                                                                        the difference ─► report
//! ```
//!
//! The claim is the difference of two simulations by the same program, never one between a simulation and history; how far the
//! first is from history is printed beside it.

pub mod anonymise;
mod jobs;
mod key;
mod options;
mod pool;
mod queue;
pub mod read;
mod replay;
pub mod report;
mod scenario;
pub mod site;
mod statistics;

pub use jobs::{Accounting, Ended, Job, KeyKind, Names, Usage, UsageSource, WorkloadText};
pub use options::{Carbon, CarbonError, MANY_JOBS, Options, Order, PoolSize, SEEDS_MIN};
pub use pool::truth::{MeasuredPairs, SpeedsByBusy, Truth};
pub use replay::{Replay, ReplayError};
pub use report::Report;
pub use scenario::{Outcome, Task, Waits, workload_key};
pub use statistics::Estimate;
