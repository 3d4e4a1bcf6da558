//! Table `job_launch`: what SPANK was told at the start of each task.

use super::convert::{Place, Timestamp, bigint, integer, timestamp, unix_time};
use super::tx::TxError;
use super::unreadable::readable;
use crate::StoreError;
use pillion_core::report::Launch;
use pillion_core::{DecisionId, GresType, JobStart, NodeName};
use sqlx::PgConnection;

#[derive(Debug)]
struct LaunchRow {
    launch_id: i64,
    step_id: i64,
    launched_at: Timestamp,
    decision_id: Option<i64>,
    gres_types: Vec<String>,
    profile_name: Option<String>,
}

impl LaunchRow {
    fn of(self, start: JobStart) -> Result<Launch, StoreError> {
        let row = self.launch_id.to_string();
        let place = Place { table: "job_launch", row: &row };
        Ok(Launch {
            at: unix_time(self.launched_at),
            start,
            step_id: place.number("step_id", self.step_id)?,
            decision_id: place.number_opt("decision_id", self.decision_id)?.map(DecisionId),
            gres_types: self.gres_types.into_iter().map(GresType::new).collect(),
            profile_name: self.profile_name,
        })
    }
}

pub(super) async fn insert(conn: &mut PgConnection, node: &NodeName, launch: &Launch) -> Result<(), TxError> {
    let gres_types: Vec<String> = launch.gres_types.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "insert into job_launch (job_id, restart_count, step_id, launched_at, node, decision_id, gres_types,
            profile_name)
        values ($1, $2, $3, $4, $5, $6, $7, $8)",
        launch.start.job_id.to_string(),
        integer(launch.start.restart_count),
        i64::from(launch.step_id),
        timestamp(launch.at),
        node.as_str(),
        launch.decision_id.map(|id| bigint(id.0)),
        &gres_types,
        launch.profile_name.as_deref(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The launches of one start, oldest first.
pub(super) async fn of_start(conn: &mut PgConnection, start: JobStart) -> Result<Vec<Launch>, TxError> {
    let rows = sqlx::query_as!(
        LaunchRow,
        "select launch_id, step_id, launched_at, decision_id, gres_types, profile_name from job_launch
        where job_id = $1 and restart_count = $2 order by launch_id",
        start.job_id.to_string(),
        integer(start.restart_count),
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(|row| row.of(start)))?)
}
