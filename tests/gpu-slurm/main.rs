//! The whole way of jobs on one real NVIDIA GPU: real Slurm, the agent over the driver's own NVML, the driver's own MPS, and
//! programs that run on it. What doubles show elsewhere is shown here once by the thing itself, and printed: who was paired, with
//! what caps, how fast each was of what it is alone, and that nothing of it is left. They run inside a testbed on a machine with
//! such a GPU that nobody else uses: `tests/gpu slurm`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod job;
mod sent_back;

use job::{Job, Wants};
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{NodeBackend, PoolNode, SharingPolicy};
use pillion_tests::process::Program;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

/// How long a condition may take.
const SOON: Duration = Duration::from_mins(1);
/// How long one that shares may take to start beside the other.
const BESIDE: Duration = Duration::from_secs(20);
/// A run that is long enough for a profile: some looks of the agent, a second apart.
const KNOWN_SECONDS: u32 = 12;
/// A run that others come beside.
const LONG_SECONDS: u32 = 50;
/// What these jobs let themselves be slowed by. Under the 1.25 of who asks for none, workloads that were never seen together and
/// keep half of the multiprocessors busy each are not believed to go together: the model does not know that they would.
const PROMISE: &str = ",max-slowdown=1.5";
/// What that leaves of a speed.
const PROMISED_FRACTION: f64 = 1.0 / 1.5;
/// Multiprocessors of a device are given out in twos at the least: so far a program may be from its hundredths of them.
const MULTIPROCESSOR_STEP: f64 = 2.0;

/// A cluster of one node with the GPU of this machine.
fn cluster(policy: SharingPolicy) -> Cluster {
    cluster_with(policy, ClusterSpec::default())
}

/// The same, with what else the configuration is to say.
fn cluster_with(policy: SharingPolicy, more: ClusterSpec) -> Cluster {
    let node = PoolNode { backend: NodeBackend::NvidiaGpu, ..PoolNode::new("n1", "h200", Mechanism::Mps) };
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![node],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        cpus_per_node: 8,
        memory_mib_per_node: 16_000,
        policy,
        bound_seconds: 20,
        ..more
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    wait_until("the device", SOON, || {
        Ok(!cluster.pillion_json(&["nodes"]).unwrap()["nodes"][0]["devices"][0].is_null())
    })
    .unwrap();
    cluster
}

/// What people are told.
fn words(cluster: &Cluster, arguments: &[&str]) -> String {
    cluster.pillion_as("root", arguments).unwrap().stdout().unwrap()
}

/// How a program is alone.
#[derive(Debug, Clone, Copy)]
struct Alone {
    iterations_per_second: f64,
    multiprocessors: u32,
}

/// Runs a workload alone until it is known, and says how it was.
fn make_known(cluster: &Cluster, user: &'static str, workload: &'static str) -> Alone {
    make_known_for(cluster, user, workload, KNOWN_SECONDS)
}

fn make_known_for(cluster: &Cluster, user: &'static str, workload: &'static str, seconds: u32) -> Alone {
    let before = cluster.profiles().unwrap().len();
    let job = Job::submit(cluster, user, workload, seconds, &Wants::default());
    let speed = job.speeds_with(cluster, &[]).remove(0);
    cluster.wait_for_job(job.id, &["COMPLETED"], SOON).unwrap();
    wait_until("its profile", SOON, || Ok(cluster.profiles().unwrap().len() > before)).unwrap();
    let name = format!("{user}/{workload}");
    let profile = cluster
        .profiles()
        .unwrap()
        .into_iter()
        .find(|it| it["workload_name"] == name.as_str())
        .unwrap_or_default();
    let seen = [
        "sm_active_fraction",
        "sm_occupancy_fraction",
        "memory_bandwidth_fraction",
        "memory_bytes_peak",
        "power_watts_mean",
        "throughput_per_second",
    ]
    .map(|metric| format!("{metric} {}", profile[metric]));
    println!("known: {name}: {speed:.0} iterations a second; {}", seen.join(", "));
    Alone { iterations_per_second: speed, multiprocessors: job.multiprocessors(cluster) }
}

/// Two jobs that came at once, when both run, with the environment of each.
fn pair(cluster: &Cluster, of: [(&'static str, &'static str); 2], options: &str) -> [Job; 2] {
    // One that was planned before the other came would have the device alone, and so would the other.
    let begin = cluster.begin_together(3).unwrap();
    let wants = Wants { options: format!("{PROMISE}{options}"), more: vec![begin], ..Wants::default() };
    let jobs = of.map(|(user, workload)| Job::submit(cluster, user, workload, LONG_SECONDS, &wants));
    for job in &jobs {
        let runs = cluster.wait_for_job(job.id, &["RUNNING"], BESIDE);
        assert!(runs.is_ok(), "it waits: {}", words(cluster, &["why", &job.id.to_string()]));
        println!("{} of {} sees {:?}", job.workload, job.user, job.environment(cluster));
    }
    println!("{}", words(cluster, &["why", &jobs[1].id.to_string()]));
    let pipes = jobs.each_ref().map(|job| job.environment(cluster)["pipe"].clone());
    assert!(pipes[0] == pipes[1] && pipes[0].ends_with("/pipe"), "one daemon serves both: {pipes:?}");
    jobs
}

/// How fast both are of what each is alone.
fn check_speeds(cluster: &Cluster, what: &str, jobs: &[Job; 2], alone: [Alone; 2]) {
    let [first, second] = jobs;
    let speeds = first.speeds_with(cluster, &[second]);
    for (speed, (job, alone)) in speeds.iter().zip(jobs.iter().zip(alone)) {
        let fraction = speed / alone.iterations_per_second;
        println!("{what}: {} of {}: {fraction:.3} of its speed alone", job.workload, job.user);
        assert!(fraction >= PROMISED_FRACTION, "{what}: {} has {fraction:.3} of its speed", job.workload);
    }
}

/// The processes that `nvidia-smi` sees on the GPU.
fn processes() -> Vec<String> {
    let program = Program::new("nvidia-smi").args(["--query-compute-apps=pid,name", "--format=csv,noheader"]);
    let text = program.stdout().unwrap_or_default();
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// When the last tenant has left nobody is on the GPU, and no daemon of MPS waits for anybody.
fn nothing_is_left(cluster: &Cluster, job: &Job) {
    let pipe = std::path::PathBuf::from(&job.environment(cluster)["pipe"]);
    wait_until("the daemon to leave with its last tenant", SOON, || Ok(!pipe.exists())).unwrap();
    wait_until("the GPU to be nobody's", SOON, || Ok(processes().is_empty())).unwrap();
    println!("nothing is left: no daemon, nobody on the GPU");
}

/// The agent is killed under a pair, and comes back; later one of the two is cancelled. Neither is any business of the other's.
#[test]
fn one_users_jobs_share_it_and_outlive_an_agent_and_each_other() {
    let mut cluster = cluster(SharingPolicy::SameUser);
    let of = [("alice", "compute-small"), ("alice", "bandwidth-small")];
    let alone = of.map(|(user, workload)| make_known(&cluster, user, workload));
    let jobs = pair(&cluster, of, "");
    check_speeds(&cluster, "together", &jobs, alone);
    println!("on the GPU: {:?}", processes());
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    check_speeds(&cluster, "with the agent dead", &jobs, alone);
    cluster.start_agent("n1").unwrap();
    check_speeds(&cluster, "with the agent back", &jobs, alone);
    cluster.scontrol(&["update", &format!("JobId={}", jobs[1].id), "Comment=seen"]).unwrap();
    cluster.program("scancel").arg(jobs[1].id.to_string()).stdout().unwrap();
    cluster.wait_for_job(jobs[1].id, &["CANCELLED"], SOON).unwrap();
    let fraction = jobs[0].speeds_with(&cluster, &[]).remove(0) / alone[0].iterations_per_second;
    println!("after the other was cancelled: {} has {fraction:.3} of its speed alone", jobs[0].workload);
    assert!(fraction >= PROMISED_FRACTION, "{fraction}");
    cluster.wait_for_job(jobs[0].id, &["COMPLETED"], SOON).unwrap();
    nothing_is_left(&cluster, &jobs[0]);
}

#[test]
fn two_users_jobs_share_it_where_the_site_lets_them() {
    let cluster = cluster(SharingPolicy::Any);
    let of = [("alice", "compute-small"), ("bob", "bandwidth-small")];
    let alone = of.map(|(user, workload)| make_known(&cluster, user, workload));
    let jobs = pair(&cluster, of, "");
    check_speeds(&cluster, "two users", &jobs, alone);
    for job in &jobs {
        cluster.wait_for_job(job.id, &["COMPLETED"], SOON).unwrap();
    }
    nothing_is_left(&cluster, &jobs[0]);
}

#[test]
fn what_a_job_asks_to_be_held_to_it_is_held_to() {
    let cluster = cluster(SharingPolicy::SameUser);
    let alone = make_known(&cluster, "alice", "compute");
    let whole = f64::from(alone.multiprocessors);
    let capped = Wants { options: ",cap=0.3".to_owned(), ..Wants::default() };
    let job = Job::submit(&cluster, "alice", "compute", KNOWN_SECONDS, &capped);
    let fraction = job.speeds_with(&cluster, &[]).remove(0) / alone.iterations_per_second;
    let seen = f64::from(job.multiprocessors(&cluster));
    println!("cap=0.3: {seen} of {whole} multiprocessors, {fraction:.3} of the speed alone");
    assert_eq!(job.environment(&cluster)["percentage"], "30");
    assert!((seen - 0.3 * whole).abs() <= MULTIPROCESSOR_STEP, "{seen} of {whole}");
    assert!((fraction - seen / whole).abs() < 0.05, "{fraction}");
    cluster.wait_for_job(job.id, &["COMPLETED"], SOON).unwrap();
    let little = Wants { options: ",memory=2G".to_owned(), held_bytes: 4 << 30, ..Wants::default() };
    let job = Job::submit(&cluster, "alice", "compute-small", KNOWN_SECONDS, &little);
    cluster.wait_for_job(job.id, &["FAILED"], SOON).unwrap();
    let seen = job.environment(&cluster);
    println!(
        "memory=2G: limit {:?}; a program that takes 4 GiB says {:?}",
        seen["limit"],
        job.last_line(&cluster)
    );
    assert!(job.last_line(&cluster).contains("CUDA_ERROR_OUT_OF_MEMORY"));
}
