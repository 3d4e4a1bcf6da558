use super::*;
use crate::testing::device;
use pillion_core::health::DeviceFault;
use pillion_core::metric::Metric;
use pillion_core::report::DeviceSample;

fn hello() -> AgentHello {
    AgentHello { sent_at: UnixTime::from_epoch(12), ..crate::testing::hello("n1") }
}

#[test]
fn a_set_up_is_as_the_newest_hello_tells() {
    let agents = Agents::default();
    let node = NodeName::new("n1");
    assert_eq!(agents.setup(&node), None);
    let greeting = AgentHello { setup: Some(NodeSetup::default()), ..hello() };
    let _old = agents.connect(&greeting, UnixTime::from_epoch(10));
    assert_eq!(agents.setup(&node), Some(NodeSetup::default()));
    let _new = agents.connect(&hello(), UnixTime::from_epoch(11));
    assert_eq!(agents.setup(&node), None, "an agent of an earlier release tells nothing");
}

#[test]
fn who_has_no_device_that_is_open_takes_nobody() {
    let agents = Agents::default();
    let node = NodeName::new("n1");
    let takes = || (agents.takes_tenants(&node, 1), agents.sets_caps(&node), agents.is_connected(&node));
    let (_stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    assert_eq!(takes(), (false, false, true), "a library without a driver");
    let devices = vec![device(0), device(1)];
    let greeting = AgentHello { devices, ..hello() };
    let (stream, _inbox) = agents.connect(&greeting, UnixTime::from_epoch(11));
    assert_eq!(takes(), (true, true, true));
    let with = |name: &str, kind: FaultKind| DeviceCondition {
        gres_type: GresType::new(name),
        faults: vec![DeviceFault { kind, detail: "said so".into(), since: UnixTime::from_epoch(12) }],
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    };
    let hangs = |name: &str| with(name, FaultKind::Unreadable);
    assert!(agents.takes_tenants(&node, 2) && !agents.takes_tenants(&node, 3));
    agents.set_conditions(&stream, &[hangs("g0")]);
    assert!(!agents.takes_tenants(&node, 2), "one of both is closed");
    assert_eq!(takes(), (true, true, true), "the other one is well");
    agents.set_conditions(&stream, &[hangs("g0"), hangs("g1")]);
    assert_eq!(takes(), (false, false, true), "drivers that hang");
    // A user who logs in and begins a process on each device holds nobody's job back beyond its bound.
    agents.set_conditions(&stream, &[hangs("g0"), with("g1", FaultKind::Outsider)]);
    assert_eq!(takes(), (true, true, true));
}

#[test]
fn devices_are_as_the_newest_stream_tells() {
    let agents = Agents::default();
    let condition = |name: &str| DeviceCondition {
        gres_type: GresType::new(name),
        faults: Vec::new(),
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    };
    let reported =
        || -> Vec<GresType> { agents.all()[&NodeName::new("n1")].conditions.keys().cloned().collect() };
    let first = AgentHello { conditions: vec![condition("g0")], ..hello() };
    let (old, _inbox) = agents.connect(&first, UnixTime::from_epoch(10));
    assert_eq!(reported(), [GresType::new("g0")]);
    let (new, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(11));
    assert_eq!(reported(), [], "a restarted agent has not looked yet");
    agents.set_conditions(&new, &[condition("g1")]);
    agents.set_conditions(&old, &[condition("g2")]);
    assert_eq!(reported(), [GresType::new("g1")]);
}

#[test]
fn two_agents_of_one_name_are_told_from_one_that_comes_again() {
    let agents = Agents::default();
    assert!(!agents.has_rival(&hello()));
    let (stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    let other = AgentHello { journal_id: "k".into(), ..hello() };
    assert!(!agents.has_rival(&hello()) && agents.has_rival(&other));
    agents.disconnect(&stream);
    assert!(!agents.has_rival(&other), "it is gone, and its journal with it");
}

#[tokio::test]
async fn a_second_stream_waits_until_the_first_has_ended() {
    let agents = Agents::default();
    let node = NodeName::new("n1");
    agents.vacated(&node).await;
    let (first, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    let waiting = agents.vacated(&node);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        () = &mut waiting => panic!("the first is still there"),
        () = tokio::task::yield_now() => {}
    }
    agents.disconnect(&first);
    waiting.await;
}

#[test]
fn the_end_of_an_old_stream_does_not_end_the_new_one() {
    let agents = Agents::default();
    let (first, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    let (_second, mut inbox) = agents.connect(&hello(), UnixTime::from_epoch(11));
    agents.disconnect(&first);
    assert!(agents.is_connected(&NodeName::new("n1")));
    assert!(agents.send(&NodeName::new("n1"), ToAgent::Poke));
    assert_eq!(inbox.try_recv(), Ok(ToAgent::Poke));
    drop(inbox);
    let node = NodeName::new("n1");
    assert_eq!((agents.is_connected(&node), agents.all()[&node].is_connected), (false, false));
}

#[test]
fn of_readings_the_newest_stays_whatever_the_order() {
    let agents = Agents::default();
    let (_stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    for (epoch, watts) in [(20, 200.0), (30, 300.0), (25, 250.0)] {
        let reading = Reading::from([(Metric::PowerWatts, watts)]);
        let sample = DeviceSample { gres_type: GresType::new("g0"), reading, tenants: Vec::new() };
        let recorded_at = UnixTime::from_epoch(epoch);
        agents.set_readings(&NodeName::new("n1"), &DeviceSamples { recorded_at, samples: vec![sample] });
    }
    let place = (NodeName::new("n1"), GresType::new("g0"));
    let (at, reading) = &agents.readings([(&place.0, &place.1)].into_iter())[&place];
    assert_eq!((at.epoch(), reading.metrics.get(Metric::PowerWatts)), (30, Some(300.0)));
}

/// A program begun by ssh beside two jobs slows both and does more than their profiles say: neither is to answer for it.
#[test]
fn what_a_device_does_beside_a_process_of_no_job_is_held_against_nobody() {
    let agents = Agents::default();
    let (stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    let gres_type = GresType::new("g0");
    let sample =
        DeviceSample { gres_type: gres_type.clone(), reading: Reading::default(), tenants: Vec::new() };
    let recorded_at = UnixTime::from_epoch(20);
    let node = NodeName::new("n1");
    agents.set_readings(&node, &DeviceSamples { recorded_at, samples: vec![sample] });
    let counts = || agents.samples_of([(&node, &gres_type)].into_iter()).len();
    let with = |kinds: &[FaultKind]| {
        let since = UnixTime::from_epoch(12);
        let faults = kinds.iter().map(|kind| DeviceFault { kind: *kind, detail: String::new(), since });
        let faults = faults.collect();
        DeviceCondition {
            gres_type: gres_type.clone(),
            faults,
            sources: BTreeMap::new(),
            instances_empty: Vec::new(),
        }
    };
    assert_eq!(counts(), 1);
    agents.set_conditions(&stream, &[with(&[FaultKind::MpsFault, FaultKind::Outsider])]);
    assert_eq!((counts(), agents.readings([(&node, &gres_type)].into_iter()).len()), (0, 1));
    agents.set_conditions(&stream, &[with(&[FaultKind::MpsFault])]);
    assert_eq!(counts(), 1);
}

#[test]
fn an_agent_that_is_away_takes_no_message() {
    let agents = Agents::default();
    assert!(!agents.send(&NodeName::new("n1"), ToAgent::Poke));
    let (stream, inbox) = agents.connect(&hello(), UnixTime::from_epoch(10));
    assert!((agents.all()[&NodeName::new("n1")].clock_skew_seconds - 2.0).abs() < 1e-9);
    agents.disconnect(&stream);
    assert!(!agents.send(&NodeName::new("n1"), ToAgent::Poke));
    drop(inbox);
}
