//! SOLO.csv: how each workload runs alone on the device model.

use super::ground::Profiles;
use super::table::{InvalidFile, NamedText, Row, Table};
use pillion_core::metric::{Metric, Metrics, Unit};
use pillion_core::profile::WorkloadProfile;

/// What may be known of a workload besides its family and what it uses of the device.
const OPTIONAL: [&str; 14] = [
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

/// What a workload uses of the device, in the column of its word.
const METRICS: [Metric; 10] = [
    Metric::SmActiveFraction,
    Metric::SmOccupancyFraction,
    Metric::Fp32ActiveFraction,
    Metric::StallFraction,
    Metric::GpuBusyFraction,
    Metric::MemoryBusyFraction,
    Metric::MemoryBandwidthFraction,
    Metric::CacheBandwidthFraction,
    Metric::PcieTxBytesPerSecond,
    Metric::PcieRxBytesPerSecond,
];

/// Reads it; the profiles name no device yet.
pub(super) fn read(source: NamedText<'_>) -> Result<Profiles, InvalidFile> {
    let optional: Vec<&str> =
        ["family"].into_iter().chain(METRICS.map(Metric::word)).chain(OPTIONAL).collect();
    let table = Table::read(source, &["workload"], &optional)?;
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
        run_count: 1,
        duration_seconds: row.measured("duration_seconds")?,
        throughput_per_second,
        metrics: metrics(row)?,
        memory_bytes_peak: row.bytes("memory_bytes_peak")?,
        energy_joules: row.measured("energy_joules")?,
        ..WorkloadProfile::empty(row.workload("workload")?, "")
    })
}

fn metrics(row: &Row<'_>) -> Result<Metrics, InvalidFile> {
    let mut metrics = Metrics::default();
    for metric in METRICS {
        match metric.unit() {
            Unit::Fraction => metrics.set_known(metric, row.fraction(metric.word())?),
            _ => metrics.set_known(metric, row.amount(metric.word())?),
        }
    }
    metrics.set_known(Metric::PowerWatts, row.measured("power_watts_mean")?);
    Ok(metrics)
}
