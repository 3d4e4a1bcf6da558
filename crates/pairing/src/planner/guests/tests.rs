//! Who makes room, for whom, and who does not.

use super::*;
use crate::model::Contention;
use crate::planner::plan;
use crate::policy::Policy;
use crate::testing::{NOW, claim, device, device_with, job, tenant, view};
use crate::view::GuestTenant;
use pillion_core::device::Mechanism::Mps;
use pillion_core::{Shards, SlowdownRatio, UnixTime};
use proptest::prelude::*;

fn on(node: &str, device: DeviceView) -> DeviceView {
    DeviceView { node: NodeName::new(node), ..device }
}

/// Has all of its device for so many seconds, and is nobody's guest.
fn held(node: &str, gres_type: &str, id: u32) -> DeviceView {
    let alone = Tenant { shards: Shards::ALL, ..tenant(id, "heavy", 600) };
    on(node, device_with(gres_type, Mps, alone))
}

/// The same of a guest that runs for so many seconds.
fn guest(node: &str, gres_type: &str, id: u32, seconds: u64) -> DeviceView {
    let started_at = Some(UnixTime::from_epoch(NOW - seconds));
    let mut device = held(node, gres_type, id);
    let guest = GuestTenant { cpus: 4, memory_mib: 1024, started_at, is_leaving: false };
    device.tenants[0].guest = Some(guest);
    device
}

fn leaving(mut device: DeviceView) -> DeviceView {
    for tenant in &mut device.tenants {
        tenant.guest.as_mut().unwrap().is_leaving = true;
    }
    device
}

fn room_of(view: &ClusterView, settling: &[u32]) -> Room {
    let plan = plan(view, &Contention, &Policy::default());
    make_room(view, &plan, &settling.iter().copied().map(SlurmJobId::plain).collect())
}

/// Who goes, and for whom: `50 for 1`.
fn going(view: &ClusterView) -> Vec<String> {
    let mut going: Vec<String> =
        room_of(view, &[]).going.iter().map(|room| format!("{} for {}", room.guest, room.waits)).collect();
    going.sort();
    going
}

fn wide(id: u32, count: u8) -> WaitingJob {
    WaitingJob { device_count: count, ..job(id, "light") }
}

fn as_guest(id: u32) -> WaitingJob {
    WaitingJob { as_guest: true, ..job(id, "heavy") }
}

#[test]
fn one_guest_goes_for_each_that_waits_and_rather_who_began_last() {
    let devices = || vec![held("n1", "g0", 50), guest("n1", "g1", 51, 900), guest("n1", "g2", 52, 60)];
    assert_eq!(going(&view(devices(), vec![job(1, "heavy")])), ["52 for 1"]);
    assert_eq!(
        going(&view(devices(), vec![job(1, "heavy"), job(2, "heavy"), job(3, "heavy")])),
        ["51 for 2", "52 for 1"]
    );
    assert!(going(&view(devices(), vec![])).is_empty());
    assert!(going(&view(devices(), vec![as_guest(1)])).is_empty(), "no guest goes for a guest");
}

#[test]
fn nobody_goes_where_that_would_give_nobody_anything() {
    let held_back = WaitingJob { held: Some("a dependency".to_owned()), ..job(1, "heavy") };
    let elsewhere = WaitingJob { gpu_type: Some("a100".to_owned()), ..job(1, "heavy") };
    let too_large = WaitingJob { cpus: 500, ..job(1, "heavy") };
    for waiting in [held_back, elsewhere, too_large, wide(1, 3)] {
        let devices = vec![held("n1", "g0", 50), guest("n1", "g1", 51, 900), guest("n1", "g2", 52, 60)];
        assert!(going(&view(devices, vec![waiting.clone()])).is_empty(), "{waiting:?}");
    }
    let mut beside = guest("n1", "g0", 51, 60);
    beside.tenants.push(tenant(50, "light", 600));
    beside.tenants.iter_mut().for_each(|tenant| tenant.shards = Shards::try_new(50).unwrap());
    beside.shards_free = 0;
    assert!(going(&view(vec![beside], vec![job(1, "heavy")])).is_empty(), "its device is another's too");
    let mut closed = guest("n1", "g0", 51, 60);
    closed.blocked = Some("drained".to_owned());
    assert!(going(&view(vec![closed], vec![job(1, "heavy")])).is_empty());
}

#[test]
fn who_is_on_the_way_out_is_not_followed_by_another() {
    let devices = vec![leaving(guest("n1", "g0", 50, 60)), guest("n1", "g1", 51, 60)];
    assert!(going(&view(devices.clone(), vec![job(1, "heavy")])).is_empty());
    assert_eq!(going(&view(devices.clone(), vec![job(1, "heavy"), job(2, "heavy")])), ["51 for 2"]);
    let expected = room_of(&view(devices, vec![job(1, "heavy")]), &[]).expected;
    assert_eq!(expected, BTreeSet::from([SlurmJobId::plain(1)]));
}

/// Between the end of a guest and the moment at which Slurm has its device free, nobody is there and nothing is free.
#[test]
fn for_whom_somebody_just_went_nobody_else_does() {
    let devices = vec![held("n1", "g0", 50), guest("n1", "g1", 51, 60)];
    let cluster = view(devices, vec![job(1, "heavy"), job(2, "heavy")]);
    let room = room_of(&cluster, &[1]);
    assert_eq!(room.going.len(), 1);
    assert_eq!((room.going[0].waits.id, room.expected.len()), (2, 1));
    let gone = view(vec![leaving(guest("n1", "g1", 51, 60))], vec![job(1, "heavy")]);
    assert_eq!(room_of(&gone, &[1]).expected.len(), 1, "it still does not have it");
}

#[test]
fn both_guests_of_a_device_go() {
    let mut two = guest("n1", "g0", 50, 60);
    let second = Tenant { job_id: SlurmJobId::plain(51), ..two.tenants[0].clone() };
    two.tenants.push(second);
    let cheaper = guest("n1", "g1", 52, 9_000);
    assert_eq!(going(&view(vec![two.clone()], vec![job(1, "heavy")])), ["50 for 1", "51 for 1"]);
    assert_eq!(going(&view(vec![two, cheaper], vec![job(1, "heavy")])), ["52 for 1"], "rather one than two");
}

#[test]
fn a_job_of_several_devices_gets_them_on_one_node() {
    let devices = vec![
        held("n1", "g0", 50),
        guest("n1", "g1", 51, 10),
        guest("n2", "g0", 52, 900),
        guest("n2", "g1", 53, 900),
        on("n3", device("g0", Mps)),
        guest("n3", "g1", 54, 5_000),
    ];
    assert_eq!(going(&view(devices, vec![wide(1, 2)])), ["54 for 1"], "one of the two is free there");
}

/// Slurm gives it any one of each node.
#[test]
fn a_job_of_one_device_on_each_of_several_nodes_gets_any() {
    let job = WaitingJob { node_count: 2, ..job(1, "light") };
    let apart = vec![guest("n1", "g0", 50, 10), guest("n2", "g1", 52, 10)];
    assert_eq!(going(&view(apart, vec![job])), ["50 for 1", "52 for 1"]);
}

/// He would come back, and be sent away again ten seconds later.
#[test]
fn nobody_goes_for_the_rest_of_what_a_job_needs_while_a_part_of_it_is_set_apart_for_another() {
    let devices = || {
        vec![
            on("n1", device("g0", Mps)),
            held("n1", "g1", 50),
            guest("n2", "g0", 52, 10),
            held("n2", "g1", 53),
        ]
    };
    let first = WaitingJob { excluded_nodes: vec![NodeName::new("n2")], ..wide(1, 2) };
    let second = WaitingJob { node_count: 2, ..job(2, "light") };
    assert_eq!(going(&view(devices(), vec![second.clone()])), ["52 for 2"], "its own part is free");
    assert!(going(&view(devices(), vec![first.clone(), second.clone()])).is_empty());
    let of_one_node = WaitingJob { excluded_nodes: vec![NodeName::new("n2")], ..wide(3, 3) };
    let mut more = devices();
    more.push(guest("n1", "g2", 54, 10));
    more.push(guest("n1", "g3", 55, 10));
    // The guests of what is set apart go for whom it is set apart.
    assert_eq!(going(&view(more, vec![of_one_node, second])), ["54 for 3", "55 for 3"]);
}

/// Whatever devices it waits with: at its turn it is let go with any.
#[test]
fn a_job_on_several_nodes_gets_the_same_devices_of_each() {
    let waits = |names: &str| {
        let fallback = Some(names.parse().unwrap());
        WaitingJob { node_count: 2, fallback, ..wide(1, 2) }
    };
    let on_first =
        || ["g0", "g1", "g2", "g3"].into_iter().zip(50..).map(|(own, id)| guest("n1", own, id, 10));
    let on_second = [guest("n2", "g2", 54, 10), guest("n2", "g3", 55, 10)];
    let devices = || on_first().chain(on_second.clone()).collect::<Vec<_>>();
    for names in ["g0,g1", "g2,g3"] {
        let all = ["52 for 1", "53 for 1", "54 for 1", "55 for 1"];
        assert_eq!(going(&view(devices(), vec![waits(names)])), all);
    }
    // Where some of them are free already, nobody else goes; where nothing is alike, nobody does.
    let mut devices = devices();
    devices.extend(["g0", "g1"].map(|own| on("n2", device(own, Mps))));
    assert_eq!(going(&view(devices, vec![waits("g2,g3")])), ["50 for 1", "51 for 1"]);
    let apart: Vec<DeviceView> = on_first().take(2).chain(on_second).collect();
    assert!(going(&view(apart, vec![waits("g0,g1")])).is_empty());
}

#[test]
fn more_go_where_cpus_are_missing() {
    let mut cluster = view(
        vec![guest("n1", "g0", 50, 10), guest("n1", "g1", 51, 20), guest("n1", "g2", 52, 30)],
        vec![WaitingJob { cpus: 8, ..job(1, "heavy") }],
    );
    cluster.nodes[0].cpus_free = 1;
    assert_eq!(going(&cluster), ["50 for 1", "51 for 1"]);
}

#[test]
fn who_slurm_starts_by_itself_comes_first() {
    let mut cluster = view(vec![guest("n1", "g0", 50, 10)], vec![job(1, "heavy")]);
    cluster.alone_claims = vec![claim(9)];
    assert_eq!(going(&cluster), ["50 for 9"]);
}

#[test]
fn who_may_join_a_guest_needs_nobody_gone() {
    let mut joinable = guest("n1", "g0", 50, 10);
    joinable.tenants[0].shards = Shards::try_new(40).unwrap();
    joinable.tenants[0].workload = Some(pillion_core::WorkloadKey::new("light"));
    joinable.tenants[0].slowdown_ratio_max = SlowdownRatio::try_promise(10.0).unwrap();
    joinable.shards_free = 60;
    // It lasts longer than the guest, and is entitled to.
    let long = WaitingJob { time_limit_seconds: Some(90_000), ..job(1, "light") };
    let cluster = view(vec![joinable], vec![long, job(2, "heavy")]);
    let plan = plan(&cluster, &Contention, &Policy::default());
    assert_eq!(plan.pairings.len(), 1, "{plan:?}");
    assert!(
        make_room(&cluster, &plan, &BTreeSet::new()).going.is_empty(),
        "the other has nobody to wait for but one who is no guest"
    );
}

proptest! {
    #[test]
    fn never_more_than_is_needed_and_never_anybody_else(
        kinds in proptest::collection::vec((0..4_usize, 0..3_usize, 0..2_000_u64), 1..10),
        counts in proptest::collection::vec((1..4_u8, proptest::bool::ANY), 0..6),
    ) {
        let names = ["n1", "n2", "n3"];
        let devices: Vec<DeviceView> = (0..).zip(&kinds).map(|(at, (kind, node, seconds))| {
            let (gres_type, id) = (format!("g{at}"), 50 + at);
            match kind {
                0 => held(names[*node], &gres_type, id),
                1 => on(names[*node], device(&gres_type, Mps)),
                2 => guest(names[*node], &gres_type, id, *seconds),
                _ => leaving(guest(names[*node], &gres_type, id, *seconds)),
            }
        }).collect();
        let jobs = (1..).zip(&counts).map(|(id, (count, is_guest))| {
            WaitingJob { as_guest: *is_guest && *count == 1, ..wide(id, *count) }
        });
        let cluster = view(devices, jobs.collect());
        let plan = plan(&cluster, &Contention, &Policy::default());
        let going = make_room(&cluster, &plan, &BTreeSet::new()).going;
        for room in &going {
            let device = cluster.devices.iter().find(|device| device.tenants.iter().any(|tenant| tenant.job_id == room.guest));
            let device = device.expect("it runs there");
            prop_assert!(device.tenants.iter().all(|tenant| tenant.guest.as_ref().is_some_and(|guest| !guest.is_leaving)));
            let waits = cluster.waiting.iter().find(|job| job.start.job_id == room.waits).expect("somebody waits");
            prop_assert!(!waits.as_guest && plan.left_waiting.iter().any(|left| left.job_id == room.waits));
            let same = going.iter().filter(|other| other.waits == room.waits).count();
            prop_assert!(same <= usize::from(waits.device_count), "{going:?}");
        }
        let mut guests: Vec<SlurmJobId> = going.iter().map(|room| room.guest).collect();
        guests.sort();
        guests.dedup();
        prop_assert_eq!(guests.len(), going.len(), "nobody goes twice");
    }
}
