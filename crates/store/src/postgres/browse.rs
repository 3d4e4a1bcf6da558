//! Sums and short rows over several tables, for people. Each is bounded by what is active now or by a number of rows.

use super::PgStore;
use super::convert::{Place, Timestamp, counted, timestamp, unix_time};
use super::member::role_from;
use super::tx::Access::Browse;
use super::tx::TxError;
use super::unreadable::readable;
use crate::{Heat, HeatCell, HeatFilter, Occupancy, StoreError, Tenant, UsedOfStarts};
use pillion_core::share::SharingColumns;
use pillion_core::{DecisionId, GresType, NodeName, Shards, SlurmJobId, UnixTime, UserId, WorkloadKey};
use sqlx::PgConnection;

/// What pages alone ask.
impl PgStore {
    /// Every device that somebody holds or is about to.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn occupancy(&self) -> Result<Vec<Occupancy>, StoreError> {
        self.run_tx("reading who holds devices", Browse, |tx| Box::pin(occupancy(tx.connection()))).await
    }

    /// Who holds the devices of these nodes, in the order of their decisions.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn tenants(&self, nodes: &[NodeName]) -> Result<Vec<Tenant>, StoreError> {
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        self.run_tx("reading tenants", Browse, |tx| Box::pin(tenants(tx.connection(), &nodes))).await
    }

    /// Where those of these jobs are that hold a device or are about to, in the order of their decisions.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn tenancies(&self, jobs: &[SlurmJobId]) -> Result<Vec<Tenant>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let jobs = jobs.as_slice();
        self.run_tx("reading where jobs are", Browse, |tx| Box::pin(tenancies(tx.connection(), jobs))).await
    }

    /// What sharing did to each workload beside each other one.
    ///
    /// # Errors
    /// [`StoreError`] while the database does not respond.
    pub async fn heat(&self, filter: &HeatFilter) -> Result<Heat, StoreError> {
        self.run_tx("reading outcomes", Browse, |tx| Box::pin(heat(tx.connection(), filter))).await
    }
}

/// Devices that somebody holds or is about to.
pub(super) async fn occupancy(conn: &mut PgConnection) -> Result<Vec<Occupancy>, TxError> {
    let rows = sqlx::query!(
        r#"select decision.node, device.gres_type as "gres_type!", count(*) as "tenant_count!"
        from pairing_decision as decision
        join pairing_member as member using (decision_id)
        cross join lateral unnest(string_to_array(decision.gres_type, ',')) as device (gres_type)
        where decision.state in ('planned', 'released') and member.active
        group by decision.node, device.gres_type"#
    )
    .fetch_all(conn)
    .await?;
    let occupancy = rows.into_iter().map(|row| Occupancy {
        node: NodeName::new(row.node),
        gres_type: GresType::new(row.gres_type),
        tenant_count: u32::try_from(row.tenant_count).unwrap_or(u32::MAX),
    });
    Ok(occupancy.collect())
}

#[derive(Debug)]
struct TenantRow {
    decision_id: i64,
    node: String,
    gres_type: String,
    mechanism: String,
    ccs_mode: Option<i16>,
    job_id: String,
    uid: i64,
    user_name: Option<String>,
    workload: String,
    role: String,
    state: String,
    cap_fraction: Option<f64>,
    shard_count: i16,
    speed_fraction: Option<f64>,
    started_at: Option<Timestamp>,
    mig_slot: Option<String>,
}

impl TryFrom<TenantRow> for Tenant {
    type Error = StoreError;
    fn try_from(row: TenantRow) -> Result<Self, StoreError> {
        let key = format!("{}, {}", row.decision_id, row.job_id);
        let place = Place { table: "pairing_member", row: &key };
        let shards = Shards::try_new(place.number("shard_count", row.shard_count)?);
        Ok(Self {
            decision_id: DecisionId(place.number("decision_id", row.decision_id)?),
            node: NodeName::new(row.node),
            gres_types: place.parse("gres_type", &row.gres_type)?,
            job_id: place.parse("job_id", &row.job_id)?,
            uid: UserId(place.number("uid", row.uid)?),
            user: row.user_name,
            workload: WorkloadKey::new(row.workload),
            role: role_from(&row.role).ok_or_else(|| place.corrupt("role"))?,
            state: place.parse("state", &row.state)?,
            sharing: place.sharing(SharingColumns {
                mechanism: Some(place.parse("mechanism", &row.mechanism)?),
                cap_fraction: place.fraction("cap_fraction", row.cap_fraction)?,
                ccs_mode: place.number_opt("ccs_mode", row.ccs_mode)?,
                memory_limit_bytes: None,
                mig_slot: place.parse_opt("mig_slot", row.mig_slot.as_deref())?,
            })?,
            shards: shards.map_err(|_| place.corrupt("shard_count"))?,
            speed_fraction: row.speed_fraction,
            started_at: row.started_at.map(unix_time),
        })
    }
}

/// Active members whose row fulfils a condition. A macro, since sqlx checks literals.
macro_rules! tenants_that {
    ($condition:literal, $values:expr, $conn:expr) => {
        sqlx::query_as!(
            TenantRow,
            r#"select decision.decision_id, decision.node, decision.gres_type, decision.mechanism, decision.ccs_mode, member.job_id,
                member.uid, job.user_name as "user_name?", member.workload, member.role, member.state,
                member.cap_fraction, member.shard_count, member.mig_slot,
                (member.estimate ->> 'speed_fraction')::double precision as speed_fraction, member.started_at
            from pairing_decision as decision
            join pairing_member as member using (decision_id)
            left join job on job.job_id = member.job_id
            where decision.state in ('planned', 'released') and member.active and "#
                + $condition
                + r#" order by decision.decision_id, member.position"#,
            $values
        )
        .fetch_all($conn)
    };
}

/// Who holds the devices of these nodes, in the order of their decisions.
pub(super) async fn tenants(conn: &mut PgConnection, nodes: &[String]) -> Result<Vec<Tenant>, TxError> {
    let rows = tenants_that!("decision.node = any($1)", nodes, conn).await?;
    Ok(readable(rows.into_iter().map(Tenant::try_from))?)
}

/// Where these jobs are, in the order of their decisions.
pub(super) async fn tenancies(conn: &mut PgConnection, jobs: &[String]) -> Result<Vec<Tenant>, TxError> {
    let rows = tenants_that!("member.job_id = any($1)", jobs, conn).await?;
    Ok(readable(rows.into_iter().map(Tenant::try_from))?)
}

/// Outcomes joined with the members of the same sharing that ran at the same time.
pub(super) async fn heat(conn: &mut PgConnection, filter: &HeatFilter) -> Result<Heat, TxError> {
    let HeatFilter { since, until, workload, uid, limit } = filter;
    let rows = sqlx::query!(
        r#"with outcome as materialized (
            select decision_id, job_id, restart_count, workload, measured_speed_fraction, slowdown_ratio_max,
                (estimate ->> 'speed_fraction')::double precision as speed_fraction, energy_joules, started_at, ended_at
            from pairing_member
            where measured_speed_fraction is not null and measured_speed_fraction > 0 and ended_at >= $1 and ended_at < $2
                and ($3::text is null or workload = $3) and ($4::bigint is null or uid = $4)
            order by ended_at desc limit $5)
        select outcome.workload, other.workload as beside, count(*) as "outcome_count!",
            avg(1 / outcome.measured_speed_fraction) as "slowdown_ratio!",
            avg(1 / nullif(outcome.speed_fraction, 0)) as predicted_slowdown_ratio,
            sum(outcome.energy_joules) filter (where profile.energy_joules > 0)
                / nullif(sum(profile.energy_joules) filter (where outcome.energy_joules is not null), 0) as energy_ratio,
            count(*) filter (where outcome.measured_speed_fraction * outcome.slowdown_ratio_max < 1) as "promises_broken!",
            (select count(*) from outcome) as "read_count!"
        from outcome
        join pairing_decision as decision on decision.decision_id = outcome.decision_id
        join pairing_decision as tenancy on tenancy.group_id = decision.group_id
        join pairing_member as other on other.decision_id = tenancy.decision_id
            and (other.job_id, other.restart_count) <> (outcome.job_id, outcome.restart_count)
            and other.started_at < outcome.ended_at
            and (other.ended_at is null or other.ended_at > outcome.started_at)
            and ($4::bigint is null or other.uid = $4)
        left join workload_profile as profile
            on profile.workload = outcome.workload and profile.device_model = decision.device_model
        group by outcome.workload, other.workload
        order by 3 desc, 1, 2"#,
        timestamp(*since),
        timestamp(*until),
        workload.as_deref(),
        uid.map(|uid| i64::from(uid.0)),
        i64::from(*limit),
    )
    .fetch_all(conn)
    .await?;
    let outcome_count = rows.first().map_or(0, |row| counted(row.read_count));
    let cells = rows.into_iter().map(|row| HeatCell {
        workload: WorkloadKey::new(row.workload),
        beside: WorkloadKey::new(row.beside),
        outcome_count: counted(row.outcome_count),
        slowdown_ratio: row.slowdown_ratio,
        predicted_slowdown_ratio: row.predicted_slowdown_ratio,
        energy_ratio: row.energy_ratio,
        promises_broken: counted(row.promises_broken),
    });
    Ok(Heat { cells: cells.collect(), outcome_count })
}

impl PgStore {
    /// Of starts that ended since then and held several devices: by workload and number of devices, how many of these were used at
    /// most. Used is one on which a process of the job was seen, or work, or which was not looked at for half of its time.
    ///
    /// # Errors
    /// [`StoreError`] where the server is away.
    pub async fn used_devices(&self, since: UnixTime) -> Result<Vec<UsedOfStarts>, StoreError> {
        let since = timestamp(since);
        self.run_tx("reading how many devices were used", Browse, |tx| {
            Box::pin(used_devices(tx.connection(), since))
        })
        .await
    }
}

async fn used_devices(conn: &mut PgConnection, since: Timestamp) -> Result<Vec<UsedOfStarts>, TxError> {
    let rows = sqlx::query!(
        r#"select start.workload as "workload!", start.held_count as "held_count!", count(*) as "start_count!",
            max(start.used_count) as "used_count!"
        from (
            select job.workload, jsonb_array_length(job.devices)::bigint as held_count, (
                select count(*) from jsonb_array_elements(job.devices) as device
                where device->>'process_at' is not null or device #>> '{busy_at,1}' is not null
                    or (device->>'seen_seconds')::double precision < 0.5 * job.seconds
            ) as used_count
            from (
                select body->>'workload' as workload, extract(epoch from ended_at - started_at)::double precision as seconds,
                    case when jsonb_typeof(body->'devices') = 'array' then body->'devices' else '[]' end as devices
                from observed_job where is_learned and ended_at >= $1
            ) as job
        ) as start
        where start.held_count > 1 and start.workload is not null
        group by start.workload, start.held_count order by start.workload, start.held_count"#,
        since
    )
    .fetch_all(conn)
    .await?;
    let place = Place { table: "observed_job", row: "of several devices" };
    let rows = rows.into_iter().map(|row| -> Result<UsedOfStarts, StoreError> {
        Ok(UsedOfStarts {
            workload: WorkloadKey::new(row.workload),
            held_count: place.number("devices", row.held_count)?,
            start_count: place.number("count", row.start_count)?,
            used_count: place.number("devices", row.used_count)?,
        })
    });
    Ok(readable(rows)?)
}
