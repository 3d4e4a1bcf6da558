//! What was learnt, kept as a file: written beside a scheduler that runs, and taken in by one that has lost everything.

use crate::rides::{KNOWN_SECONDS, SOON, load, profile_count, submit};
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::daemons::built;
use pillion_tests::testbed::identity_of;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::path::PathBuf;

/// Where [`scheduler`] keeps what was learnt.
pub(crate) fn learnt_file(cluster: &Cluster) -> PathBuf {
    cluster.layout().path("scheduler/learnt.jsonl")
}

/// `pillion-scheduler` beside the one that runs, which exports or imports: whether it did it, and what it said.
pub(crate) fn scheduler(cluster: &Cluster, action: &str) -> (bool, String) {
    let program = built("pillion-scheduler").unwrap();
    let program = cluster.program(&program.display().to_string()).identity(identity_of("slurm").unwrap());
    let config = cluster.layout().path("conf/pillion-scheduler.toml");
    let file = learnt_file(cluster);
    let output = program.arg("--config").arg(config).arg(action).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), said)
}

#[test]
fn what_was_learnt_outlives_its_database() {
    let pool_nodes = vec![PoolNode::new("n1", "h200", Mechanism::Mps)];
    let mut cluster = Cluster::start(ClusterSpec { pool_nodes, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    let job = submit(&cluster, "alice", "train", &load("resnet50-infer", KNOWN_SECONDS), &[]);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    wait_until("a profile", SOON, || Ok(profile_count(&cluster)? == 1)).unwrap();
    let known = cluster.profiles().unwrap();
    let (is_done, said) = scheduler(&cluster, "export");
    assert!(is_done && said.contains(": 1 profiles, 1 names of workloads, 0 observations"), "{said}");
    let (is_done, said) = scheduler(&cluster, "import");
    assert!(!is_done && said.contains("a scheduler uses this database; stop it first"), "{said}");

    cluster.kill_scheduler(Signal::TERM).unwrap();
    std::fs::remove_dir_all(cluster.layout().path("scheduler/postgres")).unwrap();
    for taken in [1, 0] {
        let (is_done, said) = scheduler(&cluster, "import");
        assert!(
            is_done && said.contains(&format!("taken in: {taken} of 1 profiles, {taken} of 1 names")),
            "{said}"
        );
    }
    // With nobody there as well.
    let (is_done, said) = scheduler(&cluster, "export");
    assert!(is_done && said.contains(": 1 profiles, 1 names of workloads"), "{said}");
    cluster.start_scheduler().unwrap();
    assert_eq!(cluster.profiles().unwrap(), known);
}
