//! Runs of observed jobs, as they are asked for to tell how a workload scales: what came to its end by itself.

use super::PgStore;
use super::convert::{bigint, integer_limit};
use super::observed::{job_of, with_runs};
use super::tx::Access::Browse;
use super::tx::TxError;
use super::unreadable::readable;
use crate::{ObservedJob, ObservedRun, ScalingFilter, StoreError};
use pillion_core::{UnixTime, WorkloadKey};
use sqlx::PgConnection;

/// What pages alone ask.
impl PgStore {
    /// The newest completed starts with all parts of them that were reported, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn scaling(
        &self,
        filter: &ScalingFilter,
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError> {
        self.run_tx("listing observed runs", Browse, |tx| Box::pin(list(tx.connection(), filter))).await
    }
}

async fn list(
    conn: &mut PgConnection,
    filter: &ScalingFilter,
) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, TxError> {
    let ScalingFilter { uid, workload, since, until, limit } = filter;
    let bodies = sqlx::query_scalar!(
        "select body from observed_job
        where ended_at is not null and body ->> 'ending' = 'Completed'
            and ($1::bigint is null or (body ->> 'uid')::bigint = $1)
            and ($2::text is null or body ->> 'workload' = $2)
            and ($3::float8 is null or ended_at >= to_timestamp($3))
            and ($4::float8 is null or ended_at < to_timestamp($4))
        order by ended_at desc, job_id, restart_count limit $5",
        uid.map(|uid| bigint(uid.0.into())),
        workload.as_ref().map(WorkloadKey::as_str),
        since.map(UnixTime::seconds),
        until.map(UnixTime::seconds),
        integer_limit(*limit),
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs = readable(bodies.into_iter().map(job_of))?;
    with_runs(conn, jobs).await
}
