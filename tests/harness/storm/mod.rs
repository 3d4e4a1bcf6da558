//! What a storm on real Slurm draws, and how it is judged; pure. `tests/storm` carries it out: `tests/run storm`.
//!
//! ```text
//!   seed ─► draw ─► Plan: submissions, what users and root do, what is broken     (the same at every run of a seed)
//!                     │
//!                     ▼   tests/storm: a cluster, four users, root, faults
//!   Facts: what each job wrote of itself, slurmctld.log, sacct, what was done to it and answered
//!                     │
//!                     ▼
//!   judge ─► harms, each with the job and one line of how it came      report ─► table, stories
//! ```
//!
//! The judge knows what plain Slurm promises and how long a job may be held back. It must not know how Pillion decides.

pub mod draw;
pub mod facts;
pub mod judge;
pub mod options;
pub mod plan;
pub mod report;
pub mod slurm_log;
