//! The agent's client against peers that do everything but behave. Each must cost the task the deadline at most.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use pillion_core::handoff::{HANDOFF_LENGTH_MAX, HANDOFF_VERSION, HandoffReply, HandoffRequest, Verdict};
use pillion_core::ids::{DecisionId, JobStart, SlurmJobId, UserId};
use pillion_slurm_spank::agent_client::{Connection, NoAnswer};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(200);
/// Generous: the machine may be busy with other tests. What is caught is waiting for the peer, which is for ever.
const AT_MOST: Duration = Duration::from_secs(2);

fn ask(path: &Path) -> Result<HandoffReply, NoAnswer> {
    Connection::open(path, DEADLINE)?.ask(&request())
}

fn request() -> HandoffRequest {
    HandoffRequest {
        version: HANDOFF_VERSION,
        start: JobStart { job_id: SlurmJobId::plain(7), restart_count: 0 },
        inner_job_id: Some(7),
        uid: UserId(1000),
        gid: 1000,
        step_id: 0xffff_fffb,
        devices: vec![1],
        shards: None,
        option: None,
    }
}

fn reply() -> HandoffReply {
    HandoffReply {
        verdict: Verdict::Decided,
        decision_id: Some(DecisionId(3)),
        set: vec![("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".into(), "60".into())],
        unset: vec!["CUDA_MPS_PIPE_DIRECTORY".into()],
        container_bind: Some("/run/p/pipe".into()),
    }
}

/// Runs `peer` on the first connection and asks; gives the outcome and how long it took.
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn ask_peer(peer: impl FnOnce(UnixStream) + Send + 'static) -> (Result<HandoffReply, NoAnswer>, Duration) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || peer(listener.accept().unwrap().0));
    let before = Instant::now();
    let outcome = ask(&path);
    let took = before.elapsed();
    assert!(took < AT_MOST, "took {took:?}");
    (outcome, took)
}

fn read_request(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn asks_one_line_and_reads_one_line() {
    let (outcome, _) = ask_peer(|mut stream| {
        let asked: HandoffRequest = serde_json::from_str(&read_request(&stream)).unwrap();
        assert_eq!(asked, request());
        let mut line = serde_json::to_vec(&reply()).unwrap();
        line.extend_from_slice(b"\nwhat follows is not read");
        stream.write_all(&line).unwrap();
    });
    assert_eq!(outcome.unwrap(), reply());
}

#[test]
fn an_answer_in_many_pieces_is_read_whole() {
    let (outcome, _) = ask_peer(|mut stream| {
        read_request(&stream);
        for byte in serde_json::to_vec(&reply()).unwrap() {
            stream.write_all(&[byte]).unwrap();
        }
        stream.write_all(b"\n").unwrap();
    });
    assert_eq!(outcome.unwrap(), reply());
}

#[test]
fn one_that_never_answers_costs_the_deadline() {
    let (outcome, took) = ask_peer(|stream| {
        read_request(&stream);
        thread::sleep(AT_MOST * 2);
        drop(stream);
    });
    assert!(matches!(outcome, Err(NoAnswer::Late(_))), "{outcome:?}");
    assert!(took >= DEADLINE);
}

#[test]
fn one_that_drips_costs_the_deadline() {
    let (outcome, _) = ask_peer(|mut stream| {
        // A byte now and then: each read succeeds, and the line never ends.
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(matches!(outcome, Err(NoAnswer::Late(_))), "{outcome:?}");
}

#[test]
fn a_megabyte_is_cut_off() {
    let (outcome, _) = ask_peer(|mut stream| {
        read_request(&stream);
        let _ = stream.write_all(&vec![b'x'; 1 << 20]);
    });
    assert!(matches!(outcome, Err(NoAnswer::TooLong)), "{outcome:?}");
}

#[test]
fn the_longest_line_still_fits() {
    let (outcome, _) = ask_peer(|mut stream| {
        read_request(&stream);
        let mut line = serde_json::to_vec(&reply()).unwrap();
        line.resize(HANDOFF_LENGTH_MAX, b' ');
        line.push(b'\n');
        stream.write_all(&line).unwrap();
    });
    assert_eq!(outcome.unwrap(), reply());
}

#[test]
fn one_that_hangs_up_is_an_error_and_no_signal() {
    // A write to a closed peer would raise SIGPIPE, and the test process would be gone.
    for _ in 0..50 {
        let (outcome, _) = ask_peer(drop);
        assert!(matches!(outcome, Err(NoAnswer::Broken(_))), "{outcome:?}");
    }
}

#[test]
fn an_answer_without_its_end_is_no_answer() {
    let (outcome, _) = ask_peer(|mut stream| {
        read_request(&stream);
        stream.write_all(&serde_json::to_vec(&reply()).unwrap()).unwrap();
    });
    assert!(matches!(outcome, Err(NoAnswer::Broken(_))), "{outcome:?}");
}

#[test]
fn garbage_is_no_answer() {
    let deep = [b"[".repeat(20_000), b"\n".to_vec()].concat();
    for garbage in [
        b"\n".to_vec(),
        b"hello\n".to_vec(),
        b"\xff\xfe\0\n".to_vec(),
        b"{\"verdict\":\"yes\"}\n".to_vec(),
        deep,
    ] {
        let (outcome, _) = ask_peer(move |mut stream| {
            read_request(&stream);
            stream.write_all(&garbage).unwrap();
        });
        assert!(matches!(outcome, Err(NoAnswer::Garbage(_))), "{outcome:?}");
    }
}

#[test]
fn nobody_there_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("agent.sock");
    let stale = directory.path().join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let too_long = PathBuf::from(format!("/{}", "x".repeat(200)));
    for path in [missing, stale, too_long] {
        let outcome = ask(&path);
        assert!(matches!(outcome, Err(NoAnswer::Unreachable(_))), "{outcome:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn a_full_backlog_costs_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    // Nobody accepts: connections queue until the kernel's backlog is full, and then a plain connect would block.
    let listener = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = pillion_slurm_spank::ffi::unix::connect_nonblocking(&path) {
        waiting.push(stream);
        assert!(waiting.len() < 100_000, "the backlog never fills");
    }
    let before = Instant::now();
    let outcome = ask(&path);
    assert!(matches!(outcome, Err(NoAnswer::Late(_))), "{outcome:?}");
    assert!(before.elapsed() < AT_MOST);
    drop(listener);
}
