//! What is told of one job to its user: how fast it went, what made it slow, and what to do next time. Pure.

mod advice;
mod slowness;

pub use advice::{AdviceFacts, advise};
pub use slowness::{RunSeen, SlowCause, SlowKind, Usual, slow_causes, speed_fraction};
