//! What operators do: drain, undrain, evict. Each order is checked whole before anything is written, and written down
//! before anything is done; the reconcilers carry it out, of this scheduler or of the one that leads.

mod drain;
mod evict;
mod order;

pub(super) use drain::{drain, drained_place, undrain};
pub(super) use evict::evict;

#[cfg(test)]
mod tests;
