//! SOLO.csv: how each workload runs alone on the device model.

use super::Profiles;
use super::table::{InvalidFile, NamedText, Row, Table};
use pillion_core::profile::WorkloadProfile;

const OPTIONAL: [&str; 25] = [
    "family",
    "sm_active_fraction",
    "sm_occupancy_fraction",
    "fp32_active_fraction",
    "stall_fraction",
    "gpu_busy_fraction",
    "memory_busy_fraction",
    "memory_bandwidth_fraction",
    "cache_bandwidth_fraction",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
    "memory_bytes_peak",
    "power_watts_mean",
    "energy_joules",
    "duration_seconds",
    "throughput_per_second",
    "throughput_per_second_at_cap_0.1",
    "throughput_per_second_at_cap_0.2",
    "throughput_per_second_at_cap_0.3",
    "throughput_per_second_at_cap_0.4",
    "throughput_per_second_at_cap_0.5",
    "throughput_per_second_at_cap_0.6",
    "throughput_per_second_at_cap_0.7",
    "throughput_per_second_at_cap_0.8",
    "throughput_per_second_at_cap_0.9",
];

/// Reads it; the profiles name no device yet.
pub(super) fn read(source: NamedText<'_>) -> Result<Profiles, InvalidFile> {
    let table = Table::read(source, &["workload"], &OPTIONAL)?;
    let mut profiles = Profiles::new();
    for row in table.rows() {
        let profile = profile(&row)?;
        if profiles.insert(profile.workload.clone(), profile).is_some() {
            return Err(row.invalid("workload", "each workload once"));
        }
    }
    Ok(profiles)
}

fn profile(row: &Row<'_>) -> Result<WorkloadProfile, InvalidFile> {
    let mut throughput_per_second_at_cap = [None; 9];
    for (at, throughput) in throughput_per_second_at_cap.iter_mut().enumerate() {
        *throughput = row.amount(&format!("throughput_per_second_at_cap_0.{}", at + 1))?;
    }
    let throughput_per_second = row.measured("throughput_per_second")?;
    if throughput_per_second.is_none() && throughput_per_second_at_cap.iter().any(Option::is_some) {
        return Err(
            row.invalid("throughput_per_second", "the throughput without a cap, beside those under caps")
        );
    }
    Ok(WorkloadProfile {
        family: row.name("family")?.map(str::to_owned),
        throughput_per_second_at_cap,
        memory_busy_fraction: row.fraction("memory_busy_fraction")?,
        run_count: 1,
        duration_seconds: row.measured("duration_seconds")?,
        throughput_per_second,
        sm_active_fraction: row.fraction("sm_active_fraction")?,
        sm_occupancy_fraction: row.fraction("sm_occupancy_fraction")?,
        stall_fraction: row.fraction("stall_fraction")?,
        fp32_active_fraction: row.fraction("fp32_active_fraction")?,
        gpu_busy_fraction: row.fraction("gpu_busy_fraction")?,
        memory_bandwidth_fraction: row.fraction("memory_bandwidth_fraction")?,
        cache_bandwidth_fraction: row.fraction("cache_bandwidth_fraction")?,
        pcie_tx_bytes_per_second: row.amount("pcie_tx_bytes_per_second")?,
        pcie_rx_bytes_per_second: row.amount("pcie_rx_bytes_per_second")?,
        memory_bytes_peak: row.bytes("memory_bytes_peak")?,
        power_watts_mean: row.measured("power_watts_mean")?,
        energy_joules: row.measured("energy_joules")?,
        ..WorkloadProfile::empty(row.workload("workload")?, "")
    })
}
