//! The only place where wire meets domain: every message is destructured exhaustively, so that a new field
//! does not compile until somebody decides on it. Nothing here knows who sends or stores what.
//!
//! `TryFrom<wire>` checks; `From<domain>` cannot fail. One `Invalid*` error a message.

mod condition;
mod ending;
mod fault;
mod field;
mod hello;
mod launch;
mod message;
mod metric;
mod sample;
mod setup;
mod share;
mod summary;

pub use condition::InvalidCondition;
pub use ending::InvalidEnd;
pub use field::InvalidField;
pub use hello::{InvalidDevice, InvalidHello};
pub use launch::InvalidLaunch;
pub use message::{InvalidAgentMessage, InvalidReport, InvalidSchedulerMessage};
pub use sample::{InvalidSample, InvalidTenant};
pub use share::{InvalidRevoke, InvalidShare, InvalidShareResult};
pub use summary::InvalidSummary;
