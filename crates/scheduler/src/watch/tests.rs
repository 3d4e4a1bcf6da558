//! What a scan of Slurm changes for others: who may see what, and which nodes are known.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::testing::{self, NOW, at, hello};
use pillion_core::ManualClock;
use pillion_core::mark::Mark;
use pillion_core::report::{Launch, Report, ReportBody};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{Job, NodeAvailability};

/// A pool of the node n1, and nothing seen of it yet.
fn world() -> (Arc<FakeSlurm>, Arc<Context>) {
    let (nodes, partitions) = (vec![FakeNode::pool("n1", 1)], vec![FakePartition::new("shared", &["n1"])]);
    let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
    let context = Context::new(
        Arc::new(ManualClock::new(at(NOW))),
        Arc::clone(&slurm) as Arc<dyn pillion_slurm::Slurm>,
        Arc::new(MemoryStore::new()),
        Arc::new(Agents::default()),
        Settings::default(),
    );
    (slurm, Arc::new(context))
}

#[tokio::test]
async fn what_is_reserved_is_asked_now_and_then_and_believed_until_slurm_says_otherwise() {
    let (slurm, context) = world();
    let clock = Arc::new(ManualClock::new(at(NOW)));
    let context = Arc::new(Context::new(
        Arc::clone(&clock) as _,
        Arc::clone(&context.slurm),
        Arc::new(MemoryStore::new()),
        Arc::new(Agents::default()),
        Settings::default(),
    ));
    let watch = Watch::new(Arc::clone(&context));
    let seen_at = async |seconds: u64| {
        clock.set(at(NOW + seconds));
        slurm.tick(at(NOW + seconds));
        watch
            .tick()
            .await
            .map(|()| context.board().scan.clone().unwrap().node(&NodeName::new("n1")).unwrap().reserved_from)
    };
    let from = at(NOW + 3600);
    assert_eq!(seen_at(0).await.unwrap(), None);
    let one = Reservation { nodes: vec![NodeName::new("n1")], starts_at: from, ends_at: at(NOW + 7200) };
    slurm.set_reservations(vec![one]);
    assert_eq!((seen_at(14).await.unwrap(), seen_at(15).await.unwrap()), (None, Some(from)));
    slurm.set_reservations(Vec::new());
    assert_eq!((seen_at(16).await.unwrap(), seen_at(31).await.unwrap()), (Some(from), None));
}

#[tokio::test]
async fn until_slurm_has_said_what_is_private_users_see_their_own_jobs_only() {
    let (slurm, context) = world();
    let watch = Watch::new(Arc::clone(&context));
    assert!(context.hides_jobs(), "nobody has asked yet");
    slurm.set_down(true);
    watch.tick().await.expect_err("Slurm is away");
    assert!(context.hides_jobs(), "it has not answered");
    slurm.set_down(false);
    watch.tick().await.unwrap();
    assert!(!context.hides_jobs(), "this slurm.conf has no PrivateData");
}

#[tokio::test]
async fn a_node_that_slurm_has_no_more_is_forgotten() {
    let (_, context) = world();
    for node in ["n1", "gone"] {
        context.agents.connect(&hello(node), at(NOW));
    }
    Watch::new(Arc::clone(&context)).tick().await.unwrap();
    let known: Vec<NodeName> = context.agents.all().into_keys().collect();
    assert_eq!(known, [NodeName::new("n1")]);
}

#[tokio::test]
async fn what_slurm_forgot_to_have_started_is_left_alone_for_a_moment_and_once() {
    let (slurm, context) = world();
    let mark = "pillion1;w=x;part=shared;field=node;gres=gpu:1;other=;begin=0".to_owned();
    let job = FakeJob {
        partition: "shared".to_owned(),
        admin_comment: mark,
        begin: Some(at(NOW + 60)),
        ..FakeJob::default()
    };
    let start = JobStart { job_id: slurm.submit(job), restart_count: 0 };
    let watch = Watch::new(Arc::clone(&context));
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "no node has begun it");
    context.board_mut().launched.insert(start, at(NOW));
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "the scan is as old as the word of the node");
    context.board_mut().launched.insert(start, at(NOW - 1));
    watch.tick().await.unwrap();
    assert_eq!(context.board().cooling.get(&start.job_id), Some(&(at(NOW) + FORGOTTEN_PAUSE)));
    context.board_mut().cooling.clear();
    watch.tick().await.unwrap();
    assert!(context.board().cooling.is_empty(), "it waits no second time for it");
}

/// A job that waits with the lease of an earlier scheduler, which had heard its node begin it.
async fn told_before(slurm: &FakeSlurm, context: &Context) -> JobStart {
    let mark = Mark { original_gres: "gpu:1".into(), ..Mark::default() };
    let job = FakeJob {
        gres: "shard:g0:40".to_owned(),
        required_nodes: vec![NodeName::new("n1")],
        admin_comment: mark.leased(at(NOW - 20), 0).to_string(),
        ..FakeJob::default()
    };
    let start = JobStart { job_id: slurm.submit(job), restart_count: 0 };
    let launch = Launch {
        at: at(NOW - 19),
        start,
        step_id: 0,
        decision_id: None,
        gres_types: vec![GresType::new("g0")],
        profile_name: None,
    };
    let body = ReportBody::Launch(launch);
    let report = Report { sequence: 1, body };
    context.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
    start
}

#[tokio::test]
async fn what_slurm_forgot_is_known_to_who_leads_next_as_well() {
    let (slurm, context) = world();
    slurm.set_node_flag(&NodeName::new("n1"), Some("DRAIN"));
    let start = told_before(&slurm, &context).await;
    context.set_leading(false);
    context.set_leading(true);
    Watch::new(Arc::clone(&context)).tick().await.unwrap();
    assert!(context.board().launched.contains_key(&start));
}

#[tokio::test]
async fn who_only_watches_writes_no_rows_and_tells_of_no_violation() {
    let (slurm, context) = world();
    let mark = Mark { workload_digest: "w".into(), ..Mark::default() };
    let job = slurm.submit(FakeJob { admin_comment: mark.to_string(), ..FakeJob::default() });
    let watch = Watch::new(Arc::clone(&context));
    let holder =
        Job { gres: "gpu:1".into(), nodes: vec![NodeName::new("n1")], ..testing::job(JobState::Running) };
    let violating = testing::scan(Some(holder), NodeAvailability::Up);
    let known = async || context.store.jobs(&[job]).await.unwrap().len();
    context.set_leading(false);
    watch.tick().await.unwrap();
    watch.check(&violating, false).await.unwrap();
    assert_eq!((known().await, context.board().violation_count), (0, 0));
    assert!(context.board().scan.is_some(), "it answers questions");
    context.set_leading(true);
    watch.tick().await.unwrap();
    watch.check(&violating, false).await.unwrap();
    assert_eq!((known().await, context.board().violation_count), (1, 1), "what it saw before it led as well");
}
