//! Table `plan_head`: the one row that orders everything that a plan depends on.

use super::tx::TxError;
use crate::StoreError;
use pillion_core::Revision;
use sqlx::PgConnection;

const TABLE: &str = "plan_head";

pub(super) async fn revision(conn: &mut PgConnection) -> Result<Revision, TxError> {
    let revision = sqlx::query_scalar!("select revision from plan_head").fetch_one(conn).await?;
    let place = super::convert::Place { table: TABLE, row: "the only one" };
    Ok(Revision(place.number("revision", revision)?))
}

/// Something changed that plans depend on.
pub(super) async fn bump(conn: &mut PgConnection) -> Result<(), TxError> {
    let done = sqlx::query!("update plan_head set revision = revision + 1").execute(conn).await?;
    if done.rows_affected() == 1 {
        Ok(())
    } else {
        Err(StoreError::Missing("the row of plan_head".to_owned()).into())
    }
}

/// Moves on from `parent`, or says where the store stands.
pub(super) async fn advance(conn: &mut PgConnection, parent: Revision) -> Result<(), TxError> {
    let done = sqlx::query!(
        "update plan_head set revision = revision + 1 where revision = $1",
        super::convert::bigint(parent.0)
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    Err(StoreError::StaleView { parent, current: revision(conn).await? }.into())
}

/// Fails where the store has moved on from `parent`.
pub(super) async fn expect(conn: &mut PgConnection, parent: Revision) -> Result<(), TxError> {
    let current = revision(conn).await?;
    if current == parent { Ok(()) } else { Err(StoreError::StaleView { parent, current }.into()) }
}
