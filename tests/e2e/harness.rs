//! The harness itself: clusters start, jobs with shards run, and nothing is left behind.

use pillion_tests::cluster::sweep::processes_of;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

#[test]
fn shards_of_one_gpu_are_held_by_two_jobs_and_not_by_three() {
    let cluster = Cluster::start(ClusterSpec::default()).unwrap();
    let pinned = |shards: &str| {
        let gres = format!("--gres=shard:g1:{shards}");
        let script = "echo gpus=$SLURM_JOB_GPUS; sleep 600";
        cluster.submit_as("root", script, &["-p", "shared", "-w", "n1", &gres]).unwrap()
    };
    let (first, second) = (pinned("40"), pinned("60"));
    for job in [first, second] {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    let third = pinned("1");
    // Slurm gives its reason only when it has considered the job, so this is no race with the scheduler.
    let fields = pillion_tests::wait::wait_for("a reason why the third job waits", SOON, || {
        let fields = cluster.job(third)?;
        let considered = fields["JobState"] == "PENDING" && fields["Reason"] != "None";
        let seen = format!("{} {}", fields["JobState"], fields["Reason"]);
        Ok(if considered {
            pillion_tests::wait::Look::Ready(fields)
        } else {
            pillion_tests::wait::Look::NotYet(seen)
        })
    });
    assert_eq!(fields.unwrap()["JobState"], "PENDING");
    cluster.scontrol(&["requeuehold", &second.to_string()]).unwrap();
    assert_eq!(cluster.wait_for_output(third, "gpus=", SOON).unwrap(), "gpus=1\n");
}

#[test]
fn users_are_themselves_and_whole_gpus_are_the_default() {
    let cluster = Cluster::start(ClusterSpec {
        job_submit: pillion_tests::cluster::spec::JobSubmit::Absent,
        ..ClusterSpec::default()
    })
    .unwrap();
    for user in ["alice", "bob"] {
        let job = cluster
            .submit_as(user, "id -un; echo $SLURM_JOB_PARTITION $SLURM_JOB_GPUS", &["--gres=gpu:1"])
            .unwrap();
        let text = cluster.finished_output(job, SOON).unwrap();
        let (name, rest) = text.split_once('\n').unwrap();
        assert_eq!(name, user);
        assert!(rest.starts_with("gpu "), "{rest}");
    }
    let refused = cluster.try_submit_as("alice", "true", &["-p", "nowhere"]).unwrap();
    assert_eq!(refused.job, None);
    assert!(refused.said.contains("invalid partition"), "{}", refused.said);
}

#[test]
fn two_clusters_stand_side_by_side_and_each_ends_whole() {
    let one = Cluster::start(ClusterSpec::default()).unwrap();
    let two = Cluster::start(ClusterSpec::default()).unwrap();
    assert_ne!(one.root(), two.root());
    // A job that leaves a child behind in a session of its own: it too must be gone.
    let job = one.submit_as("alice", "setsid sleep 900 & echo started; sleep 600", &["-p", "gpu"]).unwrap();
    one.wait_for_output(job, "started", SOON).unwrap();
    let (root_one, root_two) = (one.root().to_owned(), two.root().to_owned());
    assert!(processes_of(&root_one).iter().any(|process| process.command.contains("sleep")));
    one.stop().unwrap();
    assert_eq!(processes_of(&root_one), []);
    assert!(!root_one.exists());
    let job = two.submit_as("bob", "echo alive", &["-p", "gpu"]).unwrap();
    assert_eq!(two.finished_output(job, SOON).unwrap(), "alive\n");
    drop(two);
    assert_eq!(processes_of(&root_two), []);
}

#[test]
fn accounting_knows_the_users_and_bills_shards() {
    let spec = ClusterSpec { accounting: true, ..ClusterSpec::default() };
    let cluster = Cluster::start(spec).unwrap();
    let job = cluster
        .submit_as("root", "sleep 600", &["-p", "shared", "--gres=shard:g2:40", "-A", "root"])
        .unwrap();
    let fields = cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    assert!(fields["AllocTRES"].contains("gres/shard=40"), "{}", fields["AllocTRES"]);
    assert!(fields["AllocTRES"].contains("billing=40"), "{}", fields["AllocTRES"]);
    let job = cluster.submit_as("alice", "true", &["-p", "gpu", "-A", "research", "--gres=gpu:1"]).unwrap();
    cluster.finished_output(job, SOON).unwrap();
    let refused = cluster.try_submit_as("alice", "true", &["-p", "gpu", "-A", "teaching"]).unwrap();
    assert!(refused.job.is_none() && refused.said.contains("Invalid account"), "{}", refused.said);
}

#[test]
fn slurm_daemons_end_and_come_back() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    let job = cluster.submit_as("alice", "echo begun; sleep 600", &["-p", "gpu"]).unwrap();
    cluster.wait_for_output(job, "begun", SOON).unwrap();
    cluster.stop_slurmctld(Signal::TERM).unwrap();
    assert!(cluster.scontrol(&["ping"]).is_err());
    cluster.start_slurmctld().unwrap();
    assert_eq!(cluster.job_field(job, "JobState").unwrap(), "RUNNING");
    cluster.stop_slurmd("w1", Signal::TERM).unwrap();
    cluster.wait_for_node("w1", "DOWN", SOON).unwrap();
    cluster.start_slurmd("w1").unwrap();
    cluster.wait_for_node("w1", "IDLE", SOON).unwrap();
}
