//! Where the table of behaviours is run: on the fake in virtual time, or on a real private cluster.

use async_trait::async_trait;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_slurm::{CommandSettings, CommandSlurm, Job, JobState, Slurm};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Whether a job is as it should be.
pub(crate) type JobTest = for<'a> fn(&'a Job) -> bool;

/// A cluster of n1 (features fast, h100) and n2 (slow), each with 8 CPUs, 8000 MiB, devices g0 and g1 of 100 shards and
/// 500 lscratch, in the partitions `shared` and `urgent`.
#[async_trait]
pub(crate) trait Bed: Sync {
    /// Slurm.
    fn slurm(&self) -> &dyn Slurm;
    /// What time it is there.
    fn now(&self) -> UnixTime;
    /// Submits; the program sleeps.
    async fn submit(&self, job: FakeJob) -> SlurmJobId;
    /// Ends a job.
    async fn cancel(&self, job: SlurmJobId);
    /// `scontrol hold`.
    async fn hold(&self, job: SlurmJobId);
    /// `scontrol release`.
    async fn release(&self, job: SlurmJobId);
    /// Drains a node, or resumes it.
    async fn drain(&self, node: &str, on: bool);
    /// Lets a little time pass.
    async fn wait(&self);

    /// The job as Slurm prints it.
    async fn job(&self, id: SlurmJobId) -> Job {
        let scan = self.slurm().jobs(&[]).await.unwrap();
        assert_eq!(scan.dropped_line_count, 0);
        let found = scan.jobs.iter().find(|job| job.id == id);
        found.unwrap_or_else(|| panic!("{id} is not listed")).as_ref().clone()
    }

    /// Waits until the job is as it should be.
    async fn until(&self, id: SlurmJobId, what: &str, is_so: JobTest) -> Job {
        for _ in 0..300 {
            let job = self.job(id).await;
            if is_so(&job) {
                return job;
            }
            self.wait().await;
        }
        panic!("{id} is not {what}: {:#?}", self.job(id).await)
    }

    /// Waits until it runs.
    async fn running(&self, id: SlurmJobId) -> Job {
        self.until(id, "running", |job| job.state == JobState::Running).await
    }

    /// Waits until the scheduler has looked at it and let it wait.
    async fn looked_at(&self, id: SlurmJobId) -> Job {
        let looked =
            |job: &Job| job.state == JobState::Pending && job.reason != pillion_slurm::ReasonKind::None;
        self.until(id, "looked at and waiting", looked).await
    }

    /// Ends all jobs and waits until nothing is booked.
    async fn clear(&self) {
        for _ in 0..300 {
            let jobs = self.slurm().jobs(&[]).await.unwrap().jobs;
            let left: Vec<_> =
                jobs.into_iter().filter(|job| !matches!(job.state, JobState::Ended(_))).collect();
            if left.is_empty() {
                return;
            }
            for job in left.iter().filter(|job| job.state != JobState::Completing) {
                self.cancel(job.id).await;
            }
            self.wait().await;
        }
        panic!("jobs do not end")
    }
}

/// The fake.
pub(crate) struct FakeBed {
    slurm: FakeSlurm,
    now: Mutex<UnixTime>,
}

impl FakeBed {
    pub(crate) fn new() -> Self {
        let now = UnixTime::from_epoch(1_800_000_000);
        let node = |name: &str, features: &[&str]| FakeNode {
            cpus: 8,
            memory_mib: 8000,
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
            other_gres: [("lscratch".to_owned(), 500)].into(),
            ..FakeNode::pool(name, 2)
        };
        let nodes = vec![node("n1", &["fast", "h100"]), node("n2", &["slow"])];
        assert_eq!(
            nodes[0].devices.keys().cloned().collect::<Vec<_>>(),
            [GresType::new("g0"), GresType::new("g1")]
        );
        let partitions = ["shared", "urgent"].map(|name| FakePartition::new(name, &["n1", "n2"])).to_vec();
        // Slurm by itself: what pillion.lua refuses is held against the real one elsewhere.
        let settings = FakeSettings { is_fenced: false, ..FakeSettings::default() };
        Self { slurm: FakeSlurm::new(settings, nodes, partitions, now), now: Mutex::new(now) }
    }
}

#[async_trait]
impl Bed for FakeBed {
    fn slurm(&self) -> &dyn Slurm {
        &self.slurm
    }
    fn now(&self) -> UnixTime {
        *self.now.lock().unwrap()
    }
    async fn submit(&self, job: FakeJob) -> SlurmJobId {
        self.slurm.submit(job)
    }
    async fn cancel(&self, job: SlurmJobId) {
        self.slurm.cancel(job);
    }
    async fn hold(&self, job: SlurmJobId) {
        assert!(self.slurm.hold(job));
    }
    async fn release(&self, job: SlurmJobId) {
        assert!(self.slurm.release_hold(job));
    }
    async fn drain(&self, node: &str, on: bool) {
        self.slurm.set_node_flag(&NodeName::new(node), on.then_some("DRAIN"));
    }
    async fn wait(&self) {
        let now = self.now() + Duration::from_millis(100);
        *self.now.lock().unwrap() = now;
        self.slurm.tick(now);
        assert_eq!(self.slurm.overbooked(), Vec::<String>::new());
    }
}

/// A real cluster of that shape. `PILLION_TEST_SLURM_BIN`: a directory with sbatch, scancel, scontrol and squeue.
pub(crate) struct RealBed {
    slurm: CommandSlurm,
    directory: PathBuf,
}

impl RealBed {
    pub(crate) fn from_environment() -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os("PILLION_TEST_SLURM_BIN")?);
        let settings =
            CommandSettings { binary_directory: Some(directory.clone()), ..CommandSettings::default() };
        Some(Self { slurm: CommandSlurm::new(settings), directory })
    }

    async fn run(&self, program: &str, arguments: &[String]) -> String {
        let mut command = tokio::process::Command::new(self.directory.join(program));
        let output = command.args(arguments).kill_on_drop(true).output().await.unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
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
        let id = self.run("sbatch", &sbatch_options(&job, self.now())).await.parse().unwrap();
        if !job.admin_comment.is_empty() {
            let arguments = [format!("JobId={id}"), format!("AdminComment={}", job.admin_comment)];
            self.run("scontrol", &[&["update".to_owned()], &arguments[..]].concat()).await;
        }
        id
    }
    async fn cancel(&self, job: SlurmJobId) {
        self.run("scancel", &[job.to_string()]).await;
    }
    async fn hold(&self, job: SlurmJobId) {
        self.run("scontrol", &["hold".to_owned(), job.to_string()]).await;
    }
    async fn release(&self, job: SlurmJobId) {
        self.run("scontrol", &["release".to_owned(), job.to_string()]).await;
    }
    async fn drain(&self, node: &str, on: bool) {
        let state = if on { "State=DRAIN" } else { "State=RESUME" };
        let arguments = ["update", &format!("NodeName={node}"), state, "Reason=fidelity"].map(str::to_owned);
        self.run("scontrol", &arguments).await;
    }
    async fn wait(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
