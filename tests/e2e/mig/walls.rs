//! One GPU that the scheduler has cut for seven jobs of three users who want walls, on real Slurm, with everything of ours alive: what
//! jobs find inside, what they outgrow, and what an agent that is killed meanwhile finds again.

use crate::faults::wait_for_event;
use crate::rides::{SOON, load, make_known_for, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{PoolNode, SharingPolicy};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// The profile of each user's jobs, and what runs under it: tiny kernels, for which the device waits.
const LIGHT: [(&str, &str); 1] = [("light", "launch-bound")];
const USERS: [&str; 3] = ["alice", "bob", "carol"];
/// Of a user who takes a slow slice rather than wait.
const LOOSE: &str = "light,max-slowdown=2.5";
/// In seconds of the simulated machine: half a minute.
const ALONE_SECONDS: u32 = 600;
const TOGETHER_SECONDS: u32 = 2_400;

fn cluster() -> Cluster {
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![PoolNode { is_cut: true, ..PoolNode::new("n1", "h100", Mechanism::Mps) }],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        policy: SharingPolicy::Any,
        // Longer than all of them together take: nobody is started alone for having waited.
        bound_seconds: 600,
        scheduler_conf_extra: vec!["isolation = \"hard\"".to_owned()],
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

/// The value that each start of a job found for `CUDA_VISIBLE_DEVICES`, as it wrote it down.
fn told(cluster: &Cluster, user: &str, job: SlurmJobId) -> Vec<String> {
    let path = cluster.home(user).join(format!("told.{job}"));
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Writes down what it was told, and then works.
fn tenant(work: &str) -> String {
    script(&format!("echo \"$CUDA_VISIBLE_DEVICES\" >>$HOME/told.$SLURM_JOB_ID\n{work}"))
}

/// Fits an instance of the smallest size until it has been seen, and then needs more than that has.
const OUTGROWS: &str =
    "pillion-load launch-bound --seconds 420\nexec pillion-load launch-bound --seconds 300 --memory 12G";

/// Seven at once: two of alice's outgrow what they get, the first with her consent to be started again.
fn seven(cluster: &Cluster) -> Vec<(SlurmJobId, &'static str)> {
    let begin = cluster.begin_together(3).unwrap();
    let works = format!("exec pillion-load launch-bound --seconds {TOGETHER_SECONDS}");
    let consent = format!("{LOOSE},restart=yes");
    let submit = |place: usize| {
        let user = USERS[place % USERS.len()];
        let (profile, work) = match place {
            0 => (consent.as_str(), OUTGROWS),
            3 => (LOOSE, OUTGROWS),
            _ => (LOOSE, works.as_str()),
        };
        (submit(cluster, user, profile, &tenant(work), &[&begin]), user)
    };
    (0..7).map(submit).collect()
}

/// Each has one of its own, of the smallest size, and can ask why.
fn are_apart(cluster: &Cluster, jobs: &[(SlurmJobId, &str)]) {
    let mut names = BTreeSet::new();
    for (job, user) in jobs {
        let name = wait_for(&format!("what job {job} was told"), SOON, || {
            let told = told(cluster, user, *job);
            Ok(told.first().cloned().map_or_else(|| Look::NotYet("nothing".to_owned()), Look::Ready))
        })
        .unwrap();
        assert!(name.starts_with("MIG-") && names.insert(name), "job {job} of {user}: {names:?}");
        let start = &starts(cluster, user, *job)[0];
        assert_eq!((start["shards"].as_str(), start["cap"].as_str()), ("14", ""), "{start:?}");
        let why = cluster.pillion_as(user, &["explain", &job.to_string()]).unwrap().stdout().unwrap();
        assert!(why.contains("own-instance"), "{why}");
    }
}

#[test]
fn seven_jobs_of_three_users_have_an_instance_each_and_who_outgrows_it_gets_a_larger_one_by_consent() {
    let mut cluster = cluster();
    make_known_for(&cluster, ALONE_SECONDS, &USERS.map(|user| (user, LIGHT)));
    let jobs = seven(&cluster);
    are_apart(&cluster, &jobs);
    let (consents, silent) = (jobs[0].0, jobs[3].0);
    for job in [consents, silent] {
        wait_for_event(&cluster, job, "out-of-memory");
    }
    wait_for_event(&cluster, consents, "requeued");

    // The others never notice that the agent dies, and it finds all of them again.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.start_agent("n1").unwrap();
    for (job, user) in &jobs {
        let state = if *job == silent { "FAILED" } else { "COMPLETED" };
        let fields = cluster.wait_for_job(*job, &[state], 3 * SOON).unwrap();
        let restarts = if *job == consents { "1" } else { "0" };
        assert_eq!(fields["Restarts"], restarts, "job {job}");
        let told = told(&cluster, user, *job);
        assert_eq!(
            told.iter().collect::<BTreeSet<_>>().len(),
            if *job == consents { 2 } else { 1 },
            "{told:?}"
        );
    }
    // Whoever comes next has all of it.
    let alone = submit(&cluster, "dave", "heavy", &load("gemm-hog", 240), &[]);
    let printed = cluster.finished_output(alone, SOON).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(outcome["speed_fraction_mean"].as_f64().unwrap() > 0.9, "{printed}");
}
