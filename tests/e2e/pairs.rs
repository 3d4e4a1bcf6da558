//! Jobs that go well together share a device; the environment inside them is what was decided.

use pillion_core::SlurmJobId;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn load(name: &str, seconds: u32) -> String {
    format!("env | grep -E '^(CUDA_|ZE_|ZEX_|PILLION_D)' | sort; pillion-load {name} --seconds {seconds}")
}

fn submit(cluster: &Cluster, name: &str, seconds: u32) -> SlurmJobId {
    let option = format!("--colocate=profile={name}");
    cluster
        .submit_as("alice", &load(name, seconds), &[&option, "--gres=gpu:1", "-c1", "--mem=100", "-t10"])
        .unwrap()
}

#[test]
fn known_workloads_that_go_well_together_are_paired() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let first: Vec<_> = ["resnet50-infer", "bert-small-batch"].map(|name| submit(&cluster, name, 300)).into();
    for job in first {
        println!("{}", cluster.finished_output(job, SOON).unwrap());
    }
    wait_until("two profiles", SOON, || {
        let profiles = cluster.pillion_as("root", &["profile", "--noheader", "--parsable2"])?.stdout()?;
        Ok(profiles.lines().count() == 2)
    })
    .unwrap();
    println!("{}", cluster.pillion_as("root", &["profile"]).unwrap().stdout().unwrap());
    let second: Vec<_> =
        ["resnet50-infer", "bert-small-batch"].map(|name| submit(&cluster, name, 900)).into();
    for job in &second {
        cluster.wait_for_job(*job, &["RUNNING", "COMPLETED"], SOON).unwrap();
    }
    println!("{}", cluster.pillion_as("root", &["pairs"]).unwrap().stdout().unwrap());
    for job in &second {
        println!("{}", cluster.finished_output(*job, SOON).unwrap());
        println!("{}", cluster.pillion_as("root", &["explain", &job.to_string()]).unwrap().stdout().unwrap());
    }
}
