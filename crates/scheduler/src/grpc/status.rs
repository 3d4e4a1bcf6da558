//! The one place where our errors become gRPC codes.

use crate::tick_error::TickError;
use pillion_core::report;
use pillion_store::StoreError;
use tonic::{Code, Status};

/// A store's error, for a caller.
pub(crate) fn from_store(error: &StoreError) -> Status {
    Status::new(code(error), report(error))
}

/// A tick's error, for an agent.
pub(crate) fn from_tick(error: &TickError) -> Status {
    let code = match error {
        TickError::Store(error) => code(error),
        TickError::Slurm { .. } | TickError::File { .. } => Code::Unavailable,
        TickError::Training { .. } | TickError::Model { .. } => Code::Internal,
    };
    Status::new(code, report(error))
}

const fn code(error: &StoreError) -> Code {
    match error {
        StoreError::Database { .. } => Code::Unavailable,
        StoreError::StaleView { .. } | StoreError::Conflict(_) => Code::Aborted,
        StoreError::Missing(_) => Code::NotFound,
        StoreError::Illegal { .. } => Code::FailedPrecondition,
        StoreError::Refused { .. } => Code::InvalidArgument,
        StoreError::Corrupt { .. } => Code::DataLoss,
    }
}
