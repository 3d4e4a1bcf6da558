//! `pillion setup`: what a host needs beside the packages, shown as a diff, done in an order in which no step harms without the
//! next, and undone.
//!
//! ```text
//! host (what is there) ─► plan (what changes, in its order) ─► steps (each durable by itself) ─► file (atomic)
//!                                                        record (what was there before) ─┘   ─► undo
//! ```
//!
//! Before anything changes, what is there and what will be are copied into a folder of root's own, with a record that names
//! both. So after a crash at any step the same command goes on with what is left, and an undo finds for each file what it was.
//! Restarts nothing of Slurm's, and changes no line that is not shown. Must not know Slurm's lines: `slurm_conf` does.

mod file;
mod host;
mod plan;
mod record;
mod steps;
#[cfg(test)]
mod tests;

pub use host::{Host, Role, must_watch_plugins};
pub use plan::{Change, On, Plan, Unit, Wanted, plan};
pub use record::{Record, lock};
pub use steps::{Step, Undo, carry_out, do_steps, undo_steps};
