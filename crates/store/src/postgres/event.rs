//! Table `event`: what operators read later.

use super::PgStore;
use super::convert::{Place, Timestamp, integer_limit, text, timestamp, unix_time};
use super::tx::Access::{Browse, Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use crate::{Event, EventFilter, Events, StoreError};
use async_trait::async_trait;
use pillion_core::event::EventKind;
use pillion_core::{NodeName, SlurmJobId};
use sqlx::PgConnection;

/// What pages alone ask.
impl PgStore {
    /// Events of a stretch of time, in the order of time; where there are more than the limit, the newest.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn list_events(&self, filter: &EventFilter) -> Result<Vec<Event>, StoreError> {
        self.run_tx("listing events", Read, |tx| Box::pin(list(tx.connection(), filter))).await
    }
}

#[async_trait]
impl Events for PgStore {
    async fn record_event(&self, event: &Event) -> Result<(), StoreError> {
        self.run_tx("recording an event", Write, |tx| Box::pin(record(tx.connection(), event))).await
    }

    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError> {
        self.run_tx("reading events", Browse, |tx| Box::pin(of_job(tx.connection(), id))).await
    }

    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError> {
        self.run_tx("counting events", Read, |tx| Box::pin(count(tx.connection(), kind))).await
    }
}

#[derive(Debug)]
struct EventRow {
    event_id: i64,
    happened_at: Timestamp,
    kind: String,
    job_id: Option<String>,
    node: Option<String>,
    detail: String,
}

impl TryFrom<EventRow> for Event {
    type Error = StoreError;
    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        let key = row.event_id.to_string();
        let place = Place { table: "event", row: &key };
        Ok(Self {
            at: unix_time(row.happened_at),
            kind: row.kind.as_str().into(),
            job_id: row.job_id.map(|id| place.parse("job_id", &id)).transpose()?,
            node: row.node.map(NodeName::new),
            detail: row.detail,
        })
    }
}

pub(super) async fn record(conn: &mut PgConnection, event: &Event) -> Result<(), TxError> {
    sqlx::query!(
        "insert into event (happened_at, kind, job_id, node, detail) values ($1, $2, $3, $4, $5)",
        timestamp(event.at),
        event.kind.to_string(),
        event.job_id.map(|id| id.to_string()),
        event.node.as_ref().map(NodeName::as_str),
        &*text(&event.detail),
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn of_job(conn: &mut PgConnection, id: SlurmJobId) -> Result<Vec<Event>, TxError> {
    let rows = sqlx::query_as!(
        EventRow,
        "select event_id, happened_at, kind, job_id, node, detail from event where job_id = $1 order by event_id",
        id.to_string(),
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(Event::try_from))?)
}

pub(super) async fn list(conn: &mut PgConnection, filter: &EventFilter) -> Result<Vec<Event>, TxError> {
    let nodes: Vec<String> = filter.nodes.iter().map(ToString::to_string).collect();
    let job_ids: Vec<String> = filter.job_ids.iter().map(ToString::to_string).collect();
    let kinds: Vec<String> = filter.kinds.iter().map(ToString::to_string).collect();
    let mut rows = sqlx::query_as!(
        EventRow,
        "select event_id, happened_at, kind, job_id, node, detail from event
        where happened_at >= coalesce($1, '-infinity'::timestamptz)
            and happened_at < coalesce($2, 'infinity'::timestamptz)
            and (cardinality($3::text[]) = 0 or node = any($3))
            and (cardinality($4::text[]) = 0 or job_id = any($4))
            and (cardinality($5::text[]) = 0 or kind = any($5))
            and ($6::bigint is null
                or exists (select from job where job.job_id = event.job_id and job.uid = $6))
        order by happened_at desc, event_id desc limit $7",
        filter.since.map(timestamp),
        filter.until.map(timestamp),
        &nodes,
        &job_ids,
        &kinds,
        filter.uid.map(|uid| i64::from(uid.0)),
        integer_limit(filter.limit),
    )
    .fetch_all(conn)
    .await?;
    rows.reverse();
    Ok(readable(rows.into_iter().map(Event::try_from))?)
}

pub(super) async fn count(conn: &mut PgConnection, kind: &EventKind) -> Result<u64, TxError> {
    let kind = kind.to_string();
    let count = sqlx::query_scalar!(r#"select count(*) as "count!" from event where kind = $1"#, kind)
        .fetch_one(conn)
        .await?;
    Ok(Place { table: "event", row: &kind }.number("count", count)?)
}
