//! Who gets an instance of a device that can be cut (MIG), and which: for one empty or cut device at a time alone, sharing
//! without walls or instances, whatever does most under everybody's promise (docs/decisions/0018-mig-walls-mps-flows.md).
//!
//! ```text
//! fit, speed ─► SliceJob ─┐
//! Geometry ─► shapes ─────┼─► worth (what each waiting job's work is worth) ─► choose ─► Choice
//! company (two of one user in one instance) ─┘
//! ```
//!
//! Pure. Must not know a node, Slurm, or how an instance is made.

mod book;
mod choose;
mod company;
mod job;
mod shapes;
mod speed;
#[cfg(test)]
mod tests;
mod worth;

pub use book::{SliceBook, SliceRecord, SlicesKnown};
pub use choose::{Choice, Cutter, DeviceState, Refusal, Rival, SliceJob};
pub use company::{Company, Together, beside, profile_in};
pub use job::SliceKnowledge;
pub use speed::{SliceSpeed, prior};

use pillion_core::SlowdownRatio;

/// The greatest slowdown of a job in an instance to whom nobody promised anything: without a bound a slice is too slow for
/// somebody all day.
pub fn bound_without_promise() -> SlowdownRatio {
    SlowdownRatio::try_promise(2.5).expect("2.5 is a promise")
}
