//! A pool and an observed partition in one cluster, with one scheduler: jobs of both at once. Those of the pool are put together, those of
//! the other partition are watched and decided on in the shadow, and nothing of theirs is written to in Slurm.

use crate::rides::{KNOWN_SECONDS, SOON, decisions, load, make_known_as, member_of, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::unchanged::Looks;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use std::collections::BTreeSet;

const WORKLOADS: [(&str, &str); 2] = [("solver", "resnet50-infer"), ("training", "bert-small-batch")];

fn spec() -> ClusterSpec {
    let extra = ["[observe]", "partitions = [\"gpu\"]", "shadow = true"];
    ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 1,
        scheduler_conf_extra: extra.map(str::to_owned).into(),
        ..ClusterSpec::default()
    }
}

/// The scheduler's configuration is right, and would not be with a partition that is both.
fn check_configuration(cluster: &Cluster) {
    let path = cluster.layout().path("conf/pillion-scheduler.toml");
    let check = |path: &std::path::Path| {
        cluster.pillion_as("root", &["config", "check"]).unwrap().arg(path).output().unwrap()
    };
    let right = check(&path);
    assert!(right.status.success(), "{right:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let both = text.replace("partitions = [\"gpu\"]", "partitions = [\"gpu\", \"shared\"]");
    assert_ne!(both, text, "{text}");
    let both = cluster.layout().write("conf/both.toml", both).unwrap();
    let wrong = check(&both);
    let said =
        format!("{}{}", String::from_utf8_lossy(&wrong.stdout), String::from_utf8_lossy(&wrong.stderr));
    assert!(!wrong.status.success() && said.contains("\"shared\", which is a pool"), "{said}");
}

/// Jobs of two users in the ordinary partition, long enough to be seen by several looks.
fn ordinary(cluster: &Cluster, seconds: u32) -> [SlurmJobId; 2] {
    [("alice", WORKLOADS[0]), ("bob", WORKLOADS[1])].map(|(user, (name, work))| {
        cluster
            .submit_as(
                user,
                &format!("pillion-load {work} --seconds {seconds}"),
                &["--gres=gpu:1", "-J", name],
            )
            .unwrap()
    })
}

fn wait_for_all(cluster: &Cluster, jobs: &[SlurmJobId]) {
    for job in jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], SOON).unwrap();
    }
}

#[test]
fn jobs_of_a_pool_and_of_an_observed_partition_are_each_treated_as_their_own() {
    let mut cluster = Cluster::start(spec()).unwrap();
    let before = Looks::take(&cluster).unwrap();
    cluster.start_pillion_and_observing().unwrap();
    check_configuration(&cluster);
    make_known_as(&cluster, "alice", &WORKLOADS);
    let mut watched = ordinary(&cluster, 3 * KNOWN_SECONDS).to_vec();
    wait_for_all(&cluster, &watched);

    // At once: two that may share in the pool, and two in the ordinary partition.
    let begin = cluster.begin_together(3).unwrap();
    let long = |work| load(work, 4 * KNOWN_SECONDS);
    let pool = WORKLOADS.map(|(name, work)| submit(&cluster, "alice", name, &long(work), &[begin.as_str()]));
    assert_eq!(before.differences_of_jobs(&cluster).unwrap(), [""; 0], "while the pool has jobs");
    watched.extend(ordinary(&cluster, 3 * KNOWN_SECONDS));
    wait_for_all(&cluster, &[&pool[..], &watched[..]].concat());

    // The pool's were put together by a decision each, which stands in the job.
    let all = decisions(&cluster);
    let groups = pool.map(|job| {
        let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
        decision["group_id"].as_u64()
    });
    assert!(groups[0].is_some() && groups[0] == groups[1], "they were not put together: {all:#?}");
    for job in pool {
        let seen = cluster.job(job).unwrap();
        assert!(seen["Partition"] == "shared" && seen["AdminComment"].starts_with("pillion1;"), "{seen:?}");
    }
    // Of the others nothing was decided for real, and nothing stands in them.
    let decided: BTreeSet<&str> = all
        .iter()
        .flat_map(|decision| decision["members"].as_array().unwrap())
        .filter_map(|member| member["job_id"].as_str())
        .collect();
    for job in &watched {
        let seen = cluster.job(*job).unwrap();
        let field = |name: &str| seen.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!(
            (field("Restarts"), field("Partition"), field("AdminComment")),
            ("0", "gpu", ""),
            "{seen:?}"
        );
        assert!(!decided.contains(job.to_string().as_str()), "{job} was decided on");
    }
    // They are what the shadow's report is about, and all of them taught.
    wait_for("shadow decisions and profiles", SOON, || {
        let report = cluster.pillion_json(&["shadow", "report", "-S", "now-1hour"])?;
        let workloads: BTreeSet<String> = cluster
            .profiles()?
            .iter()
            .filter_map(|row| row["workload"].as_str().map(str::to_owned))
            .collect();
        let is_told = report["start_count"].as_u64() >= Some(watched.len() as u64)
            && workloads.iter().any(|key| key.starts_with("bob/"))
            && workloads.iter().filter(|key| key.starts_with("alice/")).count() >= 2;
        Ok(if is_told { Look::Ready(()) } else { Look::NotYet(format!("{report} {workloads:?}")) })
    })
    .unwrap();
    before.wait_until_slurm_looks_so(&cluster).unwrap();
}
