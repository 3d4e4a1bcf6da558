//! Table `model_version`: every model that was trained. Its index `model_version_active_key` is invariant M-1.

use super::convert::{Place, Timestamp, bigint, integer_limit, text, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, plan_head};
use crate::{MODEL_BODIES_KEPT, ModelState, ModelVersion, Models, NewModel, StoreError};
use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::PgConnection;

#[async_trait]
impl Models for PgStore {
    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError> {
        self.run_tx("keeping a model", Write, |tx| Box::pin(add(tx.connection(), new, incumbent))).await
    }

    async fn active_model(&self) -> Result<Option<u64>, StoreError> {
        self.run_tx("reading which model is active", Read, |tx| Box::pin(active(tx.connection()))).await
    }

    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError> {
        self.run_tx("listing models", Read, |tx| Box::pin(list(tx.connection(), limit))).await
    }

    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError> {
        self.run_tx("reading a model", Read, |tx| Box::pin(body(tx.connection(), version))).await
    }
}

#[derive(Debug)]
struct ModelRow {
    version: i64,
    state: String,
    kind: String,
    trained_at: Timestamp,
    observation_count: i64,
    observation_horizon: i64,
    score: Value,
    reason: String,
}

impl TryFrom<ModelRow> for ModelVersion {
    type Error = StoreError;
    fn try_from(row: ModelRow) -> Result<Self, StoreError> {
        let key = row.version.to_string();
        let place = Place { table: "model_version", row: &key };
        Ok(Self {
            version: place.number("version", row.version)?,
            kind: row.kind,
            state: place.parse("state", &row.state)?,
            trained_at: unix_time(row.trained_at),
            observation_count: place.number("observation_count", row.observation_count)?,
            observation_horizon: place.number("observation_horizon", row.observation_horizon)?,
            score: place.json("score", row.score)?,
            reason: row.reason,
        })
    }
}

fn version_from(version: i64) -> Result<u64, StoreError> {
    let row = version.to_string();
    Place { table: "model_version", row: &row }.number("version", version)
}

/// `Ok(None)`: the model in use is another one, and nothing was stored.
pub(super) async fn add(
    conn: &mut PgConnection,
    new: &NewModel,
    incumbent: Option<u64>,
) -> Result<Option<u64>, TxError> {
    if active(conn).await? != incumbent {
        return Ok(None);
    }
    if new.state == ModelState::Active {
        sqlx::query!("update model_version set state = 'retired' where state = 'active'")
            .execute(&mut *conn)
            .await?;
        plan_head::bump(conn).await?;
    }
    let version = sqlx::query_scalar!(
        "insert into model_version (state, kind, trained_at, observation_count, observation_horizon, score, reason, body)
        values ($1, $2, $3, $4, $5, $6, $7, $8) returning version",
        new.state.as_str(),
        new.kind,
        timestamp(new.trained_at),
        bigint(new.observation_count),
        bigint(new.observation_horizon),
        json!(new.score),
        &*text(&new.reason),
        new.body,
    )
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query!(
        "update model_version set body = null where body is not null and state <> 'active' and version <= $1",
        version - bigint(MODEL_BODIES_KEPT),
    )
    .execute(&mut *conn)
    .await?;
    Ok(Some(version_from(version)?))
}

/// The version of the active model.
pub(super) async fn active(conn: &mut PgConnection) -> Result<Option<u64>, TxError> {
    let version = sqlx::query_scalar!("select version from model_version where state = 'active'")
        .fetch_optional(conn)
        .await?;
    Ok(version.map(version_from).transpose()?)
}

/// Versions, newest first.
pub(super) async fn list(conn: &mut PgConnection, limit: u32) -> Result<Vec<ModelVersion>, TxError> {
    let rows = sqlx::query_as!(
        ModelRow,
        "select version, state, kind, trained_at, observation_count, observation_horizon, score, reason
        from model_version order by version desc limit $1",
        integer_limit(limit),
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(ModelVersion::try_from))?)
}

pub(super) async fn body(conn: &mut PgConnection, version: u64) -> Result<Option<Value>, TxError> {
    let body = sqlx::query_scalar!("select body from model_version where version = $1", bigint(version))
        .fetch_optional(conn)
        .await?;
    Ok(body.flatten())
}
