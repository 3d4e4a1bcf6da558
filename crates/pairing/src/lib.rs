//! The decision, pure: a snapshot of the cluster goes in, a plan with a reason for every job comes out. No clock, no
//! socket, no SQL, no chance; equal input gives equal output.
//!
//! ```text
//! ClusterView ─► session (what is alike, cached estimates) ─► serve (order, devices) ─► explain ─► Plan
//!                   │ admit  caps  shards                        │ graph ─► matching
//!                   └ model::InterferenceModel
//! ```

mod admit;
pub mod allow;
pub mod backtest;
mod budget;
mod caps;
mod considered;
mod explain;
pub mod files;
mod floor;
mod graph;
pub mod history;
pub mod matching;
pub mod model;
mod places;
pub mod plan;
#[cfg(test)]
mod plan_properties;
#[cfg(test)]
mod plan_tests;
mod planner;
pub mod policy;
mod prospects;
mod serve;
mod session;
mod shards;
#[cfg(test)]
mod testing;
pub mod view;
mod worth;

pub use allow::AllowList;
pub use history::{Observation, ObservedTenant};
pub use model::{Contention, InterferenceModel, Learned, PredictError, SpeedEstimate, TenantInput};
pub use plan::{Candidate, Explanation, Member, Pairing, Plan, Reason, Role};
pub use planner::plan;
pub use policy::{Objective, Policy, UserPolicy};
pub use view::{AloneClaim, ClusterView, DeviceView, NodeView, ProfileBook, Tenant, WaitingJob};
