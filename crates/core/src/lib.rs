//! The words of Pillion, one each, and nothing else: no I/O, no clock of its own, no `async`.
//!
//! Every other package imports this one and it imports none of them (docs/architecture.md, "Who may import whom").
//! `slurm-spank` imports *only* this one, so it stays small: `serde`, `serde_json`, `thiserror`.

pub mod amount;
pub mod clock;
pub mod decision;
pub mod device;
pub mod error;
pub mod event;
pub mod exit;
pub mod family;
pub mod fault;
pub mod gres_types;
pub mod handoff;
pub mod health;
pub mod heartbeat;
pub mod ids;
pub mod invariant;
pub mod isolation;
pub mod link;
pub mod mark;
pub mod metric;
pub mod mig;
pub mod name;
pub mod option;
pub mod profile;
pub mod reason;
pub mod report;
pub mod restart;
pub mod setup;
pub mod shadow;
pub mod share;
pub mod text;
pub mod units;
pub mod when;
pub mod word;
pub mod workload;

pub use clock::{Clock, ManualClock, SystemClock, UnixTime};
pub use error::report;
pub use gres_types::GresTypes;
pub use ids::{
    DecisionId, DeviceUuid, GresType, JobStart, NodeName, Revision, SlurmJobId, UserId, WorkloadKey,
};
pub use name::WorkloadName;
pub use units::{CapStep, Fraction, Shards, SlowdownRatio};
