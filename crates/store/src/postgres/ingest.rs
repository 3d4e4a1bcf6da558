//! Table `agent_journal`, and what arrives with it: each report is stored once, in the transaction that moves its
//! journal on.

use super::convert::{Place, bigint};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::{PgStore, device, launch, observed, run, sample};
use crate::{Reports, StoreError};
use async_trait::async_trait;
use pillion_core::device::DeviceDescription;
use pillion_core::report::{Launch, Report, ReportBody};
use pillion_core::{GresType, JobStart, NodeName, UnixTime};
use sqlx::PgConnection;

#[async_trait]
impl Reports for PgStore {
    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError> {
        self.run_tx("storing a report", Write, |tx| {
            Box::pin(store(tx.connection(), node, journal_id, report))
        })
        .await
    }

    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError> {
        self.run_tx("reading a journal's sequence", Read, |tx| {
            Box::pin(last_sequence(tx.connection(), node, journal_id))
        })
        .await
    }

    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[DeviceDescription],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        self.run_tx("recording devices", Write, |tx| {
            Box::pin(device::record(tx.connection(), node, devices, at))
        })
        .await
    }

    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError> {
        self.run_tx("reading launches", Read, |tx| Box::pin(launch::of_start(tx.connection(), start))).await
    }

    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError> {
        self.run_tx("reading a device's power", Read, |tx| {
            Box::pin(sample::power_watts_mean(tx.connection(), node, gres_type, from, until))
        })
        .await
    }
}

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
        ReportBody::ObservedRun(run) => observed::insert_run(conn, node, run).await?,
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
