//! Rules by account on real Slurm with accounts: who shares goes by what Slurm says of a job, and a job that is charged to another account
//! between its decision and its start has not the rules of the first (docs/decisions/0036-policy-by-job.md).

use crate::leases::{SLOW_RELEASE, change_before_release, was_refused};
use crate::rides::{SOON, decisions, load, make_known, member_of, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;

const WORKLOAD: &str = "resnet50-infer";

/// One node, on which jobs of research share with anybody's, and those of teaching with nobody's but their own user's.
fn start() -> Cluster {
    let rules = [
        "[[policy.override]]",
        "accounts = [\"teaching\"]",
        "users = \"same-user\"",
        "slowdown_ratio_max = 3",
    ];
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        accounting: true,
        policy: SharingPolicy::Any,
        bound_seconds: 600,
        scheduler_conf_extra: rules.map(str::to_owned).to_vec(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// Alice's job and carol's, who come together; carol's is charged to this account. Both run to their ends.
fn together(cluster: &Cluster, account: &str) -> [SlurmJobId; 2] {
    let begin = cluster.begin_together(3).unwrap();
    let jobs = [("alice", "research"), ("carol", account)].map(|(user, account)| {
        submit(cluster, user, WORKLOAD, &load(WORKLOAD, 600), &["-A", account, begin.as_str()])
    });
    for job in jobs {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    jobs
}

/// Whether they were decided on as one sharing, and what each is said to have been promised.
fn decided(cluster: &Cluster, jobs: [SlurmJobId; 2]) -> (bool, [f64; 2]) {
    let all = decisions(cluster);
    let rows = jobs.map(|job| member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision")));
    let groups = rows.map(|(decision, _)| decision["group_id"].as_u64());
    (groups[0] == groups[1], rows.map(|(_, member)| member["slowdown_ratio_max"].as_f64().unwrap()))
}

#[test]
fn who_shares_goes_by_the_account_that_slurm_has() {
    let cluster = start();
    make_known(&cluster, &["alice", "carol"], &[WORKLOAD], &[&["-A", "research"]]);
    let of_research = together(&cluster, "research");
    assert_eq!(decided(&cluster, of_research), (true, [1.25, 1.25]));
    let apart = together(&cluster, "teaching");
    assert_eq!(decided(&cluster, apart), (false, [1.25, 3.0]));
    let explain = |job: SlurmJobId| {
        cluster.pillion_as("root", &["explain", &job.to_string()]).unwrap().stdout().unwrap()
    };
    let told = explain(apart[1]);
    assert!(
        told.contains("(by the site's policy.override[1])")
            && told.contains("does not let these users share"),
        "{told}"
    );
    assert!(!explain(apart[0]).contains("policy.override"), "of research nothing else is said");
    let rules = cluster.pillion_as("alice", &["policy"]).unwrap().stdout().unwrap();
    assert!(
        rules.contains("policy.override[1].accounts") && rules.contains("policy.override[1].users"),
        "{rules}"
    );
}

#[test]
fn who_changes_his_account_before_the_release_is_decided_on_again() {
    let mut cluster = start();
    make_known(&cluster, &["carol"], &[WORKLOAD], &[&["-A", "research"]]);
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints(SLOW_RELEASE).unwrap();
    let job = submit(&cluster, "carol", WORKLOAD, &load(WORKLOAD, 300), &["-A", "research"]);
    let (id, update) = (format!("JobId={job}"), "Account=teaching");
    change_before_release(&mut cluster, job, |cluster, _| {
        let line = format!("scontrol update {id} {update}");
        cluster.shell_as("carol", &line).unwrap().stdout().unwrap();
    });
    was_refused(&cluster, job, "its account, QOS or partition is not what was decided on");
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    let all = decisions(&cluster);
    let promises: Vec<f64> = all
        .iter()
        .flat_map(|decision| decision["members"].as_array().unwrap())
        .filter(|member| member["job_id"] == job.to_string())
        .filter_map(|member| member["slowdown_ratio_max"].as_f64())
        .collect();
    assert_eq!(
        promises.iter().filter(|promise| **promise > 2.9).count(),
        1,
        "by the rules of teaching: {promises:?}"
    );
}

/// A cluster without accounts has no QOS either: what a decision presupposes is the same text on both sides there, too.
#[test]
fn a_rule_by_partition_needs_no_accounts() {
    let rules = ["[[policy.override]]", "partitions = [\"shared\"]", "slowdown_ratio_max = 3"];
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        bound_seconds: 600,
        scheduler_conf_extra: rules.map(str::to_owned).to_vec(),
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    let job = submit(&cluster, "alice", WORKLOAD, &load(WORKLOAD, 600), &[]);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    let all = decisions(&cluster);
    let (_, member) =
        member_of(&all, job, 0).expect("it was released, and did not wait for the end of its bound");
    assert_eq!(member["slowdown_ratio_max"].as_f64(), Some(3.0));
}
