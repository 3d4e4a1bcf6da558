//! Table `workload_profile`: how each workload uses each device model alone.

use super::convert::{Place, Timestamp, bigint, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, account, run};
use crate::{Durations, Lesson, Profiles, RunAccount, StoreError, StoredProfile};
use async_trait::async_trait;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, JobStart, WorkloadKey};
use serde_json::{Value, json};
use sqlx::PgConnection;

#[async_trait]
impl Profiles for PgStore {
    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.run_tx("profiling a run", Write, |tx| {
            Box::pin(profile_run(tx.connection(), start, gres_type, account, lesson, profile))
        })
        .await
    }

    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError> {
        let found = self
            .run_tx("reading a profile", Read, |tx| Box::pin(read(tx.connection(), Some(workload))))
            .await?;
        Ok(found.into_iter().find(|stored| stored.profile.device_model == device_model))
    }

    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        self.run_tx("reading profiles", Read, |tx| Box::pin(read(tx.connection(), None))).await
    }
}

#[derive(Debug)]
struct ProfileRow {
    workload: String,
    device_model: String,
    run_count: i64,
    duration_seconds: Option<f64>,
    duration_variation_fraction: Option<f64>,
    duration_run_count: i64,
    duration_deviation_squares: f64,
    run_counts_at_cap: Vec<i64>,
    throughput_per_second: Option<f64>,
    memory_bytes_peak: Option<i64>,
    memory_bytes_completed: Option<i64>,
    memory_bytes_ran_out: Option<i64>,
    process_count_peak: i64,
    process_memory_bytes_peak: Option<i64>,
    energy_joules: Option<f64>,
    family: Option<String>,
    throughput_per_second_at_cap: Vec<Option<f64>>,
    metrics: Value,
    updated_at: Timestamp,
}

impl TryFrom<ProfileRow> for StoredProfile {
    type Error = StoreError;
    fn try_from(row: ProfileRow) -> Result<Self, StoreError> {
        let key = format!("{} on {}", row.workload, row.device_model);
        let place = Place { table: "workload_profile", row: &key };
        let run_counts_at_cap = counts_at_cap(&place, &row.run_counts_at_cap)?;
        let profile = WorkloadProfile {
            run_count: place.number("run_count", row.run_count)?,
            duration_seconds: row.duration_seconds,
            duration_variation_fraction: row.duration_variation_fraction,
            throughput_per_second: row.throughput_per_second,
            metrics: place.json("metrics", row.metrics)?,
            memory_bytes_peak: place.number_opt("memory_bytes_peak", row.memory_bytes_peak)?,
            memory_bytes_completed: place.number_opt("memory_bytes_completed", row.memory_bytes_completed)?,
            memory_bytes_ran_out: place.number_opt("memory_bytes_ran_out", row.memory_bytes_ran_out)?,
            process_count_peak: place.number("process_count_peak", row.process_count_peak)?,
            process_memory_bytes_peak: place
                .number_opt("process_memory_bytes_peak", row.process_memory_bytes_peak)?,
            energy_joules: row.energy_joules,
            family: row.family,
            throughput_per_second_at_cap: at_caps(&place, &row.throughput_per_second_at_cap)?,
            workload: WorkloadKey::new(row.workload),
            device_model: row.device_model,
        };
        Ok(Self {
            profile,
            durations: Durations {
                run_count: place.number("duration_run_count", row.duration_run_count)?,
                deviation_squares: row.duration_deviation_squares,
            },
            run_counts_at_cap,
            updated_at: unix_time(row.updated_at),
        })
    }
}

/// Nine, or none at all where nothing was ever measured.
fn at_caps(place: &Place<'_>, values: &[Option<f64>]) -> Result<[Option<f64>; 9], StoreError> {
    if values.is_empty() {
        return Ok([None; 9]);
    }
    values.try_into().map_err(|_| place.corrupt("throughput_per_second_at_cap"))
}

fn counts_at_cap(place: &Place<'_>, values: &[i64]) -> Result<[u32; 9], StoreError> {
    if values.is_empty() {
        return Ok([0; 9]);
    }
    let counts = values.iter().map(|count| place.number("run_counts_at_cap", *count));
    let counts = counts.collect::<Result<Vec<u32>, _>>()?;
    counts.try_into().map_err(|_| place.corrupt("run_counts_at_cap"))
}

/// A run counts once: where it was profiled before, nothing is stored.
pub(super) async fn profile_run(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
    account: &RunAccount,
    lesson: &Lesson,
    profile: Option<&StoredProfile>,
) -> Result<(), TxError> {
    let before = run::mark_profiled(conn, start, gres_type, lesson).await?;
    if !before.is_accounted {
        account::insert(conn, start, gres_type, account).await?;
    }
    if let Some(profile) = profile.filter(|_| !before.is_profiled) {
        upsert(conn, profile).await?;
    }
    Ok(())
}

pub(super) async fn upsert(conn: &mut PgConnection, stored: &StoredProfile) -> Result<(), TxError> {
    let profile = &stored.profile;
    sqlx::query!(
        "insert into workload_profile (workload, device_model, run_count, duration_seconds,
            duration_variation_fraction, duration_deviation_squares, throughput_per_second, memory_bytes_peak,
            process_count_peak, energy_joules, updated_at, family, throughput_per_second_at_cap, run_counts_at_cap, metrics,
            memory_bytes_completed, memory_bytes_ran_out, duration_run_count, process_memory_bytes_peak)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
        on conflict (workload, device_model) do update set
            run_count = excluded.run_count, duration_seconds = excluded.duration_seconds,
            duration_variation_fraction = excluded.duration_variation_fraction,
            duration_run_count = excluded.duration_run_count,
            duration_deviation_squares = excluded.duration_deviation_squares,
            throughput_per_second = excluded.throughput_per_second,
            memory_bytes_peak = excluded.memory_bytes_peak, process_count_peak = excluded.process_count_peak,
            energy_joules = excluded.energy_joules, updated_at = excluded.updated_at, family = excluded.family,
            throughput_per_second_at_cap = excluded.throughput_per_second_at_cap,
            run_counts_at_cap = excluded.run_counts_at_cap, metrics = excluded.metrics,
            memory_bytes_completed = excluded.memory_bytes_completed, memory_bytes_ran_out = excluded.memory_bytes_ran_out,
            process_memory_bytes_peak = excluded.process_memory_bytes_peak",
        profile.workload.as_str(),
        profile.device_model,
        i64::from(profile.run_count),
        profile.duration_seconds,
        profile.duration_variation_fraction,
        stored.durations.deviation_squares,
        profile.throughput_per_second,
        profile.memory_bytes_peak.map(bigint),
        i64::from(profile.process_count_peak),
        profile.energy_joules,
        timestamp(stored.updated_at),
        profile.family,
        &profile.throughput_per_second_at_cap as &[Option<f64>],
        &stored.run_counts_at_cap.map(i64::from) as &[i64],
        json!(profile.metrics),
        profile.memory_bytes_completed.map(bigint),
        profile.memory_bytes_ran_out.map(bigint),
        i64::from(stored.durations.run_count),
        profile.process_memory_bytes_peak.map(bigint),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Of one workload or all, by workload and device model.
pub(super) async fn read(
    conn: &mut PgConnection,
    workload: Option<&WorkloadKey>,
) -> Result<Vec<StoredProfile>, TxError> {
    let rows = sqlx::query_as!(
        ProfileRow,
        r#"select workload, device_model, run_count, duration_seconds, duration_variation_fraction,
            duration_run_count, duration_deviation_squares, throughput_per_second, memory_bytes_peak, memory_bytes_completed,
            memory_bytes_ran_out, process_count_peak, process_memory_bytes_peak, energy_joules, updated_at, family, run_counts_at_cap,
            throughput_per_second_at_cap as "throughput_per_second_at_cap: Vec<Option<f64>>",
            -- A row of before has a column for each.
            coalesce(metrics, jsonb_strip_nulls(jsonb_build_object('power_watts', power_watts_mean,
                'sm_active_fraction', sm_active_fraction, 'sm_occupancy_fraction', sm_occupancy_fraction,
                'stall_fraction', stall_fraction, 'fp32_active_fraction', fp32_active_fraction,
                'tensor_active_fraction', tensor_active_fraction, 'gpu_busy_fraction', gpu_busy_fraction,
                'memory_busy_fraction', memory_busy_fraction, 'memory_bandwidth_fraction', memory_bandwidth_fraction,
                'cache_bandwidth_fraction', cache_bandwidth_fraction,
                'pcie_tx_bytes_per_second', pcie_tx_bytes_per_second,
                'pcie_rx_bytes_per_second', pcie_rx_bytes_per_second,
                'nvlink_tx_bytes_per_second', nvlink_tx_bytes_per_second,
                'nvlink_rx_bytes_per_second', nvlink_rx_bytes_per_second, 'throttles', throttled_fraction,
                'sources', sources))) as "metrics!"
        from workload_profile where $1::text is null or workload = $1
        order by workload collate "C", device_model collate "C""#,
        workload.map(WorkloadKey::as_str),
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(StoredProfile::try_from))?)
}
