//! `pillion doctor`: what is missing or wrong in the set-up, and how to mend it.
//!
//! ```text
//! gather (thin, impure) ─► Facts ─► checks/* (pure, one module a subject) ─► Finding{check, status, found, mend}
//! ```

pub mod checks;
pub mod facts;
pub mod finding;
pub mod gather;
pub mod lua;

pub use facts::Facts;
pub use finding::{Finding, Status};

/// Every check, in the order in which a site is set up.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    checks::ALL.iter().flat_map(|check| check(facts)).collect()
}
