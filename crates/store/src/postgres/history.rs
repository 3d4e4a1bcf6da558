//! What is of the past alone, and deleted when it is old enough: decisions and what led to them, events, starts, runs and jobs
//! that are over. What was learnt from them stays, and so do the hours of `account_hour`.

use super::PgStore;
use super::convert::timestamp;
use super::tx::TxError;
use crate::{History, StoreError};
use async_trait::async_trait;
use pillion_core::UnixTime;
use sqlx::PgConnection;

#[async_trait]
impl History for PgStore {
    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.run_until_none("pruning history", |tx| Box::pin(prune(tx.connection(), before))).await
    }

    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.run_until_none("pruning samples", |tx| Box::pin(prune_samples(tx.connection(), before))).await
    }
}

/// How many rows of a table go at once: a transaction is to be over in a moment.
const PRUNED_ROWS_MAX: i64 = 5_000;
/// Rows of samples are many and small.
const PRUNED_SAMPLES_MAX: i64 = 50_000;

/// Deletes some rows of a table for which a condition holds, `$1` being the time before which they go; how many went.
macro_rules! delete_some {
    ($conn:expr, $before:expr, $most:expr, $table:tt, $condition:tt) => {
        sqlx::query!(
            "delete from "
                + $table
                + " where ctid = any(array(select ctid from "
                + $table
                + " where "
                + $condition
                + " limit $2))",
            $before,
            $most,
        )
        .execute(&mut *$conn)
        .await?
        .rows_affected()
    };
}

/// Deletes some of the samples that are older than `before`; 0 = none is left.
pub(super) async fn prune_samples(conn: &mut PgConnection, before: UnixTime) -> Result<u64, TxError> {
    let (before, most) = (timestamp(before), PRUNED_SAMPLES_MAX);
    Ok(delete_some!(conn, before, most, "device_sample", "recorded_at < $1"))
}

/// Deletes some of what is older than `before`; 0 = nothing is left.
pub(super) async fn prune(conn: &mut PgConnection, before: UnixTime) -> Result<u64, TxError> {
    let mut deleted = prune_sharings(conn, before).await?;
    let (before, most) = (timestamp(before), PRUNED_ROWS_MAX);
    deleted += delete_some!(conn, before, most, "explanation", "recorded_at < $1");
    deleted += delete_some!(conn, before, most, "event", "happened_at < $1");
    deleted += delete_some!(conn, before, most, "job_launch", "launched_at < $1");
    deleted += delete_some!(conn, before, most, "job_requeue", "outcome is not null and decided_at < $1");
    deleted += delete_some!(conn, before, most, "device_fault", "cleared_at < $1");
    // Runs that taught what they could, and jobs that are over.
    deleted += delete_some!(conn, before, most, "job_run", "is_profiled and is_judged and ended_at < $1");
    deleted += delete_some!(conn, before, most, "run_account", "ended_at < $1");
    deleted += delete_some!(conn, before, most, "observed_job", "is_learned and ended_at < $1");
    deleted += delete_some!(
        conn,
        before,
        most,
        "observed_run",
        "ended_at < $1 and not exists (select from observed_job as job
            where job.job_id = observed_run.job_id and job.restart_count = observed_run.restart_count)"
    );
    deleted += delete_some!(conn, before, most, "shadow_decision", "closed_at < $1");
    deleted += delete_some!(conn, before, most, "use_beyond", "measured_at < $1");
    deleted += delete_some!(
        conn,
        before,
        most,
        "job",
        "ended_at < $1 and not exists (select from pairing_member as member where member.job_id = job.job_id and member.active)"
    );
    deleted += delete_some!(
        conn,
        before,
        most,
        "job_start",
        "started_at < $1 and not exists (select from job where job.job_id = job_start.job_id)"
    );
    Ok(deleted)
}

/// Whole sharings: a joiner's decision refers to its host's.
async fn prune_sharings(conn: &mut PgConnection, before: UnixTime) -> Result<u64, TxError> {
    let groups = sqlx::query_scalar!(
        "select group_id as \"group_id!\" from pairing_decision group by group_id
        having bool_and(state in ('ended', 'abandoned')) and max(created_at) < $1 limit $2",
        timestamp(before),
        PRUNED_ROWS_MAX,
    )
    .fetch_all(&mut *conn)
    .await?;
    let members = sqlx::query!(
        "delete from pairing_member using pairing_decision as decision
        where decision.decision_id = pairing_member.decision_id and decision.group_id = any($1)",
        &groups,
    );
    let members = members.execute(&mut *conn).await?.rows_affected();
    let decisions = sqlx::query!("delete from pairing_decision where group_id = any($1)", &groups);
    Ok(members + decisions.execute(&mut *conn).await?.rows_affected())
}
