//! Names from the queue and from launches, over the fake Slurm and the store in memory.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::ingest::Ingest;
use crate::testing::{NOW, at};
use crate::watch::Watch;
use pillion_core::mark::Mark;
use pillion_core::name::digest;
use pillion_core::report::{Launch, Report, ReportBody};
use pillion_core::{JobStart, ManualClock, NodeName};
use pillion_fake_slurm::{FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::Slurm;

struct World {
    slurm: Arc<FakeSlurm>,
    clock: Arc<ManualClock>,
    context: Arc<Context>,
    names: Names,
}

impl World {
    fn new() -> Self {
        let (nodes, partitions) =
            (vec![FakeNode::pool("n1", 1)], vec![FakePartition::new("shared", &["n1"])]);
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
        let (clock, store) = (Arc::new(ManualClock::new(at(NOW))), Arc::new(MemoryStore::new()));
        let foreign = Arc::clone(&slurm) as Arc<dyn Slurm>;
        let now = Arc::clone(&clock) as Arc<dyn pillion_core::Clock>;
        let context = Context::new(now, foreign, store, Arc::new(Agents::default()), Settings::default());
        let context = Arc::new(context);
        Self { slurm, clock, names: Names::new(Arc::clone(&context)), context }
    }

    fn submit(&self, name: &str, digest: &str) -> SlurmJobId {
        let mark = Mark { workload_digest: digest.into(), ..Mark::default() };
        let begin = Some(at(NOW + 3600));
        let name = name.to_owned();
        self.slurm.submit(FakeJob { name, admin_comment: mark.to_string(), begin, ..FakeJob::default() })
    }

    /// One of several GPUs, that are named.
    fn submit_wide(&self, name: &str, digest: &str, devices: &str) -> SlurmJobId {
        let fallback = Some(devices.parse().unwrap());
        let mark = Mark { workload_digest: digest.into(), fallback, ..Mark::default() };
        let (begin, name) = (Some(at(NOW + 3600)), name.to_owned());
        self.slurm.submit(FakeJob { name, admin_comment: mark.to_string(), begin, ..FakeJob::default() })
    }

    async fn tick(&self, seconds: u64) {
        self.clock.set(at(NOW + seconds));
        Watch::new(Arc::clone(&self.context)).tick().await.unwrap();
        self.names.tick().await.unwrap();
    }

    async fn name(&self, digest: &str) -> Option<String> {
        let key = WorkloadKey::new(format!("alice/{digest}"));
        let names = self.context.store.workload_names(std::slice::from_ref(&key)).await.unwrap();
        names.get(&key).map(|known| known.name.to_string())
    }

    /// Of how many jobs each call asked.
    fn asked(&self) -> Vec<usize> {
        let jobs = |call| if let FakeCall::JobNames { jobs, .. } = call { Some(jobs.len()) } else { None };
        self.slurm.journal().into_iter().filter_map(jobs).collect()
    }

    async fn launch(&self, job_id: SlurmJobId, sequence: u64, profile_name: &str) {
        let (start, at) = (JobStart { job_id, restart_count: 0 }, self.context.now());
        let profile_name = Some(profile_name.to_owned());
        let launch =
            Launch { at, start, step_id: 0, decision_id: None, gres_types: Vec::new(), profile_name };
        let report = Report { sequence, body: ReportBody::Launch(launch) };
        let ingest = Ingest::new(Arc::clone(&self.context));
        // As if it had started: an agent is believed of what Slurm says runs on its node.
        let mut job = self.context.store.job(job_id).await.unwrap().unwrap();
        (job.node, job.started_at) = (Some(NodeName::new("n1")), Some(at));
        self.context.store.record_jobs(&[job], at).await.unwrap();
        ingest.report(&NodeName::new("n1"), "journal", &report).await.unwrap().expect("it is known");
    }
}

/// How a workload scales is told of it whatever the number of its GPUs, and so it needs a name also where it never ran on one.
#[tokio::test]
async fn one_script_on_several_numbers_of_gpus_is_called_alike_on_each_and_on_any() {
    let world = World::new();
    for devices in ["g0,g1", "g0,g1,g2,g3"] {
        world.submit_wide("train", "cc", devices);
    }
    world.tick(2).await;
    for key in ["2x-cc", "4x-cc", "cc"] {
        assert_eq!(world.name(key).await.as_deref(), Some("train"), "{key}");
    }
    world.tick(4).await;
    assert_eq!(world.asked(), [2], "each job once, and never again");
}

#[tokio::test]
async fn one_call_names_all_that_has_no_name_and_none_is_made_without_need() {
    let world = World::new();
    world.tick(0).await;
    assert_eq!(world.asked(), [0; 0], "nobody is there");
    for name in ["bert", "bert", "evil\n9;RUNNING"] {
        world.submit(name, if name == "bert" { "aa" } else { "bb" });
    }
    world.tick(2).await;
    assert_eq!(world.asked(), [2], "one job of each workload");
    assert_eq!(world.name("aa").await.as_deref(), Some("bert"));
    assert_eq!(world.name("bb").await.as_deref(), Some("evil_9_RUNNING"));
    world.submit("other", "aa");
    world.tick(4).await;
    assert_eq!(world.asked(), [2], "it has a name");
    assert_eq!(world.name("aa").await.as_deref(), Some("bert"), "and keeps it");
}

#[tokio::test]
async fn a_workload_without_a_usable_name_is_asked_for_once_a_minute() {
    let world = World::new();
    world.submit("\n", "aa");
    for seconds in [0, 2, 30, 59, 61, 63] {
        world.tick(seconds).await;
    }
    assert_eq!(world.asked(), [1, 1]);
    assert_eq!(world.name("aa").await, None);
}

#[tokio::test]
async fn slurm_may_not_answer_and_is_asked_again() {
    let world = World::new();
    world.submit("bert", "aa");
    world.clock.set(at(NOW));
    Watch::new(Arc::clone(&world.context)).tick().await.unwrap();
    world.slurm.set_down(true);
    assert!(world.names.tick().await.is_err());
    world.slurm.set_down(false);
    world.tick(70).await;
    assert_eq!(world.name("aa").await.as_deref(), Some("bert"));
}

#[tokio::test]
async fn a_profile_names_its_own_workload_and_no_other() {
    let world = World::new();
    let (own, script) = (digest("profile:my-bert"), "0123456789abcdef");
    let (profiled, plain) = (world.submit("run-17", &own), world.submit("train.sh", script));
    world.tick(0).await;
    assert_eq!(world.name(&own).await.as_deref(), Some("run-17"), "until it starts");
    world.launch(profiled, 1, "my-bert").await;
    world.launch(plain, 2, "my-bert").await;
    assert_eq!(world.name(&own).await.as_deref(), Some("my-bert"));
    assert_eq!(world.name(script).await.as_deref(), Some("train.sh"), "its key says another thing");
    world.tick(2).await;
    assert_eq!(world.name(&own).await.as_deref(), Some("my-bert"), "a job's name does not take its place");
}
