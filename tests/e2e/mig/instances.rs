//! One GPU cut for seven jobs of three users, on real Slurm. No scheduler is there: what it would have decided stands on the agent's
//! disk when that starts, as after a reboot of the node.

use pillion_agent::share::{Own, ShareTable};
use pillion_core::device::Mechanism;
use pillion_core::mig::{Geometry, Slot};
use pillion_core::share::{Share, Sharing};
use pillion_core::{DecisionId, GresType, JobStart, Shards, SlurmJobId, UserId};
use pillion_tests::cluster::spec::{JobSubmit, NodeBackend, PoolNode};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

pub(crate) const SOON: Duration = Duration::from_mins(1);
const MODEL: &str = "h100";
const USERS: [&str; 3] = ["alice", "bob", "carol"];
/// How often seven run and one alone comes after them: `PILLION_MIG_ROUNDS=100` for as often as the issue asks.
const ROUNDS: u32 = 3;

pub(crate) fn cluster(backend: NodeBackend) -> Cluster {
    let node = PoolNode { is_cut: true, backend, ..PoolNode::new("n1", MODEL, Mechanism::Mps) };
    let spec = ClusterSpec {
        pool_nodes: vec![node],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        // Nobody refuses shards to users: the test books them as the scheduler would.
        job_submit: JobSubmit::Absent,
        // Where agents die on purpose an Epilog would be faster than the next one: what it does is shown here, by the others.
        hooks: backend == NodeBackend::Simulated,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_devices("n1").unwrap();
    cluster
}

/// What a job sees of the files that lead to instances, what it was told, and then its work.
pub(crate) fn tenant(cluster: &Cluster, work: &str) -> String {
    let files = cluster.root().join("run/n1/devices.caps");
    format!(
        "for file in {files}/*; do [ -r \"$file\" ] && echo \"can read $(basename $file)\"; done\n\
         echo told $CUDA_VISIBLE_DEVICES\n{work}",
        files = files.display()
    )
}

/// A job that has all of a GPU, booked by Slurm alone, finds all of its speed.
pub(crate) fn finds_all_of_it(cluster: &Cluster, alone: SlurmJobId, when: &str) {
    let printed = cluster.finished_output(alone, SOON).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let speed = outcome["speed_fraction_mean"].as_f64().unwrap();
    assert!(speed > 0.9, "{when}: {printed}");
    let state = cluster.node("n1").unwrap();
    assert!(!state["State"].contains("DRAIN"), "{when}: {state:?}");
}

/// As the dead man's switch has it.
pub(crate) fn submit_alone(cluster: &Cluster) -> SlurmJobId {
    let alone = "exec pillion-load gemm-hog --memory 60G --seconds 120";
    cluster.submit_as("dave", alone, &["-p", "shared", "-c1", "--mem=10", "--gres=shard:g0:100"]).unwrap()
}

/// Seven held jobs, each with a share of its own written down for the agent that starts then; they begin when it has.
fn seven(cluster: &mut Cluster, round: u32) -> Vec<SlurmJobId> {
    let geometry = Geometry::of_model(MODEL).unwrap();
    let smallest = geometry.plain().last().unwrap();
    let place = |(place, start): (usize, &u8)| {
        (USERS[place % USERS.len()], Slot { profile: smallest.profile, start: *start })
    };
    let places: Vec<(&str, Slot)> = smallest.starts.iter().enumerate().map(place).collect();
    let jobs = held(
        cluster,
        round,
        &places,
        &tenant(cluster, "exec pillion-load gemm-hog --memory 1G --seconds 360000"),
    );
    cluster.start_agent("n1").unwrap();
    for job in &jobs {
        cluster.scontrol(&["release", &job.to_string()]).unwrap();
    }
    jobs
}

/// Held jobs of these users, for each of which a share of this instance is written down for the agent that starts next.
pub(crate) fn held(cluster: &Cluster, round: u32, places: &[(&str, Slot)], script: &str) -> Vec<SlurmJobId> {
    let geometry = Geometry::of_model(MODEL).unwrap();
    let tenants = places.iter().map(|(user, slot)| {
        let sharing = Sharing::Mig { profile: slot.profile, start: slot.start };
        (*user, sharing, geometry.shards(slot.profile))
    });
    held_by(cluster, round, &tenants.collect::<Vec<_>>(), script)
}

/// The same of whatever they are to have.
pub(crate) fn held_by(
    cluster: &Cluster,
    round: u32,
    tenants: &[(&str, Sharing, Shards)],
    script: &str,
) -> Vec<SlurmJobId> {
    let state = cluster.layout().path("agent/n1");
    std::fs::create_dir_all(&state).unwrap();
    // Those of the round before are over, and an agent that had begun meanwhile would have seen it.
    let _ = std::fs::remove_file(state.join("shares.json"));
    let mut table = ShareTable::open(state.join("shares.json"));
    let mut jobs = Vec::new();
    for (decision, (user, sharing, shards)) in (u64::from(round) * 10 + 1..).zip(tenants) {
        let (sharing, shards) = (*sharing, *shards);
        let gres = format!("--gres=shard:g0:{}", shards.count());
        let job = cluster.submit_as(user, script, &["-H", "-p", "shared", "-c1", "--mem=10", &gres]).unwrap();
        let share = Share {
            decision_id: DecisionId(decision),
            start: JobStart { job_id: job, restart_count: 0 },
            uid: UserId(std::fs::metadata(cluster.home(user)).unwrap().uid()),
            gres_types: GresType::new("g0").into(),
            sharing,
            shards,
            memory_bytes: None,
            is_session: false,
            is_plain: false,
        };
        table.insert(share, Own::default()).unwrap();
        jobs.push(job);
    }
    jobs
}

/// Each in an instance of its own, whose files he alone can read.
fn check(cluster: &Cluster, jobs: &[SlurmJobId]) {
    let mut names = BTreeSet::new();
    for job in jobs {
        cluster.wait_for_job(*job, &["RUNNING"], SOON).unwrap();
        let text = cluster.wait_for_output(*job, "told ", SOON).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("told ")).unwrap().to_owned();
        assert!(name.starts_with("MIG-") && names.insert(name), "job {job}: {text}");
    }
    let readable = |job: &SlurmJobId| {
        let text = cluster.job_output(*job).unwrap().text;
        text.lines().filter(|line| line.starts_with("can read ")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    // Of three users the first has three instances, the others two; each has two files.
    let of_all: Vec<BTreeSet<String>> = jobs.iter().map(readable).collect();
    for (place, (job, own)) in jobs.iter().zip(&of_all).enumerate() {
        let count = if place % USERS.len() == 0 { 6 } else { 4 };
        assert_eq!(own.len(), count, "job {job}: {own:?}");
    }
    for (place, of_other) in of_all.iter().enumerate() {
        let strangers =
            of_all[..place].iter().enumerate().filter(|(at, _)| at % USERS.len() != place % USERS.len());
        for (at, own) in strangers {
            assert!(
                own.is_disjoint(of_other),
                "jobs {} and {}: {own:?}, {of_other:?}",
                jobs[at],
                jobs[place]
            );
        }
    }
}

#[test]
fn seven_run_while_all_of_ours_is_dead_and_then_a_job_alone_finds_the_whole_gpu() {
    let mut cluster = cluster(NodeBackend::Simulated);
    let rounds =
        std::env::var("PILLION_MIG_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(ROUNDS);
    for round in 0..rounds {
        let jobs = seven(&mut cluster, round);
        check(&cluster, &jobs);
        cluster.kill_agent("n1", Signal::KILL).unwrap();
        let alone = submit_alone(&cluster);
        for job in &jobs {
            assert_eq!(cluster.job_field(*job, "JobState").unwrap(), "RUNNING");
        }
        assert_eq!(cluster.job_field(alone, "JobState").unwrap(), "PENDING");
        for job in &jobs {
            cluster.scontrol(&["update", &format!("JobId={job}"), "TimeLimit=1"]).unwrap();
            cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
        }
        finds_all_of_it(&cluster, alone, &format!("round {round}"));
    }
}

#[test]
fn where_a_monitor_holds_an_instance_and_no_agent_lives_the_node_is_drained_with_the_reason() {
    let mut cluster = cluster(NodeBackend::Simulated);
    let jobs = seven(&mut cluster, 0);
    check(&cluster, &jobs);
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    let socket = cluster.root().join("run/n1/devices.sock");
    let monitor = pillion_device::simulated::Monitor::open(socket, 0).unwrap();
    for job in &jobs {
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
    }
    let fields = wait_for("the node to be drained", SOON, || {
        let fields = cluster.node("n1")?;
        let is_drained = fields["State"].contains("DRAIN");
        Ok(if is_drained { Look::Ready(fields) } else { Look::NotYet(format!("{fields:?}")) })
    })
    .unwrap();
    assert!(fields["Reason"].contains("is not whole"), "{fields:?}");
    drop(monitor);
}
