//! Wide jobs on sets of devices: who shares, who does not, and that nobody loses by it.

use crate::model::Contention;
use crate::plan::{Member, Plan, Reason, Role};
use crate::planner::plan;
use crate::planner::whole::tests::are_told_and_have_room;
use crate::policy::Policy;
use crate::testing::{GIB, claim, device, job, profile, tenant, view};
use crate::view::{AloneClaim, ClusterView, DeviceView, Tenant, WaitingJob};
use pillion_core::device::Mechanism::{self, Ccs, Mps};
use pillion_core::share::Sharing;
use pillion_core::{GresTypes, NodeName, Shards, UserId, WorkloadKey};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn policy() -> Policy {
    Policy { share_wide: true, ..Policy::default() }
}

fn planned(view: &ClusterView) -> Plan {
    plan(view, &Contention, &policy())
}

/// Which devices each job gets: `1+2 n1:g0,g1`.
fn places(plan: &Plan) -> Vec<String> {
    let of = |pairing: &crate::plan::Pairing| {
        let jobs: Vec<String> =
            pairing.members.iter().map(|member| member.start.job_id.to_string()).collect();
        format!("{} {}:{}", jobs.join("+"), pairing.node, pairing.gres_types)
    };
    let mut places: Vec<String> = plan.pairings.iter().map(of).collect();
    places.sort();
    places
}

fn member(plan: &Plan, id: u32) -> &Member {
    let all = plan.pairings.iter().flat_map(|pairing| &pairing.members);
    all.into_iter().find(|member| member.start.job_id.id == id).expect("it starts")
}

fn waits(plan: &Plan, id: u32) -> (Reason, String) {
    let left = plan.left_waiting.iter().find(|left| left.job_id.id == id).expect("it waits");
    (left.reason, left.text.to_string())
}

fn wide(id: u32, workload: &str, count: u8) -> WaitingJob {
    WaitingJob { device_count: count, ..job(id, workload) }
}

fn free(names: &[&str]) -> Vec<DeviceView> {
    names.iter().map(|name| device(name, Mps)).collect()
}

/// A job that runs on a set and may be joined there, or not.
fn gang(id: u32, set: &str, shards: u8, seconds: u64) -> Vec<DeviceView> {
    let set: GresTypes = set.parse().unwrap();
    let sharing = if shards == 100 { Sharing::TimeSliced } else { Sharing::by(Mps, None, None) };
    let own = Tenant {
        set: Some(set.clone()),
        shards: Shards::try_new(shards).unwrap(),
        sharing,
        ..tenant(id, "light", seconds)
    };
    let on = |own_type: &pillion_core::GresType| DeviceView {
        shards_free: 100 - u32::from(shards),
        tenants: vec![own.clone()],
        ..device(own_type.as_str(), Mps)
    };
    set.iter().map(on).collect()
}

#[test]
fn two_of_one_width_share_a_set_where_the_site_has_it_so() {
    let queue = || vec![wide(1, "light", 2), wide(2, "light", 2)];
    let plan = planned(&view(free(&["g0", "g1"]), queue()));
    assert_eq!(places(&plan), ["1+2 n1:g0,g1"]);
    let [host, joiner] = [1, 2].map(|id| member(&plan, id));
    assert_eq!((host.role, joiner.role), (Role::Host, Role::Joiner));
    assert_eq!(host.shards.count() + joiner.shards.count(), 100, "of each device");
    for one in [host, joiner] {
        assert_eq!(one.explanation.reason, Reason::Paired);
        assert!(one.explanation.text.starts_with("has 2 GPUs of n1: shares a device: expected speeds"));
        let limit = one.sharing.memory_limit_bytes();
        assert!(one.sharing.mechanism() == Mps && limit > Some(8 * GIB), "{:?}", one.sharing);
    }
    // What is won is won on each of them.
    let alone = planned(&view(free(&["g0"]), vec![job(1, "light"), job(2, "light")]));
    assert!((plan.pairings[0].gain - 2.0 * alone.pairings[0].gain).abs() < 1e-9, "{}", plan.pairings[0].gain);
    let off = crate::planner::plan(&view(free(&["g0", "g1"]), queue()), &Contention, &Policy::default());
    assert_eq!(places(&off), ["1 n1:g0,g1"]);
    assert_eq!(off.pairings[0].members[0].shards, Shards::ALL);
}

#[test]
fn one_alone_leaves_room_and_who_cannot_share_has_all() {
    let plan = planned(&view(free(&["g0", "g1"]), vec![wide(1, "light", 2)]));
    let one = member(&plan, 1);
    assert_eq!((one.role, one.explanation.reason), (Role::Host, Reason::AloneJoinable));
    assert!(one.shards.count() <= 70 && one.sharing.mechanism() == Mps);
    assert_eq!(
        &*one.explanation.text,
        "has 2 GPUs of n1: starts alone, and others may join: there was nobody to share with"
    );
    let unknown = || wide(1, "new", 2);
    let whole: [fn(&mut WaitingJob); 5] = [
        |job| job.workload = WorkloadKey::new("new"),
        |job| job.owes_runs = 1,
        |job| job.as_guest = true,
        |job| job.is_plain = true,
        |job| job.memory_bytes_declared = Some(90 * GIB),
    ];
    for change in whole {
        let mut one = wide(1, "light", 2);
        change(&mut one);
        let plan = planned(&view(free(&["g0", "g1"]), vec![one, wide(2, "light", 2)]));
        assert_eq!(places(&plan), ["1 n1:g0,g1"]);
        let one = member(&plan, 1);
        assert_eq!((one.role, one.shards, one.sharing), (Role::Alone, Shards::ALL, Sharing::TimeSliced));
        assert!(one.explanation.text.contains("which it shares with nobody"), "{}", one.explanation.text);
    }
    // Parts of several devices are MPS's alone, and of one model.
    let cards = ["g0", "g1"].map(|name| device(name, Ccs)).to_vec();
    assert_eq!(member(&planned(&view(cards, vec![wide(1, "light", 2)])), 1).role, Role::Alone);
    let mut mixed = free(&["g0", "g1"]);
    mixed[1].model = "h200".to_owned();
    assert_eq!(member(&planned(&view(mixed, vec![unknown()])), 1).role, Role::Alone);
}

#[test]
fn one_joins_a_gang_that_runs_on_just_so_many() {
    let devices = || [gang(50, "g0,g1", 40, 1000), free(&["g2"])].concat();
    let plan = planned(&view(devices(), vec![wide(1, "light", 2)]));
    assert_eq!(places(&plan), ["1 n1:g0,g1"]);
    assert_eq!(plan.pairings[0].joins, Some(pillion_core::DecisionId(50)));
    let one = member(&plan, 1);
    assert_eq!((one.role, one.explanation.reason), (Role::Joiner, Reason::Joined));
    assert!(one.explanation.text.starts_with("has 2 GPUs of n1: joins a running job"));
    assert!(one.shards.count() <= 60);
    // Nobody of another width, and no job of one device.
    assert!(places(&planned(&view(devices(), vec![wide(1, "light", 3)]))).is_empty());
    let plan = planned(&view(gang(50, "g0,g1", 40, 1000), vec![job(1, "light")]));
    assert!(places(&plan).is_empty(), "a fault on the other device would reach it");
    // Nor where somebody has it to himself, or is about to be there, or one of its devices takes nobody.
    assert!(places(&planned(&view(gang(50, "g0,g1", 100, 1000), vec![wide(1, "light", 2)]))).is_empty());
    let changed = |change: fn(&mut Vec<DeviceView>)| {
        let mut devices = gang(50, "g0,g1", 40, 1000);
        change(&mut devices);
        places(&planned(&view(devices, vec![wide(1, "light", 2)])))
    };
    assert_eq!(changed(|_| {}), ["1 n1:g0,g1"]);
    assert!(changed(|all| all.iter_mut().for_each(|own| own.tenants[0].is_running = false)).is_empty());
    assert!(changed(|all| all[1].blocked = Some("drained".to_owned())).is_empty());
    assert!(changed(|all| all[1].shards_free = 5).is_empty());
    assert!(changed(|all| all[1].tenants.clear()).is_empty(), "what is on one is not on the other");
    assert!(changed(|all| drop(all.pop())).is_empty());
    // No third.
    let full = |all: &mut Vec<DeviceView>| {
        for own in all {
            let second = Tenant { job_id: pillion_core::SlurmJobId::plain(51), ..own.tenants[0].clone() };
            own.shards_free = 20;
            own.tenants.push(second);
        }
    };
    let mut devices = gang(50, "g0,g1", 40, 1000);
    full(&mut devices);
    let four = Policy { tenants_max: 4, ..policy() };
    let plan = plan_by(&view(devices, vec![wide(1, "light", 2)]), &four);
    assert!(places(&plan).is_empty());
}

fn plan_by(view: &ClusterView, policy: &Policy) -> Plan {
    plan(view, &Contention, policy)
}

#[test]
fn users_promises_and_memory_count_as_for_jobs_of_one_device() {
    let beside = |change: fn(&mut WaitingJob)| {
        let mut second = wide(2, "light", 2);
        change(&mut second);
        let plan = planned(&view(free(&["g0", "g1"]), vec![wide(1, "light", 2), second]));
        let why =
            (places(&plan).len() == 1 && plan.pairings[0].members.len() == 1).then(|| waits(&plan, 2).1);
        why.unwrap_or_default()
    };
    assert_eq!(beside(|_| {}), "");
    let other_user = beside(|job| job.uid = UserId(1001));
    assert!(other_user.ends_with(&format!("; beside others: {}", Reason::UserPolicy.text())), "{other_user}");
    assert!(other_user.starts_with("waits: no node has 2 wholly free GPUs; 2 of n1 are set apart for it;"));
    let tight = beside(|job| job.slowdown_ratio_max = pillion_core::SlowdownRatio::try_promise(1.0).unwrap());
    assert!(tight.ends_with(Reason::PromiseAtRisk.text()), "{tight}");
    let large = beside(|job| job.memory_bytes_declared = Some(70 * GIB));
    assert!(large.ends_with(Reason::MemoryDoesNotFit.text()), "{large}");
    // Of two devices the smaller one has to hold both.
    let mut devices = free(&["g0", "g1"]);
    devices[1].memory_bytes = 16 * GIB;
    let plan = planned(&view(devices, vec![wide(1, "light", 2), wide(2, "light", 2)]));
    assert_eq!(places(&plan), ["1 n1:g0,g1"]);
}

/// A gang of four is first and waits: who joins must be gone when the gang before it is.
#[test]
fn nobody_who_stays_longer_passes_one_over_that_waits_for_whole_devices() {
    let joins = |seconds, others: Vec<WaitingJob>, claims: Vec<AloneClaim>| {
        let joiner = WaitingJob { time_limit_seconds: Some(seconds), ..wide(2, "light", 2) };
        let queue = others.into_iter().chain([joiner]).collect();
        let view = view([gang(50, "g0,g1", 40, 1000), free(&["g2"])].concat(), queue);
        !places(&planned(&ClusterView { alone_claims: claims, ..view })).is_empty()
    };
    let first = || vec![wide(1, "heavy", 3)];
    assert!(joins(900, first(), Vec::new()));
    assert!(!joins(1100, first(), Vec::new()));
    assert!(joins(1100, Vec::new(), Vec::new()));
    let claim = || AloneClaim { gres_types: Some("g0,g1".parse().unwrap()), ..claim(900) };
    assert!(joins(900, Vec::new(), vec![claim()]) && !joins(1100, Vec::new(), vec![claim()]));
}

#[test]
fn who_waits_for_cpus_of_a_node_keeps_it_from_joiners_too() {
    let devices = || [gang(50, "g0,g1", 40, 1000), free(&["g2", "g3"])].concat();
    let lacking = WaitingJob { cpus: 60, ..wide(1, "heavy", 2) };
    let short = WaitingJob { time_limit_seconds: Some(10), ..wide(2, "light", 2) };
    let mut view = view(devices(), vec![lacking, short]);
    view.nodes[0].cpus_free = 50;
    assert!(places(&planned(&view)).is_empty());
}

#[test]
fn cpus_of_others_are_not_given_twice() {
    let devices = || [gang(50, "g0,g1", 40, 1000), free(&["g2"])].concat();
    let narrow = WaitingJob { cpus: 60, ..job(1, "heavy") };
    let plan = planned(&view(devices(), vec![narrow, wide(2, "light", 2)]));
    assert_eq!(places(&plan), ["1 n1:g2", "2 n1:g0,g1"], "64 in all");
    let narrow = WaitingJob { cpus: 62, ..job(1, "heavy") };
    let plan = planned(&view(devices(), vec![narrow, wide(2, "light", 2)]));
    assert_eq!(places(&plan), ["1 n1:g2"]);
}

prop_compose! {
    /// Nodes of four devices: gangs that run, jobs of one device, free ones; and a queue of jobs of one to four.
    fn clusters()(
        nodes in prop::collection::vec((0..6_u8, 0..6_u8, 20..100_u8), 1..4),
        jobs in prop::collection::vec((1..5_u8, 0..5_u8, 1..30_u32, prop::option::of(1..4000_u64), 0..9_u8), 0..12),
        claims in 0..3_u32,
    ) -> ClusterView {
        let mut devices = Vec::new();
        for (at, (left, right, shards)) in nodes.iter().enumerate() {
            for (half, state) in [("g0,g1", left), ("g2,g3", right)] {
                let id = 500 + u32::try_from(devices.len()).unwrap();
                let [one, other] = <[&str; 2]>::try_from(half.split(',').collect::<Vec<_>>()).unwrap();
                let own = match state {
                    0 => gang(id, half, 100, 700),
                    1 | 2 => gang(id, half, *shards, 900),
                    3 => {
                        let alone = crate::testing::device_with(one, Mps, tenant(id, "light", 900));
                        vec![alone, device(other, Mps)]
                    }
                    _ => free(&[one, other]),
                };
                let name = NodeName::new(format!("n{at}"));
                devices.extend(own.into_iter().map(|own| DeviceView { node: name.clone(), ..own }));
            }
        }
        let workloads = ["light", "half", "heavy", "large", "new"];
        let jobs = jobs.iter().enumerate().map(|(at, (count, workload, cpus, limit, odd))| WaitingJob {
            is_plain: *odd == 0,
            as_guest: *odd == 1,
            uid: UserId(1000 + u32::from(*odd == 2)),
            held: (*odd == 3).then(|| "it is held".to_owned()),
            cpus: *cpus,
            time_limit_seconds: *limit,
            ..wide(1 + u32::try_from(at).unwrap(), workloads[usize::from(*workload)], *count)
        });
        let mut view = view(devices, jobs.collect());
        let known = crate::testing::known_profiles().into_iter().chain([profile("large", 0.1, 0.05, 50)]);
        view.profiles = known.collect::<Vec<_>>().into();
        view.alone_claims = (0..claims)
            .map(|id| AloneClaim { gres_types: (id > 0).then(|| "g0,g1".parse().unwrap()), ..claim(800 + id) })
            .collect();
        view
    }
}

/// What is there after a plan, by device: shards, memory, and the sets of those who are there.
type There<'v> = BTreeMap<(&'v NodeName, &'v str), (u32, u64, BTreeSet<Option<&'v GresTypes>>)>;

proptest! {
    #[test]
    fn no_device_is_given_twice_and_every_job_is_told_once(view in clusters()) {
        let plan = planned(&view);
        let mut there: There<'_> = view.devices.iter().map(|own| {
            let tenants = own.tenants.iter();
            let memory = tenants.clone().map(|tenant| tenant.memory_bytes.unwrap_or(0)).sum();
            let sets = tenants.map(|tenant| tenant.set.as_ref()).collect();
            ((&own.node, own.gres_type.as_str()), (100 - own.shards_free, memory, sets))
        }).collect();
        for pairing in &plan.pairings {
            let is_set = pairing.gres_types.count() > 1;
            for own in &pairing.gres_types {
                let place = there.get_mut(&(&pairing.node, own.as_str())).expect("it is there");
                prop_assert_eq!(pairing.joins.is_some(), !place.2.is_empty(), "beside somebody or not");
                for member in &pairing.members {
                    place.0 += u32::from(member.shards.count());
                    place.1 += member.memory_bytes.unwrap_or(0);
                    place.2.insert(is_set.then_some(&pairing.gres_types));
                }
            }
            prop_assert!(pairing.members.len() <= 2);
            for member in &pairing.members {
                let job = view.waiting.iter().find(|job| job.start == member.start).unwrap();
                let is_shared = pairing.members.len() > 1 || pairing.joins.is_some();
                let may_share = !job.is_plain && &*job.workload.to_string() != "new";
                prop_assert!(!is_shared || may_share);
            }
        }
        for (place, (shards, memory, sets)) in &there {
            prop_assert!(*shards <= 100, "{place:?}: {shards}");
            prop_assert!(*memory <= 80 * GIB || sets.len() == 1 && *shards == 100, "{place:?}: {memory}");
            prop_assert!(sets.len() <= 1, "{place:?}: {sets:?}");
        }
        are_told_and_have_room(&view, &plan)?;
    }

    /// Whoever starts without it starts with it.
    #[test]
    fn sharing_makes_nobody_wait(view in clusters()) {
        let wide_starts = |policy: &Policy| -> BTreeSet<u32> {
            let plan = plan_by(&view, policy);
            let wide = plan.pairings.into_iter().filter(|pairing| pairing.gres_types.count() > 1);
            wide.flat_map(|pairing| pairing.members).map(|member| member.start.job_id.id).collect()
        };
        let (without, with) = (wide_starts(&Policy::default()), wide_starts(&policy()));
        prop_assert!(without.is_subset(&with), "{without:?} and {with:?}");
    }
}

/// Each by itself: only what MPS serves is a set.
#[test]
fn only_mps_serves_a_set() {
    let takes: Vec<Mechanism> = Mechanism::ALL.into_iter().filter(|own| own.takes_several()).collect();
    assert_eq!(takes, [Mps]);
}
