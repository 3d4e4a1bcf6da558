//! Pillion on a test cluster that has whole GPUs only: a scheduler without a pool and agents that observe. No plugin, no module of
//! lua, no hook: the cluster is asked for without them, `ClusterSpec::observed`. Or beside a pool: agents of both kinds, one scheduler.

use crate::cluster::Cluster;
use crate::cluster::spec::{ClusterSpec, JobSubmit};
use crate::error::Result;
use crate::wait::{Look, wait_for};
use rustix::process::Signal;
use std::time::Duration;

/// How long agents and scheduler may take to find each other.
const CONNECTED_DEADLINE: Duration = Duration::from_mins(1);

impl ClusterSpec {
    /// So many nodes `w1`, `w2`, .. of whole GPUs in the partition `gpu`, and nothing of ours in Slurm.
    pub fn observed(node_count: usize) -> Self {
        Self {
            pool_nodes: Vec::new(),
            whole_gpu_node_count: node_count,
            job_submit: JobSubmit::Absent,
            spank: false,
            hooks: false,
            ..Self::default()
        }
    }
}

impl Cluster {
    /// Starts what observes: devices, scheduler, agents; and waits until they know each other.
    ///
    /// # Errors
    /// What the first that failed said.
    pub fn start_observing(&mut self) -> Result<()> {
        let nodes = self.spec().whole_gpu_node_names();
        for node in &nodes {
            self.start_devices(node)?;
        }
        self.start_scheduler()?;
        for node in &nodes {
            self.start_observing_agent(node)?;
        }
        self.wait_for_agents(nodes.len())
    }

    /// Starts everything of a pool, and agents that observe the nodes of whole GPUs; waits until all agents are known. The
    /// scheduler's configuration names `gpu` under `[observe]`: [`ClusterSpec::scheduler_conf_extra`].
    ///
    /// # Errors
    /// What the first that failed said.
    pub fn start_pillion_and_observing(&mut self) -> Result<()> {
        self.start_pillion()?;
        for node in self.spec().whole_gpu_node_names() {
            self.start_observing_agent(&node)?;
        }
        self.wait_for_agents(self.spec().node_names().len())
    }

    /// Waits until so many agents are connected.
    ///
    /// # Errors
    /// Where they are not, after a minute.
    pub fn wait_for_agents(&self, wanted: usize) -> Result<()> {
        wait_for("agents that are connected", CONNECTED_DEADLINE, || {
            let status = self.pillion_as("root", &["status", "--json"])?.stdout()?;
            let count = status.matches("\"connected\": true").count();
            Ok(if count == wanted { Look::Ready(()) } else { Look::NotYet(status) })
        })
    }

    /// Ends all of it.
    ///
    /// # Errors
    /// Where one does not end.
    pub fn stop_observing(&mut self) -> Result<()> {
        for node in self.spec().whole_gpu_node_names() {
            self.kill_agent(&node, Signal::TERM)?;
        }
        self.kill_scheduler(Signal::TERM)
    }
}
