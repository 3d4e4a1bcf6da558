//! Table `device_sample`: the one table that grows by the second, so one statement a report and no key.

use super::convert::{bigint, timestamp};
use super::tx::TxError;
use pillion_core::device::Reading;
use pillion_core::report::{DeviceSample, DeviceSamples};
use pillion_core::{GresType, NodeName, UnixTime};
use serde_json::{Value, json};
use sqlx::PgConnection;

pub(super) async fn insert(
    conn: &mut PgConnection,
    node: &NodeName,
    look: &DeviceSamples,
) -> Result<(), TxError> {
    let rows = Value::Array(look.samples.iter().map(json_row).collect());
    sqlx::query!(
        "insert into device_sample (recorded_at, node, gres_type, energy_joules, power_watts, sm_active_fraction,
            sm_occupancy_fraction, stall_fraction, fp32_active_fraction, gpu_busy_fraction, memory_bandwidth_fraction,
            cache_bandwidth_fraction, pcie_tx_bytes_per_second, pcie_rx_bytes_per_second, memory_bytes_used, tenants,
            tensor_active_fraction, memory_busy_fraction, nvlink_tx_bytes_per_second, nvlink_rx_bytes_per_second,
            sm_clock_hertz, throttles, sources)
        select $1, $2, new.gres_type, new.energy_joules, new.power_watts, new.sm_active_fraction,
            new.sm_occupancy_fraction, new.stall_fraction, new.fp32_active_fraction, new.gpu_busy_fraction,
            new.memory_bandwidth_fraction, new.cache_bandwidth_fraction, new.pcie_tx_bytes_per_second,
            new.pcie_rx_bytes_per_second, new.memory_bytes_used, new.tenants, new.tensor_active_fraction,
            new.memory_busy_fraction, new.nvlink_tx_bytes_per_second, new.nvlink_rx_bytes_per_second,
            new.sm_clock_hertz, new.throttles, new.sources
        from jsonb_to_recordset($3) as new (gres_type text, energy_joules double precision,
            power_watts double precision, sm_active_fraction double precision, sm_occupancy_fraction double precision,
            stall_fraction double precision, fp32_active_fraction double precision, gpu_busy_fraction double precision,
            memory_bandwidth_fraction double precision, cache_bandwidth_fraction double precision,
            pcie_tx_bytes_per_second double precision, pcie_rx_bytes_per_second double precision,
            memory_bytes_used bigint, tenants jsonb, tensor_active_fraction double precision,
            memory_busy_fraction double precision, nvlink_tx_bytes_per_second double precision,
            nvlink_rx_bytes_per_second double precision, sm_clock_hertz double precision, throttles text[],
            sources jsonb)",
        timestamp(look.recorded_at),
        node.as_str(),
        rows,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn json_row(sample: &DeviceSample) -> Value {
    let Reading {
        energy_joules,
        power_watts,
        sm_active_fraction,
        sm_occupancy_fraction,
        stall_fraction,
        fp32_active_fraction,
        gpu_busy_fraction,
        memory_bandwidth_fraction,
        cache_bandwidth_fraction,
        pcie_tx_bytes_per_second,
        pcie_rx_bytes_per_second,
        memory_bytes_used,
        tensor_active_fraction,
        memory_busy_fraction,
        nvlink_tx_bytes_per_second,
        nvlink_rx_bytes_per_second,
        sm_clock_hertz,
        throttles,
        sources,
    } = &sample.reading;
    json!({
        "gres_type": sample.gres_type,
        "energy_joules": energy_joules,
        "power_watts": power_watts,
        "sm_active_fraction": sm_active_fraction,
        "sm_occupancy_fraction": sm_occupancy_fraction,
        "stall_fraction": stall_fraction,
        "fp32_active_fraction": fp32_active_fraction,
        "gpu_busy_fraction": gpu_busy_fraction,
        "memory_bandwidth_fraction": memory_bandwidth_fraction,
        "cache_bandwidth_fraction": cache_bandwidth_fraction,
        "pcie_tx_bytes_per_second": pcie_tx_bytes_per_second,
        "pcie_rx_bytes_per_second": pcie_rx_bytes_per_second,
        "memory_bytes_used": memory_bytes_used.map(bigint),
        "tenants": sample.tenants,
        "tensor_active_fraction": tensor_active_fraction,
        "memory_busy_fraction": memory_busy_fraction,
        "nvlink_tx_bytes_per_second": nvlink_tx_bytes_per_second,
        "nvlink_rx_bytes_per_second": nvlink_rx_bytes_per_second,
        "sm_clock_hertz": sm_clock_hertz,
        "throttles": throttles,
        "sources": sources,
    })
}

/// Over the samples between two times that tell the power.
pub(super) async fn power_watts_mean(
    conn: &mut PgConnection,
    node: &NodeName,
    gres_type: &GresType,
    from: UnixTime,
    until: UnixTime,
) -> Result<Option<f64>, TxError> {
    let mean = sqlx::query_scalar!(
        "select avg(power_watts) from device_sample
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
