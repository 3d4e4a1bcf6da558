//! Tables `job_requeue` and `device_fault`, and what a judgement writes.

use super::convert::{Place, Timestamp, bigint, integer, text, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, event};
use crate::faults::{FaultOf, changes};
use crate::{Event, Faults, Judgement, Requeue, RequeueCause, RequeueOutcome, StoreError};
use async_trait::async_trait;
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[async_trait]
impl Faults for PgStore {
    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError> {
        self.run_tx("judging a run", Write, |tx| {
            Box::pin(judge(tx.connection(), start, gres_type, judgement))
        })
        .await
    }

    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError> {
        self.run_tx("reading requeues", Read, |tx| Box::pin(open_requeues(tx.connection()))).await
    }

    async fn last_requeue(&self, job_id: SlurmJobId) -> Result<Option<Requeue>, StoreError> {
        let ids = [job_id.to_string()];
        let found = self
            .run_tx("reading a requeue", Read, |tx| Box::pin(last_requeues(tx.connection(), &ids)))
            .await?;
        Ok(found.into_iter().next())
    }

    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError> {
        self.run_tx("settling a requeue", Write, |tx| {
            Box::pin(settle(tx.connection(), start, outcome, event))
        })
        .await
    }

    async fn intend_requeue(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError> {
        self.run_tx("intending a requeue", Write, |tx| {
            Box::pin(intend_requeue(tx.connection(), requeue, event))
        })
        .await
    }

    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        if conditions.is_empty() {
            return Ok(());
        }
        self.run_tx("recording conditions", Write, |tx| {
            Box::pin(record_conditions(tx.connection(), node, conditions, at))
        })
        .await
    }

    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError> {
        self.run_tx("reading faults of a device", Read, |tx| {
            Box::pin(device_faults(tx.connection(), node, gres_type, since))
        })
        .await
    }
}

#[derive(Debug)]
struct RequeueRow {
    job_id: String,
    restart_count: i32,
    node: String,
    decided_at: Timestamp,
    reason: String,
    cause: String,
    memory_bytes: Option<i64>,
}

impl TryFrom<RequeueRow> for Requeue {
    type Error = StoreError;
    fn try_from(row: RequeueRow) -> Result<Self, StoreError> {
        let place = Place { table: "job_requeue", row: &row.job_id };
        let start = JobStart {
            job_id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
        };
        let cause = RequeueCause::read(&row.cause, place.number_opt("memory_bytes", row.memory_bytes)?);
        let cause = cause.ok_or_else(|| place.corrupt("cause"))?;
        let (node, decided_at) = (NodeName::new(&row.node), unix_time(row.decided_at));
        Ok(Self { cause, start, node, decided_at, reason: row.reason })
    }
}

pub(super) async fn judge(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
    judgement: &Judgement,
) -> Result<bool, TxError> {
    if !mark_judged(conn, start, gres_type).await? {
        return Ok(false);
    }
    for one in &judgement.events {
        event::record(conn, one).await?;
    }
    if let Some(requeue) = &judgement.requeue {
        intend(conn, requeue).await?;
    }
    Ok(true)
}

/// `Ok(false)`: it was judged before.
async fn mark_judged(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
) -> Result<bool, TxError> {
    let was_judged = sqlx::query_scalar!(
        "select is_judged from job_run where job_id = $1 and restart_count = $2 and gres_type = $3",
        start.job_id.to_string(),
        integer(start.restart_count),
        gres_type.as_str(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    match was_judged {
        None => return Err(StoreError::Missing(format!("the run of {start} on {gres_type}")).into()),
        Some(true) => return Ok(false),
        Some(false) => {}
    }
    let done = sqlx::query!(
        "update job_run set is_judged = true where job_id = $1 and restart_count = $2 and gres_type = $3",
        start.job_id.to_string(),
        integer(start.restart_count),
        gres_type.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// In the place of the job's last one, where it may follow that ([`RequeueCause::may_follow`]). `false`: nothing is intended
/// anew.
async fn intend(conn: &mut PgConnection, requeue: &Requeue) -> Result<bool, TxError> {
    let done = sqlx::query!(
        "insert into job_requeue as old (job_id, restart_count, node, decided_at, reason, cause, memory_bytes)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict on constraint job_requeue_pkey do update
        set restart_count = excluded.restart_count, node = excluded.node, decided_at = excluded.decided_at,
            reason = excluded.reason, cause = excluded.cause, memory_bytes = excluded.memory_bytes, outcome = null
        where case excluded.cause
            when 'evicted' then old.outcome is not null
            when 'made-room' then old.outcome is not null
            when 'sent-back' then old.cause = 'evicted' and old.outcome is not distinct from 'refused'
                or (old.memory_bytes is not null or old.cause = 'made-room') and old.outcome is not null
            when 'out-of-memory' then old.cause <> 'out-of-memory' and old.outcome is not distinct from 'refused'
                or old.cause = 'made-room' and old.outcome is not null
            when 'memory-growing' then old.memory_bytes is null and old.outcome is not distinct from 'refused'
                or old.cause = 'made-room' and old.outcome is not null
            else old.cause <> 'victim' and old.outcome is distinct from 'requeued'
                or (old.memory_bytes is not null or old.cause = 'made-room') and old.outcome is not null end",
        requeue.start.job_id.to_string(),
        integer(requeue.start.restart_count),
        requeue.node.as_str(),
        timestamp(requeue.decided_at),
        &*text(&requeue.reason),
        requeue.cause.as_str(),
        requeue.cause.memory_bytes().map(bigint),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn intend_requeue(
    conn: &mut PgConnection,
    requeue: &Requeue,
    event: &Event,
) -> Result<bool, TxError> {
    let is_new = intend(conn, requeue).await?;
    if is_new {
        event::record(conn, event).await?;
    }
    Ok(is_new)
}

pub(super) async fn open_requeues(conn: &mut PgConnection) -> Result<Vec<Requeue>, TxError> {
    let rows = sqlx::query_as!(
        RequeueRow,
        "select job_id, restart_count, node, decided_at, reason, cause, memory_bytes from job_requeue
        where outcome is null order by decided_at, job_id",
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(Requeue::try_from))?)
}

/// What was last intended for each of these jobs; of a row that cannot be read it is as if nothing was.
async fn last_requeues(conn: &mut PgConnection, job_ids: &[String]) -> Result<Vec<Requeue>, TxError> {
    let rows = sqlx::query_as!(
        RequeueRow,
        "select job_id, restart_count, node, decided_at, reason, cause, memory_bytes from job_requeue
        where job_id = any($1)",
        job_ids,
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(Requeue::try_from))?)
}

/// The same by start.
pub(super) async fn requeues_of(
    conn: &mut PgConnection,
    job_ids: &[String],
) -> Result<BTreeMap<JobStart, RequeueCause>, TxError> {
    let requeues = last_requeues(conn, job_ids).await?;
    Ok(requeues.into_iter().map(|requeue| (requeue.start, requeue.cause)).collect())
}

pub(super) async fn settle(
    conn: &mut PgConnection,
    start: JobStart,
    outcome: RequeueOutcome,
    event: &Event,
) -> Result<bool, TxError> {
    let outcome = match outcome {
        RequeueOutcome::Requeued => "requeued",
        RequeueOutcome::Refused => "refused",
    };
    let done = sqlx::query!(
        "update job_requeue set outcome = $3 where job_id = $1 and restart_count = $2 and outcome is null",
        start.job_id.to_string(),
        integer(start.restart_count),
        outcome,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    event::record(conn, event).await?;
    Ok(true)
}

#[derive(Debug)]
struct FaultRow {
    gres_type: String,
    kind: String,
    since: Timestamp,
    detail: String,
}

impl From<FaultRow> for FaultOf {
    fn from(row: FaultRow) -> Self {
        // A release before may not know a kind that a later one wrote.
        let kind = row.kind.parse().unwrap_or(FaultKind::Other);
        let fault = DeviceFault { kind, detail: row.detail, since: unix_time(row.since) };
        Self { gres_type: GresType::new(row.gres_type), fault }
    }
}

pub(super) async fn record_conditions(
    conn: &mut PgConnection,
    node: &NodeName,
    conditions: &[DeviceCondition],
    at: UnixTime,
) -> Result<(), TxError> {
    let open: Vec<FaultOf> = sqlx::query_as!(
        FaultRow,
        "select gres_type, kind, since, detail from device_fault where node = $1 and cleared_at is null
        order by gres_type, since, kind, detail",
        node.as_str(),
    )
    .fetch_all(&mut *conn)
    .await?
    .into_iter()
    .map(FaultOf::from)
    .collect();
    let changes = changes(&open, node, conditions, at);
    for (of, event) in &changes.begun {
        if insert(conn, node, of).await? {
            event::record(conn, event).await?;
        }
    }
    for (of, event) in &changes.cleared {
        clear(conn, node, of, at).await?;
        if let Some(event) = event {
            event::record(conn, event).await?;
        }
    }
    Ok(())
}

/// `false`: it was told of before, and is over.
async fn insert(conn: &mut PgConnection, node: &NodeName, of: &FaultOf) -> Result<bool, TxError> {
    let done = sqlx::query!(
        "insert into device_fault (node, gres_type, kind, since, detail) values ($1, $2, $3, $4, $5)
        on conflict on constraint device_fault_pkey do nothing",
        node.as_str(),
        of.gres_type.as_str(),
        of.fault.kind.to_string(),
        timestamp(of.fault.since),
        of.fault.detail,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

async fn clear(conn: &mut PgConnection, node: &NodeName, of: &FaultOf, at: UnixTime) -> Result<(), TxError> {
    sqlx::query!(
        "update device_fault set cleared_at = $6
        where node = $1 and gres_type = $2 and kind = $3 and since = $4 and detail = $5",
        node.as_str(),
        of.gres_type.as_str(),
        of.fault.kind.to_string(),
        timestamp(of.fault.since),
        of.fault.detail,
        timestamp(at),
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn device_faults(
    conn: &mut PgConnection,
    node: &NodeName,
    gres_type: &GresType,
    since: UnixTime,
) -> Result<Vec<DeviceFault>, TxError> {
    let rows = sqlx::query_as!(
        FaultRow,
        "select gres_type, kind, since, detail from device_fault
        where node = $1 and gres_type = $2 and since >= $3 order by since, kind, detail",
        node.as_str(),
        gres_type.as_str(),
        timestamp(since),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| FaultOf::from(row).fault).collect())
}
