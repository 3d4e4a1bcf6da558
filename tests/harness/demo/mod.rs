//! The demo: a cluster, everything of ours on it, and the story that is told on it. `deploy/demo` starts it in a testbed.
//!
//! The steps of the story are in files beside this one; this one brings the stage up and hands it to whoever stays.

mod answers;
mod cast;
mod compare;
pub mod dashboards;
mod observe;
mod result;
mod stay;
mod steps;
mod story;
mod tell;
mod totals;
mod trials;
mod wide;

use crate::cluster::Cluster;
use crate::cluster::spec::{ClusterSpec, PoolNode, SharingPolicy};
use crate::error::{Result, io_error};
use crate::testbed;
use crate::wait::now;
use cast::Maker;
use pillion_core::device::Mechanism;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What of a kept cluster is reached from the machine, in the order in which `deploy/demo` asks for ports.
const REACHED: [&str; 4] = ["web", "metrics-scheduler", "metrics-n1", "metrics-n2"];

/// What the demo was asked to do.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Where results go, and the wrappers with which a kept cluster is used.
    pub output: PathBuf,
    /// Leave the cluster up when the story has been told.
    pub keep: bool,
    /// No daemons of ours and no story: just a Slurm cluster.
    pub cluster_only: bool,
    /// A cluster of whole GPUs that stays as it is: Pillion looks, and decides in the shadow.
    pub observe: bool,
}

/// One line a step, with the seconds it took.
#[derive(Debug)]
pub struct Progress {
    begun: Instant,
}

impl Progress {
    /// Begins to count.
    pub fn begin() -> Self {
        Self { begun: now() }
    }
    /// Begins to count anew.
    fn restart(&mut self) {
        self.begun = now();
    }
    /// Prints a line for the step that has just ended, and begins to count the next.
    pub fn done(&mut self, step: &str) {
        println!("{:5.1} s  ok    {step}", self.begun.elapsed().as_secs_f64());
        self.begun = now();
    }
}

/// Brings the cluster up, tells the story, and stays if asked to: then it returns only when it is ended from outside.
///
/// # Errors
/// What went wrong first.
pub fn run(options: &DemoOptions) -> Result<()> {
    make_folder(&options.output)?;
    let mut progress = Progress::begin();
    let mut cluster = Cluster::start(if options.observe { observe::spec() } else { spec() })?;
    progress.done(&format!("cluster: {}", cluster.spec().node_names().join(", ")));
    if let Err(error) = show(&mut cluster, options, &mut progress) {
        eprintln!("{}", cluster.log_tails());
        return Err(error);
    }
    progress.restart();
    cluster.stop()?;
    progress.done("cluster ended");
    Ok(())
}

/// The demo's cluster: one node of each maker in the pool, and one with whole GPUs beside it.
fn spec() -> ClusterSpec {
    let node = |name, model, mechanism, maker: Maker| PoolNode {
        features: vec![maker.feature().to_owned()],
        ..PoolNode::new(name, model, mechanism)
    };
    ClusterSpec {
        pool_nodes: vec![
            node("n1", "h200", Mechanism::Mps, Maker::Nvidia),
            node("n2", "max-1550", Mechanism::Ccs, Maker::Intel),
        ],
        policy: SharingPolicy::Any,
        slurm_conf_extra: vec![trials::SLURM_CONF.to_owned()],
        ports: REACHED.map(str::to_owned).into_iter().zip(testbed::forwarded_ports()).collect(),
        ..ClusterSpec::default()
    }
}

/// What happens on the cluster.
fn show(cluster: &mut Cluster, options: &DemoOptions, progress: &mut Progress) -> Result<()> {
    if options.observe {
        return observe::tell(cluster, progress);
    }
    let mut shown = None;
    if !options.cluster_only {
        cluster.start_pillion()?;
        progress.done("Pillion: scheduler, agents, plugin; simulated GPUs");
        shown = Some(story::tell(cluster, &options.output.join("result.json"))?);
    }
    if options.keep {
        stay::hand_over(cluster, &options.output, shown.as_ref())?;
        stay::wait_for_the_end();
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(io_error("make folder", path))
}
