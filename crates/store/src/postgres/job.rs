//! Table `job`: managed jobs as the last scan saw them, but for begin times: those of a long queue move all the time, by our own renewal,
//! and are read of Slurm where they are asked for. Nobody writes or reads the column `eligible_at` any more; it stays until no scheduler that
//! does may lead beside one of this release.

use super::convert::{Place, Timestamp, bigint, text, unix_time};
use super::tx::Access::{Browse, Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, start};
use crate::{JobRecord, Jobs, SlurmStart, StoreError};
use async_trait::async_trait;
use pillion_core::{JobStart, NodeName, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_slurm::Ending;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};

#[async_trait]
impl Jobs for PgStore {
    async fn record_jobs(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.run_tx("recording jobs", Write, |tx| Box::pin(record(tx.connection(), jobs, at))).await
    }

    async fn jobs(&self, ids: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, JobRecord>, StoreError> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        self.run_tx("reading jobs", Browse, |tx| Box::pin(jobs(tx.connection(), &ids))).await
    }

    async fn slurm_start(&self, start: JobStart) -> Result<Option<SlurmStart>, StoreError> {
        self.run_tx("reading a start", Read, |tx| Box::pin(start::read(tx.connection(), start))).await
    }
}

#[derive(Debug)]
pub(super) struct JobRow {
    job_id: String,
    restart_count: i32,
    uid: i64,
    user_name: String,
    account: String,
    partition_name: String,
    workload: String,
    slowdown_ratio_max: Option<f64>,
    memory_bytes_declared: Option<i64>,
    submitted_at: Timestamp,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    ending: Option<String>,
    node: Option<String>,
    node_count: Option<i64>,
    gres: String,
    is_alone: bool,
    exit_status: Option<i64>,
    exit_signal: Option<i64>,
}

impl TryFrom<JobRow> for JobRecord {
    type Error = StoreError;
    fn try_from(row: JobRow) -> Result<Self, StoreError> {
        let place = Place { table: "job", row: &row.job_id };
        Ok(Self {
            id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
            uid: UserId(place.number("uid", row.uid)?),
            ending: match row.ending.as_deref() {
                Some(word) => Some(ending_from(word).ok_or_else(|| place.corrupt("ending"))?),
                None => None,
            },
            memory_bytes_declared: place.number_opt("memory_bytes_declared", row.memory_bytes_declared)?,
            user: row.user_name,
            account: row.account,
            partition: row.partition_name,
            workload: WorkloadKey::new(row.workload),
            slowdown_ratio_max: row.slowdown_ratio_max,
            submitted_at: unix_time(row.submitted_at),
            started_at: row.started_at.map(unix_time),
            ended_at: row.ended_at.map(unix_time),
            node: row.node.map(NodeName::new),
            node_count: place.number_opt("node_count", row.node_count)?,
            gres: row.gres,
            alone: row.is_alone,
            exit: match (row.exit_status, row.exit_signal) {
                (Some(status), Some(signal)) => {
                    Some((place.number("exit_status", status)?, place.number("exit_signal", signal)?))
                }
                _ => None,
            },
        })
    }
}

/// Reads the jobs that exist among `ids`.
pub(super) async fn jobs(
    conn: &mut PgConnection,
    ids: &[String],
) -> Result<BTreeMap<SlurmJobId, JobRecord>, TxError> {
    let rows = sqlx::query_as!(
        JobRow,
        "select job_id, restart_count, uid, user_name, account, partition_name, workload, slowdown_ratio_max,
            memory_bytes_declared, submitted_at, started_at, ended_at, ending, node, node_count, gres, is_alone, exit_status,
            exit_signal
        from job where job_id = any($1)",
        ids
    )
    .fetch_all(conn)
    .await?;
    let jobs = readable(rows.into_iter().map(JobRecord::try_from))?;
    Ok(jobs.into_iter().map(|job| (job.id, job)).collect())
}

/// Upserts all jobs in one statement: a scan may bring thousands. What was seen later stays, as far as clocks can be believed: whoever led
/// before may come late with what he saw.
pub(super) async fn record(conn: &mut PgConnection, jobs: &[JobRecord], at: UnixTime) -> Result<(), TxError> {
    // One row a job, or Postgres refuses the upsert: the last one counts, as if they came one by one.
    let rows: BTreeMap<SlurmJobId, Value> = jobs.iter().map(|job| (job.id, json_row(job))).collect();
    let mut rows = Value::Array(rows.into_values().collect());
    let written = sqlx::query_scalar!(
        "insert into job as old (job_id, restart_count, uid, user_name, account, partition_name, workload,
            slowdown_ratio_max, memory_bytes_declared, submitted_at, started_at, ended_at, ending, node, node_count,
            gres, is_alone, exit_status, exit_signal, seen_at)
        select new.job_id, new.restart_count, new.uid, new.user_name, new.account, new.partition_name, new.workload,
            new.slowdown_ratio_max, new.memory_bytes_declared, to_timestamp(new.submitted_at), to_timestamp(new.started_at),
            to_timestamp(new.ended_at), new.ending, new.node, new.node_count, new.gres, new.is_alone, new.exit_status, new.exit_signal, to_timestamp($2)
        from jsonb_to_recordset($1) as new (job_id text, restart_count integer, uid bigint, user_name text,
            account text, partition_name text, workload text, slowdown_ratio_max double precision,
            memory_bytes_declared bigint, submitted_at double precision, started_at double precision,
            ended_at double precision, ending text, node text, node_count bigint, gres text, is_alone boolean,
            exit_status bigint, exit_signal bigint)
        on conflict (job_id) do update set
            restart_count = excluded.restart_count, uid = excluded.uid, user_name = excluded.user_name,
            account = excluded.account, partition_name = excluded.partition_name, workload = excluded.workload,
            slowdown_ratio_max = excluded.slowdown_ratio_max, memory_bytes_declared = excluded.memory_bytes_declared,
            submitted_at = excluded.submitted_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
            ending = excluded.ending, node = excluded.node, node_count = excluded.node_count, gres = excluded.gres,
            is_alone = excluded.is_alone, exit_status = excluded.exit_status, exit_signal = excluded.exit_signal,
            seen_at = excluded.seen_at
        where not old.seen_at between excluded.seen_at + interval '1 microsecond' and excluded.seen_at + interval '1 minute'
        returning job_id",
        rows,
        at.seconds()
    )
    .fetch_all(&mut *conn)
    .await?;
    if let Value::Array(rows) = &mut rows
        && written.len() < rows.len()
    {
        let written: BTreeSet<String> = written.into_iter().collect();
        rows.retain(|row| row["job_id"].as_str().is_some_and(|id| written.contains(id)));
    }
    start::record(conn, &rows).await
}

fn json_row(job: &JobRecord) -> Value {
    let JobRecord {
        id,
        restart_count,
        uid,
        user,
        account,
        partition,
        workload,
        slowdown_ratio_max,
        memory_bytes_declared,
        submitted_at,
        started_at,
        ended_at,
        ending,
        node,
        node_count,
        gres,
        alone,
        exit,
    } = job;
    json!({
        "job_id": id,
        "restart_count": restart_count,
        "uid": uid,
        "user_name": text(user),
        "account": text(account),
        "partition_name": text(partition),
        "workload": text(workload.as_str()),
        "slowdown_ratio_max": slowdown_ratio_max,
        "memory_bytes_declared": memory_bytes_declared.map(bigint),
        "submitted_at": submitted_at,
        "started_at": started_at,
        "ended_at": ended_at,
        "ending": ending.map(Ending::as_str),
        "node": node,
        "node_count": node_count,
        "gres": text(gres),
        "is_alone": alone,
        "exit_status": exit.map(|(status, _)| status),
        "exit_signal": exit.map(|(_, signal)| signal),
    })
}

fn ending_from(word: &str) -> Option<Ending> {
    Ending::ALL.into_iter().find(|ending| ending.as_str() == word)
}
