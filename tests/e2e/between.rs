//! Users who act in the very moment between a decision and its release, on real Slurm: what they did stands, nobody is lost,
//! and nobody is released on the word of an older look.

use crate::leases::{
    Journal, SCHEDULER, SLOW_RELEASE, SOON, change_before_release, scontrol_as_alice, stands_at,
    wait_for_fail_point, was_refused,
};
use pillion_core::SlurmJobId;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;

const WORK: &str = "echo partition=$SLURM_JOB_PARTITION shards=${SLURM_SHARDS_ON_NODE:-none}";

fn submit(cluster: &Cluster) -> SlurmJobId {
    cluster.submit_as("alice", WORK, &["--colocate", "--gres=gpu:1", "-c1", "--mem=100", "-t10"]).unwrap()
}

#[test]
fn what_a_user_does_before_a_release_stands() {
    let spec = ClusterSpec { whole_gpu_node_count: 1, bound_seconds: 600, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();

    // Held: it stays held until its user lets it go, and then it is managed as before.
    let held = submit(&cluster);
    change_before_release(&mut cluster, held, |cluster, _| {
        scontrol_as_alice(cluster, &["hold", &held.to_string()]);
    });
    was_refused(&cluster, held, "the job is held");
    let fields = cluster.job(held).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Priority"].as_str()), ("PENDING", "0"), "{fields:?}");
    assert_eq!(fields["TresPerNode"], "gres/shard:100", "{fields:?}");
    scontrol_as_alice(&cluster, &["release", &held.to_string()]);
    let printed = cluster.finished_output(held, SOON).unwrap();
    assert!(printed.starts_with("partition=shared "), "{printed}");
    assert_eq!(Journal::of(&cluster, held).releases(), 1, "it was released when it could be");

    // Taken out: it goes where its user sent it, with what he asked for.
    for change in ["StartTime=now", "Partition=gpu"] {
        let left = submit(&cluster);
        let id = format!("JobId={left}");
        change_before_release(&mut cluster, left, |cluster, _| {
            scontrol_as_alice(cluster, &["update", &id, change]);
        });
        assert_eq!(cluster.finished_output(left, SOON).unwrap(), "partition=gpu shards=none\n", "{change}");
        assert_eq!(Journal::of(&cluster, left).releases(), 0, "{change}");
    }
}

/// Held after it was released and before Slurm started it: pin and lease are taken back, the hold stays.
#[test]
fn a_hold_outlives_the_undo_of_a_release() {
    let spec = ClusterSpec { bound_seconds: 600, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let nodes = ["n1", "n2"];
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();
    let job = submit(&cluster);
    wait_for_fail_point(&cluster, job, "release-before-release");
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::STOP);
    for node in nodes {
        cluster.scontrol(&["update", &format!("NodeName={node}"), "State=DRAIN", "Reason=test"]).unwrap();
    }
    cluster.daemon(SCHEDULER).unwrap().signal(Signal::CONT);
    wait_until("release", SOON, || Ok(Journal::of(&cluster, job).releases() == 1)).unwrap();
    scontrol_as_alice(&cluster, &["hold", &job.to_string()]);
    wait_until("undo", SOON, || Ok(Journal::of(&cluster, job).undos() == 1)).unwrap();
    for node in nodes {
        cluster.scontrol(&["update", &format!("NodeName={node}"), "State=RESUME"]).unwrap();
    }
    let fields = cluster.job(job).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Priority"].as_str()), ("PENDING", "0"), "{fields:?}");
    assert_eq!(
        (fields["TresPerNode"].as_str(), fields["ReqNodeList"].as_str()),
        ("gres/shard:100", "(null)")
    );
    assert!(stands_at(&cluster, job, "release-after-release"));
    scontrol_as_alice(&cluster, &["release", &job.to_string()]);
    assert_eq!(cluster.finished_output(job, SOON).unwrap(), "partition=shared shards=100\n");
}
