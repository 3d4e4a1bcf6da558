//! The whole way of a job on real Slurm, once over each way of reaching devices: the simulated driver itself, the doubles of
//! NVIDIA's library and MPS programs, the double of Level Zero, and those of the exporters that complete them. What the
//! agent measured is held against what the device model did, value by value, and printed; and the doubles against vendors' own
//! parts, where these run without a device. They run inside a testbed: `tests/run hardware`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod mig;
mod played;
mod vendor;

use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{NodeBackend, PoolNode};
use pillion_tests::monitoring::get;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};
use played::{Played, Watch};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a condition may take on a busy machine.
const SOON: Duration = Duration::from_secs(90);
/// How far a value that was read may be from what the device did, of it: looks are a second apart, and the first and last
/// second of a run are not wholly seen.
const TOLERANCE_FRACTION: f64 = 0.05;
/// Seconds of the simulated machine: ten of the clock.
const RUN_SECONDS: u32 = 600;
/// What each start writes down of its environment.
const START_LINE: &str = "echo visible=$CUDA_VISIBLE_DEVICES pipe=$CUDA_MPS_PIPE_DIRECTORY \
     percentage=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limit=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT ccs=$ZEX_NUMBER_OF_CCS mask=$ZE_AFFINITY_MASK \
     bind=$APPTAINER_BIND > $HOME/start.$SLURM_JOB_ID";

fn cluster(model: &str, mechanism: Mechanism, backend: NodeBackend) -> Cluster {
    let node = PoolNode { backend, ..PoolNode::new("n1", model, mechanism) };
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![node],
        whole_gpu_node_count: 0,
        gpus_per_node: 2,
        // A job that nobody can start waits for so long.
        bound_seconds: 20,
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn submit(cluster: &Cluster, profile: &str, work: &str, more: &[&str]) -> SlurmJobId {
    let script = format!("#!/bin/bash\n{START_LINE}\nexec pillion-load {work} --seconds {RUN_SECONDS}\n");
    let option = format!("--colocate=profile={profile}");
    let arguments = [option.as_str(), "--gres=gpu:1", "-c1", "--mem=100", "-t10"];
    cluster.submit_as("alice", &script, &[&arguments, more].concat()).unwrap()
}

/// What a start wrote down.
fn environment(cluster: &Cluster, job: SlurmJobId) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(cluster.home("alice").join(format!("start.{job}"))).unwrap();
    let words = text.split_whitespace().filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Runs one job alone and holds its profile against what the device did meanwhile.
fn run_alone(cluster: &Cluster, title: &str, work: &str, metrics: &[&str]) {
    let job = submit(cluster, "solo", work, &[]);
    let played = Watch::new(cluster, "n1").follow(SOON);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    wait_until("the profile of the run", SOON, || Ok(cluster.profiles().unwrap().len() == 1)).unwrap();
    let profile = cluster.profiles().unwrap().remove(0);
    for metric in metrics {
        compare(title, metric, profile[*metric].as_f64(), played.mean(metric));
    }
    compare(title, "memory_bytes_peak", profile["memory_bytes_peak"].as_f64(), played.memory_bytes_peak);
    compare_energy(title, profile["energy_joules"].as_f64().unwrap(), &played);
}

/// The agent's looks enclose the run: up to a second of the device before and after it is billed to the job too.
fn compare_energy(title: &str, read: f64, played: &Played) {
    let (done, around) = (played.energy_joules, 2.0 * played.mean("power_watts_mean"));
    println!("{title:10} {:28} read {read:>16.4}   done {done:>16.4}", "energy_joules");
    assert!((done * 0.99..=done * 1.01 + around).contains(&read), "{title}: {read} J were read, not {done}");
}

/// Prints a line and fails if the two are apart.
fn compare(title: &str, metric: &str, read: Option<f64>, done: f64) {
    let read =
        read.unwrap_or_else(|| panic!("{title}: {metric} was not measured, and the device did {done}"));
    println!("{title:10} {metric:28} read {read:>16.4}   done {done:>16.4}");
    let apart = (read - done).abs();
    assert!(
        apart <= TOLERANCE_FRACTION * done.abs() + 1e-3,
        "{title}: {metric} was read as {read}, not {done}"
    );
}

/// Runs two that go well together, and gives their jobs with what each wrote down while both ran.
///
/// `both_run` is called while they do.
fn run_pair(
    cluster: &Cluster,
    work: &str,
    both_run: impl FnOnce([SlurmJobId; 2]),
) -> [(SlurmJobId, BTreeMap<String, String>); 2] {
    // One that was planned before the other came would have a device alone, and so would the other.
    let begin = cluster.begin_together(3).unwrap();
    let jobs = ["solo", "solo"].map(|profile| submit(cluster, profile, work, &[&begin]));
    for job in jobs {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    both_run(jobs);
    let pairs = cluster.pillion_json(&["pairs"]).unwrap();
    assert!(
        pairs["decisions"].as_array().is_some_and(|all| !all.is_empty()),
        "they were not paired: {pairs:#}"
    );
    jobs.map(|job| {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        (job, environment(cluster, job))
    })
}

/// Runs one job alone under a cap.
fn run_capped(cluster: &Cluster, work: &str) {
    let job = submit(cluster, "solo,cap=0.3", work, &[]);
    cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    check_limits(cluster, &[job]);
    assert_eq!(environment(cluster, job)["percentage"], "30");
    cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
}

/// The memory of the device that the pair runs on, an H200.
const DEVICE_BYTES: u64 = 141 << 30;

/// What tenants were promised by their environment is what the device holds their programs to, and its counters show no more.
fn check_limits(cluster: &Cluster, jobs: &[SlurmJobId]) {
    let (tenants, active) = Watch::new(cluster, "n1").tenants(jobs.len(), SOON);
    let mut promised: Vec<(f64, Option<u64>)> =
        jobs.iter().map(|job| promise(&environment(cluster, *job))).collect();
    let mut held: Vec<(f64, Option<u64>)> =
        tenants.iter().map(|it| (it.units_fraction_max, it.memory_bytes_max)).collect();
    for list in [&mut promised, &mut held] {
        list.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    }
    for ((share, bytes), (share_max, bytes_max)) in promised.iter().zip(&held) {
        println!(
            "{:10} {:28} read {share:>16.4}   done {share_max:>16.4}",
            "mps", "active_thread_percentage"
        );
        // Rounded down to what the device can part: two of its 132 units.
        assert!((share - 2.0 / 132.0..=share + 1e-9).contains(share_max), "{promised:?}, but {held:?}");
        // Who was promised no limit is held to all of the device: its daemon says a number once it has said one.
        let is_held = bytes.map_or(bytes_max.is_none_or(|most| most >= DEVICE_BYTES), |_| bytes == bytes_max);
        assert!(is_held, "{promised:?}, but {held:?}");
    }
    for tenant in &tenants {
        assert!(tenant.is_mps && tenant.units_fraction <= tenant.units_fraction_max + 1e-9, "{tenant:?}");
        assert!(tenant.memory_bytes_max.is_none_or(|most| tenant.memory_bytes <= most), "{tenant:?}");
    }
    let together = tenants.iter().map(|tenant| tenant.units_fraction).sum();
    compare("mps", "units_of_all", Some(together), active);
}

/// The compute units and the memory that a job's environment promises, as NVIDIA's document reads it.
fn promise(seen: &BTreeMap<String, String>) -> (f64, Option<u64>) {
    let percentage = seen["percentage"].parse().unwrap_or(100.0);
    let mebibytes = seen["limit"].strip_prefix("0=").and_then(|limit| limit.strip_suffix('M'));
    (percentage / 100.0, mebibytes.and_then(|count| count.parse::<u64>().ok()).map(|count| count << 20))
}

/// Where each metric of a node's first device comes from, as operators see it.
fn source_of(cluster: &Cluster, metric: &str) -> String {
    let nodes = cluster.pillion_json(&["nodes"]).unwrap();
    nodes["nodes"][0]["devices"][0]["metrics"][metric]["source"].as_str().unwrap_or_default().to_owned()
}

const FINE: [&str; 4] =
    ["sm_active_fraction", "sm_occupancy_fraction", "memory_bandwidth_fraction", "power_watts_mean"];

#[test]
fn simulated() {
    let cluster = cluster("h200", Mechanism::Mps, NodeBackend::Simulated);
    run_alone(&cluster, "simulated", "resnet50-infer", &FINE);
    assert_eq!(source_of(&cluster, "sm_active_fraction"), "simulated");
    for (job, seen) in run_pair(&cluster, "resnet50-infer", |_| ()) {
        assert!(seen["pipe"].ends_with("/pipe"), "{job}: {seen:?}");
    }
}

#[test]
fn nvml_and_mps() {
    let cluster = cluster("h200", Mechanism::Mps, NodeBackend::Nvidia);
    run_alone(&cluster, "nvml", "resnet50-infer", &FINE);
    assert_eq!(source_of(&cluster, "sm_active_fraction"), "nvml-gpm");
    assert_eq!(source_of(&cluster, "energy_joules"), "nvml");
    let pair = run_pair(&cluster, "resnet50-infer", |jobs| check_limits(&cluster, &jobs));
    for (job, seen) in &pair {
        assert!(seen["visible"].starts_with("GPU-"), "{job}: {seen:?}");
        assert!(seen["pipe"].ends_with("/pipe") && seen["limit"].starts_with("0="), "{job}: {seen:?}");
        assert_eq!(seen["bind"], seen["pipe"], "{job}: a container would not find the daemon");
    }
    assert_eq!(pair[0].1["pipe"], pair[1].1["pipe"], "one daemon serves both");
    let pipe = std::path::PathBuf::from(&pair[0].1["pipe"]);
    wait_until("the daemon to leave with its last tenant", SOON, || Ok(!pipe.exists())).unwrap();
    // Afterwards: how fast it was under the cap, to a thousandth of its speed alone, decides whether the two are believed to go well.
    run_capped(&cluster, "resnet50-infer");
}

#[test]
fn level_zero_and_ccs() {
    let cluster = cluster("max-1550", Mechanism::Ccs, NodeBackend::Intel);
    let work = "ResNet-50 --batch-size 2";
    run_alone(
        &cluster,
        "level-zero",
        work,
        &["sm_active_fraction", "stall_fraction", "memory_bandwidth_fraction"],
    );
    assert_eq!(source_of(&cluster, "sm_active_fraction"), "metric-streamer");
    assert_eq!(source_of(&cluster, "energy_joules"), "sysman");
    for (job, seen) in run_pair(&cluster, work, |_| ()) {
        assert_eq!(seen["ccs"], "0:2", "{job}: {seen:?}");
    }
}

#[test]
fn nvml_and_dcgm_exporter() {
    let cluster = cluster("v100", Mechanism::Mps, NodeBackend::NvidiaAndDcgm);
    run_alone(&cluster, "dcgm", "resnet50-infer", &FINE);
    for metric in ["sm_active_fraction", "sm_occupancy_fraction", "memory_bandwidth_fraction"] {
        assert_eq!(source_of(&cluster, metric), "dcgm-exporter", "{metric}");
    }
    assert_eq!(source_of(&cluster, "energy_joules"), "nvml", "the library goes first");
}

#[test]
fn level_zero_and_xpu_manager() {
    let cluster = cluster("max-1550", Mechanism::Ccs, NodeBackend::IntelAndXpum);
    let work = "ResNet-50 --batch-size 2";
    run_alone(&cluster, "xpum", work, &["sm_active_fraction", "stall_fraction", "memory_bandwidth_fraction"]);
    assert_eq!(source_of(&cluster, "sm_active_fraction"), "xpu-manager");
    assert_eq!(source_of(&cluster, "energy_joules"), "sysman", "the library goes first");
}

/// Processes of simulated devices are not in the kernel's books, so that no profile comes of it: what the node tells is
/// held against the device.
#[test]
fn xpu_manager_alone() {
    let mut cluster = cluster("max-1550", Mechanism::TimeSliced, NodeBackend::Xpum);
    for metric in ["energy_joules", "power_watts", "memory_bytes_used"] {
        wait_until(metric, SOON, || Ok(source_of(&cluster, metric) == "xpu-manager")).unwrap();
    }
    let device = cluster.pillion_json(&["nodes"]).unwrap()["nodes"][0]["devices"][0].clone();
    assert_eq!(device["faults"][0]["kind"], "no-mechanism", "{device:#}");
    assert_eq!(device["mechanism"], "none", "{device:#}");
    let address = cluster.metrics_address("n1").unwrap();
    let page = get(address, "/metrics").unwrap();
    let line = page.lines().find(|line| {
        line.starts_with("pillion_device_energy_joules_total{") && line.contains("gres_type=\"g0\"")
    });
    let read = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // The page and the exporter are a few seconds behind.
    let done = Watch::new(&cluster, "n1").energy_joules(0);
    let read = read.unwrap_or_else(|| panic!("no energy in {page}"));
    println!("{:10} {:28} read {read:>16.4}   done {done:>16.4}", "xpum-alone", "energy_joules");
    assert!(read > 0.0 && read <= done && done - read < 5.0 * 300.0, "{read} J were read, not {done}");
}
