//! Table `agent_journal`, and what arrives with it: each report is stored once, in the transaction that moves its
//! journal on.

use super::convert::{Place, bigint};
use super::tx::TxError;
use super::{launch, run, sample};
use pillion_core::NodeName;
use pillion_core::report::{Report, ReportBody};
use sqlx::PgConnection;

pub(super) async fn store(
    conn: &mut PgConnection,
    node: &NodeName,
    journal_id: &str,
    report: &Report,
) -> Result<bool, TxError> {
    let moved_on = sqlx::query!(
        "insert into agent_journal (node, journal_id, last_sequence) values ($1, $2, $3)
        on conflict (node, journal_id) do update set last_sequence = excluded.last_sequence
        where agent_journal.last_sequence < excluded.last_sequence",
        node.as_str(),
        journal_id,
        bigint(report.sequence),
    )
    .execute(&mut *conn)
    .await?;
    if moved_on.rows_affected() == 0 {
        return Ok(false);
    }
    match &report.body {
        ReportBody::Samples(samples) => sample::insert(conn, node, samples).await?,
        ReportBody::JobSummary(summary) => run::insert(conn, node, summary).await?,
        ReportBody::Launch(launch) => launch::insert(conn, node, launch).await?,
    }
    Ok(true)
}

pub(super) async fn last_sequence(
    conn: &mut PgConnection,
    node: &NodeName,
    journal_id: &str,
) -> Result<u64, TxError> {
    let last = sqlx::query_scalar!(
        "select last_sequence from agent_journal where node = $1 and journal_id = $2",
        node.as_str(),
        journal_id,
    )
    .fetch_optional(conn)
    .await?;
    let place = Place { table: "agent_journal", row: journal_id };
    Ok(place.number("last_sequence", last.unwrap_or(0))?)
}
