//! What is kept, for how long, and what is given up first.

use super::*;
use pillion_core::report::{DeviceSamples, JobSummary, Launch};
use pillion_core::{JobStart, SlurmJobId, UnixTime};

const START: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };

pub(super) fn samples() -> ReportBody {
    ReportBody::Samples(DeviceSamples { recorded_at: UnixTime::from_epoch(5), samples: Vec::new() })
}

pub(super) fn launch() -> ReportBody {
    let at = UnixTime::from_epoch(5);
    ReportBody::Launch(Launch { at, gres_types: Vec::new(), ..pillion_test_kit::launch(START) })
}

pub(super) fn summary() -> ReportBody {
    ReportBody::JobSummary(Box::new(JobSummary {
        started_at: UnixTime::from_epoch(1),
        ended_at: UnixTime::from_epoch(2),
        shared_device_seconds: Some(0.0),
        memory_bytes_peak: Some(1),
        ..pillion_test_kit::summary(START)
    }))
}

fn open(directory: &Path, bytes_max: u64) -> Journal {
    Journal::open(directory, bytes_max, || "first".to_owned()).unwrap()
}

pub(super) fn sequences(journal: &Journal, after: u64) -> Vec<u64> {
    journal.read_after(after, 1000).unwrap().into_iter().map(|report| report.sequence).collect()
}

#[test]
fn reports_come_back_in_order_until_they_are_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    assert_eq!(journal.last_sequence(), 0);
    assert_eq!(journal.append(vec![samples(), summary()]).unwrap(), 2);
    assert_eq!(journal.append(vec![launch(), samples()]).unwrap(), 4);
    assert_eq!(sequences(&journal, 0), [1, 2, 3, 4]);
    assert_eq!(sequences(&journal, 2), [3, 4]);
    assert_eq!(journal.read_after(0, 2).unwrap().len(), 2);
    let first = Report::try_from(journal.read_after(1, 1).unwrap().remove(0)).unwrap();
    assert_eq!(first, Report { sequence: 2, body: summary() });
    journal.acknowledge(3);
    journal.append(vec![samples()]).unwrap();
    assert_eq!(sequences(&journal, 0), [4, 5]);
}

#[test]
fn how_full_it_is_is_known_without_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    journal.append(vec![samples(), launch(), summary()]).unwrap();
    let before = journal.figures();
    assert!(before.kept_bytes > 0 && before.bytes_max == 1 << 20);
    assert_eq!(before.waiting_count, None, "the scheduler has not said what it has");
    journal.acknowledge(2);
    assert_eq!(journal.figures().waiting_count, Some(1));
    journal.append(Vec::new()).unwrap();
    assert!(journal.figures().kept_bytes < before.kept_bytes);
    let _held = journal.tail();
    assert_eq!(journal.figures().waiting_count, Some(1), "while somebody writes");
}

#[test]
fn a_new_agent_goes_on_in_the_same_journal_and_never_gives_a_sequence_twice() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    journal.append(vec![samples(), samples()]).unwrap();
    drop(journal);
    let journal = Journal::open(directory.path(), 1 << 20, || "second".to_owned()).unwrap();
    assert_eq!(journal.id(), "first");
    assert_eq!(sequences(&journal, 0), [1, 2]);
    journal.acknowledge(2);
    journal.append(Vec::new()).unwrap();
    assert_eq!(sequences(&journal, 0), [] as [u64; 0]);
    drop(journal);
    let journal = open(directory.path(), 1 << 20);
    assert_eq!(journal.append(vec![samples()]).unwrap(), 3, "though the journal was empty");
}

#[test]
fn when_full_samples_go_first_and_summaries_stay() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 400);
    journal.append(vec![summary(), launch()]).unwrap();
    for _ in 0..100 {
        journal.append(vec![samples()]).unwrap();
    }
    let kept = sequences(&journal, 0);
    assert_eq!(kept[..2], [1, 2], "neither the summary nor the launch");
    assert_eq!(kept.last(), Some(&102), "and the newest samples");
    assert_eq!(journal.dropped_count(), 102 - kept.len() as u64);
    assert!(kept.len() < 50);
    for _ in 0..40 {
        journal.append(vec![summary()]).unwrap();
    }
    let kept = sequences(&journal, 0);
    assert_eq!(kept.len(), 41, "every summary, beyond the bound");
    assert_eq!(kept[..2], [1, 103], "launches went before them");
    drop(journal);
    assert_eq!(open(directory.path(), 400).dropped_count(), 101, "counted for good");
}

#[test]
fn what_the_scheduler_would_refuse_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    let ReportBody::JobSummary(mut nonsense) = summary() else { panic!("a summary") };
    nonsense.energy_joules = Some(f64::NAN);
    assert_eq!(journal.append(vec![samples(), ReportBody::JobSummary(nonsense), samples()]).unwrap(), 2);
    assert_eq!(sequences(&journal, 0), [1, 2]);
}

#[test]
fn a_damaged_journal_is_set_aside_and_a_new_one_gets_a_new_name() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), 1 << 20));
    std::fs::write(directory.path().join("reports.redb"), vec![b'x'; 9000]).unwrap();
    let journal = Journal::open(directory.path(), 1 << 20, || "second".to_owned()).unwrap();
    assert_eq!((journal.id(), journal.last_sequence()), ("second", 0));
    assert!(directory.path().join("reports.damaged").exists());
}

#[test]
fn two_agents_do_not_share_a_journal() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path(), 1 << 20);
    let second = Journal::open(directory.path(), 1 << 20, || "second".to_owned());
    assert!(second.is_err(), "and it is not taken for damage");
    assert!(!directory.path().join("reports.damaged").exists());
}

#[test]
fn a_store_that_was_given_up_is_opened_again_from_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    journal.append(vec![samples()]).unwrap();
    journal.failed(redb::Error::PreviousIo);
    assert_eq!(journal.append(vec![samples()]).unwrap(), 2);
    assert_eq!(sequences(&journal, 0), [1, 2]);
    assert!(Journal::open(directory.path(), 1 << 20, || "second".to_owned()).is_err(), "it is ours still");
    // Damaged meanwhile: what it held is lost, and no number of it is given again.
    journal.failed(redb::Error::PreviousIo);
    std::fs::write(directory.path().join("reports.redb"), vec![b'x'; 9000]).unwrap();
    assert!(journal.append(vec![samples()]).is_err());
    assert_eq!((journal.append(vec![samples()]).unwrap(), journal.id()), (3, "first"));
    assert!(directory.path().join("reports.damaged").exists());
    drop(journal);
    let journal = open(directory.path(), 1 << 20);
    assert_eq!((journal.append(vec![samples()]).unwrap(), journal.id()), (4, "first"));
}
