//! How an error chain is written, once, at the place where the error is handled.

use std::error::Error;
use std::fmt::Write as _;

/// Writes an error and all its sources on one line, outermost first: `a: b: c`.
pub fn report(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
