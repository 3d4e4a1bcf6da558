//! Table `pairing_decision`: what was chosen for a device, and how far it came.

use super::convert::{Place, Timestamp, bigint, text, timestamp, unix_time};
use super::member::{self, MemberRow};
use super::tx::TxError;
use super::unreadable::readable;
use super::{integer_limit, plan_head};
use crate::store::{Decision, DecisionFilter, LIST_LIMIT_DEFAULT, NOBODY_RAN, NewDecision, StoreError};
use pillion_core::decision::DecisionState;
use pillion_core::{DecisionId, GresType, JobStart, NodeName, Revision, UnixTime};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};

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
            node: NodeName(self.node),
            gres_type: GresType(self.gres_type),
            device_model: self.device_model,
            gain: self.gain,
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
    let id = |id: i64| {
        let row = id.to_string();
        Place { table: "pairing_decision", row: &row }.number("decision_id", id).map(DecisionId)
    };
    Ok(ids.into_iter().map(id).collect::<Result<_, _>>()?)
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

async fn insert(
    conn: &mut PgConnection,
    parent: Revision,
    ids: &[i64],
    decisions: &[NewDecision],
    at: UnixTime,
) -> Result<(), TxError> {
    let text = |of: fn(&NewDecision) -> &str| -> Vec<String> {
        decisions.iter().map(|new| of(new).to_owned()).collect()
    };
    let joins: Vec<Option<i64>> = decisions.iter().map(|new| new.joins.map(|id| bigint(id.0))).collect();
    let modes: Vec<Option<i16>> =
        decisions.iter().map(|new| new.sharing().ccs_mode().map(i16::from)).collect();
    let gains: Vec<f64> = decisions.iter().map(|new| new.gain).collect();
    sqlx::query!(
        "insert into pairing_decision (decision_id, joins_decision_id, parent_revision, state, created_at, node, gres_type,
            device_model, mechanism, ccs_mode, gain)
        overriding system value
        select new.decision_id, new.joins, $1, $2, $3, new.node, new.gres_type, new.device_model, new.mechanism,
            new.ccs_mode, new.gain
        from unnest($4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::smallint[],
            $11::double precision[])
            as new (decision_id, joins, node, gres_type, device_model, mechanism, ccs_mode, gain)",
        bigint(parent.0),
        DecisionState::Planned.as_str(),
        timestamp(at),
        ids,
        &joins as &[Option<i64>],
        &text(|new| new.node.as_str()),
        &text(|new| new.gres_type.as_str()),
        &text(|new| &new.device_model),
        &text(|new| new.sharing().mechanism().as_str()),
        &modes as &[Option<i16>],
        &gains,
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
            abandoned_reason
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
            abandoned_reason
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
    let complete = |row: DecisionRow| {
        let members = members.remove(&row.decision_id).unwrap_or_default();
        row.with(members)
    };
    readable(rows.into_iter().map(complete))
}

/// How many memberships of a user or a workload are looked at in one step, the newest first; and how many steps are gone
/// back where the rest of the filter takes few of them.
const MEMBERSHIPS_MAX: i64 = 5_000;
const STEPS_MAX: usize = 40;

/// The decisions that the filter can mean, where it names a sharing, a job, a workload or a user: found by index. `None`: it
/// names none of them.
async fn of_members(conn: &mut PgConnection, filter: &DecisionFilter) -> Result<Option<Vec<i64>>, TxError> {
    let before = filter.before.map(|id| bigint(id.0));
    let ids = if let Some(group) = filter.group {
        sqlx::query_scalar!("select decision_id from pairing_decision where group_id = $1", bigint(group.0))
            .fetch_all(conn)
            .await?
    } else if let Some(job_id) = filter.job_id {
        let job_id = job_id.to_string();
        sqlx::query_scalar!("select decision_id from pairing_member where job_id = $1", job_id)
            .fetch_all(conn)
            .await?
    } else if let Some(workload) = &filter.workload {
        sqlx::query_scalar!(
            "select decision_id from pairing_member
            where workload = $1 and ($2::bigint is null or decision_id < $2) and ($3 or role <> 'alone')
                and ($5::bigint is null or uid = $5)
            order by decision_id desc limit $4",
            workload,
            before,
            filter.include_single,
            MEMBERSHIPS_MAX,
            filter.uid.map(|uid| i64::from(uid.0)),
        )
        .fetch_all(conn)
        .await?
    } else if let Some(uid) = filter.uid {
        sqlx::query_scalar!(
            "select decision_id from pairing_member
            where uid = $1 and ($2::bigint is null or decision_id < $2) and ($3 or role <> 'alone')
            order by decision_id desc limit $4",
            i64::from(uid.0),
            before,
            filter.include_single,
            MEMBERSHIPS_MAX,
        )
        .fetch_all(conn)
        .await?
    } else {
        return Ok(None);
    };
    Ok(Some(ids))
}

/// Newest first.
pub(super) async fn list(conn: &mut PgConnection, filter: &DecisionFilter) -> Result<Vec<Decision>, TxError> {
    let mut ids = Vec::new();
    let mut step = filter.clone();
    step.limit = if filter.limit == 0 { LIST_LIMIT_DEFAULT } else { filter.limit };
    for _ in 0..STEPS_MAX {
        let of_members = of_members(conn, &step).await?;
        let found = matching(conn, &step, of_members.as_deref()).await?;
        step.limit = step.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        ids.extend(found);
        let cut = of_members.filter(|members| i64::try_from(members.len()) == Ok(MEMBERSHIPS_MAX));
        let Some(oldest) = cut.and_then(|members| members.into_iter().min()) else { break };
        if step.limit == 0 {
            break;
        }
        step.before = u64::try_from(oldest).ok().map(DecisionId);
    }
    let mut decisions = load(conn, &ids).await?;
    decisions.reverse();
    Ok(decisions)
}

/// The decisions that a filter takes, of these where it names members; newest first.
async fn matching(
    conn: &mut PgConnection,
    filter: &DecisionFilter,
    of_members: Option<&[i64]>,
) -> Result<Vec<i64>, TxError> {
    let nodes: Vec<String> = filter.nodes.iter().map(ToString::to_string).collect();
    let ids = sqlx::query_scalar!(
        "select decision_id from pairing_decision as decision
        where (not $1 or state in ('planned', 'released'))
            and ($2::timestamptz is null or created_at >= $2)
            and ($3::timestamptz is null or created_at < $3)
            and ($4::text is null or exists (
                select from pairing_member as member join job using (job_id)
                where member.decision_id = decision.decision_id and job.user_name = $4
                    and ($9::bigint is null or member.uid = $9)))
            and ($5::bigint[] is null or decision_id = any($5))
            and ($6 or 1 < (
                select count(*) from pairing_member join pairing_decision as tenant using (decision_id)
                where tenant.group_id = decision.group_id))
            and ($7::bigint is null or decision_id < $7)
            and (cardinality($8::text[]) = 0 or node = any($8))
            and ($9::bigint is null or exists (
                select from pairing_member as member
                where member.decision_id = decision.decision_id and member.uid = $9))
            and ($10::text is null or exists (
                select from pairing_decision as tenancy join pairing_member as one using (decision_id)
                join pairing_member as other on other.decision_id = any(array(
                    select beside.decision_id from pairing_decision as beside where beside.group_id = decision.group_id))
                where tenancy.group_id = decision.group_id and one.workload = $11 and other.workload = $10
                    and ($9::bigint is null or (one.uid = $9 and other.uid = $9))
                    and (one.job_id, one.restart_count) <> (other.job_id, other.restart_count)))
        order by decision_id desc limit $12",
        filter.active_only,
        filter.since.map(timestamp),
        filter.until.map(timestamp),
        filter.user.as_deref(),
        of_members,
        filter.include_single,
        filter.before.map(|id| bigint(id.0)),
        &nodes,
        filter.uid.map(|uid| i64::from(uid.0)),
        filter.beside.as_deref(),
        filter.workload.as_deref(),
        integer_limit(filter.limit),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids)
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

/// A member of this decision moved: the decision follows.
pub(super) async fn follow(conn: &mut PgConnection, id: DecisionId) -> Result<(), TxError> {
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
