//! What looks and notices make of a device's condition.

use super::*;
use pillion_core::UserId;
use pillion_core::device::{DeviceProcess, Reading};
use pillion_core::metric::{Metric, MetricSource};
use pillion_test_kit::{device, tile};

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(1000 + seconds)
}

fn health() -> Health {
    Health::new(&[device(0), device(1)])
}

fn state(source: MetricSource, processes: &[u32]) -> DeviceState {
    let mut reading = Reading::from([(Metric::SmActiveFraction, 1.0)]);
    reading.metrics.tag_untagged(source);
    let process = |pid: &u32| DeviceProcess { pid: *pid, memory_bytes: None };
    DeviceState { reading, processes: processes.iter().map(process).collect() }
}

/// A sample at which device 1 is well and device 0 says what is given.
fn sample(health: &mut Health, seconds: u64, first: Result<DeviceState, DeviceError>) {
    let states = vec![(0, first), (1, Ok(state(MetricSource::Nvml, &[])))];
    health.sampled(at(seconds), Ok(&states));
}

fn notice(health: &mut Health, seconds: u64, kind: NoticeKind) {
    health.noticed(at(seconds), &DeviceNotice { index: 0, kind, detail: "said so".into() });
}

/// The faults of device 0.
fn faults(health: &Health) -> Vec<(FaultKind, u64)> {
    let conditions = health.conditions();
    assert!(conditions.iter().skip(1).all(|other| other.faults.is_empty()), "{conditions:?}");
    conditions[0].faults.iter().map(|fault| (fault.kind, fault.since.epoch() - 1000)).collect()
}

fn gone() -> Result<DeviceState, DeviceError> {
    Err(DeviceError::Gone { index: 0, reason: "fell off the bus".into() })
}

fn busy() -> Result<DeviceState, DeviceError> {
    Err(DeviceError::Busy { index: 0, reason: "in reset".into() })
}

fn well(processes: &[u32]) -> DeviceState {
    state(MetricSource::NvmlGpm, processes)
}

#[test]
fn a_device_is_well_or_unknown_until_it_was_looked_at() {
    let mut health = health();
    assert_eq!(health.conditions(), []);
    sample(&mut health, 1, Ok(well(&[])));
    let expected = |name: &str, source| DeviceCondition {
        gres_type: GresType::new(name),
        faults: Vec::new(),
        sources: [(Metric::SmActiveFraction, source)].into(),
        instances_empty: Vec::new(),
    };
    assert_eq!(
        health.conditions(),
        [expected("g0", MetricSource::NvmlGpm), expected("g1", MetricSource::Nvml)]
    );
}

#[test]
fn a_gone_device_is_told_at_once_and_is_well_when_it_answers() {
    let mut health = health();
    sample(&mut health, 1, gone());
    sample(&mut health, 2, gone());
    assert_eq!(faults(&health), [(FaultKind::Gone, 1)], "since the first time");
    let conditions = health.conditions();
    let fault = conditions[0].closed_by().expect("nobody new is put there");
    assert_eq!(fault.to_string(), "it is gone: fell off the bus");
    sample(&mut health, 3, Ok(well(&[])));
    assert_eq!(faults(&health), []);
    sample(&mut health, 4, gone());
    assert_eq!(faults(&health), [(FaultKind::Gone, 4)], "anew");
}

#[test]
fn what_may_pass_by_itself_counts_at_the_third_look() {
    let mut health = health();
    for second in [1, 2] {
        sample(&mut health, second, busy());
        assert_eq!(faults(&health), []);
    }
    sample(&mut health, 3, busy());
    assert_eq!(faults(&health), [(FaultKind::Unreadable, 1)]);
    sample(&mut health, 4, gone());
    assert_eq!(faults(&health), [(FaultKind::Gone, 1)], "one of the two");
    sample(&mut health, 5, Ok(well(&[])));
    sample(&mut health, 6, busy());
    assert_eq!(faults(&health), [], "counted anew");
    let refused = DeviceError::Refused { index: 0, reason: "not root".into() };
    sample(&mut health, 7, Err(refused));
    assert_eq!(faults(&health), [(FaultKind::Unreadable, 6)], "this will not pass");
}

#[test]
fn a_driver_that_fails_or_forgets_a_device_is_no_better() {
    let mut health = health();
    let error = DeviceError::NoLibrary { library: "libnvidia-ml.so.1".into(), reason: "gone".into() };
    health.sampled(at(1), Err(&error));
    let kinds = |health: &Health| -> Vec<Option<FaultKind>> {
        health.conditions().iter().map(|one| one.closed_by().map(|fault| fault.kind)).collect()
    };
    assert_eq!(kinds(&health), [Some(FaultKind::Unreadable); 2]);
    health.sampled(at(2), Ok(&vec![(1, Ok(well(&[])))]));
    assert_eq!(kinds(&health), [Some(FaultKind::Gone), None]);
}

#[test]
fn a_lost_metric_is_named_and_closes_nothing() {
    let mut health = health();
    sample(&mut health, 1, Ok(well(&[])));
    notice(&mut health, 2, NoticeKind::MetricLost(Metric::SmActiveFraction));
    notice(&mut health, 3, NoticeKind::MetricLost(Metric::PowerWatts));
    notice(&mut health, 4, NoticeKind::MetricLost(Metric::PowerWatts));
    let lost = &health.conditions()[0];
    assert_eq!((lost.faults.len(), lost.closed_by(), lost.sources.len()), (2, None, 0));
    assert!(lost.faults.iter().any(|fault| fault.to_string() == "it lost a metric: power_watts: said so"));
    notice(&mut health, 5, NoticeKind::MetricBack(Metric::PowerWatts));
    sample(&mut health, 6, Ok(well(&[])));
    assert_eq!(faults(&health), [(FaultKind::MetricLost, 2)]);
}

#[test]
fn a_metric_that_is_missing_for_once_is_not_lost() {
    let mut health = health();
    sample(&mut health, 1, Ok(well(&[])));
    sample(&mut health, 2, Ok(DeviceState { reading: Reading::default(), processes: Vec::new() }));
    assert_eq!(health.conditions()[0].sources.len(), 1);
}

#[test]
fn an_mps_fault_lasts_until_it_is_cleared_or_nobody_is_left() {
    let mut health = health();
    notice(&mut health, 1, NoticeKind::MpsFault);
    sample(&mut health, 2, Ok(well(&[7])));
    assert_eq!(faults(&health), [(FaultKind::MpsFault, 1)]);
    assert!(health.conditions()[0].closed_by().is_some());
    notice(&mut health, 3, NoticeKind::MpsClear);
    assert_eq!(faults(&health), []);
    notice(&mut health, 4, NoticeKind::MpsFault);
    notice(&mut health, 5, NoticeKind::MpsDied);
    sample(&mut health, 6, Ok(well(&[7])));
    assert_eq!(faults(&health), [(FaultKind::MpsDied, 5)]);
    sample(&mut health, 7, Ok(well(&[])));
    assert_eq!(faults(&health), []);
}

#[test]
fn a_mode_is_held_until_the_whole_card_is_idle() {
    let mut health = Health::new(&[tile(0), tile(1), tile(2)]);
    let closed = |health: &Health| {
        let conditions = health.conditions();
        conditions.iter().map(|condition| condition.closed_by().is_some()).collect::<Vec<_>>()
    };
    let sample = |health: &mut Health, processes: [Option<&[u32]>; 3]| {
        let state =
            |pids: Option<&[u32]>| pids.map_or_else(busy, |pids| Ok(state(MetricSource::Sysman, pids)));
        let states = (0..).zip(processes.map(state)).collect();
        health.sampled(at(2), Ok(&states));
    };
    health.mode_refused(at(1), 1, "processes [7]".into());
    sample(&mut health, [Some(&[7]), Some(&[]), Some(&[])]);
    assert_eq!(closed(&health), [false, true, false], "its neighbour is open to who comes as it is");
    assert_eq!(health.conditions()[1].faults[0].kind, FaultKind::ModeHeld);
    sample(&mut health, [None, Some(&[]), Some(&[])]);
    assert_eq!(closed(&health), [false, true, false], "nobody knows");
    sample(&mut health, [Some(&[]), Some(&[]), Some(&[7])]);
    assert_eq!(closed(&health), [false, false, false], "another card is another matter");
}

#[test]
fn a_device_that_lacks_its_mechanism_stays_open_and_says_so() {
    let mut health = health();
    notice(&mut health, 1, NoticeKind::NoMechanism);
    sample(&mut health, 2, Ok(well(&[])));
    assert_eq!(faults(&health), [(FaultKind::NoMechanism, 1)]);
    assert_eq!(health.conditions()[0].closed_by(), None);
}

#[test]
fn a_device_with_mig_enabled_is_closed_and_still_read() {
    let mut health = health();
    notice(&mut health, 1, NoticeKind::Divided);
    sample(&mut health, 2, Ok(well(&[])));
    assert_eq!(faults(&health), [(FaultKind::Divided, 1)]);
    let condition = &health.conditions()[0];
    assert!(condition.closed_by().is_some() && !condition.sources.is_empty(), "{condition:?}");
}

#[test]
fn the_worst_stands_first() {
    let mut health = health();
    notice(&mut health, 1, NoticeKind::MetricLost(Metric::PowerWatts));
    sample(&mut health, 2, gone());
    notice(&mut health, 3, NoticeKind::MpsDied);
    let kinds: Vec<FaultKind> = faults(&health).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FaultKind::Gone, FaultKind::MpsDied, FaultKind::MetricLost]);
}

#[test]
fn a_notice_is_one_line() {
    let line = |kind, detail: &str| sentence(&DeviceNotice { index: 0, kind, detail: detail.into() });
    let xid = |pid| NoticeKind::Xid { code: 31, pid };
    assert_eq!(line(xid(Some(7)), "MMU fault"), ("Xid 31 of process 7: MMU fault".to_owned(), true));
    assert_eq!(line(xid(None), ""), ("Xid 31".to_owned(), true));
    let back = NoticeKind::MetricBack(Metric::PowerWatts);
    assert_eq!(line(back, ""), ("power_watts is given again".to_owned(), false));
    assert_eq!(line(NoticeKind::MpsClear, ""), ("its MPS server is well again".to_owned(), false));
}

#[test]
fn who_took_too_much_is_told_for_a_minute_and_closes_nothing() {
    let mut health = health();
    health.overused(at(5), 0, "job 33".to_owned());
    health.overused(at(6), 0, "job 33".to_owned());
    sample(&mut health, 60, Ok(well(&[])));
    assert_eq!((faults(&health), health.conditions()[0].closed_by()), (vec![(FaultKind::Overused, 5)], None));
    health.overused(at(61), 0, "job 34".to_owned());
    sample(&mut health, 70, Ok(well(&[])));
    assert_eq!(faults(&health), [(FaultKind::Overused, 61)], "another one is told anew");
    sample(&mut health, 122, Ok(well(&[])));
    assert_eq!(faults(&health), []);
}

/// One sample at which device 0 has these processes that are no job's.
fn outsiders(health: &mut Health, seconds: u64, pids: &[u32]) {
    sample(health, seconds, Ok(well(pids)));
    let seen: Vec<Outsider> = pids.iter().map(|pid| Outsider { pid: *pid, uid: UserId(1000) }).collect();
    health.outsiders(at(seconds), &[(0, seen), (1, Vec::new())].into());
}

#[test]
fn a_process_of_no_job_closes_its_device_and_one_that_comes_and_goes_is_one() {
    let mut health = health();
    outsiders(&mut health, 1, &[20]);
    outsiders(&mut health, 2, &[]);
    outsiders(&mut health, 3, &[20]);
    assert_eq!(faults(&health), [], "a job's last process may outlive it for a moment");
    outsiders(&mut health, 4, &[20, 21]);
    assert_eq!((faults(&health), health.has_outsider(0)), (vec![(FaultKind::Outsider, 4)], true));
    let condition = &health.conditions()[0];
    let fault = condition.closed_by().expect("nobody joins");
    assert_eq!(fault.detail, "process 20 of uid 1000, 21 of uid 1000");
    assert_eq!(fault.for_everybody().detail, "", "operators alone know who");
    for seconds in 5..=64 {
        outsiders(&mut health, seconds, if seconds % 7 == 0 { &[22] } else { &[] });
    }
    assert_eq!(faults(&health), [(FaultKind::Outsider, 4)], "told once");
    for seconds in 65..=123 {
        outsiders(&mut health, seconds, &[]);
    }
    assert_eq!(faults(&health), [(FaultKind::Outsider, 4)]);
    // A device that does not answer says nothing of who is there.
    health.outsiders(at(500), &BTreeMap::new());
    assert!(health.has_outsider(0));
    outsiders(&mut health, 124, &[]);
    assert_eq!((faults(&health), health.has_outsider(0)), (vec![], false));
}

#[test]
fn a_device_that_serves_one_user_at_a_time_stays_open_and_says_so() {
    let mut health = health();
    health.serves_one_user(at(5), 0, "it does not know -multiuser-server");
    sample(&mut health, 6, Ok(well(&[])));
    assert_eq!(faults(&health), [(FaultKind::OneUser, 5)]);
    let condition = &health.conditions()[0];
    assert_eq!(condition.closed_by(), None);
    let text = condition.faults[0].to_string();
    assert_eq!(text, "its MPS serves one user at a time: it does not know -multiuser-server");
}
