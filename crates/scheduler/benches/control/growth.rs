//! What the database grows by, table by table, and what it writes ahead, for each start.

use anyhow::Context as _;
use pillion_store::postgres::PgStore;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Tables below so many bytes a start are added up in one row.
const BYTES_SHOWN_MIN: f64 = 8.0;

/// The database at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Size {
    /// Bytes of each table with its indexes and long values, and rows that were ever inserted into it.
    tables: BTreeMap<String, (i64, i64)>,
    /// Bytes written ahead so far.
    ahead_bytes: i64,
}

impl Size {
    /// As it is now.
    pub(crate) async fn of(store: &PgStore) -> anyhow::Result<Self> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "select relname::text, pg_total_relation_size(relid), n_tup_ins from pg_stat_user_tables",
        )
        .fetch_all(store.pool())
        .await
        .context("cannot ask for the sizes of tables")?;
        let ahead_bytes = sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            .fetch_one(store.pool())
            .await
            .context("cannot ask for what was written ahead")?;
        let tables = rows.into_iter().map(|(name, bytes, inserted)| (name, (bytes, inserted))).collect();
        Ok(Self { tables, ahead_bytes })
    }

    /// A table of what each of `starts` added since `before`.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn since(&self, before: &Self, starts: u64) -> String {
        let starts = starts.max(1) as f64;
        let mut text = "| table | rows a start | bytes a start |\n|---|---:|---:|\n".to_owned();
        let mut small = (0.0, 0.0);
        let mut all = 0.0;
        for (name, (bytes, inserted)) in &self.tables {
            let (bytes_before, inserted_before) = before.tables.get(name).copied().unwrap_or_default();
            let rows = (inserted - inserted_before) as f64 / starts;
            let grown = (bytes - bytes_before) as f64 / starts;
            all += grown;
            if grown < BYTES_SHOWN_MIN {
                small = (small.0 + rows, small.1 + grown);
            } else {
                // A text takes whatever is written to it.
                let _ = writeln!(text, "| {name} | {rows:.2} | {grown:.0} |");
            }
        }
        let ahead = (self.ahead_bytes - before.ahead_bytes) as f64 / starts;
        let _ = writeln!(text, "| the others | {:.2} | {:.0} |", small.0, small.1);
        let _ = writeln!(text, "| **all of them** | | **{all:.0}** |");
        let _ = writeln!(text, "| written ahead | | {ahead:.0} |");
        text
    }
}
