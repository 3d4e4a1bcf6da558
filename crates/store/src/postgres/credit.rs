//! Table `credit_loss`: only added to. What is owed is counted from `run_account`.

use super::convert::{Place, integer, text, timestamp};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::{PgStore, event};
use crate::{Atonement, Credit, CreditLoss, Event, StoreError};
use async_trait::async_trait;
use pillion_core::UserId;
use sqlx::PgConnection;

#[async_trait]
impl Credit for PgStore {
    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError> {
        self.run_tx("taking credit", Write, |tx| Box::pin(lose(tx.connection(), loss, event))).await
    }

    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError> {
        self.run_tx("reading who owes runs alone", Read, |tx| {
            Box::pin(atonements(tx.connection(), seconds_min, runs_max))
        })
        .await
    }
}

/// `false`: that start has cost it before.
pub(super) async fn lose(conn: &mut PgConnection, loss: &CreditLoss, event: &Event) -> Result<bool, TxError> {
    let done = sqlx::query!(
        "insert into credit_loss (uid, lost_at, job_id, restart_count, node, reason) values ($1, $2, $3, $4, $5, $6)
        on conflict on constraint credit_loss_start_key do nothing",
        i64::from(loss.uid.0),
        timestamp(loss.lost_at),
        loss.start.job_id.to_string(),
        integer(loss.start.restart_count),
        loss.node.as_str(),
        &*text(&loss.reason),
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    event::record(conn, event).await?;
    Ok(true)
}

pub(super) async fn atonements(
    conn: &mut PgConnection,
    seconds_min: f64,
    runs_max: u32,
) -> Result<Vec<Atonement>, TxError> {
    let rows = sqlx::query!(
        r#"select uid, (
            select count(*) from (
                select from run_account as run
                where run.uid = last.uid and run.ended_at > last.lost_at and run.shared_run_count = 0
                    and run.gpu_seconds >= $1 limit $2
            ) as alone
        ) as "runs_alone!"
        from (select uid, max(lost_at) as lost_at from credit_loss group by uid) as last order by uid"#,
        seconds_min,
        i64::from(runs_max),
    )
    .fetch_all(conn)
    .await?;
    let place = Place { table: "credit_loss", row: "of a user" };
    let atonements = rows.into_iter().map(|row| {
        let uid = UserId(place.number("uid", row.uid)?);
        Ok(Atonement { uid, runs_alone: place.number("runs_alone", row.runs_alone)? })
    });
    Ok(super::unreadable::readable(atonements)?)
}
