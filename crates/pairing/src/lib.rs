//! The decision, pure: a snapshot of the cluster goes in, a plan with a reason for every job comes out. No clock, no
//! socket, no SQL, no chance (STYLE R1); equal input gives equal output.

pub mod model;
pub mod plan;
pub mod policy;
pub mod view;

pub use model::{InterferenceModel, PredictError, SpeedEstimate, TenantInput};
pub use plan::{Candidate, Explanation, Member, Pairing, Plan, Reason, Role};
pub use policy::{Objective, Policy, UserPolicy};
pub use view::{AloneClaim, ClusterView, DeviceView, NodeView, ProfileBook, Tenant, WaitingJob};
