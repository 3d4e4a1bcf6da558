mod beside_slurm;
mod on_several_nodes;

use crate::model::Contention;
use crate::plan::{Plan, Reason, Role, SetApart};
use crate::planner::plan;
use crate::policy::Policy;
use crate::testing::{NOW, claim, device, device_with, job, tenant, view};
use crate::view::{AloneClaim, ClusterView, DeviceView, WaitingJob};
use pillion_core::device::Mechanism::Mps;
use pillion_core::link::Link;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime, UserId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn planned(view: &ClusterView) -> Plan {
    plan(view, &Contention, &Policy::default())
}

/// Which devices each job gets: `1 n1:g0,g1`.
fn places(plan: &Plan) -> Vec<String> {
    let mut places: Vec<String> = plan
        .pairings
        .iter()
        .map(|pairing| {
            let jobs: Vec<String> =
                pairing.members.iter().map(|member| member.start.job_id.to_string()).collect();
            format!("{} {}:{}", jobs.join("+"), pairing.node, pairing.gres_types)
        })
        .collect();
    places.sort();
    places
}

fn waits(plan: &Plan, id: u32) -> (Reason, String) {
    let left = plan.left_waiting.iter().find(|left| left.job_id.id == id).expect("it waits");
    (left.reason, left.text.to_string())
}

fn wide(id: u32, count: u8) -> WaitingJob {
    WaitingJob { device_count: count, ..job(id, "light") }
}

/// It did not ask for co-location.
fn plain(id: u32, count: u8) -> WaitingJob {
    WaitingJob { is_plain: true, ..wide(id, count) }
}

fn on(node: &str, device: DeviceView) -> DeviceView {
    DeviceView { node: NodeName::new(node), ..device }
}

/// A node of four free devices.
fn four(node: &str) -> Vec<DeviceView> {
    ["g0", "g1", "g2", "g3"].map(|gres_type| on(node, device(gres_type, Mps))).to_vec()
}

/// A job that has all of its device, and ends in so many seconds.
fn held(node: &str, gres_type: &str, id: u32, seconds: u64) -> DeviceView {
    let alone = crate::view::Tenant { shards: pillion_core::Shards::ALL, ..tenant(id, "heavy", seconds) };
    on(node, device_with(gres_type, Mps, alone))
}

#[test]
fn a_wide_job_gets_neighbouring_devices_whole_and_alone() {
    let plan = planned(&view(four("n1"), vec![wide(1, 2), job(2, "heavy"), job(3, "heavy")]));
    let pairing = plan.pairings.iter().find(|pairing| pairing.gres_types.count() == 2).unwrap();
    let member = &pairing.members[0];
    assert_eq!((pairing.gres_types.to_string().as_str(), pairing.members.len()), ("g0,g1", 1));
    assert_eq!(
        (member.role, member.shards.count(), member.sharing.mechanism().is_set_up()),
        (Role::Alone, 100, false)
    );
    assert_eq!(member.explanation.reason, Reason::SeveralDevices);
    assert_eq!(&*member.explanation.text, "starts with 2 GPUs of n1, which it shares with nobody");
    assert_eq!(places(&plan), ["1 n1:g0,g1", "2 n1:g2", "3 n1:g3"]);
}

/// As it was: the node whose devices are free was kept for it, though it could never run there, and the other was given to small jobs.
#[test]
fn devices_are_set_apart_on_nodes_that_are_large_enough() {
    let devices: Vec<DeviceView> =
        [held("n1", "g0", 20, 600), held("n1", "g1", 21, 600)].into_iter().chain(four("n2")).collect();
    let waiting = vec![WaitingJob { cpus: 60, ..wide(1, 2) }, job(2, "heavy")];
    let mut view = view(devices, waiting);
    (view.nodes[0].cpus, view.nodes[0].cpus_free) = (64, 64);
    (view.nodes[1].cpus, view.nodes[1].cpus_free) = (32, 32);
    let plan = planned(&view);
    assert_eq!(places(&plan), ["2 n2:g0"]);
    let of_first: Vec<String> =
        plan.set_apart.iter().flat_map(|one| one.devices.iter()).map(|(node, _)| node.to_string()).collect();
    assert_eq!(of_first, ["n1", "n1"]);
}

/// A node of four free devices, of which those on one side reach each other so, and those on two sides over both sockets.
fn two_sides(node: &str, inside: Link) -> Vec<DeviceView> {
    let mut all = four(node);
    let names: Vec<_> = all.iter().map(|device| device.gres_type.clone()).collect();
    for (own, device) in all.iter_mut().enumerate() {
        let others = (0..4).filter(|other| *other != own);
        let link = |other: usize| if other % 2 == own % 2 { inside } else { Link::Sys };
        device.links = others.map(|other| (names[other].clone(), link(other))).collect();
    }
    all
}

#[test]
fn a_wide_job_gets_devices_that_reach_each_other() {
    let plan = planned(&view(two_sides("n1", Link::NvLink), vec![wide(1, 2), wide(2, 2)]));
    assert_eq!(places(&plan), ["1 n1:g0,g2", "2 n1:g1,g3"]);
    assert_eq!(
        &*plan.pairings[0].members[0].explanation.text,
        "starts with 2 GPUs of n1, which are shared with nobody and reach each other by NVLink"
    );
    // On another node than the one where fewer would be left over.
    let held = |node: &str, mut devices: Vec<DeviceView>| {
        devices[0] = held(node, "g0", 50, 1000);
        devices
    };
    let both = [held("n1", two_sides("n1", Link::Pxb)), two_sides("n2", Link::NvLink)].concat();
    assert_eq!(places(&planned(&view(both, vec![wide(1, 2)]))), ["1 n2:g0,g2"]);
    // Between switches of one NUMA node there is no difference that is worth a node.
    let both = [two_sides("n1", Link::Pix), held("n2", two_sides("n2", Link::Node))].concat();
    let plan = planned(&view(both, vec![wide(1, 2)]));
    assert_eq!(places(&plan), ["1 n2:g1,g3"]);
    assert!(plan.pairings[0].members[0].explanation.text.ends_with("and are of one NUMA node"));
    // Who needs all of a node has all of it.
    assert_eq!(
        places(&planned(&view(two_sides("n1", Link::NvLink), vec![wide(1, 4)]))),
        ["1 n1:g0,g1,g2,g3"]
    );
}

#[test]
fn who_did_not_ask_for_co_location_shares_with_nobody() {
    // Each would share with the other, had both asked.
    let one = || on("n1", device("g0", Mps));
    assert_eq!(places(&planned(&view(vec![one()], vec![job(1, "light"), job(2, "light")]))), ["1+2 n1:g0"]);
    let plan = planned(&view(vec![one()], vec![plain(1, 1), job(2, "light")]));
    assert_eq!(places(&plan), ["1 n1:g0"]);
    let member = &plan.pairings[0].members[0];
    assert_eq!(
        (member.role, member.shards.count(), member.explanation.reason),
        (Role::Alone, 100, Reason::NotColocated)
    );
    assert_eq!(&*member.explanation.text, "starts with a GPU of n1, which it shares with nobody");
    let plan = planned(&view(vec![one()], vec![job(2, "light"), plain(1, 1)]));
    assert_eq!(places(&plan), ["2 n1:g0"]);
    assert_eq!(
        waits(&plan, 1),
        (Reason::NoDeviceFree, "waits: no GPU is wholly free; one of n1 is set apart for it".to_owned())
    );
    // Nor does it join.
    let shared = vec![on("n1", device_with("g0", Mps, tenant(50, "light", 1000)))];
    assert_eq!(places(&planned(&view(shared.clone(), vec![job(1, "light")]))).len(), 1);
    assert!(places(&planned(&view(shared, vec![plain(1, 1)]))).is_empty());
}

#[test]
fn who_did_not_ask_is_not_passed_over_by_those_who_join() {
    let joins = |seconds, first: Vec<WaitingJob>| {
        let joiner = WaitingJob { time_limit_seconds: Some(seconds), ..job(2, "light") };
        let device = on("n1", device_with("g0", Mps, tenant(50, "light", 1000)));
        places(&planned(&view(vec![device], first.into_iter().chain([joiner]).collect())))
    };
    assert_eq!(joins(666, vec![plain(1, 1)]), ["2 n1:g0"]);
    assert_eq!(joins(667, vec![plain(1, 1)]), Vec::<String>::new());
    assert_eq!(joins(1100, Vec::new()), ["2 n1:g0"]);
}

#[test]
fn what_fits_exactly_leaves_whole_nodes_to_others() {
    let mut devices = four("n1");
    devices.extend([on("n2", device("g0", Mps)), on("n2", device("g1", Mps))]);
    assert_eq!(places(&planned(&view(devices.clone(), vec![wide(1, 2)]))), ["1 n2:g0,g1"]);
    assert_eq!(
        places(&planned(&view(devices, vec![job(9, "heavy"), wide(1, 4)]))),
        ["1 n1:g0,g1,g2,g3", "9 n2:g0"]
    );
}

#[test]
fn a_pair_begins_where_pairs_do_if_it_can() {
    let mut devices = four("n1");
    devices[0] = held("n1", "g0", 50, 600);
    assert_eq!(places(&planned(&view(devices, vec![wide(1, 2)]))), ["1 n1:g2,g3"]);
    let mut devices = four("n1");
    devices[2] = held("n1", "g2", 50, 600);
    devices[1].model = "v100".to_owned();
    let plan = planned(&view(devices, vec![wide(1, 2)]));
    assert_eq!(places(&plan), ["1 n1:g0,g3"], "two of one model before two that lie side by side");
}

#[test]
fn the_queues_order_holds_between_wide_jobs_and_others() {
    // One before it takes a device of the only node: the wide one waits, and no job behind it takes what it waits for.
    let longer = |job: WaitingJob| WaitingJob { time_limit_seconds: Some(3601), ..job };
    let queue = vec![job(1, "heavy"), wide(2, 4), longer(job(3, "heavy")), longer(wide(4, 2))];
    let plan = planned(&view(four("n1"), queue));
    assert_eq!(places(&plan), ["1 n1:g0"]);
    assert_eq!(
        waits(&plan, 2),
        (
            Reason::NoDeviceFree,
            "waits: no node has 4 wholly free GPUs; 4 of n1 are set apart for it".to_owned()
        )
    );
    assert_eq!(waits(&plan, 4).0, Reason::BehindOthers);
    assert_eq!(waits(&plan, 3).0, Reason::BehindOthers);
    let plan = planned(&view(four("n1"), vec![WaitingJob { cpus: 65, ..wide(2, 4) }, job(3, "heavy")]));
    let (reason, text) = waits(&plan, 3);
    assert_eq!(reason, Reason::Blocked);
    assert!(text.ends_with("a job that shares with nobody waits for CPUs or memory of its node"), "{text}");
}

#[test]
fn what_is_set_apart_is_used_by_those_who_end_before() {
    let mut devices = four("n1");
    devices[3] = held("n1", "g3", 50, 1000);
    let limited = |id, seconds| WaitingJob { time_limit_seconds: Some(seconds), ..job(id, "heavy") };
    // They end within two thirds of it.
    let queue = vec![wide(1, 4), limited(2, 3600), limited(3, 600), limited(4, 667), limited(5, 666)];
    let plan = planned(&view(devices.clone(), queue));
    assert_eq!(places(&plan), ["3 n1:g0", "5 n1:g1"]);
    let on_n1 = |own: &&str| (NodeName::new("n1"), GresType::new(*own));
    let of_first = SetApart {
        job_id: SlurmJobId::plain(1),
        devices: ["g0", "g1", "g2", "g3"].iter().map(on_n1).collect(),
    };
    assert_eq!(plan.set_apart, [of_first]);
    let wide_ones = vec![wide(1, 4), WaitingJob { time_limit_seconds: Some(600), ..wide(2, 2) }, wide(3, 2)];
    assert_eq!(places(&planned(&view(devices, wide_ones))), ["2 n1:g0,g1"]);
}

#[test]
fn a_joiner_that_stays_longer_does_not_come_where_a_wide_job_waits() {
    let with = |seconds| WaitingJob { time_limit_seconds: Some(seconds), ..job(2, "light") };
    let devices =
        || vec![on("n1", device("g0", Mps)), on("n1", device_with("g1", Mps, tenant(50, "light", 1000)))];
    let joins = |seconds, first: Vec<WaitingJob>| {
        let queue: Vec<WaitingJob> = first.into_iter().chain([with(seconds)]).collect();
        places(&planned(&view(devices(), queue)))
    };
    assert_eq!(joins(600, vec![wide(1, 2)]).len(), 1);
    assert_eq!(joins(3600, vec![wide(1, 2)]), Vec::<String>::new());
    assert_eq!(joins(3600, Vec::new()).len(), 1);
}

#[test]
fn a_wide_job_that_slurm_is_about_to_start_finds_its_devices() {
    let named = |id, text: &str| AloneClaim { gres_types: text.parse().ok(), ..claim(id) };
    let mut claimed = view(four("n1"), vec![job(1, "heavy"), job(2, "heavy"), job(3, "heavy")]);
    claimed.alone_claims = vec![named(90, "g0,g1")];
    assert_eq!(places(&planned(&claimed)), ["1 n1:g2", "2 n1:g3"]);
    // One of them is held still: nobody comes in between who stays longer.
    claimed.devices[0] = held("n1", "g0", 50, 600);
    assert_eq!(places(&planned(&claimed)), ["1 n1:g2", "2 n1:g3"]);
    claimed.waiting[2].time_limit_seconds = Some(399);
    assert_eq!(places(&planned(&claimed)), ["1 n1:g2", "2 n1:g3", "3 n1:g1"]);
    claimed.alone_claims.push(claim(91));
    assert_eq!(places(&planned(&claimed)), ["1 n1:g2", "3 n1:g1"], "the last of the free ones is another's");
}

#[test]
fn why_a_wide_job_waits() {
    let mut closed = four("n2");
    for device in &mut closed {
        device.blocked = Some("drained".to_owned());
    }
    let with = |change: fn(&mut WaitingJob), devices: Vec<DeviceView>| {
        let mut one = wide(1, 4);
        change(&mut one);
        waits(&planned(&view(devices, vec![one])), 1)
    };
    assert_eq!(with(|job| job.device_count = 8, four("n1")).0, Reason::NodeDoesNotMatch);
    assert_eq!(with(|job| job.gpu_type = Some("v100".to_owned()), four("n1")).0, Reason::NodeDoesNotMatch);
    assert_eq!(with(|_| {}, closed).0, Reason::Blocked);
    let reserved = |time_limit_seconds, change: fn(&mut WaitingJob)| {
        let mut one = WaitingJob { time_limit_seconds, ..wide(1, 4) };
        change(&mut one);
        let mut view = view(four("n1"), vec![one]);
        view.nodes[0].open_seconds = Some(60);
        let plan = planned(&view);
        plan.pairings.is_empty().then(|| waits(&plan, 1).0)
    };
    assert_eq!(reserved(Some(60), |_| {}), None);
    assert_eq!(reserved(Some(61), |_| {}), Some(Reason::NodeReserved));
    assert_eq!(reserved(Some(61), |job| job.device_count = 8), Some(Reason::NodeDoesNotMatch));
    assert_eq!(reserved(Some(61), |job| job.node_count = 2), Some(Reason::NodeDoesNotMatch));
    assert_eq!(with(|job| job.cpus = 65, four("n1")).0, Reason::NodeTooFull);
    let held = with(|job| job.held = Some("it is held".to_owned()), four("n1"));
    assert_eq!(held, (Reason::Held, "cannot start now: it is held".to_owned()));
}

/// One that lacks CPUs only keeps its node, or jobs of one GPU would take them for ever.
#[test]
fn who_lacks_cpus_of_a_node_keeps_it() {
    let mut crowded = view(four("n1"), vec![WaitingJob { cpus: 60, ..wide(1, 2) }, job(2, "heavy")]);
    crowded.nodes[0].cpus_free = 50;
    assert_eq!(places(&planned(&crowded)), Vec::<String>::new());
    assert!(waits(&planned(&crowded), 2).1.contains("waits for CPUs or memory of its node"));
}

/// Or one user with such a job for each node would close the whole pool.
#[test]
fn no_more_nodes_are_kept_than_jobs_have_devices_set_apart() {
    let nodes = ["n1", "n2", "n3", "n4", "n5", "n6"];
    let only = |own: &str| nodes.into_iter().filter(|node| *node != own).map(NodeName::new).collect();
    let lacking = |(id, own): (u32, &str)| WaitingJob { cpus: 60, excluded_nodes: only(own), ..wide(id, 2) };
    let mut queue: Vec<WaitingJob> = (1..).zip(nodes).map(lacking).collect();
    queue.extend((11..=30).map(|id| job(id, "heavy")));
    let mut crowded = view(nodes.iter().flat_map(|node| four(node)).collect(), queue);
    for node in &mut crowded.nodes {
        node.cpus_free = 50;
    }
    let used: BTreeSet<NodeName> =
        planned(&crowded).pairings.into_iter().map(|pairing| pairing.node).collect();
    assert_eq!(used.len(), 2, "{used:?}");
    let kept = planned(&crowded).set_apart;
    assert_eq!(kept.len(), 4, "what is kept for who lacks CPUs is set apart as well");
    assert!(kept.iter().all(|own| own.devices.len() == 4), "{kept:?}");
}

/// Plays hours of a node on which small jobs come without end: whoever has been first in the queue for longer than the longest
/// limit has started.
#[test]
fn a_wide_job_is_not_starved_by_small_ones() {
    let mut running: BTreeMap<String, (u32, u64)> = BTreeMap::new();
    let (mut next, mut waited) = (10, None);
    for minute in 0..120_u64 {
        running.retain(|_, (_, end)| *end > minute);
        let devices = ["g0", "g1", "g2", "g3"].map(|own| match running.get(own) {
            Some((id, end)) => held("n1", own, *id, (end - minute) * 60),
            None => on("n1", device(own, Mps)),
        });
        let limited =
            |id, minutes: u64| WaitingJob { time_limit_seconds: Some(minutes * 60), ..job(id, "heavy") };
        let mut queue = if minute >= 15 { vec![wide(1, 4)] } else { Vec::new() };
        queue.extend([limited(next, 30), limited(next + 1, 7), limited(next + 2, 30)]);
        next += 3;
        let plan = planned(&ClusterView {
            taken_at: UnixTime::from_epoch(NOW),
            ..view(devices.to_vec(), queue.clone())
        });
        for pairing in &plan.pairings {
            let id = pairing.members[0].start.job_id.id;
            if id == 1 {
                waited = Some(minute - 15);
                break;
            }
            let limit =
                queue.iter().find(|job| job.start.job_id.id == id).unwrap().time_limit_seconds.unwrap() / 60;
            running.insert(pairing.gres_types.to_string(), (id, minute + limit));
        }
        if waited.is_some() {
            break;
        }
    }
    assert!(waited.is_some_and(|minutes| (1..=30).contains(&minutes)), "{waited:?}");
}

prop_compose! {
    /// Nodes of two to four devices, some held or closed, and a queue of jobs of one to four.
    fn clusters()(
        nodes in prop::collection::vec(prop::collection::vec(0..4_u8, 2..=4), 1..4),
        jobs in prop::collection::vec((1..5_u8, 1..40_u32, prop::option::of(1..4000_u64), 0..8_u8), 0..14),
        claims in 0..3_u32,
    ) -> ClusterView {
        let mut devices = Vec::new();
        for (at, states) in nodes.iter().enumerate() {
            let name = format!("n{at}");
            for (index, state) in states.iter().enumerate() {
                let (own, id) = (format!("g{index}"), 500 + u32::try_from(at * 10 + index).unwrap());
                devices.push(match state {
                    0 => held(&name, &own, id, 700),
                    1 => on(&name, device_with(&own, Mps, tenant(id, "light", 900))),
                    _ => on(&name, device(&own, Mps)),
                });
            }
        }
        let jobs = jobs.iter().enumerate().map(|(at, (count, cpus, limit, held))| WaitingJob {
            is_plain: cpus % 3 == 0,
            cpus: *cpus,
            time_limit_seconds: *limit,
            held: (*held == 0).then(|| "it is held".to_owned()),
            ..wide(1 + u32::try_from(at).unwrap(), *count)
        });
        let mut view = view(devices, jobs.collect());
        view.alone_claims = (0..claims)
            .map(|id| AloneClaim { gres_types: (id > 0).then(|| "g0,g1".parse().unwrap()), ..claim(800 + id) })
            .collect();
        view
    }
}

/// Each waiting job stands once in a plan, those that start find their CPUs, and each has as many devices as it asked for.
pub(super) fn are_told_and_have_room(view: &ClusterView, plan: &Plan) -> Result<(), TestCaseError> {
    let mut cpus: BTreeMap<&NodeName, u32> = BTreeMap::new();
    let mut told: Vec<_> = plan.left_waiting.iter().map(|left| left.job_id).collect();
    for pairing in &plan.pairings {
        for member in &pairing.members {
            let job = view.waiting.iter().find(|job| job.start == member.start).unwrap();
            prop_assert_eq!(usize::from(job.device_count), pairing.gres_types.count());
            prop_assert!(job.held.is_none());
            *cpus.entry(&pairing.node).or_default() += job.cpus;
            told.push(job.start.job_id);
        }
    }
    for node in &view.nodes {
        prop_assert!(cpus.get(&node.name).is_none_or(|used| *used <= node.cpus_free));
    }
    told.sort();
    let all: Vec<_> = view.waiting.iter().map(|job| job.start.job_id).collect();
    prop_assert_eq!(told, all);
    Ok(())
}

proptest! {
    #[test]
    fn no_device_is_given_twice_and_every_job_is_told_once(view in clusters()) {
        let plan = planned(&view);
        let mut given = BTreeSet::new();
        for pairing in &plan.pairings {
            for gres_type in &pairing.gres_types {
                let device = view.devices.iter().find(|own| own.node == pairing.node && own.gres_type == *gres_type);
                prop_assert!(given.insert((&pairing.node, gres_type)), "{} {gres_type} twice", pairing.node);
                prop_assert!(pairing.joins.is_some() || device.unwrap().is_wholly_free());
            }
        }
        are_told_and_have_room(&view, &plan)?;
    }

    /// Of what is free for nobody before it, such a job that is first is given its devices.
    #[test]
    fn the_first_of_the_queue_starts_if_it_can(view in clusters()) {
        let Some(first) = view.waiting.iter().find(|job| job.held.is_none()) else { return Ok(()) };
        prop_assume!(first.has_whole_devices() && view.alone_claims.is_empty());
        let can_start = view.nodes.iter().any(|node| {
            let free = view.devices.iter().filter(|own| own.node == node.name && own.is_wholly_free()).count();
            free >= usize::from(first.device_count) && node.cpus_free >= first.cpus
        });
        let plan = planned(&view);
        let starts = plan.pairings.iter().any(|pairing| pairing.members[0].start == first.start);
        prop_assert_eq!(starts, can_start);
    }
}

#[test]
fn a_job_of_one_device_takes_it_where_few_are_free() {
    // Of the first node nobody has anything, of the second one device is taken.
    let mut devices = [four("n1"), four("n2")].concat();
    devices[4] = held("n2", "g0", 50, 1000);
    let stranger = |id: u32| WaitingJob { uid: UserId(id), ..job(id, "heavy") };
    let jobs = || (1..=3).map(stranger);
    assert_eq!(places(&planned(&view(devices.clone(), jobs().collect()))), ["1 n2:g1", "2 n2:g2", "3 n2:g3"]);
    // So whoever needs a whole node finds one, also behind them.
    let plan = planned(&view(devices, jobs().chain([wide(4, 4)]).collect()));
    assert_eq!(places(&plan), ["1 n2:g1", "2 n2:g2", "3 n2:g3", "4 n1:g0,g1,g2,g3"]);
}
