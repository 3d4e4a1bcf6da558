//! Table `slice`: what became of runs in instances, one row a workload, model of device and size.

use super::PgStore;
use super::convert::{Place, bigint, text, timestamp};
use super::tx::Access::Read;
use super::tx::TxError;
use crate::{RunAccount, Slices, StoreError};
use async_trait::async_trait;
use pillion_core::WorkloadKey;
use pillion_pairing::mig::SliceRecord;
use sqlx::PgConnection;

#[async_trait]
impl Slices for PgStore {
    async fn slices(&self) -> Result<Vec<SliceRecord>, StoreError> {
        self.run_tx("reading what runs in instances taught", Read, |tx| Box::pin(slices(tx.connection())))
            .await
    }
}

/// Adds a run, where it ran in an instance: in the transaction that marks it.
pub(super) async fn add(conn: &mut PgConnection, run: &RunAccount) -> Result<(), TxError> {
    let Some(slice) = &run.slice else { return Ok(()) };
    sqlx::query!(
        "insert into slice as known (workload, device_model, profile, memory_bytes, completed_count, out_of_memory_count,
            speed_count, speed_fraction, measured_at)
        values ($1, $2, $3, $4, $5, $6, case when $7::double precision is null then 0 else 1 end, $7, $8)
        on conflict on constraint slice_pkey do update set
            memory_bytes = coalesce(excluded.memory_bytes, known.memory_bytes),
            completed_count = known.completed_count + excluded.completed_count,
            out_of_memory_count = known.out_of_memory_count + excluded.out_of_memory_count,
            speed_fraction = case when excluded.speed_fraction is null then known.speed_fraction
                else coalesce(known.speed_fraction, 0) + (excluded.speed_fraction - coalesce(known.speed_fraction, 0))
                    / (known.speed_count + 1) end,
            speed_count = known.speed_count + excluded.speed_count,
            measured_at = greatest(known.measured_at, excluded.measured_at)",
        &*text(run.workload.as_str()),
        &*text(&slice.device_model),
        slice.profile.to_string(),
        slice.memory_bytes.map(bigint),
        i32::from(slice.has_completed),
        i32::from(slice.ran_out_of_memory),
        slice.speed_fraction,
        timestamp(run.ended_at),
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn slices(conn: &mut PgConnection) -> Result<Vec<SliceRecord>, TxError> {
    let rows = sqlx::query!(
        r#"select workload, device_model, profile, memory_bytes, completed_count, out_of_memory_count, speed_count,
            speed_fraction
        from slice order by workload collate "C", device_model collate "C", profile collate "C""#
    )
    .fetch_all(conn)
    .await?;
    let records = rows.into_iter().map(|row| {
        let name = format!("{} on {}", row.workload, row.device_model);
        let place = Place { table: "slice", row: &name };
        Ok(SliceRecord {
            profile: place.parse("profile", &row.profile)?,
            memory_bytes: place.number_opt("memory_bytes", row.memory_bytes)?,
            completed_count: place.number("completed_count", row.completed_count)?,
            out_of_memory_count: place.number("out_of_memory_count", row.out_of_memory_count)?,
            speed_count: place.number("speed_count", row.speed_count)?,
            speed_fraction: row.speed_fraction,
            workload: WorkloadKey::new(row.workload),
            device_model: row.device_model,
        })
    });
    Ok(super::unreadable::readable(records)?)
}
