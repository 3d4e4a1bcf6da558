//! Decisions by any filter, for people: what they ask for may be among all that ever was, so it is looked for in steps.

use super::PgStore;
use super::convert::{bigint, integer_limit, timestamp};
use super::decision::load;
use super::tx::Access::Browse;
use super::tx::TxError;
use crate::{Decision, DecisionFilter, LIST_LIMIT_DEFAULT, StoreError};
use pillion_core::DecisionId;
use sqlx::PgConnection;

/// What pages alone ask.
impl PgStore {
    /// Decisions, newest first.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn decisions(&self, filter: &DecisionFilter) -> Result<Vec<Decision>, StoreError> {
        self.run_tx("listing decisions", Browse, |tx| Box::pin(list(tx.connection(), filter))).await
    }
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

/// The decisions that pass the filter, newest first.
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
