//! Why a store did not do what it was asked.

use pillion_core::{DecisionId, Revision, SlurmJobId};

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The plan was made from an older revision.
    #[error("the plan was made from revision {parent}, the store is at {current}")]
    StaleView { parent: Revision, current: Revision },
    /// A member is active in another decision.
    #[error("job {0} already has an active decision")]
    Conflict(SlurmJobId),
    /// A step that the life of a member or decision does not have.
    #[error("decision {id} cannot make this step")]
    Illegal { id: DecisionId, source: pillion_core::decision::IllegalTransition },
    /// What should be changed was never stored.
    #[error("{0} is not in the store")]
    Missing(String),
    /// A row that cannot be read back.
    #[error("table {table}, column {column}, row {row}: cannot be read")]
    Corrupt { table: &'static str, column: &'static str, row: String },
    /// The database keeps no such value: trying again does not help.
    #[error("the database refused a value while {action}")]
    Refused {
        /// What we were doing.
        action: &'static str,
        /// Which, and why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database does not respond, or did not do it this time.
    #[error("database error while {action}")]
    Database {
        /// What we were doing.
        action: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether it is about the row at hand alone: trying again does not help, and the others are well.
    pub const fn is_of_one_row(&self) -> bool {
        !self.is_transient()
    }

    /// Whether the next tick may succeed.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::StaleView { .. } | Self::Database { .. })
    }
}
