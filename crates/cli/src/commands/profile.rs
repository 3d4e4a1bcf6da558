//! `pillion profile`: what is remembered of workloads alone on a device.

use crate::args::ProfileArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{ProfileSlice, ProfilesRequest, ProfilesResponse};
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`]; [`CliError::Data`] for a profile that this version cannot read.
pub async fn fetch(client: &mut Operator, args: &ProfileArgs) -> Result<Answer, CliError> {
    let request = ProfilesRequest { workload: args.workload.clone(), user: args.user.clone() };
    show(&answer(client.profiles(request)).await?, !args.workload.is_empty())
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

/// Whoever names a workload sees it drawn.
fn show(response: &ProfilesResponse, is_drawn: bool) -> Result<Answer, CliError> {
    let (mut table, mut drawings) = (Table::new(&COLUMNS), Vec::new());
    for profile in &response.profiles {
        let read = profile.read().map_err(|error| {
            CliError::Data(format!(
                "the scheduler sent a profile that this version of pillion cannot read ({error}); install the same \
                 version on both sides"
            ))
        })?;
        let name = profile.workload_name.as_deref().unwrap_or(read.workload.as_str());
        table.push(line(&read, name));
        drawings.extend(drawing(&read, name).into_iter().filter(|_| is_drawn).map(Block::Line));
        drawings.extend(of_slices(&profile.slices).into_iter().filter(|_| is_drawn).map(Block::Line));
    }
    let mut answer = Answer::table(table, json::render(response));
    answer.blocks.extend(drawings);
    Ok(answer)
}

/// What a workload uses of the device, and what it does under each cap, where that is known; a line each.
fn drawing(profile: &WorkloadProfile, name: &str) -> Vec<String> {
    let used = Metric::ALL
        .into_iter()
        .filter_map(|metric| Some(format::bar_line(metric.bar()?.short?, profile.metrics.get(metric)?)));
    let title = format!("{name} alone on {}, of the whole device", profile.device_model);
    let mut lines: Vec<String> = [String::new(), format::clean(&title)].into_iter().chain(used).collect();
    let at_cap = profile.speed_fractions_at_cap();
    let speeds: Vec<String> =
        at_cap.map(|(cap, speed)| format::bar_line(&format!("speed at cap {cap}"), speed)).collect();
    if !speeds.is_empty() {
        lines.extend([String::new(), "Speed under a cap, of its speed without".to_owned()]);
        lines.extend(speeds);
    }
    lines
}

/// What became of its runs in instances, a line each size.
fn of_slices(slices: &[ProfileSlice]) -> Vec<String> {
    if slices.is_empty() {
        return Vec::new();
    }
    let line = |slice: &ProfileSlice| {
        let ProfileSlice { profile, completed_count, out_of_memory_count, speed_fraction } = slice;
        let completed = format!("{completed_count} completed, {out_of_memory_count} out of memory");
        match speed_fraction {
            Some(speed) => format!("{}  {completed}", format::bar_line(profile, *speed)),
            None => format!("  {profile:<28} {completed}"),
        }
    };
    let title = "In instances (MIG), speed of that on the whole device".to_owned();
    [String::new(), title].into_iter().chain(slices.iter().map(line)).collect()
}

fn line(profile: &WorkloadProfile, name: &str) -> Vec<String> {
    vec![
        name.to_owned(),
        profile.device_model.clone(),
        profile.run_count.to_string(),
        format::duration(profile.duration_seconds),
        format::fraction(profile.duration_variation_fraction),
        part(profile, Metric::SmActiveFraction),
        part(profile, Metric::SmOccupancyFraction),
        part(profile, Metric::StallFraction),
        part(profile, Metric::MemoryBandwidthFraction),
        part(profile, Metric::CacheBandwidthFraction),
        format::bytes(profile.memory_bytes_peak),
        profile.process_count_peak.to_string(),
        format::power(profile.metrics.get(Metric::PowerWatts)),
        format::energy(profile.energy_joules),
    ]
}

fn part(profile: &WorkloadProfile, metric: Metric) -> String {
    format::fraction(profile.metrics.get(metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::WorkloadKey;

    #[test]
    fn what_became_of_runs_in_instances_stands_below() {
        let slice = |profile: &str, speed_fraction| ProfileSlice {
            profile: profile.to_owned(),
            completed_count: 3,
            out_of_memory_count: 0,
            speed_fraction,
        };
        let lines = of_slices(&[slice("2g.20gb", Some(0.5)), slice("3g.40gb", None)]);
        assert!(
            lines[2].contains("2g.20gb") && lines[2].ends_with("3 completed, 0 out of memory"),
            "{lines:?}"
        );
        assert_eq!((lines.len(), of_slices(&[])), (4, Vec::new()));
    }

    #[test]
    fn what_is_known_is_drawn_and_nothing_else() {
        let mut profile = WorkloadProfile::empty(WorkloadKey::new("alice/aa71"), "h100");
        profile.metrics.set(Metric::SmActiveFraction, 0.5);
        profile.metrics.set(Metric::MemoryBandwidthFraction, 0.0);
        let lines = drawing(&profile, "alice/bert");
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert_eq!(lines[1], "alice/bert alone on h100, of the whole device");
        assert_eq!(
            lines[2],
            format!("  SM or XVE active             50 %  {}{}", "#".repeat(20), ".".repeat(20))
        );
        assert!(lines[3].ends_with(&format!("0 %  {}", ".".repeat(40))), "{}", lines[3]);

        profile.throughput_per_second_at_cap[2] = Some(9.0);
        assert_eq!(drawing(&profile, "alice/bert").len(), 4, "a speed has no measure without the whole one");
        profile.throughput_per_second = Some(12.0);
        let lines = drawing(&profile, "alice/bert");
        assert_eq!(
            lines[6],
            format!("  speed at cap 0.3             75 %  {}{}", "#".repeat(30), ".".repeat(10))
        );
    }
}
