//! `pillion profile`: what is remembered of workloads alone on a device.

use crate::args::ProfileArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Table, json};
use pillion_core::Fraction;
use pillion_core::profile::WorkloadProfile;
use pillion_proto::v1::{ProfilesRequest, ProfilesResponse};
use serde::Serialize;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`]; [`CliError::Data`] for a profile that this version cannot read.
pub async fn fetch(client: &mut Operator, args: &ProfileArgs) -> Result<Answer, CliError> {
    let request = ProfilesRequest { workload: args.workload.clone(), user: args.user.clone() };
    show(answer(client.profiles(request)).await?)
}

#[derive(Serialize)]
struct Body {
    profiles: Vec<WorkloadProfile>,
}

const COLUMNS: [&str; 14] = [
    "WORKLOAD",
    "MODEL",
    ">RUNS",
    ">DURATION",
    ">VARIES",
    ">SM_ACTIVE",
    ">OCCUPANCY",
    ">STALL",
    ">MEM_BW",
    ">CACHE_BW",
    ">MEM_PEAK",
    ">PROCESSES",
    ">POWER",
    ">ENERGY",
];

fn show(ProfilesResponse { profile_json }: ProfilesResponse) -> Result<Answer, CliError> {
    let parse = |text: &String| {
        serde_json::from_str::<WorkloadProfile>(text).map_err(|error| {
            CliError::Data(format!(
                "the scheduler sent a profile that this version of pillion cannot read ({error}); install the same \
                 version on both sides"
            ))
        })
    };
    let profiles = profile_json.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let mut table = Table::new(&COLUMNS);
    for profile in &profiles {
        table.push(line(profile));
    }
    Ok(Answer::table(table, json::render(&Body { profiles })))
}

fn line(profile: &WorkloadProfile) -> Vec<String> {
    let part = |fraction: Option<Fraction>| format::fraction(fraction.map(Fraction::value));
    vec![
        profile.workload.to_string(),
        profile.device_model.clone(),
        profile.run_count.to_string(),
        format::duration(profile.duration_seconds),
        format::fraction(profile.duration_variation_fraction),
        part(profile.sm_active_fraction),
        part(profile.sm_occupancy_fraction),
        part(profile.stall_fraction),
        part(profile.memory_bandwidth_fraction),
        part(profile.cache_bandwidth_fraction),
        format::bytes(profile.memory_bytes_peak),
        profile.process_count_peak.to_string(),
        format::power(profile.power_watts_mean),
        format::energy(profile.energy_joules),
    ]
}
