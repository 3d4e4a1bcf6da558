use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;
const END: u64 = 1_000_000;
const APPLICATION_XIDS: [u64; 4] = [13, 31, 43, 45];
const HARDWARE_XIDS: [u64; 6] = [48, 63, 64, 79, 94, 95];

fn seconds_before(seconds: u64) -> UnixTime {
    UnixTime::from_epoch(END - seconds)
}

/// A start of which nothing but its end is known.
fn ended(ending: Ending) -> StartSeen {
    StartSeen { ended: Some((seconds_before(0), ending)), signs: FaultSigns::default() }
}

fn failed() -> StartSeen {
    ended(Ending::Exited(1))
}

/// One sample of a device of 40 GiB, of which `permille` are in use.
fn with_memory(seen: StartSeen, permille: u64, seconds: u64) -> StartSeen {
    let bytes_used = Some(40 * GIB / 1000 * permille);
    let at = seconds_before(seconds);
    let memory = vec![MemorySample { at, bytes: 40 * GIB, bytes_used, process_bytes_max: None }];
    StartSeen { signs: FaultSigns { memory, ..seen.signs }, ..seen }
}

fn with_own(seen: StartSeen, limit: Option<u64>, own: u64) -> StartSeen {
    let at = seconds_before(1);
    let sample = MemorySample { at, bytes: 40 * GIB, bytes_used: Some(own), process_bytes_max: Some(own) };
    let signs = FaultSigns { memory: vec![sample], process_bytes_limit: limit, ..seen.signs };
    StartSeen { signs, ..seen }
}

fn with_stderr(seen: StartSeen, words: StderrWords) -> StartSeen {
    StartSeen { signs: FaultSigns { stderr: Some(words), ..seen.signs }, ..seen }
}

fn with_xid(seen: StartSeen, code: u64, is_own: Option<bool>, seconds: u64) -> StartSeen {
    let xids = vec![XidSeen { at: seconds_before(seconds), code, is_own }];
    StartSeen { signs: FaultSigns { xids, ..seen.signs }, ..seen }
}

fn found(seen: &StartSeen) -> Option<(FaultRule, f64)> {
    verdict(seen).map(|verdict| (verdict.rule, (verdict.confidence.value() * 100.0).round()))
}

#[test]
fn a_program_that_says_so_ran_out_of_memory() {
    let said = |words| found(&with_stderr(failed(), words));
    assert_eq!(said(StderrWords::Sure), Some((FaultRule::SaidOutOfMemory, 80.0)));
    assert_eq!(said(StderrWords::Vague), Some((FaultRule::SaidOutOfMemory, 40.0)));
    assert_eq!(said(StderrWords::Silent), None);
}

#[test]
fn signs_add_up_and_the_strongest_names_the_rule() {
    let full = with_memory(failed(), 988, 3);
    assert_eq!(found(&full), Some((FaultRule::DeviceFull, 40.0)));
    let said = with_stderr(full, StderrWords::Sure);
    assert_eq!(found(&said), Some((FaultRule::SaidOutOfMemory, 88.0)));
    let evidence = verdict(&said).unwrap().evidence;
    let words = [
        "standard error says that device memory ran out",
        "the device's memory was full 3 s before the end",
        "it exited with code 1",
    ];
    assert_eq!(evidence, words);
    let sentence = "by rule said-out-of-memory, 88 % sure: standard error says that device memory ran out; the device's \
                    memory was full 3 s before the end; it exited with code 1";
    assert_eq!(verdict(&said).unwrap().to_string(), sentence);
}

#[test]
fn a_process_at_its_limit_ran_out_of_memory_on_a_device_with_room() {
    let seen = with_own(failed(), Some(10 * GIB), 10 * GIB - 1);
    assert_eq!(found(&seen), Some((FaultRule::LimitReached, 50.0)));
    assert_eq!(
        found(&with_own(failed(), None, 10 * GIB)),
        None,
        "without a limit it is a quarter of the device"
    );
    assert_eq!(found(&with_own(failed(), Some(11 * GIB), 10 * GIB)), None, "91 % of its limit");
}

#[test]
fn who_was_ended_for_what_it_held_ran_out_of_memory_for_certain() {
    let over = |ending| {
        let seen = with_stderr(ended(ending), StderrWords::Silent);
        StartSeen { signs: FaultSigns { was_over_limit: true, ..seen.signs.clone() }, ..seen }
    };
    for ending in [Ending::Exited(1), Ending::Exited(137), Ending::Signalled(9)] {
        assert_eq!(found(&over(ending)), Some((FaultRule::LimitExceeded, 100.0)), "{ending:?}");
        assert!(verdict(&over(ending)).unwrap().is_surely_out_of_memory());
    }
    for ending in [Ending::Exited(0), Ending::EndedBySlurm] {
        assert_eq!(found(&over(ending)), None, "{ending:?}: it did not fail of it");
    }
}

#[test]
fn a_full_device_and_a_program_that_succeeds_are_no_fault() {
    let seen = with_own(with_memory(ended(Ending::Exited(0)), 998, 1), Some(39 * GIB), 39 * GIB);
    assert_eq!(verdict(&seen), None);
}

#[test]
fn words_of_a_program_that_succeeds_are_no_fault() {
    let seen = with_stderr(ended(Ending::Exited(0)), StderrWords::Sure);
    assert_eq!(verdict(&seen), None);
}

#[test]
fn a_failure_long_after_the_device_was_full_has_another_cause() {
    assert_eq!(found(&with_memory(failed(), 998, 30)), Some((FaultRule::DeviceFull, 40.0)));
    assert_eq!(found(&with_memory(failed(), 998, 31)), None);
    assert_eq!(found(&with_memory(failed(), 969, 1)), None, "96.9 %");
}

#[test]
fn what_is_seen_after_the_end_is_of_somebody_else() {
    let mut seen = with_memory(failed(), 998, 0);
    seen.signs.memory[0].at = UnixTime::from_epoch(END + 2);
    assert!(verdict(&seen).is_some(), "the sample of that moment");
    seen.signs.memory[0].at = UnixTime::from_epoch(END + 3);
    assert_eq!(verdict(&seen), None);
}

#[test]
fn a_program_that_fails_and_says_nothing_of_memory_had_another_cause() {
    let full = with_memory(failed(), 998, 1);
    assert_eq!(found(&with_stderr(full, StderrWords::Silent)), None);
}

#[test]
fn who_is_killed_did_not_run_out_of_memory() {
    for ending in [Ending::Signalled(9), Ending::Exited(137), Ending::Exited(143), Ending::EndedBySlurm] {
        let seen = with_stderr(with_memory(ended(ending), 998, 1), StderrWords::Sure);
        assert_eq!(verdict(&seen), None, "{ending:?}");
    }
    let aborted = with_stderr(ended(Ending::Signalled(6)), StderrWords::Sure);
    assert_eq!(found(&aborted), Some((FaultRule::SaidOutOfMemory, 80.0)), "an exception that nobody caught");
}

#[test]
fn nobody_knows_why_a_start_ended_of_which_nobody_knows_how() {
    let seen = with_xid(with_stderr(failed(), StderrWords::Sure), 79, Some(true), 1);
    assert_eq!(verdict(&StartSeen { ended: None, ..seen }), None);
}

#[test]
fn the_hardware_is_at_fault_if_the_driver_says_so() {
    for code in [48, 64, 79, 94, 95] {
        let seen = with_xid(failed(), code, Some(true), 5);
        assert_eq!(found(&seen), Some((FaultRule::HardwareXid, 95.0)), "{code}");
    }
    let verdict = verdict(&with_xid(failed(), 79, Some(true), 5)).unwrap();
    assert_eq!(verdict.rule.kind(), FailureKind::DeviceFault);
    assert_eq!(
        verdict.evidence,
        ["Xid 79 named a process of it 5 s before the end", "it exited with code 1"]
    );
    assert_eq!(found(&with_xid(failed(), 63, Some(true), 5)), Some((FaultRule::HardwareXid, 50.0)));
    assert_eq!(found(&with_xid(failed(), 63, None, 5)), None, "a row that was put in ends nobody");
}

#[test]
fn a_fault_of_the_whole_device_hits_all_on_it_and_a_contained_one_only_the_process_named() {
    assert_eq!(found(&with_xid(failed(), 79, None, 5)), Some((FaultRule::HardwareXid, 80.0)));
    assert_eq!(found(&with_xid(failed(), 95, Some(false), 5)), Some((FaultRule::HardwareXid, 60.0)));
    assert_eq!(found(&with_xid(failed(), 94, Some(false), 5)), None);
}

#[test]
fn what_a_program_does_wrong_itself_is_no_fault_of_the_device() {
    for code in APPLICATION_XIDS {
        assert_eq!(found(&with_xid(failed(), code, Some(true), 1)), None, "{code}");
    }
}

#[test]
fn cleaning_up_after_a_kill_is_no_fault_of_its_own() {
    for ending in [Ending::Signalled(9), Ending::EndedBySlurm] {
        assert_eq!(verdict(&with_xid(ended(ending), 45, Some(true), 0)), None);
    }
}

#[test]
fn a_start_that_hung_on_broken_hardware_until_slurm_ended_it_counts() {
    let seen = with_xid(ended(Ending::EndedBySlurm), 79, Some(true), 100);
    assert_eq!(found(&seen), Some((FaultRule::HardwareXid, 95.0)));
    assert_eq!(found(&with_xid(ended(Ending::EndedBySlurm), 79, Some(true), 121)), None, "long before");
    assert_eq!(
        found(&with_xid(ended(Ending::Exited(0)), 79, Some(true), 1)),
        None,
        "it went on and succeeded"
    );
}

#[test]
fn of_two_causes_the_surer_is_given() {
    let memory = with_stderr(failed(), StderrWords::Sure);
    let both = with_xid(memory.clone(), 79, Some(true), 1);
    assert_eq!(found(&both), Some((FaultRule::HardwareXid, 95.0)));
    let both = with_xid(memory, 95, Some(false), 1);
    assert_eq!(found(&both), Some((FaultRule::SaidOutOfMemory, 80.0)));
}

#[test]
fn one_fault_that_is_told_several_times_is_no_surer() {
    let mut seen = with_xid(failed(), 95, None, 5);
    let once = found(&seen);
    seen.signs.xids.push(XidSeen { code: 48, ..seen.signs.xids[0] });
    assert_eq!(found(&seen), once);
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        any::<u8>().prop_map(Ending::Exited),
        (1..32_u8).prop_map(Ending::Signalled),
        Just(Ending::EndedBySlurm),
    ]
}

fn samples() -> impl Strategy<Value = MemorySample> {
    (0..200_u64, 0..41_u64, 0..41_u64).prop_map(|(seconds, used, own)| MemorySample {
        at: seconds_before(seconds),
        bytes: 40 * GIB,
        bytes_used: Some(used * GIB),
        process_bytes_max: Some(own.min(used) * GIB),
    })
}

fn xids(codes: &'static [u64]) -> impl Strategy<Value = Vec<XidSeen>> {
    let is_own = any::<Option<bool>>();
    let one = (0..200_u64, prop::sample::select(codes), is_own).prop_map(|(seconds, code, is_own)| XidSeen {
        at: seconds_before(seconds),
        code,
        is_own,
    });
    prop::collection::vec(one, 0..4)
}

const WORDS: [StderrWords; 3] = [StderrWords::Silent, StderrWords::Vague, StderrWords::Sure];

fn starts(codes: &'static [u64]) -> impl Strategy<Value = StartSeen> {
    let memory = prop::collection::vec(samples(), 0..5);
    let limit = prop::option::of((1..41_u64).prop_map(|gib| gib * GIB));
    let stderr = prop::option::of(prop::sample::select(WORDS.as_slice()));
    (endings(), memory, limit, stderr, xids(codes)).prop_map(|(ending, memory, limit, stderr, xids)| {
        StartSeen {
            signs: FaultSigns { memory, process_bytes_limit: limit, was_over_limit: false, stderr, xids },
            ..ended(ending)
        }
    })
}

proptest! {
    #[test]
    fn no_start_that_succeeds_has_a_verdict(seen in starts(&HARDWARE_XIDS)) {
        let seen = StartSeen { ended: Some((seconds_before(0), Ending::Exited(0))), ..seen };
        prop_assert_eq!(verdict(&seen), None);
    }

    #[test]
    fn a_verdict_is_sure_enough_and_says_why(seen in starts(&HARDWARE_XIDS)) {
        if let Some(verdict) = verdict(&seen) {
            prop_assert!(verdict.confidence.value() >= 0.35 && verdict.confidence.value() < 1.0);
            prop_assert!(verdict.evidence.len() >= 2, "{:?}", verdict.evidence);
        }
    }

    #[test]
    fn xids_of_programs_change_nothing(seen in starts(&APPLICATION_XIDS)) {
        let mut without = seen.clone();
        without.signs.xids.clear();
        prop_assert_eq!(verdict(&seen), verdict(&without));
    }

    #[test]
    fn one_more_sign_makes_nothing_less_sure(seen in starts(&HARDWARE_XIDS), sample in samples(), xid in xids(&HARDWARE_XIDS)) {
        let sureness = |seen: &StartSeen| verdict(seen).map_or(0.0, |verdict| verdict.confidence.value());
        let mut more = seen.clone();
        more.signs.memory.push(sample);
        more.signs.xids.extend(xid);
        prop_assert!(sureness(&more) >= sureness(&seen));
        prop_assert!(sureness(&with_stderr(more.clone(), StderrWords::Sure)) >= sureness(&more));
    }

    #[test]
    fn order_and_calendar_do_not_matter(seen in starts(&HARDWARE_XIDS), days in 0..1000_u64) {
        let shift = |at: UnixTime| UnixTime::from_epoch(at.epoch() + 86_400 * days);
        let mut other = seen.clone();
        other.signs.memory.reverse();
        other.signs.memory.iter_mut().for_each(|sample| sample.at = shift(sample.at));
        other.signs.xids.iter_mut().for_each(|xid| xid.at = shift(xid.at));
        other.ended = seen.ended.map(|(at, ending)| (shift(at), ending));
        let found = |seen: &StartSeen| verdict(seen).map(|verdict| (verdict.rule, verdict.confidence));
        prop_assert_eq!(found(&seen), found(&other));
    }
}
