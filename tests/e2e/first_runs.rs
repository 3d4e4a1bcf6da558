//! First runs as hosts on real Slurm: a known job joins a workload's first run once that was measured for its minutes, and both promises
//! are followed, by a scheduler that is started again in between as well. Where the first run's promise breaks its guest goes back; who
//! counts no progress is joined by nobody, and who asks for nothing is none of ours.

use crate::faults::wait_for_event;
use crate::rides::{SOON, decisions, guest, load, make_known_for, member_of, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;

/// A minute alone was asked for; four blocks of half a minute is what being sure of it takes.
const JOINED: std::time::Duration = SOON.saturating_mul(2);
/// In seconds of the simulated machine: so short that nobody expects a guest to be over soon once he is longer than that.
const ALONE_SECONDS: u32 = 600;
const LONG_SECONDS: u32 = 12_000;
/// Goes well beside itself, in truth and as it looks.
const MILD: &str = "resnet50-infer";
/// Looks as mild, and drives its like out of the cache: they go at half of their speed.
const DECEPTIVE: &str = "hash-probe";

fn cluster() -> Cluster {
    let policy = [
        "caps = false",
        "watch = \"act\"",
        "watch_first_seconds = 20",
        "watch_restart_seconds = 0",
        "first_runs = \"host\"",
        "first_run_seconds_min = 60",
    ];
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 3,
        bound_seconds: 900,
        slurm_conf_extra: vec!["KillWait=6".to_owned()],
        scheduler_conf_extra: policy.map(str::to_owned).into(),
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn why(cluster: &Cluster, user: &str, job: SlurmJobId) -> String {
    cluster.pillion_as(user, &["why", &job.to_string()]).unwrap().stdout().unwrap()
}

/// A guest that has joined this first run, and is told so.
fn has_joined(cluster: &Cluster, user: &str, [first, guest]: [SlurmJobId; 2]) {
    cluster.wait_for_job(guest, &["RUNNING"], JOINED).unwrap();
    let all = decisions(cluster);
    let groups =
        [first, guest].map(|job| member_of(&all, job, 0).map(|(decision, _)| decision["group_id"].clone()));
    let told = cluster.pillion_as(user, &["explain", &guest.to_string()]).unwrap().stdout().unwrap();
    assert!(groups[0].is_some() && groups[0] == groups[1], "{groups:?}: {told}");
    assert!(told.contains("joins the first run of a workload, measured alone for 2 minutes"), "{told}");
}

#[test]
fn a_first_run_is_joined_after_its_minutes_and_its_guest_goes_back_where_its_promise_breaks() {
    let mut cluster = cluster();
    let known =
        [("alice", [("mild", MILD)]), ("bob", [("deceptive", DECEPTIVE)]), ("carol", [("mild", MILD)])];
    make_known_for(&cluster, ALONE_SECONDS, &known);
    let first = |user, work: &str| submit(&cluster, user, "new", work, &["-t10"]);
    let firsts = [
        first("alice", &load(MILD, LONG_SECONDS)),
        first("bob", &load(DECEPTIVE, LONG_SECONDS)),
        first(
            "carol",
            &script(&format!("exec env -u PILLION_PROGRESS pillion-load {MILD} --seconds {LONG_SECONDS}")),
        ),
    ];
    for job in firsts {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    // Who asks for nothing has a GPU to himself, and nobody of ours comes near.
    let plain = cluster.submit_as(
        "dave",
        &load(MILD, 60),
        &["--colocate=no", "--gres=gpu:1", "-c1", "--mem=100", "-t5"],
    );
    let guests = [("alice", "mild", MILD), ("bob", "deceptive", DECEPTIVE), ("carol", "mild", MILD)]
        .map(|(user, name, work)| submit(&cluster, user, name, &guest(work, [LONG_SECONDS, 120]), &["-t5"]));
    has_joined(&cluster, "alice", [firsts[0], guests[0]]);
    has_joined(&cluster, "bob", [firsts[1], guests[1]]);
    // What was seen of them alone is the scheduler's that dies here.
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.start_scheduler().unwrap();

    let breaking = wait_for_event(&cluster, firsts[1], "promise-breaking");
    assert!(breaking.contains("by its progress counter") && !breaking.contains("trial"), "{breaking}");
    wait_for_event(&cluster, guests[1], "sent-back");
    wait_for_event(&cluster, guests[1], "requeued");
    assert_eq!(cluster.job_field(firsts[1], "JobState").unwrap(), "RUNNING", "the first run never noticed");
    let waits = why(&cluster, "carol", guests[2]);
    assert!(
        waits.contains("Because") && cluster.job_field(guests[2], "JobState").unwrap() == "PENDING",
        "{waits}"
    );
    let told = why(&cluster, "alice", guests[0]);
    assert!(!told.contains("promise-breaking") && !told.contains("sent-back"), "{told}");

    for job in firsts {
        cluster.wait_for_job(job, &["COMPLETED"], 3 * SOON).unwrap();
        assert_eq!(cluster.job_field(job, "Restarts").unwrap(), "0");
    }
    cluster.wait_for_job(guests[1], &["COMPLETED"], 2 * SOON).unwrap();
    let all = starts(&cluster, "bob", guests[1]);
    assert_eq!((all.len(), all[1]["shards"].as_str()), (2, "100"), "{all:?}");
    let partition = cluster.job_field(plain.unwrap(), "Partition").unwrap();
    assert_eq!(partition, "gpu");
    wait_for("a profile of the first run that was joined", SOON, || {
        let text = cluster.pillion_as("alice", &["profile", "new"])?.stdout()?;
        Ok(if text.contains("new") { Look::Ready(()) } else { Look::NotYet(text) })
    })
    .unwrap();
}
