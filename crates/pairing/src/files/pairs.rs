//! PAIRS.csv and ALLOW.csv: what was measured of two workloads together, and which combinations may be chosen.

use super::table::{InvalidFile, NamedText, Row, Table};
use crate::allow::AllowList;
use crate::history::{Observation, ObservedTenant};
use pillion_core::device::Mechanism;
use std::collections::BTreeSet;

const HISTORY_REQUIRED: [&str; 5] =
    ["workload_a", "workload_b", "speed_fraction_a", "speed_fraction_b", "fits"];
const HISTORY_OPTIONAL: [&str; 8] = [
    "cap_fraction_a",
    "cap_fraction_b",
    "ccs_mode",
    "power_watts",
    "device",
    "mechanism",
    "observations",
    "speed_sd",
];
const ALLOW_REQUIRED: [&str; 4] = ["workload_a", "workload_b", "cap_fraction_a", "cap_fraction_b"];

/// Reads PAIRS.csv, a row an observation, in their order. A row that names no device has the empty name: see [`resolve`].
pub(super) fn read_history(
    source: NamedText<'_>,
    mechanism: Mechanism,
) -> Result<Vec<Observation>, InvalidFile> {
    let table = Table::read(source, &HISTORY_REQUIRED, &HISTORY_OPTIONAL)?;
    table.rows().map(|row| observation(&row, mechanism)).collect()
}

fn observation(row: &Row<'_>, mechanism: Mechanism) -> Result<Observation, InvalidFile> {
    let mechanism = row.mechanism(mechanism)?;
    let tenants = [
        ("workload_a", "cap_fraction_a", "speed_fraction_a"),
        ("workload_b", "cap_fraction_b", "speed_fraction_b"),
    ]
    .map(|columns| tenant(row, mechanism, columns));
    let [a, b] = tenants;
    Ok(Observation {
        device_model: row.name("device")?.unwrap_or_default().to_owned(),
        tenants: vec![a?, b?],
        power_watts: row.measured("power_watts")?,
        fits: row.flag("fits")?,
        run_count: row.count("observations")?.unwrap_or(1.0),
        speed_fraction_deviation: row.speed("speed_sd")?,
    })
}

fn tenant(
    row: &Row<'_>,
    mechanism: Mechanism,
    (workload, cap_fraction, speed_fraction): (&str, &str, &str),
) -> Result<ObservedTenant, InvalidFile> {
    Ok(ObservedTenant {
        workload: row.workload(workload)?,
        sharing: row.sharing(mechanism, cap_fraction)?,
        speed_fraction: row.speed(speed_fraction)?,
        is_self_reported: false,
    })
}

/// The device that the jobs are to run on: the one `named`; where none is, the one that every row names. Rows that name
/// none are of that device.
pub(super) fn resolve(named: Option<&str>, default: &str, observations: &mut [Observation]) -> String {
    let seen: BTreeSet<&str> = observations.iter().map(|seen| seen.device_model.as_str()).collect();
    let only = seen.first().filter(|first| seen.len() == 1 && !first.is_empty());
    let device_model = named.or(only.copied()).unwrap_or(default).to_owned();
    for observation in observations {
        if observation.device_model.is_empty() {
            observation.device_model.clone_from(&device_model);
        }
    }
    device_model
}

pub(super) fn read_allow(source: NamedText<'_>) -> Result<AllowList, InvalidFile> {
    let table = Table::read(source, &ALLOW_REQUIRED, &[])?;
    let mut allowed = AllowList::default();
    for row in table.rows() {
        let (a, cap_a) = (row.workload("workload_a")?, row.cap("cap_fraction_a")?);
        let (b, cap_b) = (row.workload("workload_b")?, row.cap("cap_fraction_b")?);
        allowed.allow((&a, cap_a), (&b, cap_b));
    }
    Ok(allowed)
}
