//! The decision, pure: a snapshot of the cluster goes in, a plan with a reason for every job comes out. No clock, no
//! socket, no SQL, no chance; equal input gives equal output.
//!
//! ```text
//!               planner: classes ─► candidates ─► selection ─► placement ─► explanation
//! ClusterView ─►                        │             ▲           │                     ─► Plan
//!                 model::InterferenceModel            └─ rounds ──┘
//! ```

pub mod allow;
pub mod backtest;
pub mod copies;
pub mod files;
pub mod fit;
pub mod history;
pub mod matching;
pub mod mig;
pub mod model;
pub mod plan;
mod planner;
pub mod policy;
pub mod shape;
#[cfg(test)]
mod testing;
mod trials;
pub mod view;

pub use allow::AllowList;
pub use copies::{CopyBook, CopyKind, CopyRecord};
pub use history::{Observation, ObservedTenant};
pub use model::{Contention, InterferenceModel, Learned, PredictError, SpeedEstimate, TenantInput};
pub use plan::{Candidate, Explanation, LetGo, Member, Pairing, Plan, Reason, Role, SetApart};
pub use planner::{
    Demands, Effort, OBSERVED_PEAK_RATIO, Room, RoomMade, known, leaves_room, make_room, may_join_first_run,
    memory_need, pairings, plan,
};
pub use policy::{EndsBy, FirstRuns, GuestRule, JobRules, Objective, Policy, UserPolicy};
pub use trials::{TrialBook, TrialKind, TrialPolicy, TrialRecord, TrialVerdict, user_of};
pub use view::{
    AloneClaim, ClusterView, DeviceView, FirstRun, GuestTenant, NodeView, ProfileBook, Session, Tenant,
    WaitingJob,
};
