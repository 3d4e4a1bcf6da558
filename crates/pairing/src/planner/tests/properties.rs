//! What holds of every plan, over random clusters; how long a large one takes; what an explanation looks like.

use crate::model::{Contention, InterferenceModel, SpeedEstimate, TenantInput};
use crate::plan::{CANDIDATES_MAX, Explanation, Plan, Role};
use crate::planner::admit;
use crate::planner::candidates::Evaluator;
use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::classes::PlanContext;
use crate::planner::ends;
use crate::planner::rounds;
use crate::planner::{Effort, pairings, plan};
use crate::policy::{EndsBy, Policy, UserPolicy};
use crate::testing::{GIB, claim, device, device_with, job, profile, tenant, view};
use crate::view::{ClusterView, DeviceView, ProfileBook, WaitingJob};
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{NodeName, SlowdownRatio, SlurmJobId, UserId, WorkloadKey};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const WORKLOADS: [&str; 6] = ["light", "half", "heavy", "wide", "hungry", "never-seen"];

fn profiles() -> ProfileBook {
    let mut all = crate::testing::known_profiles();
    all.extend([profile("wide", 0.4, 0.7, 20), profile("hungry", 0.2, 0.2, 60)]);
    // Of every other it is known how much its runs differ.
    for (index, known) in all.iter_mut().enumerate() {
        known.duration_variation_fraction = (index % 2 == 0).then_some(0.3);
    }
    ProfileBook::from(all)
}

fn a_job() -> impl Strategy<Value = WaitingJob> {
    let limit = prop_oneof![Just(None), (1..4_u64).prop_map(|hours| Some(hours * 3600))];
    (0..WORKLOADS.len(), 1000..1003_u32, 1.0..3.0_f64, limit, 1..40_u32, prop::bool::weighted(0.1)).prop_map(
        |(workload, uid, promise, time_limit_seconds, cpus, is_held)| WaitingJob {
            uid: UserId(uid),
            slowdown_ratio_max: SlowdownRatio::try_promise(promise).unwrap(),
            time_limit_seconds,
            cpus,
            held: is_held.then(|| "dependency".to_owned()),
            ..job(1, WORKLOADS[workload])
        },
    )
}

fn a_device() -> impl Strategy<Value = DeviceView> {
    let mechanism =
        prop_oneof![3 => Just(Mechanism::Mps), 2 => Just(Mechanism::Ccs), 1 => Just(Mechanism::TimeSliced)];
    let running = prop::option::of((0..WORKLOADS.len(), 1..4_u64));
    let mode = prop_oneof![Just(1_u8), Just(2), Just(4)];
    (mechanism, running, mode, 1..4_u8, prop::bool::weighted(0.1)).prop_map(
        |(mechanism, running, mode, node, is_blocked)| {
            let mut device = match running {
                None => device("g0", mechanism),
                Some((workload, hours)) => {
                    device_with("g0", mechanism, tenant(900, WORKLOADS[workload], hours * 3600))
                }
            };
            for tenant in &mut device.tenants {
                tenant.sharing = Sharing::by(mechanism, None, Some(mode));
            }
            device.node = NodeName::new(format!("n{node}"));
            device.blocked = is_blocked.then(|| "agent not responding".to_owned());
            device
        },
    )
}

fn a_view() -> impl Strategy<Value = ClusterView> {
    let jobs = prop::collection::vec(a_job(), 0..24);
    (prop::collection::vec(a_device(), 0..8), jobs, 0..3_u32).prop_map(
        |(mut devices, mut waiting, claims)| {
            for (index, device) in devices.iter_mut().enumerate() {
                device.gres_type = pillion_core::GresType::new(format!("g{index}"));
            }
            for (id, job) in (1..).zip(&mut waiting) {
                job.start.job_id = SlurmJobId::plain(id);
            }
            let mut view = view(devices, waiting);
            view.profiles = profiles();
            view.alone_claims = (0..claims).map(|id| claim(800 + id)).collect();
            view
        },
    )
}

fn a_policy() -> impl Strategy<Value = Policy> {
    let users = prop_oneof![Just(UserPolicy::SameUser), Just(UserPolicy::SameAccount), Just(UserPolicy::Any)];
    let budget = prop_oneof![Just(0.02), 0.0..0.3_f64, Just(1.0)];
    let ends_by = prop_oneof![Just(EndsBy::Runs), Just(EndsBy::Limits)];
    (users, 1..5_u32, any::<bool>(), any::<bool>(), budget, ends_by).prop_map(
        |(users, tenants_max, caps, pair_when_idle, broken_budget_fraction, ends_by)| Policy {
            users,
            tenants_max,
            caps,
            ends_by,
            broken_budget_fraction,
            pair_when_idle,
            ..Policy::default()
        },
    )
}

fn device_of<'v>(view: &'v ClusterView, pairing: &crate::plan::Pairing) -> &'v DeviceView {
    let is_it =
        |device: &&DeviceView| device.node == pairing.node && pairing.gres_types.contains(&device.gres_type);
    view.devices.iter().find(is_it).expect("a plan names devices of its view")
}

fn waiting_of(view: &ClusterView, id: SlurmJobId) -> &WaitingJob {
    view.waiting.iter().find(|job| job.start.job_id == id).expect("a plan names jobs of its view")
}

fn check_each_once(view: &ClusterView, plan: &Plan) -> Result<(), TestCaseError> {
    let started = plan.pairings.iter().flat_map(|pairing| &pairing.members);
    for member in started.clone() {
        prop_assert_eq!(member.start.job_id, member.explanation.job_id);
    }
    let ids: Vec<SlurmJobId> =
        started.map(|member| &member.explanation).chain(&plan.left_waiting).map(|why| why.job_id).collect();
    prop_assert_eq!(ids.len(), view.waiting.len());
    prop_assert_eq!(ids.into_iter().collect::<BTreeSet<_>>().len(), view.waiting.len());
    let devices: BTreeSet<_> =
        plan.pairings.iter().map(|pairing| (&pairing.node, &pairing.gres_types)).collect();
    prop_assert_eq!(devices.len(), plan.pairings.len(), "a device is given once");
    Ok(())
}

/// Gives what is expected to break on the device beyond the budget.
fn check_device(
    view: &ClusterView,
    policy: &Policy,
    pairing: &crate::plan::Pairing,
) -> Result<f64, TestCaseError> {
    let device = device_of(view, pairing);
    prop_assert!(device.blocked.is_none());
    let booked: u32 = pairing.members.iter().map(|member| u32::from(member.shards.count())).sum();
    prop_assert!(booked <= device.shards_free, "{booked} of {}", device.shards_free);
    prop_assert_eq!(pairing.joins.is_some(), !device.tenants.is_empty());
    if device.tenants.len() + pairing.members.len() < 2 {
        return Ok(0.0);
    }
    let before: u64 = device.tenants.iter().filter_map(|tenant| tenant.memory_bytes).sum();
    let memory: u64 =
        pairing.members.iter().map(|member| member.memory_bytes.expect("sharers are measured")).sum();
    prop_assert!(before + memory <= admit::memory_usable(device, policy));
    let mut tenants = Vec::new();
    let mut promises = Vec::new();
    for tenant in &device.tenants {
        let profile = view.profiles.get(tenant.workload.as_ref().unwrap(), &device.model).unwrap();
        tenants.push(TenantInput { profile, sharing: tenant.sharing });
        promises.push(tenant.slowdown_ratio_max);
    }
    for member in &pairing.members {
        let profile = view.profiles.get(&member.workload, &device.model).unwrap();
        tenants.push(TenantInput { profile, sharing: member.sharing });
        promises.push(waiting_of(view, member.start.job_id).slowdown_ratio_max);
        prop_assert!(member.role != Role::Alone && member.shards.count() >= 10);
    }
    let estimates = Contention.predict(&tenants, &device.model).unwrap();
    let mut excess = 0.0;
    for (estimate, promise) in estimates.iter().zip(promises) {
        prop_assert!(admit::keeps_promise(estimate, promise));
        excess += estimate.break_probability(promise) - policy.broken_budget_fraction;
    }
    let sum: f64 = estimates.iter().map(|estimate| estimate.speed_fraction).sum();
    prop_assert!((sum - 1.0 - pairing.gain).abs() < 1e-9);
    prop_assert!(tenants.len() <= policy.tenants_max as usize);
    if let Some(mode) = pairing.sharing().ccs_mode() {
        prop_assert!(tenants.len() <= usize::from(mode), "{} tenants in mode {mode}", tenants.len());
        prop_assert!(device.tenants.iter().all(|tenant| tenant.sharing.ccs_mode() == Some(mode)));
    }
    Ok(excess)
}

/// A free device that could take a job on its node, besides those that Slurm takes for others.
fn is_one_idle_for(view: &ClusterView, plan: &Plan, job: &WaitingJob) -> bool {
    let is_used = |device: &DeviceView| {
        plan.pairings
            .iter()
            .any(|pairing| pairing.node == device.node && pairing.gres_types.contains(&device.gres_type))
    };
    let cpus_left = |name: &NodeName| {
        let node = view.nodes.iter().find(|node| node.name == *name).unwrap();
        let starts = plan.pairings.iter().filter(|pairing| pairing.node == *name);
        let taken = starts
            .flat_map(|pairing| &pairing.members)
            .map(|member| waiting_of(view, member.start.job_id).cpus);
        node.cpus_free - taken.sum::<u32>()
    };
    let is_idle = |device: &&DeviceView| {
        device.blocked.is_none()
            && device.tenants.is_empty()
            && !is_used(device)
            && cpus_left(&device.node) >= job.cpus
    };
    view.devices.iter().filter(is_idle).count() > view.alone_claims.len()
}

/// Pairings with nothing said of them.
fn unexplained(mut pairings: Vec<crate::plan::Pairing>) -> Vec<crate::plan::Pairing> {
    for why in
        pairings.iter_mut().flat_map(|pairing| &mut pairing.members).map(|member| &mut member.explanation)
    {
        (why.text, why.candidates) = (Arc::from(""), Arc::from([]));
    }
    pairings
}

proptest! {
    #[test]
    fn who_asks_for_pairings_alone_gets_the_same(view in a_view(), policy in a_policy()) {
        let brief = pairings(&view, &Contention, &policy, Effort::OfPlan);
        prop_assert!(brief.iter().flat_map(|pairing| &pairing.members).all(|member| member.explanation.candidates.is_empty()));
        prop_assert_eq!(unexplained(brief), unexplained(plan(&view, &Contention, &policy).pairings));
    }

    #[test]
    fn every_plan_is_whole_and_keeps_its_rules(view in a_view(), policy in a_policy()) {
        let plan = plan(&view, &Contention, &policy);
        check_each_once(&view, &plan)?;
        let mut excess = 0.0;
        for pairing in &plan.pairings {
            excess += check_device(&view, &policy, pairing)?;
        }
        prop_assert!(excess <= 1e-4, "{excess} more promises than the budget are expected to break");
        for node in &view.nodes {
            let starts = plan.pairings.iter().filter(|pairing| pairing.node == node.name);
            let cpus: u32 = starts.flat_map(|pairing| &pairing.members).map(|member| waiting_of(&view, member.start.job_id).cpus).sum();
            prop_assert!(cpus <= node.cpus_free);
        }
        for explanation in plan.left_waiting.iter().chain(plan.pairings.iter().flat_map(|pairing| &pairing.members).map(|member| &member.explanation)) {
            prop_assert!(explanation.candidates.len() <= CANDIDATES_MAX);
            prop_assert!(explanation.candidates.iter().all(|candidate| candidate.chosen == candidate.excluded_by.is_none()));
            prop_assert!(!explanation.text.is_empty());
        }
    }

    #[test]
    fn equal_input_gives_an_equal_plan_also_through_json(view in a_view(), policy in a_policy()) {
        let first = plan(&view, &Contention, &policy);
        prop_assert_eq!(&plan(&view, &Contention, &policy), &first);
        let saved: ClusterView = serde_json::from_str(&serde_json::to_string(&view).unwrap()).unwrap();
        prop_assert_eq!(plan(&saved, &Contention, &policy), first);
    }

    #[test]
    fn nobody_is_passed_over_for_a_device_that_would_suit_him(view in a_view(), policy in a_policy()) {
        let plan = plan(&view, &Contention, &policy);
        let place = |id: SlurmJobId| view.waiting.iter().position(|job| job.start.job_id == id).unwrap();
        // In these views every device suits every job, so only held jobs and those that lack CPUs may be passed over by
        // one that takes a device of its own.
        let first_left = plan.left_waiting.iter().map(|why| place(why.job_id)).filter(|at| view.waiting[*at].held.is_none());
        let first_left = first_left.filter(|at| view.waiting[*at].cpus <= 1).min().unwrap_or(usize::MAX);
        for pairing in plan.pairings.iter().filter(|pairing| pairing.joins.is_none()) {
            let takes = pairing.members.iter().map(|member| place(member.start.job_id)).min().unwrap();
            prop_assert!(takes < first_left, "{takes} took a device before {first_left}");
        }
        // And who may hold a device longer than its host comes before all that wait.
        let unserved = plan.left_waiting.iter().map(|why| place(why.job_id)).filter(|at| view.waiting[*at].held.is_none());
        let open = |device: &DeviceView| device.blocked.is_none();
        let unserved = if view.devices.iter().any(open) { unserved.min().unwrap_or(usize::MAX) } else { usize::MAX };
        for pairing in plan.pairings.iter().filter(|pairing| pairing.joins.is_some()) {
            let joiner = place(pairing.members[0].start.job_id);
            let (device, job) = (device_of(&view, pairing), &view.waiting[joiner]);
            let of = |workload: &WorkloadKey| view.profiles.get(workload, &device.model);
            let end = ends::end_of_joiner(job, of(&job.workload), view.taken_at, &policy);
            let host = &device.tenants[0];
            let known = host.workload.as_ref().and_then(of);
            let host_end = ends::end_of_tenant(host, known, view.taken_at, &policy);
            prop_assert!(joiner < unserved || !ends::outlives(end, host_end));
        }
    }
}

proptest! {
    /// Nobody is held back for a partner: the first that is left has no device that stands idle.
    #[test]
    fn no_job_waits_while_a_device_stands_idle_for_it(view in a_view(), policy in a_policy()) {
        let plan = plan(&view, &Contention, &policy);
        let is_left = |job: &&WaitingJob| {
            job.held.is_none() && plan.left_waiting.iter().any(|left| left.job_id == job.start.job_id)
        };
        if let Some(first) = view.waiting.iter().find(is_left) {
            prop_assert!(!is_one_idle_for(&view, &plan, first), "{} waits beside an idle device", first.start.job_id);
        }
    }
}

/// What the sharings of a plan are worth together.
fn weight(context: &PlanContext<'_>) -> f64 {
    let evaluator = Evaluator::new(context);
    let placement = rounds::settle(&mut CandidateSet::new(&evaluator));
    placement
        .starts
        .iter()
        .filter_map(|start| start.evaluation.as_ref())
        .map(|evaluation| evaluation.weight)
        .sum()
}

#[test]
fn screening_most_pairs_finds_what_evaluating_all_does() {
    let policy = Policy { broken_budget_fraction: 0.1, ..Policy::default() };
    for (devices, promise) in [(60, 1.25), (60, 1.8), (400, 1.5)] {
        let mut view = large_view(600, devices);
        for job in &mut view.waiting {
            job.slowdown_ratio_max = SlowdownRatio::try_promise(promise).unwrap();
        }
        let mut context = PlanContext::new(&view, &Contention, &policy);
        context.is_thorough = true;
        let thorough = weight(&context);
        let mut context = PlanContext::new(&view, &Contention, &policy);
        context.is_thorough = false;
        let lazy = weight(&context);
        assert!(thorough > 0.0 && lazy >= 0.995 * thorough, "{lazy} instead of {thorough}");
    }
}

fn large_view(job_count: u32, device_count: u32) -> ClusterView {
    let workload = |index: u32| format!("w{}", index % 50);
    let devices = (0..device_count).map(|index| {
        let mut device = device(&format!("g{}", index % 8), Mechanism::Mps);
        device.node = NodeName::new(format!("n{}", index / 8));
        device
    });
    let mut view = view(devices.collect(), (1..=job_count).map(|id| job(id, &workload(id * 7))).collect());
    let profiles = (0..50).map(|index| {
        profile(&workload(index), 0.02 + f64::from(index) / 52.0, 0.3, 4 + u64::from(index % 20))
    });
    view.profiles = ProfileBook::from(profiles.collect::<Vec<_>>());
    view
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of speed needs the clock")]
fn a_thousand_jobs_on_a_hundred_devices_are_planned_at_once() {
    for devices in [100, 4] {
        let view = large_view(1000, devices);
        let started = std::time::Instant::now();
        let plan = plan(&view, &Contention, &Policy::default());
        let elapsed = started.elapsed();
        eprintln!("1000 jobs, {devices} free devices: {elapsed:?}, {} starts", plan.pairings.len());
        assert_eq!(plan.pairings.len(), devices as usize);
        let paired = plan.pairings.iter().filter(|pairing| pairing.members.len() == 2).count();
        assert!(paired * 4 > plan.pairings.len(), "only {paired} pairs");
        // Unoptimised, on a busy machine; optimised it is some ten times faster.
        assert!(elapsed.as_secs_f64() < 5.0, "{elapsed:?}");
    }
}

#[test]
fn an_explanation_reads_well() {
    let waiting = vec![job(1, "half"), job(2, "light"), job(3, "heavy"), job(4, "never-seen")];
    let running = device_with("g1", Mechanism::Mps, tenant(50, "heavy", 1800));
    let mut view = view(vec![device("g0", Mechanism::Mps), running], waiting);
    view.waiting[1].memory_bytes_declared = Some(12 * GIB);
    let plan = plan(&view, &Contention, &Policy::default());
    insta::assert_snapshot!(report(&plan.pairings[0].members[0].explanation));
}

/// An explanation in words, its numbers rounded so that machines agree on them.
fn report(explanation: &Explanation) -> String {
    let Explanation { job_id, reason, text, model, candidates } = explanation;
    let mut lines = vec![format!("job {job_id}: {reason:?} (by {model})"), text.to_string()];
    for candidate in candidates.iter() {
        let speed = |estimate: &Option<SpeedEstimate>| {
            estimate
                .as_ref()
                .map(|own| format!("{:.2} (at least {:.2})", own.speed_fraction, own.speed_fraction_low))
        };
        lines.push(format!(
            "{}{} {}: own {:?}, other {:?}, gain {:.2?}, excluded by {:?}",
            if candidate.chosen { "* " } else { "  " },
            candidate.partner,
            if candidate.is_running { "running" } else { "waiting" },
            speed(&candidate.own),
            speed(&candidate.other),
            candidate.gain,
            candidate.excluded_by,
        ));
    }
    lines.join("\n")
}
