//! Table `pairing_member`: one start of one job under a decision. Its index `pairing_member_active_key` is invariant P-1.

use super::convert::{Place, Timestamp, bigint, integer, timestamp, unix_time};
use super::decision;
use super::tx::TxError;
use crate::store::{Member, MemberStep, NewMember, StoreError};
use pillion_core::{DecisionId, JobStart, Shards, UnixTime, UserId, WorkloadKey};
use pillion_pairing::Role;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeMap;

#[derive(Debug)]
struct MemberRow {
    decision_id: i64,
    job_id: String,
    restart_count: i32,
    uid: i64,
    workload: String,
    role: String,
    cap_fraction: Option<f64>,
    shard_count: i16,
    memory_bytes: Option<i64>,
    memory_limit_bytes: Option<i64>,
    slowdown_ratio_max: f64,
    estimate: Option<Value>,
    solo_duration_seconds: Option<f64>,
    explanation: Value,
    state: String,
    prepared_at: Option<Timestamp>,
    released_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    measured_speed_fraction: Option<f64>,
    energy_joules: Option<f64>,
}

impl TryFrom<MemberRow> for Member {
    type Error = StoreError;
    fn try_from(row: MemberRow) -> Result<Self, StoreError> {
        let key = format!("{}, {}", row.decision_id, row.job_id);
        let place = Place { table: "pairing_member", row: &key };
        let shards = Shards::try_new(place.number("shard_count", row.shard_count)?);
        let start = JobStart {
            job_id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
        };
        let plan = NewMember {
            start,
            uid: UserId(place.number("uid", row.uid)?),
            workload: WorkloadKey(row.workload),
            role: role_from(&row.role).ok_or_else(|| place.corrupt("role"))?,
            cap_fraction: place.fraction("cap_fraction", row.cap_fraction)?,
            shards: shards.map_err(|_| place.corrupt("shard_count"))?,
            memory_bytes: place.number_opt("memory_bytes", row.memory_bytes)?,
            memory_limit_bytes: place.number_opt("memory_limit_bytes", row.memory_limit_bytes)?,
            slowdown_ratio_max: row.slowdown_ratio_max,
            estimate: row.estimate.map(|value| place.json("estimate", value)).transpose()?,
            solo_duration_seconds: row.solo_duration_seconds,
            explanation: place.json("explanation", row.explanation)?,
        };
        Ok(Self {
            plan,
            state: place.parse("state", &row.state)?,
            prepared_at: row.prepared_at.map(unix_time),
            released_at: row.released_at.map(unix_time),
            started_at: row.started_at.map(unix_time),
            ended_at: row.ended_at.map(unix_time),
            measured_speed_fraction: row.measured_speed_fraction,
            energy_joules: row.energy_joules,
        })
    }
}

pub(super) async fn insert(
    conn: &mut PgConnection,
    id: DecisionId,
    position: i16,
    new: &NewMember,
) -> Result<(), TxError> {
    let inserted = sqlx::query!(
        "insert into pairing_member (decision_id, job_id, restart_count, position, uid, workload, role, cap_fraction,
            shard_count, memory_bytes, memory_limit_bytes, slowdown_ratio_max, estimate, solo_duration_seconds,
            explanation, state)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 'planned')",
        bigint(id.0),
        new.start.job_id.to_string(),
        integer(new.start.restart_count),
        position,
        i64::from(new.uid.0),
        new.workload.as_str(),
        role_word(new.role),
        new.cap_fraction.map(f64::from),
        i16::from(new.shards.count()),
        new.memory_bytes.map(bigint),
        new.memory_limit_bytes.map(bigint),
        new.slowdown_ratio_max,
        new.estimate.as_ref().map(|estimate| json!(estimate)),
        new.solo_duration_seconds,
        json!(new.explanation),
    )
    .execute(conn)
    .await;
    match inserted {
        Ok(_) => Ok(()),
        // The key of the table forbids a job twice in one decision, the index a job in two active ones.
        Err(error)
            if super::violates(&error, "pairing_member_active_key")
                || super::violates(&error, "pairing_member_pkey") =>
        {
            Err(StoreError::Conflict(new.start.job_id).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Members by decision, the host first; an error where one of them cannot be read.
pub(super) async fn load(
    conn: &mut PgConnection,
    ids: &[i64],
) -> Result<BTreeMap<i64, Result<Vec<Member>, StoreError>>, TxError> {
    let rows = sqlx::query_as!(
        MemberRow,
        "select decision_id, job_id, restart_count, uid, workload, role, cap_fraction, shard_count, memory_bytes,
            memory_limit_bytes, slowdown_ratio_max, estimate, solo_duration_seconds, explanation, state, prepared_at,
            released_at, started_at, ended_at, measured_speed_fraction, energy_joules
        from pairing_member where decision_id = any($1) order by decision_id, position",
        ids
    )
    .fetch_all(conn)
    .await?;
    let mut of_decision: BTreeMap<i64, Result<Vec<Member>, StoreError>> = BTreeMap::new();
    for row in rows {
        let members = of_decision.entry(row.decision_id).or_insert_with(|| Ok(Vec::new()));
        match (Member::try_from(row), members) {
            (Ok(member), Ok(members)) => members.push(member),
            (Err(error), members @ Ok(_)) => *members = Err(error),
            (_, Err(_)) => {}
        }
    }
    Ok(of_decision)
}

/// The newest decision that a start was released under.
pub(super) async fn ran_under(conn: &mut PgConnection, start: JobStart) -> Result<Option<i64>, TxError> {
    let newest = sqlx::query_scalar!(
        "select max(decision_id) from pairing_member
        where job_id = $1 and restart_count = $2 and state in ('released', 'running', 'ended')",
        start.job_id.to_string(),
        integer(start.restart_count),
    )
    .fetch_one(conn)
    .await?;
    Ok(newest)
}

/// Compare-and-set.
pub(super) async fn step(conn: &mut PgConnection, step: &MemberStep) -> Result<bool, TxError> {
    let illegal = |source| StoreError::Illegal { id: step.decision_id, source };
    let to = step.from.advance(step.to).map_err(illegal)?;
    let done = sqlx::query!(
        "update pairing_member set state = $5,
            released_at = case when $5 = 'released' then $6 else released_at end,
            started_at = case when $5 = 'running' then $6 else started_at end,
            ended_at = case when $5 in ('ended', 'undone') then $6 else ended_at end
        where decision_id = $1 and job_id = $2 and restart_count = $3 and state = $4",
        bigint(step.decision_id.0),
        step.start.job_id.to_string(),
        integer(step.start.restart_count),
        step.from.as_str(),
        to.as_str(),
        timestamp(step.at),
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    decision::follow(conn, step.decision_id).await?;
    Ok(true)
}

/// The first time counts.
pub(super) async fn prepared(
    conn: &mut PgConnection,
    id: DecisionId,
    start: JobStart,
    at: UnixTime,
) -> Result<(), TxError> {
    let done = sqlx::query!(
        "update pairing_member set prepared_at = coalesce(prepared_at, $4)
        where decision_id = $1 and job_id = $2 and restart_count = $3",
        bigint(id.0),
        start.job_id.to_string(),
        integer(start.restart_count),
        timestamp(at),
    )
    .execute(conn)
    .await?;
    exactly_one(done.rows_affected(), id, start)
}

pub(super) async fn outcome(
    conn: &mut PgConnection,
    id: DecisionId,
    start: JobStart,
    measured_speed_fraction: Option<f64>,
    energy_joules: Option<f64>,
) -> Result<(), TxError> {
    let done = sqlx::query!(
        "update pairing_member set measured_speed_fraction = $4, energy_joules = $5
        where decision_id = $1 and job_id = $2 and restart_count = $3",
        bigint(id.0),
        start.job_id.to_string(),
        integer(start.restart_count),
        measured_speed_fraction,
        energy_joules,
    )
    .execute(conn)
    .await?;
    exactly_one(done.rows_affected(), id, start)
}

fn exactly_one(rows: u64, id: DecisionId, start: JobStart) -> Result<(), TxError> {
    if rows == 1 {
        return Ok(());
    }
    let what =
        if rows == 0 { format!("member {start} of decision {id}") } else { format!("one member {start}") };
    Err(StoreError::Missing(what).into())
}

const fn role_word(role: Role) -> &'static str {
    match role {
        Role::Host => "host",
        Role::Joiner => "joiner",
        Role::Alone => "alone",
    }
}

pub(super) fn role_from(word: &str) -> Option<Role> {
    [Role::Host, Role::Joiner, Role::Alone].into_iter().find(|role| role_word(*role) == word)
}
