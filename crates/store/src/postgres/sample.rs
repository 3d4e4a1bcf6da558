//! Table `device_sample`: the one table that grows by the second, so one statement a report and no key.

use super::convert::timestamp;
use super::tx::TxError;
use pillion_core::report::{DeviceSample, DeviceSamples};
use pillion_core::{GresType, NodeName, UnixTime};
use serde_json::{Value, json};
use sqlx::PgConnection;

pub(super) async fn insert(
    conn: &mut PgConnection,
    node: &NodeName,
    taken: &DeviceSamples,
) -> Result<(), TxError> {
    let rows = Value::Array(taken.samples.iter().map(json_row).collect());
    sqlx::query!(
        "insert into device_sample (recorded_at, node, gres_type, tenants, throttles, metrics)
        select $1, $2, new.gres_type, new.tenants, new.throttles, new.metrics
        from jsonb_to_recordset($3) as new (gres_type text, tenants jsonb, throttles text[], metrics jsonb)",
        timestamp(taken.recorded_at),
        node.as_str(),
        rows,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn json_row(DeviceSample { gres_type, reading, tenants }: &DeviceSample) -> Value {
    json!({
        "gres_type": gres_type,
        "tenants": tenants,
        "throttles": reading.throttles(),
        "metrics": reading.metrics,
    })
}

/// Over the samples between two times that hold the power.
pub(super) async fn power_watts_mean(
    conn: &mut PgConnection,
    node: &NodeName,
    gres_type: &GresType,
    from: UnixTime,
    until: UnixTime,
) -> Result<Option<f64>, TxError> {
    let mean = sqlx::query_scalar!(
        "select avg(coalesce((metrics ->> 'power_watts')::double precision, power_watts)) from device_sample
        where recorded_at >= $3 and recorded_at <= $4 and node = $1 and gres_type = $2",
        node.as_str(),
        gres_type.as_str(),
        timestamp(from),
        timestamp(until),
    )
    .fetch_one(conn)
    .await?;
    Ok(mean)
}
