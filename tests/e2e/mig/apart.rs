//! Two strangers whom the site lets share, where nobody makes walls: with a wish for one they never meet.

use crate::cheats::reasons_of;
use crate::rides::{SOON, Watched, decisions, load, make_known, member_of, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};

const WORKLOAD: &str = "resnet50-infer";
const USERS: [&str; 2] = ["alice", "bob"];
/// In seconds of the simulated machine.
const TOGETHER_SECONDS: u32 = 600;

/// One GPU, which takes whoever comes, and cannot be cut.
fn cluster() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        policy: SharingPolicy::Any,
        // Longer than all of them together take: nobody is started alone for having waited.
        bound_seconds: 600,
        scheduler_conf_extra: vec!["isolation = \"shared\"".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// A job of each user, who come together with these profiles, run to their ends; and what was seen of them meanwhile.
fn run(cluster: &Cluster, profiles: [&str; 2]) -> ([SlurmJobId; 2], Watched) {
    let begin = cluster.begin_together(3).unwrap();
    let work = load(WORKLOAD, TOGETHER_SECONDS);
    let jobs = [0, 1].map(|at| submit(cluster, USERS[at], profiles[at], &work, &[&begin]));
    let mut watched = Watched::default();
    wait_for("the end of both", 2 * SOON, || {
        watched.look(cluster)?;
        let states = [cluster.job_field(jobs[0], "JobState")?, cluster.job_field(jobs[1], "JobState")?];
        let is_over = states.iter().all(|state| state == "COMPLETED");
        Ok(if is_over { Look::Ready(()) } else { Look::NotYet(states.join(", ")) })
    })
    .unwrap();
    (jobs, watched)
}

/// Whether they were decided on as one sharing.
fn are_one_sharing(cluster: &Cluster, jobs: [SlurmJobId; 2]) -> bool {
    let all = decisions(cluster);
    let group = |job| {
        let (decision, _) = member_of(&all, job, 0).unwrap_or_else(|| panic!("{job} has no decision"));
        decision["group_id"].as_u64().unwrap()
    };
    group(jobs[0]) == group(jobs[1])
}

#[test]
fn who_wants_a_wall_waits_rather_than_share_with_a_stranger_and_is_told_why() {
    let cluster = cluster();
    make_known(&cluster, &USERS, &[WORKLOAD], &[&[]]);
    let (jobs, watched) = run(&cluster, [WORKLOAD; 2]);
    assert!(are_one_sharing(&cluster, jobs), "without the wish they share");
    assert!(watched.together.contains(&((jobs[0], 0), (jobs[1], 0))), "{watched:?}");

    let wish = format!("{WORKLOAD},isolation=hard");
    let (jobs, watched) = run(&cluster, [WORKLOAD, &wish]);
    assert!(!are_one_sharing(&cluster, jobs));
    assert!(watched.together.is_empty(), "{watched:?}");
    let began = |at: usize| starts(&cluster, USERS[at], jobs[at])[0]["at"].parse::<f64>().unwrap();
    let late = usize::from(began(0) < began(1));
    let reasons = reasons_of(&cluster, jobs[late]);
    assert!(reasons.iter().any(|reason| reason == "needs-wall"), "{reasons:?}");
    let told = cluster.pillion_as(USERS[late], &["explain", &jobs[late].to_string()]).unwrap();
    let told = told.stdout().unwrap();
    assert!(told.contains("a wall between users is wanted, and the device has none"), "{told}");
}
