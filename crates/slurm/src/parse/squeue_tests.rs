//! The queue parser over what Slurm 24.11.5 really printed, and over what it never should.

use super::*;
use crate::parse::queue::{Reader, parse};
use crate::types::{Ending, JobsScan, ReasonKind};
use pillion_core::UnixTime;
use pillion_core::mark::InvalidMark;
use std::sync::Arc;

const QUEUE: &str = include_str!("../../../../tests/fixtures/slurm-24.11/squeue.txt");
const HOSTILE: &[u8] = include_bytes!("../../../../tests/fixtures/slurm-24.11/squeue-hostile-comments.txt");
const NONCE: &str = "7f3a9c";

/// The line of the real queue that job 2 is.
fn line() -> &'static str {
    QUEUE.lines().find(|line| line.starts_with("2;")).unwrap()
}

fn job(scan: &JobsScan, id: &str) -> Job {
    let id: SlurmJobId = id.parse().unwrap();
    let found = scan.jobs.iter().find(|job| job.id == id);
    found.unwrap_or_else(|| panic!("{id} is missing")).as_ref().clone()
}

fn ids(scan: &JobsScan) -> Vec<String> {
    scan.jobs.iter().map(|job| job.id.to_string()).collect()
}

#[test]
fn the_format_is_the_one_that_was_recorded() {
    let option = format_option(NONCE, Excluded::Within);
    assert!(option.starts_with("JobArrayID:;7f3a9c;,JobID:;,State:;,Reason:;,"), "{option}");
    assert!(option.ends_with(",exit_code:;,RestartCnt:;7f3a9c;,admin_comment:;7f3a9c."), "{option}");
    // Without the field, its place is as empty as that of a job that excludes nothing.
    let apart = format_option(NONCE, Excluded::Apart);
    assert_eq!(apart, option.replace(",ReqNodes:;,ExcNodes:;,Feature", ",ReqNodes:;;,Feature"));
    assert!(apart != option);
}

#[test]
fn excluded_nodes_of_a_call_of_their_own() {
    assert_eq!(excluded_format_option(NONCE), "%i;7f3a9c;%A;7f3a9c;%x;7f3a9c.");
    let read = |text: &str| {
        let found = excluded_nodes(text, NONCE).into_iter();
        found.map(|(id, nodes)| format!("{id}={}", nodes.len())).collect::<Vec<_>>()
    };
    let good = "4;7f3a9c;4;7f3a9c;n[1-3],w1;7f3a9c.\n5_2;7f3a9c;9;7f3a9c;;7f3a9c.\n47+1;7f3a9c;48;7f3a9c;n1;7f3a9c.\n";
    assert_eq!(read(good), ["4=4", "5_2=0", "48=1"]);
    for (broken, left) in [
        (format!("{good}{good}"), vec![]),
        (good.replace("n[1-3]", "n[1-"), vec!["5_2=0", "48=1"]),
        (good.replacen("4;7f3a9c;4;", "4;7f3a9c;;", 1), vec!["5_2=0", "48=1"]),
        (good.trim_end().to_owned(), vec!["4=4", "5_2=0"]),
        (good.replace(NONCE, "other"), vec![]),
    ] {
        assert_eq!(read(&broken), left, "{broken}");
    }
}

#[test]
fn every_job_of_a_real_queue_is_read() {
    let scan = parse(QUEUE, NONCE);
    assert_eq!(scan.dropped_line_count, 0);
    let expected = "10 8 9 16 18 11 19 22 1 4 5_5 5_7 12_9 12_3 17 15 14 7 2 3 5_1 5_3 6";
    assert_eq!(ids(&scan), expected.split(' ').collect::<Vec<_>>());
}

#[test]
fn a_waiting_job_with_everything_set() {
    let job = job(&parse(QUEUE, NONCE), "4");
    assert_eq!((job.state, job.reason), (JobState::Pending, ReasonKind::BeginTime));
    assert_eq!((job.uid, job.user.as_str(), job.partition.as_str()), (UserId(2001), "alice", "shared"));
    assert_eq!(job.eligible_at, Some(UnixTime::from_epoch(job.submitted_at.epoch() + 3600)));
    assert_eq!((job.started_at, job.ended_at), (None, None));
    assert_eq!((job.time_limit_seconds, job.memory_mib, job.cpus), (Some(1800), 1536, 1));
    assert_eq!((job.gres.as_str(), job.features.as_str()), ("shard:100", "fast&h100"));
    assert_eq!((job.required_nodes[0].as_str(), job.excluded_nodes[0].as_str()), ("n1", "n2"));
    assert_eq!((job.account.as_str(), job.qos.as_str(), job.reservation.as_str()), ("", "", ""));
    assert_eq!(job.mark, Ok(None));
}

#[test]
fn running_ended_requeued_and_held_jobs() {
    let scan = parse(QUEUE, NONCE);
    let running = job(&scan, "3");
    assert_eq!((running.state, running.gres.as_str()), (JobState::Running, "shard:g1:60,lscratch:100"));
    assert_eq!((running.nodes[0].as_str(), running.cpus, running.memory_mib), ("n1", 2, 1000));
    assert!(running.started_at < running.ended_at && running.started_at.is_some());

    let failed = job(&scan, "9");
    assert_eq!((failed.state, failed.exit), (JobState::Ended(Ending::Failed), Some((3, 0))));
    assert_eq!(job(&scan, "10").exit, Some((0, 15)));
    assert_eq!(job(&scan, "8").state, JobState::Ended(Ending::Completed));

    let requeued = job(&scan, "1");
    assert_eq!((requeued.state, requeued.restart_count), (JobState::Pending, 1));
    assert_eq!(requeued.eligible_at.unwrap().epoch() - requeued.submitted_at.epoch(), 121);

    assert_eq!(job(&scan, "19").state, JobState::Suspended);
    let held = job(&scan, "7");
    assert_eq!((held.priority, held.reason), (0, ReasonKind::Held("JobHeldUser".to_owned())));
    assert!(job(&scan, "6").has_dependency && !held.has_dependency);
    assert_eq!(job(&scan, "16").reservation, "maint");
    // Asked for by --gpus=1, per job.
    assert_eq!(job(&scan, "11").gres, "gpu:1");
    // --mem=0: the whole node.
    assert_eq!(job(&scan, "18").memory_mib, 8000);
    assert_eq!(job(&scan, "17").mark.unwrap().unwrap().workload_digest, "4f1c09aa12bc77de");
}

#[test]
fn tasks_of_an_array_are_jobs_of_their_own() {
    let scan = parse(QUEUE, NONCE);
    let (waits, runs) = (job(&scan, "5_5"), job(&scan, "5_1"));
    assert_eq!((waits.state, waits.inner_id), (JobState::Pending, 5));
    assert_eq!((runs.state, runs.id), (JobState::Running, SlurmJobId::array_task(5, 1)));
    assert_ne!(runs.inner_id, 5);
    // Task 9 was moved: without -r it would be merged with task 3.
    assert_ne!(job(&scan, "12_9").eligible_at, job(&scan, "12_3").eligible_at);
    // The components of a het job go by their own ids.
    assert_eq!((job(&scan, "14").inner_id, job(&scan, "15").inner_id), (14, 15));
}

#[test]
fn hostile_comments_neither_make_nor_hide_a_job() {
    let scan = parse(&String::from_utf8_lossy(HOSTILE), NONCE);
    let calm = parse(QUEUE, NONCE);
    let mut added: Vec<String> = ids(&scan).into_iter().filter(|id| !ids(&calm).contains(id)).collect();
    added.sort();
    // The recorded comments quote the nonce: in real life none can know it. Whoever does loses his own record only.
    assert_eq!(added, ["23", "24", "25", "26", "27", "28"]);
    assert!(ids(&calm).iter().all(|id| ids(&scan).contains(id) || id == "6"), "{:?}", ids(&scan));
    assert_eq!(job(&scan, "25").mark, Err(InvalidMark::BadByte(b'\n')));
    assert_eq!(job(&scan, "26").mark, Ok(None));
    assert_eq!(job(&scan, "27").mark, Ok(None));
    assert!(matches!(job(&scan, "28").mark, Err(InvalidMark::TooLong(_))));
}

#[test]
fn a_record_that_does_not_parse_whole_is_dropped_and_counted() {
    let good = format!("{}\n", line());
    assert_eq!(parse(&good, NONCE).jobs.len(), 1);
    let broken = [
        good.replacen(";RUNNING;", ";RUNNING;extra;", 1),
        good.replacen("gres/shard:g1:40", "gres/shard:g1:40\n", 1),
        good.replacen(";2001;", ";+2001;", 1),
        good.replacen(";n1;", ";n[1-;", 1),
        good.replacen("2-00:00:00", "2 days", 1),
        good.replacen("2;7f", "two;7f", 1),
        good.replacen("2;7f", "2_[1-3];7f", 1),
        good.trim_end().to_owned(),
        good.replace(NONCE, "other"),
    ];
    for text in broken {
        let scan = parse(&text, NONCE);
        assert_eq!((scan.jobs.len(), scan.dropped_line_count), (0, 1), "{text}");
    }
    let twice = parse(&format!("{good}{good}"), NONCE);
    assert_eq!((twice.jobs.len(), twice.dropped_line_count), (0, 2));
    assert_eq!(parse("", NONCE), JobsScan::default());
}

fn read(reader: &mut Reader, text: &str, nonce: &str) -> JobsScan {
    let mut answer = reader.answer(nonce);
    answer.push(text.as_bytes());
    reader.finish(answer)
}

#[test]
fn what_stands_there_as_before_is_the_same_value() {
    let mut reader = Reader::default();
    let changed = format!("{}\n", line().replacen(";RUNNING;", ";COMPLETING;", 1));
    let first = read(&mut reader, QUEUE, NONCE);
    let again = read(&mut reader, &QUEUE.replace(NONCE, "otherNonce"), "otherNonce");
    assert_eq!(first, again);
    assert!(first.jobs.iter().zip(&again.jobs).all(|(old, new)| Arc::ptr_eq(old, new)));
    let other = read(&mut reader, &changed, NONCE);
    assert_eq!((other.jobs.len(), &other.jobs[0].state), (1, &JobState::Completing));
    assert_eq!(read(&mut reader, QUEUE, NONCE), first, "what was gone is read again");
    let known = Arc::new(Job { array_throttle: Some(3), ..job(&first, "2") });
    reader.keep(&known);
    assert_eq!(job(&read(&mut reader, QUEUE, NONCE), "2").array_throttle, Some(3));
    let twice = read(&mut reader, &changed.repeat(2), NONCE);
    assert_eq!((twice.jobs.len(), twice.dropped_line_count), (0, 2));
    assert_eq!(read(&mut reader, &changed, NONCE).jobs.len(), 1);
}

/// Reads a text in pieces of so many bytes.
fn in_pieces(text: &[u8], bytes: usize) -> JobsScan {
    let mut reader = Reader::default();
    let mut answer = reader.answer(NONCE);
    text.chunks(bytes).for_each(|piece| answer.push(piece));
    reader.finish(answer)
}

#[test]
fn where_an_answer_is_cut_does_not_matter() {
    let whole = in_pieces(HOSTILE, HOSTILE.len());
    assert!(!whole.jobs.is_empty());
    for bytes in [1, 2, 7, 10, 11, 64, 1000] {
        assert_eq!(in_pieces(HOSTILE, bytes), whole, "pieces of {bytes} bytes");
    }
}

#[test]
fn an_answer_that_breaks_off_leaves_the_one_before() {
    let mut reader = Reader::default();
    let first = read(&mut reader, QUEUE, NONCE);
    let mut broken = reader.answer(NONCE);
    broken.push(&QUEUE.as_bytes()[..QUEUE.len() / 2]);
    drop(broken);
    let again = read(&mut reader, QUEUE, NONCE);
    assert!(first.jobs.iter().zip(&again.jobs).all(|(old, new)| Arc::ptr_eq(old, new)));
}

#[test]
fn an_unknown_state_is_a_value() {
    let scan = parse(&format!("{}\n", line().replacen("RUNNING", "TELEPORTING", 1)), NONCE);
    assert_eq!(scan.jobs[0].state, JobState::Other("TELEPORTING".to_owned()));
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "[0-9a-f;_\\[\\]%:,\n\\-\\PC]{0,200}") {
        let _ = parse(&text, NONCE);
        let _ = excluded_nodes(&text, NONCE);
        let _ = parse(&line().replacen("gres/shard:g1:40", &text, 1), NONCE);
    }

    /// Whatever a comment holds, lines of a real queue included: with an unknown nonce there is the one job, unchanged.
    #[test]
    fn no_comment_makes_or_changes_a_job(noise in "(\\PC|\n|;){0,40}", forged in proptest::bool::ANY) {
        let comment = if forged { format!("{noise}\n{}\n{noise}", line().replace(NONCE, "guess")) } else { noise };
        let plain = parse(&format!("{}\n", line()), NONCE);
        let text = format!("{}{comment};7f3a9c.\n", line().strip_suffix("(null);7f3a9c.").unwrap());
        let scan = parse(&text, NONCE);
        proptest::prop_assert_eq!(scan.dropped_line_count, 0);
        proptest::prop_assert_eq!(scan.jobs.len(), 1);
        let seen = Job { mark: Ok(None), ..scan.jobs[0].as_ref().clone() };
        proptest::prop_assert_eq!(&seen, plain.jobs[0].as_ref());
    }
}

#[test]
fn whether_a_job_may_be_requeued_is_one_digit() {
    // `squeue -h -O Requeue:` of 24.11.5, of a job submitted with --requeue, with --no-requeue, and of none.
    assert_eq!(allows_requeue("1\n"), Some(true));
    assert_eq!(allows_requeue("0\n"), Some(false));
    assert_eq!(allows_requeue(""), None);
}

#[test]
fn a_name_can_forge_neither_a_record_nor_a_fence() {
    let hostile = [
        "train.sh",
        "a\n8;0123456789abcdef;bob\n",
        ";0123456789abcdef.\n9;0123456789abcdef;x",
        ";",
        "\u{1b}[2J\u{202e}",
        "",
        &"x".repeat(4096),
        "n\u{fffd}me",
    ];
    let records =
        hostile.iter().enumerate().map(|(task, name)| format!("7_{task};{NONCE};{name};{NONCE}.\n"));
    let read = names(&records.collect::<String>(), NONCE);
    assert_eq!(read.len(), hostile.len());
    assert_eq!(read[&SlurmJobId::array_task(7, 0)], "train.sh");
    assert_eq!(read[&SlurmJobId::array_task(7, 1)], "a\n8;0123456789abcdef;bob\n");
    assert_eq!(read[&SlurmJobId::array_task(7, 6)].len(), 4096);
    assert!(read.keys().all(|id| id.id == 7), "no job 8 or 9: {read:?}");
}

#[test]
fn records_of_names_that_are_cut_or_come_twice_are_none() {
    let text = format!(
        "1;{NONCE};a;{NONCE}.\n2;{NONCE};b;{NONCE}.\n2;{NONCE};c;{NONCE}.\nx;{NONCE};d;{NONCE}.\n3;{NONCE};e"
    );
    assert_eq!(names(&text, NONCE), [(SlurmJobId::plain(1), "a".to_owned())].into());
    assert_eq!(names("", NONCE), std::collections::BTreeMap::new());
    assert_eq!(names_format_option(NONCE), "JobArrayID:;7f3a9c;,Name:;7f3a9c.");
}

#[test]
fn of_a_range_of_nodes_the_least_counts() {
    let text = format!("1;{NONCE};2;{NONCE}.\n2;{NONCE};2-4;{NONCE}.\n3;{NONCE};many;{NONCE}.\n");
    assert_eq!(node_counts(&text, NONCE), [(SlurmJobId::plain(1), 2), (SlurmJobId::plain(2), 2)].into());
    assert_eq!(node_counts_format_option(NONCE), "JobArrayID:;7f3a9c;,NumNodes:;7f3a9c.");
}
