//! Where the site has said yes for everybody in a partition, or a user for all his batch jobs: jobs that carry no option share, are
//! told so, and one word keeps them from it.

use crate::rides::{KNOWN_SECONDS, SOON, decisions, load, member_of, profile_count};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::Submission;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};

const WORK: &str =
    "echo shards=$SLURM_SHARDS_ON_NODE; env | grep -c SBATCH_COLOCATE=; env | grep PILLION_SBATCH; true";

fn start() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned(), "colocate = \"on\"".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// `variable`: `SBATCH_COLOCATE` in the environment of `sbatch`.
fn submit(cluster: &Cluster, script: &str, variable: Option<&str>, more: &[&str]) -> Submission {
    let given = ["--parsable", "-c1", "--mem=100", "-t10"];
    let mut sbatch = cluster.program_as("alice", "sbatch").unwrap().args(given).args(more.iter().copied());
    if let Some(value) = variable {
        sbatch = sbatch.env("SBATCH_COLOCATE", value);
    }
    let script =
        if script.starts_with("#!") { script.to_owned() } else { format!("#!/bin/bash\n{script}\n") };
    let output = sbatch.input(script).output().unwrap();
    let job = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    Submission { job, said: String::from_utf8_lossy(&output.stderr).trim().to_owned() }
}

fn mark(cluster: &Cluster, job: SlurmJobId) -> String {
    cluster.job_field(job, "AdminComment").unwrap()
}

#[test]
fn jobs_that_say_nothing_share_where_the_partition_says_so() {
    let cluster = start();
    let in_pool = ["-p", "shared", "--gres=gpu:1"];
    // The same scripts each time: by them their workloads are known.
    let both = || {
        let begin = cluster.begin_together(3).unwrap();
        ["resnet50-infer", "bert-small-batch"].map(|name| {
            let submission = submit(&cluster, &load(name, KNOWN_SECONDS), None, &[&in_pool[..], &["-J", name, &begin]].concat());
            let way_out = "pillion: partition shared lets jobs share GPUs unless they say --colocate=no: waits for a GPU, of its own or shared;";
            assert!(submission.said.contains(way_out), "{}", submission.said);
            submission.job.unwrap()
        })
    };
    let ended = |jobs: [SlurmJobId; 2]| {
        for job in jobs {
            cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        }
        jobs
    };
    ended(both());
    wait_until("two profiles", SOON, || Ok(profile_count(&cluster)? == 2)).unwrap();
    let jobs = ended(both());
    let all = decisions(&cluster);
    let groups = jobs.map(|job| member_of(&all, job, 0).unwrap().0["group_id"].as_u64());
    assert_eq!(groups[0], groups[1], "they were not paired: {all:#?}");
}

#[test]
fn one_word_keeps_a_job_from_it_and_a_variable_says_it_for_all() {
    let cluster = start();
    for (variable, option) in
        [(None, &["--colocate=no"][..]), (Some("no"), &[]), (Some("yes"), &["--colocate=off"])]
    {
        let submission =
            submit(&cluster, WORK, variable, &[&["-p", "shared", "--gres=gpu:1"], option].concat());
        assert_eq!(submission.said, "", "{variable:?} {option:?}");
        let job = submission.job.unwrap();
        assert!(mark(&cluster, job).contains(";plain=1"), "{variable:?} {option:?}");
        let printed = cluster.finished_output(job, SOON).unwrap();
        assert_eq!(
            printed,
            format!("shards=100\n{}\n", usize::from(variable.is_some())),
            "nothing of ours in it"
        );
    }
    // From a partition that is no pool into the pool, by the variable alone; and nothing of ours stays in its environment.
    let submission = submit(&cluster, WORK, Some("yes"), &["-p", "gpu", "--gres=gpu:1"]);
    assert!(submission.said.contains("pillion: by SBATCH_COLOCATE, waits for a GPU"), "{}", submission.said);
    let job = submission.job.unwrap();
    assert!(mark(&cluster, job).starts_with("pillion1;"));
    assert_eq!(cluster.finished_output(job, SOON).unwrap(), "shards=100\n1\n");
    let refused = submit(&cluster, WORK, Some("maybe"), &["-p", "gpu", "--gres=gpu:1"]);
    assert!(
        refused.job.is_none() && refused.said.contains("SBATCH_COLOCATE: 'maybe' is not allowed"),
        "{}",
        refused.said
    );
    // Of a job without GPUs, and of who sits in front of it, nothing is made.
    let plain = submit(&cluster, WORK, Some("maybe"), &["-p", "gpu"]);
    assert_eq!(plain.said, "");
    cluster.finished_output(plain.job.unwrap(), SOON).unwrap();
    let salloc = cluster.program_as("alice", "salloc").unwrap().env("SBATCH_COLOCATE", "yes");
    let output = salloc.args([
        "-p",
        "shared",
        "-c1",
        "--mem=100",
        "--gres=gpu:1",
        "srun",
        "printenv",
        "SLURM_SHARDS_ON_NODE",
    ]);
    let output = output.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "100\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!String::from_utf8_lossy(&output.stderr).contains("pillion"), "{output:?}");
}
