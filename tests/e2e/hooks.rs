//! What the hooks cost a job on real Slurm: nothing to speak of, whatever state our daemons are in.

use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, now, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(2);
const JOBS: usize = 60;

/// How long a number of short jobs takes, from the first submission until Slurm has done with the last.
fn span(cluster: &Cluster, arguments: &[&str]) -> Duration {
    let begun = now();
    let submit = |_| cluster.submit_as("root", "true", &[&["-c1", "--mem=10"], arguments].concat()).unwrap();
    let jobs: Vec<SlurmJobId> = (0..JOBS).map(submit).collect();
    wait_for("the end of all jobs", SOON, || {
        let left = cluster.program("squeue").args(["--noheader", "--format=%i %T"]).stdout()?;
        let left = left.lines().count();
        Ok(if left == 0 { Look::Ready(()) } else { Look::NotYet(format!("{left} are there yet")) })
    })
    .unwrap();
    let took = begun.elapsed();
    for job in jobs {
        assert_eq!(cluster.job_field(job, "JobState").unwrap(), "COMPLETED");
    }
    took
}

#[test]
#[ignore = "alone: it holds real times against each other"]
fn a_frozen_scheduler_slows_no_jobs_end() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_scheduler().unwrap();
    let kinds: [(&str, &[&str]); 2] = [("elsewhere", &["-p", "gpu"]), ("in the pool", &["-p", "shared"])];
    let alive = kinds.map(|(_, arguments)| span(&cluster, arguments));
    cluster.daemon("pillion-scheduler").unwrap().signal(Signal::STOP);
    let frozen = kinds.map(|(_, arguments)| span(&cluster, arguments));
    cluster.daemon("pillion-scheduler").unwrap().signal(Signal::CONT);
    for ((name, _), (alive, frozen)) in kinds.iter().zip(alive.iter().zip(&frozen)) {
        let [alive, frozen] = [alive, frozen].map(Duration::as_secs_f64);
        println!("{JOBS} jobs {name}: {alive:.1} s, and {frozen:.1} s with a frozen scheduler");
        assert!(frozen < alive * 1.3 + 1.0, "{name}: {alive:.1} s, then {frozen:.1} s");
    }
}
