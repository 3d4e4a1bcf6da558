//! The pool, played out in worlds small enough to be counted by hand, and what holds of every one.

use super::*;
use pillion_core::WorkloadKey;
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
        idle_watts: Some(100.0),
    }
}

fn node(gpus: u32) -> PoolNode {
    PoolNode { name: "n1".to_owned(), gpu_type: 0, gpus, cpus_free: 64, memory_mib_free: 1 << 20 }
}

fn job(workload: u32, eligible_at: f64, seconds: f64, use_fraction: Option<f32>) -> PoolJob {
    let usage = Usage {
        busy_fraction: use_fraction,
        sm_active_fraction: use_fraction,
        memory_bandwidth_fraction: use_fraction.map(|part| part / 2.0),
        memory_bytes_peak: use_fraction.map(|_| 10 * GIB),
        ..Usage::default()
    };
    PoolJob {
        user: workload,
        account: 0,
        workload,
        gpu_type: 0,
        eligible_at,
        seconds,
        limit_seconds: Some(seconds * 10.0),
        order: 0,
        cpus: 4,
        memory_mib: 1024,
        ended: Ended::Completed,
        usage,
        profile: profile_of(WorkloadKey::new(format!("{workload}/{workload}")), "h100", &usage),
    }
}

fn in_order(mut jobs: Vec<PoolJob>) -> Vec<PoolJob> {
    jobs.sort_by(|a, b| a.eligible_at.total_cmp(&b.eligible_at));
    for (order, job) in (0..).zip(&mut jobs) {
        job.order = order;
    }
    jobs
}

#[test]
fn a_first_run_is_alone_and_the_second_shares() {
    let light = Some(0.1);
    let jobs = in_order(vec![
        job(1, 0.0, 1000.0, light),
        job(2, 0.0, 1000.0, light),
        job(1, 5000.0, 1000.0, light),
        job(2, 5000.0, 1000.0, light),
    ]);
    let played = play(&[node(4)], &jobs, &setting(), &Truth::Drawn(1));
    assert_eq!((played.groups, played.tenancies, played.slowdowns.len()), (1, 2, 2), "{played:?}");
    let saved = played.solo_hours - played.busy_hours;
    assert!((0.2..=1000.0 / 3600.0 + 1e-9).contains(&saved), "{saved}");
    assert!((played.joules_saved / 3.6e6 - 0.1 * saved).abs() < 0.01, "{played:?}");
    assert!(played.started_at.iter().all(Option::is_some) && played.limit_hits == 0);
}

#[test]
fn what_nobody_has_measured_never_shares() {
    let jobs: Vec<PoolJob> = (0..8).map(|at| job(1, f64::from(at) * 50.0, 1000.0, None)).collect();
    let played = play(&[node(2)], &in_order(jobs), &setting(), &Truth::Drawn(1));
    assert_eq!((played.groups, played.slowdowns.len()), (0, 0));
    assert!((played.solo_hours - played.busy_hours).abs() < 1e-9);
    // Without the memory of the device nobody shares either.
    let blind =
        Setting { gpu_types: vec![GpuType { name: "h100".to_owned(), memory_bytes: None }], ..setting() };
    let jobs: Vec<PoolJob> = (0..8).map(|at| job(1, f64::from(at) * 5000.0, 1000.0, Some(0.1))).collect();
    assert_eq!(play(&[node(2)], &in_order(jobs), &blind, &Truth::Drawn(1)).groups, 0);
}

#[test]
fn who_needs_more_memory_than_ever_before_ends_both_and_they_start_again_alone() {
    let mut jobs = in_order(vec![
        job(1, 0.0, 1000.0, Some(0.1)),
        job(2, 0.0, 1000.0, Some(0.1)),
        job(1, 5000.0, 1000.0, Some(0.1)),
        job(2, 5000.0, 1000.0, Some(0.1)),
    ]);
    for job in &mut jobs[2..] {
        job.usage.memory_bytes_peak = Some(50 * GIB);
        job.profile.memory_bytes_peak = Some(50 * GIB);
    }
    let played = play(&[node(4)], &jobs, &setting(), &Truth::Drawn(1));
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
    let played = play(&[node(4)], &in_order(jobs), &Setting { policy, ..setting() }, &Truth::Drawn(3));
    assert!(played.groups > 0 && played.limit_hits > 0, "{played:?}");
    assert!(played.busy_hours > played.solo_hours - played.shared_hours, "what is lost is counted");
}

prop_compose! {
    fn world()(
        gpus in prop::collection::vec(1u32..4, 1..3),
        raw in prop::collection::vec((0u32..4, 0u32..20_000, 60u32..4000, prop::option::of(0u8..100), 1u32..40), 1..40),
    ) -> (Vec<PoolNode>, Vec<PoolJob>) {
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
    fn every_job_runs_no_node_is_overbooked_and_hours_add_up((nodes, jobs) in world(), seed in 0u64..5) {
        let played = play(&nodes, &jobs, &setting(), &Truth::Drawn(seed));
        prop_assert!(jobs.iter().zip(&played.started_at).all(|(job, start)| start.is_some_and(|start| start >= job.eligible_at)));
        let solo: f64 = jobs.iter().map(|job| job.seconds / 3600.0).sum();
        prop_assert!((played.solo_hours - solo).abs() < 1e-6);
        // Two on a device save at most the half of what both need, and nothing is saved but by sharing.
        prop_assert!(played.solo_hours - played.busy_hours <= played.shared_hours + 1e-6, "{played:?}");
        prop_assert!(played.slowdowns.iter().all(|slowdown| *slowdown >= 1.0 - 1e-6));
        prop_assert!(played.tenancies >= 2 * played.groups && played.risk_sum <= crate::report::count(played.tenancies));
        prop_assert_eq!(&played, &play(&nodes, &jobs, &setting(), &Truth::Drawn(seed)), "it is the same again");
    }
}
