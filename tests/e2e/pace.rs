//! The watch on real Slurm: a pair that was misjudged, for its guest does something else than it was measured at, is parted within two
//! minutes; and whom his user cancelled in the same moment nobody starts again.

use crate::faults::wait_for_event;
use crate::rides::{KNOWN_SECONDS, SOON, decisions, load, make_known_as, member_of, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, now, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

/// How long a promise may be broken where the watch acts: a minute of progress, and what comes before and after it.
const BROKEN_MAX: Duration = Duration::from_mins(2);
/// In seconds of the simulated machine: longer than the test.
const LONG_SECONDS: u32 = 24_000;

/// Memory that leaves room for both, and is the same whatever they do.
fn work(name: &str) -> String {
    format!("{name} --memory 2G")
}

/// What a name was measured at, and what runs under it the first time that it counts. It outlasts SIGTERM, for there are no control
/// groups here by which it could be held, and a guest that SIGTERM kills at work is not sent back.
fn liar() -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then trap '' TERM\n\
         exec pillion-load {} --seconds {LONG_SECONDS}\nfi\nexec pillion-load {} --seconds {KNOWN_SECONDS}",
        work("gemm-hog"),
        work("launch-bound")
    ))
}

fn group_of(cluster: &Cluster, job: SlurmJobId) -> u64 {
    let all = decisions(cluster);
    let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
    decision["group_id"].as_u64().unwrap()
}

fn restarts(cluster: &Cluster, job: SlurmJobId) -> String {
    cluster.job_field(job, "Restarts").unwrap()
}

#[test]
fn a_misjudged_pair_is_parted_within_two_minutes() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 2,
        slurm_conf_extra: vec!["KillWait=6".to_owned()],
        scheduler_conf_extra: vec!["caps = false".to_owned(), "watch = \"act\"".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known_as(&cluster, "alice", &[("hog", &work("gemm-hog")), ("quiet", &work("launch-bound"))]);
    let begin = cluster.begin_together(3).unwrap();
    let host_work = load(&work("gemm-hog"), LONG_SECONDS);
    let host = submit(&cluster, "alice", "hog,max-slowdown=1.5", &host_work, &[&begin]);
    let guest = submit(&cluster, "alice", "quiet,max-slowdown=5", &liar(), &[&begin]);
    for job in [host, guest] {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    let together = now();
    assert_eq!(group_of(&cluster, host), group_of(&cluster, guest), "the profile was believed");

    wait_for("the guest to go back", 2 * SOON, || {
        let count = cluster.job_field(guest, "Restarts")?;
        Ok(if count == "1" { Look::Ready(()) } else { Look::NotYet(count) })
    })
    .unwrap();
    let broken = together.elapsed();
    println!("the promise was broken for {:.0} s", broken.as_secs_f64());
    assert!(broken < BROKEN_MAX, "{broken:?}");
    let told = wait_for_event(&cluster, host, "promise-breaking");
    assert!(told.contains("by its progress counter over 6"), "{told}");
    let told = wait_for_event(&cluster, guest, "sent-back");
    assert!(!told.contains("hog") && !told.contains(&host.to_string()), "{told}");
    wait_for_event(&cluster, guest, "requeued");

    cluster.wait_for_job(guest, &["COMPLETED"], 4 * SOON).unwrap();
    let all = starts(&cluster, "alice", guest);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(
        (all[1]["shards"].as_str(), all[1]["decision"].as_str()),
        ("100", ""),
        "it ran alone: {all:?}"
    );
    assert_eq!((restarts(&cluster, host), restarts(&cluster, guest)), ("0".to_owned(), "1".to_owned()));
    assert_eq!(cluster.job_field(host, "JobState").unwrap(), "RUNNING", "the host never noticed");
}

/// A job that does not heed SIGTERM stands as COMPLETING for a while after its user cancelled it.
#[test]
fn a_job_that_was_cancelled_a_moment_before_is_not_started_again() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let stubborn = script("trap '' TERM\nfor i in $(seq 300); do sleep 1; done");
    let ending = || {
        let job = submit(&cluster, "alice", "stubborn", &stubborn, &[]);
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
        wait_until("its first line", SOON, || Ok(starts(&cluster, "alice", job).len() == 1)).unwrap();
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
        assert_eq!(cluster.job_field(job, "JobState").unwrap(), "COMPLETING");
        job
    };
    let job = ending();
    // Slurm says nothing, and does nothing, while it completes and when it is over.
    let requeue = || cluster.scontrol(&["requeue", "Incomplete", &job.to_string()]);
    let while_it_ends = requeue();
    println!("while it is completing: {while_it_ends:?}");
    assert_eq!(restarts(&cluster, job), "0");
    cluster.wait_for_job(job, &["CANCELLED"], SOON).unwrap();
    println!("when it is over: {:?}", requeue());
    assert_eq!(restarts(&cluster, job), "0");
    assert_eq!(cluster.job_field(job, "JobState").unwrap(), "CANCELLED");
    // What a plain requeue does, and why it is not what runs are sent back by.
    let job = ending();
    cluster.scontrol(&["requeue", &job.to_string()]).unwrap();
    assert_eq!(restarts(&cluster, job), "1");
}
