//! The shadow over a fake Slurm and a store in memory: killed in between, refused by either, and what it asks of Slurm.

use super::super::Shadow;
use super::profile;
use crate::context::Settings;
use crate::observe::tests::{SCRIPT, World, job, settings};
use pillion_core::heartbeat::Mode;
use pillion_core::shadow::ShadowOutcome;
use pillion_core::workload::of_script;
use pillion_fake_slurm::FakeJob;
use pillion_pairing::Role;
use pillion_slurm::Ending;
use pillion_store::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const OTHER: &str = "#!/bin/sh\nsrun python other.py\n";

/// A node of one GPU, whose workloads are known, in the shadow.
fn world() -> (World, Shadow) {
    world_of(World::in_mode(Mode::Shadow, 1, &[]))
}

fn world_of(world: World) -> (World, Shadow) {
    for script in [SCRIPT, OTHER] {
        let workload = of_script("alice", "train", script.as_bytes());
        let mut known = profile(workload.as_str());
        // As its agent announces the device.
        known.profile.device_model = "h200".to_owned();
        world.store.know(&known);
    }
    let shadow = Shadow::new(Arc::clone(&world.context));
    (world, shadow)
}

#[tokio::test]
async fn a_decision_outlives_the_scheduler_that_made_it() {
    let (world, shadow) = world();
    let host = world.slurm.submit(job());
    world.wait(5).await;
    let began = world.jobs()[0].started_at;
    let joiner = world.slurm.submit(FakeJob { script: Some(OTHER.to_owned()), ..job() });
    world.wait(5).await;
    shadow.tick().await.unwrap();
    let open = world.store.open_shadow().await.unwrap();
    let roles: Vec<_> = open.iter().map(|it| (it.start().job_id, it.member.role)).collect();
    assert_eq!(roles, [(host, Role::Host), (joiner, Role::Joiner)]);
    // Nobody else ever hears of it.
    assert_eq!(world.store.active_decisions().await.unwrap(), []);
    assert!(world.store.decisions_of(joiner).await.unwrap().is_empty());
    // It is killed, and another one takes over.
    drop(shadow);
    let shadow = Shadow::new(Arc::clone(&world.context));
    world.pass(300);
    world.slurm.finish(host, Ending::Completed);
    world.pass(1);
    assert!(world.tell(world.run(host, "g0", began)).await);
    world.wait(5).await;
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap().len(), 2, "the joiner has not run");
    let began = world.jobs().iter().find(|job| job.start.job_id == joiner).unwrap().started_at;
    world.pass(600);
    world.slurm.finish(joiner, Ending::Completed);
    world.pass(1);
    assert!(world.tell(world.run(joiner, "g0", began)).await);
    world.wait(15).await;
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap(), []);
    let (_, score) = world.store.shadow_of(joiner).await.unwrap().unwrap();
    let score = score.unwrap();
    assert_eq!(score.outcome, ShadowOutcome::Scored);
    assert!(score.beside.unwrap().overlap_seconds > 250.0);
    // What is closed stays as it was.
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_that_one_look_alone_saw_running_is_decided_on() {
    let (world, shadow) = world();
    let short = world.slurm.submit(job());
    world.wait(5).await;
    // The look itself wakes the shadow: by its own period it might come when the job is over.
    let woken = world.context.nudges.shadow.notified();
    tokio::time::timeout(Duration::from_secs(1), woken).await.expect("it is woken");
    shadow.tick().await.unwrap();
    let open = world.store.open_shadow().await.unwrap();
    assert_eq!(open.iter().map(|it| it.start().job_id).collect::<Vec<_>>(), [short]);
    // Over before the next look: scored as any other.
    let began = world.jobs()[0].started_at;
    world.pass(2);
    world.slurm.finish(short, Ending::Completed);
    world.pass(1);
    assert!(world.tell(world.run(short, "g0", began)).await);
    world.wait(15).await;
    shadow.tick().await.unwrap();
    let (_, score) = world.store.shadow_of(short).await.unwrap().unwrap();
    assert_eq!(score.unwrap().outcome, ShadowOutcome::Scored);
}

#[tokio::test]
async fn nothing_is_decided_on_what_is_old_or_while_another_leads() {
    let (world, shadow) = world();
    world.slurm.submit(job());
    world.wait(5).await;
    world.pass(60);
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap(), [], "that was a minute ago");
    world.wait(5).await;
    world.context.set_leading(false);
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap(), []);
    world.context.set_leading(true);
    world.slurm.set_down(true);
    world.slurm.submit(job());
    assert!(world.observe.tick().await.is_err());
    shadow.tick().await.unwrap();
    assert_eq!(world.store.open_shadow().await.unwrap().len(), 1, "what was seen a moment ago is decided on");
}

/// How many decisions there are after a job has started whose workload is known.
async fn decided_with(settings: Settings) -> usize {
    let (world, shadow) = world_of(World::with_settings(settings, 1));
    world.slurm.submit(job());
    for _ in 0..2 {
        world.wait(5).await;
        shadow.tick().await.unwrap();
    }
    world.store.open_shadow().await.unwrap().len()
}

/// One node may be the pool, and all others are looked at.
#[tokio::test]
async fn beside_an_active_pool_observed_jobs_are_decided_on_where_that_is_asked_for() {
    for mode in [Mode::Off, Mode::Active] {
        let asked = Settings { observe_shadow: true, ..settings(mode, &["pool"]) };
        assert_eq!(decided_with(asked).await, 1, "{mode:?}");
        assert_eq!(decided_with(settings(mode, &["pool"])).await, 0, "{mode:?}, without a word");
    }
    assert_eq!(decided_with(settings(Mode::Shadow, &[])).await, 1);
}
