//! Table `shadow_decision`: what would have been decided of starts in observed partitions, and what came of them.

use super::PgStore;
use super::convert::{Place, bigint, counted, integer, text, timestamp};
use super::observed::{job_of, with_runs};
use super::tx::Access::{Browse, Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use crate::{
    ForetoldSpeed, ObservedJob, ObservedRun, ShadowDecision, ShadowFilter, ShadowScore, ShadowSums, Shadows,
    StoreError,
};
use async_trait::async_trait;
use pillion_core::{JobStart, SlowdownRatio, SlurmJobId, UnixTime, WorkloadKey};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[async_trait]
impl Shadows for PgStore {
    async fn record_shadow(&self, decisions: &[ShadowDecision]) -> Result<(), StoreError> {
        if decisions.is_empty() {
            return Ok(());
        }
        self.run_tx("recording shadow decisions", Write, |tx| Box::pin(record(tx.connection(), decisions)))
            .await
    }

    async fn open_shadow(&self) -> Result<Vec<ShadowDecision>, StoreError> {
        self.run_tx("reading open shadow decisions", Read, |tx| Box::pin(open(tx.connection()))).await
    }

    async fn shadow_groups(&self, groups: &[JobStart]) -> Result<Vec<ShadowDecision>, StoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        self.run_tx("reading shadow groups", Read, |tx| Box::pin(of_groups(tx.connection(), &groups))).await
    }

    async fn close_shadow(&self, scores: &[(JobStart, ShadowScore)], at: UnixTime) -> Result<(), StoreError> {
        if scores.is_empty() {
            return Ok(());
        }
        self.run_tx("closing shadow decisions", Write, |tx| Box::pin(close(tx.connection(), scores, at)))
            .await
    }

    async fn shadow_of(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ShadowDecision, Option<ShadowScore>)>, StoreError> {
        self.run_tx("reading a shadow decision", Read, |tx| Box::pin(newest(tx.connection(), job_id))).await
    }

    async fn observed_starts(
        &self,
        starts: &[JobStart],
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError> {
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        self.run_tx("reading observed starts", Read, |tx| Box::pin(observed(tx.connection(), starts))).await
    }
}

/// What pages alone ask.
impl PgStore {
    /// Sums over the decisions of a stretch of time, those that are alike in one row.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn shadow_sums(&self, filter: &ShadowFilter) -> Result<Vec<ShadowSums>, StoreError> {
        self.run_tx("adding up shadow decisions", Browse, |tx| Box::pin(sums(tx.connection(), filter))).await
    }

    /// The newest speeds that were foretold in the pool and measured there, of those that ended in a stretch of time: of groups of two,
    /// for beside a third nobody goes as fast as was foretold before it came.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn foretold_speeds(
        &self,
        since: UnixTime,
        until: UnixTime,
    ) -> Result<Vec<ForetoldSpeed>, StoreError> {
        self.run_tx("reading speeds that were foretold", Browse, |tx| {
            Box::pin(foretold(tx.connection(), since, until))
        })
        .await
    }
}

fn decision_of(body: Value) -> Result<ShadowDecision, StoreError> {
    let row = body["member"]["start"]["job_id"].as_str().unwrap_or("of no job").to_owned();
    Place { table: "shadow_decision", row: &row }.json("body", body)
}

/// All in one statement: a look at a long queue may bring hundreds.
async fn record(conn: &mut PgConnection, decisions: &[ShadowDecision]) -> Result<(), TxError> {
    // One row a start, or Postgres refuses the statement: the first one counts.
    let mut rows: BTreeMap<JobStart, Value> = BTreeMap::new();
    for decision in decisions {
        rows.entry(decision.start()).or_insert_with(|| json_row(decision));
    }
    let rows = Value::Array(rows.into_values().collect());
    sqlx::query!(
        "insert into shadow_decision (job_id, restart_count, group_start, uid, role, reason, decided_at, body)
        select new.job_id, new.restart_count, new.group_start, new.uid, new.role, new.reason, to_timestamp(new.decided_at), new.body
        from jsonb_to_recordset($1) as new (job_id text, restart_count integer, group_start text, uid bigint, role text,
            reason text, decided_at double precision, body jsonb)
        on conflict on constraint shadow_decision_pkey do nothing",
        rows
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn json_row(decision: &ShadowDecision) -> Value {
    let mut decision = decision.clone();
    for text_of in [&mut decision.user, &mut decision.partition] {
        *text_of = text(text_of).into_owned();
    }
    decision.member.workload = WorkloadKey::new(text(decision.member.workload.as_str()));
    let member = &decision.member;
    json!({
        "job_id": member.start.job_id,
        "restart_count": member.start.restart_count,
        "group_start": decision.group.to_string(),
        "uid": bigint(member.uid.0.into()),
        "role": member.role,
        "reason": decision.reason(),
        "decided_at": decision.decided_at,
        "body": decision,
    })
}

async fn open(conn: &mut PgConnection) -> Result<Vec<ShadowDecision>, TxError> {
    let bodies = sqlx::query_scalar!(
        "select body from shadow_decision where closed_at is null order by decided_at, job_id, restart_count"
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(bodies.into_iter().map(decision_of))?)
}

async fn of_groups(conn: &mut PgConnection, groups: &[String]) -> Result<Vec<ShadowDecision>, TxError> {
    let bodies = sqlx::query_scalar!(
        "select body from shadow_decision where group_start = any($1) order by decided_at, job_id, restart_count",
        groups
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(bodies.into_iter().map(decision_of))?)
}

async fn close(
    conn: &mut PgConnection,
    scores: &[(JobStart, ShadowScore)],
    at: UnixTime,
) -> Result<(), TxError> {
    let rows = scores.iter().map(|(start, score)| {
        json!({ "job_id": start.job_id, "restart_count": start.restart_count, "score": score })
    });
    sqlx::query!(
        "update shadow_decision as decision set closed_at = $2, score = new.score
        from jsonb_to_recordset($1) as new (job_id text, restart_count integer, score jsonb)
        where decision.job_id = new.job_id and decision.restart_count = new.restart_count and decision.closed_at is null",
        Value::Array(rows.collect()),
        timestamp(at),
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn newest(
    conn: &mut PgConnection,
    job_id: SlurmJobId,
) -> Result<Option<(ShadowDecision, Option<ShadowScore>)>, TxError> {
    let key = job_id.to_string();
    let row = sqlx::query!(
        "select body, score from shadow_decision where job_id = $1 order by restart_count desc limit 1",
        key
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let place = Place { table: "shadow_decision", row: &key };
    let score = row.score.map(|score| place.json("score", score)).transpose()?;
    Ok(Some((decision_of(row.body)?, score)))
}

async fn observed(
    conn: &mut PgConnection,
    starts: &[JobStart],
) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, TxError> {
    let ids: Vec<String> = starts.iter().map(|start| start.job_id.to_string()).collect();
    let restarts: Vec<i32> = starts.iter().map(|start| integer(start.restart_count)).collect();
    let bodies = sqlx::query_scalar!(
        "select body from observed_job as job
        join unnest($1::text[], $2::integer[]) as asked (job_id, restart_count)
            on job.job_id = asked.job_id and job.restart_count = asked.restart_count
        order by job.started_at, job.job_id, job.restart_count",
        &ids,
        &restarts
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs = readable(bodies.into_iter().map(job_of))?;
    with_runs(conn, jobs).await
}

async fn sums(conn: &mut PgConnection, filter: &ShadowFilter) -> Result<Vec<ShadowSums>, TxError> {
    let ShadowFilter { since, until, uid } = filter;
    let rows = sqlx::query!(
        r#"select role, reason, score ->> 'outcome' as outcome, score -> 'beside' ->> 'fit' as fit,
            (score ->> 'is_duration_as_believed')::boolean as is_duration_as_believed,
            (score -> 'beside' ->> 'is_overlap_as_believed')::boolean as is_overlap_as_believed,
            count(*) as "count!",
            coalesce(sum(case when role = 'joiner' then 1 + jsonb_array_length(body -> 'beside') else 0 end), 0) as "promise_count!",
            coalesce(sum((body ->> 'broken_expected')::float8), 0) as "broken_expected!",
            count(*) filter (where (score -> 'beside' ->> 'is_over_limit')::boolean) as "over_limit_count!",
            coalesce(sum((score ->> 'held_seconds')::float8), 0) as "held_seconds!",
            coalesce(sum((body ->> 'overlap_seconds_believed')::float8), 0) as "overlap_seconds_believed!",
            coalesce(sum((score -> 'beside' ->> 'overlap_seconds')::float8), 0) as "overlap_seconds!",
            coalesce(sum((score -> 'beside' ->> 'saved_seconds_low')::float8), 0) as "saved_seconds_low!",
            coalesce(sum((score -> 'beside' ->> 'saved_seconds')::float8), 0) as "saved_seconds!"
        from shadow_decision
        where decided_at >= to_timestamp($1) and decided_at < to_timestamp($2) and ($3::bigint is null or uid = $3)
        group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6"#,
        since.seconds(),
        until.seconds(),
        uid.map(|uid| bigint(uid.0.into())),
    )
    .fetch_all(conn)
    .await?;
    let sums = rows.into_iter().map(|row| -> Result<ShadowSums, StoreError> {
        let place = Place { table: "shadow_decision", row: &row.reason };
        Ok(ShadowSums {
            role: place.json("role", Value::String(row.role))?,
            reason: place.parse("reason", &row.reason)?,
            outcome: place.parse_opt("outcome", row.outcome.as_deref())?,
            fit: place.parse_opt("fit", row.fit.as_deref())?,
            is_duration_as_believed: row.is_duration_as_believed,
            is_overlap_as_believed: row.is_overlap_as_believed,
            count: counted(row.count),
            promise_count: counted(row.promise_count),
            broken_expected: row.broken_expected,
            over_limit_count: counted(row.over_limit_count),
            held_seconds: row.held_seconds,
            overlap_seconds_believed: row.overlap_seconds_believed,
            overlap_seconds: row.overlap_seconds,
            saved_seconds_low: row.saved_seconds_low,
            saved_seconds: row.saved_seconds,
        })
    });
    Ok(readable(sums)?)
}

/// So many are enough to judge by.
const FORETOLD_MAX: i64 = 5000;

async fn foretold(
    conn: &mut PgConnection,
    since: UnixTime,
    until: UnixTime,
) -> Result<Vec<ForetoldSpeed>, TxError> {
    let rows = sqlx::query!(
        r#"select member.job_id, estimate as "estimate!", slowdown_ratio_max, measured_speed_fraction as "measured_speed_fraction!"
        from pairing_member as member join pairing_decision as decision using (decision_id)
        where measured_speed_fraction is not null and jsonb_typeof(estimate) = 'object'
            and ended_at >= to_timestamp($1) and ended_at < to_timestamp($2)
            and 2 = (
                select count(*) from pairing_member as one join pairing_decision as beside using (decision_id)
                where beside.group_id = decision.group_id and one.started_at is not null
            )
        order by ended_at desc limit $3"#,
        since.seconds(),
        until.seconds(),
        FORETOLD_MAX
    )
    .fetch_all(conn)
    .await?;
    let speeds = rows.into_iter().map(|row| -> Result<ForetoldSpeed, StoreError> {
        let place = Place { table: "pairing_member", row: &row.job_id };
        Ok(ForetoldSpeed {
            estimate: place.json("estimate", row.estimate)?,
            promise: SlowdownRatio::try_promise(row.slowdown_ratio_max)
                .map_err(|_| place.corrupt("slowdown_ratio_max"))?,
            measured_speed_fraction: row.measured_speed_fraction,
        })
    });
    Ok(readable(speeds)?)
}
