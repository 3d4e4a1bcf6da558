//! The store in Postgres. One file a table; SQL is checked when it is compiled (`.sqlx/`, see `tests/sqlx-prepare`).
//!
//! Every call is one transaction (`tx`), and every write that a plan could depend on moves `plan_head` in it. Rows are
//! private to their files and leave them as domain words. Nothing here decides, reads a clock, or knows who calls.

mod account;
mod browse;
mod connect;
mod convert;
mod credit;
mod decision;
mod device;
mod event;
mod explanation;
mod fault;
mod history;
mod ingest;
mod job;
mod launch;
mod leader;
mod listing;
mod member;
mod model;
mod name;
mod observation;
mod operators;
mod plan_head;
mod profile;
mod run;
mod sample;
mod start;
mod tx;
mod unreadable;

pub use connect::{ConnectError, MIGRATOR};
pub use leader::Leadership;
pub use tx::{CallFigures, StoreFigures, TransactionCounts};

use super::LIST_LIMIT_DEFAULT;
use sqlx::PgPool;

/// The store in Postgres. While the database does not respond each call fails within seconds with a transient error;
/// connections come back by themselves.
#[derive(Debug)]
pub struct PgStore {
    pool: PgPool,
    counters: tx::Counters,
}

/// A limit as SQL takes it; 0 = the usual one.
fn integer_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { LIST_LIMIT_DEFAULT } else { limit })
}
