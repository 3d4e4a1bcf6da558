//! The decision, pure: a snapshot of the cluster goes in, a plan with a reason for every job comes out. No clock, no
//! socket, no SQL, no chance (STYLE R1); equal input gives equal output.
//!
//! ```text
//! ClusterView ─► session (what is alike, cached estimates) ─► serve (order, devices) ─► explain ─► Plan
//!                   │ admit  caps  shards                        │ graph ─► matching
//!                   └ model::InterferenceModel
//! ```

mod admit;
mod caps;
mod explain;
pub mod files;
mod graph;
pub mod matching;
pub mod model;
pub mod plan;
#[cfg(test)]
mod plan_properties;
#[cfg(test)]
mod plan_tests;
mod planner;
pub mod policy;
mod serve;
mod session;
mod shards;
#[cfg(test)]
mod testing;
pub mod view;

pub use model::{Contention, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
pub use plan::{Candidate, Explanation, Member, Pairing, Plan, Reason, Role};
pub use planner::plan;
pub use policy::{Objective, Policy, UserPolicy};
pub use view::{AloneClaim, ClusterView, DeviceView, NodeView, ProfileBook, Tenant, WaitingJob};
