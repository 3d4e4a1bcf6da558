//! A program that came to a device by no job: it is told, nobody is planned beside it, nobody is ended, and when it has gone all is
//! as before.

use crate::rides::{SOON, decisions, load, make_known, member_of, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const WORKLOADS: [&str; 2] = ["bert-small-batch", "resnet50-infer"];
/// Of the simulated machine; longer than everything that is tried beside it.
const LONG_SECONDS: u32 = 6000;
/// It is told until a minute after it was seen last.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// Starts it on n1 as somebody who has logged in there; gives its process.
fn come(cluster: &Cluster, user: &str) -> String {
    // It outlives the shell that starts it, as what is left of an ssh does.
    let script =
        format!("pillion-load gemm-hog --memory 2G --seconds {LONG_SECONDS} >/dev/null 2>&1 & echo $!");
    let shell = cluster.program_as(user, "bash").unwrap().env("SLURMD_NODENAME", "n1").args(["-c", &script]);
    shell.stdout().unwrap().trim().to_owned()
}

/// The device of n1 on which a process of no job is told of, with the words for it.
fn told(cluster: &Cluster) -> Option<(String, String)> {
    let text = cluster.pillion_as("root", &["nodes", "--json"]).unwrap().stdout().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let nodes = value["nodes"].as_array().unwrap();
    let devices = nodes.iter().flat_map(|node| node["devices"].as_array().unwrap());
    let mut told = devices.filter_map(|device| {
        let faults = device["faults"].as_array()?;
        let fault = faults.iter().find(|fault| fault["kind"] == "outsider")?;
        Some((device["gres_type"].as_str()?.to_owned(), fault["detail"].as_str()?.to_owned()))
    });
    told.next()
}

/// The device that was decided on for a job, once it runs.
fn place(cluster: &Cluster, job: SlurmJobId) -> String {
    cluster.wait_for_job(job, &["RUNNING", "COMPLETED"], SOON).unwrap();
    let all = decisions(cluster);
    let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
    decision["gres_type"].as_str().unwrap().to_owned()
}

#[test]
fn nobody_is_planned_beside_a_program_of_no_job_and_it_is_not_ended() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 2,
        policy: SharingPolicy::Any,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &WORKLOADS, &[&[]]);

    let pid = come(&cluster, "bob");
    let (closed, detail) = wait_for("the program is told of", SOON, || {
        Ok(told(&cluster).map_or_else(|| Look::NotYet("nobody is told of".to_owned()), Look::Ready))
    })
    .unwrap();
    assert!(detail.contains(&format!("process {pid} of uid")), "{detail}");
    // Operators are told by an event; a user's look at the node does not say whose it is.
    let events = cluster.pillion_as("root", &["events", "--json"]).unwrap().stdout().unwrap();
    assert!(events.contains(&pid), "{events}");
    let hers = cluster.pillion_as("alice", &["nodes", "--json"]).unwrap().stdout().unwrap();
    assert!(!hers.contains(&format!("process {pid}")), "{hers}");

    let begin = cluster.begin_together(3).unwrap();
    let jobs = WORKLOADS.map(|name| {
        submit(&cluster, "alice", &format!("{name},max-slowdown=5"), &load(name, 600), &[&begin])
    });
    for job in jobs {
        assert_ne!(place(&cluster, job), closed, "beside the program of no job");
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is not ours to end");

    cluster.program_as("bob", "kill").unwrap().arg(&pid).stdout().unwrap();
    wait_for("nobody is told of any more", FORGOTTEN, || {
        Ok(told(&cluster).map_or(Look::Ready(()), |(_, detail)| Look::NotYet(detail)))
    })
    .unwrap();
    // Nobody is kept away any more: two whom nobody knows have a device each.
    let jobs = ["new-a", "new-b"].map(|name| submit(&cluster, "alice", name, &load(WORKLOADS[0], 300), &[]));
    let places: BTreeSet<String> = jobs.iter().map(|job| place(&cluster, *job)).collect();
    assert_eq!(places.len(), 2, "{places:?}");
}
