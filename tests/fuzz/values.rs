//! Values near what is right: that is where readers go wrong.

use proptest::prelude::*;
use proptest::sample::Index;

/// One change of a value.
#[derive(Debug, Clone)]
enum Change {
    Replace(Index, u8),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    /// A piece of it once more, somewhere.
    Repeat(Index, usize, Index),
    Cut(Index),
}

/// What separates, ends and escapes in the texts that we read, and numbers at the ends of their types.
const PIECES: [&str; 26] = [
    ";",
    ",",
    "=",
    "\n",
    " ",
    "\0",
    "[",
    "]",
    "-",
    ":",
    "(",
    ")",
    "%",
    "/",
    "+",
    ".",
    "inf",
    "NaN",
    "-1",
    "1e309",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "\u{1b}[2J",
    "\u{e9}",
    "\u{feff}",
];

fn changes() -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        2 => (place(), 1_usize..8).prop_map(|(at, count)| Change::Remove(at, count)),
        4 => (place(), prop::sample::select(PIECES.to_vec()))
            .prop_map(|(at, piece)| Change::Insert(at, piece.as_bytes().to_vec())),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        2 => (place(), 1_usize..40, place()).prop_map(|(from, count, to)| Change::Repeat(from, count, to)),
        1 => place().prop_map(Change::Cut),
    ]
}

fn apply(mut bytes: Vec<u8>, change: &Change) -> Vec<u8> {
    let end = bytes.len();
    let place = |index: &Index| index.index(end + 1);
    match change {
        Change::Replace(at, byte) => {
            if let Some(old) = bytes.get_mut(place(at)) {
                *old = *byte;
            }
        }
        Change::Remove(at, count) => drop(bytes.drain(place(at)..(place(at) + count).min(end))),
        Change::Insert(at, piece) => drop(bytes.splice(place(at)..place(at), piece.iter().copied())),
        Change::Repeat(from, count, to) => {
            let piece = bytes[place(from)..(place(from) + count).min(end)].to_vec();
            drop(bytes.splice(place(to)..place(to), piece));
        }
        Change::Cut(at) => bytes.truncate(place(at)),
    }
    bytes
}

/// Some of these, each with a few changes; and, now and then, anything at all.
pub(crate) fn bytes_like(examples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let near = (prop::sample::select(examples), prop::collection::vec(changes(), 0..6))
        .prop_map(|(example, changes)| changes.iter().fold(example, apply));
    prop_oneof![9 => near, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// The same as text, as far as it is any.
pub(crate) fn text_like(examples: &[&str]) -> impl Strategy<Value = String> + use<> {
    let examples = examples.iter().map(|example| example.as_bytes().to_vec()).collect();
    bytes_like(examples).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
