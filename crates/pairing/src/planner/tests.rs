//! One test a rule: what the whole plan does with small clusters.

mod budget;
mod by_job;
mod company;
mod instances;
mod isolation;
mod measured_alone;
mod memory;
mod order;
mod properties;
mod several_processes;
mod shards_by_use;
mod trials;

use crate::model::Contention;
use crate::plan::{Plan, Reason, Role};
use crate::planner::plan;
use crate::policy::{Objective, Policy, UserPolicy};
use crate::testing::{GIB, claim, device, device_with, job, profile, tenant, view};
use crate::view::{ClusterView, DeviceView, ProfileBook, WaitingJob};
use pillion_core::device::Mechanism::{Ccs, Mps, TimeSliced as Turns};
use pillion_core::metric::Metric;
use pillion_core::share::Sharing;
use pillion_core::{NodeName, SlowdownRatio, UserId};

fn planned(view: &ClusterView) -> Plan {
    plan(view, &Contention, &Policy::default())
}

fn groups(plan: &Plan) -> Vec<Vec<u32>> {
    plan.pairings
        .iter()
        .map(|pairing| pairing.members.iter().map(|member| member.start.job_id.id).collect())
        .collect()
}

/// The deciding reason of each job, by its id.
fn reason(plan: &Plan, id: u32) -> Reason {
    let members = plan.pairings.iter().flat_map(|pairing| &pairing.members).map(|member| &member.explanation);
    members
        .chain(&plan.left_waiting)
        .find(|explanation| explanation.job_id.id == id)
        .expect("the job is in the plan")
        .reason
}

/// What excluded the partner `with` in the explanation of `of`.
fn exclusion(plan: &Plan, of: u32, with: u32) -> Option<Reason> {
    let members = plan.pairings.iter().flat_map(|pairing| &pairing.members).map(|member| &member.explanation);
    let explanation =
        members.chain(&plan.left_waiting).find(|explanation| explanation.job_id.id == of).unwrap();
    explanation
        .candidates
        .iter()
        .find(|candidate| candidate.partner.id == with)
        .expect("was considered")
        .excluded_by
}

fn two(a: WaitingJob, b: WaitingJob) -> ClusterView {
    view(vec![device("g0", Mps)], vec![a, b])
}

#[test]
fn two_light_jobs_share_one_device() {
    let plan = planned(&two(job(1, "light"), job(2, "light")));
    assert_eq!(groups(&plan), [[1, 2]]);
    let pairing = &plan.pairings[0];
    assert_eq!(pairing.mechanism(), Mps);
    assert!(pairing.gain > 0.8, "{}", pairing.gain);
    assert_eq!([pairing.members[0].role, pairing.members[1].role], [Role::Host, Role::Joiner]);
    assert_eq!(pairing.members.iter().map(|member| member.shards.count()).sum::<u8>(), 100);
    assert!(pairing.members.iter().all(|member| member.sharing.memory_limit_bytes() >= Some(8 * GIB)));
    assert_eq!(reason(&plan, 1), Reason::Paired);
}

#[test]
fn two_heavy_jobs_take_turns() {
    let plan = planned(&two(job(1, "heavy"), job(2, "heavy")));
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!(reason(&plan, 2), Reason::BehindOthers);
    assert_eq!(exclusion(&plan, 2, 1), Some(Reason::PromiseAtRisk));
    let mut patient = two(job(1, "heavy"), job(2, "heavy"));
    for waiting in &mut patient.waiting {
        waiting.slowdown_ratio_max = SlowdownRatio::try_promise(10.0).unwrap();
    }
    assert_eq!(exclusion(&planned(&patient), 2, 1), Some(Reason::GainTooSmall));
}

#[test]
fn an_unknown_workload_runs_alone_on_the_whole_device() {
    let plan = planned(&two(job(1, "never-seen"), job(2, "light")));
    assert_eq!(groups(&plan), [[1]]);
    let member = &plan.pairings[0].members[0];
    assert_eq!(
        (member.role, member.shards.count(), reason(&plan, 1)),
        (Role::Alone, 100, Reason::UnknownWorkload)
    );
    assert_eq!(plan.pairings[0].mechanism(), Turns, "what cannot be joined needs no mechanism");
}

#[test]
fn a_workload_with_too_few_solo_runs_counts_as_unknown() {
    let policy = Policy { solo_runs_min: 10, ..Policy::default() };
    let plan = plan(&two(job(1, "light"), job(2, "light")), &Contention, &policy);
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!(reason(&plan, 1), Reason::UnknownWorkload);
}

#[test]
fn memory_must_fit_with_a_margin() {
    let mut tight = two(job(1, "light"), job(2, "light"));
    tight.waiting[1].memory_bytes_declared = Some(69 * GIB);
    // 8.4 (observed, with its surplus) + 69 > 95 % of 80.
    assert_eq!(exclusion(&planned(&tight), 1, 2), Some(Reason::MemoryDoesNotFit));
    tight.waiting[1].memory_bytes_declared = Some(67 * GIB);
    assert_eq!(groups(&planned(&tight)), [[1, 2]]);
}

#[test]
fn what_was_seen_outweighs_what_was_declared() {
    let mut liar = two(job(1, "light"), job(2, "big"));
    liar.profiles = ProfileBook::from(vec![profile("light", 0.1, 0.1, 40), profile("big", 0.1, 0.1, 50)]);
    liar.waiting[1].memory_bytes_declared = Some(GIB);
    assert_eq!(exclusion(&planned(&liar), 1, 2), Some(Reason::MemoryDoesNotFit));
}

#[test]
fn unknown_memory_means_no_sharing() {
    let mut unknown = two(job(1, "light"), job(2, "light"));
    let mut light = profile("light", 0.1, 0.1, 8);
    light.memory_bytes_peak = None;
    unknown.profiles = ProfileBook::from(vec![light]);
    let plan = planned(&unknown);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::MemoryUnknown));
    for waiting in &mut unknown.waiting {
        waiting.memory_bytes_declared = Some(8 * GIB);
    }
    assert_eq!(groups(&planned(&unknown)), [[1, 2]]);
}

#[test]
fn users_share_as_the_site_lets_them() {
    let mut mixed = two(job(1, "light"), job(2, "light"));
    mixed.waiting[1].uid = UserId(1001);
    let with = |users| groups(&plan(&mixed, &Contention, &Policy { users, ..Policy::default() }));
    assert_eq!(with(UserPolicy::SameUser), [[1]]);
    assert_eq!(with(UserPolicy::SameAccount), [[1, 2]]);
    assert_eq!(with(UserPolicy::Any), [[1, 2]]);
    assert_eq!(exclusion(&planned(&mixed), 1, 2), Some(Reason::UserPolicy));
    mixed.waiting[1].account = "chemistry".into();
    let with = |users| groups(&plan(&mixed, &Contention, &Policy { users, ..Policy::default() }));
    assert_eq!(with(UserPolicy::SameAccount), [[1]]);
}

#[test]
fn a_job_joins_a_running_host() {
    let running = device_with("g0", Mps, tenant(50, "light", 7200));
    let plan = planned(&view(vec![running], vec![job(1, "light")]));
    assert_eq!(groups(&plan), [[1]]);
    let pairing = &plan.pairings[0];
    assert_eq!((pairing.joins.map(|group| group.0), reason(&plan, 1)), (Some(50), Reason::Joined));
    assert_eq!(pairing.members[0].role, Role::Joiner);
    assert!(pairing.members[0].shards.count() <= 60);
}

#[test]
fn nobody_joins_without_shards_or_before_the_host_runs_or_without_a_decision() {
    let with = |change: &dyn Fn(&mut crate::view::DeviceView)| {
        let mut running = device_with("g0", Mps, tenant(50, "light", 7200));
        change(&mut running);
        let plan = planned(&view(vec![running], vec![job(1, "light")]));
        assert_eq!(groups(&plan), Vec::<Vec<u32>>::new());
        reason(&plan, 1)
    };
    assert_eq!(with(&|device| device.shards_free = 9), Reason::NoDeviceFree);
    assert_eq!(with(&|device| device.tenants[0].is_running = false), Reason::NoDeviceFree);
    assert_eq!(with(&|device| device.tenants[0].group = None), Reason::NoDeviceFree);
    assert_eq!(with(&|device| device.tenants.push(tenant(50, "light", 7200))), Reason::NoDeviceFree);
    assert_eq!(with(&|device| device.blocked = Some("mechanism down".to_owned())), Reason::Blocked);
}

#[test]
fn the_running_hosts_promise_counts_too() {
    let mut host = tenant(50, "half", 7200);
    let joins = |host| {
        !planned(&view(vec![device_with("g0", Mps, host)], vec![patient(job(1, "half"))])).pairings.is_empty()
    };
    host.slowdown_ratio_max = SlowdownRatio::try_promise(3.0).unwrap();
    assert!(joins(host.clone()));
    host.slowdown_ratio_max = SlowdownRatio::try_promise(1.05).unwrap();
    assert!(!joins(host));
}

fn patient(mut job: WaitingJob) -> WaitingJob {
    job.slowdown_ratio_max = SlowdownRatio::try_promise(3.0).unwrap();
    job
}

#[test]
fn a_pair_spares_a_device_for_the_next_in_the_queue() {
    let waiting = vec![job(1, "light"), job(2, "light"), job(3, "never-seen"), job(4, "heavy")];
    let plan = planned(&view(vec![device("g0", Mps), device("g1", Mps)], waiting));
    assert_eq!(groups(&plan), [vec![1, 2], vec![3]]);
}

#[test]
fn jobs_that_slurm_starts_alone_keep_their_device() {
    let mut claimed =
        view(vec![device("g0", Mps), device("g1", Mps)], vec![job(1, "heavy"), job(2, "heavy")]);
    claimed.alone_claims = vec![claim(90)];
    assert_eq!(groups(&planned(&claimed)), [[1]]);
    claimed.alone_claims.push(claim(91));
    let plan = planned(&claimed);
    assert!(plan.pairings.is_empty());
    assert_eq!(reason(&plan, 1), Reason::NoDeviceFree);
}

#[test]
fn an_explanation_says_why_the_devices_that_match_are_closed() {
    let mut closed = view((0..6).map(|at| device(&format!("g{at}"), Mps)).collect(), vec![job(1, "light")]);
    let text = |view: &ClusterView| planned(view).left_waiting[0].text.to_string();
    for device in &mut closed.devices {
        device.blocked = Some("drained by alice: fan noise".to_owned());
    }
    let drained = "waits: the devices that match take nothing now: drained by alice: fan noise";
    assert_eq!(text(&closed), drained);
    closed.devices[3].blocked = Some("it does not respond".to_owned());
    assert_eq!(text(&closed), format!("{drained}; it does not respond"));
    for (at, device) in closed.devices.iter_mut().enumerate() {
        device.blocked = Some(format!("{at}"));
    }
    assert!(text(&closed).ends_with(": 0; 1; 2; and for other reasons"));
}

#[test]
fn nothing_is_started_where_something_is_blocked_or_does_not_match() {
    let with = |change: &dyn Fn(&mut ClusterView)| {
        let mut view = view(vec![device("g0", Mps)], vec![job(1, "light")]);
        change(&mut view);
        let plan = planned(&view);
        assert!(plan.pairings.is_empty());
        reason(&plan, 1)
    };
    assert_eq!(with(&|view| view.nodes[0].blocked = Some("drained".to_owned())), Reason::Blocked);
    assert_eq!(
        with(&|view| view.devices[0].blocked = Some("agent not responding".to_owned())),
        Reason::Blocked
    );
    assert_eq!(with(&|view| view.waiting[0].held = Some("dependency".to_owned())), Reason::Held);
    assert_eq!(with(&|view| view.waiting[0].features = vec!["a100".to_owned()]), Reason::NodeDoesNotMatch);
    assert_eq!(with(&|view| view.waiting[0].gpu_type = Some("a100".to_owned())), Reason::NodeDoesNotMatch);
    assert_eq!(with(&|view| view.waiting[0].partition = "other".into()), Reason::NodeDoesNotMatch);
    assert_eq!(
        with(&|view| view.waiting[0].excluded_nodes = vec![NodeName::new("n1")]),
        Reason::NodeDoesNotMatch
    );
    assert_eq!(with(&|view| view.waiting[0].cpus = 65), Reason::NodeTooFull);
    assert_eq!(with(&|view| view.waiting[0].memory_mib = 1 << 21), Reason::NodeTooFull);
    assert_eq!(with(&|view| view.waiting[0].cpus = 129), Reason::NodeDoesNotMatch);
    assert_eq!(with(&|view| view.waiting[0].memory_mib = 1 << 23), Reason::NodeDoesNotMatch);
}

/// As it was: each of them was given a device, which stood empty until Slurm's refusal was taken for what it is, and then the next.
#[test]
fn who_would_not_have_ended_before_a_reservation_is_planned_elsewhere_or_waits() {
    let on = |node: &str, limit: Option<u64>| {
        let devices = ["n1", "n2"].map(|node| DeviceView { node: NodeName::new(node), ..device("g0", Mps) });
        let waiting = vec![WaitingJob { time_limit_seconds: limit, ..job(1, "heavy") }];
        let mut view = view(devices.to_vec(), waiting);
        view.nodes[0].open_seconds = Some(3600);
        view.nodes[1].open_seconds = Some(if node == "n2" { 7200 } else { 60 });
        let plan = planned(&view);
        let place = plan.pairings.first().map(|pairing| pairing.node.to_string());
        place.unwrap_or_else(|| format!("{:?}", reason(&plan, 1)))
    };
    assert_eq!(on("n1", Some(3600)), "n1");
    assert_eq!(on("n2", Some(3601)), "n2");
    assert_eq!([on("n1", Some(3601)), on("n2", None)], ["NodeReserved"; 2]);
}

/// As it was: each of such jobs kept a node, and whoever came behind them found none.
#[test]
fn a_node_is_not_kept_for_jobs_that_it_is_too_small_for() {
    let on = |node: &str| DeviceView { node: NodeName::new(node), ..device("g0", Mps) };
    let large = |id| WaitingJob { cpus: 60, ..job(id, "light") };
    let held = device_with("g0", Mps, tenant(20, "heavy", 600));
    let devices = vec![on("n1"), on("n2"), DeviceView { node: NodeName::new("n3"), ..held }];
    let mut view = view(devices, vec![large(1), large(2), large(3), job(4, "light")]);
    for node in &mut view.nodes[..2] {
        (node.cpus, node.cpus_free) = (32, 32);
    }
    (view.nodes[2].cpus, view.nodes[2].cpus_free) = (64, 0);
    let plan = planned(&view);
    assert_eq!(groups(&plan), [[4]]);
}

#[test]
fn cpus_are_counted_over_all_that_start_on_a_node() {
    let mut waiting = vec![job(1, "light"), job(2, "light")];
    waiting[0].cpus = 40;
    waiting[1].cpus = 30;
    let plan = planned(&view(vec![device("g0", Mps), device("g1", Mps)], waiting));
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!(reason(&plan, 2), Reason::NodeTooFull);
}

#[test]
fn a_node_is_kept_for_an_earlier_job_that_lacks_cpus_there() {
    let mut waiting = vec![job(1, "heavy"), job(2, "heavy"), job(3, "light")];
    waiting[0].cpus = 40;
    waiting[1].cpus = 30;
    let plan = planned(&view(vec![device("g0", Mps), device("g1", Mps)], waiting));
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!([reason(&plan, 2), reason(&plan, 3)], [Reason::NodeTooFull, Reason::BehindOthers]);
}

#[test]
fn a_lone_known_job_may_be_joined_under_mps() {
    let plan = planned(&view(vec![device("g0", Mps)], vec![job(1, "heavy")]));
    let member = &plan.pairings[0].members[0];
    assert_eq!(
        (member.role, member.shards.count(), reason(&plan, 1)),
        (Role::Host, 70, Reason::AloneJoinable)
    );
    assert_eq!((plan.pairings[0].mechanism(), plan.pairings[0].gain), (Mps, 0.0));
}

#[test]
fn half_a_card_is_enough_for_a_light_job_only() {
    let alone =
        |workload| planned(&view(vec![device("g0", Ccs)], vec![job(1, workload)])).pairings[0].clone();
    let light = alone("light");
    assert_eq!((light.sharing(), light.members[0].role), (Sharing::Ccs { mode: 2 }, Role::Host));
    let heavy = alone("heavy");
    assert_eq!((heavy.sharing(), heavy.members[0].role), (Sharing::TimeSliced, Role::Alone));
    assert_eq!(heavy.members[0].shards.count(), 100);
}

#[test]
fn a_card_in_mode_two_takes_two() {
    let mut host = tenant(50, "light", 7200);
    host.sharing = Sharing::Ccs { mode: 2 };
    let plan = planned(&view(vec![device_with("g0", Ccs, host)], vec![job(1, "light"), job(2, "light")]));
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!(plan.pairings[0].sharing(), Sharing::Ccs { mode: 2 });
}

/// One card, three light jobs and what a site that allows `tenants_max` makes of the first two.
fn crowded_card(tenants_max: u32, workload: &str) -> crate::plan::Pairing {
    let policy = Policy { tenants_max, ..Policy::default() };
    let waiting = (1..=3).map(|id| job(id, workload)).collect();
    plan(&view(vec![device("g0", Ccs)], waiting), &Contention, &policy).pairings[0].clone()
}

#[test]
fn a_card_is_quartered_where_a_third_waits_that_fits_in_a_quarter() {
    let quartered = crowded_card(4, "light");
    assert_eq!((quartered.sharing(), quartered.members.len()), (Sharing::Ccs { mode: 4 }, 2));
    let shards: Vec<u8> = quartered.members.iter().map(|member| member.shards.count()).collect();
    assert_eq!(shards, [25, 25], "so that two more find shards left");
    assert_eq!(crowded_card(2, "light").sharing(), Sharing::Ccs { mode: 2 }, "the site wants no third");
    let policy = Policy { tenants_max: 4, ..Policy::default() };
    let two = view(vec![device("g0", Ccs)], vec![job(1, "light"), job(2, "light")]);
    assert_eq!(
        plan(&two, &Contention, &policy).pairings[0].sharing(),
        Sharing::Ccs { mode: 2 },
        "nobody else waits"
    );
    let mut slow = view(vec![device("g0", Ccs)], (1..=3).map(|id| job(id, "half")).collect());
    for waiting in &mut slow.waiting {
        waiting.slowdown_ratio_max = SlowdownRatio::try_promise(1.67).unwrap();
    }
    let halves = plan(&slow, &Contention, &policy).pairings[0].clone();
    assert_ne!(halves.sharing(), Sharing::Ccs { mode: 4 }, "a quarter is too little for these");
}

#[test]
fn a_quartered_card_takes_four_one_after_the_other() {
    let policy = Policy { tenants_max: 4, ..Policy::default() };
    let tenants: Vec<_> = (50..53)
        .map(|id| {
            let group = Some(pillion_core::DecisionId(50));
            let shards = pillion_core::Shards::try_new(25).unwrap();
            crate::view::Tenant {
                sharing: Sharing::Ccs { mode: 4 },
                group,
                shards,
                ..tenant(id, "light", 7200)
            }
        })
        .collect();
    let mut card = device("g0", Ccs);
    (card.shards_free, card.tenants) = (25, tenants);
    let plan = plan(&view(vec![card], vec![job(1, "light"), job(2, "light")]), &Contention, &policy);
    assert_eq!(groups(&plan), [[1]]);
    assert_eq!((plan.pairings[0].sharing(), reason(&plan, 1)), (Sharing::Ccs { mode: 4 }, Reason::Joined));
}

#[test]
fn with_sharing_off_every_job_is_alone() {
    let policy = Policy { tenants_max: 1, ..Policy::default() };
    let plan = plan(&two(job(1, "light"), job(2, "light")), &Contention, &policy);
    assert_eq!((groups(&plan), reason(&plan, 1)), (vec![vec![1]], Reason::NotShareable));
}

#[test]
fn idle_devices_are_used_first_where_the_site_says_so() {
    let view = view(vec![device("g0", Mps), device("g1", Mps)], vec![job(1, "light"), job(2, "light")]);
    assert_eq!(groups(&planned(&view)), [[1, 2]]);
    let policy = Policy { pair_when_idle: false, ..Policy::default() };
    assert_eq!(groups(&plan(&view, &Contention, &policy)), [[1], [2]]);
}

/// A hog beside a lighter job, with promises that hold only if the hog is capped.
fn hog_and_victim() -> ClusterView {
    let mut view = two(job(1, "hog"), job(2, "victim"));
    view.profiles = ProfileBook::from(vec![profile("hog", 1.0, 0.1, 8), profile("victim", 0.35, 0.1, 8)]);
    view.waiting[0].slowdown_ratio_max = SlowdownRatio::try_promise(3.0).unwrap();
    view.waiting[1].slowdown_ratio_max = SlowdownRatio::try_promise(1.4).unwrap();
    view
}

#[test]
fn a_hog_is_capped_where_the_promise_needs_it() {
    let plan = planned(&hog_and_victim());
    assert_eq!(groups(&plan), [[1, 2]]);
    let caps: Vec<Option<f64>> =
        plan.pairings[0].members.iter().map(|member| member.sharing.cap().map(f64::from)).collect();
    assert!(caps[0].is_some_and(|cap| cap < 0.8), "{caps:?}");
    let policy = Policy { caps: false, ..Policy::default() };
    let without = crate::planner::plan(&hog_and_victim(), &Contention, &policy);
    assert_eq!(groups(&without), [[1]], "without caps the promise would be at risk");
}

#[test]
fn no_promise_to_one_user_rests_on_a_cap_that_another_could_take_off() {
    let mut strangers = hog_and_victim();
    strangers.waiting[1].uid = UserId(1001);
    let policy = Policy { users: UserPolicy::Any, ..Policy::default() };
    let plan = plan(&strangers, &Contention, &policy);
    assert_eq!((groups(&plan), exclusion(&plan, 1, 2)), (vec![vec![1]], Some(Reason::PromiseAtRisk)));
}

#[test]
fn light_tenants_are_not_capped() {
    let plan = planned(&two(job(1, "light"), job(2, "half")));
    assert!(plan.pairings[0].members.iter().all(|member| member.sharing.cap().is_none()));
}

#[test]
fn the_objective_decides_among_what_keeps_its_promise() {
    // The joiner that runs a little slower saves far more energy.
    let mut view = view(vec![device("g0", Mps)], vec![job(1, "host"), job(2, "swift"), job(3, "thrifty")]);
    let with_watts = |workload: &str, active: f64, watts: f64| {
        let mut profile = profile(workload, active, 0.05, 8);
        profile.metrics.set(Metric::PowerWatts, watts);
        profile
    };
    let profiles = vec![
        with_watts("host", 0.1, 300.0),
        with_watts("swift", 0.05, 100.0),
        with_watts("thrifty", 0.15, 300.0),
    ];
    view.profiles = ProfileBook::from(profiles);
    let with = |objective| groups(&plan(&view, &Contention, &Policy { objective, ..Policy::default() }));
    assert_eq!(with(Objective::Throughput), [[1, 2]]);
    assert_eq!(with(Objective::Energy), [[1, 3]]);
}

#[test]
fn a_third_tenant_joins_where_the_site_allows_three() {
    let mut host = device_with("g0", Mps, tenant(50, "light", 7200));
    let mut second = tenant(51, "light", 7200);
    second.group = host.tenants[0].group;
    host.shards_free -= u32::from(second.shards.count());
    host.tenants.push(second);
    let view = view(vec![host], vec![job(1, "light")]);
    let with = |tenants_max| groups(&plan(&view, &Contention, &Policy { tenants_max, ..Policy::default() }));
    assert_eq!((with(2), with(3)), (vec![], vec![vec![1]]));
}

#[test]
fn each_kind_of_device_is_planned_by_its_own_profiles() {
    // Known on the H100 only: there it shares, and it goes there first.
    let mut other = device("g0", Mps);
    other.model = "a100-40".to_owned();
    let waiting = vec![job(1, "light"), job(2, "light"), job(3, "heavy")];
    let plan = planned(&view(vec![other, device("g1", Mps)], waiting));
    assert_eq!(groups(&plan), [vec![1, 2], vec![3]]);
    assert_eq!([0, 1].map(|at| plan.pairings[at].gres_types.to_string()), ["g1", "g0"]);
    assert_eq!(reason(&plan, 3), Reason::UnknownWorkload);
}
