//! Runs of observed partitions, as it is told by them how workloads scale: each joined over the nodes and devices that it had. Pure;
//! what is made of them is `pillion-scale`'s, where they are asked for.

use super::auth::Caller;
use super::listing;
use super::top::to_u32;
use pillion_api as api;
use pillion_core::metric::Metric;
use pillion_core::report::JobSummary;
use pillion_core::units::SECONDS_PER_HOUR;
use pillion_core::workload;
use pillion_core::{GresType, NodeName, WorkloadKey};
use pillion_scale::{EFFICIENCY_USUAL, History, Measure, NodeShape, Run, Table, advise, summarise};
use pillion_slurm::Ending;
use pillion_store::{ObservedJob, ObservedRun, ScalingFilter};
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

/// Of which runs an account tells what was spent above break-even: for operators, and where nothing but the time is asked for.
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
        ..
    } = request;
    let is_of_all =
        [user, account, partition, workload].iter().all(|filter| filter.is_empty()) && nodes.is_empty();
    let is_asked = caller.is_operator && is_of_all && ["", "day"].contains(&group_by.as_str());
    is_asked.then(|| ScalingFilter {
        since: listing::asked_time(*since_seconds),
        until: listing::asked_time(*until_seconds),
        ..ScalingFilter::default()
    })
}

/// The answer: what these runs were.
pub(super) fn answer(runs: &[(ObservedJob, Vec<ObservedRun>)], filter: &ScalingFilter) -> api::ScaleResponse {
    let mut response =
        api::ScaleResponse { is_cut: to_u32(runs.len()) >= filter.limit, ..api::ScaleResponse::default() };
    for (job, parts) in runs {
        match run(job, parts) {
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
    /// Others were on its devices.
    Shared,
    /// Nobody knows which devices it had, or these were of several models.
    Unclear,
}

/// One run.
pub(super) fn run(job: &ObservedJob, parts: &[ObservedRun]) -> Result<api::ScaleRun, LeftOut> {
    let elapsed_seconds = job.ended_at.map_or(0.0, |ended| ended.seconds_since(job.started_at));
    let mut of_devices: BTreeMap<Place<'_>, Vec<&JobSummary>> =
        job.devices.iter().map(|held| ((&held.node, &held.gres_type), Vec::new())).collect();
    for part in parts {
        of_devices.entry((&part.node, &part.summary.gres_type)).or_default().push(&part.summary);
    }
    let models: Vec<&str> =
        parts.iter().map(|part| part.device_model.as_str()).filter(|model| !model.is_empty()).collect();
    if of_devices.is_empty() || elapsed_seconds <= 0.0 || models.windows(2).any(|two| two[0] != two[1]) {
        return Err(LeftOut::Unclear);
    }
    let shared = of_devices.values().map(|parts| parts.iter().map(|part| part.shared_seconds).sum::<f64>());
    if shared.fold(0.0, f64::max) > SHARED_FRACTION_MAX * elapsed_seconds {
        return Err(LeftOut::Shared);
    }
    Ok(api::ScaleRun {
        job_id: job.start.job_id.to_string(),
        user: job.user.clone(),
        workload: Some(job.workload.to_string()),
        workload_name: None,
        device_model: models.first().map(|model| (*model).to_owned()),
        gpu_count: to_u32(of_devices.len()),
        node_count: to_u32(job.nodes.len()).max(1),
        started_at_seconds: job.started_at.seconds(),
        elapsed_seconds,
        energy_joules: energy(&of_devices),
        ranks: ranks(job, &of_devices, elapsed_seconds),
    })
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
    job: &ObservedJob,
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
        let is_unused = parts.is_empty() && is_unused(job, node, gres_type);
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
fn is_unused(job: &ObservedJob, node: &NodeName, gres_type: &GresType) -> bool {
    let held = job.devices.iter().find(|held| held.node == *node && held.gres_type == *gres_type);
    held.is_some_and(|held| held.seen_seconds > 0.0 && held.process_at.is_none())
}

/// What these runs spent above the break-even of their workloads; `None` where none ran with several numbers of GPUs.
pub(super) fn sum(runs: &[(ObservedJob, Vec<ObservedRun>)]) -> Option<api::ScaleSum> {
    let sum = summarise(&history(runs), EFFICIENCY_USUAL, None);
    (!sum.workloads.is_empty()).then(|| api::ScaleSum {
        efficiency_ratio: EFFICIENCY_USUAL,
        workload_count: to_u32(sum.workloads.len()),
        gpu_seconds: sum.gpu_hours * SECONDS_PER_HOUR,
        gpu_seconds_above: sum.gpu_hours_above * SECONDS_PER_HOUR,
    })
}

/// By the key of the workload and the model of its devices.
fn history(runs: &[(ObservedJob, Vec<ObservedRun>)]) -> History {
    let mut history = History::default();
    for (job, parts) in runs {
        let Ok(run) = run(job, parts) else { continue };
        let timed = Run::metered(run.node_count, run.gpu_count, run.elapsed_seconds, run.energy_joules);
        let model = run.device_model.as_deref().unwrap_or_default();
        history.add(job.workload.as_str(), model, Measure::Elapsed, timed);
    }
    history
}

/// Among which runs advice on this one is looked for: its user's of the same workload. None on a run that
/// is not over, did not complete or had one device, which has nothing less.
pub(super) fn advice_filter(job: &ObservedJob) -> Option<ScalingFilter> {
    let has_several = job.devices.len() > 1 && job.ending == Some(Ending::Completed);
    let (uid, workload) = (Some(job.uid), Some(job.workload.clone()));
    has_several.then(|| ScalingFilter { uid, workload, ..ScalingFilter::default() })
}

/// What a completed run of these, which are of one workload, could have done with fewer GPUs, in one sentence; `None` unless it is sure.
pub(super) fn advice(job: &ObservedJob, runs: &[(ObservedJob, Vec<ObservedRun>)]) -> Option<String> {
    let (_, parts) = runs.iter().find(|(other, _)| other.start == job.start)?;
    let own = run(job, parts).ok()?;
    let model = own.device_model.as_deref().unwrap_or_default();
    let history = history(runs);
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
mod tests {
    use super::*;
    use crate::testing::{NOW, at, start, summary};
    use pillion_core::metric::Metrics;
    use pillion_core::report::ActivityMeans;
    use pillion_core::{JobStart, UserId};
    use pillion_store::HeldDevice;

    fn held(device: &str) -> HeldDevice {
        HeldDevice::new(NodeName::new("n1"), GresType::new(device))
    }

    fn job(devices: &[HeldDevice]) -> ObservedJob {
        ObservedJob {
            start: start(),
            inner_id: 7,
            uid: UserId(1000),
            user: "alice".to_owned(),
            account: String::new(),
            partition: "gpu".to_owned(),
            workload: WorkloadKey::new("alice/w"),
            submitted_at: at(NOW),
            started_at: at(NOW),
            ended_at: Some(at(NOW + 100)),
            ending: Some(Ending::Completed),
            exit: Some((0, 0)),
            nodes: vec![NodeName::new("n1")],
            gres: "gpu:2".to_owned(),
            devices: devices.to_vec(),
        }
    }

    /// A part over the whole run, of which its process was there for so many of 100 samples.
    fn part(device: &str, samples: u32, active: f64) -> ObservedRun {
        let metrics = [(Metric::SmActiveFraction, active), (Metric::PcieTxBytesPerSecond, 1e6)];
        let of: JobStart = start();
        ObservedRun {
            node: NodeName::new("n1"),
            summary: JobSummary {
                gres_type: GresType::new(device),
                started_at: at(NOW),
                ended_at: at(NOW + 100),
                shared_seconds: 0.0,
                energy_joules: Some(500.0),
                solo_means: Some(ActivityMeans(Metrics::from(metrics))),
                solo_sample_count: samples,
                ..summary(of)
            },
            device_model: "h100".to_owned(),
            device_memory_bytes: 80 << 30,
        }
    }

    #[test]
    fn a_run_is_joined_over_its_devices_and_who_went_early_did_nothing_from_then_on() {
        let found =
            run(&job(&[held("g0"), held("g1")]), &[part("g0", 100, 0.9), part("g1", 50, 0.9)]).unwrap();
        assert_eq!((found.gpu_count, found.node_count, found.device_model.as_deref()), (2, 1, Some("h100")));
        assert!((found.elapsed_seconds - 100.0).abs() < 1e-9);
        assert_eq!(found.energy_joules, Some(1000.0));
        let active: Vec<f64> = found.ranks.iter().filter_map(|rank| rank.active_fraction).collect();
        assert!((active[0] - 0.9).abs() < 1e-9 && (active[1] - 0.45).abs() < 1e-9, "{active:?}");
        assert!((found.ranks[0].link_bytes_per_second.unwrap() - 1e6).abs() < 1e-3);
    }

    #[test]
    fn a_device_that_no_process_touched_is_an_idle_rank_where_somebody_looked() {
        let seen = HeldDevice { seen_seconds: 90.0, idle_seconds: 90.0, ..held("g1") };
        let found = run(&job(&[held("g0"), seen]), &[part("g0", 100, 0.9)]).unwrap();
        assert_eq!(found.ranks[1].active_fraction, Some(0.0));
        assert_eq!(found.energy_joules, None, "it was not metered");
        let found = run(&job(&[held("g0"), held("g1")]), &[part("g0", 100, 0.9)]).unwrap();
        assert_eq!((found.gpu_count, found.ranks[1].active_fraction), (2, None), "nobody looked");
    }

    #[test]
    fn what_was_not_alone_or_not_clear_is_left_out_and_counted() {
        let mut beside = part("g0", 100, 0.9);
        beside.summary.shared_seconds = 6.0;
        let other = ObservedRun { device_model: "a100".to_owned(), ..part("g1", 100, 0.9) };
        let runs = [
            (job(&[held("g0")]), vec![beside]),
            (job(&[held("g0"), held("g1")]), vec![part("g0", 100, 0.9), other]),
            (job(&[]), vec![]),
            (job(&[held("g0")]), vec![part("g0", 100, 0.9)]),
        ];
        let told = answer(&runs, &ScalingFilter::default());
        assert_eq!(
            (told.runs.len(), told.shared_run_count, told.unclear_run_count, told.is_cut),
            (1, 1, 2, false)
        );
        assert!(told.runs[0].ranks.is_empty(), "of all workloads at once");
    }

    /// A completed run on so many devices, in so many seconds.
    fn timed(id: u32, devices: u32, seconds: u64) -> (ObservedJob, Vec<ObservedRun>) {
        let names: Vec<String> = (0..devices).map(|at| format!("g{at}")).collect();
        let held: Vec<HeldDevice> = names.iter().map(|name| held(name)).collect();
        let start = JobStart { job_id: pillion_core::SlurmJobId::plain(id), restart_count: 0 };
        let of = ObservedJob { start, ended_at: Some(at(NOW + seconds)), ..job(&held) };
        (of, names.iter().map(|name| part(name, 100, 0.9)).collect())
    }

    #[test]
    fn a_run_with_more_gpus_than_it_is_worth_is_told_where_that_is_sure() {
        let times = [(1, 7200), (2, 4500), (4, 4300)];
        let runs: Vec<_> = (0..3)
            .flat_map(|round| {
                times.map(|(gpus, seconds)| timed(10 * round + gpus, gpus, seconds + u64::from(round)))
            })
            .collect();
        let four = &runs.iter().find(|(job, _)| job.devices.len() == 4).unwrap().0;
        let told = advice(four, &runs).unwrap();
        assert_eq!(
            told,
            "With 2 GPUs instead of 4 it would have taken 1:15:00 (+5 %) and 48 % fewer GPU-hours"
        );
        let two = &runs.iter().find(|(job, _)| job.devices.len() == 2).unwrap().0;
        assert_eq!(advice(two, &runs), None, "it is worth its two");
        assert_eq!(advice(four, &runs[..2]), None, "it is none of these");
        assert_eq!(advice_filter(two).unwrap().workload, Some(WorkloadKey::new("alice/w")));
        assert_eq!(advice_filter(&runs[0].0), None, "one device has nothing less");
        let sum = sum(&runs).unwrap();
        // 4 x 4301 of 7201 + 2 x 4501 + 4 x 4301, three times.
        assert_eq!(sum.workload_count, 1);
        assert!((sum.gpu_seconds_above - 3.0 * 4.0 * 4301.0).abs() < 1e-6, "{sum:?}");
        assert!((sum.gpu_seconds - 3.0 * (7201.0 + 2.0 * 4501.0 + 4.0 * 4301.0)).abs() < 1e-6, "{sum:?}");
        assert_eq!(super::sum(&runs[..1]), None, "one count says nothing");
    }

    #[test]
    fn a_user_asks_for_his_own_runs_alone_whatever_the_count() {
        let alice = Caller { uid: Some(UserId(1000)), is_operator: false };
        let asked = filter("alice/4x-1f", alice).unwrap();
        assert_eq!((asked.uid, asked.workload), (Some(UserId(1000)), Some(WorkloadKey::new("alice/1f"))));
        let operator = Caller { uid: Some(UserId(0)), is_operator: true };
        assert_eq!(filter("", operator).unwrap(), ScalingFilter::default());
        assert!(filter("", Caller { uid: None, is_operator: false }).is_err());
        let request = api::AccountRequest { since_seconds: 10.0, ..api::AccountRequest::default() };
        assert_eq!(sum_filter(&request, alice), None, "the sum is for operators");
        assert_eq!(sum_filter(&request, operator).unwrap().since, Some(at(10)));
        let of_bob = api::AccountRequest { user: "bob".to_owned(), ..request };
        assert_eq!(sum_filter(&of_bob, operator), None);
    }
}
