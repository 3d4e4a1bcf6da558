//! Slurm's double, on which the simulation and most tests of the scheduler stand, held against the Slurm of this run: the same table of
//! behaviours, row by row.

use async_trait::async_trait;
use pillion_core::device::Mechanism;
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::FakeJob;
use pillion_fake_slurm::behaviours::{Bed, behaviours};
use pillion_slurm::{CommandSettings, CommandSlurm, Slurm};
use pillion_tests::cluster::spec::{JobSubmit, PoolNode};
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

/// A private cluster of the table's shape.
struct RealBed {
    slurm: CommandSlurm,
    cluster: Cluster,
}

impl RealBed {
    fn start() -> Self {
        let node = |name: &str| PoolNode::new(name, "h200", Mechanism::Mps);
        let cluster = Cluster::start(ClusterSpec {
            pool_nodes: vec![
                node("n1").with_features(&["fast", "h100"]),
                node("n2").with_features(&["slow"]),
            ],
            whole_gpu_node_count: 0,
            gpus_per_node: 2,
            gres_extra: vec!["lscratch:500".to_owned()],
            cpus_per_node: 8,
            memory_mib_per_node: 8000,
            // Slurm by itself.
            job_submit: JobSubmit::Absent,
            spank: false,
            hooks: false,
            slurm_conf_extra: vec!["PartitionName=urgent Nodes=n1,n2".to_owned()],
            ..ClusterSpec::default()
        })
        .unwrap();
        let conf = Some(cluster.layout().slurm_conf());
        let slurm = CommandSlurm::new(CommandSettings { conf, ..CommandSettings::default() });
        Self { slurm, cluster }
    }

    fn run(&self, program: &str, arguments: &[String]) -> String {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.cluster.program(program).args(arguments).stdout().unwrap().trim().to_owned()
    }
}

/// The options of sbatch that make this job.
fn sbatch_options(job: &FakeJob, now: UnixTime) -> Vec<String> {
    let mut options = vec!["--parsable".to_owned(), "--output=/dev/null".to_owned()];
    let mut option = |name: &str, value: String| {
        if !value.is_empty() {
            options.push(format!("--{name}={value}"));
        }
    };
    let names = |nodes: &[NodeName]| nodes.iter().map(|node| node.0.clone()).collect::<Vec<_>>().join(",");
    option("partition", job.partition.clone());
    option("gres", job.gres.clone());
    option("gpus", job.gres_per_job.clone().unwrap_or_default().replace("gpu:", ""));
    option("nodes", job.node_count.to_string());
    option("cpus-per-task", job.cpus.to_string());
    option("mem", format!("{}M", job.memory_mib));
    option("constraint", job.features.clone());
    option("nodelist", names(&job.required_nodes));
    option("exclude", names(&job.excluded_nodes));
    option("time", job.time_limit_seconds.map(|s| s.div_ceil(60).to_string()).unwrap_or_default());
    let seconds = job.begin.map(|begin| begin.seconds_since(now).round());
    option("begin", seconds.map(|seconds| format!("now+{seconds}")).unwrap_or_default());
    option("dependency", job.dependency.map(|id| format!("afterany:{id}")).unwrap_or_default());
    if let Some(array) = &job.array {
        let tasks: Vec<String> = array.tasks.iter().map(ToString::to_string).collect();
        let throttle = array.throttle.map(|most| format!("%{most}")).unwrap_or_default();
        option("array", format!("{}{throttle}", tasks.join(",")));
    }
    option("job-name", job.name.clone());
    option("wrap", "sleep 1000".to_owned());
    if job.held {
        options.push("--hold".to_owned());
    }
    if !job.requeue {
        options.push("--no-requeue".to_owned());
    }
    options
}

#[async_trait]
impl Bed for RealBed {
    fn slurm(&self) -> &dyn Slurm {
        &self.slurm
    }
    fn now(&self) -> UnixTime {
        pillion_core::Clock::now(&pillion_core::SystemClock)
    }
    async fn submit(&self, job: FakeJob) -> SlurmJobId {
        let id = self.run("sbatch", &sbatch_options(&job, self.now())).parse().unwrap();
        if !job.admin_comment.is_empty() {
            let comment = format!("AdminComment={}", job.admin_comment);
            self.run("scontrol", &["update".to_owned(), format!("JobId={id}"), comment]);
        }
        id
    }
    async fn cancel(&self, job: SlurmJobId) {
        self.run("scancel", &[job.to_string()]);
    }
    async fn hold(&self, job: SlurmJobId) {
        self.run("scontrol", &["hold".to_owned(), job.to_string()]);
    }
    async fn release(&self, job: SlurmJobId) {
        self.run("scontrol", &["release".to_owned(), job.to_string()]);
    }
    async fn drain(&self, node: &str, on: bool) {
        let state = if on { "State=DRAIN" } else { "State=RESUME" };
        let arguments = ["update", &format!("NodeName={node}"), state, "Reason=fidelity"].map(str::to_owned);
        self.run("scontrol", &arguments);
    }
    async fn reserve(&self, node: Option<(&str, UnixTime)>) {
        let arguments = match node {
            Some((node, begin)) => {
                let seconds = begin.seconds_since(self.now()).round();
                let begin = format!("StartTime=now+{seconds}");
                let node = format!("Nodes={node}");
                [
                    "create",
                    "reservation",
                    "ReservationName=fidelity",
                    &begin,
                    "Duration=60",
                    &node,
                    "Users=root",
                ]
                .map(str::to_owned)
                .to_vec()
            }
            None => ["delete", "ReservationName=fidelity"].map(str::to_owned).to_vec(),
        };
        self.run("scontrol", &arguments);
    }
    async fn wait(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn slurm_does_what_its_double_does() {
    let bed = RealBed::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(behaviours(&bed));
}
