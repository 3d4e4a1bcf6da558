//! Table `pairing_member`: one start of one job under a decision. Its index `pairing_member_active_key` is invariant P-1.

use super::convert::{Place, Timestamp, bigint, integer, timestamp, unix_time};
use super::tx::TxError;
use crate::{Member, MemberStep, NewDecision, NewMember, StoreError};
use pillion_core::device::Mechanism;
use pillion_core::share::SharingColumns;
use pillion_core::{DecisionId, JobStart, Shards, UnixTime, UserId, WorkloadKey};
use pillion_pairing::Role;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct MemberRow {
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
    mig_slot: Option<String>,
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

impl MemberRow {
    /// `mechanism`, `ccs_mode`: the decision's, which are the same for all of its members.
    pub(super) fn under(self, mechanism: Mechanism, ccs_mode: Option<u8>) -> Result<Member, StoreError> {
        let row = self;
        let key = format!("{}, {}", row.decision_id, row.job_id);
        let place = Place { table: "pairing_member", row: &key };
        let shards = Shards::try_new(place.number("shard_count", row.shard_count)?);
        let start = JobStart {
            job_id: place.parse("job_id", &row.job_id)?,
            restart_count: place.number("restart_count", row.restart_count)?,
        };
        let sharing = SharingColumns {
            mechanism: Some(mechanism),
            cap_fraction: place.fraction("cap_fraction", row.cap_fraction)?,
            ccs_mode,
            memory_limit_bytes: place.number_opt("memory_limit_bytes", row.memory_limit_bytes)?,
            mig_slot: place.parse_opt("mig_slot", row.mig_slot.as_deref())?,
        };
        let plan = NewMember {
            start,
            uid: UserId(place.number("uid", row.uid)?),
            workload: WorkloadKey::new(row.workload),
            role: role_from(&row.role).ok_or_else(|| place.corrupt("role"))?,
            sharing: place.sharing(sharing)?,
            shards: shards.map_err(|_| place.corrupt("shard_count"))?,
            memory_bytes: place.number_opt("memory_bytes", row.memory_bytes)?,
            slowdown_ratio_max: row.slowdown_ratio_max,
            estimate: row.estimate.map(|value| place.json("estimate", value)).transpose()?,
            solo_duration_seconds: row.solo_duration_seconds,
            explanation: place.json("explanation", row.explanation)?,
        };
        Ok(Member {
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

/// P-1 before anything is written, so that the culprit has a name: no member is active elsewhere, nor twice in the plan. The
/// index holds it whoever writes.
pub(super) async fn expect_free(conn: &mut PgConnection, decisions: &[NewDecision]) -> Result<(), TxError> {
    let starts = decisions.iter().flat_map(|new| &new.members).map(|member| member.start.job_id);
    let jobs: Vec<String> = starts.clone().map(|job| job.to_string()).collect();
    let active =
        sqlx::query_scalar!("select job_id from pairing_member where active and job_id = any($1)", &jobs)
            .fetch_all(conn)
            .await?;
    let mut taken: BTreeSet<String> = active.into_iter().collect();
    match starts.zip(jobs).find(|(_, word)| !taken.insert(word.clone())) {
        Some((job, _)) => Err(StoreError::Conflict(job).into()),
        None => Ok(()),
    }
}

/// The columns of the members of some decisions.
#[derive(Default)]
struct Columns {
    decision_ids: Vec<i64>,
    job_ids: Vec<String>,
    restart_counts: Vec<i32>,
    positions: Vec<i16>,
    uids: Vec<i64>,
    workloads: Vec<String>,
    roles: Vec<String>,
    caps: Vec<Option<f64>>,
    shard_counts: Vec<i16>,
    memory: Vec<Option<i64>>,
    memory_limits: Vec<Option<i64>>,
    mig_slots: Vec<Option<String>>,
    promises: Vec<f64>,
    estimates: Vec<Option<String>>,
    durations: Vec<Option<f64>>,
    explanations: Vec<String>,
}

/// A value as Postgres reads it: a tree of it would take many times the memory.
pub(super) fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own words have keys that are texts")
}

impl Columns {
    fn add(&mut self, id: i64, position: i16, new: &NewMember) {
        self.decision_ids.push(id);
        self.job_ids.push(new.start.job_id.to_string());
        self.restart_counts.push(integer(new.start.restart_count));
        self.positions.push(position);
        self.uids.push(i64::from(new.uid.0));
        self.workloads.push(new.workload.to_string());
        self.roles.push(role_word(new.role).to_owned());
        self.caps.push(new.sharing.cap().map(f64::from));
        self.shard_counts.push(i16::from(new.shards.count()));
        self.memory.push(new.memory_bytes.map(bigint));
        self.memory_limits.push(new.sharing.memory_limit_bytes().map(bigint));
        self.mig_slots.push(new.sharing.mig_slot().map(String::from));
        self.promises.push(new.slowdown_ratio_max);
        self.estimates.push(new.estimate.as_ref().map(text_of));
        self.durations.push(new.solo_duration_seconds);
        self.explanations.push(text_of(&new.explanation));
    }
}

/// The members of these decisions, whose ids are given.
pub(super) async fn insert(
    conn: &mut PgConnection,
    ids: &[i64],
    decisions: &[NewDecision],
) -> Result<(), TxError> {
    let mut new = Columns::default();
    for (id, decision) in ids.iter().zip(decisions) {
        for (position, member) in (0..).zip(&decision.members) {
            new.add(*id, position, member);
        }
    }
    sqlx::query!(
        "insert into pairing_member (decision_id, job_id, restart_count, position, uid, workload, role, cap_fraction,
            shard_count, memory_bytes, memory_limit_bytes, slowdown_ratio_max, estimate, solo_duration_seconds,
            explanation, mig_slot, state)
        select new.decision_id, new.job_id, new.restart_count, new.position, new.uid, new.workload, new.role, new.cap,
            new.shards, new.memory, new.memory_limit, new.promise, new.estimate::jsonb, new.duration,
            new.explanation::jsonb, new.mig_slot, 'planned'
        from unnest($1::bigint[], $2::text[], $3::integer[], $4::smallint[], $5::bigint[], $6::text[], $7::text[],
            $8::double precision[], $9::smallint[], $10::bigint[], $11::bigint[], $12::double precision[], $13::text[],
            $14::double precision[], $15::text[], $16::text[])
            as new (decision_id, job_id, restart_count, position, uid, workload, role, cap, shards, memory, memory_limit,
                promise, estimate, duration, explanation, mig_slot)",
        &new.decision_ids,
        &new.job_ids,
        &new.restart_counts,
        &new.positions,
        &new.uids,
        &new.workloads,
        &new.roles,
        &new.caps as &[Option<f64>],
        &new.shard_counts,
        &new.memory as &[Option<i64>],
        &new.memory_limits as &[Option<i64>],
        &new.promises,
        &new.estimates as &[Option<String>],
        &new.durations as &[Option<f64>],
        &new.explanations,
        &new.mig_slots as &[Option<String>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Members by decision, the host first.
pub(super) async fn load(
    conn: &mut PgConnection,
    ids: &[i64],
) -> Result<BTreeMap<i64, Vec<MemberRow>>, TxError> {
    let rows = sqlx::query_as!(
        MemberRow,
        "select decision_id, job_id, restart_count, uid, workload, role, cap_fraction, shard_count, memory_bytes,
            memory_limit_bytes, mig_slot, slowdown_ratio_max, estimate, solo_duration_seconds, explanation, state,
            prepared_at, released_at, started_at, ended_at, measured_speed_fraction, energy_joules
        from pairing_member where decision_id = any($1) order by decision_id, position",
        ids
    )
    .fetch_all(conn)
    .await?;
    Ok(by_decision(rows))
}

/// Those of the decisions that are planned or released, without their explanations.
pub(super) async fn load_active(conn: &mut PgConnection) -> Result<BTreeMap<i64, Vec<MemberRow>>, TxError> {
    let rows = sqlx::query_as!(
        MemberRow,
        r#"select decision_id, job_id, restart_count, uid, workload, role, cap_fraction, shard_count, memory_bytes,
            memory_limit_bytes, mig_slot, slowdown_ratio_max, estimate, solo_duration_seconds, 'null'::jsonb as "explanation!",
            member.state, prepared_at, released_at, started_at, ended_at, measured_speed_fraction, energy_joules
        from pairing_member as member join pairing_decision as decision using (decision_id)
        where decision.state in ('planned', 'released') order by decision_id, position"#
    )
    .fetch_all(conn)
    .await?;
    Ok(by_decision(rows))
}

fn by_decision(rows: Vec<MemberRow>) -> BTreeMap<i64, Vec<MemberRow>> {
    let mut of_decision: BTreeMap<i64, Vec<MemberRow>> = BTreeMap::new();
    for row in rows {
        of_decision.entry(row.decision_id).or_default().push(row);
    }
    of_decision
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

/// Compare-and-set: false if the member is no longer in the state that `step` is from. Its decision follows (`decision`).
pub(super) async fn step(conn: &mut PgConnection, step: &MemberStep) -> Result<bool, TxError> {
    let to = step.from.advance(step.to);
    let to = to.map_err(|source| StoreError::Illegal { id: step.decision_id, source })?;
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
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
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
