//! Observing over a fake Slurm and a store in memory, and over what could go wrong with either.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::ingest::Ingest;
use crate::testing::{NOW, at, device, hello, summary};
use pillion_core::device::{Reading, TenantUse};
use pillion_core::heartbeat::Mode;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::LessonKind;
use pillion_core::report::{
    ActivityMeans, AgentHello, DeviceSample, DeviceSamples, JobSummary, Report, ReportBody, ToAgent,
};
use pillion_core::{GresType, JobStart, ManualClock, NodeName, UnixTime, UserId};
use pillion_fake_slurm::{FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::Ending;
use pillion_store::HeldDevice;
use pillion_store::prelude::*;
use std::time::Duration;
use tokio::sync::mpsc;

/// Alice's job of that number on n1, which began at [`NOW`].
pub(crate) fn observed(number: u32) -> ObservedJob {
    ObservedJob {
        start: JobStart { job_id: SlurmJobId::plain(number), restart_count: 0 },
        inner_id: number,
        uid: UserId(2001),
        user: "alice".to_owned(),
        account: "physics".to_owned(),
        partition: "gpu".to_owned(),
        workload: WorkloadKey::new("alice/w"),
        submitted_at: at(NOW),
        started_at: at(NOW),
        ended_at: None,
        ending: Some(Ending::Completed),
        exit: None,
        nodes: vec![NodeName::new("n1"), NodeName::new("n2")],
        gres: "gpu:1".to_owned(),
        devices: Vec::new(),
    }
}

pub(crate) fn held(node: &str, device: &str) -> HeldDevice {
    HeldDevice::new(NodeName::new(node), GresType::new(device))
}

pub(crate) const SCRIPT: &str = "#!/bin/sh\n#SBATCH --gres=gpu:1\nsrun python train.py\n";

pub(crate) fn job() -> FakeJob {
    FakeJob {
        partition: "gpu".to_owned(),
        gres: "gpu:1".to_owned(),
        name: "train".to_owned(),
        script: Some(SCRIPT.to_owned()),
        ..FakeJob::default()
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) slurm: Arc<FakeSlurm>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) context: Arc<Context>,
    pub(crate) observe: Observe,
    ingest: Ingest,
    sequence: Mutex<u64>,
    _inbox: mpsc::Receiver<ToAgent>,
}

/// Of a scheduler that observes the partition gpu.
pub(crate) fn settings(mode: Mode, pool: &[&str]) -> Settings {
    Settings {
        pool: pool.iter().map(|&name| name.to_owned()).collect(),
        observed: vec!["gpu".to_owned()],
        mode,
        ..Settings::default()
    }
}

impl World {
    /// An ordinary node w1 in the partition gpu, of so many devices, whose agent observes.
    fn new(device_count: u32) -> Self {
        Self::with(device_count, &[])
    }

    fn with(device_count: u32, pool: &[&str]) -> Self {
        Self::in_mode(Mode::Off, device_count, pool)
    }

    pub(crate) fn in_mode(mode: Mode, device_count: u32, pool: &[&str]) -> Self {
        Self::with_settings(settings(mode, pool), device_count)
    }

    pub(crate) fn with_settings(settings: Settings, device_count: u32) -> Self {
        let mut node = FakeNode::pool("w1", device_count);
        node.devices.values_mut().for_each(|shards| *shards = 0);
        node.cpus = 20_000;
        node.memory_mib = 100_000_000;
        let partitions = vec![FakePartition::new("gpu", &["w1"]), FakePartition::new("both", &["w1"])];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), vec![node], partitions, at(NOW)));
        let (clock, store) = (Arc::new(ManualClock::new(at(NOW))), Arc::new(MemoryStore::default()));
        let (agents, devices) = (Agents::default(), (0..2).map(device).collect());
        let greeting = AgentHello { devices, observes: true, ..hello("w1") };
        let (_, inbox) = agents.connect(&greeting, at(NOW));
        let (foreign, kept) = (Arc::clone(&slurm) as _, Arc::clone(&store) as _);
        let context =
            Arc::new(Context::new(Arc::clone(&clock) as _, foreign, kept, Arc::new(agents), settings));
        let (observe, ingest) = (Observe::new(Arc::clone(&context)), Ingest::new(Arc::clone(&context)));
        Self { clock, slurm, store, context, observe, ingest, sequence: Mutex::new(0), _inbox: inbox }
    }

    /// Time goes on, Slurm with it, and the observer looks.
    pub(crate) async fn wait(&self, seconds: u64) {
        self.pass(seconds);
        self.observe.tick().await.unwrap();
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.slurm.tick(self.context.now());
    }

    /// The agent of w1 tells something; whether it counts as arrived.
    pub(crate) async fn tell(&self, body: ReportBody) -> bool {
        let sequence = {
            let mut sequence = self.sequence.lock().unwrap();
            *sequence += 1;
            *sequence
        };
        self.store.record_devices(&NodeName::new("w1"), &[device(0), device(1)], at(NOW)).await.unwrap();
        self.ingest.report(&NodeName::new("w1"), "j", &Report { sequence, body }).await.unwrap().is_some()
    }

    /// So many seconds of samples of one device, and a look at their end.
    async fn sampled(&self, seconds: u64, device: &str, busy: f64, job: Option<SlurmJobId>) {
        for _ in 0..seconds / 10 {
            self.pass(10);
            let tenants = job.map(|job_id| TenantUse {
                job_id,
                restart_count: 0,
                memory_bytes: None,
                process_count: 1,
                progress: None,
            });
            let reading = Reading::from([(Metric::SmActiveFraction, busy)]);
            let sample = DeviceSample {
                gres_type: GresType::new(device),
                reading,
                tenants: tenants.into_iter().collect(),
            };
            let samples = DeviceSamples { recorded_at: self.context.now(), samples: vec![sample] };
            assert!(self.tell(ReportBody::Samples(samples)).await);
        }
        self.observe.tick().await.unwrap();
    }

    pub(crate) fn run(&self, job: SlurmJobId, device: &str, began: UnixTime) -> ReportBody {
        let means = ActivityMeans(Metrics::from([(Metric::SmActiveFraction, 0.5)]));
        ReportBody::ObservedRun(Box::new(JobSummary {
            start: JobStart { job_id: job, restart_count: 0 },
            gres_type: GresType::new(device),
            started_at: began,
            ended_at: self.context.now(),
            memory_bytes_peak: Some(7 << 30),
            solo_means: Some(means),
            solo_sample_count: 100,
            ..summary(JobStart { job_id: job, restart_count: 0 })
        }))
    }

    pub(crate) fn jobs(&self) -> Vec<ObservedJob> {
        self.context.board().observed.jobs.clone()
    }

    async fn profiles(&self) -> Vec<StoredProfile> {
        self.store.profiles().await.unwrap()
    }
}

#[tokio::test]
async fn what_is_seen_of_a_job_is_known_of_it_in_the_pool() {
    let world = World::new(2);
    let id = world.slurm.submit(job());
    world.wait(5).await;
    let jobs = world.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0].devices, [held("w1", "g0")]);
    let began = jobs[0].started_at;
    world.sampled(120, "g0", 0.5, Some(id)).await;
    world.slurm.finish(id, Ending::Completed);
    world.pass(1);
    assert!(world.tell(world.run(id, "g0", began)).await);
    world.wait(2).await;
    assert_eq!(world.profiles().await, [], "another part may come");
    world.wait(11).await;
    let (kept, lesson) = world.store.observed_job(id).await.unwrap().unwrap();
    assert_eq!(lesson, Some(Lesson::from(LessonKind::Alone)));
    let profiles = world.profiles().await;
    let [StoredProfile { profile, .. }] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!(
        profile.workload,
        of_script("alice", "train", SCRIPT.as_bytes()),
        "as pillion.lua would name it"
    );
    assert_eq!((profile.run_count, profile.memory_bytes_peak), (1, Some(7 << 30)));
    assert!(kept.devices[0].process_at.is_some() && kept.devices[0].seen_seconds >= 60.0, "{kept:?}");
    // Neither a managed job's, nor each of its samples.
    assert_eq!(world.store.job(id).await.unwrap(), None);
    assert_eq!(
        world.context.agents.readings([(&NodeName::new("w1"), &GresType::new("g0"))].into_iter()).len(),
        1
    );
}

/// All reconcilers of a scheduler that has no pool, over jobs that come and go: whatever they ask of Slurm changes nothing.
#[tokio::test]
async fn a_scheduler_that_only_observes_only_reads() {
    only_reads(Mode::Off).await;
}

/// The same where it decides, too.
#[tokio::test]
async fn a_scheduler_that_decides_in_the_shadow_only_reads() {
    let calls = only_reads(Mode::Shadow).await;
    assert!(calls.iter().any(|call| matches!(call, FakeCall::NodeCounts { .. })));
}

async fn only_reads(mode: Mode) -> Vec<FakeCall> {
    let world = World::in_mode(mode, 2, &[]);
    let engine = Arc::new(crate::engine::Engine::new(Arc::clone(&world.context)));
    let tasks = crate::reconcilers::all(Duration::from_secs(2), &world.context, &engine);
    let ids = [world.slurm.submit(job()), world.slurm.submit(FakeJob { script: None, ..job() })];
    for second in 0..40 {
        if second == 10 {
            // They find no GPU free, and wait.
            world.slurm.submit(job());
            world.slurm.submit(job());
        }
        world.pass(5);
        for task in &tasks {
            task.reconciler.tick().await.unwrap();
        }
        if second == 20 {
            world.slurm.finish(ids[0], Ending::Failed);
            world.slurm.user_requeue(ids[1]);
        }
    }
    let calls = world.slurm.journal();
    let other: Vec<&FakeCall> = calls.iter().filter(|call| !call.is_reading()).collect();
    assert!(other.is_empty(), "{other:#?}");
    let asked = |wanted: fn(&FakeCall) -> bool| calls.iter().any(wanted);
    assert!(asked(|call| matches!(call, FakeCall::BatchScript { .. })));
    assert!(asked(|call| matches!(call, FakeCall::HeldDevices { .. })));
    assert!(asked(|call| matches!(call, FakeCall::SubmitLine { .. })));
    assert_eq!(world.store.active_decisions().await.unwrap(), [], "nothing that could be carried out");
    calls
}

#[tokio::test]
async fn without_a_script_a_job_is_known_by_its_submit_line() {
    let world = World::new(2);
    let line = Some("srun -J train --gres=gpu:1 python train.py --seed 7".to_owned());
    world.slurm.submit(FakeJob { script: None, submit_line: line, ..job() });
    world.slurm.submit(FakeJob { script: None, ..job() });
    world.wait(5).await;
    world.wait(5).await;
    let mut workloads: Vec<String> = world.jobs().iter().map(|job| job.workload.to_string()).collect();
    workloads.sort();
    let mut expected = [
        of_submit_line("alice", "train", "srun -J train --gres=gpu:1 python train.py --seed 18").to_string(),
        of_submit_line("alice", "train", "").to_string(),
    ];
    expected.sort();
    assert_eq!(workloads, expected, "where nobody keeps accounts, by its name");
}

/// As it was: one interactive job in front, and nothing behind it was known or learnt until slurmdbd answered.
#[tokio::test]
async fn while_slurmdbd_hangs_jobs_with_a_script_are_known_all_the_same() {
    let world = World::new(2);
    world.slurm.set_accounting_down(true);
    let interactive = world.slurm.submit(FakeJob { script: None, ..job() });
    let batch = world.slurm.submit(job());
    for _ in 0..2 {
        world.pass(5);
        world.observe.tick().await.expect_err("one submit line could not be read");
    }
    let is_known = |id| {
        let jobs = world.jobs();
        let job = jobs.iter().find(|job| job.start.job_id == id).expect("it was seen");
        !job.workload.as_str().is_empty()
    };
    assert_eq!([interactive, batch].map(is_known), [false, true]);
    let written = world.store.open_observed().await.unwrap();
    assert!(written.iter().any(|job| job.start.job_id == batch && !job.workload.as_str().is_empty()));
    world.slurm.set_accounting_down(false);
    world.wait(5).await;
    assert!(is_known(interactive));
}

#[tokio::test]
async fn a_node_of_the_pool_is_not_observed_whatever_else_it_stands_in() {
    let world = World::with(2, &["both"]);
    world.slurm.submit(job());
    world.wait(5).await;
    assert_eq!((world.jobs(), world.context.board().observed.nodes.len()), (vec![], 0));
}

#[tokio::test]
async fn thousands_of_jobs_are_asked_for_little_by_little() {
    let world = World::new(1_000);
    for _ in 0..1_000 {
        world.slurm.submit(job());
    }
    world.wait(5).await;
    let since = world.slurm.journal().len();
    world.wait(5).await;
    let calls = world.slurm.journal().split_off(since);
    let count = |wanted: fn(&FakeCall) -> bool| calls.iter().filter(|call| wanted(call)).count();
    assert_eq!(count(|call| matches!(call, FakeCall::BatchScript { .. })), SCRIPTS_PER_TICK);
    assert_eq!(count(|call| matches!(call, FakeCall::HeldDevices { .. })), 1);
    assert!(calls.len() < SCRIPTS_PER_TICK + 8, "{}", calls.len());
    for _ in 0..45 {
        world.wait(5).await;
    }
    let jobs = world.jobs();
    assert_eq!(jobs.iter().filter(|job| job.devices.len() == 1).count(), 1_000);
    assert_eq!(world.store.open_observed().await.unwrap().len(), 1_000);
}

#[tokio::test]
async fn while_slurmctld_hangs_nothing_is_forgotten_and_nothing_believed() {
    let world = World::new(2);
    let id = world.slurm.submit(job());
    world.wait(5).await;
    world.slurm.set_down(true);
    world.clock.advance(Duration::from_mins(10));
    assert!(world.observe.tick().await.is_err());
    assert_eq!(world.jobs().len(), 1);
    // Of a job that began meanwhile nobody can say anything yet: its agent keeps it.
    let body = world.run(SlurmJobId::plain(id.id + 1), "g0", world.context.now());
    assert!(!world.tell(body).await);
    world.slurm.set_down(false);
    world.wait(10).await;
    assert!(world.jobs().iter().all(|job| job.start.job_id == id), "{:?}", world.jobs());
}

#[tokio::test]
async fn a_scheduler_that_is_started_anew_goes_on_and_closes_what_is_gone() {
    let world = World::new(2);
    let (first, second) = (world.slurm.submit(job()), world.slurm.submit(job()));
    world.wait(5).await;
    world.sampled(70, "g0", 0.01, None).await;
    // Another one takes over, in whose absence a job ended that Slurm has forgotten since.
    let other = Observe::new(Arc::clone(&world.context));
    world.slurm.finish(second, Ending::Completed);
    world.pass(301);
    world.pass(301);
    other.tick().await.unwrap();
    let jobs = world.jobs();
    let own = jobs.iter().find(|job| job.start.job_id == first).unwrap();
    assert!(own.devices[0].seen_seconds >= 60.0 && own.ended_at.is_none(), "{own:?}");
    other.tick().await.unwrap();
    let (gone, _) = world.store.observed_job(second).await.unwrap().unwrap();
    assert!(gone.ended_at.is_some() && gone.ending.is_none(), "{gone:?}");
    assert_eq!(world.store.open_observed().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_job_beside_another_is_no_run_alone() {
    let world = World::new(2);
    let id = world.slurm.submit(job());
    world.wait(5).await;
    let began = world.jobs()[0].started_at;
    world.pass(300);
    world.slurm.finish(id, Ending::Completed);
    world.pass(1);
    let ReportBody::ObservedRun(run) = world.run(id, "g0", began) else { unreachable!() };
    let shared = JobSummary { shared_seconds: 200.0, ..*run };
    assert!(world.tell(ReportBody::ObservedRun(Box::new(shared))).await);
    world.wait(1).await;
    world.wait(11).await;
    assert_eq!(world.profiles().await, []);
    let lesson = world.store.observed_job(id).await.unwrap().unwrap().1;
    assert_eq!(lesson.map(|lesson| lesson.kind), Some(LessonKind::Shared));
}

#[tokio::test]
async fn a_job_of_two_gpus_is_a_workload_of_its_own_and_no_kin_of_what_runs_on_one() {
    let world = World::new(2);
    let id = world.slurm.submit(FakeJob { gres: "gpu:2".to_owned(), ..job() });
    world.wait(5).await;
    assert_eq!(world.jobs()[0].devices, [held("w1", "g0"), held("w1", "g1")]);
    let began = world.jobs()[0].started_at;
    world.pass(300);
    world.slurm.finish(id, Ending::Completed);
    world.pass(1);
    assert!(world.tell(world.run(id, "g0", began)).await);
    world.wait(12).await;
    assert_eq!(world.profiles().await, [], "the other one's part is not there");
    assert!(world.tell(world.run(id, "g1", began)).await);
    world.wait(1).await;
    let profiles = world.profiles().await;
    let [StoredProfile { profile, .. }] = &profiles[..] else { panic!("{profiles:?}") };
    assert!(profile.workload.as_str().starts_with("alice/2x-"), "{profile:?}");
    assert_eq!((profile.run_count, &profile.family), (1, &None));
    let names = world.store.workload_names(std::slice::from_ref(&profile.workload)).await.unwrap();
    assert_eq!(names[&profile.workload].name.as_str(), "train");
}

/// Its agent observed, and is one of the pool now: what it kept of before keeps none of its other reports.
#[tokio::test]
async fn where_nothing_is_observed_any_more_a_run_is_not_waited_for() {
    let mut world = World::new(2);
    let settings = Settings { observed: Vec::new(), ..world.context.settings.clone() };
    let (foreign, kept) = (Arc::clone(&world.slurm) as _, Arc::clone(&world.store) as _);
    let agents = Arc::clone(&world.context.agents);
    world.context = Arc::new(Context::new(Arc::clone(&world.clock) as _, foreign, kept, agents, settings));
    world.ingest = Ingest::new(Arc::clone(&world.context));
    let body = world.run(SlurmJobId::plain(77), "g0", at(NOW));
    world.clock.advance(Duration::from_secs(10));
    assert!(world.tell(body).await, "it is acknowledged, and dropped");
    assert_eq!(world.store.unlearned_observed(10).await.unwrap(), []);
}

#[tokio::test]
async fn a_job_that_never_came_to_its_device_is_told_so_in_the_end() {
    let world = World::new(2);
    let id = world.slurm.submit(job());
    world.wait(5).await;
    world.slurm.finish(id, Ending::Completed);
    world.wait(100).await;
    assert_eq!(world.store.observed_job(id).await.unwrap().unwrap().1, None);
    world.wait(600).await;
    let lesson = world.store.observed_job(id).await.unwrap().unwrap().1.unwrap();
    assert_eq!(lesson, Lesson::nothing("no process of it was seen on a device"));
}
