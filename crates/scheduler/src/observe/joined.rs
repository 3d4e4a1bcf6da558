//! All parts of one start joined to what a profile is learnt from: over the pieces in which the job was on a node, and over the
//! devices and nodes that it had. Pure.

use pillion_core::metric::{Measured, Metrics};
use pillion_core::report::{ActivityMeans, JobSummary, ProgressPart};
use pillion_core::workload::on_several;
use pillion_core::{GresType, NodeName, UnixTime};
use pillion_store::{JobRecord, MeasuredRun, ObservedJob, ObservedRun};
use std::collections::{BTreeMap, BTreeSet};

/// How long after a start is over its last part is waited for, where an agent does not respond or the job never was on a device.
const LATE_SECONDS_MAX: f64 = 600.0;
/// How long parts may take whose agents respond: two looks, and the way here.
const SETTLED_SECONDS: f64 = 10.0;

/// Whether nothing more is to come of a start that is over.
pub(crate) fn is_settled(job: &ObservedJob, runs: &[ObservedRun], now: UnixTime) -> bool {
    let Some(ended_at) = job.ended_at else { return false };
    let waited = now.seconds_since(ended_at);
    let told: BTreeSet<_> = runs.iter().map(|run| (&run.node, &run.summary.gres_type)).collect();
    let is_whole = !job.devices.is_empty()
        && job.devices.iter().all(|held| told.contains(&(&held.node, &held.gres_type)));
    waited >= LATE_SECONDS_MAX || waited >= SETTLED_SECONDS && is_whole
}

/// How many devices a start had: those that Slurm says it holds, or those that it was seen on where Slurm does not say.
pub(super) fn device_count(job: &ObservedJob, runs: &[ObservedRun]) -> usize {
    let seen: BTreeSet<_> = runs.iter().map(|run| (&run.node, &run.summary.gres_type)).collect();
    job.devices.len().max(seen.len())
}

/// The run of the whole start, as if it were one on one device.
///
/// # Errors
/// Why nothing can be learnt of it, one sentence.
pub(super) fn joined(job: &ObservedJob, runs: &[ObservedRun]) -> Result<MeasuredRun, &'static str> {
    let first = runs.first().ok_or("no process of it was seen on a device")?;
    if first.device_model.is_empty() {
        return Err("its device was never announced");
    }
    if runs.iter().any(|run| run.device_model != first.device_model) {
        return Err("its devices are of several models");
    }
    let mut of_devices: BTreeMap<(&NodeName, &GresType), Vec<&JobSummary>> = BTreeMap::new();
    for run in runs {
        of_devices.entry((&run.node, &run.summary.gres_type)).or_default().push(&run.summary);
    }
    let parts = || runs.iter().map(|run| &run.summary);
    let solo_sample_count = parts().map(|part| part.solo_sample_count).fold(0, u32::saturating_add);
    // What shares one of its devices is beside all of it.
    let shared_seconds = of_devices
        .values()
        .map(|parts| parts.iter().map(|part| part.shared_seconds).sum())
        .fold(0.0, f64::max);
    let energies: Option<Vec<f64>> = parts().map(|part| part.energy_joules).collect();
    #[expect(clippy::cast_precision_loss, reason = "a job has a handful of devices")]
    let energy_joules = energies.map(|all| all.iter().sum::<f64>() / of_devices.len() as f64);
    let summary = JobSummary {
        start: job.start,
        gres_type: first.summary.gres_type.clone(),
        // By Slurm's clock: the agent saw it from its first process on a device.
        started_at: job.started_at,
        ended_at: job.ended_at.unwrap_or(first.summary.ended_at),
        shared_seconds,
        shared_device_seconds: None,
        memory_bytes_peak: parts().filter_map(|part| part.memory_bytes_peak).max(),
        process_count_peak: parts().map(|part| part.process_count_peak).max().unwrap_or(0),
        process_memory_bytes_peak: parts().filter_map(|part| part.process_memory_bytes_peak).max(),
        energy_joules,
        solo: ProgressPart::default(),
        shared: ProgressPart::default(),
        solo_means: means(parts()),
        solo_sample_count,
        neighbours: parts().flat_map(|part| part.neighbours.iter().copied()).collect(),
        signs: first.summary.signs.clone().filter(|_| runs.len() == 1),
    };
    Ok(MeasuredRun {
        summary,
        node: first.node.clone(),
        device_model: first.device_model.clone(),
        device_memory_bytes: first.device_memory_bytes,
        job: record(job, device_count(job, runs)),
        decision: None,
        requeue: None,
    })
}

/// Each metric's mean over all samples in which it was told.
fn means<'a>(parts: impl Iterator<Item = &'a JobSummary>) -> Option<ActivityMeans> {
    let mut sums: BTreeMap<_, (Measured, f64)> = BTreeMap::new();
    for part in parts {
        let weight = f64::from(part.solo_sample_count);
        let Some(ActivityMeans(metrics)) = part.solo_means.as_ref().filter(|_| weight > 0.0) else {
            continue;
        };
        for (metric, measured) in metrics.iter() {
            let (sum, weights) = sums.entry(metric).or_insert((Measured { value: 0.0, ..measured }, 0.0));
            sum.value += measured.value * weight;
            *weights += weight;
        }
    }
    let mut metrics = Metrics::default();
    for (metric, (sum, weights)) in &sums {
        metrics.put(*metric, Measured { value: sum.value / weights, ..*sum });
    }
    (!sums.is_empty()).then_some(ActivityMeans(metrics))
}

/// The job as profiles are made of managed ones.
fn record(job: &ObservedJob, device_count: usize) -> JobRecord {
    JobRecord {
        id: job.start.job_id,
        restart_count: job.start.restart_count,
        uid: job.uid,
        user: job.user.clone(),
        account: job.account.clone(),
        partition: job.partition.clone(),
        workload: on_several(&job.workload, device_count),
        slowdown_ratio_max: None,
        memory_bytes_declared: None,
        submitted_at: job.submitted_at,
        started_at: Some(job.started_at),
        ended_at: job.ended_at,
        ending: job.ending,
        node: job.nodes.first().cloned(),
        node_count: u32::try_from(job.nodes.len()).ok(),
        gres: job.gres.clone(),
        alone: false,
        exit: job.exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{held, observed};
    use crate::testing::{NOW, at, summary};
    use pillion_core::metric::Metric;

    fn run(node: &str, device: &str, samples: u32, active: f64) -> ObservedRun {
        let means = ActivityMeans(Metrics::from([(Metric::SmActiveFraction, active)]));
        ObservedRun {
            node: NodeName::new(node),
            summary: JobSummary {
                gres_type: GresType::new(device),
                solo_means: Some(means),
                solo_sample_count: samples,
                energy_joules: Some(100.0),
                memory_bytes_peak: Some(u64::from(samples)),
                ..summary(observed(7).start)
            },
            device_model: "h100".to_owned(),
            device_memory_bytes: 80 << 30,
        }
    }

    #[test]
    fn a_job_of_several_devices_and_pieces_is_one_run_of_its_own_workload() {
        let devices = vec![held("n1", "g0"), held("n1", "g1"), held("n2", "g0")];
        let job = ObservedJob { devices, ended_at: Some(at(NOW + 100)), ..observed(7) };
        let runs = [
            run("n1", "g0", 10, 0.8),
            run("n1", "g0", 30, 0.4),
            run("n1", "g1", 40, 0.5),
            run("n2", "g0", 20, 0.2),
        ];
        let joined = joined(&job, &runs).unwrap();
        assert_eq!(joined.job.workload.as_str(), "alice/3x-w");
        let active = joined.summary.solo_means.unwrap().0.get(Metric::SmActiveFraction).unwrap();
        assert!((active - (8.0 + 12.0 + 20.0 + 4.0) / 100.0).abs() < 1e-9, "{active}");
        assert_eq!((joined.summary.solo_sample_count, joined.summary.memory_bytes_peak), (100, Some(40)));
        assert!((joined.summary.energy_joules.unwrap() - 400.0 / 3.0).abs() < 1e-9);
        assert_eq!((joined.summary.started_at, joined.summary.ended_at), (at(NOW), at(NOW + 100)));
    }

    #[test]
    fn what_shares_one_of_its_devices_is_beside_all_of_it() {
        let mut shared = run("n1", "g1", 10, 0.5);
        shared.summary.shared_seconds = 60.0;
        let joined = joined(&observed(7), &[run("n1", "g0", 10, 0.5), shared]).unwrap();
        assert!((joined.summary.shared_seconds - 60.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_one_kind_of_device_teaches_nothing() {
        let other = ObservedRun { device_model: "a100".to_owned(), ..run("n1", "g1", 10, 0.5) };
        assert!(joined(&observed(7), &[run("n1", "g0", 10, 0.5), other]).is_err());
        assert!(joined(&observed(7), &[]).is_err());
    }

    #[test]
    fn the_last_part_is_waited_for_and_not_for_ever() {
        let job = ObservedJob {
            devices: vec![held("n1", "g0"), held("n1", "g1")],
            ended_at: Some(at(NOW)),
            ..observed(7)
        };
        let (one, both) = ([run("n1", "g0", 9, 0.5)], [run("n1", "g0", 9, 0.5), run("n1", "g1", 9, 0.5)]);
        assert!(!is_settled(&job, &both, at(NOW + 5)) && is_settled(&job, &both, at(NOW + 11)));
        assert!(!is_settled(&job, &one, at(NOW + 500)) && is_settled(&job, &one, at(NOW + 601)));
        assert!(!is_settled(&ObservedJob { ended_at: None, ..job }, &both, at(NOW + 9999)));
    }
}
