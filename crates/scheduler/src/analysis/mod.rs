//! What is told of jobs that ran: of one, how fast it went, what made it slow and what to do next time; of many, what
//! sharing gained. Pure.

mod account;
mod advice;
mod rightsize;
mod slowness;

pub use account::run_account;
pub(crate) use account::shared_device_seconds;
pub(crate) use advice::mebibytes;
pub use advice::{AdviceFacts, advise};
pub(crate) use rightsize::{Rightsizing, Site, SiteModel, UsedDevices, rightsize};
pub use slowness::{RunSeen, SlowCause, SlowKind, Usual, slow_causes, speed_fraction};
