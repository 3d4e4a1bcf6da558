//! All reconcilers of one scheduler, each on its rhythm. Nothing here decides, or knows what they do.

use crate::context::Context;
use crate::credit::Credit;
use crate::drive::{Rhythm, drive};
use crate::engine::Engine;
use crate::failure::Judge;
use crate::failure::requeue::Requeuer;
use crate::heartbeat::Beat;
use crate::housekeep::Housekeep;
use crate::misses::Misses;
use crate::names::Names;
use crate::profile::Profile;
use crate::release::Release;
use crate::renew::Renew;
use crate::strays::Strays;
use crate::train::Train;
use crate::watch::Watch;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The least time between two plans: each end of a job asks for one.
const ENGINE_PAUSE: Duration = Duration::from_millis(200);

/// A release waits no longer than this for the one before, where there are very many.
const RELEASE_REST_MAX: Duration = Duration::from_millis(250);

/// Starts them all; they end with `stop`. `scan_period`: from one look at Slurm to the next where nothing happens.
pub fn spawn(
    tasks: &mut JoinSet<()>,
    scan_period: Duration,
    context: &Arc<Context>,
    engine: &Arc<Engine>,
    stop: &CancellationToken,
) {
    let world = || Arc::clone(context);
    let (nudges, second) = (&context.nudges, Duration::from_secs(1));
    let watch = Watch::new(world());
    let often = Rhythm::every(scan_period);
    let wake = Some(Arc::clone(&nudges.watch));
    tasks.spawn(drive("watch", often.pausing(scan_period / 2), wake, stop.clone(), async move || {
        watch.tick().await
    }));
    let engine = Arc::clone(engine);
    let wake = Some(Arc::clone(&nudges.engine));
    tasks.spawn(drive(
        "engine",
        often.pausing(ENGINE_PAUSE).resting(scan_period / 2),
        wake,
        stop.clone(),
        async move || engine.tick().await,
    ));
    let release = Release::new(world());
    let wake = Some(Arc::clone(&nudges.release));
    tasks.spawn(drive(
        "release",
        Rhythm::every(second).resting(RELEASE_REST_MAX),
        wake,
        stop.clone(),
        async move || release.tick().await,
    ));
    let profile = Profile::new(world());
    let wake = Some(Arc::clone(&nudges.profile));
    tasks.spawn(drive("profile", Rhythm::every(2 * second), wake, stop.clone(), async move || {
        profile.tick().await
    }));
    let judge = Judge::new(world());
    let wake = Some(Arc::clone(&nudges.judge));
    tasks.spawn(drive("judge", Rhythm::every(2 * second), wake, stop.clone(), async move || {
        judge.tick().await
    }));
    let requeuer = Requeuer::new(world());
    let wake = Some(Arc::clone(&nudges.requeue));
    tasks.spawn(drive("requeue", Rhythm::every(2 * second), wake, stop.clone(), async move || {
        requeuer.tick().await
    }));
    let train = Train::new(world());
    let wake = Some(Arc::clone(&nudges.train));
    tasks.spawn(drive("train", Rhythm::every(10 * second), wake, stop.clone(), async move || {
        train.tick().await
    }));
    let renew = Renew::new(world());
    tasks.spawn(drive("renew", Rhythm::every(5 * second), None, stop.clone(), async move || {
        renew.tick().await
    }));
    let beat = Beat::new(world());
    let wake = Some(Arc::clone(&nudges.heartbeat));
    tasks.spawn(drive("heartbeat", Rhythm::every(5 * second), wake, stop.clone(), async move || beat.tick()));
    spawn_beside(tasks, context, stop);
}

/// Those that no job waits for.
fn spawn_beside(tasks: &mut JoinSet<()>, context: &Arc<Context>, stop: &CancellationToken) {
    let world = || Arc::clone(context);
    let (nudges, second) = (&context.nudges, Duration::from_secs(1));
    let names = Names::new(world());
    let wake = Some(Arc::clone(&nudges.names));
    tasks.spawn(drive("names", Rhythm::every(10 * second), wake, stop.clone(), async move || {
        names.tick().await
    }));
    let misses = Misses::new(world());
    tasks.spawn(drive("misses", Rhythm::every(5 * second), None, stop.clone(), async move || {
        misses.tick().await
    }));
    let strays = Strays::new(world());
    tasks.spawn(drive("strays", Rhythm::every(60 * second), None, stop.clone(), async move || {
        strays.tick().await
    }));
    let credit = Credit::new(world());
    tasks
        .spawn(drive("credit", Rhythm::every(second), None, stop.clone(), async move || credit.tick().await));
    let housekeep = Housekeep::new(world());
    tasks.spawn(drive("housekeep", Rhythm::every(600 * second), None, stop.clone(), async move || {
        housekeep.tick().await
    }));
}
