//! For programs: one object with `"version": 1` first. Keys are only ever added; a key that goes makes version 2.

use serde::Serialize;

/// The version of every JSON answer.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// An answer as JSON; `body` is a struct, whose fields stand beside `version`.
pub fn render<T: Serialize>(body: &T) -> String {
    serde_json::to_string_pretty(&Versioned { version: JSON_VERSION, body })
        .expect("our own structs have text keys and always serialize")
}
