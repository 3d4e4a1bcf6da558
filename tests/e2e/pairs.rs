//! Jobs that go well together share a device, by MPS and by CCS; what stands in their environment is what was decided, and
//! Slurm books what was decided.

use crate::rides::{SOON, decisions, load, member_of, profile_count, starts, submit};
use pillion_core::SlurmJobId;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;

/// What one kind of node is asked to share.
struct Case {
    mechanism: &'static str,
    node: &'static str,
    /// The other node, so that they meet on this one.
    excluded: &'static str,
    /// Names of profiles and what they run.
    workloads: [(&'static str, &'static str); 2],
}

const CASES: [Case; 2] = [
    Case {
        mechanism: "mps",
        node: "n1",
        excluded: "n2",
        workloads: [("resnet50-infer", "resnet50-infer"), ("bert-small-batch", "bert-small-batch")],
    },
    // The best pair of Costa et al. 2025.
    Case {
        mechanism: "ccs",
        node: "n2",
        excluded: "n1",
        workloads: [("first", "ResNet-50 --batch-size 2"), ("second", "ResNet-50 --batch-size 2")],
    },
];

/// Runs both workloads on the node that is not `excluded`, and returns their jobs when they are over.
fn run(cluster: &Cluster, workloads: [(&str, &str); 2], seconds: u32, excluded: &str) -> [SlurmJobId; 2] {
    // Whoever is seen first is planned first: they are to be seen together.
    let begin = cluster.begin_together(3).unwrap();
    let submitted = |(name, work)| {
        submit(cluster, "alice", name, &load(work, seconds), &["-x", excluded, begin.as_str()])
    };
    let jobs = workloads.map(submitted);
    for job in jobs {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }
    jobs
}

/// The start of a job as it saw itself, beside its row in the decision.
fn start_and_decision(
    cluster: &Cluster,
    all: &[Value],
    job: SlurmJobId,
) -> (crate::rides::Words, Value, Value) {
    let mut starts = starts(cluster, "alice", job);
    assert_eq!(starts.len(), 1, "{job} started {} times", starts.len());
    let (decision, member) = member_of(all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
    (starts.remove(0), decision.clone(), member.clone())
}

#[test]
fn known_workloads_that_go_well_together_are_paired_on_both_kinds_of_node() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    for Case { excluded, workloads, .. } in CASES {
        run(&cluster, workloads, 300, excluded);
    }
    wait_until("four profiles", SOON, || Ok(profile_count(&cluster)? == 4)).unwrap();
    for Case { mechanism, node, excluded, workloads } in CASES {
        let jobs = run(&cluster, workloads, 600, excluded);
        let all = decisions(&cluster);
        let rows = jobs.map(|job| start_and_decision(&cluster, &all, job));
        let groups = rows.each_ref().map(|(_, decision, _)| decision["group_id"].as_u64());
        assert_eq!(groups[0], groups[1], "{mechanism}: they were not paired: {rows:#?}");
        let shards: u64 = rows.iter().map(|(_, _, member)| member["shards"].as_u64().unwrap()).sum();
        assert!(shards <= 100, "{mechanism}: {shards} shards");
        for (seen, decision, member) in &rows {
            let told = |name: &str| seen.get(name).map(String::as_str).unwrap_or_default();
            assert_eq!(decision["mechanism"], mechanism);
            assert_eq!((told("node"), decision["node"].as_str()), (node, Some(node)));
            assert_eq!(format!("g{}", told("gpu")), decision["gres_type"].as_str().unwrap());
            assert_eq!(told("shards"), member["shards"].to_string());
            assert_eq!(told("decision"), decision["decision_id"].to_string());
            let cap =
                member["cap_fraction"].as_f64().map(|cap| format!("{:.0}", cap * 100.0)).unwrap_or_default();
            assert_eq!(told("cap"), cap);
            assert_eq!(told("pipe").is_empty(), mechanism != "mps");
            let limit = member["memory_limit_bytes"].as_u64().map(|bytes| format!("0={}M", bytes >> 20));
            assert_eq!(told("limit"), limit.unwrap_or_default());
            let mode = member["ccs_mode"].as_u64().map(|mode| format!("0:{mode}")).unwrap_or_default();
            assert_eq!(told("ccs"), mode);
        }
    }
}
