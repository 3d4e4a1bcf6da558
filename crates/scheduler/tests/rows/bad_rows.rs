//! One bad row stops nobody: for each reconciler a row of Postgres that cannot be read back, or one that Postgres refuses, and
//! the work for the others is done in the same tick.

use crate::fixtures::{
    at, commit, device, ended_job, gres, launch, node, pair, plain, run, start, summary, summary_report, told,
};
use crate::support::fresh_store;
use pillion_core::decision::MemberState;
use pillion_core::mark::Mark;
use pillion_core::name::NameSource;
use pillion_core::report::{AgentHello, Launch, ProgressPart, Report, ReportBody, ToAgent};
use pillion_core::{Clock, JobStart, ManualClock, SlurmJobId, WorkloadKey};
use pillion_fake_slurm::{FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::failure::Judge;
use pillion_scheduler::failure::requeue::Requeuer;
use pillion_scheduler::housekeep::Housekeep;
use pillion_scheduler::idle::Idle;
use pillion_scheduler::ingest::Ingest;
use pillion_scheduler::misses::Misses;
use pillion_scheduler::names::Names;
use pillion_scheduler::profile::Profile;
use pillion_scheduler::release::Release;
use pillion_scheduler::renew::Renew;
use pillion_scheduler::strays::Strays;
use pillion_scheduler::train::{Train, Training};
use pillion_scheduler::watch::Watch;
use pillion_slurm::Slurm;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{
    DecisionFilter, Event, JobRecord, Requeue, RequeueCause, RunAccount, Store, StoredProfile,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) struct World {
    pub(crate) store: Arc<PgStore>,
    clock: Arc<ManualClock>,
    pub(crate) slurm: Arc<FakeSlurm>,
    pub(crate) context: Arc<Context>,
    _orders: mpsc::Receiver<ToAgent>,
}

impl World {
    /// A pool of one node with two devices, whose agent is there.
    pub(crate) async fn new() -> Option<Self> {
        Self::of(vec![FakeNode::pool("n1", 3)], vec![FakePartition::new("shared", &["n1"])]).await
    }

    /// The same, in a cluster of these nodes and partitions.
    pub(crate) async fn of(nodes: Vec<FakeNode>, partitions: Vec<FakePartition>) -> Option<Self> {
        let store = Arc::new(fresh_store().await?);
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(0)));
        let clock = Arc::new(ManualClock::new(at(0)));
        let agents = Agents::default();
        let devices = ["g0", "g1", "g2"].map(|name| {
            let gres_type = pillion_core::GresType::new(name);
            pillion_core::device::DeviceDescription { gres_type, ..device() }
        });
        store.record_devices(&node(), &devices, at(0)).await.expect("recorded");
        let hello = AgentHello {
            node: node(),
            devices: devices.into(),
            sent_at: at(0),
            ..pillion_test_kit::hello("n1")
        };
        let (_, orders) = agents.connect(&hello, at(0));
        let training = Training { observations_min: 1, ..Training::default() };
        let settings =
            Settings { training, history_kept: Some(Duration::from_hours(1)), ..Settings::default() };
        let context = Context::new(
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::clone(&slurm) as Arc<dyn Slurm>,
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::new(agents),
            settings,
        );
        Some(Self { store, clock, slurm, context: Arc::new(context), _orders: orders })
    }

    pub(crate) fn world(&self) -> Arc<Context> {
        Arc::clone(&self.context)
    }

    pub(crate) async fn sql(&self, text: String) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(self.store.pool()).await.expect("spoilt");
    }

    /// From now on Postgres refuses rows of a table that are so.
    pub(crate) async fn refuse(&self, table: &str, what: &str) {
        let number = table.len() + what.len();
        self.sql(format!(
            "alter table {table} add constraint poison_{number} check (not ({what})) not valid"
        ))
        .await;
    }

    fn submit(&self, digest: &str, name: &str) -> SlurmJobId {
        let mark = Mark { workload_digest: digest.into(), ..Mark::default() };
        let (begin, name) = (Some(at(3600)), name.to_owned());
        self.slurm.submit(FakeJob { admin_comment: mark.to_string(), begin, name, ..FakeJob::default() })
    }

    pub(crate) async fn scan(&self, seconds: u32) {
        self.clock.set(at(seconds));
        self.slurm.tick(at(seconds));
        Watch::new(self.world()).tick().await.expect("a scan");
    }

    /// Jobs that are over, each with its run.
    pub(crate) async fn runs(&self, ids: impl IntoIterator<Item = u32>) {
        for id in ids {
            self.store.record_jobs(&[ended_job(id)], at(80)).await.expect("recorded");
            let report = summary_report(u64::from(id), summary(id));
            self.store.ingest(&node(), "j", &report).await.expect("stored");
        }
    }

    pub(crate) async fn lesson(&self, id: u32) -> String {
        let lesson = self.store.lesson(start(id)).await.expect("read").expect("looked at");
        lesson.detail
    }

    pub(crate) fn passed_over(&self, task: &str) -> u64 {
        self.context.tally.counts().passed_over.get(task).copied().unwrap_or(0)
    }

    pub(crate) async fn kinds(&self, id: u32) -> Vec<String> {
        self.store
            .events(plain(id))
            .await
            .expect("read")
            .into_iter()
            .map(|event| event.kind.to_string())
            .collect()
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_profiled_is_marked_and_passed_over() {
    let Some(world) = World::new().await else { return };
    world.runs(1..=4).await;
    world.refuse("run_account", "job_id = '1'").await;
    world.sql("update job_run set neighbour_starts = '{nonsense}' where job_id = '2'".to_owned()).await;
    world.sql("update job set uid = -1 where job_id = '3'".to_owned()).await;
    Profile::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    assert!(world.lesson(1).await.starts_with("it cannot be profiled: "), "{}", world.lesson(1).await);
    assert_eq!(
        world.lesson(2).await,
        "table job_run, column neighbour_starts, row 2+0 on g1: cannot be read"
    );
    assert_eq!(world.lesson(3).await, "its job cannot be read");
    assert_eq!(world.passed_over("profile"), 1);
    let profiled = world.store.lesson(start(4)).await.expect("read").expect("the good one");
    assert!(!profiled.detail.contains("cannot"), "{profiled:?}");
    assert_eq!(world.store.unprofiled_runs(10).await.expect("read"), [], "none is in the way");
    assert!(world.store.figures().unreadable["job_run"] > 0);
}

/// Three jobs that write 1 and then a number without measure: sums of what they gained overflowed in Postgres, at the oldest
/// run, for ever.
#[tokio::test]
async fn a_counter_without_measure_costs_its_user_his_speed_and_nobody_else_anything() {
    let Some(world) = World::new().await else { return };
    let store = &world.store;
    world.runs([9]).await;
    let known = StoredProfile {
        profile: pillion_core::profile::WorkloadProfile {
            throughput_per_second: Some(1.0),
            ..crate::fixtures::profile("alice/1f0c").profile
        },
        ..crate::fixtures::profile("alice/1f0c")
    };
    let account: RunAccount = crate::fixtures::account(9);
    store
        .profile_run(start(9), &gres(), &account, &crate::fixtures::LESSON, Some(&known))
        .await
        .expect("kept");
    for id in [1, 3, 5] {
        store.record_jobs(&[ended_job(id), ended_job(id + 1)], at(80)).await.expect("recorded");
        let decision = commit(store.as_ref(), &[pair(id, id + 1)]).await[0];
        run(store.as_ref(), decision, id).await;
        let told = summary(id);
        let told = pillion_core::report::JobSummary {
            shared: ProgressPart { progress: Some(1e307), seconds: 1.0 },
            neighbours: vec![start(id + 1)],
            ..told
        };
        store.ingest(&node(), "k", &summary_report(u64::from(id), told)).await.expect("stored");
    }
    world.runs([20]).await;
    Profile::new(world.world()).tick().await.expect("no sum overflows");
    assert_eq!(store.unprofiled_runs(10).await.expect("read"), [], "the run after them was profiled too");
    let filter = DecisionFilter { job_id: Some(plain(1)), ..DecisionFilter::default() };
    let decided = store.decisions(&filter).await.expect("read");
    assert_eq!(decided[0].members[0].measured_speed_fraction, None, "a speed that cannot be is none");
    assert_eq!(world.passed_over("profile"), 0, "and the rest of each run counts");
}

#[tokio::test]
async fn a_run_that_cannot_be_judged_keeps_no_other_from_it() {
    let Some(world) = World::new().await else { return };
    world.scan(1).await;
    world.runs(1..=3).await;
    world.refuse("job_run", "job_id = '1' and is_judged").await;
    world.sql("update job_run set signs = '[]' where job_id = '2'".to_owned()).await;
    Judge::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let open = world.store.unjudged_runs(10).await.expect("read");
    let open: Vec<JobStart> = open.iter().map(|run| run.summary.start).collect();
    assert_eq!(open, [start(1)], "what cannot even be marked is left, and all others are judged");
    assert_eq!(world.passed_over("judge"), 2, "the judgement, and the mark");
}

#[tokio::test]
async fn a_job_that_cannot_be_written_down_does_not_hide_the_queue() {
    let Some(world) = World::new().await else { return };
    let jobs: Vec<SlurmJobId> = (0..5).map(|_| world.submit("aa", "bert")).collect();
    world.refuse("job", &format!("job_id = '{}'", jobs[2])).await;
    world.scan(1).await;
    let known = world.store.jobs(&jobs).await.expect("read");
    assert_eq!(known.len(), 4, "{known:?}");
    assert_eq!(world.passed_over("watch"), 1);
    assert!(world.context.fresh_scan().is_some_and(|scan| scan.jobs.values().count() == 5));
    world.sql(format!("update job set uid = -1 where job_id = '{}'", jobs[0])).await;
    world.scan(2).await;
    assert_eq!(
        world.store.jobs(&jobs).await.expect("read").len(),
        4,
        "a row that cannot be read is written anew"
    );
}

#[tokio::test]
async fn a_decision_that_the_store_refuses_or_cannot_read_keeps_no_other_from_being_made() {
    let Some(world) = World::new().await else { return };
    let jobs = [world.submit("aa", "one"), world.submit("bb", "two"), world.submit("cc", "three")];
    world.scan(1).await;
    let lost = commit(world.store.as_ref(), &[pair(801, 802)]).await[0];
    world.sql("update pairing_member set estimate = '{}' where job_id = '802'".to_owned()).await;
    world.refuse("pairing_member", &format!("job_id = '{}'", jobs[0])).await;
    Engine::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let active = world.store.active_decisions().await.expect("read");
    let mut decided: Vec<SlurmJobId> =
        active.iter().flat_map(|one| &one.members).map(|member| member.plan.start.job_id).collect();
    decided.sort();
    assert_eq!(decided, jobs[1..], "all but the one");
    assert!(active.iter().all(|one| one.id != lost));
    assert_eq!(world.store.decision(lost).await.expect("read"), None, "as if it were not there");
    assert_eq!(world.passed_over("engine"), 1);
    assert!(world.context.board().cooling.contains_key(&jobs[0]), "it is not tried at every plan");
}

#[tokio::test]
async fn an_explanation_that_is_refused_keeps_no_decision_from_being_made() {
    let Some(world) = World::new().await else { return };
    let jobs: Vec<SlurmJobId> = (0..5).map(|_| world.submit("aa", "one")).collect();
    world.scan(1).await;
    let is_any = format!("job_id in ('{}', '{}')", jobs[3], jobs[4]);
    world.refuse("explanation", &is_any).await;
    Engine::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    assert!(!world.store.active_decisions().await.expect("read").is_empty());
    assert!(world.passed_over("engine") > 0);
}

#[tokio::test]
async fn a_decision_that_cannot_be_carried_on_keeps_no_other_from_it() {
    let Some(world) = World::new().await else { return };
    let jobs = [world.submit("aa", "one"), world.submit("bb", "two")];
    world.scan(1).await;
    Engine::new(world.world()).tick().await.expect("planned");
    for one in world.store.active_decisions().await.expect("read") {
        let member = one.members[0].plan.start;
        world.store.member_prepared(one.id, member, at(1)).await.expect("prepared");
    }
    world.refuse("pairing_member", &format!("job_id = '{}' and state = 'released'", jobs[0])).await;
    world.scan(2).await;
    Release::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let active = world.store.active_decisions().await.expect("read");
    let state = |id: SlurmJobId| {
        let members = active.iter().flat_map(|one| &one.members);
        members.into_iter().find(|member| member.plan.start.job_id == id).map(|member| member.state)
    };
    assert_eq!(state(jobs[1]), Some(MemberState::Released));
    assert_eq!(state(jobs[0]), Some(MemberState::Planned));
    assert_eq!(world.passed_over("release"), 1);
}

#[tokio::test]
async fn a_job_whose_renewal_is_refused_keeps_no_other_from_being_renewed() {
    let Some(world) = World::new().await else { return };
    let jobs = [world.submit("aa", "one"), world.submit("bb", "two")];
    world.scan(3500).await;
    assert!(world.slurm.hold(jobs[0]), "after the look");
    // Something was planned since the start, and no device that was free before it holds the switch back.
    world.context.board_mut().planned_at = Some(at(3500));
    world.context.board_mut().idle = Idle::default();
    Renew::new(world.world()).tick().await.expect("one refusal is no reason to stop");
    let renewed = world.slurm.journal().into_iter().any(|call| {
        let start_time = |update: &pillion_slurm::JobUpdate| update.start_time.is_some();
        matches!(&call, FakeCall::Update { ok: true, jobs: of, update, .. } if of == &[jobs[1]] && start_time(update))
    });
    assert!(renewed, "{:?}", world.slurm.journal());
}

#[tokio::test]
async fn a_stray_that_cannot_be_told_of_keeps_no_other_from_its_own_request() {
    let mut outside = FakeNode::pool("w1", 1);
    outside.devices.values_mut().for_each(|shards| *shards = 0);
    let partitions = vec![FakePartition::new("shared", &["n1"]), FakePartition::new("gpu", &["w1"])];
    let Some(world) = World::of(vec![FakeNode::pool("n1", 3), outside], partitions).await else { return };
    world.scan(1).await;
    let stranded = || {
        let mark = Mark {
            original_partition: "gpu".into(),
            original_field: "node".into(),
            original_gres: "gpu:1".into(),
            ..Mark::default()
        };
        let (begin, admin_comment) = (Some(at(3600)), mark.to_string());
        let id = world.slurm.submit(FakeJob { begin, admin_comment, ..FakeJob::default() });
        let moved = pillion_slurm::JobUpdate { partition: Some("gpu".to_owned()), ..Default::default() };
        world.slurm.foreign_update(&[id], &moved).expect("moved");
        id
    };
    let jobs = [stranded(), stranded()];
    world.refuse("event", &format!("job_id = '{}'", jobs[0])).await;
    Strays::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    for id in jobs {
        assert_eq!(world.slurm.job(id).map(|job| job.gres), Some("gpu:1".into()));
    }
    assert_eq!(world.store.events(jobs[1]).await.expect("read").len(), 1);
    assert_eq!(world.passed_over("strays"), 1);
}

#[tokio::test]
async fn a_requeue_that_cannot_be_read_or_settled_keeps_no_other_from_it() {
    let Some(world) = World::new().await else { return };
    world.scan(1).await;
    for id in 1..=3 {
        let requeue = Requeue {
            cause: RequeueCause::Evicted,
            start: start(id),
            node: node(),
            decided_at: at(1),
            reason: "an operator said so".to_owned(),
        };
        let told =
            Event { at: at(1), kind: "evicted".into(), job_id: None, node: None, detail: String::new() };
        assert!(world.store.intend_requeue(&requeue, &told).await.expect("intended"));
    }
    world.sql("update job_requeue set job_id = 'x' where job_id = '1'".to_owned()).await;
    world.refuse("event", "job_id = '2'").await;
    world.scan(3).await;
    Requeuer::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    assert_eq!(world.kinds(3).await, ["requeue-refused"], "Slurm does not know it");
    assert_eq!(world.passed_over("requeue"), 1);
}

#[tokio::test]
async fn an_observation_that_cannot_be_read_keeps_no_model_from_being_trained() {
    let Some(world) = World::new().await else { return };
    for first in [1, 3, 5] {
        for own in [first, first + 1] {
            world.store.record_observation(&told(first, own, 0.9), at(1)).await.expect("recorded");
        }
    }
    world.sql("update observation set starts = '{x,y}' where '3+0' = any(starts)".to_owned()).await;
    world
        .sql("update observed_tenant set speed_fraction = 1e307 where workload = 'alice/5'".to_owned())
        .await;
    let observed = world.store.observations(0, 0).await.expect("read");
    assert_eq!(observed.len(), 2);
    let speeds = observed[1].observation.tenants.iter().map(|tenant| tenant.speed_fraction);
    assert_eq!(speeds.collect::<Vec<_>>(), [None, Some(0.9)], "an older release kept any speed");
    Train::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let models = world.store.models(0).await.expect("read");
    assert_eq!(models.first().map(|model| model.observation_count), Some(2));
}

#[tokio::test]
async fn a_start_that_cannot_be_looked_up_keeps_no_other_from_being_counted() {
    let Some(world) = World::new().await else { return };
    let mark = Mark { workload_digest: "aa".into(), ..Mark::default() }.to_string();
    let submit = || world.slurm.submit(FakeJob { admin_comment: mark.clone(), ..FakeJob::default() });
    let jobs = [submit(), submit(), submit()];
    let misses = Misses::new(world.world());
    for seconds in [1, 12, 24] {
        world.scan(seconds).await;
        misses.tick().await.expect("nothing is due");
    }
    world.scan(36).await;
    let told = Launch { start: JobStart { job_id: jobs[1], restart_count: 0 }, ..launch(1) };
    let report = Report { sequence: 1, body: ReportBody::Launch(told) };
    world.store.ingest(&node(), "j", &report).await.expect("stored");
    world.sql("update job_launch set step_id = -1".to_owned()).await;
    world.sql("delete from event".to_owned()).await;
    world.refuse("event", &format!("job_id = '{}'", jobs[0])).await;
    let anew = Misses::new(world.world());
    for seconds in [37, 50] {
        world.scan(seconds).await;
        anew.tick().await.expect("one bad row is no reason to stop");
    }
    let told = world.store.events(jobs[2]).await.expect("read");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(world.passed_over("misses"), 1);
}

#[tokio::test]
async fn a_name_that_is_refused_keeps_no_other_from_being_kept() {
    let Some(world) = World::new().await else { return };
    for (digest, name) in [("aa", "one"), ("bb", "two"), ("cc", "three")] {
        world.submit(digest, name);
    }
    world.refuse("workload_name", "name = 'two'").await;
    world.scan(1).await;
    Names::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let keys = ["aa", "bb", "cc"].map(|digest| WorkloadKey::new(format!("alice/{digest}")));
    let names = world.store.workload_names(&keys).await.expect("read");
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(world.passed_over("names"), 1);
    assert_eq!(NameSource::Job.to_string(), "job");
}

#[tokio::test]
async fn samples_that_cannot_be_deleted_keep_no_history_from_it() {
    let Some(world) = World::new().await else { return };
    let old = Event { at: at(0), kind: "old".into(), job_id: None, node: None, detail: String::new() };
    world.store.record_event(&old).await.expect("kept");
    world.store.ingest(&node(), "j", &crate::fixtures::samples_report(1, 0)).await.expect("stored");
    world
        .sql(
            "create function never() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
            create trigger never before delete on device_sample for each row execute function never()"
                .to_owned(),
        )
        .await;
    world.clock.set(at(3_000_000));
    Housekeep::new(world.world()).tick().await.expect_err("it says what it could not do");
    assert_eq!(world.store.event_count(&"old".into()).await.expect("read"), 0);
}

#[tokio::test]
async fn a_report_that_is_refused_is_acknowledged_and_those_after_it_are_kept() {
    let Some(world) = World::new().await else { return };
    let ingest = Ingest::new(world.world());
    world.refuse("job_launch", "job_id = '1'").await;
    for id in [1, 2] {
        world.store.record_jobs(&[running(id)], at(20)).await.expect("recorded");
        let decision_id = commit(world.store.as_ref(), &[pair(id, id + 100)]).await[0];
        run(world.store.as_ref(), decision_id, id).await;
        let told = Launch { decision_id: Some(decision_id), ..launch(id) };
        let report = Report { sequence: u64::from(id), body: ReportBody::Launch(told) };
        let answer = ingest.report(&node(), "j", &report).await.expect("no reason to stop");
        assert_eq!(answer, Some(ToAgent::Ack(u64::from(id))));
    }
    assert_eq!(world.store.launches(start(2)).await.expect("read").len(), 1);
    assert_eq!(world.passed_over("ingest"), 1);
}

fn running(id: u32) -> JobRecord {
    JobRecord { ended_at: None, ending: None, exit: None, ..ended_job(id) }
}
