//! What runs say, observed ones and those of the pool.

use super::*;
use crate::testing::{NOW, at, start, summary};
use pillion_core::metric::Metrics;
use pillion_core::report::ActivityMeans;
use pillion_core::report::ProgressPart;
use pillion_store::{HeldDevice, ObservedJob, ObservedRun};

fn held(device: &str) -> HeldDevice {
    HeldDevice::new(NodeName::new("n1"), GresType::new(device))
}

/// An observed run of a hundred seconds.
fn observed(devices: &[HeldDevice], parts: &[ObservedRun]) -> ScalingRun {
    ScalingRun::observed(job(devices), parts.to_vec()).unwrap()
}

/// One of the pool, of as many nodes, with all of so many devices of each.
fn of_pool(nodes: u32, devices: &[HeldDevice], parts: &[ObservedRun]) -> ScalingRun {
    let device_count = Some(nodes * to_u32(devices.len()));
    ScalingRun { node_count: Some(nodes), device_count, ..observed(devices, parts) }
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
    let parts = [part("g0", 100, 0.9), part("g1", 50, 0.9)];
    let found = run(&observed(&[held("g0"), held("g1")], &parts)).unwrap();
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
    let found = run(&observed(&[held("g0"), seen], &[part("g0", 100, 0.9)])).unwrap();
    assert_eq!(found.ranks[1].active_fraction, Some(0.0));
    assert_eq!(found.energy_joules, None, "it was not metered");
    let found = run(&observed(&[held("g0"), held("g1")], &[part("g0", 100, 0.9)])).unwrap();
    assert_eq!((found.gpu_count, found.ranks[1].active_fraction), (2, None), "nobody looked");
}

#[test]
fn what_was_not_alone_or_not_clear_is_left_out_and_counted() {
    let mut beside = part("g0", 100, 0.9);
    beside.summary.shared_seconds = 6.0;
    let other = ObservedRun { device_model: "a100".to_owned(), ..part("g1", 100, 0.9) };
    let runs = [
        observed(&[held("g0")], &[beside]),
        observed(&[held("g0"), held("g1")], &[part("g0", 100, 0.9), other]),
        observed(&[], &[]),
        observed(&[held("g0")], &[part("g0", 100, 0.9)]),
    ];
    let told = answer(&runs, &ScalingFilter::default());
    assert_eq!(
        (told.runs.len(), told.shared_run_count, told.unclear_run_count, told.is_cut),
        (1, 1, 2, false)
    );
    assert!(told.runs[0].ranks.is_empty(), "of all workloads at once");
}

#[test]
fn a_run_of_the_pool_counts_as_an_observed_one_does() {
    let parts = [part("g0", 100, 0.9), part("g1", 100, 0.9)];
    let devices = [held("g0"), held("g1")];
    let pool = run(&of_pool(1, &devices, &parts)).unwrap();
    assert_eq!(pool, run(&observed(&devices, &parts)).unwrap());
    // An agent of the pool tells of each device: one that no process was on did nothing.
    let mut idle = part("g1", 0, 0.0);
    (idle.summary.process_count_peak, idle.summary.solo_means) = (0, None);
    let found = run(&of_pool(1, &devices, &[part("g0", 100, 0.9), idle])).unwrap();
    assert_eq!(found.ranks[1].active_fraction, Some(0.0));
}

#[test]
fn of_several_nodes_the_times_count_and_what_one_agent_cannot_know_is_not_said() {
    let counting = |node: u32| {
        let mut parts = [part("g0", 100, 0.9), part("g1", 100, 0.9)];
        parts[1].summary.solo = ProgressPart { progress: Some(500.0), seconds: 80.0 };
        run(&of_pool(node, &[held("g0"), held("g1")], &parts)).unwrap()
    };
    let (one, two) = (counting(1), counting(2));
    assert_eq!((one.gpu_count, one.node_count, two.gpu_count, two.node_count), (2, 1, 4, 2));
    assert_eq!((one.energy_joules, two.energy_joules), (Some(1000.0), None));
    assert_eq!((one.progress_per_second, two.progress_per_second), (Some(6.25), None));
    assert!((two.elapsed_seconds - 100.0).abs() < 1e-9);
}

#[test]
fn in_the_pool_it_is_told_who_had_a_part_of_a_device_or_may_have() {
    let whole = of_pool(1, &[held("g0")], &[]);
    assert_eq!(run(&whole).map(|run| run.gpu_count), Ok(1), "Slurm booked all of it");
    let known = ScalingRun { device_model: Some("h100".to_owned()), ..whole.clone() };
    assert_eq!(run(&known).unwrap().device_model.as_deref(), Some("h100"));
    let parted = ScalingRun { has_whole_devices: false, ..whole.clone() };
    assert_eq!(run(&parted), Err(LeftOut::Unclear), "nobody says who was beside it");
    let told = ScalingRun { parts: vec![part("g0", 100, 0.9)], ..parted };
    assert_eq!(run(&told).map(|run| run.gpu_count), Ok(1), "nobody was");
    let capped = ScalingRun { is_of_a_part: true, ..told };
    assert_eq!(run(&capped), Err(LeftOut::Shared));
    let old = ScalingRun { node_count: None, device_count: None, ..whole };
    assert_eq!(run(&old), Err(LeftOut::Unclear), "nobody wrote down on how many nodes");
}

/// A completed run on so many devices, in so many seconds.
fn timed(id: u32, devices: u32, seconds: u64) -> ScalingRun {
    let names: Vec<String> = (0..devices).map(|at| format!("g{at}")).collect();
    let held: Vec<HeldDevice> = names.iter().map(|name| held(name)).collect();
    let start = JobStart { job_id: pillion_core::SlurmJobId::plain(id), restart_count: 0 };
    let parts: Vec<ObservedRun> = names.iter().map(|name| part(name, 100, 0.9)).collect();
    ScalingRun { start, ended_at: at(NOW + seconds), ..observed(&held, &parts) }
}

#[test]
fn a_run_with_more_gpus_than_it_is_worth_is_told_where_that_is_sure() {
    let times = [(1, 7200), (2, 4500), (4, 4300)];
    let runs: Vec<_> = (0..3)
        .flat_map(|round| {
            times.map(|(gpus, seconds)| timed(10 * round + gpus, gpus, seconds + u64::from(round)))
        })
        .collect();
    let of = |count: usize| runs.iter().find(|run| run.devices.len() == count).unwrap().start;
    let told = advice(of(4), &runs).unwrap();
    assert_eq!(told, "With 2 GPUs instead of 4 it would have taken 1:15:00 (+5 %) and 48 % fewer GPU-hours");
    assert_eq!(advice(of(2), &runs), None, "it is worth its two");
    assert_eq!(advice(of(4), &runs[..2]), None, "it is none of these");
    let key = WorkloadKey::new("alice/2x-w");
    let ending = Some(Ending::Completed);
    let two = Asked { start: of(2), uid: UserId(1000), workload: &key, device_count: 2, ending };
    assert_eq!(advice_filter(two).unwrap().workload, Some(WorkloadKey::new("alice/w")));
    assert_eq!(advice_filter(Asked { device_count: 1, ..two }), None, "one device has nothing less");
    assert_eq!(advice_filter(Asked { ending: Some(Ending::Failed), ..two }), None);
    let summed = |runs: &[ScalingRun]| {
        let mut history = History::default();
        for run in runs {
            add(&mut history, run);
        }
        sum(&history)
    };
    let sum = summed(&runs).unwrap();
    // 4 x 4301 of 7201 + 2 x 4501 + 4 x 4301, three times.
    assert_eq!(sum.workload_count, 1);
    assert!((sum.gpu_seconds_above - 3.0 * 4.0 * 4301.0).abs() < 1e-6, "{sum:?}");
    assert!((sum.gpu_seconds - 3.0 * (7201.0 + 2.0 * 4501.0 + 4.0 * 4301.0)).abs() < 1e-6, "{sum:?}");
    assert_eq!(summed(&runs[..1]), None, "one count says nothing");
}

#[test]
fn a_user_asks_for_his_own_runs_alone_whatever_the_count() {
    let alice = Caller { uid: Some(UserId(1000)), is_operator: false };
    let asked = filter("alice/4x-1f", alice).unwrap();
    assert_eq!((asked.uid, asked.workload), (Some(UserId(1000)), Some(WorkloadKey::new("alice/1f"))));
    let operator = Caller { uid: Some(UserId(0)), is_operator: true };
    assert_eq!(filter("", operator).unwrap(), ScalingFilter::default());
    assert!(filter("", Caller { uid: None, is_operator: false }).is_err());
    let unasked = api::AccountRequest { since_seconds: 10.0, ..api::AccountRequest::default() };
    assert_eq!(sum_filter(&unasked, operator), None, "what nobody reads costs nothing");
    let request = api::AccountRequest { scaling_runs_max: Some(7), ..unasked };
    assert_eq!(sum_filter(&request, alice), None, "the sum is for operators");
    assert_eq!(sum_filter(&request, operator).unwrap().limit, 7);
    assert_eq!(sum_filter(&request, operator).unwrap().since, Some(at(10)));
    let of_bob = api::AccountRequest { user: "bob".to_owned(), ..request };
    assert_eq!(sum_filter(&of_bob, operator), None);
}
