//! The whole of Pillion on a cluster, once through: a first run alone, measured, and remembered across a restart.

use crate::leases::{UNTIL_TOLD, let_end};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(40);

#[test]
fn a_first_run_has_a_device_alone_and_is_explained_after_a_restart() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let script = "echo shards=$SLURM_SHARDS_ON_NODE decision=$PILLION_DECISION; pillion-load resnet50-train --seconds 120";
    let job = cluster.submit_as("alice", script, &["--colocate", "--gres=gpu:1"]).unwrap();
    let fields = cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    assert_eq!(fields["Partition"], "shared");
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert!(printed.starts_with("shards=100 decision=1\n"), "{printed}");
    assert!(printed.contains("speed_fraction_mean"), "{printed}");

    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler().unwrap();
    let explained = cluster.pillion_as("alice", &["explain", &job.to_string()]).unwrap().stdout().unwrap();
    assert!(explained.contains("alone"), "{explained}");
    let of_bob = cluster.pillion_as("bob", &["explain", &job.to_string()]).unwrap().output().unwrap();
    assert!(!of_bob.status.success(), "bob sees alice's job");
}

#[test]
fn a_job_that_does_not_ask_runs_as_it_was_written() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let script = "echo $SLURM_JOB_PARTITION gpus=$SLURM_GPUS_ON_NODE decision=${PILLION_DECISION:-none}";
    let job = cluster.submit_as("bob", script, &["--gres=gpu:1"]).unwrap();
    assert_eq!(cluster.finished_output(job, SOON).unwrap(), "gpu gpus=1 decision=none\n");
    assert_eq!(cluster.job_field(job, "AdminComment").unwrap(), "");
}

#[test]
fn a_killed_scheduler_starts_again_over_what_it_left() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.start_scheduler().unwrap();
    let job = cluster.submit_as("alice", "true", &["--colocate", "--gres=gpu:1"]).unwrap();
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
}

/// Who comes onto an idle device is seen when he comes, however rarely the queue is looked at where nothing happens.
#[test]
fn who_comes_while_devices_stand_idle_waits_for_no_scan() {
    let (looks_every, soon) = (10.0, Duration::from_secs(5));
    let mut cluster =
        Cluster::start(ClusterSpec { scan_period_seconds: looks_every, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let job = cluster.submit_as("alice", UNTIL_TOLD, &["--colocate", "--gres=gpu:1", "-t5"]).unwrap();
            cluster.wait_for_job(job, &["RUNNING"], soon).unwrap();
            job
        })
        .collect();
    for job in jobs {
        let_end(&cluster, job);
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
}
