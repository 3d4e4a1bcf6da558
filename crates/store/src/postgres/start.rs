//! Table `job_start`: what Slurm said of each start, written with the job's own row.

use super::convert::{Timestamp, integer, unix_time};
use super::tx::TxError;
use crate::SlurmStart;
use pillion_core::{JobStart, NodeName};
use serde_json::Value;
use sqlx::PgConnection;

/// `jobs`: rows as those of `job`; those that have not started are left out.
pub(super) async fn record(conn: &mut PgConnection, jobs: &Value) -> Result<(), TxError> {
    sqlx::query!(
        "insert into job_start as old (job_id, restart_count, node, started_at, ended_at)
        select new.job_id, new.restart_count, new.node, to_timestamp(new.started_at), to_timestamp(new.ended_at)
        from jsonb_to_recordset($1) as new (job_id text, restart_count integer, node text,
            started_at double precision, ended_at double precision)
        where new.node is not null and new.started_at is not null
        on conflict on constraint job_start_pkey do update
        set node = excluded.node, started_at = excluded.started_at, ended_at = excluded.ended_at
        where (old.node, old.started_at, old.ended_at)
            is distinct from (excluded.node, excluded.started_at, excluded.ended_at)",
        jobs
    )
    .execute(conn)
    .await?;
    Ok(())
}

struct StartRow {
    node: String,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
}

pub(super) async fn read(conn: &mut PgConnection, start: JobStart) -> Result<Option<SlurmStart>, TxError> {
    let row = sqlx::query_as!(
        StartRow,
        "select node, started_at, ended_at from job_start where job_id = $1 and restart_count = $2",
        start.job_id.to_string(),
        integer(start.restart_count),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SlurmStart {
        node: NodeName::new(row.node),
        started_at: unix_time(row.started_at),
        ended_at: row.ended_at.map(unix_time),
    }))
}
