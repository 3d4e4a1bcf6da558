//! Table `workload_name`: what people call workloads.

use super::PgStore;
use super::convert::{Place, timestamp};
use super::tx::Access::{Browse, Write};
use super::tx::TxError;
use super::unreadable::readable;
use crate::names::owner;
use crate::{NAMESAKES_MAX, Names, Naming, StoreError};
use async_trait::async_trait;
use pillion_core::name::KnownName;
use pillion_core::{UnixTime, UserId, WorkloadKey, WorkloadName};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[async_trait]
impl Names for PgStore {
    async fn name_workloads(&self, namings: &[Naming], at: UnixTime) -> Result<(), StoreError> {
        self.run_tx("naming workloads", Write, |tx| Box::pin(keep(tx.connection(), namings, at))).await
    }

    async fn workload_names(
        &self,
        workloads: &[WorkloadKey],
    ) -> Result<BTreeMap<WorkloadKey, KnownName>, StoreError> {
        if workloads.is_empty() {
            return Ok(BTreeMap::new());
        }
        let keys: Vec<String> = workloads.iter().map(ToString::to_string).collect();
        let keys = keys.as_slice();
        self.run_tx("reading names of workloads", Browse, |tx| Box::pin(names(tx.connection(), keys))).await
    }

    async fn workloads_called(
        &self,
        name: &WorkloadName,
        uid: Option<UserId>,
    ) -> Result<Vec<WorkloadKey>, StoreError> {
        self.run_tx("reading workloads of a name", Browse, |tx| Box::pin(called(tx.connection(), name, uid)))
            .await
    }
}

/// One after the other: they are few, and two of one workload may stand among them.
pub(super) async fn keep(conn: &mut PgConnection, namings: &[Naming], at: UnixTime) -> Result<(), TxError> {
    for Naming { workload, uid, name, source } in namings {
        sqlx::query!(
            "insert into workload_name as old (workload, owner, uid, name, source, named_at)
            values ($1, $2, $3, $4, $5, $6)
            on conflict (workload) do update
            set uid = excluded.uid, name = excluded.name, source = excluded.source, named_at = excluded.named_at
            where old.source = 'job' and excluded.source = 'profile'",
            workload.as_str(),
            owner(workload),
            i64::from(uid.0),
            name.as_str(),
            source.to_string(),
            timestamp(at),
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

pub(super) async fn names(
    conn: &mut PgConnection,
    workloads: &[String],
) -> Result<BTreeMap<WorkloadKey, KnownName>, TxError> {
    let rows = sqlx::query!(
        r#"select workload, name, exists (
            select from workload_name as other
            where other.name = asked.name and other.owner = asked.owner and other.workload <> asked.workload
        ) as "is_shared!"
        from workload_name as asked where workload = any($1)"#,
        workloads
    )
    .fetch_all(conn)
    .await?;
    let names = rows.into_iter().map(|row| {
        let place = Place { table: "workload_name", row: &row.workload };
        let name = WorkloadName::safe(&row.name).ok_or_else(|| place.corrupt("name"))?;
        Ok((WorkloadKey::new(row.workload), KnownName { name, is_shared: row.is_shared }))
    });
    Ok(readable(names)?.into_iter().collect())
}

pub(super) async fn called(
    conn: &mut PgConnection,
    name: &WorkloadName,
    uid: Option<UserId>,
) -> Result<Vec<WorkloadKey>, TxError> {
    let keys = sqlx::query_scalar!(
        r#"select workload from workload_name
        where name = $1 and ($2::bigint is null or uid = $2) order by workload collate "C" limit $3"#,
        name.as_str(),
        uid.map(|uid| i64::from(uid.0)),
        i64::from(NAMESAKES_MAX),
    )
    .fetch_all(conn)
    .await?;
    Ok(keys.into_iter().map(WorkloadKey::new).collect())
}
