//! Table `explanation`: why jobs were left waiting. Those of decisions are with their members; reading brings both.

use super::PgStore;
use super::convert::{Place, Timestamp, bigint, timestamp, unix_time};
use super::tx::Access::{Browse, Write};
use super::tx::TxError;
use super::unreadable::readable;
use crate::{EXPLANATIONS_MAX, Explanations, StoreError};
use async_trait::async_trait;
use pillion_core::{Revision, SlurmJobId, UnixTime};
use pillion_pairing::Explanation;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[async_trait]
impl Explanations for PgStore {
    async fn record_explanations(
        &self,
        revision: Revision,
        explanations: &[Explanation],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        if explanations.is_empty() {
            return Ok(());
        }
        self.run_tx("recording explanations", Write, |tx| {
            Box::pin(record(tx.connection(), revision, explanations, at))
        })
        .await
    }

    async fn explanations(
        &self,
        id: SlurmJobId,
    ) -> Result<Vec<(Revision, UnixTime, Explanation)>, StoreError> {
        self.run_tx("reading explanations", Browse, |tx| Box::pin(of_job(tx.connection(), id))).await
    }
}

#[derive(Debug)]
struct ExplanationRow {
    revision: i64,
    recorded_at: Timestamp,
    explanation: Value,
}

impl ExplanationRow {
    fn read(self, job_id: &str) -> Result<(Revision, UnixTime, Explanation), StoreError> {
        let place = Place { table: "explanation", row: job_id };
        let revision = Revision(place.number("revision", self.revision)?);
        Ok((revision, unix_time(self.recorded_at), place.json("explanation", self.explanation)?))
    }
}

/// Three statements for all jobs: a plan explains every job that waits, and there may be thousands.
pub(super) async fn record(
    conn: &mut PgConnection,
    revision: Revision,
    explanations: &[Explanation],
    at: UnixTime,
) -> Result<(), TxError> {
    let rows: BTreeMap<SlurmJobId, Value> =
        explanations.iter().map(|one| (one.job_id, json_row(one))).collect();
    let rows = Value::Array(rows.into_values().collect());
    let kept = replace(conn, revision, &rows, at).await?;
    let added = sqlx::query_scalar!(
        "insert into explanation (job_id, revision, recorded_at, reason, explanation)
        select new.job_id, $2, $3, new.reason, new.explanation
        from jsonb_to_recordset($1) as new (job_id text, reason text, explanation jsonb)
        where new.job_id <> all($4)
        returning job_id",
        rows,
        bigint(revision.0),
        timestamp(at),
        &kept,
    )
    .fetch_all(&mut *conn)
    .await?;
    if !added.is_empty() {
        trim(conn, &added).await?;
    }
    Ok(())
}

/// Finds the jobs whose last row has the same reason still, no decision lying between, and replaces it where anything
/// else in it differs.
async fn replace(
    conn: &mut PgConnection,
    revision: Revision,
    rows: &Value,
    at: UnixTime,
) -> Result<Vec<String>, TxError> {
    let kept = sqlx::query_scalar!(
        r#"with lasting as (
            select old.explanation_id, new.job_id, new.explanation, old.explanation <> new.explanation as differs
            from jsonb_to_recordset($1) as new (job_id text, reason text, explanation jsonb)
            join explanation as old on old.explanation_id = (
                select max(explanation_id) from explanation where job_id = new.job_id)
            where old.reason = new.reason
                and old.revision > coalesce((
                    select max(parent_revision) from pairing_member join pairing_decision using (decision_id)
                    where pairing_member.job_id = new.job_id), -1)
        ), replaced as (
            update explanation set revision = $2, recorded_at = $3, explanation = lasting.explanation
            from lasting where explanation.explanation_id = lasting.explanation_id and lasting.differs
        )
        select job_id as "job_id!" from lasting"#,
        rows,
        bigint(revision.0),
        timestamp(at),
    )
    .fetch_all(conn)
    .await?;
    Ok(kept)
}

async fn trim(conn: &mut PgConnection, job_ids: &[String]) -> Result<(), TxError> {
    sqlx::query!(
        "delete from explanation where explanation_id in (
            select explanation_id from (
                select explanation_id, row_number() over (partition by job_id order by explanation_id desc) as age
                from explanation where job_id = any($1)
            ) as aged where age > $2)",
        job_ids,
        i64::try_from(EXPLANATIONS_MAX).unwrap_or(i64::MAX),
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn of_job(
    conn: &mut PgConnection,
    id: SlurmJobId,
) -> Result<Vec<(Revision, UnixTime, Explanation)>, TxError> {
    let job_id = id.to_string();
    let rows = sqlx::query_as!(
        ExplanationRow,
        r#"select revision as "revision!", recorded_at as "recorded_at!", explanation as "explanation!" from (
            select revision, recorded_at, explanation, 0 as source, explanation_id as number
            from explanation where job_id = $1
            union all
            select parent_revision, created_at, explanation, 1, decision_id
            from pairing_member join pairing_decision using (decision_id) where job_id = $1
        ) as both_sources order by revision, source, number"#,
        job_id,
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(|row| row.read(&job_id)))?)
}

fn json_row(explanation: &Explanation) -> Value {
    // The word of the reason is the one that scripts see.
    json!({ "job_id": explanation.job_id, "reason": explanation.reason, "explanation": explanation })
}
