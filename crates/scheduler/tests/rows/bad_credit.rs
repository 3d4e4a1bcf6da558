//! Bad rows of what is known of workloads and users: `bad_rows` for profiles, credit and jobs that strayed. And the way of a
//! broken promise to whoever answers for it.

use crate::bad_rows::World;
use crate::fixtures::{
    LESSON, account, at, commit, decision, ended_job, gres, member, node, plain, profile, run, start,
    summary, summary_report,
};
use pillion_core::device::{Reading, TenantUse};
use pillion_core::report::{DeviceSample, DeviceSamples, JobSummary};
use pillion_core::{GresType, UserId, WorkloadKey};
use pillion_fake_slurm::FakeJob;
use pillion_pairing::Role;
use pillion_scheduler::credit::Credit;
use pillion_scheduler::engine::Engine;
use pillion_scheduler::pace::Pace;
use pillion_scheduler::profile::Profile;
use pillion_store::prelude::*;
use pillion_store::{CreditLoss, Event, JobRecord, NewDecision, NewMember, RunAccount, StoredProfile};
use std::sync::Arc;

const GIB: u64 = 1 << 30;

/// Two that run on a device, the second of another user, as the board shows them.
async fn share(world: &World, gres_type: &str, host: u32, joiner: u32) {
    let store = world.store.as_ref();
    store.record_jobs(&[ended_job(host), ended_job(joiner)], at(80)).await.expect("recorded");
    let of = |id: u32, uid: u32, role: Role| NewMember {
        uid: UserId(uid),
        memory_bytes: Some(GIB),
        ..member(id, role)
    };
    let pair = NewDecision {
        gres_types: GresType::new(gres_type).into(),
        ..decision(vec![of(host, 1000, Role::Host), of(joiner, 1000 + joiner, Role::Joiner)])
    };
    let id = commit(store, &[pair]).await[0];
    for job in [host, joiner] {
        run(store, id, job).await;
    }
    world.context.board_mut().active = Arc::new(store.active_decisions().await.expect("read"));
}

/// A look at a device on which this job holds four times what it was let in with.
fn over(gres_type: &str, job: u32) -> DeviceSample {
    let tenant = TenantUse {
        job_id: plain(job),
        restart_count: 0,
        memory_bytes: Some(4 * GIB),
        process_count: 1,
        progress: None,
    };
    DeviceSample { gres_type: GresType::new(gres_type), reading: Reading::default(), tenants: vec![tenant] }
}

#[tokio::test]
async fn a_loss_of_credit_that_is_refused_keeps_no_other_from_being_kept() {
    let Some(world) = World::new().await else { return };
    share(&world, "g1", 1, 2).await;
    share(&world, "g2", 3, 4).await;
    world.refuse("credit_loss", "job_id = '2'").await;
    let credit = Credit::new(world.world());
    for seconds in 1..=60 {
        let samples = DeviceSamples { recorded_at: at(seconds), samples: vec![over("g1", 2), over("g2", 4)] };
        world.context.agents.set_readings(&node(), &samples);
        credit.tick().await.expect("one bad row is no reason to stop");
    }
    assert_eq!(world.kinds(4).await, ["profile-exceeded"]);
    assert_eq!((world.kinds(2).await, world.passed_over("credit")), (Vec::new(), 1));
    let place = |name: &str| (node(), GresType::new(name));
    let board = world.context.board();
    assert!(
        ["g1", "g2"].iter().all(|name| board.amiss.overrun.contains_key(&place(name))),
        "both are closed"
    );
}

#[tokio::test]
async fn a_loss_of_credit_that_cannot_be_read_hides_no_other() {
    let Some(world) = World::new().await else { return };
    for (id, uid) in [(1, 1001), (2, 1002)] {
        let loss = CreditLoss {
            uid: UserId(uid),
            lost_at: at(50),
            start: start(id),
            node: node(),
            reason: "it did more".to_owned(),
        };
        let event = Event {
            at: at(50),
            kind: "credit-lost".into(),
            job_id: Some(plain(id)),
            node: None,
            detail: String::new(),
        };
        assert!(world.store.lose_credit(&loss, &event).await.expect("kept"));
    }
    world.sql("update credit_loss set uid = -1 where uid = 1001".to_owned()).await;
    let owed = world.store.atonements(10.0, 5).await.expect("one bad row is no reason to stop");
    assert_eq!(owed.iter().map(|one| one.uid).collect::<Vec<_>>(), [UserId(1002)]);
    world.scan(1).await;
    Engine::new(world.world()).tick().await.expect("and there is a plan");
}

#[tokio::test]
async fn what_was_used_beyond_a_profile_and_cannot_be_read_hides_no_other() {
    let Some(world) = World::new().await else { return };
    for (id, uid) in [(1, 1001), (2, 1002)] {
        world.runs([id]).await;
        let run = RunAccount { uid: UserId(uid), use_beyond_fraction: Some(0.5), ..account(id) };
        world.store.profile_run(start(id), &gres(), &run, &LESSON, None).await.expect("kept");
    }
    world.sql("update use_beyond set uid = -1 where uid = 1001".to_owned()).await;
    let charges = world.store.charges().await.expect("one bad row is no reason to stop");
    assert!(charges.len() == 2 && charges.iter().all(|charge| charge.uid == UserId(1002)), "{charges:?}");
    // One that is refused is charged nothing, and its run is passed over.
    world.refuse("use_beyond", "uid = 1003").await;
    world.runs([3]).await;
    let run = RunAccount { uid: UserId(1003), use_beyond_fraction: Some(0.5), ..account(3) };
    let refused = world.store.profile_run(start(3), &gres(), &run, &LESSON, None).await;
    assert!(refused.is_err_and(|error| error.is_of_one_row()), "the tick goes on with the next");
}

/// Keeps a profile, by a run of its own.
async fn know(world: &World, id: u32, known: &StoredProfile) {
    world.runs([id]).await;
    world.store.profile_run(start(id), &gres(), &account(id), &LESSON, Some(known)).await.expect("kept");
}

/// A look at a device on which this job goes at half of its speed alone.
fn slow(gres_type: &str, job: u32, second: u32) -> DeviceSample {
    let alone = profile("any").profile.throughput_per_second.expect("it counts");
    let tenant = TenantUse {
        job_id: plain(job),
        restart_count: 0,
        memory_bytes: None,
        process_count: 1,
        progress: Some(alone * 0.5 * f64::from(second)),
    };
    DeviceSample { gres_type: GresType::new(gres_type), reading: Reading::default(), tenants: vec![tenant] }
}

#[tokio::test]
async fn a_broken_promise_that_is_refused_keeps_no_other_from_being_told() {
    let Some(world) = World::new().await else { return };
    know(&world, 91, &profile("alice/1f0c")).await;
    let begin = Some(at(3600));
    let ids = [(); 4].map(|()| world.slurm.submit(FakeJob { begin, ..FakeJob::default() }).id);
    share(&world, "g1", ids[0], ids[1]).await;
    share(&world, "g2", ids[2], ids[3]).await;
    world.refuse("event", &format!("kind = 'promise-breaking' and job_id = '{}'", ids[0])).await;
    let watched = Pace::new(world.world());
    for second in 1..=90 {
        world.scan(second).await;
        let samples = vec![slow("g1", ids[0], second), slow("g2", ids[2], second)];
        let samples = DeviceSamples { recorded_at: at(second), samples };
        world.context.agents.set_readings(&node(), &samples);
        watched.tick().await.expect("one bad row is no reason to stop");
    }
    assert_eq!(world.kinds(ids[2]).await, ["promise-breaking"]);
    assert_eq!((world.kinds(ids[0]).await, world.passed_over("pace")), (Vec::new(), 1));
    let at_place = |name: &str| (node(), GresType::new(name));
    let board = world.context.board();
    assert!(
        ["g1", "g2"].iter().all(|name| board.amiss.strained.contains_key(&at_place(name))),
        "both are closed"
    );
}

#[tokio::test]
async fn a_profile_that_cannot_be_read_hides_no_other() {
    let Some(world) = World::new().await else { return };
    know(&world, 91, &profile("alice/spoilt")).await;
    know(&world, 92, &profile("alice/sound")).await;
    world
        .sql("update workload_profile set run_count = 5000000000 where workload = 'alice/spoilt'".to_owned())
        .await;
    let names = |known: Vec<StoredProfile>| {
        known.into_iter().map(|stored| stored.profile.workload.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(world.store.profiles().await.expect("read")), ["alice/sound"]);
    world.runs([1]).await;
    Profile::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    assert_eq!(world.store.unprofiled_runs(10).await.expect("read"), []);
    world.scan(1).await;
    Engine::new(world.world()).tick().await.expect("and there is a plan");
}

#[tokio::test]
async fn a_profile_that_is_refused_keeps_no_other_from_being_learnt() {
    let Some(world) = World::new().await else { return };
    for (id, workload) in [(1, "alice/spoilt"), (2, "alice/sound")] {
        let job = JobRecord { workload: WorkloadKey::new(workload), ..ended_job(id) };
        world.store.record_jobs(&[job], at(80)).await.expect("recorded");
        let alone = JobSummary { shared_seconds: 0.0, neighbours: Vec::new(), ..summary(id) };
        let report = summary_report(u64::from(id), alone);
        world.store.ingest(&node(), "j", &report).await.expect("stored");
    }
    world.refuse("workload_profile", "workload = 'alice/spoilt'").await;
    Profile::new(world.world()).tick().await.expect("one bad row is no reason to stop");
    let known = world.store.profiles().await.expect("read");
    assert_eq!(known.iter().map(|one| one.profile.workload.to_string()).collect::<Vec<_>>(), ["alice/sound"]);
    assert!(world.lesson(1).await.starts_with("it cannot be profiled: "), "{}", world.lesson(1).await);
    assert_eq!(world.passed_over("profile"), 1);
}
