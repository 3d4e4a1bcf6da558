//! What is of the past alone, and deleted when it is old enough: decisions and what led to them, events, starts, runs and jobs
//! that are over. What was learnt from them stays, and so do the hours of `account_hour`.

use super::convert::timestamp;
use super::tx::TxError;
use pillion_core::UnixTime;
use sqlx::PgConnection;

/// How many rows of a table go at once: a transaction is to be over in a moment.
const PRUNED_ROWS_MAX: i64 = 5_000;

/// Deletes some of what is older than `before`; 0 = nothing is left.
pub(super) async fn prune(conn: &mut PgConnection, before: UnixTime) -> Result<u64, TxError> {
    let before = timestamp(before);
    // Whole sharings: a joiner's decision refers to its host's.
    let groups = sqlx::query_scalar!(
        "select group_id as \"group_id!\" from pairing_decision group by group_id
        having bool_and(state in ('ended', 'abandoned')) and max(created_at) < $1 limit $2",
        before,
        PRUNED_ROWS_MAX,
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut deleted = 0;
    let members = sqlx::query!(
        "delete from pairing_member using pairing_decision as decision
        where decision.decision_id = pairing_member.decision_id and decision.group_id = any($1)",
        &groups,
    );
    deleted += members.execute(&mut *conn).await?.rows_affected();
    let decisions = sqlx::query!("delete from pairing_decision where group_id = any($1)", &groups);
    deleted += decisions.execute(&mut *conn).await?.rows_affected();
    let explanations = sqlx::query!(
        "delete from explanation where ctid = any(array(
            select ctid from explanation where recorded_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += explanations.execute(&mut *conn).await?.rows_affected();
    let events = sqlx::query!(
        "delete from event where ctid = any(array(select ctid from event where happened_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += events.execute(&mut *conn).await?.rows_affected();
    let launches = sqlx::query!(
        "delete from job_launch where ctid = any(array(
            select ctid from job_launch where launched_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += launches.execute(&mut *conn).await?.rows_affected();
    let requeues = sqlx::query!(
        "delete from job_requeue where ctid = any(array(
            select ctid from job_requeue where outcome is not null and decided_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += requeues.execute(&mut *conn).await?.rows_affected();
    let faults = sqlx::query!(
        "delete from device_fault where ctid = any(array(
            select ctid from device_fault where cleared_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += faults.execute(&mut *conn).await?.rows_affected();
    Ok(deleted + prune_runs(conn, before).await?)
}

/// Runs that taught what they could, and jobs that are over.
async fn prune_runs(conn: &mut PgConnection, before: super::convert::Timestamp) -> Result<u64, TxError> {
    let runs = sqlx::query!(
        "delete from job_run where ctid = any(array(
            select ctid from job_run where is_profiled and is_judged and ended_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    let mut deleted = runs.execute(&mut *conn).await?.rows_affected();
    let accounts = sqlx::query!(
        "delete from run_account where ctid = any(array(
            select ctid from run_account where ended_at < $1 limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += accounts.execute(&mut *conn).await?.rows_affected();
    let jobs = sqlx::query!(
        "delete from job where ctid = any(array(
            select ctid from job
            where ended_at < $1 and not exists (
                select from pairing_member as member where member.job_id = job.job_id and member.active)
            limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += jobs.execute(&mut *conn).await?.rows_affected();
    let starts = sqlx::query!(
        "delete from job_start where ctid = any(array(
            select ctid from job_start
            where started_at < $1 and not exists (select from job where job.job_id = job_start.job_id) limit $2))",
        before,
        PRUNED_ROWS_MAX,
    );
    deleted += starts.execute(&mut *conn).await?.rows_affected();
    Ok(deleted)
}
