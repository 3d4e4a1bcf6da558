//! The cluster of a storm, and the order in which a storm passes over it.

use crate::faults::RESCUER;
use crate::{collect, faults, lanes, say};
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::error::{Result, io_error};
use pillion_tests::storm::facts::Facts;
use pillion_tests::storm::options::Options;
use pillion_tests::storm::plan::{GPUS_PER_NODE, KNOWN, POOL_NODES, Plan, USERS, WHOLE_NODES};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that a job may be held back; short, so that a storm meets it often.
const BOUND_SECONDS: u16 = 20;
/// Long enough for a profile on a busy machine: seven looks of the agent.
const KNOWN_SECONDS: u32 = 420;
const SOON: Duration = Duration::from_mins(2);
/// The disks that may become full. A fresh database takes some 60 MiB of the first, its log some hundred more, and every
/// start is remembered.
const SCHEDULER_DISK_MIB: u32 = 320;
const STARTS_PER_MIB: u32 = 10;
const AGENT_DISK_MIB: u32 = 16;

/// Where a storm passes.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    output: PathBuf,
}

impl World {
    /// Starts the cluster and all of Pillion, and runs the known workloads once alone.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let output = options.output.clone().unwrap_or_else(|| "/run/testbed/storm".into());
        std::fs::create_dir_all(&output).map_err(io_error("make folder", &output))?;
        let mut cluster = Cluster::start(spec())?;
        cluster.small_disk("scheduler", SCHEDULER_DISK_MIB + options.starts / STARTS_PER_MIB)?;
        for node in POOL_NODES {
            cluster.small_disk(&format!("agent/{node}"), AGENT_DISK_MIB)?;
        }
        // As whom `pillion-rescue.timer` works, and where its programs are run.
        let home = cluster.home(RESCUER);
        std::fs::create_dir_all(&home).map_err(io_error("make folder", &home))?;
        cluster.start_pillion()?;
        make_known(&cluster)?;
        Ok(Self { cluster, output })
    }

    /// A file of the answer.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.output.join(name)
    }

    /// The storm itself, the calm after it, and what is known then.
    pub(crate) fn storm(&mut self, plan: &Plan, begun: Instant) -> Result<Facts> {
        let journal = lanes::Journal::create(&self.path("sequence.log"), plan, begun)?;
        let mut seen = faults::Seen::default();
        let clients = lanes::Clients::of(&self.cluster)?;
        let outcome = std::thread::scope(|scope| {
            let threads = lanes::start(scope, plan, &clients, &journal);
            let outcome = faults::storm(&mut self.cluster, plan, &journal, &mut seen);
            lanes::join(threads);
            outcome
        });
        outcome?;
        say("everything was mended; waiting for the queue to drain");
        let left = faults::drain(&mut self.cluster, &clients, &journal, &mut seen);
        let facts = collect::facts(&mut self.cluster, plan, &journal, seen, left, f64::from(BOUND_SECONDS));
        self.keep_logs()?;
        facts
    }

    /// Copies what a reader of the stories may want to look up.
    fn keep_logs(&self) -> Result<()> {
        let folder = self.cluster.layout().path("log");
        for entry in std::fs::read_dir(&folder).map_err(io_error("read", &folder))?.flatten() {
            let (from, to) = (entry.path(), self.output.join(entry.file_name()));
            std::fs::copy(&from, &to).map_err(io_error("copy", &from))?;
        }
        Ok(())
    }

    /// Ends the cluster.
    pub(crate) fn end(self) -> Result<()> {
        self.cluster.stop()
    }
}

fn spec() -> ClusterSpec {
    let mechanism = |node: &str| {
        if node == POOL_NODES[0] { ("h200", Mechanism::Mps) } else { ("max-1550", Mechanism::Ccs) }
    };
    let pool = POOL_NODES.map(|node| {
        let (model, mechanism) = mechanism(node);
        PoolNode::new(node, model, mechanism)
    });
    ClusterSpec {
        pool_nodes: pool.into(),
        whole_gpu_node_count: WHOLE_NODES.len(),
        gpus_per_node: GPUS_PER_NODE,
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        bound_seconds: u64::from(BOUND_SECONDS),
        accounting: true,
        // All jobs of a long storm: what plain Slurm forgets after minutes is looked up in its accounting.
        // Who names no CPUs gets them by GPU, in the pool as outside it.
        slurm_conf_extra: vec!["MaxJobCount=200000".into(), "DefCpuPerGPU=2".into()],
        ..ClusterSpec::default()
    }
}

/// Runs each known workload of each user once on each kind of device.
fn make_known(cluster: &Cluster) -> Result<()> {
    let mut jobs = Vec::new();
    for user in USERS {
        std::fs::create_dir_all(cluster.home(user)).map_err(io_error("make folder", Path::new(user)))?;
        for name in KNOWN {
            for other in POOL_NODES {
                let option = format!("--colocate=profile={name}");
                let script = format!("exec pillion-load {name} --seconds {KNOWN_SECONDS}");
                let arguments =
                    [&option, "--gres=gpu:1", "-c1", "--mem=100", "-t10", "-o", "/dev/null", "-x", other];
                jobs.push(cluster.submit_as(user, &script, &arguments)?);
            }
        }
    }
    for job in &jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], SOON)?;
    }
    wait_for("profiles of all that ran", SOON, || {
        let text = cluster.pillion_as("root", &["profile", "--noheader", "--parsable2"])?.stdout()?;
        let count = text.lines().count();
        let seen = format!("{count} of {}", jobs.len());
        Ok(if count >= jobs.len() { Look::Ready(()) } else { Look::NotYet(seen) })
    })
}
