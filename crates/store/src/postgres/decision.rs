//! Table `pairing_decision`: what was chosen for a device, and how far it came.

use super::convert::{Place, Timestamp, bigint, text, timestamp, unix_time};
use super::member::{self, MemberRow};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, plan_head};
use crate::{Decision, DecisionFilter, Decisions, MemberStep, NOBODY_RAN, NewDecision, StoreError};
use async_trait::async_trait;
use pillion_core::decision::DecisionState;
use pillion_core::{DecisionId, Fraction, JobStart, NodeName, Revision, SlurmJobId, UnixTime};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};

#[async_trait]
impl Decisions for PgStore {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.run_tx("reading the revision", Read, |tx| Box::pin(plan_head::revision(tx.connection()))).await
    }

    async fn commit_plan(
        &self,
        parent: Revision,
        decisions: &[NewDecision],
        at: UnixTime,
    ) -> Result<Vec<DecisionId>, StoreError> {
        self.run_tx("committing a plan", Write, |tx| Box::pin(commit(tx.connection(), parent, decisions, at)))
            .await
    }

    async fn active_decisions(&self) -> Result<Vec<Decision>, StoreError> {
        self.run_tx("reading active decisions", Read, |tx| Box::pin(active(tx.connection()))).await
    }

    async fn decision(&self, id: DecisionId) -> Result<Option<Decision>, StoreError> {
        let ids = [bigint(id.0)];
        let found =
            self.run_tx("reading a decision", Read, |tx| Box::pin(load(tx.connection(), &ids))).await?;
        Ok(found.into_iter().next())
    }

    async fn decisions_of(&self, id: SlurmJobId) -> Result<Vec<Decision>, StoreError> {
        self.decisions(&DecisionFilter {
            job_id: Some(id),
            include_single: true,
            ..DecisionFilter::default()
        })
        .await
    }

    async fn group(&self, group: DecisionId) -> Result<Vec<Decision>, StoreError> {
        let filter = DecisionFilter { group: Some(group), include_single: true, ..DecisionFilter::default() };
        self.decisions(&filter).await
    }

    async fn step_member(&self, step: &MemberStep) -> Result<bool, StoreError> {
        self.run_tx("moving a member", Write, |tx| Box::pin(step_member(tx.connection(), step))).await
    }

    async fn member_prepared(&self, id: DecisionId, start: JobStart, at: UnixTime) -> Result<(), StoreError> {
        self.run_tx("recording that a member is prepared", Write, |tx| {
            Box::pin(member::prepared(tx.connection(), id, start, at))
        })
        .await
    }

    async fn abandon(&self, id: DecisionId, reason: &str, at: UnixTime) -> Result<bool, StoreError> {
        self.run_tx("abandoning a decision", Write, |tx| Box::pin(abandon(tx.connection(), id, reason, at)))
            .await
    }

    async fn record_outcome(
        &self,
        id: DecisionId,
        start: JobStart,
        measured_speed_fraction: Option<f64>,
        energy_joules: Option<f64>,
    ) -> Result<(), StoreError> {
        self.run_tx("recording an outcome", Write, |tx| {
            Box::pin(member::outcome(tx.connection(), id, start, measured_speed_fraction, energy_joules))
        })
        .await
    }
}

#[derive(Debug)]
struct DecisionRow {
    decision_id: i64,
    group_id: i64,
    state: String,
    created_at: Timestamp,
    node: String,
    gres_type: String,
    device_model: String,
    mechanism: String,
    ccs_mode: Option<i16>,
    gain: f64,
    trial_keep_fraction: Option<f64>,
    first_run: Option<serde_json::Value>,
    abandoned_reason: Option<String>,
}

impl DecisionRow {
    /// Without one of its members a decision would say that nobody is there.
    fn with(self, members: Vec<MemberRow>) -> Result<Decision, StoreError> {
        let row = self.decision_id.to_string();
        let place = Place { table: "pairing_decision", row: &row };
        let mechanism = place.parse("mechanism", &self.mechanism)?;
        let ccs_mode = place.number_opt("ccs_mode", self.ccs_mode)?;
        let members = members.into_iter().map(|member| member.under(mechanism, ccs_mode));
        Ok(Decision {
            id: DecisionId(place.number("decision_id", self.decision_id)?),
            group: DecisionId(place.number("group_id", self.group_id)?),
            state: place.parse("state", &self.state)?,
            created_at: unix_time(self.created_at),
            node: NodeName::new(self.node),
            gres_types: place.parse("gres_type", &self.gres_type)?,
            device_model: self.device_model,
            gain: self.gain,
            trial: place.fraction("trial_keep_fraction", self.trial_keep_fraction)?,
            // Of another release: then it is not followed, and all else of the decision counts.
            first_run: self.first_run.and_then(|seen| serde_json::from_value(seen).ok()),
            abandoned_reason: self.abandoned_reason,
            members: members.collect::<Result<_, _>>()?,
        })
    }
}

/// Commits in order; the caller's transaction makes it all or nothing. A few statements for all of it: a plan may start thousands.
pub(super) async fn commit(
    conn: &mut PgConnection,
    parent: Revision,
    decisions: &[NewDecision],
    at: UnixTime,
) -> Result<Vec<DecisionId>, TxError> {
    if decisions.is_empty() {
        plan_head::expect(conn, parent).await?;
        return Ok(Vec::new());
    }
    // From here on nobody else commits: whoever tries waits for this row, and starts anew when we are done.
    plan_head::advance(conn, parent).await?;
    member::expect_free(conn, decisions).await?;
    expect_joined(conn, decisions).await?;
    let ids = take_ids(conn, decisions.len()).await?;
    insert(conn, parent, &ids, decisions, at).await?;
    member::insert(conn, &ids, decisions).await?;
    let ids = ids.into_iter().map(|id| {
        let row = id.to_string();
        Place { table: "pairing_decision", row: &row }.number("decision_id", id).map(DecisionId)
    });
    Ok(ids.collect::<Result<_, _>>()?)
}

/// Every sharing that is joined is there.
async fn expect_joined(conn: &mut PgConnection, decisions: &[NewDecision]) -> Result<(), TxError> {
    let joined: Vec<i64> =
        decisions.iter().filter_map(|decision| decision.joins).map(|id| bigint(id.0)).collect();
    if joined.is_empty() {
        return Ok(());
    }
    let there: BTreeSet<i64> =
        sqlx::query_scalar!("select decision_id from pairing_decision where decision_id = any($1)", &joined)
            .fetch_all(conn)
            .await?
            .into_iter()
            .collect();
    let absent = decisions.iter().filter_map(|new| new.joins).find(|id| !there.contains(&bigint(id.0)));
    absent.map_or(Ok(()), |id| Err(missing(id)))
}

/// So many new ids, in their order.
async fn take_ids(conn: &mut PgConnection, count: usize) -> Result<Vec<i64>, TxError> {
    let mut ids = sqlx::query_scalar!(
        r#"select nextval(pg_get_serial_sequence('pairing_decision', 'decision_id')) as "id!"
        from generate_series(1, $1::bigint)"#,
        i64::try_from(count).unwrap_or(i64::MAX),
    )
    .fetch_all(conn)
    .await?;
    ids.sort_unstable();
    Ok(ids)
}

/// One column of all rows.
fn texts(decisions: &[NewDecision], of: impl Fn(&NewDecision) -> &str) -> Vec<String> {
    decisions.iter().map(|new| of(new).to_owned()).collect()
}

async fn insert(
    conn: &mut PgConnection,
    parent: Revision,
    ids: &[i64],
    decisions: &[NewDecision],
    at: UnixTime,
) -> Result<(), TxError> {
    let joins: Vec<Option<i64>> = decisions.iter().map(|new| new.joins.map(|id| bigint(id.0))).collect();
    let modes: Vec<Option<i16>> =
        decisions.iter().map(|new| new.sharing().ccs_mode().map(i16::from)).collect();
    let gres_types: Vec<String> = decisions.iter().map(|new| new.gres_types.to_string()).collect();
    let gains: Vec<f64> = decisions.iter().map(|new| new.gain).collect();
    let trials: Vec<Option<f64>> = decisions.iter().map(|new| new.trial.map(Fraction::value)).collect();
    let first_runs: Vec<Option<String>> =
        decisions.iter().map(|new| new.first_run.as_ref().map(member::text_of)).collect();
    sqlx::query!(
        "insert into pairing_decision (decision_id, joins_decision_id, parent_revision, state, created_at, node, gres_type,
            device_model, mechanism, ccs_mode, gain, trial_keep_fraction, first_run)
        overriding system value
        select new.decision_id, new.joins, $1, $2, $3, new.node, new.gres_type, new.device_model, new.mechanism,
            new.ccs_mode, new.gain, new.trial, new.first_run::jsonb
        from unnest($4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::smallint[],
            $11::double precision[], $12::double precision[], $13::text[])
            as new (decision_id, joins, node, gres_type, device_model, mechanism, ccs_mode, gain, trial, first_run)",
        bigint(parent.0),
        DecisionState::Planned.as_str(),
        timestamp(at),
        ids,
        &joins as &[Option<i64>],
        &texts(decisions, |new| new.node.as_str()),
        &gres_types,
        &texts(decisions, |new| &new.device_model),
        &texts(decisions, |new| new.sharing().mechanism().as_str()),
        &modes as &[Option<i16>],
        &gains,
        &trials as &[Option<f64>],
        &first_runs as &[Option<String>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn missing(id: DecisionId) -> TxError {
    StoreError::Missing(format!("decision {id}")).into()
}

/// Reads these decisions with their members, in the order of their ids; those that cannot be read are passed over.
pub(super) async fn load(conn: &mut PgConnection, ids: &[i64]) -> Result<Vec<Decision>, TxError> {
    let rows = sqlx::query_as!(
        DecisionRow,
        "select decision_id, group_id, state, created_at, node, gres_type, device_model, mechanism, ccs_mode, gain,
            trial_keep_fraction, first_run, abandoned_reason
        from pairing_decision where decision_id = any($1) order by decision_id",
        ids
    )
    .fetch_all(&mut *conn)
    .await?;
    let members = member::load(conn, ids).await?;
    Ok(complete(rows, members)?)
}

/// Planned or released, oldest first, without explanations.
pub(super) async fn active(conn: &mut PgConnection) -> Result<Vec<Decision>, TxError> {
    let rows = sqlx::query_as!(
        DecisionRow,
        "select decision_id, group_id, state, created_at, node, gres_type, device_model, mechanism, ccs_mode, gain,
            trial_keep_fraction, first_run, abandoned_reason
        from pairing_decision where state in ('planned', 'released') order by decision_id"
    )
    .fetch_all(&mut *conn)
    .await?;
    let members = member::load_active(conn).await?;
    Ok(complete(rows, members)?)
}

fn complete(
    rows: Vec<DecisionRow>,
    mut members: BTreeMap<i64, Vec<MemberRow>>,
) -> Result<Vec<Decision>, StoreError> {
    readable(rows.into_iter().map(|row| {
        let members = members.remove(&row.decision_id).unwrap_or_default();
        row.with(members)
    }))
}

/// The newest decision that each of these starts was released under; `None`: it cannot be read.
pub(super) async fn ran_under(
    conn: &mut PgConnection,
    starts: &[JobStart],
) -> Result<BTreeMap<JobStart, Option<Decision>>, TxError> {
    let mut newest = BTreeMap::new();
    for start in starts {
        if let Some(id) = member::ran_under(conn, *start).await? {
            newest.insert(*start, id);
        }
    }
    let ids: Vec<i64> = newest.values().copied().collect();
    let decisions = load(conn, &ids).await?;
    let by_id: BTreeMap<i64, Decision> = decisions.into_iter().map(|one| (bigint(one.id.0), one)).collect();
    Ok(newest.into_iter().map(|(start, id)| (start, by_id.get(&id).cloned())).collect())
}

/// Compare-and-set of a member's state, and what follows from it for its decision.
async fn step_member(conn: &mut PgConnection, step: &MemberStep) -> Result<bool, TxError> {
    if !member::step(conn, step).await? {
        return Ok(false);
    }
    follow(conn, step.decision_id).await?;
    Ok(true)
}

/// A member of this decision moved: the decision follows.
async fn follow(conn: &mut PgConnection, id: DecisionId) -> Result<(), TxError> {
    let row = id.to_string();
    let place = Place { table: "pairing_decision", row: &row };
    let state =
        sqlx::query_scalar!("select state from pairing_decision where decision_id = $1", bigint(id.0))
            .fetch_optional(&mut *conn)
            .await?;
    let from: DecisionState = place.parse("state", &state.ok_or_else(|| missing(id))?)?;
    let states = sqlx::query_scalar!("select state from pairing_member where decision_id = $1", bigint(id.0))
        .fetch_all(&mut *conn)
        .await?;
    let member = Place { table: "pairing_member", row: &row };
    let members = states.iter().map(|state| member.parse("state", state)).collect::<Result<Vec<_>, _>>()?;
    let to = from.after(&members);
    if to != from {
        let reason = (to == DecisionState::Abandoned).then_some(NOBODY_RAN);
        sqlx::query!(
            "update pairing_decision set state = $2, abandoned_reason = $3 where decision_id = $1",
            bigint(id.0),
            to.as_str(),
            reason,
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// Only while none of its members was released.
pub(super) async fn abandon(
    conn: &mut PgConnection,
    id: DecisionId,
    reason: &str,
    at: UnixTime,
) -> Result<bool, TxError> {
    let done = sqlx::query!(
        "update pairing_decision set state = 'abandoned', abandoned_reason = $2
        where decision_id = $1 and state = 'planned'",
        bigint(id.0),
        &*text(reason),
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!(
        "update pairing_member set state = 'undone', ended_at = $2 where decision_id = $1 and state = 'planned'",
        bigint(id.0),
        timestamp(at),
    )
    .execute(conn)
    .await?;
    Ok(true)
}
