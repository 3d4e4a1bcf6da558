//! Table `use_beyond`: what runs used beyond their profiles, one row a workload of a user and one for all of his.

use super::PgStore;
use super::convert::{Place, text, timestamp};
use super::tx::Access::Read;
use super::tx::TxError;
use crate::charges::RUNS_MAX;
use crate::{Charge, Charges, RunAccount, StoreError};
use async_trait::async_trait;
use pillion_core::{UserId, WorkloadKey};
use sqlx::PgConnection;

#[async_trait]
impl Charges for PgStore {
    async fn charges(&self) -> Result<Vec<Charge>, StoreError> {
        self.run_tx("reading what was used beyond profiles", Read, |tx| Box::pin(charges(tx.connection())))
            .await
    }
}

/// Adds a run, where what it used is known: in the transaction that marks it.
pub(super) async fn add(conn: &mut PgConnection, run: &RunAccount) -> Result<(), TxError> {
    let Some(beyond) = run.use_beyond_fraction else { return Ok(()) };
    sqlx::query!(
        "insert into use_beyond as known (uid, workload, run_count, beyond_fraction, measured_at)
        select $1, workload, 1, $3, $4 from unnest(array['', $2]) as workload
        on conflict on constraint use_beyond_pkey do update set
            beyond_fraction = known.beyond_fraction
                + (excluded.beyond_fraction - known.beyond_fraction) / least(known.run_count + 1, $5),
            run_count = least(known.run_count + 1, $5),
            measured_at = greatest(known.measured_at, excluded.measured_at)",
        i64::from(run.uid.0),
        &*text(run.workload.as_str()),
        beyond,
        timestamp(run.ended_at),
        i32::try_from(RUNS_MAX).unwrap_or(i32::MAX),
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn charges(conn: &mut PgConnection) -> Result<Vec<Charge>, TxError> {
    let rows = sqlx::query!(
        r#"select uid, workload, beyond_fraction from use_beyond
        where uid in (select uid from use_beyond where beyond_fraction > 0) order by uid, workload collate "C""#
    )
    .fetch_all(conn)
    .await?;
    let place = Place { table: "use_beyond", row: "of a user" };
    let charges = rows.into_iter().map(|row| {
        let workload = (!row.workload.is_empty()).then(|| WorkloadKey::new(row.workload));
        let uid = UserId(place.number("uid", row.uid)?);
        Ok(Charge { uid, workload, beyond_fraction: row.beyond_fraction })
    });
    Ok(super::unreadable::readable(charges)?)
}
