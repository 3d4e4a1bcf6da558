//! One bad row of Postgres stops no reconciler: what each does about rows that cannot be read back, or are refused.

mod bad_credit;
mod bad_memory;
mod bad_rows;
#[path = "../../../store/tests/store/fixtures.rs"]
#[expect(dead_code, reason = "the store's own tests use the rest of them")]
mod fixtures;
mod observed;
#[path = "../../../store/tests/support/postgres.rs"]
mod support;
