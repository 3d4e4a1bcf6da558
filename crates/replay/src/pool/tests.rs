//! The pool, played out in worlds small enough to be counted by hand, and what holds of every one.

use super::*;
use pillion_pairing::UserPolicy;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn setting() -> Setting {
    Setting {
        policy: Policy { users: UserPolicy::Any, ..Policy::default() },
        mechanism: Mechanism::Mps,
        gpu_types: vec![GpuType { name: "h100".to_owned(), memory_bytes: Some(80 * GIB) }],
        no_account: u32::MAX,
        plan_seconds: 2.0,
        effort: pillion_pairing::Effort::OfPlan,
        speeds: SpeedsByBusy::published(),
    }
}

fn node(gpus: u32) -> PoolNode {
    PoolNode {
        name: "n1".to_owned(),
        gpu_type: 0,
        gpus,
        cpus: 64,
        memory_mib: 1 << 20,
        cpus_free: 64,
        memory_mib_free: 1 << 20,
    }
}

fn job(workload: u32, eligible_at: f64, seconds: f64, use_fraction: Option<f32>) -> PoolJob {
    let usage = Usage {
        busy_fraction: use_fraction,
        sm_active_fraction: use_fraction,
        memory_bandwidth_fraction: use_fraction.map(|part| part / 2.0),
        memory_bytes_peak: use_fraction.map(|_| 10 * GIB),
        power_watts: use_fraction.map(|_| 200.0),
        ..Usage::default()
    };
    PoolJob {
        user: workload,
        account: 0,
        kind: workload,
        eligible_at,
        seconds,
        limit_seconds: Some(seconds * 10.0),
        order: 0,
        cpus: 4,
        memory_mib: 1024,
        ended: Ended::Completed,
        usage,
    }
}

/// Each workload on the one type of GPU.
fn kinds(gpu_type: u32) -> Vec<Kind> {
    let kind = |workload| Kind {
        workload,
        gpu_type,
        key: WorkloadKey::new(format!("{workload}/{workload}")),
        unseen: Unseen::drawn(workload, 1),
    };
    (0..4).map(kind).collect()
}

fn outcome_of(nodes: &[PoolNode], work: &Work, setting: &Setting, truth: &Truth) -> PoolOutcome {
    let told = std::cell::RefCell::new(Vec::new());
    let progress = |part| told.borrow_mut().push(part);
    let outcome = play(nodes, work, Rules { setting, truth, progress: &progress });
    let told = told.into_inner();
    assert!(told.is_sorted() && told.iter().all(|part| (0.0..=1.0).contains(part)), "{told:?}");
    outcome
}

fn in_order(mut jobs: Vec<PoolJob>) -> Work {
    jobs.sort_by(|a, b| a.eligible_at.total_cmp(&b.eligible_at));
    for (order, job) in (0..).zip(&mut jobs) {
        job.order = order;
    }
    Work { jobs, kinds: kinds(0) }
}

#[test]
fn a_first_run_is_alone_and_the_second_shares() {
    let light = Some(0.1);
    let work = in_order(vec![
        job(1, 0.0, 1000.0, light),
        job(2, 0.0, 1000.0, light),
        job(1, 5000.0, 1000.0, light),
        job(2, 5000.0, 1000.0, light),
    ]);
    let played = outcome_of(&[node(4)], &work, &setting(), &Truth::Drawn(1));
    assert_eq!((played.groups, played.tenancies, played.slowdowns.len()), (1, 2, 2), "{played:?}");
    let saved = played.solo_hours - played.busy_hours;
    assert!((0.2..=1000.0 / 3600.0 + 1e-9).contains(&saved), "{saved}");
    // 30 % of what each of them draws.
    let rest_watts = played.rest_watt_hours / played.power_known_hours;
    assert!(
        (rest_watts - 60.0).abs() < 1e-9 && (played.power_known_hours - played.shared_hours).abs() < 1e-9
    );
    assert!(played.started_at.iter().all(Option::is_some) && played.limit_hits == 0);
}

#[test]
fn what_nobody_has_measured_never_shares() {
    let jobs: Vec<PoolJob> = (0..8).map(|at| job(1, f64::from(at) * 50.0, 1000.0, None)).collect();
    let played = outcome_of(&[node(2)], &in_order(jobs), &setting(), &Truth::Drawn(1));
    assert_eq!((played.groups, played.slowdowns.len()), (0, 0));
    assert!((played.solo_hours - played.busy_hours).abs() < 1e-9);
    // Without the memory of the device nobody shares either.
    let blind =
        Setting { gpu_types: vec![GpuType { name: "h100".to_owned(), memory_bytes: None }], ..setting() };
    let jobs: Vec<PoolJob> = (0..8).map(|at| job(1, f64::from(at) * 5000.0, 1000.0, Some(0.1))).collect();
    assert_eq!(outcome_of(&[node(2)], &in_order(jobs), &blind, &Truth::Drawn(1)).groups, 0);
}

#[test]
fn who_needs_more_memory_than_ever_before_ends_both_and_they_start_again_alone() {
    let mut work = in_order(vec![
        job(1, 0.0, 1000.0, Some(0.1)),
        job(2, 0.0, 1000.0, Some(0.1)),
        job(1, 5000.0, 1000.0, Some(0.1)),
        job(2, 5000.0, 1000.0, Some(0.1)),
    ]);
    for job in &mut work.jobs[2..] {
        job.usage.memory_bytes_peak = Some(50 * GIB);
    }
    let played = outcome_of(&[node(4)], &work, &setting(), &Truth::Drawn(1));
    assert_eq!((played.out_of_memory, played.slowdowns.len()), (1, 2), "{played:?}");
    let lost = played.busy_hours - played.solo_hours;
    assert!((lost - UNFIT_SECONDS / 3600.0).abs() < 1e-6, "{lost}");
    assert!(played.slowdowns.iter().all(|slowdown| *slowdown > 1.25), "{:?}", played.slowdowns);
}

#[test]
fn whoever_sharing_slows_beyond_the_time_limit_is_done_again() {
    let mut jobs: Vec<PoolJob> = Vec::new();
    for round in 0..6 {
        for workload in 1..=2 {
            jobs.push(PoolJob {
                limit_seconds: Some(1000.5),
                ..job(workload, f64::from(round) * 5000.0, 1000.0, Some(0.4))
            });
        }
    }
    let policy = Policy {
        slowdown_ratio_max: pillion_core::SlowdownRatio::try_promise(2.0).unwrap(),
        ..setting().policy
    };
    let played = outcome_of(&[node(4)], &in_order(jobs), &Setting { policy, ..setting() }, &Truth::Drawn(3));
    assert!(played.groups > 0 && played.limit_hits > 0, "{played:?}");
    assert!(played.busy_hours > played.solo_hours - played.shared_hours, "what is lost is counted");
}

#[test]
fn who_waits_for_one_type_of_gpu_keeps_nobody_from_another() {
    // The one GPU of the first type is held for long, and more wait for it than are looked at.
    let nodes = [node(1), PoolNode { name: "n2".to_owned(), gpu_type: 1, ..node(1) }];
    let mut jobs = vec![job(1, 0.0, 1e6, None)];
    jobs.extend((0..200).map(|_| job(1, 10.0, 100.0, None)));
    jobs.push(PoolJob { kind: 6, ..job(2, 20.0, 100.0, None) });
    let mut work = in_order(jobs);
    work.kinds.extend(kinds(1));
    let gpu_types =
        ["a100", "h100"].map(|name| GpuType { name: name.to_owned(), memory_bytes: Some(80 * GIB) });
    let setting = Setting { gpu_types: gpu_types.to_vec(), ..setting() };
    let played = outcome_of(&nodes, &work, &setting, &Truth::Drawn(1));
    assert_eq!(played.started_at.last(), Some(&Some(20.0)));
    assert!(played.started_at[1].is_some_and(|start| start >= 1e6));
}

prop_compose! {
    fn world()(
        gpus in prop::collection::vec(1u32..4, 1..3),
        raw in prop::collection::vec((0u32..4, 0u32..20_000, 60u32..4000, prop::option::of(0u8..100), 1u32..40), 1..40),
    ) -> (Vec<PoolNode>, Work) {
        let nodes = gpus.iter().enumerate().map(|(at, gpus)| PoolNode { name: format!("n{at}"), ..node(*gpus) }).collect();
        let jobs = raw.into_iter().map(|(workload, at, seconds, part, cpus)| PoolJob {
            cpus,
            ..job(workload, f64::from(at), f64::from(seconds), part.map(|part| f32::from(part) / 100.0))
        });
        (nodes, in_order(jobs.collect()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Overbooked nodes and devices are assertions of the pool itself.
    #[test]
    fn every_job_runs_no_node_is_overbooked_and_hours_add_up((nodes, work) in world(), seed in 0u64..5) {
        let played = outcome_of(&nodes, &work, &setting(), &Truth::Drawn(seed));
        let jobs = &work.jobs;
        prop_assert!(jobs.iter().zip(&played.started_at).all(|(job, start)| start.is_some_and(|start| start >= job.eligible_at)));
        let solo: f64 = jobs.iter().map(|job| job.seconds / 3600.0).sum();
        prop_assert!((played.solo_hours - solo).abs() < 1e-6);
        // Two on a device save at most the half of what both need, and nothing is saved but by sharing.
        prop_assert!(played.solo_hours - played.busy_hours <= played.shared_hours + 1e-6, "{played:?}");
        prop_assert!(played.slowdowns.iter().all(|slowdown| *slowdown >= 1.0 - 1e-6));
        prop_assert!(played.tenancies >= 2 * played.groups && played.risk_sum <= crate::report::count(played.tenancies));
        prop_assert_eq!(&played, &outcome_of(&nodes, &work, &setting(), &Truth::Drawn(seed)), "it is the same again");
    }
}
