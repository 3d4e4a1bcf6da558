//! What was learnt, out of the tables and into them: `workload_profile`, `workload_name`, `observation`, `observed_tenant`.

use super::convert::{Place, Timestamp, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use super::{PgStore, plan_head, profile};
use crate::archive::{Archive, NameRecord, ObservationRecord, TenantRecord};
use crate::names::owner;
use crate::{StoreError, StoredProfile};
use pillion_core::{WorkloadKey, WorkloadName};
use sqlx::PgConnection;
use std::time::Duration;

/// How long all of an import may take; nobody waits for it, because nobody leads meanwhile.
const IMPORT_DURATION_MAX: Duration = Duration::from_mins(30);
/// The same of an export.
const EXPORT_DURATION_MAX: Duration = Duration::from_mins(5);
/// No decision of this database: what was brought here belongs to those of another.
const NO_GROUP: i64 = 0;

/// How many records were taken in; the others are known here already, and better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenIn {
    pub profiles: u64,
    pub names: u64,
    pub observations: u64,
}

impl PgStore {
    /// What was learnt, as it stands at one moment.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn learnt(&self) -> Result<Archive, StoreError> {
        self.run_tx_within(EXPORT_DURATION_MAX, "exporting", Read, |tx| Box::pin(learnt(tx.connection())))
            .await
    }

    /// Takes all of it in, or nothing. Of a profile that is known here the one of more runs stays, of as many the newer one; a name stays
    /// but for that of a profile; an observation of the same starts stays. `None`, where a scheduler leads: it would not know.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was taken in then.
    pub async fn take_in(&self, archive: &Archive) -> Result<Option<TakenIn>, StoreError> {
        let Some(leadership) = self.try_lead().await? else { return Ok(None) };
        let taken = self
            .run_tx_within(IMPORT_DURATION_MAX, "importing", Write, |tx| {
                Box::pin(take_in(tx.connection(), archive))
            })
            .await;
        drop(leadership);
        taken.map(Some)
    }
}

async fn learnt(conn: &mut PgConnection) -> Result<Archive, TxError> {
    Ok(Archive {
        profiles: profile::read(conn, None).await?,
        names: names(conn).await?,
        observations: observations(conn).await?,
    })
}

#[derive(Debug)]
struct NameRow {
    workload: String,
    uid: i64,
    name: String,
    source: String,
    named_at: Timestamp,
}

impl TryFrom<NameRow> for NameRecord {
    type Error = StoreError;
    fn try_from(row: NameRow) -> Result<Self, StoreError> {
        let place = Place { table: "workload_name", row: &row.workload };
        Ok(Self {
            uid: place.number("uid", row.uid)?,
            name: WorkloadName::safe(&row.name).ok_or_else(|| place.corrupt("name"))?,
            source: place.parse("source", &row.source)?,
            named_at: unix_time(row.named_at),
            workload: WorkloadKey::new(row.workload),
        })
    }
}

async fn names(conn: &mut PgConnection) -> Result<Vec<NameRecord>, TxError> {
    let rows = sqlx::query_as!(
        NameRow,
        "select workload, uid, name, source, named_at from workload_name order by workload"
    );
    let rows = rows.fetch_all(conn).await?;
    Ok(readable(rows.into_iter().map(NameRecord::try_from))?)
}

#[derive(Debug)]
struct Row {
    starts: Vec<String>,
    device_model: String,
    mechanism: String,
    ccs_mode: Option<i16>,
    power_watts: Option<f64>,
    fits: bool,
    recorded_at: Timestamp,
    workloads: Vec<String>,
    cap_fractions: Vec<Option<f64>>,
    speed_fractions: Vec<Option<f64>>,
    speed_fraction_deviations: Vec<Option<f64>>,
    are_self_reported: Vec<bool>,
}

impl TryFrom<Row> for ObservationRecord {
    type Error = StoreError;
    fn try_from(row: Row) -> Result<Self, StoreError> {
        let key = row.starts.join(", ");
        let place = Place { table: "observation", row: &key };
        let mut tenants = Vec::with_capacity(row.starts.len());
        for (index, (start, workload)) in row.starts.iter().zip(row.workloads).enumerate() {
            let of = |column: &[Option<f64>]| column.get(index).copied().flatten();
            tenants.push(TenantRecord {
                start: place.parse("starts", start)?,
                workload: WorkloadKey::new(workload),
                cap_fraction: of(&row.cap_fractions),
                speed_fraction: of(&row.speed_fractions),
                speed_fraction_deviation: of(&row.speed_fraction_deviations),
                is_self_reported: row.are_self_reported.get(index).copied().unwrap_or_default(),
            });
        }
        if tenants.len() != row.starts.len() {
            return Err(place.corrupt("starts"));
        }
        Ok(Self {
            device_model: row.device_model,
            mechanism: row.mechanism,
            ccs_mode: place.number_opt("ccs_mode", row.ccs_mode)?,
            power_watts: row.power_watts,
            fits: row.fits,
            recorded_at: unix_time(row.recorded_at),
            tenants,
        })
    }
}

async fn observations(conn: &mut PgConnection) -> Result<Vec<ObservationRecord>, TxError> {
    let rows = sqlx::query_as!(
        Row,
        r#"select starts, device_model, mechanism, ccs_mode, power_watts, fits, recorded_at,
            array_agg(workload order by position) as "workloads!",
            array_agg(cap_fraction order by position) as "cap_fractions!: Vec<Option<f64>>",
            array_agg(speed_fraction order by position) as "speed_fractions!: Vec<Option<f64>>",
            array_agg(speed_fraction_deviation order by position) as "speed_fraction_deviations!: Vec<Option<f64>>",
            array_agg(is_self_reported order by position) as "are_self_reported!"
        from observation join observed_tenant using (observation_id)
        group by observation_id order by change_number"#,
    );
    let rows = rows.fetch_all(conn).await?;
    Ok(readable(rows.into_iter().map(ObservationRecord::try_from))?)
}

async fn take_in(conn: &mut PgConnection, archive: &Archive) -> Result<TakenIn, TxError> {
    let mut taken = TakenIn::default();
    for stored in &archive.profiles {
        if is_better(conn, stored).await? {
            profile::upsert(conn, stored).await?;
            taken.profiles += 1;
        }
    }
    for name in &archive.names {
        taken.names += take_name(conn, name).await?;
    }
    for observation in &archive.observations {
        taken.observations += take_observation(conn, observation).await?;
    }
    plan_head::bump(conn).await?;
    Ok(taken)
}

/// Whether nothing better is known here. Two profiles are not added up: both may be made of the same runs.
async fn is_better(conn: &mut PgConnection, stored: &StoredProfile) -> Result<bool, TxError> {
    let known = sqlx::query!(
        "select run_count, updated_at from workload_profile where workload = $1 and device_model = $2",
        stored.profile.workload.as_str(),
        stored.profile.device_model
    )
    .fetch_optional(conn)
    .await?;
    let own = (i64::from(stored.profile.run_count), timestamp(stored.updated_at));
    Ok(known.is_none_or(|known| own > (known.run_count, known.updated_at)))
}

/// As `name::keep` does, at the moment when it was named.
async fn take_name(conn: &mut PgConnection, record: &NameRecord) -> Result<u64, TxError> {
    let done = sqlx::query!(
        "insert into workload_name as old (workload, owner, uid, name, source, named_at)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (workload) do update
        set uid = excluded.uid, name = excluded.name, source = excluded.source, named_at = excluded.named_at
        where old.source = 'job' and excluded.source = 'profile'",
        record.workload.as_str(),
        owner(&record.workload),
        i64::from(record.uid),
        record.name.as_str(),
        record.source.to_string(),
        timestamp(record.named_at),
    );
    Ok(done.execute(conn).await?.rows_affected())
}

async fn take_observation(conn: &mut PgConnection, record: &ObservationRecord) -> Result<u64, TxError> {
    let starts: Vec<String> = record.tenants.iter().map(|tenant| tenant.start.to_string()).collect();
    let workloads: Vec<String> = record.tenants.iter().map(|tenant| tenant.workload.to_string()).collect();
    let caps: Vec<Option<f64>> = record.tenants.iter().map(|tenant| tenant.cap_fraction).collect();
    let inserted = sqlx::query_scalar!(
        "insert into observation (starts, group_id, device_model, mechanism, ccs_mode, power_watts, fits, recorded_at,
            combination)
        values ($1, $2, $3, $4, $5, $6, $7, $8, observation_combination($3, $4, $5, $9, $10))
        on conflict on constraint observation_starts_key do nothing returning observation_id",
        &starts,
        NO_GROUP,
        record.device_model,
        record.mechanism,
        record.ccs_mode.map(i16::from),
        record.power_watts,
        record.fits,
        timestamp(record.recorded_at),
        &workloads,
        &caps as &[Option<f64>],
    );
    let Some(id) = inserted.fetch_optional(&mut *conn).await? else { return Ok(0) };
    for (position, tenant) in (0_i16..).zip(&record.tenants) {
        sqlx::query!(
            "insert into observed_tenant (observation_id, position, workload, cap_fraction, speed_fraction,
                speed_fraction_deviation, is_self_reported)
            values ($1, $2, $3, $4, $5, $6, $7)",
            id,
            position,
            tenant.workload.as_str(),
            tenant.cap_fraction,
            tenant.speed_fraction,
            tenant.speed_fraction_deviation,
            tenant.is_self_reported,
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(1)
}
