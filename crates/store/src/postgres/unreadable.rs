//! Rows that cannot be read back: one of them must not keep all others from being read. Each is logged once and
//! counted; what is read is what can be.

use crate::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use tracing::error;

/// How many rows of a table are told apart: beyond that they are neither logged nor counted.
const ROWS_MAX: usize = 1_000;

/// The rows that were found, by table. Of the whole process: the queries that find them have a connection and nothing else.
static FOUND: Mutex<BTreeMap<&'static str, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// Those that can be read.
///
/// # Errors
/// The first error that is not about one row.
pub(super) fn readable<T>(rows: impl Iterator<Item = Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
    let mut read = Vec::new();
    for row in rows {
        match row {
            Ok(row) => read.push(row),
            Err(error) if error.is_of_one_row() => found(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// A row that cannot be read.
pub(super) fn found(unreadable: &StoreError) {
    let StoreError::Corrupt { table, row, .. } = unreadable else { return };
    let is_new = {
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = found.entry(table).or_default();
        rows.len() < ROWS_MAX && rows.insert(row.clone())
    };
    if is_new {
        error!("{unreadable}; it is passed over");
    }
}

/// How many rows of each table could not be read.
pub(super) fn counts() -> BTreeMap<&'static str, u64> {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found.iter().map(|(table, rows)| (*table, rows.len() as u64)).collect()
}
