//! The machine and its refusals.
