//! Tables `observed_job` and `observed_run`: starts that are only observed, and the parts of them that agents summarised.

use super::convert::{Place, bigint, integer, integer_limit, text, timestamp};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, profile};
use crate::{Lesson, Observed, ObservedJob, ObservedRun, StoreError, StoredProfile};
use async_trait::async_trait;
use pillion_core::report::JobSummary;
use pillion_core::{JobStart, NodeName, SlurmJobId, WorkloadKey};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[async_trait]
impl Observed for PgStore {
    async fn record_observed(&self, jobs: &[ObservedJob]) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.run_tx("recording observed jobs", Write, |tx| Box::pin(record(tx.connection(), jobs))).await
    }

    async fn observed_by_number(&self, inner_ids: &[u32]) -> Result<Vec<ObservedJob>, StoreError> {
        let numbers: Vec<i64> = inner_ids.iter().map(|id| i64::from(*id)).collect();
        self.run_tx("reading observed jobs", Read, |tx| Box::pin(by_number(tx.connection(), &numbers))).await
    }

    async fn observed_job(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ObservedJob, Option<Lesson>)>, StoreError> {
        self.run_tx("reading an observed job", Read, |tx| Box::pin(newest(tx.connection(), job_id))).await
    }

    async fn open_observed(&self) -> Result<Vec<ObservedJob>, StoreError> {
        self.run_tx("reading open observed jobs", Read, |tx| Box::pin(open(tx.connection()))).await
    }

    async fn unlearned_observed(
        &self,
        limit: u32,
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError> {
        self.run_tx("reading unlearned observed jobs", Read, |tx| Box::pin(unlearned(tx.connection(), limit)))
            .await
    }

    async fn learn_observed(
        &self,
        start: JobStart,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.run_tx("learning from an observed job", Write, |tx| {
            Box::pin(learn(tx.connection(), start, lesson, profile))
        })
        .await
    }
}

/// A body as it was written.
pub(super) fn job_of(body: Value) -> Result<ObservedJob, StoreError> {
    let row = body["start"]["job_id"].as_str().unwrap_or("of no job").to_owned();
    Place { table: "observed_job", row: &row }.json("body", body)
}

/// Upserts all starts in one statement: a scan may bring thousands.
async fn record(conn: &mut PgConnection, jobs: &[ObservedJob]) -> Result<(), TxError> {
    // One row a start, or Postgres refuses the upsert: the last one counts.
    let rows: BTreeMap<JobStart, Value> = jobs.iter().map(|job| (job.start, json_row(job))).collect();
    let rows = Value::Array(rows.into_values().collect());
    sqlx::query!(
        "insert into observed_job (job_id, restart_count, inner_id, started_at, ended_at, body)
        select new.job_id, new.restart_count, new.inner_id, to_timestamp(new.started_at), to_timestamp(new.ended_at), new.body
        from jsonb_to_recordset($1) as new (job_id text, restart_count integer, inner_id bigint,
            started_at double precision, ended_at double precision, body jsonb)
        on conflict (job_id, restart_count) do update set inner_id = excluded.inner_id, started_at = excluded.started_at,
            ended_at = excluded.ended_at, body = excluded.body",
        rows
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn json_row(job: &ObservedJob) -> Value {
    let mut job = job.clone();
    for text_of in [&mut job.user, &mut job.account, &mut job.partition, &mut job.gres] {
        *text_of = text(text_of).into_owned();
    }
    job.workload = WorkloadKey::new(text(job.workload.as_str()));
    json!({
        "job_id": job.start.job_id,
        "restart_count": job.start.restart_count,
        "inner_id": bigint(job.inner_id.into()),
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "body": job,
    })
}

async fn by_number(conn: &mut PgConnection, numbers: &[i64]) -> Result<Vec<ObservedJob>, TxError> {
    let bodies = sqlx::query_scalar!(
        "select body from observed_job where inner_id = any($1) order by started_at, job_id, restart_count",
        numbers
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(bodies.into_iter().map(job_of))?)
}

async fn newest(
    conn: &mut PgConnection,
    job_id: SlurmJobId,
) -> Result<Option<(ObservedJob, Option<Lesson>)>, TxError> {
    let row = sqlx::query!(
        "select body, lesson_kind, lesson_detail from observed_job where job_id = $1 order by restart_count desc limit 1",
        job_id.to_string()
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let key = job_id.to_string();
    let place = Place { table: "observed_job", row: &key };
    let kind = place.parse_opt("lesson_kind", row.lesson_kind.as_deref())?;
    let lesson = kind.map(|kind| Lesson { kind, detail: row.lesson_detail.unwrap_or_default() });
    Ok(Some((job_of(row.body)?, lesson)))
}

async fn open(conn: &mut PgConnection) -> Result<Vec<ObservedJob>, TxError> {
    let bodies = sqlx::query_scalar!(
        "select body from observed_job where ended_at is null order by started_at, job_id, restart_count"
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(bodies.into_iter().map(job_of))?)
}

async fn unlearned(
    conn: &mut PgConnection,
    limit: u32,
) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, TxError> {
    let bodies = sqlx::query_scalar!(
        "select body from observed_job where not is_learned and ended_at is not null
        order by ended_at, job_id, restart_count limit $1",
        integer_limit(limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs = readable(bodies.into_iter().map(job_of))?;
    with_runs(conn, jobs).await
}

/// These starts, each with all parts of it that were reported.
pub(super) async fn with_runs(
    conn: &mut PgConnection,
    jobs: Vec<ObservedJob>,
) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, TxError> {
    let ids: Vec<String> = jobs.iter().map(|job| job.start.job_id.to_string()).collect();
    let rows = sqlx::query!(
        r#"select run.node, run.summary, device.device_model as "device_model?", device.memory_bytes as "memory_bytes?"
        from observed_run as run
        left join device on device.node = run.node and device.gres_type = run.gres_type
        where run.job_id = any($1) order by run.job_id, run.restart_count, run.node, run.gres_type, run.started_at"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let runs = rows.into_iter().map(|row| -> Result<ObservedRun, StoreError> {
        let place = Place { table: "observed_run", row: &row.node };
        let summary: JobSummary = place.json("summary", row.summary)?;
        let device_memory_bytes = place.number::<u64>("memory_bytes", row.memory_bytes.unwrap_or(0))?;
        let device_model = row.device_model.unwrap_or_default();
        Ok(ObservedRun { node: NodeName::new(row.node), summary, device_model, device_memory_bytes })
    });
    let mut of_starts: BTreeMap<JobStart, Vec<ObservedRun>> = BTreeMap::new();
    for run in readable(runs)? {
        of_starts.entry(run.summary.start).or_default().push(run);
    }
    let with_runs = jobs.into_iter().map(|job| {
        let runs = of_starts.remove(&job.start).unwrap_or_default();
        (job, runs)
    });
    Ok(with_runs.collect())
}

async fn learn(
    conn: &mut PgConnection,
    start: JobStart,
    lesson: &Lesson,
    stored: Option<&StoredProfile>,
) -> Result<(), TxError> {
    let marked = sqlx::query!(
        "update observed_job set is_learned = true, lesson_kind = $3, lesson_detail = $4
        where job_id = $1 and restart_count = $2 and not is_learned",
        start.job_id.to_string(),
        integer(start.restart_count),
        lesson.kind.to_string(),
        &*text(&lesson.detail),
    )
    .execute(&mut *conn)
    .await?;
    match stored {
        Some(stored) if marked.rows_affected() == 1 => profile::upsert(conn, stored).await,
        _ => Ok(()),
    }
}

/// A part of a start, whose agent may report it again under another journal: the first one counts.
pub(super) async fn insert_run(
    conn: &mut PgConnection,
    node: &NodeName,
    run: &JobSummary,
) -> Result<(), TxError> {
    sqlx::query!(
        "insert into observed_run (job_id, restart_count, node, gres_type, started_at, ended_at, summary)
        values ($1, $2, $3, $4, $5, $6, $7) on conflict on constraint observed_run_pkey do nothing",
        run.start.job_id.to_string(),
        integer(run.start.restart_count),
        node.as_str(),
        run.gres_type.as_str(),
        timestamp(run.started_at),
        timestamp(run.ended_at),
        json!(run),
    )
    .execute(conn)
    .await?;
    Ok(())
}
