//! Devices that are cut: seven tenants of one GPU, an agent that is killed between any two steps, jobs that Slurm starts alone, and
//! Epilogs of a node without an agent.

use super::*;
use pillion_core::mig::{Geometry, Slot};
use pillion_device::mechanism::mig::{Layout, MigMode};
use pillion_device::simulated::{AttachRequest, JobConnection, Monitor};
use pillion_device::{MigControl as _, MpsPlace};
use std::os::unix::fs::MetadataExt as _;
use task::Task;

const DEVICE: u32 = 1;

fn slots(model: &str) -> Vec<Slot> {
    let geometry = Geometry::of_model(model).unwrap();
    let smallest = geometry.plain().last().unwrap();
    smallest.starts.iter().map(|start| Slot { profile: smallest.profile, start: *start }).collect()
}

fn walled(model: &str, job: u32, slot: Slot) -> Share {
    let sharing = Sharing::Mig { profile: slot.profile, start: slot.start };
    let shards = Geometry::of_model(model).unwrap().shards(slot.profile);
    Share { sharing, shards, ..share(job, Mechanism::TimeSliced) }
}

/// A share of an instance beside another of its user, with half of what that is.
fn together(job: u32, slot: Slot) -> Share {
    let Slot { profile, start } = slot;
    let half = Geometry::of_model("h100").unwrap().shards(profile).count() / 2;
    let sharing = Sharing::MigMps { profile, start, cap: None, memory_limit_bytes: Some(8 << 30) };
    Share { sharing, shards: Shards::try_new(half).unwrap(), ..share(job, Mechanism::TimeSliced) }
}

fn layout(node: &TestNode) -> Layout {
    node.driver().layout(DEVICE).unwrap()
}

/// Whether a job that Slurm starts there alone, and that nobody tells anything, has the whole device: one that asks of it what no
/// part of it has.
fn is_whole(node: &TestNode) -> bool {
    let environment = [("CUDA_VISIBLE_DEVICES".to_owned(), DEVICE.to_string())].into();
    let attach = AttachRequest {
        workload: "gemm-hog".to_owned(),
        seconds: Some(600.0),
        memory_bytes: Some(38 << 30),
        environment,
        ..AttachRequest::default()
    };
    let Ok(mut job) = JobConnection::open(node.path("devices.sock"), attach) else { return false };
    job.progress().unwrap().speed_fraction > 0.85
}

async fn prepared(scheduler: &FakeScheduler, share: Share) {
    let start = share.start;
    scheduler.prepare(share).await;
    assert_eq!(scheduler.result(start).await.error, None);
}

/// Seven tenants, each in an instance of its own.
async fn seven(scheduler: &FakeScheduler, node: &TestNode, model: &str) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (job, slot) in (1..).zip(slots(model)) {
        prepared(scheduler, walled(model, job, slot)).await;
        let mut task = node.start_task(job, DEVICE, Some("yes"));
        assert_eq!(task.reply().await.verdict, Verdict::Decided);
        // Its agent knows that it runs.
        scheduler.report(|body| has_tenant(body, job).then_some(())).await;
        tasks.push(task);
    }
    eventually("each in its own", || {
        let layout = layout(node);
        layout.instances.len() == 7 && layout.instances.iter().all(|instance| instance.pids.len() == 1)
    })
    .await;
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_tenants_have_an_instance_each_whenever_the_agent_is_killed() {
    for (model, is_on) in [("h100", false), ("a100-40", true)] {
        let scheduler = FakeScheduler::start();
        let node = TestNode::cut(model, is_on, scheduler.port());
        let mut agent = node.start_agent();
        let hello = scheduler.hello().await;
        assert_eq!(hello.devices[1].geometry.as_ref(), Geometry::of_model(model));
        let mechanism = if is_on { Mechanism::TimeSliced } else { Mechanism::Mps };
        assert_eq!(hello.devices[1].mechanism, mechanism, "one that rests in an instance has no MPS");
        eventually("it to be whole", || is_whole(&node)).await;
        let mut tasks = Vec::new();
        for (job, slot) in (1..).zip(slots(model)) {
            prepared(&scheduler, walled(model, job, slot)).await;
            let names =
                |layout: Layout| layout.instances.into_iter().map(|it| it.compute).collect::<Vec<_>>();
            let before = names(layout(&node));
            agent.kill();
            agent = node.start_agent();
            scheduler.hello().await;
            let mut task = node.start_task(job, DEVICE, Some("yes"));
            let reply = task.reply().await;
            let told = reply.set.iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").unwrap();
            assert!(told.1.starts_with("MIG-"), "{reply:?}");
            scheduler.report(|body| has_tenant(body, job).then_some(())).await;
            assert_eq!(names(layout(&node)), before, "adopted");
            let own = layout(&node).instances.into_iter().find(|it| it.slot == slot).unwrap();
            assert_eq!(own.compute[0].uuid.as_str(), told.1);
            assert_eq!(own.pids, [task.pid()]);
            agent.kill();
            agent = node.start_agent();
            scheduler.hello().await;
            tasks.push(task);
        }
        for task in &mut tasks {
            assert!(!task.has_ended());
        }
        while let Some(mut task) = tasks.pop() {
            task.end();
            agent.kill();
            agent = node.start_agent();
            scheduler.hello().await;
            eventually("his instance to go", || layout(&node).instances.len() <= tasks.len().max(1)).await;
        }
        eventually("it to be whole again", || is_whole(&node)).await;
        assert_eq!(layout(&node).mode == MigMode::Off, !is_on);
        assert_eq!(agent.terminate(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_an_instance_is_its_users_alone_whoever_changes_it() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::cut("h100", false, scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    let slot = slots("h100")[3];
    prepared(&scheduler, Share { uid: UserId(1234), ..walled("h100", 9, slot) }).await;
    let id = layout(&node).instances[0].gpu_instance_id;
    let files = [format!("devices.caps/gpu1-gi{id}"), format!("devices.caps/gpu1-gi{id}-ci0")];
    let state = || {
        files
            .clone()
            .map(|file| std::fs::metadata(node.path(&file)).map(|it| (it.uid(), it.mode() & 0o777)).unwrap())
    };
    assert_eq!(state(), [(1234, 0o400); 2]);
    std::fs::set_permissions(node.path(&files[0]), std::fs::Permissions::from_mode(0o444)).unwrap();
    std::os::unix::fs::chown(node.path(&files[1]), Some(0), None).unwrap();
    eventually("it to be closed again", || state() == [(1234, 0o400); 2]).await;
    scheduler.revoke(DecisionId(109), start(9)).await;
    eventually("it to be root's again", || state() == [(0, 0o400); 2]).await;
    eventually("it to be whole", || is_whole(&node)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_is_not_given_up_is_told_with_who_holds_it_and_the_others_go_on() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::cut("h100", false, scheduler.port());
    let _agent = node.start_agent();
    scheduler.hello().await;
    let mut tasks = seven(&scheduler, &node, "h100").await;
    let monitor = Monitor::open(node.path("devices.sock"), DEVICE).unwrap();
    tasks.remove(0).end();
    let is_held = |conditions: &[DeviceCondition]| {
        conditions.iter().flat_map(|it| &it.faults).any(|fault| {
            fault.kind == FaultKind::Held && fault.detail.contains(&format!("process {}", std::process::id()))
        })
    };
    scheduler.conditions("it to be held by us", |conditions| is_held(conditions)).await;
    assert!(tasks.iter_mut().all(|task| !task.has_ended()));
    drop(monitor);
    scheduler
        .conditions("it to be over", |conditions| conditions.iter().all(|it| it.faults.is_empty()))
        .await;
    eventually("it to be gone", || layout(&node).instances.len() == 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_instance_closes_the_device_until_it_is_gone() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::cut("a100-40", true, scheduler.port());
    let own = slots("a100-40")[5];
    eventually("the driver", || node.driver().layout(DEVICE).is_ok()).await;
    let made = node.driver().make(DEVICE, own).unwrap();
    let _agent = node.start_agent();
    scheduler.hello().await;
    let is_divided = |conditions: &[DeviceCondition]| {
        conditions.iter().flat_map(|it| &it.faults).any(|fault| fault.detail.contains("1g.5gb@5"))
    };
    scheduler.conditions("it to be closed", |conditions| is_divided(conditions)).await;
    scheduler.prepare(walled("a100-40", 1, slots("a100-40")[0])).await;
    assert!(scheduler.result(start(1)).await.error.is_some_and(|it| it.contains("somebody else has cut it")));
    assert_eq!(layout(&node).instances, std::slice::from_ref(&made));
    node.driver().destroy(DEVICE, made.gpu_instance_id).unwrap();
    scheduler
        .conditions("it to be open", |conditions| conditions.iter().all(|it| it.faults.is_empty()))
        .await;
    eventually("it to be whole", || is_whole(&node)).await;
}

/// Seven have just ended, and the agent has not seen it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_slurm_starts_alone_right_after_seven_finds_the_whole_device() {
    for (model, is_on) in [("h100", false), ("a100-40", true)] {
        let scheduler = FakeScheduler::start();
        let node = TestNode::cut(model, is_on, scheduler.port());
        let _agent = node.start_agent();
        scheduler.hello().await;
        let mut tasks = seven(&scheduler, &node, model).await;
        // One whose tasks are there is not disturbed, whatever Slurm is said to have booked.
        node.prolog(20, DEVICE);
        assert_eq!(layout(&node).instances.len(), 7);
        for task in &mut tasks {
            task.end();
        }
        node.prolog(21, DEVICE);
        assert!(is_whole(&node), "{:?}", layout(&node));
        let mut task = node.start_task(21, DEVICE, Some("yes"));
        assert_eq!(task.reply().await.verdict, Verdict::Unknown);
        scheduler.report(|body| has_tenant(body, 21).then_some(())).await;
        assert!(!task.has_ended());
        scheduler.prepare(walled(model, 22, slots(model)[0])).await;
        let refused = scheduler.result(start(22)).await.error;
        assert_eq!(refused.as_deref(), Some("start 21+0 has device g1 without a share"));
        task.end();
        scheduler.report(|body| summary_of(body, 21).cloned()).await;
        prepared(&scheduler, walled(model, 23, slots(model)[0])).await;
    }
}

/// Nobody of ours is left while seven run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_agent_the_epilogs_leave_the_device_whole_or_have_the_node_drained() {
    for (model, is_on) in [("h100", false), ("a100-40", true)] {
        let scheduler = FakeScheduler::start();
        let node = TestNode::cut(model, is_on, scheduler.port());
        let mut agent = node.start_agent();
        scheduler.hello().await;
        let mut tasks = seven(&scheduler, &node, model).await;
        agent.kill();
        for job in [7, 6, 5, 4, 3, 2] {
            tasks.pop().unwrap().end();
            assert_eq!(node.cleaned_up_after(job), (Some(0), String::new()));
            assert!(tasks.iter_mut().all(|task| !task.has_ended()));
        }
        assert_eq!(layout(&node).instances.len(), 1, "one runs");
        let monitor = Monitor::open(node.path("devices.sock"), DEVICE).unwrap();
        tasks.pop().unwrap().end();
        let (code, reason) = node.cleaned_up_after(1);
        assert_eq!(code, Some(69));
        assert!(
            reason.contains("is not whole") && reason.contains(&std::process::id().to_string()),
            "{reason}"
        );
        drop(monitor);
        assert_eq!(node.cleaned_up_after(1), (Some(0), String::new()));
        assert!(is_whole(&node));
        assert_eq!(layout(&node).mode == MigMode::Off, !is_on);
        let mut agent = node.start_agent();
        scheduler.hello().await;
        scheduler.report(|body| summary_of(body, 1).cloned()).await;
        assert!(is_whole(&node));
        assert_eq!(agent.terminate(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_one_user_share_an_instance_and_its_daemon_whenever_the_agent_is_killed() {
    let scheduler = FakeScheduler::start();
    let node = TestNode::cut("h100", false, scheduler.port());
    let mut agent = node.start_agent();
    scheduler.hello().await;
    let place: Slot = "3g.40gb@4".parse().unwrap();
    let mut tasks = Vec::new();
    for job in [1, 2] {
        prepared(&scheduler, together(job, place)).await;
        agent.kill();
        agent = node.start_agent();
        scheduler.hello().await;
        let mut task = node.start_task(job, DEVICE, Some("yes"));
        let reply = task.reply().await;
        let told =
            |wanted: &str| reply.set.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        assert!(told("CUDA_MPS_PIPE_DIRECTORY").unwrap().ends_with("-3g.40gb@4/pipe"), "{reply:?}");
        let own = layout(&node).instances[0].compute[0].uuid.to_string();
        assert_eq!(told("CUDA_VISIBLE_DEVICES"), Some(own));
        scheduler.report(|body| has_tenant(body, job).then_some(())).await;
        tasks.push(task);
    }
    let name = layout(&node).instances[0].compute[0].uuid.clone();
    let at = MpsPlace::instance(DEVICE, name);
    let client_count =
        |node: &TestNode| node.driver().status(&at).unwrap().map_or(0, |it| it.client_pids.len());
    eventually("both to be its clients", || client_count(&node) == 2).await;
    let stranger = Share { uid: UserId(4321), ..together(3, place) };
    let start_of = stranger.start;
    scheduler.prepare(stranger).await;
    let refused = scheduler.result(start_of).await.error.unwrap();
    assert!(refused.contains("users never share one"), "{refused}");
    tasks.remove(0).end();
    eventually("one to be left", || client_count(&node) == 1).await;
    agent.kill();
    agent = node.start_agent();
    scheduler.hello().await;
    assert!(!tasks[0].has_ended() && client_count(&node) == 1);
    tasks.remove(0).end();
    // Who looks whether it is whole would come into what is left of it.
    eventually("his instance to go", || layout(&node).instances.is_empty()).await;
    eventually("it to be whole again", || is_whole(&node)).await;
    assert_eq!(node.driver().instances(DEVICE).unwrap(), []);
    assert_eq!(agent.terminate(), Some(0));
}
