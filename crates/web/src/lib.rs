//! The read-only web page: what the operators' service answers, as HTML.
//!
//! It asks the same service as the command line, in the name of whoever looks, and has no other source: what a person may
//! not see never comes here. It knows nothing of stores, of Slurm, or of how a viewer is told apart ([`Viewer`]).
//!
//! No script, no picture, no font and no style comes from anywhere but this program, and the answers forbid browsers to
//! load any. Charts are SVG in the page; an address holds everything that a page depends on, so it can be passed on.
//!
//! ```text
//! request ──► address (path, filters) ──► pages: ask the service ──► rows ──► HTML in the frame
//! ```

pub mod address;
mod chart;
mod format;
mod frame;
mod pages;
mod problem;
mod serve;
mod viewer;

pub use serve::{Limits, router};
pub use viewer::Viewer;
