//! What a task is told, without sockets and in time of our own.

use super::*;
use crate::node::Inventory;
use crate::share::ShareTable;
use crate::share::tests::{device, share};
use pillion_core::device::Mechanism;
use pillion_core::handoff::{BATCH_STEP, MARKER_TELLS};
use pillion_core::{DecisionId, GresType, JobStart, ManualClock, NodeName, Shards, SlurmJobId, UserId};
use tokio::time::Instant;

struct Scene {
    directory: tempfile::TempDir,
    server: HandoffServer,
    commands: mpsc::Receiver<Command>,
    reports: mpsc::Receiver<ReportBody>,
}

fn scene() -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let shares = ShareTable::open(root.join("shares.json"));
    let inventory = Inventory { devices: [device(Mechanism::Mps)].into(), fault: None };
    let node = Arc::new(Node::new(NodeName::new("n1"), inventory, shares, root.join("jobs")).unwrap());
    node.set_connected(true);
    let (commands_in, commands) = mpsc::channel(8);
    let (reports_in, reports) = mpsc::channel(8);
    let server = HandoffServer {
        node,
        clock: Arc::new(ManualClock::default()),
        proc: ProcFs::new("/proc"),
        progress_files: ProgressFiles::new(root).unwrap(),
        mps_pipe_directory: Box::new(|_| "/pipe".into()),
        commands: commands_in,
        reports: reports_in,
        told: Told::default(),
    };
    Scene { directory, server, commands, reports }
}

fn request(option: Option<&str>) -> HandoffRequest {
    HandoffRequest {
        version: HANDOFF_VERSION,
        start: JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 },
        inner_job_id: Some(33),
        uid: UserId(1000),
        gid: rustix::process::getgid().as_raw(),
        step_id: BATCH_STEP,
        devices: vec![3],
        shards: None,
        option: option.map(str::to_owned),
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_its_way_is_waited_for() {
    let scene = scene();
    let request = request(Some("yes"));
    let began = Instant::now();
    let (reply, ()) = tokio::join!(scene.server.answer(&request, Some(std::process::id())), async {
        tokio::time::sleep(Duration::from_millis(90)).await;
        // Another one first: it is not the one that is waited for.
        scene.server.node.insert_share(share(34, Mechanism::Mps), Own::default()).unwrap();
        scene.server.node.insert_share(share(33, Mechanism::Mps), Own::default()).unwrap();
    });
    assert_eq!((reply.verdict, reply.decision_id), (Verdict::Decided, Some(DecisionId(7))));
    assert!(began.elapsed() < DECISION_WAIT);
}

#[tokio::test(start_paused = true)]
async fn who_was_put_back_to_run_alone_gets_nothing_of_the_sharing() {
    let scene = scene();
    let shared = Share { shards: Shards::try_new(40).unwrap(), ..share(33, Mechanism::Mps) };
    scene.server.node.insert_share(shared, Own::default()).unwrap();
    for (booked, verdict) in [
        (None, Verdict::Decided),
        (Some(10), Verdict::Decided),
        (Some(40), Verdict::Decided),
        (Some(100), Verdict::Unknown),
    ] {
        let request = HandoffRequest { shards: booked, ..request(Some("yes")) };
        let reply = scene.server.answer(&request, Some(std::process::id())).await;
        assert_eq!(reply.verdict, verdict, "{booked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_does_not_come_is_not_waited_for_long() {
    let mut scene = scene();
    let began = Instant::now();
    let reply = scene.server.answer(&request(Some("profile=bert")), Some(std::process::id())).await;
    assert_eq!(reply.verdict, Verdict::Unknown);
    assert!(began.elapsed() <= DECISION_WAIT + Duration::from_millis(1));
    let Ok(ReportBody::Launch(launch)) = scene.reports.try_recv() else { panic!("a launch is told") };
    assert_eq!(launch.decision_id, None, "a miss");
    assert_eq!(launch.profile_name.as_deref(), Some("bert"));
    assert!(matches!(scene.commands.try_recv(), Ok(Command::Register(_))), "measured all the same");

    scene.server.node.set_connected(false);
    let began = Instant::now();
    scene.server.answer(&request(Some("yes")), None).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody is there who could send one");
}

#[tokio::test(start_paused = true)]
async fn other_versions_and_foreign_steps_are_left_alone() {
    let mut scene = scene();
    let newer = HandoffRequest { version: HANDOFF_VERSION + 1, ..request(Some("yes")) };
    assert_eq!(scene.server.answer(&newer, None).await, HandoffReply::unknown());
    assert_eq!(scene.server.answer(&request(None), None).await, HandoffReply::unknown());
    assert!(scene.reports.try_recv().is_err() && scene.commands.try_recv().is_err());
    scene.server.node.insert_share(share(33, Mechanism::Mps), Own::default()).unwrap();
    let script = scene.server.answer(&request(None), None).await;
    assert_eq!(script.verdict, Verdict::Decided, "the script of a job that was decided on");
}

/// A step that the script of job 33 begins, with all of its environment made up.
fn forged_step() -> HandoffRequest {
    HandoffRequest {
        start: JobStart { restart_count: 7, ..request(None).start },
        step_id: 0,
        devices: vec![0, 1, 2, 3],
        shards: Some(100),
        ..request(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_is_what_its_script_is_whatever_it_says() {
    let mut scene = scene();
    let shared = Share { shards: Shards::try_new(40).unwrap(), ..share(33, Mechanism::Mps) };
    scene.server.node.insert_share(shared, Own::default()).unwrap();
    let own = Some(std::process::id());
    let script = scene.server.answer(&request(Some("yes")), own).await;
    assert_eq!(scene.server.answer(&forged_step(), own).await, script);
    let Ok(ReportBody::Launch(launch)) = scene.reports.try_recv() else { panic!("a launch is told") };
    assert_eq!((launch.start, launch.decision_id), (request(None).start, Some(DecisionId(7))));
    assert_eq!(launch.gres_types, [GresType::new("g3")], "no device but its own");
    assert!(scene.reports.try_recv().is_err(), "the step says nothing new");
    for _ in 0..2 {
        let Ok(Command::Register(task)) = scene.commands.try_recv() else { panic!("a task is measured") };
        assert_eq!((task.start, task.gres_types), (request(None).start, vec![GresType::new("g3")]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_script_that_was_not_seen_is_left_alone() {
    let mut scene = scene();
    scene.server.node.insert_share(share(33, Mechanism::Mps), Own::default()).unwrap();
    assert_eq!(scene.server.answer(&forged_step(), None).await, HandoffReply::unknown());
    assert!(scene.reports.try_recv().is_err() && scene.commands.try_recv().is_err());
    // An agent that starts again has it from the runs that it wrote down.
    scene.server.node.restore_begun(request(None).start, [GresType::new("g3")]);
    assert_eq!(scene.server.answer(&forged_step(), None).await.verdict, Verdict::Decided);
    scene.server.node.end(request(None).start);
    assert_eq!(scene.server.answer(&forged_step(), None).await, HandoffReply::unknown());
}

#[tokio::test(start_paused = true)]
async fn who_began_without_a_share_has_none_later() {
    let scene = scene();
    scene.server.answer(&request(Some("yes")), None).await;
    scene.server.node.insert_share(share(33, Mechanism::Mps), Own::default()).unwrap();
    assert_eq!(scene.server.answer(&forged_step(), None).await.verdict, Verdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn slurmstepd_may_take_its_time_between_connecting_and_asking() {
    let scene = scene();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let ask = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let mut stream = BufReader::new(theirs);
        let line = serde_json::to_vec(&request(Some("yes"))).unwrap();
        stream.get_mut().write_all(&[&line[..], b"\n"].concat()).await.unwrap();
        let mut reply = String::new();
        stream.read_line(&mut reply).await.unwrap();
        serde_json::from_str::<HandoffReply>(&reply).unwrap()
    };
    let (served, reply) = tokio::join!(scene.server.converse(ours), ask);
    served.unwrap();
    assert_eq!(reply.verdict, Verdict::Unknown);
    let (ours, _silent) = UnixStream::pair().unwrap();
    assert_eq!(scene.server.converse(ours).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_answered_after_a_restart_and_older_limits_are_taken_away() {
    let scene = scene();
    let partition = Some("GPU-3/Dx4".to_owned());
    scene
        .server
        .node
        .insert_share(share(33, Mechanism::Mps), Own { mps_partition: partition, ..Own::default() })
        .unwrap();
    let root = scene.directory.path();
    let shares = ShareTable::open(root.join("shares.json"));
    let inventory = Inventory { devices: [device(Mechanism::Mps)].into(), fault: None };
    let node = Arc::new(Node::new(NodeName::new("n1"), inventory, shares, root.join("jobs")).unwrap());
    let server = HandoffServer { node, ..scene.server };
    let reply = server.answer(&request(None), None).await;
    assert!(reply.set.contains(&("CUDA_MPS_SM_PARTITION".to_owned(), "GPU-3/Dx4".to_owned())), "{reply:?}");
    assert!(reply.unset.iter().any(|name| name == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "{reply:?}");
    let own = Own { mps_partition: Some("GPU-3/new".to_owned()), ..Own::default() };
    server.node.set_own(request(None).start, own);
    let reply = server.answer(&request(None), None).await;
    assert!(reply.set.contains(&("CUDA_MPS_SM_PARTITION".to_owned(), "GPU-3/new".to_owned())), "{reply:?}");
    assert!(reply.unset.iter().all(|name| reply.set.iter().all(|(set, _)| set != name)), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_made_at_this_moment_is_waited_for_and_one_that_is_not_holds_nobody_up() {
    let mut scene = scene();
    let slot: pillion_core::mig::Slot = "1g.18gb@6".parse().unwrap();
    let sharing = pillion_core::share::Sharing::Mig { profile: slot.profile, start: slot.start };
    let walled = pillion_core::share::Share { sharing, ..share(33, Mechanism::TimeSliced) };
    scene.server.node.insert_share(walled, Own::default()).unwrap();
    let request = request(None);
    let told = |reply: &HandoffReply| {
        let mut set = reply.set.iter().filter(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
        set.next().map(|(_, value)| value.clone())
    };
    let began = Instant::now();
    let reply = scene.server.answer(&request, Some(std::process::id())).await;
    assert_eq!(told(&reply), None);
    assert!(began.elapsed() < ANSWER_DEADLINE);
    assert!(scene.commands.try_recv().is_ok(), "and the devices are looked at");
    let (reply, ()) = tokio::join!(scene.server.answer(&request, Some(std::process::id())), async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let own = Own { instance: Some(pillion_core::DeviceUuid::new("MIG-5")), ..Own::default() };
        scene.server.node.set_own(request.start, own);
    });
    assert_eq!(told(&reply).as_deref(), Some("MIG-5"));
}

#[tokio::test(start_paused = true)]
async fn a_start_without_an_instance_waits_until_its_device_is_whole_and_no_longer_than_it_may() {
    let mut scene = scene();
    let gres_type = GresType::new("g3");
    scene.server.node.set_cut(&[gres_type.clone()].into());
    // Nobody decides anything, so the whole time is for that.
    scene.server.node.set_connected(false);
    let request = request(Some("no"));
    let began = Instant::now();
    let (_, whole_count) = tokio::join!(scene.server.answer(&request, Some(std::process::id())), async {
        let mut count = 0;
        while let Some(command) = scene.commands.recv().await {
            let Command::Whole { gres_type: asked, done, .. } = command else { continue };
            assert_eq!(asked, gres_type);
            count += 1;
            let refused = count < 3;
            let _ = done.send(if refused { Err("a process has just ended".into()) } else { Ok(()) });
            if !refused {
                break;
            }
        }
        count
    });
    assert_eq!(whole_count, 3, "it is tried again");
    assert!(began.elapsed() <= WHOLE_WAIT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_did_not_ask_is_measured_and_told_nothing() {
    let mut scene = scene();
    let plain = Share { is_plain: true, ..share(33, Mechanism::TimeSliced) };
    scene.server.node.insert_share(plain, Own::default()).unwrap();
    let script = HandoffRequest { shards: Some(100), ..request(None) };
    // Only a plugin of an earlier release waits for what is answered.
    for request in [script.clone(), HandoffRequest { step_id: 0, devices: Vec::new(), ..script }] {
        let reply = scene.server.answer(&request, Some(std::process::id())).await;
        assert_eq!(reply, HandoffReply::unknown());
        let marker = std::fs::read_to_string(scene.directory.path().join("jobs/33")).unwrap();
        assert_eq!(marker, MARKER_TELLS, "so its next step does not wait either");
    }
    let Ok(ReportBody::Launch(launch)) = scene.reports.try_recv() else { panic!("a launch is told") };
    assert_eq!(launch.decision_id, Some(DecisionId(7)));
}

/// The share of an interactive job, and a step that begins it.
fn session(scene: &Scene, shards: Option<u32>) -> HandoffRequest {
    let shared =
        Share { shards: Shards::try_new(60).unwrap(), is_session: true, ..share(33, Mechanism::Mps) };
    scene.server.node.insert_share(shared, Own::default()).unwrap();
    HandoffRequest { step_id: 0, devices: Vec::new(), shards, ..request(None) }
}

#[tokio::test(start_paused = true)]
async fn the_first_step_of_an_interactive_job_begins_what_was_decided_for_it() {
    let mut scene = scene();
    let own = Some(std::process::id());
    let step = session(&scene, Some(60));
    let first = scene.server.answer(&step, own).await;
    assert_eq!((first.verdict, first.decision_id), (Verdict::Decided, Some(DecisionId(7))));
    assert!(first.set.iter().any(|(name, _)| name == "CUDA_MPS_PIPE_DIRECTORY"), "{first:?}");
    let later = HandoffRequest { step_id: 1, shards: None, ..step.clone() };
    assert_eq!(scene.server.answer(&later, own).await, first, "a client from the first step to the last");
    let Ok(ReportBody::Launch(launch)) = scene.reports.try_recv() else { panic!("a launch is told") };
    assert_eq!((launch.decision_id, launch.start), (Some(DecisionId(7)), step.start));
    let stranger = HandoffRequest { uid: UserId(1001), ..step };
    assert_eq!(scene.server.answer(&stranger, own).await.verdict, Verdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_interactive_job_that_was_put_back_to_run_alone_gets_nothing_of_the_sharing() {
    let mut scene = scene();
    let step = session(&scene, Some(100));
    for shards in [Some(100), None] {
        let step = HandoffRequest { shards, ..step.clone() };
        let reply = scene.server.answer(&step, Some(std::process::id())).await;
        assert_eq!(reply.verdict, Verdict::Unknown, "half of its processes would share");
    }
    let Ok(ReportBody::Launch(launch)) = scene.reports.try_recv() else { panic!("a launch is told") };
    assert_eq!((launch.decision_id, launch.gres_types), (None, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_script_that_was_not_seen_begins_nothing() {
    let scene = scene();
    scene.server.node.insert_share(share(33, Mechanism::Mps), Own::default()).unwrap();
    assert_eq!(scene.server.answer(&forged_step(), None).await, HandoffReply::unknown());
}
