//! The agent as a program, against simulated devices, a scheduler of our own making and tasks in processes of their own.
//! Needs root (or user namespaces' root): the driver starts MPS daemons for root only.

#[cfg(test)]
mod cost;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod instances;
#[cfg(test)]
mod memory_limit;
#[cfg(test)]
mod node;
#[cfg(test)]
mod observe;
#[cfg(test)]
mod outsider;
#[cfg(test)]
mod scheduler;
#[cfg(test)]
mod session;
#[cfg(test)]
mod sets;
#[cfg(test)]
mod task;

use node::TestNode;
use pillion_core::device::Mechanism;
use pillion_core::handoff::Verdict;
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::metric::{Metric, MetricSource};
use pillion_core::report::{JobSummary, Launch, ReportBody};
use pillion_core::setup::SetupFaultKind;
use pillion_core::share::{Share, Sharing};
use pillion_core::{DecisionId, Fraction, GresType, JobStart, Shards, SlurmJobId, UserId};
use pillion_device::{MpsControl as _, MpsPlace, MpsState};
use scheduler::{FakeScheduler, eventually};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn start(job: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(job), restart_count: 0 }
}

fn share(job: u32, mechanism: Mechanism) -> Share {
    Share {
        decision_id: DecisionId(u64::from(job) + 100),
        start: start(job),
        uid: UserId(0),
        gres_types: GresType::new("g1").into(),
        sharing: Sharing::by(mechanism, Some(Fraction::clamped(0.6)), Some(2)),
        shards: Shards::try_new(60).expect("in range"),
        memory_bytes: None,
        is_session: false,
        is_plain: false,
    }
}

fn summary_of(body: &ReportBody, job: u32) -> Option<&JobSummary> {
    if let ReportBody::JobSummary(summary) = body {
        Some(&**summary).filter(|it| it.start == start(job))
    } else {
        None
    }
}

fn launch_of(body: &ReportBody, job: u32) -> Option<&Launch> {
    if let ReportBody::Launch(launch) = body {
        Some(launch).filter(|it| it.start == start(job))
    } else {
        None
    }
}

fn has_tenant(body: &ReportBody, job: u32) -> bool {
    let ReportBody::Samples(samples) = body else { return false };
    samples.samples.iter().flat_map(|sample| &sample.tenants).any(|tenant| tenant.job_id == start(job).job_id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_reaches_the_task_and_its_run_comes_back() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let mut agent = node.start_agent();
    let hello = scheduler.hello().await;
    assert_eq!(hello.devices.len(), 2);
    assert_eq!(hello.decision_ids, []);
    assert!(hello.setup.is_some(), "it looked how its node is set up");
    scheduler.prepare(share(33, Mechanism::Mps)).await;
    assert_eq!(scheduler.result(start(33)).await.error, None);
    assert!(node.path("jobs/33").exists(), "the plugin's mark");

    let mut task = node.start_task(33, 1, Some("yes"));
    let reply = task.reply().await;
    assert_eq!((reply.verdict, reply.decision_id), (Verdict::Decided, Some(DecisionId(133))));
    let variable = |name: &str| reply.set.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str());
    assert_eq!(variable("CUDA_VISIBLE_DEVICES"), Some(hello.devices[1].uuid.as_str()));
    assert_eq!(variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("60"));
    assert_eq!(variable("PILLION_DECISION"), Some("133"));

    let launch = scheduler.report(|body| launch_of(body, 33).cloned()).await;
    assert_eq!(launch.decision_id, Some(DecisionId(133)));
    assert_eq!(launch.gres_types, [GresType::new("g1")]);
    scheduler.report(|body| has_tenant(body, 33).then_some(())).await;
    let mps = node.driver().status(&MpsPlace::device(1)).unwrap().expect("a daemon on that device");
    assert_eq!(mps.client_pids.len(), 1, "the task came to it by its environment");
    assert_eq!(node.driver().status(&MpsPlace::device(0)).unwrap(), None);
    eventually("some looks at the task", || task.progress().is_some_and(|progress| progress > 30.0)).await;
    task.end();
    let summary = scheduler.report(|body| summary_of(body, 33).cloned()).await;
    assert_eq!(summary.gres_type, GresType::new("g1"));
    assert!(summary.solo_sample_count > 0 && summary.neighbours.is_empty(), "{summary:?}");
    let means = summary.solo_means.as_ref().expect("it was alone");
    assert_eq!(means.0.source(Metric::SmActiveFraction), Some(MetricSource::Simulated));
    assert!(
        means.0.fraction(Metric::SmActiveFraction).is_some_and(|it| it.value() > 0.0)
            && means.0.get(Metric::PowerWatts).is_some()
    );
    assert!(summary.energy_joules.is_some_and(|energy| energy > 0.0));
    assert!(summary.memory_bytes_peak > Some(0) && summary.process_count_peak == 1);
    assert!(summary.solo.progress.is_some_and(|progress| progress > 0.0), "{summary:?}");
    eventually("the daemon to go with its last tenant", || {
        node.driver().status(&MpsPlace::device(1)).unwrap().is_none()
    })
    .await;
    eventually("the mark to go", || !node.path("jobs/33").exists()).await;
    assert!(!node.path("progress/33+0").exists());
    assert_eq!(agent.terminate(), Some(0));
    assert!(!node.handoff_socket().exists());
}

/// The agent's page, empty while it does not listen.
fn metrics(node: &TestNode) -> String {
    let Ok(mut stream) = TcpStream::connect(node.metrics()) else { return String::new() };
    let mut page = String::new();
    let asked = stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .and_then(|()| stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n"))
        .and_then(|()| stream.read_to_string(&mut page));
    assert!(asked.is_ok(), "{asked:?}");
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_is_told_of_the_devices_and_of_no_job() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    scheduler.prepare(share(77_077, Mechanism::Mps)).await;
    assert_eq!(scheduler.result(start(77_077)).await.error, None);
    let mut task = node.start_task(77_077, 1, Some("yes"));
    task.reply().await;
    let expected = [
        "pillion_uplink_connected{node=\"n1\"} 1.0",
        "pillion_device_tenants{node=\"n1\",gres_type=\"g0\"} 0.0",
        "pillion_device_tenants{node=\"n1\",gres_type=\"g1\"} 1.0",
        "pillion_device_mps_up{node=\"n1\",gres_type=\"g1\"} 1.0",
        "pillion_device_shards{node=\"n1\",gres_type=\"g1\"} 60.0",
        "pillion_share_setups_total{node=\"n1\",mechanism=\"mps\",result=\"prepared\"} 1.0",
        "pillion_task_starts_total{node=\"n1\",answer=\"decided\"} 1.0",
        "pillion_device_power_watts{node=\"n1\",gres_type=\"g1\"} ",
    ];
    eventually("all of it on the page", || {
        let page = metrics(&node);
        expected.iter().all(|line| page.contains(line))
    })
    .await;
    assert!(!metrics(&node).contains("77077"));
    task.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_address_for_metrics_is_taken_goes_on_without() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _holder = TcpListener::bind(node.metrics()).unwrap();
    let _agent = node.start_agent();
    assert_eq!(scheduler.hello().await.devices.len(), 2);
    let said = || std::fs::read_to_string(node.path("agent.log")).unwrap();
    eventually("one sentence", || said().matches("for metrics").count() == 1).await;
    assert!(said().contains("going on without them"), "{}", said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_library_says_so_and_holds_nobody_up() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::without_library(scheduler.port());
    let mut agent = node.start_agent();
    let hello = scheduler.hello().await;
    assert_eq!(hello.devices, []);
    let faults = hello.setup.expect("it looked").faults;
    let fault = faults.iter().find(|fault| fault.kind == SetupFaultKind::NoDevices).expect("it has none");
    assert!(fault.detail.contains("/nowhere/libnvidia-ml.so.1 cannot be loaded"), "{fault:?}");
    let mut task = node.start_task(33, 1, Some("yes"));
    assert_eq!(task.reply().await.verdict, Verdict::Unknown, "as on stock Slurm");
    assert_eq!(node.log().matches("cannot be loaded").count(), 1, "{}", node.log());
    task.end();
    assert_eq!(agent.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_comes_late_is_taken_up_beside_those_that_are_there() {
    let scheduler = FakeScheduler::start();
    let mut node = TestNode::new("h200", scheduler.port());
    node.stop_driver();
    node.set_device_count(1);
    node.start_driver();
    let mut agent = node.start_agent();
    assert_eq!(scheduler.hello().await.devices.len(), 1);
    node.stop_driver();
    node.set_device_count(2);
    node.start_driver();
    let hello = scheduler.hello().await;
    let names: Vec<_> = hello.devices.iter().map(|device| device.gres_type.as_str()).collect();
    assert_eq!(names, ["g0", "g1"]);
    scheduler.prepare(share(33, Mechanism::Mps)).await;
    assert_eq!(scheduler.result(start(33)).await.error, None, "on the one that came");
    scheduler.conditions("both to be looked at", |conditions| conditions.len() == 2).await;
    assert_eq!(agent.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_decision_is_measured_and_counted_as_a_miss() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    // Decided for another start of the same job, and for another user.
    let requeued = Share { start: JobStart { restart_count: 1, ..start(40) }, ..share(40, Mechanism::Mps) };
    scheduler.prepare(requeued).await;
    scheduler.prepare(Share { uid: UserId(12), ..share(41, Mechanism::TimeSliced) }).await;
    scheduler.result(start(41)).await;
    for job in [40, 41] {
        let mut task = node.start_task(job, 1, Some("yes"));
        let reply = task.reply().await;
        assert_eq!((reply.verdict, reply.decision_id), (Verdict::Unknown, None));
        assert!(reply.set.iter().all(|(name, _)| name == "PILLION_PROGRESS"), "{reply:?}");
        assert_eq!(scheduler.report(|body| launch_of(body, job).cloned()).await.decision_id, None);
        scheduler.report(|body| has_tenant(body, job).then_some(())).await;
        task.end();
        scheduler.report(|body| summary_of(body, job).cloned()).await;
    }
    // A decision for a device that Slurm did not give.
    scheduler.prepare(share(42, Mechanism::TimeSliced)).await;
    scheduler.result(start(42)).await;
    let reply = node.start_task(42, 0, Some("yes")).reply().await;
    assert_eq!(reply.verdict, Verdict::Unknown);
    // A step without the option, of a job that nobody decided on, is none of ours.
    let reply = node.start_task(43, 1, None).reply().await;
    assert!(reply.verdict == Verdict::Unknown && reply.set.is_empty());
    assert!(!scheduler.bodies().iter().any(|body| launch_of(body, 43).is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_set_up_is_an_answer() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("max-1550", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    let error = |share: Share| {
        let scheduler = &scheduler;
        async move {
            let start = share.start;
            scheduler.prepare(share).await;
            scheduler.result(start).await.error
        }
    };
    assert_eq!(error(share(1, Mechanism::Ccs)).await, None);
    let four = Share { sharing: Sharing::Ccs { mode: 4 }, ..share(2, Mechanism::Ccs) };
    assert!(error(four).await.is_some_and(|it| it.contains("is in ccs mode 2 while anybody runs")));
    assert!(
        error(share(3, Mechanism::Mps))
            .await
            .is_some_and(|it| it.contains("can be shared by ccs, not by mps"))
    );
    let nowhere = Share { gres_types: GresType::new("g9").into(), ..share(4, Mechanism::TimeSliced) };
    assert!(error(nowhere).await.is_some_and(|it| it.contains("has no device g9")));
    scheduler.revoke(DecisionId(101), start(1)).await;
    eventually("the share to be taken back", || scheduler.is_revoked(start(1))).await;
    let four = Share { sharing: Sharing::Ccs { mode: 4 }, ..share(5, Mechanism::Ccs) };
    assert_eq!(error(four).await, None, "the card is free again");
    let mut task = node.start_task(5, 1, Some("yes"));
    let reply = task.reply().await;
    assert!(reply.set.contains(&("ZEX_NUMBER_OF_CCS".into(), "0:4".into())), "{reply:?}");
    scheduler.report(|body| has_tenant(body, 5).then_some(())).await;
    scheduler.revoke(DecisionId(105), start(5)).await;
    eventually("an answer", || scheduler.is_revoked(start(5))).await;
    assert!(scheduler.result(start(5)).await.error.is_some_and(|it| it.contains("runs already")));
    task.end();
}

/// The scheduler hears of an end from Slurm, often before the agent's next look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_just_left_is_not_in_the_way_of_the_next() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    for job in [60, 62, 64] {
        scheduler.prepare(share(job, Mechanism::Mps)).await;
        assert_eq!(scheduler.result(start(job)).await.error, None);
        let mut task = node.start_task(job, 1, Some("yes"));
        assert_eq!(task.reply().await.verdict, Verdict::Decided);
        scheduler.report(|body| has_tenant(body, job).then_some(())).await;
        task.end();
        scheduler.prepare(share(job + 1, Mechanism::TimeSliced)).await;
        assert_eq!(scheduler.result(start(job + 1)).await.error, None);
        scheduler.revoke(DecisionId(u64::from(job) + 101), start(job + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_schedulers_the_one_that_takes_the_agent_is_kept_to() {
    let (mut first, mut second) = (FakeScheduler::start(), FakeScheduler::start());
    first.stop();
    let node = TestNode::new("h200", first.port());
    node.knows_another(second.port());
    let _agent = node.start_agent();
    second.hello().await;
    second.report(|body| matches!(body, ReportBody::Samples(_)).then_some(())).await;
    first.start_again().await;
    second.stop();
    first.hello().await;
    first.report(|body| matches!(body, ReportBody::Samples(_)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_scheduler_away_every_report_arrives_once() {
    let mut scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    scheduler.report(|body| matches!(body, ReportBody::Samples(_)).then_some(())).await;
    // Stops taking note of what arrives, then goes away: those reports must come again.
    scheduler.stop_acknowledging();
    let mut task = node.start_task(60, 1, Some("yes"));
    task.reply().await;
    scheduler.report(|body| has_tenant(body, 60).then_some(())).await;
    scheduler.stop();
    eventually("the task to go on", || task.progress().is_some_and(|progress| progress > 10.0)).await;
    task.end();
    eventually("the stream to break", || node.log().contains("not connected to the scheduler")).await;
    eventually("its end to be noticed", || !node.path("progress/60+0").exists()).await;
    scheduler.start_again().await;
    scheduler.report(|body| summary_of(body, 60).cloned()).await;
    scheduler.all_acknowledged(&node).await;
    let received = scheduler.received();
    let sequences: BTreeSet<u64> = received.iter().map(|(_, sequence, _)| *sequence).collect();
    let last = *sequences.last().expect("some");
    assert_eq!(sequences.len() as u64, last, "no gap: {sequences:?}");
    assert!(received.len() as u64 > last, "what was not acknowledged came again");
    let kept = scheduler.bodies();
    assert_eq!(kept.iter().filter(|body| summary_of(body, 60).is_some()).count(), 1);
    assert_eq!(kept.iter().filter(|body| launch_of(body, 60).is_some()).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scheduler_hears_how_the_devices_are() {
    let mut scheduler = FakeScheduler::start();
    let mut node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    let is_well = |condition: &DeviceCondition| condition.faults.is_empty() && !condition.sources.is_empty();
    let are_well = |conditions: &[DeviceCondition]| conditions.len() == 2 && conditions.iter().all(is_well);
    scheduler.conditions("two devices that are well", are_well).await;
    node.stop_driver();
    let is_silent = |condition: &DeviceCondition| {
        condition.closed_by().is_some_and(|fault| fault.kind == FaultKind::Unreadable)
    };
    scheduler.conditions("two that do not answer", |it| it.iter().all(is_silent)).await;
    scheduler.stop();
    scheduler.forget_conditions();
    scheduler.start_again().await;
    scheduler.conditions("the same from a new stream", |it| it.len() == 2 && it.iter().all(is_silent)).await;
    node.start_driver();
    scheduler.conditions("two that are well again", are_well).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_remembers() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let mut agent = node.start_agent();
    let journal_id = scheduler.hello().await.journal_id;
    for job in [70, 71] {
        scheduler.prepare(share(job, Mechanism::Mps)).await;
        assert_eq!(scheduler.result(start(job)).await.error, None);
    }
    let mut first = node.start_task(70, 1, Some("yes"));
    first.reply().await;
    scheduler.report(|body| has_tenant(body, 70).then_some(())).await;
    agent.kill();
    let agent_is_back = node.start_agent();
    // Before the scheduler has said a word.
    let mut second = node.start_task(71, 1, Some("yes"));
    assert_eq!(second.reply().await.decision_id, Some(DecisionId(171)));
    let hello = scheduler.hello().await;
    assert_eq!(hello.journal_id, journal_id);
    assert_eq!(hello.decision_ids, [DecisionId(170), DecisionId(171)]);
    scheduler.report(|body| has_tenant(body, 71).then_some(())).await;
    first.end();
    second.end();
    let summaries = [70, 71].map(|job| scheduler.report(move |body| summary_of(body, job).cloned()));
    for (summary, other) in summaries.into_iter().zip([71, 70]) {
        let summary = summary.await;
        assert_eq!(summary.neighbours, [start(other)], "{summary:?}");
        assert!(summary.shared_seconds > 0.0);
    }
    scheduler.all_acknowledged(&node).await;
    let mut bodies_of = std::collections::BTreeMap::new();
    for (journal, sequence, body) in scheduler.received() {
        let before = bodies_of.insert((journal, sequence), body.clone());
        assert!(before.is_none_or(|before| before == body), "sequence {sequence} was given twice");
    }
    assert_eq!(bodies_of.len() as u64, bodies_of.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0));
    drop(agent_is_back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_get_nothing_and_keep_nobody_out() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    let mode = node.handoff_socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let connect = || UnixStream::connect(node.handoff_socket()).unwrap();
    // More than are served at once, all silent; and some that talk nonsense.
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    let mut endless = connect();
    let _ = endless.write_all(&vec![b'x'; 200 * 1024]);
    let mut garbage = connect();
    garbage.write_all(b"{\"version\": [\n").unwrap();
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "closed without a word");
    }
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("{\"verdict\":\"unknown\""), "{answer}");
    let request = TestNode::request(80, 1, Some("yes"));
    assert!(task::ask(&node.handoff_socket(), &request).is_ok());

    // Somebody else, even where the socket lets him in.
    std::fs::set_permissions(node.handoff_socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(node.directory(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (socket, mut stranger) = (node.handoff_socket(), request);
    stranger.start = start(81);
    let refused = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        // Of this thread only.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        task::ask(&socket, &stranger)
    });
    assert!(refused.join().unwrap().is_err(), "uid 65534 was answered");
    assert!(!node.path("jobs/81").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poke_is_a_look_and_never_fails() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::slow("h200", scheduler.port());
    assert_eq!(node.poke(), (Some(0), true), "no agent: a complaint, and success");
    let _agent = node.start_agent();
    scheduler.hello().await;
    let mut task = node.start_task(90, 1, Some("yes"));
    task.reply().await;
    eventually("the task to be at work", || task.progress().is_some()).await;
    // The next look of its own would come in a minute.
    assert_eq!(node.poke(), (Some(0), false));
    scheduler.report(|body| has_tenant(body, 90).then_some(())).await;
    task.end();
    assert_eq!(node.poke(), (Some(0), false));
    assert_eq!(node.poke(), (Some(0), false));
    scheduler.report(|body| summary_of(body, 90).cloned()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epilog_makes_the_agent_look_and_never_fails() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::slow("h200", scheduler.port());
    assert_eq!(node.clean_up_after(91), (Some(0), false), "nothing to clean up");
    let _agent = node.start_agent();
    scheduler.hello().await;
    let mut task = node.start_task(91, 1, Some("yes"));
    task.reply().await;
    eventually("the task to be at work", || task.progress().is_some()).await;
    assert_eq!(node.clean_up_after(1), (Some(0), false), "another job's");
    scheduler.report(|body| has_tenant(body, 91).then_some(())).await;
    std::fs::write(node.path("agent.toml"), "colour = 1").unwrap();
    assert_eq!(node.clean_up_after(91), (Some(0), true), "a complaint, and success");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_a_fault_takes_no_tenant_until_its_clients_have_left() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::new("h200", scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    scheduler.prepare(share(92, Mechanism::Mps)).await;
    assert_eq!(scheduler.result(start(92)).await.error, None);
    let mut task = node.start_task(92, 1, Some("yes"));
    task.reply().await;
    eventually("the task to be a client", || {
        node.driver().status(&MpsPlace::device(1)).unwrap().is_some_and(|mps| !mps.client_pids.is_empty())
    })
    .await;
    // It stays connected although its work has failed.
    node.driver().fault_mps(1).unwrap();
    scheduler.prepare(share(93, Mechanism::Mps)).await;
    let refused = scheduler.result(start(93)).await.error.expect("no tenant beside a fault");
    assert!(
        refused.ends_with("its MPS server is in state FAULT until all its clients have left"),
        "{refused}"
    );
    task.end();
    eventually("the fault to clear", || {
        node.driver().status(&MpsPlace::device(1)).unwrap().is_none_or(|mps| mps.state != MpsState::Fault)
    })
    .await;
    scheduler.prepare(share(94, Mechanism::Mps)).await;
    assert_eq!(scheduler.result(start(94)).await.error, None);
}
