//! Slurm behind one trait: what the queue and the nodes are, and the few updates that we make.
//!
//! `command` runs the real programs (the only module that may), `parse` reads their text (foreign), `updates` are the changes
//! that we make, `version` knows the faults of releases. Nothing here decides anything. The strict double for the simulation stands in
//! `tests/doubles/slurm`.

pub mod command;
mod gpu_defaults;
pub mod nodeset;
pub mod parse;
pub mod types;
pub mod updates;
pub mod version;

mod partition;
mod process;
mod reservation;
mod throttles;

pub use command::{CommandSettings, CommandSlurm};
pub use gpu_defaults::GpuDefaults;
pub use nodeset::expand;
pub use parse::held::HeldDevices;
pub use partition::{Exclusive, Partition};
pub use reservation::Reservation;
pub use types::{
    Ending, Job, JobState, JobUpdate, JobsScan, KILL_WAIT_DEFAULT, NAMED_JOBS_MAX, Node, NodeAvailability,
    Privacy, ReasonKind, Requeued, SCRIPT_BYTES_MAX, Slurm, SlurmError, shards,
};
pub use version::SlurmVersion;
