//! Runs of observed partitions and of the pool, as it is told by them how workloads scale: each joined over the nodes and devices that it had. Pure;
//! what is made of them is `pillion-scale`'s, where they are asked for.

use super::auth::Caller;
use super::listing;
use super::top::to_u32;
use crate::profile::rate_of;
use pillion_api as api;
use pillion_core::metric::Metric;
use pillion_core::report::JobSummary;
use pillion_core::units::SECONDS_PER_HOUR;
use pillion_core::workload;
use pillion_core::{GresType, JobStart, NodeName, UserId, WorkloadKey};
use pillion_scale::{EFFICIENCY_USUAL, History, Measure, NodeShape, Run, Table, advise, summarise};
use pillion_slurm::Ending;
use pillion_store::{ScalingFilter, ScalingRun};
use std::collections::BTreeMap;
use tonic::Status;

/// Who had others on one of its devices for more than this part of its time was not measured.
const SHARED_FRACTION_MAX: f64 = 0.05;

/// A device by its place.
type Place<'r> = (&'r NodeName, &'r GresType);

/// Which runs are meant.
///
/// # Errors
/// Where nobody knows who asks.
pub(super) fn filter(asked: &str, caller: Caller) -> Result<ScalingFilter, Status> {
    let workload = (!asked.is_empty()).then(|| workload::on_any(&WorkloadKey::new(asked)));
    Ok(ScalingFilter { uid: caller.only_uid()?, workload, ..ScalingFilter::default() })
}

/// Of which runs an account tells what was spent above break-even: for operators, where it is asked for, and nothing else but the time.
/// A limit of 0 is none.
pub(super) fn sum_filter(request: &api::AccountRequest, caller: Caller) -> Option<ScalingFilter> {
    let api::AccountRequest {
        since_seconds,
        until_seconds,
        user,
        account,
        partition,
        workload,
        nodes,
        group_by,
        scaling_runs_max,
        ..
    } = request;
    let is_of_all =
        [user, account, partition, workload].iter().all(|filter| filter.is_empty()) && nodes.is_empty();
    let is_asked = caller.is_operator && is_of_all && ["", "day"].contains(&group_by.as_str());
    let limit = scaling_runs_max.filter(|_| is_asked)?;
    Some(ScalingFilter {
        limit,
        since: listing::asked_time(*since_seconds),
        until: listing::asked_time(*until_seconds),
        ..ScalingFilter::default()
    })
}

/// The answer: what these runs were.
pub(super) fn answer(runs: &[ScalingRun], filter: &ScalingFilter) -> api::ScaleResponse {
    let mut response =
        api::ScaleResponse { is_cut: to_u32(runs.len()) >= filter.limit, ..api::ScaleResponse::default() };
    for one in runs {
        match run(one) {
            Ok(run) => response.runs.push(run),
            Err(LeftOut::Shared) => response.shared_run_count += 1,
            Err(LeftOut::Unclear) => response.unclear_run_count += 1,
        }
    }
    if filter.workload.is_none() {
        // Of many at once nobody looks at each device.
        response.runs.iter_mut().for_each(|run| run.ranks.clear());
    }
    response
}

/// Why a run says nothing of how its workload scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// Others were on its devices, or it had a part of one.
    Shared,
    /// Nobody knows which devices it had, or whether alone; or these were of several models.
    Unclear,
}

/// One run.
pub(super) fn run(run: &ScalingRun) -> Result<api::ScaleRun, LeftOut> {
    let elapsed_seconds = run.ended_at.seconds_since(run.started_at);
    let mut of_devices: BTreeMap<Place<'_>, Vec<&JobSummary>> =
        run.devices.iter().map(|held| ((&held.node, &held.gres_type), Vec::new())).collect();
    for part in &run.parts {
        of_devices.entry((&part.node, &part.summary.gres_type)).or_default().push(&part.summary);
    }
    let models: Vec<&str> =
        run.parts.iter().map(|part| part.device_model.as_str()).filter(|model| !model.is_empty()).collect();
    let named_count = to_u32(of_devices.len());
    let gpu_count = run.device_count.unwrap_or(named_count);
    let has_one_model = models.windows(2).all(|two| two[0] == two[1]);
    let Some(node_count) = run.node_count.filter(|_| gpu_count > 0 && elapsed_seconds > 0.0 && has_one_model)
    else {
        return Err(LeftOut::Unclear);
    };
    let shared = of_devices.values().map(|parts| parts.iter().map(|part| part.shared_seconds).sum::<f64>());
    if run.is_of_a_part || shared.fold(0.0, f64::max) > SHARED_FRACTION_MAX * elapsed_seconds {
        return Err(LeftOut::Shared);
    }
    // What others were booked on a device besides is told by its agent alone.
    if !run.has_whole_devices && (of_devices.is_empty() || of_devices.values().any(Vec::is_empty)) {
        return Err(LeftOut::Unclear);
    }
    Ok(api::ScaleRun {
        job_id: run.start.job_id.to_string(),
        user: run.user.clone(),
        workload: Some(run.workload.to_string()),
        workload_name: None,
        device_model: models.first().copied().or(run.device_model.as_deref()).map(str::to_owned),
        gpu_count,
        node_count,
        started_at_seconds: run.started_at.seconds(),
        elapsed_seconds,
        energy_joules: energy(&of_devices).filter(|_| named_count >= gpu_count),
        ranks: ranks(run, &of_devices, elapsed_seconds),
        progress_per_second: progress(run),
    })
}

/// What its own counter says that it came forward a second, alone. There is one counter a node: on several nobody knows what each of
/// them counts.
fn progress(run: &ScalingRun) -> Option<f64> {
    let parts = run.parts.iter().map(|part| &part.summary.solo).filter(|_| run.node_count == Some(1));
    parts.max_by(|one, other| one.seconds.total_cmp(&other.seconds)).and_then(rate_of)
}

/// Of all devices by their meters; `None` where one of them was not metered.
fn energy(of_devices: &BTreeMap<Place<'_>, Vec<&JobSummary>>) -> Option<f64> {
    let of_device = |parts: &Vec<&JobSummary>| {
        let joules: Option<Vec<f64>> = parts.iter().map(|part| part.energy_joules).collect();
        joules.filter(|joules| !joules.is_empty()).map(|joules| joules.iter().sum::<f64>())
    };
    let joules: Option<Vec<f64>> = of_devices.values().map(of_device).collect();
    joules.map(|joules| joules.iter().sum())
}

/// What each device did in the whole of the run. An agent counts from sample to sample while a process is there: one whose process went
/// before the others' did nothing from then on.
fn ranks(
    run: &ScalingRun,
    of_devices: &BTreeMap<Place<'_>, Vec<&JobSummary>>,
    elapsed_seconds: f64,
) -> Vec<api::ScaleRank> {
    let samples =
        |parts: &[&JobSummary]| parts.iter().map(|part| f64::from(part.solo_sample_count)).sum::<f64>();
    let span = |parts: &[&JobSummary]| -> f64 {
        parts.iter().map(|part| part.ended_at.seconds_since(part.started_at).max(0.0)).sum()
    };
    // The one that was there longest, and for which part of the run.
    let longest = of_devices.values().max_by(|one, other| samples(one).total_cmp(&samples(other)));
    let (most, part) =
        longest.map_or((0.0, 0.0), |parts| (samples(parts), (span(parts) / elapsed_seconds).min(1.0)));
    let rank = |((node, gres_type), parts): (&Place<'_>, &Vec<&JobSummary>)| {
        let presence = if most > 0.0 { part * samples(parts) / most } else { 0.0 };
        let is_unused = if parts.is_empty() {
            was_seen_unused(run, node, gres_type)
        } else {
            // In the pool an agent tells of each device that a start was given.
            parts.iter().all(|part| part.process_count_peak == 0)
        };
        let of_run =
            |value: Option<f64>| if is_unused { Some(0.0) } else { value.map(|value| value * presence) };
        api::ScaleRank {
            node: node.to_string(),
            gres_type: gres_type.to_string(),
            active_fraction: of_run(mean(parts, &[Metric::SmActiveFraction])),
            link_bytes_per_second: of_run(mean(parts, &LINKS)),
        }
    };
    of_devices.iter().map(rank).collect()
}

/// What goes over a device's links.
const LINKS: [Metric; 4] = [
    Metric::NvlinkTxBytesPerSecond,
    Metric::NvlinkRxBytesPerSecond,
    Metric::PcieTxBytesPerSecond,
    Metric::PcieRxBytesPerSecond,
];

/// Whether the device was looked at, and no process of the job was ever on it.
fn was_seen_unused(run: &ScalingRun, node: &NodeName, gres_type: &GresType) -> bool {
    let held = run.devices.iter().find(|held| held.node == *node && held.gres_type == *gres_type);
    held.is_some_and(|held| held.seen_seconds > 0.0 && held.process_at.is_none())
}

/// What these runs spent above the break-even of their workloads; `None` where none ran with several numbers of GPUs.
pub(super) fn sum(history: &History) -> Option<api::ScaleSum> {
    let sum = summarise(history, EFFICIENCY_USUAL, None);
    (!sum.workloads.is_empty()).then(|| api::ScaleSum {
        efficiency_ratio: EFFICIENCY_USUAL,
        workload_count: to_u32(sum.workloads.len()),
        gpu_seconds: sum.gpu_hours * SECONDS_PER_HOUR,
        gpu_seconds_above: sum.gpu_hours_above * SECONDS_PER_HOUR,
        is_cut: false,
    })
}

/// Adds a run, where it tells anything: by the key of its workload and the model of its devices.
pub(super) fn add(history: &mut History, one: &ScalingRun) {
    let Ok(run) = run(one) else { return };
    let timed = Run::metered(run.node_count, run.gpu_count, run.elapsed_seconds, run.energy_joules);
    let model = run.device_model.as_deref().unwrap_or_default();
    history.add(one.workload.as_str(), model, Measure::Elapsed, timed);
}

/// A start that somebody asks about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'j> {
    pub(super) start: JobStart,
    pub(super) uid: UserId,
    /// On however many devices.
    pub(super) workload: &'j WorkloadKey,
    pub(super) device_count: usize,
    pub(super) ending: Option<Ending>,
}

/// Among which runs advice on this one is looked for: its user's of the same workload. None on a run that
/// is not over, did not complete or had one device, which has nothing less.
pub(super) fn advice_filter(job: Asked<'_>) -> Option<ScalingFilter> {
    let has_several = job.device_count > 1 && job.ending == Some(Ending::Completed);
    let (uid, workload) = (Some(job.uid), Some(workload::on_any(job.workload)));
    has_several.then(|| ScalingFilter { uid, workload, ..ScalingFilter::default() })
}

/// What a completed run of these, which are of one workload, could have done with fewer GPUs, in one sentence; `None` unless it is sure.
pub(super) fn advice(start: JobStart, runs: &[ScalingRun]) -> Option<String> {
    let own = run(runs.iter().find(|other| other.start == start)?).ok()?;
    let model = own.device_model.as_deref().unwrap_or_default();
    let mut history = History::default();
    for run in runs {
        add(&mut history, run);
    }
    let of_model = history.workloads.iter().find(|workload| workload.gpu_model == model)?;
    let shape = NodeShape::seen(&of_model.runs);
    let table = Table::of(of_model.measure, &of_model.runs, shape, 1.0).ok()?;
    let found = advise(&table, own.gpu_count, EFFICIENCY_USUAL)?;
    let ratio = found.time_ratio.expected;
    Some(format!(
        "With {} instead of {} it would have taken {} ({:+.0} %) and {:.0} % fewer GPU-hours",
        gpus(found.gpus),
        found.instead_of,
        clock(own.elapsed_seconds * ratio),
        100.0 * (ratio - 1.0),
        100.0 * found.saved_gpu_hours_fraction.expected
    ))
}

fn gpus(count: u32) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// `2:29:00`.
fn clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration of a job")]
    let seconds = seconds.round() as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The mean of the sum of those of these metrics that are told, over all samples in which there are any.
fn mean(parts: &[&JobSummary], metrics: &[Metric]) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for part in parts {
        let weight = f64::from(part.solo_sample_count);
        let Some(means) = part.solo_means.as_ref().filter(|_| weight > 0.0) else { continue };
        let told: Vec<f64> = metrics.iter().filter_map(|metric| means.0.get(*metric)).collect();
        if !told.is_empty() {
            sum += weight * told.iter().sum::<f64>();
            weights += weight;
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests;
