//! How a training scales over GPUs, from runs of it at different counts: how fast it would be at others, with how much doubt, from
//! which count on more GPUs no longer pay, and what fits a deadline or a budget. Pure: text comes in by readers, and nothing here
//! knows files, Slurm's programs or terminals.
//!
//! ```text
//! CSV ─► read ────────────┐
//! sacct ─► replay's read ─┴─► History ─► Curve ─► Fit (two laws, a grid) ─► Table ─► answers
//!                        (runs by workload) (a time a count)       └─► causes (with what devices did: ranks)
//! ```
//!
//! What is measured stands beside what is estimated everywhere, and nothing is estimated beyond [`REACH`] times the largest count
//! that was measured.

/// The least that a GPU is to be worth, of what it is worth at the smallest measured count, where nobody says otherwise.
pub const EFFICIENCY_USUAL: f64 = 0.5;

mod advice;
pub mod answers;
mod cpus;
mod curve;
mod estimate;
mod fit;
mod history;
mod law;
mod mixture;
mod ranks;
pub mod read;
mod shape;
mod summary;
mod table;

pub use advice::{Advice, advise};
pub use cpus::{EnoughCpus, enough_cpus};
pub use curve::{Curve, Point};
pub use estimate::Estimate;
pub use fit::{Fit, REACH, Refusal};
pub use history::{History, Measure, Run, Workload, of_accounting};
pub use law::Law;
pub use ranks::{Cause, OddRank, Oddity, Rank, Watched, causes};
pub use shape::NodeShape;
pub use summary::{Sum, Summary, summarise};
pub use table::{Row, Source, Table};
