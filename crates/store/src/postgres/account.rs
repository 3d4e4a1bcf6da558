//! Tables `run_account` and `account_hour`: what each run used and gained, and the same summed by the hour.

use super::convert::{counted, integer, text, timestamp};
use super::tx::Access::Browse;
use super::tx::TxError;
use super::{PgStore, charge, slice};
use crate::accounts::whole_hours;
use crate::{Account, GroupBy, MemoryAlarms, RunAccount, RunFilter, StoreError, Sums};
use pillion_core::{GresType, JobStart};
use sqlx::PgConnection;

/// What pages alone ask.
impl PgStore {
    /// What profiled runs used and gained, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn accounts(&self, filter: &RunFilter, group_by: GroupBy) -> Result<Vec<Account>, StoreError> {
        self.run_tx("reading what runs gained", Browse, |tx| {
            Box::pin(sums(tx.connection(), filter, group_by))
        })
        .await
    }

    /// Of how many of these runs it was said that they would run out of memory, and of how many that came true.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn memory_alarms(&self, filter: &RunFilter) -> Result<MemoryAlarms, StoreError> {
        self.run_tx("reading of how many runs it was said that they would run out of memory", Browse, |tx| {
            Box::pin(memory_alarms(tx.connection(), filter))
        })
        .await
    }
}

/// Of the runs that a filter means.
async fn memory_alarms(conn: &mut PgConnection, filter: &RunFilter) -> Result<MemoryAlarms, TxError> {
    let RunFilter { since, until, user, account, partition, workload, nodes, uid } = filter;
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    // The run that it was told of is the first of its job that ended afterwards; how it ended is judged soon after that. Of one that
    // we ended for it nobody knows what would have become of it.
    let row = sqlx::query!(
        r#"select count(*) as "told!", count(*) filter (where exists (
                select from event after where after.job_id = alarm.job_id and after.kind = 'out-of-memory'
                    and after.happened_at >= alarm.happened_at
                    and after.happened_at < run.ended_at + interval '10 minutes')) as "came_true!"
        from event alarm cross join lateral (
            select * from run_account where job_id = alarm.job_id and ended_at >= alarm.happened_at
            order by ended_at limit 1) run
        where alarm.kind = 'memory-growing' and run.ended_at >= $1 and run.ended_at < $2
            and not exists (
                select from job_requeue acted where acted.job_id = run.job_id and acted.restart_count = run.restart_count
                    and acted.cause = 'memory-growing' and acted.outcome = 'requeued')
            and ($3::text is null or run.user_name = $3) and ($4::text is null or run.account = $4)
            and ($5::text is null or run.partition_name = $5) and ($6::text is null or run.workload = $6)
            and (cardinality($7::text[]) = 0 or run.node = any($7)) and ($8::bigint is null or run.uid = $8)"#,
        timestamp(*since),
        timestamp(*until),
        user.as_deref(),
        account.as_deref(),
        partition.as_deref(),
        workload.as_deref(),
        &nodes,
        uid.map(|uid| i64::from(uid.0)),
    )
    .fetch_one(conn)
    .await?;
    Ok(MemoryAlarms { told: counted(row.told), came_true: counted(row.came_true) })
}

/// Keeps the account of a run that has none yet, and adds it to its hour: in the transaction that marks the run.
pub(super) async fn insert(
    conn: &mut PgConnection,
    start: JobStart,
    gres_type: &GresType,
    run: &RunAccount,
) -> Result<(), TxError> {
    let RunAccount {
        uid,
        user,
        account,
        partition,
        workload,
        node,
        ended_at,
        sums,
        use_beyond_fraction: _,
        slice,
    } = run;
    sqlx::query!(
        "with run as (
            insert into run_account (job_id, restart_count, gres_type, ended_at, node, uid, user_name, account,
                partition_name, workload, shared_run_count, gpu_seconds, shared_seconds, unmeasured_seconds,
                gpu_seconds_saved, energy_joules, energy_joules_saved, promises_kept, promises_broken, sent_back_run_count,
                mig_profile)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
            returning *)
        insert into account_hour as hour (hour, uid, user_name, account, partition_name, workload, run_count,
            shared_run_count, gpu_seconds, shared_seconds, unmeasured_seconds, gpu_seconds_saved, energy_joules,
            energy_joules_saved, promises_kept, promises_broken, sent_back_run_count)
        select date_trunc('hour', ended_at, 'UTC'), uid, user_name, account, partition_name, workload, 1,
            shared_run_count, gpu_seconds, shared_seconds, unmeasured_seconds, gpu_seconds_saved, energy_joules,
            energy_joules_saved, promises_kept, promises_broken, sent_back_run_count
        from run
        on conflict on constraint account_hour_pkey do update set
            run_count = hour.run_count + excluded.run_count,
            shared_run_count = hour.shared_run_count + excluded.shared_run_count,
            gpu_seconds = hour.gpu_seconds + excluded.gpu_seconds,
            shared_seconds = hour.shared_seconds + excluded.shared_seconds,
            unmeasured_seconds = hour.unmeasured_seconds + excluded.unmeasured_seconds,
            gpu_seconds_saved = hour.gpu_seconds_saved + excluded.gpu_seconds_saved,
            energy_joules = hour.energy_joules + excluded.energy_joules,
            energy_joules_saved = hour.energy_joules_saved + excluded.energy_joules_saved,
            promises_kept = hour.promises_kept + excluded.promises_kept,
            promises_broken = hour.promises_broken + excluded.promises_broken,
            sent_back_run_count = hour.sent_back_run_count + excluded.sent_back_run_count",
        start.job_id.to_string(),
        integer(start.restart_count),
        gres_type.as_str(),
        timestamp(*ended_at),
        node.as_str(),
        i64::from(uid.0),
        &*text(user),
        &*text(account),
        &*text(partition),
        &*text(workload.as_str()),
        integer(sums.shared_run_count),
        sums.gpu_seconds,
        sums.shared_seconds,
        sums.unmeasured_seconds,
        sums.gpu_seconds_saved,
        sums.energy_joules,
        sums.energy_joules_saved,
        integer(sums.promises_kept),
        integer(sums.promises_broken),
        integer(sums.sent_back_run_count),
        slice.as_ref().map(|slice| slice.profile.to_string()),
    )
    .execute(&mut *conn)
    .await?;
    charge::add(conn, run).await?;
    slice::add(conn, run).await
}

#[derive(Debug)]
struct SumRow {
    key: String,
    run_count: i64,
    shared_run_count: i64,
    gpu_seconds: f64,
    shared_seconds: f64,
    unmeasured_seconds: f64,
    gpu_seconds_saved: f64,
    energy_joules: f64,
    energy_joules_saved: f64,
    promises_kept: i64,
    promises_broken: i64,
    sent_back_run_count: i64,
}

impl From<SumRow> for Account {
    fn from(row: SumRow) -> Self {
        let sums = Sums {
            run_count: counted(row.run_count),
            shared_run_count: counted(row.shared_run_count),
            gpu_seconds: row.gpu_seconds,
            shared_seconds: row.shared_seconds,
            unmeasured_seconds: row.unmeasured_seconds,
            gpu_seconds_saved: row.gpu_seconds_saved,
            energy_joules: row.energy_joules,
            energy_joules_saved: row.energy_joules_saved,
            promises_kept: counted(row.promises_kept),
            promises_broken: counted(row.promises_broken),
            sent_back_run_count: counted(row.sent_back_run_count),
        };
        Self { key: row.key, sums }
    }
}

/// In the order of keys: whole hours from their sums, what is before and after them from the runs.
pub(super) async fn sums(
    conn: &mut PgConnection,
    filter: &RunFilter,
    group_by: GroupBy,
) -> Result<Vec<Account>, TxError> {
    let RunFilter { since, until, user, account, partition, workload, nodes, uid } = filter;
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let (first, last) = whole_hours(filter, group_by);
    let utc_offset_seconds =
        if let GroupBy::Day { utc_offset_seconds } = group_by { utc_offset_seconds } else { 0 };
    let rows = sqlx::query_as!(
        SumRow,
        r#"with part as (
            select hour as at, ''::text as node, null::text as mig_profile, uid, user_name, account, partition_name, workload, run_count,
                shared_run_count, gpu_seconds, shared_seconds, unmeasured_seconds, gpu_seconds_saved, energy_joules,
                energy_joules_saved, promises_kept, promises_broken, sent_back_run_count
            from account_hour where hour >= $3 and hour < $4
            union all
            select ended_at, node, mig_profile, uid, user_name, account, partition_name, workload, 1, shared_run_count, gpu_seconds,
                shared_seconds, unmeasured_seconds, gpu_seconds_saved, energy_joules, energy_joules_saved,
                promises_kept, promises_broken, sent_back_run_count
            from run_account
            where ((ended_at >= $1 and ended_at < $3) or (ended_at >= $4 and ended_at < $2))
                and (cardinality($9::text[]) = 0 or node = any($9)))
        select case $11::text when 'user' then user_name when 'account' then account when 'partition' then partition_name
                when 'workload' then workload when 'node' then node when 'instance' then coalesce(mig_profile, 'none')
                when 'day' then ((at at time zone 'UTC') + make_interval(secs => $12))::date::text
                else '' end as "key!",
            sum(run_count) as "run_count!", sum(shared_run_count) as "shared_run_count!",
            sum(gpu_seconds) as "gpu_seconds!", sum(shared_seconds) as "shared_seconds!",
            sum(unmeasured_seconds) as "unmeasured_seconds!", sum(gpu_seconds_saved) as "gpu_seconds_saved!",
            sum(energy_joules) as "energy_joules!", sum(energy_joules_saved) as "energy_joules_saved!",
            sum(promises_kept) as "promises_kept!", sum(promises_broken) as "promises_broken!",
            sum(sent_back_run_count) as "sent_back_run_count!"
        from part
        where ($5::text is null or user_name = $5) and ($6::text is null or account = $6)
            and ($7::text is null or partition_name = $7) and ($8::text is null or workload = $8)
            and ($10::bigint is null or uid = $10)
        group by 1"#,
        timestamp(*since),
        timestamp(*until),
        timestamp(first),
        timestamp(last),
        user.as_deref(),
        account.as_deref(),
        partition.as_deref(),
        workload.as_deref(),
        &nodes,
        uid.map(|uid| i64::from(uid.0)),
        group_by.word(),
        f64::from(utc_offset_seconds),
    )
    .fetch_all(conn)
    .await?;
    let mut accounts: Vec<Account> = rows.into_iter().map(Account::from).collect();
    accounts.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(accounts)
}
