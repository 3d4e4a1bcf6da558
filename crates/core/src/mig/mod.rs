//! MIG: what an NVIDIA GPU can be cut into, where the pieces may lie, and what they count in shards. Pure.
//!
//! The planner, the simulation, `pillion plan` on files, doctor and the doubles share [`table`]; on a real device what its
//! driver tells goes before it ([`compare`]). Must not know who gets an instance, nor how one is made.
//!
//! A device has *compute slices* (7; an A30 4), which are what an instance's name counts, and *memory slices* (8; an A30 4),
//! in which its place is told: an instance takes `memory_slices` of them from its `start` on.

mod compare;
mod geometry;
mod profile;
mod sets;
mod table;
#[cfg(test)]
mod tests;

pub use compare::{Difference, differences, resolve};
pub use geometry::{Geometry, IllegalLayout, InvalidGeometry, InvalidSlot, Size, Slot};
pub use profile::{Extras, InvalidMigProfile, MigProfile};
pub use table::needs_reset;
