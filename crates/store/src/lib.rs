//! What makes a decision true exactly once. One trait, two implementors (`postgres`, `memory`) that pass the same suite.
//!
//! Every write that a plan could depend on makes a new revision, in the same transaction; `commit_plan` succeeds only on
//! the revision that the plan was made from. Member states change by compare-and-set along `MemberState::advance`, so
//! two schedulers cannot both release a job, and a crash between two steps leaves a row that says which step is next.

#![expect(
    missing_docs,
    reason = "rows of tables, which the scheduler and its tests read: a field whose name says all has no sentence"
)]

mod accounts;
pub mod archive;
mod browse;
mod charges;
mod credit;
mod decisions;
mod error;
mod events;
mod explanations;
mod faults;
mod history;
mod jobs;
mod learning;
mod lesson;
mod names;
mod observed;
mod operators;
pub mod postgres;
pub mod private_postgres;
mod profiles;
mod reports;
mod runs;
mod scaling;
mod shadow;
mod slices;
mod starts;

pub use accounts::{Account, GroupBy, MemoryAlarms, RunAccount, RunFilter, Sums};
pub use browse::{
    DecisionFilter, Heat, HeatCell, HeatFilter, LIST_LIMIT_DEFAULT, OUTCOMES_MAX, Occupancy, Tenant,
};
pub use charges::{Charge, Charges};
pub use credit::{Atonement, Credit, CreditLoss};
pub use decisions::{Decision, Decisions, Member, MemberStep, NOBODY_RAN, NewDecision, NewMember};
pub use error::StoreError;
pub use events::{Event, Events};
pub use explanations::{EXPLANATIONS_MAX, Explanations};
pub use faults::{Faults, Judgement, Requeue, RequeueCause, RequeueOutcome};
pub use history::History;
pub use jobs::{JobRecord, Jobs};
pub use learning::{
    MODEL_BODIES_KEPT, ModelScore, ModelState, ModelVersion, Models, NewModel, NewObservation,
    OBSERVATIONS_OF_COMBINATION_MAX, Observations, Score, SharingTenant, StoredObservation,
};
pub use lesson::Lesson;
pub use names::{NAMESAKES_MAX, Names, Naming};
pub use observed::{
    HeldDevice, IDLE_LEVEL_USUAL, IDLE_LEVELS, Observed, ObservedJob, ObservedRun, UsedOfStarts,
};
pub use operators::{Drain, DrainChange, DrainPlace, EventFilter, Operators, Undrain, drain_of};
pub use profiles::{Durations, Profiles, StoredProfile};
pub use reports::Reports;
pub use runs::{MeasuredRun, Runs};
pub use scaling::{SCALING_RUNS_MAX, ScalingFilter, ScalingRun};
pub use shadow::{
    ForetoldSpeed, ShadowBeside, ShadowDecision, ShadowFilter, ShadowNeighbour, ShadowScore, ShadowSums,
    Shadows,
};
pub use slices::{SliceLesson, Slices};
pub use starts::SlurmStart;

/// What every store makes of a change in the same way, whatever it keeps its rows in.
pub mod changes {
    pub use super::charges::RUNS_MAX as CHARGED_RUNS_MAX;
    pub use super::faults::{FaultChanges, FaultOf, changes as of_faults};
    pub use super::jobs::start_of;
    pub use super::names::owner;
    pub use super::operators::{change as of_drain, drained_event, undrained_event};
}

/// Writes down once what a store is made of.
macro_rules! store_of {
    ($($table:ident),+ $(,)?) => {
        /// Durable memory. All times are arguments; nothing here reads a clock. A row that cannot be read back is passed over,
        /// counted and logged where rows are listed: it keeps nobody from the others.
        pub trait Store: $($table +)+ {}

        impl<T: $($table +)+> Store for T {}

        /// The traits of a [`Store`], for whoever calls one that is no `dyn Store`.
        pub mod prelude {
            pub use super::{$($table as _),+};
        }
    };
}

store_of!(
    Jobs,
    Decisions,
    Explanations,
    Reports,
    Runs,
    Profiles,
    Faults,
    Operators,
    Credit,
    Charges,
    Slices,
    Observed,
    Shadows,
    Names,
    Events,
    Observations,
    Models,
    History,
);
