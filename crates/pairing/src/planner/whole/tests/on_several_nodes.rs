//! Jobs on several nodes: Slurm books the same devices on each of them.

use super::{four, held, on, places, planned, waits, wide};
use crate::plan::{LetGo, Plan, Reason};
use crate::testing::{NOW, claim, device, device_with, job, tenant, view};
use crate::view::{AloneClaim, DeviceView, WaitingJob};
use pillion_core::device::Mechanism::Mps;
use pillion_core::{NodeName, UnixTime};
use proptest::prelude::*;

/// So many devices of each of so many nodes; Slurm starts it on the first ones.
fn on_nodes(id: u32, nodes: u16, count: u8) -> WaitingJob {
    let names = ["g0", "g1", "g2", "g3"][..usize::from(count)].join(",");
    let fallback = (count > 1).then(|| names.parse().unwrap());
    WaitingJob { node_count: nodes, fallback, ..wide(id, count) }
}

#[test]
fn a_job_on_several_nodes_is_let_go_when_its_devices_are_free() {
    let nodes = || four("n1").into_iter().chain(four("n2"));
    let plan = planned(&view(nodes().collect(), vec![on_nodes(1, 2, 4), job(2, "heavy")]));
    assert!(places(&plan).is_empty(), "nobody else gets what is given to it");
    let text = "Slurm starts it on 2 nodes, with 4 GPUs each, which it shares with nobody";
    assert_eq!(waits(&plan, 1), (Reason::LetGo, text.to_owned()));
    let plan = planned(&view(nodes().collect(), vec![on_nodes(1, 2, 2), job(2, "heavy"), on_nodes(3, 2, 1)]));
    assert_eq!((waits(&plan, 1).0, waits(&plan, 3).0), (Reason::LetGo, Reason::LetGo));
    assert_eq!(places(&plan), ["2 n1:g2"], "the third ones are for the last");
    assert_eq!(let_go(&plan), ["1 g0,g1", "3 any"]);
    let cpus = WaitingJob { cpus: 64, ..on_nodes(1, 2, 2) };
    let plan = planned(&view(nodes().collect(), vec![cpus, job(2, "heavy")]));
    assert_eq!((waits(&plan, 1).0, waits(&plan, 2).0), (Reason::LetGo, Reason::NodeTooFull));
    let plan = planned(&view(nodes().collect(), vec![on_nodes(1, 3, 1)]));
    assert_eq!(waits(&plan, 1).0, Reason::NodeDoesNotMatch);
}

/// Who is let go, and with which devices.
fn let_go(plan: &Plan) -> Vec<String> {
    let devices = |one: &LetGo| one.gres_types.as_ref().map_or("any".to_owned(), ToString::to_string);
    plan.let_go.iter().map(|one| format!("{} {}", one.start.job_id, devices(one))).collect()
}

#[test]
fn a_job_on_several_nodes_goes_where_the_same_devices_are_free_whatever_it_waits_with() {
    let on_three = |held_ones: &[(&str, &str)]| {
        let mut devices = ["n1", "n2", "n3"].map(four).concat();
        for (node, name) in held_ones {
            let place =
                devices.iter().position(|own| own.node.as_str() == *node && own.gres_type.as_str() == *name);
            devices[place.unwrap()] = held(node, name, 50, 1000);
        }
        planned(&view(devices, vec![on_nodes(1, 2, 2)]))
    };
    // It waits with g0 and g1.
    assert_eq!(let_go(&on_three(&[("n1", "g0"), ("n2", "g1"), ("n3", "g0")])), ["1 g2,g3"]);
    assert_eq!(let_go(&on_three(&[("n1", "g0"), ("n1", "g1")])), ["1 g2,g3"], "where fewer are left over");
    // Two are free of each, and no two of the same names on two nodes.
    let apart =
        on_three(&[("n1", "g0"), ("n1", "g1"), ("n2", "g2"), ("n2", "g3"), ("n3", "g1"), ("n3", "g2")]);
    assert_eq!(let_go(&apart), [""; 0]);
    let text = "waits: no 2 nodes have 2 GPUs that are wholly free, the same ones of each; they are set apart for it as they fall free";
    assert_eq!(waits(&apart, 1), (Reason::NoDeviceFree, text.to_owned()));
}

#[test]
fn of_several_nodes_those_devices_are_set_apart_that_will_be_free_first() {
    // On n1 the second pair ends last, on n2 the first one: only the first of n1 and the second of n2 are free soon, and they are
    // not the same ones.
    let ends = [("n1", [100, 100, 900, 900]), ("n2", [800, 800, 100, 100])];
    let devices = ends.iter().flat_map(|(node, seconds)| {
        (0..4).zip(seconds).map(|(at, seconds)| held(node, &format!("g{at}"), 50 + at, *seconds))
    });
    let mut devices: Vec<DeviceView> = devices.collect();
    let queue = |seconds| {
        let limited = WaitingJob { time_limit_seconds: Some(seconds), ..job(2, "heavy") };
        vec![on_nodes(1, 2, 2), limited]
    };
    // By 800 seconds g0 and g1 are; so of n2 the first of them that falls free is lent to who ends in two thirds of that.
    devices[4] = on("n2", device("g0", Mps));
    let lent = |seconds| places(&planned(&view(devices.clone(), queue(seconds))));
    assert_eq!((lent(533), lent(534)), (vec!["2 n2:g0".to_owned()], Vec::new()));
}

#[test]
fn it_begins_at_once_where_slurm_could_give_it_nothing_that_others_get() {
    // Of n2 and n3 two are free, of n1 all: nothing is left over where it goes, and Slurm would take n1 as well.
    let devices = || {
        let mut devices = ["n1", "n2", "n3"].map(four).concat();
        for (place, node, name) in [(6, "n2", "g2"), (7, "n2", "g3"), (10, "n3", "g2"), (11, "n3", "g3")] {
            devices[place] = held(node, name, 50, 1000);
        }
        devices
    };
    let at_once = |devices: Vec<DeviceView>, others: Vec<WaitingJob>| {
        let queue = [on_nodes(1, 2, 2)].into_iter().chain(others);
        let plan = planned(&view(devices, queue.collect()));
        let nodes: Vec<&str> =
            plan.let_go[0].nodes().into_iter().map(pillion_core::NodeName::as_str).collect();
        assert_eq!(nodes, ["n2", "n3"]);
        plan.let_go[0].at_once
    };
    assert!(at_once(devices(), Vec::new()));
    assert!(!at_once(devices(), vec![wide(2, 4)]), "it is given n1 in the same plan");
    // So it is where somebody was given one of them by the plan before, and does not run yet; who runs there is in Slurm's books.
    for (is_running, expected) in [(false, false), (true, true)] {
        let mut devices = devices();
        devices[0] = held("n1", "g0", 60, 1000);
        devices[0].tenants[0].is_running = is_running;
        assert_eq!(at_once(devices, Vec::new()), expected);
    }
}

#[test]
fn one_that_was_let_go_and_lost_its_devices_goes_elsewhere() {
    let mut devices = ["n1", "n2"].map(four).concat();
    let claimed = |devices: &[DeviceView], waits: Option<WaitingJob>| {
        let mut view = view(devices.to_vec(), vec![job(2, "heavy"), job(3, "heavy")]);
        let claim = AloneClaim { gres_types: "g0,g1".parse().ok(), node_count: 2, ..claim(900) };
        view.alone_claims = vec![AloneClaim { waits: waits.map(Box::new), ..claim }];
        planned(&view)
    };
    let waits = || Some(on_nodes(900, 2, 2));
    // Its own are free: Slurm is about to start it.
    assert_eq!(let_go(&claimed(&devices, waits())), [""; 0]);
    devices[0] = held("n1", "g0", 50, 1000);
    assert_eq!(let_go(&claimed(&devices, None)), [""; 0], "a moment ago");
    let plan = claimed(&devices, waits());
    assert_eq!(let_go(&plan), ["900 g2,g3"]);
    assert_eq!(places(&plan), ["2 n1:g1", "3 n2:g0"], "what it gave up is for others");
    // Nothing else is free: it keeps its place in front of all.
    devices[7] = held("n2", "g3", 51, 1000);
    devices[2] = held("n1", "g2", 52, 1000);
    assert_eq!(let_go(&claimed(&devices, waits())), [""; 0]);
}

#[test]
fn devices_on_several_nodes_are_set_apart_until_the_last_is_free() {
    let mut devices: Vec<DeviceView> = four("n1").into_iter().chain(four("n2")).collect();
    devices[6] = held("n2", "g2", 50, 1000);
    let limited = |id, seconds| WaitingJob { time_limit_seconds: Some(seconds), ..job(id, "heavy") };
    let queue = vec![on_nodes(1, 2, 4), limited(2, 666), limited(3, 667), wide(4, 2)];
    let plan = planned(&view(devices.clone(), queue));
    assert_eq!(places(&plan).len(), 1, "{:?}", places(&plan));
    assert!(places(&plan)[0].starts_with("2 "), "who ends before");
    let text = "waits: no 2 nodes have 4 GPUs that are wholly free, the same ones of each; they are set apart for it as they fall free";
    assert_eq!(waits(&plan, 1), (Reason::NoDeviceFree, text.to_owned()));
    // And so they are when it was let go and does not run yet.
    let mut view = view(devices, vec![limited(3, 667)]);
    let gres_types = on_nodes(1, 2, 4).fallback;
    view.alone_claims = vec![AloneClaim { gres_types, node_count: 2, ..claim(900) }];
    assert!(places(&planned(&view)).is_empty());
}

#[test]
fn what_is_set_apart_is_lent_until_those_end_whom_slurm_started_by_itself() {
    // Of the two that a wide job waits for one is free, and on the other somebody runs of whom there is no decision.
    let by = |alone_seconds: Option<u64>, seconds| {
        let alone_until = alone_seconds.map(|seconds| UnixTime::from_epoch(NOW + seconds));
        let devices = vec![
            on("n1", device("g0", Mps)),
            DeviceView { shards_free: 0, alone_until, ..on("n1", device("g1", Mps)) },
        ];
        let limited = WaitingJob { time_limit_seconds: Some(seconds), ..job(2, "heavy") };
        places(&planned(&view(devices, vec![wide(1, 2), limited])))
    };
    assert_eq!((by(Some(300), 200), by(Some(300), 201)), (vec!["2 n1:g0".to_owned()], Vec::new()));
    assert_eq!(by(None, 20000), ["2 n1:g0"], "nobody knows when it ends");
}

#[test]
fn who_should_have_ended_is_not_gone_yet() {
    // Two would do for the wide job, of which one is free and the other's job is being cleaned up after.
    let devices = || {
        let alone_until = Some(UnixTime::from_epoch(NOW - 5));
        vec![
            on("n1", device("g0", Mps)),
            DeviceView { shards_free: 0, alone_until, ..on("n1", device("g1", Mps)) },
            on("n1", device_with("g2", Mps, tenant(50, "light", 900))),
        ]
    };
    let light = WaitingJob { time_limit_seconds: Some(800), ..job(2, "light") };
    let plan = planned(&view(devices(), vec![wide(1, 2), light]));
    assert_eq!(waits(&plan, 1).0, Reason::NoDeviceFree);
    assert_eq!(places(&plan), ["2 n1:g2"], "the node is not kept for what it lacks");
    // Nor is one that was let go about to start there: it goes where two are free.
    let mut view = view([devices(), four("n2"), four("n3")].concat(), Vec::new());
    let waits = Some(Box::new(on_nodes(900, 2, 2)));
    let required_nodes = ["n1", "n2"].map(NodeName::new).to_vec();
    let gres_types = "g0,g1".parse().ok();
    view.alone_claims = vec![AloneClaim { required_nodes, gres_types, node_count: 2, waits, ..claim(900) }];
    assert_eq!(planned(&view).let_go.len(), 1);
}

#[test]
fn one_that_was_let_go_is_kept_what_it_can_start_on() {
    let kept = |claim: AloneClaim, full: &[usize]| {
        let mut view = view(["n1", "n2", "n3"].map(four).concat(), vec![wide(2, 4), wide(3, 4), wide(4, 4)]);
        for place in full {
            view.nodes[*place].cpus_free = 7;
        }
        view.alone_claims = vec![claim];
        let plan = planned(&view);
        let mut nodes: Vec<String> = plan.pairings.iter().map(|own| own.node.to_string()).collect();
        nodes.sort();
        (nodes.join(","), let_go(&plan))
    };
    let all = || "g0,g1,g2,g3".parse().ok();
    let claim = || AloneClaim { gres_types: all(), node_count: 2, cpus: 8, ..claim(900) };
    assert_eq!(kept(claim(), &[]).0, "n3");
    assert_eq!(kept(claim(), &[0]).0, "n1", "where it lacks CPUs others start");
    assert_eq!(kept(claim(), &[0, 1]).0, "n2", "it will start where it is looked for first");
    let nodes = ["n2", "n3"].map(NodeName::new).to_vec();
    assert_eq!(kept(AloneClaim { required_nodes: nodes, ..claim() }, &[]).0, "n1");
    // What these nodes lack keeps it from starting, so that after a while it is let go where there is all of it.
    let waits = Some(Box::new(WaitingJob { cpus: 8, ..on_nodes(900, 2, 4) }));
    let nodes = ["n1", "n2"].map(NodeName::new).to_vec();
    let moved = kept(AloneClaim { required_nodes: nodes, waits, ..claim() }, &[0]);
    assert_eq!(moved, ("n1".to_owned(), vec!["900 g0,g1,g2,g3".to_owned()]));
}

#[test]
fn nobody_gets_the_cpus_of_one_that_slurm_is_about_to_start() {
    let started = |claimed: AloneClaim| {
        let mut view = view(four("n1"), vec![WaitingJob { cpus: 33, ..job(2, "heavy") }]);
        view.alone_claims = vec![claimed];
        places(&planned(&view)).len()
    };
    let with = |cpus| AloneClaim { cpus, ..claim(900) };
    assert_eq!((started(with(31)), started(with(32))), (1, 0));
    let on_two = |cpus| AloneClaim { gres_types: "g0,g1".parse().ok(), ..with(cpus) };
    assert_eq!((started(on_two(31)), started(on_two(32))), (1, 0));
    // A wide job as well, and one that is lent what is set apart for it.
    let beside = |cpus, queue: Vec<WaitingJob>, held_count: usize| {
        let mut devices = four("n1");
        for (place, name) in ["g0", "g1"].into_iter().enumerate().take(held_count) {
            devices[place] = held("n1", name, 50, 3000);
        }
        let mut view = view(devices, queue);
        view.alone_claims = vec![with(cpus)];
        places(&planned(&view))
    };
    let first = || WaitingJob { cpus: 33, ..wide(1, 2) };
    assert_eq!((beside(31, vec![first()], 0).len(), beside(32, vec![first()], 0).len()), (1, 0));
    let lent = || vec![wide(1, 4), WaitingJob { cpus: 33, time_limit_seconds: Some(60), ..job(2, "heavy") }];
    assert_eq!((beside(31, lent(), 2).len(), beside(32, lent(), 2).len()), (1, 0));
}

proptest! {
    /// A job on several nodes that is alone in the queue starts where, and only where, so many nodes have devices of the same names
    /// free; and of each of them that many.
    #[test]
    fn a_job_on_several_nodes_starts_if_it_can(
        free in prop::collection::vec(prop::collection::vec(any::<bool>(), 4), 2..5), nodes in 2..4_u16, count in 2..5_u8,
    ) {
        let device_of = |(at, is_free): (usize, &bool), name: &str| {
            let own = format!("g{at}");
            if *is_free { on(name, device(&own, Mps)) } else { held(name, &own, 50, 700) }
        };
        let devices = free.iter().enumerate().flat_map(|(at, own)| {
            own.iter().enumerate().map(move |spot| device_of(spot, &format!("n{at}")))
        });
        let plan = planned(&view(devices.collect(), vec![on_nodes(1, nodes, count)]));
        let are_free = |set: u32| {
            let has = |own: &&Vec<bool>| (0..4).all(|at| set & (1 << at) == 0 || own[at]);
            free.iter().filter(has).count() >= usize::from(nodes)
        };
        let can_start = (0..16_u32).any(|set| set.count_ones() == u32::from(count) && are_free(set));
        prop_assert_eq!(plan.let_go.len() == 1, can_start);
        if let Some(one) = plan.let_go.first() {
            let names: Vec<String> = one.gres_types.as_ref().unwrap().iter().map(ToString::to_string).collect();
            let set: u32 = (0..4).filter(|at| names.contains(&format!("g{at}"))).fold(0, |set, at| set | 1 << at);
            prop_assert!(set.count_ones() == u32::from(count) && are_free(set), "{names:?}");
        }
    }
}
