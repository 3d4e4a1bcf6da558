//! Row 10 of the way of a job: trains the model of interference from what was observed, and promotes what is no worse
//! than the model in use (docs/decisions/0003-promotion-of-models.md). The leader does so; every scheduler plans with
//! the result.
//!
//! ```text
//! observations, profiles ─► due? ─► trial (a thread of its own) ─► model_version ─► models::current ─► engine
//! ```

mod backtest;
mod due;
mod judge;
mod models;
mod recipe;
mod reconciler;
mod trial;

pub use due::Training;
pub use models::{CurrentModel, Models};
pub use recipe::{LearnedRecipe, Recipe};
pub use reconciler::Train;

#[cfg(test)]
mod tests;
