//! Tables `observation` and `observed_tenant`: who shared a device with whom, and what came of it.

use super::PgStore;
use super::convert::{Place, Timestamp, bigint, integer_limit, timestamp, unix_time};
use super::tx::Access::{Read, Write};
use super::tx::TxError;
use super::unreadable::readable;
use crate::{NewObservation, OBSERVATIONS_OF_COMBINATION_MAX, Observations, StoreError, StoredObservation};
use async_trait::async_trait;
use pillion_core::share::Sharing;
use pillion_core::units::SPEED_FRACTIONS;
use pillion_core::{UnixTime, WorkloadKey};
use pillion_pairing::{Observation, ObservedTenant};
use sqlx::PgConnection;

#[async_trait]
impl Observations for PgStore {
    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError> {
        self.run_tx("recording an observation", Write, |tx| Box::pin(record(tx.connection(), new, at))).await
    }

    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError> {
        self.run_tx("reading observations", Read, |tx| Box::pin(list(tx.connection(), after, limit))).await
    }
}

/// Among so many of the newest those of each combination are counted: the table is never pruned, and a statement has eight seconds.
const OBSERVATIONS_RANKED_MAX: i64 = 500_000;

#[derive(Debug)]
struct ObservationRow {
    change_number: i64,
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

impl TryFrom<ObservationRow> for StoredObservation {
    type Error = StoreError;
    fn try_from(row: ObservationRow) -> Result<Self, StoreError> {
        let key = row.starts.join(", ");
        let place = Place { table: "observation", row: &key };
        let starts =
            row.starts.iter().map(|text| place.parse("starts", text)).collect::<Result<Vec<_>, _>>()?;
        let mechanism = place.parse("mechanism", &row.mechanism)?;
        let ccs_mode = place.number_opt("ccs_mode", row.ccs_mode)?;
        let mut tenants = Vec::with_capacity(starts.len());
        for (index, workload) in row.workloads.into_iter().enumerate() {
            let [cap, speed] =
                [&row.cap_fractions, &row.speed_fractions].map(|column| column.get(index).copied().flatten());
            tenants.push(ObservedTenant {
                workload: WorkloadKey::new(workload),
                sharing: Sharing::by(mechanism, place.fraction("cap_fraction", cap)?, ccs_mode),
                // An earlier release kept any.
                speed_fraction: speed.filter(|speed| SPEED_FRACTIONS.contains(speed)),
                is_self_reported: row.are_self_reported.get(index).copied().unwrap_or_default(),
            });
        }
        if tenants.len() != starts.len() {
            return Err(place.corrupt("starts"));
        }
        let deviations = row.speed_fraction_deviations.into_iter().flatten();
        Ok(Self {
            number: place.number("change_number", row.change_number)?,
            starts,
            recorded_at: unix_time(row.recorded_at),
            observation: Observation {
                device_model: row.device_model,
                tenants,
                power_watts: row.power_watts,
                fits: row.fits,
                run_count: 1.0,
                // The least certain of them stands for all.
                speed_fraction_deviation: deviations.reduce(f64::max),
            },
        })
    }
}

/// `Ok(false)`: nothing of it is new.
pub(super) async fn record(
    conn: &mut PgConnection,
    new: &NewObservation,
    at: UnixTime,
) -> Result<bool, TxError> {
    let starts: Vec<String> = new.tenants.iter().map(|tenant| tenant.start.to_string()).collect();
    let workloads: Vec<String> = new.tenants.iter().map(|tenant| tenant.workload.to_string()).collect();
    let caps: Vec<Option<f64>> =
        new.tenants.iter().map(|tenant| tenant.sharing.cap().map(f64::from)).collect();
    let inserted = sqlx::query_scalar!(
        "insert into observation (starts, group_id, device_model, mechanism, ccs_mode, fits, recorded_at, combination)
        values ($1, $2, $3, $4, $5, true, $6, observation_combination($3, $4, $5, $7, $8))
        on conflict on constraint observation_starts_key do nothing returning observation_id",
        &starts,
        bigint(new.group.0),
        new.device_model,
        new.sharing().mechanism().as_str(),
        new.sharing().ccs_mode().map(i16::from),
        timestamp(at),
        &workloads,
        &caps as &[Option<f64>],
    )
    .fetch_optional(&mut *conn)
    .await?;
    let id = match inserted {
        Some(id) => {
            insert_tenants(conn, id, new).await?;
            id
        }
        None => {
            sqlx::query_scalar!("select observation_id from observation where starts = $1", &starts)
                .fetch_one(&mut *conn)
                .await?
        }
    };
    let own = new.tenants.iter().position(|tenant| tenant.start == new.own);
    let position = own.ok_or_else(|| StoreError::Missing(format!("start {} among the tenants", new.own)))?;
    let updated = sqlx::query!(
        "update observed_tenant set speed_fraction = $3, speed_fraction_deviation = $4, is_self_reported = $5
        where observation_id = $1 and position = $2
            and (speed_fraction, speed_fraction_deviation, is_self_reported)
                is distinct from ($3::double precision, $4::double precision, $5::boolean)",
        id,
        i16::try_from(position).unwrap_or(i16::MAX),
        new.speed_fraction,
        new.speed_fraction_deviation,
        new.is_self_reported,
    )
    .execute(&mut *conn)
    .await?;
    let is_new = inserted.is_some() || updated.rows_affected() > 0;
    let changed = sqlx::query!(
        "update observation set change_number = nextval('observation_change'), recorded_at = $2,
            fits = fits and $3, power_watts = coalesce($4, power_watts)
        where observation_id = $1 and ($5 or (fits and not $3))",
        id,
        timestamp(at),
        new.fits,
        new.power_watts,
        is_new,
    )
    .execute(&mut *conn)
    .await?;
    Ok(changed.rows_affected() > 0)
}

async fn insert_tenants(conn: &mut PgConnection, id: i64, new: &NewObservation) -> Result<(), TxError> {
    for (position, tenant) in (0_i16..).zip(&new.tenants) {
        sqlx::query!(
            "insert into observed_tenant (observation_id, position, workload, cap_fraction, is_self_reported)
            values ($1, $2, $3, $4, false)",
            id,
            position,
            tenant.workload.as_str(),
            tenant.sharing.cap().map(f64::from),
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Those that changed after a number, oldest first; the newest where there are too many, of a combination and of all.
pub(super) async fn list(
    conn: &mut PgConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<StoredObservation>, TxError> {
    let rows = sqlx::query_as!(
        ObservationRow,
        r#"select change_number, starts, device_model, mechanism, ccs_mode, power_watts, fits, recorded_at,
            array_agg(workload order by position) as "workloads!",
            array_agg(cap_fraction order by position) as "cap_fractions!: Vec<Option<f64>>",
            array_agg(speed_fraction order by position) as "speed_fractions!: Vec<Option<f64>>",
            array_agg(speed_fraction_deviation order by position) as "speed_fraction_deviations!: Vec<Option<f64>>",
            array_agg(is_self_reported order by position) as "are_self_reported!"
        from (
            select observation.* from observation join (
                select observation_id, combination is null or $3 >= row_number() over (
                    partition by combination, is_measured order by change_number desc
                ) as is_read
                from (
                    select observation_id, combination, change_number, not exists (
                        select from observed_tenant as tenant
                        where tenant.observation_id = recent.observation_id and speed_fraction is null
                    ) as is_measured
                    from (select * from observation where change_number > $1 order by change_number desc limit $4) as recent
                ) as told
            ) as ranked using (observation_id)
            where is_read order by change_number desc limit $2
        ) as newest
        join observed_tenant using (observation_id)
        group by change_number, starts, device_model, mechanism, ccs_mode, power_watts, fits, recorded_at
        order by change_number"#,
        bigint(after),
        integer_limit(limit),
        i64::from(OBSERVATIONS_OF_COMBINATION_MAX),
        OBSERVATIONS_RANKED_MAX,
    )
    .fetch_all(conn)
    .await?;
    Ok(readable(rows.into_iter().map(StoredObservation::try_from))?)
}
