//! What is believed of an agent, and what is not.

use super::*;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, job, member, start, summary};
use pillion_core::decision::MemberState;
use pillion_core::device::Reading;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::report::{ActivityMeans, DeviceSample, DeviceSamples, ProgressPart};
use pillion_core::{DecisionId, GresType, SlurmJobId};
use pillion_slurm::{Ending, Job};
use std::collections::BTreeMap;
use std::sync::Arc;

const GIB: u64 = 1 << 30;

fn n1() -> NodeName {
    NodeName::new("n1")
}

/// A minute on n1 by Slurm's word.
fn ran() -> SlurmStart {
    SlurmStart { node: n1(), started_at: at(NOW), ended_at: Some(at(NOW + 60)) }
}

fn devices() -> BTreeMap<GresType, u64> {
    [(GresType::new("g1"), 80 * GIB)].into()
}

/// The same minute as its agent tells it.
fn reported() -> JobSummary {
    JobSummary {
        started_at: at(NOW + 1),
        ended_at: at(NOW + 60),
        shared_seconds: 30.0,
        energy_joules: Some(20_000.0),
        memory_bytes_peak: Some(80 * GIB),
        ..summary(start())
    }
}

fn verdict(
    reported: &JobSummary,
    node: &str,
    skew_seconds: f64,
    ran: Option<&SlurmStart>,
    scan_at: u64,
) -> Verdict {
    let (node, devices) = (NodeName::new(node), devices());
    let by = Reporter { node: &node, skew_seconds, devices: &devices, now: at(NOW + 100) };
    let scan = Scan::new(at(scan_at), Vec::new(), Vec::new(), &[], 0);
    summary_of(reported, by, Word { start: ran, scan: Some(&scan) })
}

use super::summary as summary_of;

#[test]
fn a_summary_counts_for_a_start_that_slurm_says_ran_there_and_then() {
    assert_eq!(verdict(&reported(), "n1", 0.0, Some(&ran()), NOW), Verdict::Counts);
    let runs = SlurmStart { ended_at: None, ..ran() };
    assert_eq!(
        verdict(&reported(), "n1", 0.0, Some(&runs), NOW),
        Verdict::Counts,
        "Slurm tells of its end later"
    );
}

#[test]
fn a_summary_of_an_invented_node_or_start_is_dropped() {
    let other = verdict(&reported(), "evil", 0.0, Some(&ran()), NOW + 90);
    assert_eq!(other, Verdict::Dropped(Doubt::OtherNode));
    let unknown = |scan_at| verdict(&reported(), "n1", 0.0, None, scan_at);
    assert_eq!(unknown(NOW + 64), Verdict::NotYet, "Slurm may have started it since");
    assert_eq!(unknown(NOW + 65), Verdict::Dropped(Doubt::UnknownStart));
    let future = JobSummary { ended_at: at(NOW + 1_000_000), ..reported() };
    let late = verdict(&future, "n1", 0.0, None, NOW + 105);
    assert_eq!(late, Verdict::Dropped(Doubt::UnknownStart), "a date to come puts nothing off");
}

/// The store was away while it ran and ended: the first look at Slurm afterwards shows it, and is written a moment later.
#[test]
fn a_start_that_only_the_last_scan_shows_has_its_times_from_it() {
    let job = Job {
        nodes: [n1()].into(),
        started_at: Some(at(NOW)),
        ended_at: Some(at(NOW + 60)),
        ..job(pillion_slurm::JobState::Ended(Ending::Completed))
    };
    let of = |job: Job, reported: &JobSummary| {
        let (node, devices) = (n1(), devices());
        let scan = Scan::new(at(NOW + 90), vec![Arc::new(job)], Vec::new(), &[], 0);
        let by = Reporter { node: &node, skew_seconds: 0.0, devices: &devices, now: at(NOW + 100) };
        summary_of(reported, by, Word { start: None, scan: Some(&scan) })
    };
    assert_eq!(of(job.clone(), &reported()), Verdict::Counts);
    let early = JobSummary { started_at: at(NOW - 31), ..reported() };
    assert_eq!(of(job.clone(), &early), Verdict::Dropped(Doubt::Times));
    assert_eq!(of(Job { started_at: None, ..job }, &reported()), Verdict::NotYet, "nobody can say when");
}

#[test]
fn of_a_job_on_several_nodes_the_first_one_s_word_counts_and_the_others_are_no_liars() {
    let job = Job { nodes: ["n1", "n2"].map(NodeName::new).into(), ..job(pillion_slurm::JobState::Running) };
    let scan = Scan::new(at(NOW + 90), vec![Arc::new(job)], Vec::new(), &[], 0);
    let of = |name: &str| {
        let (node, devices) = (NodeName::new(name), devices());
        let by = Reporter { node: &node, skew_seconds: 0.0, devices: &devices, now: at(NOW + 100) };
        summary_of(&reported(), by, Word { start: Some(&ran()), scan: Some(&scan) })
    };
    assert_eq!(of("n1"), Verdict::Counts);
    assert_eq!(of("n2"), Verdict::PassedOver);
    assert_eq!(of("n3"), Verdict::Dropped(Doubt::OtherNode));
}

#[test]
fn a_summary_is_dated_as_slurm_dates_its_start() {
    let shifted =
        |from: u64, until: u64| JobSummary { started_at: at(from), ended_at: at(until), ..reported() };
    for (from, until) in [(NOW - 31, NOW + 60), (NOW, NOW + 661), (NOW + 60, NOW + 50), (0, NOW + 60)] {
        let dropped = verdict(&shifted(from, until), "n1", 0.0, Some(&ran()), NOW);
        assert_eq!(dropped, Verdict::Dropped(Doubt::Times), "{from} to {until}");
    }
    let hour = shifted(NOW + 3601, NOW + 3660);
    assert_eq!(verdict(&hour, "n1", 0.0, Some(&ran()), NOW), Verdict::Dropped(Doubt::Times));
    assert_eq!(
        verdict(&hour, "n1", 3600.0, Some(&ran()), NOW),
        Verdict::Counts,
        "its clock is an hour ahead"
    );
    assert_eq!(verdict(&hour, "n1", 1e300, Some(&ran()), NOW), Verdict::Dropped(Doubt::Times));
}

#[test]
fn a_summary_tells_no_more_than_a_device_can_do() {
    let cases = [
        (JobSummary { energy_joules: Some(2_000.0 * 61.1), ..reported() }, Doubt::Energy),
        (JobSummary { memory_bytes_peak: Some(80 * GIB + 1), ..reported() }, Doubt::Memory),
        (JobSummary { shared_seconds: 61.1, ..reported() }, Doubt::Seconds),
        (JobSummary { shared_device_seconds: Some(1e18), ..reported() }, Doubt::Seconds),
        (JobSummary { solo: ProgressPart { progress: None, seconds: 62.0 }, ..reported() }, Doubt::Seconds),
        (
            JobSummary {
                solo_means: Some(ActivityMeans(Metrics::from([(Metric::PowerWatts, 2_001.0)]))),
                ..reported()
            },
            Doubt::Reading,
        ),
    ];
    for (reported, doubt) in cases {
        assert_eq!(verdict(&reported, "n1", 0.0, Some(&ran()), NOW), Verdict::Dropped(doubt));
    }
}

fn launch_of(decision_id: Option<u64>) -> Launch {
    Launch {
        at: at(NOW),
        decision_id: decision_id.map(DecisionId),
        gres_types: Vec::new(),
        ..pillion_test_kit::launch(start())
    }
}

#[test]
fn a_launch_counts_by_our_decision_for_that_node_or_by_slurms_word() {
    let (node, devices) = (n1(), devices());
    let by = Reporter { node: &node, skew_seconds: 0.0, devices: &devices, now: at(NOW + 100) };
    let of = |jobs: Vec<Job>, decision: Option<&Decision>| {
        let scan = Scan::new(at(NOW + 50), jobs.into_iter().map(Into::into).collect(), Vec::new(), &[], 0);
        launch(&launch_of(Some(1)), by, Word { start: None, scan: Some(&scan) }, decision)
    };
    let given = decision(&member(MemberState::Released));
    assert_eq!(
        of(vec![job(JobState::Pending)], Some(&given)),
        Verdict::Counts,
        "Slurm has forgotten its start"
    );
    let elsewhere = Decision { node: NodeName::new("n2"), ..given.clone() };
    assert_eq!(of(Vec::new(), Some(&elsewhere)), Verdict::Dropped(Doubt::UnknownStart));
    let on = |node: &str| Job { nodes: vec![NodeName::new(node)], ..job(JobState::Running) };
    assert_eq!(of(vec![on("n1")], None), Verdict::Counts, "one that is not managed");
    assert_eq!(of(vec![on("n2")], None), Verdict::Dropped(Doubt::OtherNode));
    let again = Job { restart_count: 1, ..on("n1") };
    assert_eq!(of(vec![again], None), Verdict::Dropped(Doubt::UnknownStart));
    let over = Job { id: SlurmJobId::plain(8), ..on("n1") };
    assert_eq!(
        of(vec![Job { state: JobState::Ended(Ending::Completed), ..over }], None),
        Verdict::Dropped(Doubt::UnknownStart)
    );
}

#[test]
fn an_answer_for_a_share_of_another_node_is_dropped() {
    let result = ShareResult { decision_id: DecisionId(1), start: start(), error: None, revoked: false };
    let given = decision(&member(MemberState::Planned));
    assert_eq!(share(&result, &n1(), Some(&given)), Verdict::Counts);
    for (node, decision) in [("n2", Some(&given)), ("n1", None)] {
        assert_eq!(share(&result, &NodeName::new(node), decision), Verdict::Dropped(Doubt::OtherShare));
    }
    let other = ShareResult { start: JobStart { restart_count: 1, ..start() }, ..result };
    assert_eq!(share(&other, &n1(), Some(&given)), Verdict::Dropped(Doubt::OtherShare));
}

#[test]
fn a_look_keeps_what_the_nodes_own_devices_can_have_told() {
    let (node, devices) = (n1(), devices());
    let by = Reporter { node: &node, skew_seconds: 0.0, devices: &devices, now: at(NOW) };
    let kept = Duration::from_hours(1);
    let taken = |recorded_at: u64, gres_type: &str, watts: f64, used: u64| {
        let mut reading = Reading::from([(Metric::PowerWatts, watts)]);
        reading.metrics.set_bytes(Metric::MemoryBytesUsed, used);
        let sample = DeviceSample { gres_type: GresType::new(gres_type), reading, tenants: Vec::new() };
        cleaned(DeviceSamples { recorded_at: at(recorded_at), samples: vec![sample] }, by, kept)
    };
    for recorded_at in [NOW + 61, NOW - 3601] {
        assert_eq!(taken(recorded_at, "g1", 1.0, 1), (None, vec![Doubt::Times]));
    }
    let (samples, doubts) = taken(NOW - 3600, "g1", 700.0, 80 * GIB);
    assert_eq!((samples.unwrap().samples.len(), doubts), (1, Vec::new()));
    let (samples, doubts) = taken(NOW, "g2", 700.0, 1);
    assert_eq!((samples.unwrap().samples.len(), doubts), (0, vec![Doubt::OtherDevice]));
    let (samples, doubts) = taken(NOW, "g1", 1e17, 81 * GIB);
    assert_eq!(doubts, [Doubt::Reading, Doubt::Memory]);
    assert_eq!(samples.unwrap().samples[0].reading, Reading::default());
}
