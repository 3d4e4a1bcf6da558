//! MUNGE: who made a text, by the word of the machines' munged. [`Library`] asks the real one, [`double`] stands in for it in tests.

mod credential;
pub mod double;
mod ffi;

pub use credential::{Decoded, Munge, MungeError, TTL_SECONDS};
pub use ffi::Library;
