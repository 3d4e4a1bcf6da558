//! Jobs that outgrow what they declared, on real Slurm: held to it by MPS already when they are alone, and started again once with
//! more where their user lets it.

use crate::faults::wait_for_event;
use crate::restart::mps_nodes;
use crate::rides::{SOON, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};

/// Needs more than the 2 GiB that it declares, and less than half as much again; not at once, for of a job that nobody has looked at
/// nobody knows why it failed.
fn outgrows(cluster: &Cluster, name: &str, consent: &str, more: &[&str]) -> SlurmJobId {
    let work = script(
        "pillion-load resnet50-infer --seconds 420 --memory 500M\n\
         exec pillion-load resnet50-infer --seconds 120 --memory 2100M",
    );
    submit(cluster, "alice", &format!("{name},memory=2G{consent}"), &work, more)
}

#[test]
fn a_job_that_outgrows_its_limit_is_started_again_once_by_consent_alone() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let consents = outgrows(&cluster, "consents", ",restart=yes", &[]);
    let silent = outgrows(&cluster, "silent", "", &[]);
    let stays = outgrows(&cluster, "stays", ",restart=yes", &["--no-requeue"]);

    let told = wait_for_event(&cluster, consents, "out-of-memory");
    assert!(told.contains("it is to be started again once, with at least 3.0 GiB"), "{told}");
    let told = wait_for_event(&cluster, consents, "requeued");
    assert!(told.contains("with at least 3.0 GiB: it ran out of device memory with 2.0 GiB"), "{told}");
    let fields = cluster.wait_for_job(consents, &["COMPLETED"], 3 * SOON).unwrap();
    assert_eq!(fields["Restarts"], "1");
    let limits: Vec<String> =
        starts(&cluster, "alice", consents).into_iter().map(|start| start["limit"].clone()).collect();
    assert_eq!(limits, ["0=2048M", "0=3072M"]);

    let told = wait_for_event(&cluster, silent, "out-of-memory");
    assert!(!told.contains("started again"), "{told}");
    wait_for_event(&cluster, stays, "requeue-refused");
    for job in [silent, stays] {
        let fields = cluster.wait_for_job(job, &["FAILED"], SOON).unwrap();
        assert_eq!((fields["Restarts"].as_str(), starts(&cluster, "alice", job).len()), ("0", 1));
    }
}

/// Grows by 4 MiB a second towards the 4 GiB that it declares and beyond, as one does that keeps what it should have let go.
fn grows(cluster: &Cluster, name: &str, consent: &str) -> SlurmJobId {
    let work = script(
        "if [ \"${SLURM_RESTART_COUNT:-0}\" != 0 ]; then exec pillion-load resnet50-infer --seconds 120 --memory 4667M; fi\n\
         exec pillion-load resnet50-infer --seconds 28000 --memory 4667M --memory-steps 155",
    );
    submit(cluster, "alice", &format!("{name},memory=4G,{consent}"), &work, &[])
}

#[test]
fn a_job_that_will_surely_outgrow_its_limit_is_started_again_before_it_does_by_consent_alone() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let early = grows(&cluster, "early", "restart=early");
    let late = grows(&cluster, "late", "restart=yes");
    // What has grown for less than a minute says nothing.
    wait_until("a minute of growth", 2 * SOON, || {
        Ok(cluster.job_field(late, "RunTime")?.as_str() > "00:01:00")
    })
    .unwrap();
    // Who lets it be started again when it has run out is told, and goes on.
    let told = wait_for_event(&cluster, late, "memory-growing");
    assert!(told.contains("4.0 GiB"), "{told}");
    assert_eq!(cluster.job_field(late, "JobState").unwrap(), "RUNNING");
    assert_eq!(cluster.job_field(late, "Restarts").unwrap(), "0");
    cluster.program("scancel").arg(late.to_string()).stdout().unwrap();

    let told = wait_for_event(&cluster, early, "requeued");
    assert!(told.contains("with at least 6.0 GiB"), "{told}");
    let fields = cluster.wait_for_job(early, &["COMPLETED"], 3 * SOON).unwrap();
    assert_eq!(fields["Restarts"], "1");
    let limits: Vec<String> =
        starts(&cluster, "alice", early).into_iter().map(|start| start["limit"].clone()).collect();
    assert_eq!(limits, ["0=4096M", "0=6144M"]);
    let explained = cluster.pillion_as("alice", &["why", &early.to_string()]).unwrap().stdout().unwrap();
    assert!(!explained.contains("out-of-memory"), "it never ran out: {explained}");
}
