//! The store in Postgres. One file a table; SQL is checked when it is compiled (`.sqlx/`, see `tests/sqlx-prepare`).
//!
//! Every call is one transaction (`tx`), and every write that a plan could depend on moves `plan_head` in it. Rows are
//! private to their files and leave them as domain words. Nothing here decides, reads a clock, or knows who calls.

mod account;
mod archive;
mod browse;
mod charge;
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
mod observed;
mod operators;
mod plan_head;
mod profile;
mod rights;
mod run;
mod sample;
mod scaling;
mod shadow;
mod slice;
mod start;
mod tx;
mod unreadable;

pub use archive::TakenIn;
pub use connect::{ConnectError, MIGRATOR};
pub use leader::Leadership;
pub use tx::{CallFigures, PgStore, StoreFigures, TransactionCounts};
