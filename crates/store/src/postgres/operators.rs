//! Table `drain`, and evictions in `job_requeue`.

use super::convert::{Timestamp, text, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::{PgStore, event, plan_head};
use crate::operators::{change, drained_event, undrained_event};
use crate::{Drain, DrainChange, DrainPlace, Operators, StoreError, Undrain};
use async_trait::async_trait;
use pillion_core::{GresType, NodeName};
use sqlx::PgConnection;

#[async_trait]
impl Operators for PgStore {
    async fn drains(&self) -> Result<Vec<Drain>, StoreError> {
        self.run_tx("reading what is drained", Read, |tx| Box::pin(drains(tx.connection()))).await
    }

    async fn drain(&self, orders: &[Drain]) -> Result<Vec<DrainChange>, StoreError> {
        self.run_tx("draining", Write, |tx| Box::pin(drain(tx.connection(), orders))).await
    }

    async fn undrain(&self, order: &Undrain) -> Result<Vec<bool>, StoreError> {
        self.run_tx("undraining", Write, |tx| Box::pin(undrain(tx.connection(), order))).await
    }
}

#[derive(Debug)]
struct DrainRow {
    node: String,
    gres_type: Option<String>,
    drained_by: String,
    reason: String,
    since: Timestamp,
}

impl From<DrainRow> for Drain {
    fn from(row: DrainRow) -> Self {
        let place = DrainPlace { node: NodeName::new(row.node), gres_type: row.gres_type.map(GresType::new) };
        Self { place, by: row.drained_by, reason: row.reason, since: unix_time(row.since) }
    }
}

pub(super) async fn drains(conn: &mut PgConnection) -> Result<Vec<Drain>, TxError> {
    let rows = sqlx::query_as!(DrainRow, "select node, gres_type, drained_by, reason, since from drain",)
        .fetch_all(conn)
        .await?;
    let mut drains: Vec<Drain> = rows.into_iter().map(Drain::from).collect();
    // A database may sort by the rules of a language.
    drains.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(drains)
}

pub(super) async fn drain(conn: &mut PgConnection, orders: &[Drain]) -> Result<Vec<DrainChange>, TxError> {
    let known = drains(conn).await?;
    let mut changes = Vec::new();
    for order in orders {
        let before = known.iter().find(|drain| drain.place == order.place);
        let change = change(before, order);
        if change != DrainChange::Unchanged {
            keep(conn, order).await?;
            event::record(conn, &drained_event(order)).await?;
        }
        changes.push(change);
    }
    if changes.contains(&DrainChange::Begun) {
        plan_head::bump(conn).await?;
    }
    Ok(changes)
}

async fn keep(conn: &mut PgConnection, order: &Drain) -> Result<(), TxError> {
    sqlx::query!(
        "insert into drain (node, gres_type, drained_by, reason, since) values ($1, $2, $3, $4, $5)
        on conflict (node, coalesce(gres_type, '')) do update
        set drained_by = excluded.drained_by, reason = excluded.reason",
        order.place.node.as_str(),
        order.place.gres_type.as_ref().map(GresType::as_str),
        &*text(&order.by),
        &*text(&order.reason),
        timestamp(order.since),
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn undrain(conn: &mut PgConnection, order: &Undrain) -> Result<Vec<bool>, TxError> {
    let mut opened = Vec::new();
    for place in &order.places {
        let done = sqlx::query!(
            "delete from drain where node = $1 and gres_type is not distinct from $2",
            place.node.as_str(),
            place.gres_type.as_ref().map(GresType::as_str),
        )
        .execute(&mut *conn)
        .await?;
        if done.rows_affected() > 0 {
            event::record(conn, &undrained_event(place, order)).await?;
        }
        opened.push(done.rows_affected() > 0);
    }
    if opened.contains(&true) {
        plan_head::bump(conn).await?;
    }
    Ok(opened)
}
