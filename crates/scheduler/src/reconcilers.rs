//! All reconcilers of one scheduler, each on its rhythm: what `run` starts, the metrics count and docs/architecture.md lists.
//! Nothing here decides, or knows what they do.

use crate::context::Context;
use crate::credit::Credit;
use crate::drive::{Reconciler, Rhythm, Task, drive};
use crate::engine::Engine;
use crate::failure::Judge;
use crate::failure::ending::Ending;
use crate::failure::requeue::Requeuer;
use crate::first_runs::FirstRuns;
use crate::heartbeat::Beat;
use crate::housekeep::Housekeep;
use crate::misses::Misses;
use crate::names::Names;
use crate::observe::Observe;
use crate::pace::Pace;
use crate::profile::Profile;
use crate::release::Release;
use crate::renew::Renew;
use crate::sessions::Sessions;
use crate::shadow::Shadow;
use crate::strays::Strays;
use crate::tick_error::TickError;
use crate::train::Train;
use crate::trend::Trend;
use crate::watch::Watch;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The least time between two looks at Slurm, in the long run. Who waits for the end of a job waits for the next look.
const WATCH_PAUSE: Duration = Duration::from_millis(200);
/// A look is a tenth of the time at most: of a long queue, and of a controller that is busy, there is one in half a period.
const WATCH_RESTS: u32 = 9;
/// Some ten looks at a queue of a few hundred jobs come at once, if as many jobs end: a device that fell free waits for no rest.
const WATCH_PUTS_OFF: Duration = Duration::from_secs(5);

/// The least time between two plans, in the long run: each end of a job asks for one.
const ENGINE_PAUSE: Duration = Duration::from_millis(200);
const ENGINE_PUTS_OFF: Duration = Duration::from_secs(1);

/// A release waits no longer than this for the one before, where there are very many.
const RELEASE_REST_MAX: Duration = Duration::from_millis(250);

/// One that has a tick of its own.
macro_rules! reconcile {
    ($($reconciler:ty),+ $(,)?) => {$(
        #[async_trait]
        impl Reconciler for $reconciler {
            async fn tick(&self) -> Result<(), TickError> {
                <$reconciler>::tick(self).await
            }
        }
    )+};
}

reconcile!(
    Watch, Engine, Release, Profile, Judge, Requeuer, Ending, Train, Renew, Names, Misses, Strays, Credit,
    Pace, Trend, Sessions, Observe, Shadow, Housekeep,
);

#[async_trait]
impl Reconciler for Beat {
    async fn tick(&self) -> Result<(), TickError> {
        Self::tick(self)
    }
}

#[async_trait]
impl Reconciler for FirstRuns {
    async fn tick(&self) -> Result<(), TickError> {
        Self::tick(self).await
    }
}

fn task(
    name: &'static str,
    rhythm: Rhythm,
    wake: Option<&Arc<Notify>>,
    reconciler: impl Reconciler + 'static,
) -> Task {
    Task { name, rhythm, wake: wake.cloned(), reconciler: Arc::new(reconciler) }
}

const fn every(seconds: u64) -> Rhythm {
    Rhythm::every(Duration::from_secs(seconds))
}

/// All of them, in the order in which a job meets them; those that no job waits for come last. `scan_period`: from one scan of
/// Slurm to the next where nothing happens.
pub fn all(scan_period: Duration, context: &Arc<Context>, engine: &Arc<Engine>) -> Vec<Task> {
    let world = || Arc::clone(context);
    let often = Rhythm::every(scan_period);
    let nudges = &context.nudges;
    let watch =
        often.pausing(WATCH_PAUSE).resting_times(WATCH_RESTS, scan_period / 2).putting_off(WATCH_PUTS_OFF);
    let plan = often.pausing(ENGINE_PAUSE).resting(scan_period / 2).putting_off(ENGINE_PUTS_OFF);
    let engine: Arc<dyn Reconciler> = Arc::clone(engine) as _;
    vec![
        task("watch", watch, Some(&nudges.watch), Watch::new(world())),
        Task { name: "engine", rhythm: plan, wake: Some(Arc::clone(&nudges.engine)), reconciler: engine },
        task("release", every(1).resting(RELEASE_REST_MAX), Some(&nudges.release), Release::new(world())),
        task("renew", every(5), None, Renew::new(world())),
        task("heartbeat", every(5), Some(&nudges.heartbeat), Beat::new(world())),
        task("profile", every(2), Some(&nudges.profile), Profile::new(world())),
        task("judge", every(2), Some(&nudges.judge), Judge::new(world())),
        task("requeue", every(2), Some(&nudges.requeue), Requeuer::new(world())),
        task("ending", every(1), None, Ending::new(world())),
        task("train", every(10), Some(&nudges.train), Train::new(world())),
        task("misses", every(5), None, Misses::new(world())),
        task("credit", every(1), None, Credit::new(world())),
        task("pace", every(1), None, Pace::new(world())),
        task("trend", every(5), None, Trend::new(world())),
        task("first-runs", every(2), None, FirstRuns::new(world())),
        task("sessions", every(1), None, Sessions::new(world())),
        task("names", every(10), Some(&nudges.names), Names::new(world())),
        task("observe", every(5), None, Observe::new(world())),
        task("shadow", every(15), Some(&nudges.shadow), Shadow::new(world())),
        task("strays", every(60), None, Strays::new(world())),
        task("housekeep", every(600), None, Housekeep::new(world())),
    ]
}

/// Starts them; they end with `stop`.
pub fn spawn(tasks: &mut JoinSet<()>, all: Vec<Task>, context: &Arc<Context>, stop: &CancellationToken) {
    for task in all {
        tasks.spawn(drive(task, Arc::clone(context), stop.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, NOW, at};

    /// The names in the first column of the table in docs/architecture.md, in its order.
    fn documented() -> Vec<String> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/architecture.md");
        let text = std::fs::read_to_string(file).unwrap();
        let (_, table) = text.split_once("| reconciler | period |").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn the_table_of_the_document_is_this_list() {
        let context = testing::context();
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let all = all(Duration::from_secs(2), &context, &engine);
        assert_eq!(all.iter().map(|task| task.name).collect::<Vec<_>>(), documented());
    }

    #[tokio::test]
    async fn of_each_tick_it_is_known_how_long_it_took_and_whether_it_failed() {
        let context = testing::context();
        let stop = CancellationToken::new();
        stop.cancel();
        for (name, result) in [("well", true), ("ill", false)] {
            let task = task(name, Rhythm::every(Duration::ZERO), None, Fixed(result));
            drive(task, Arc::clone(&context), stop.clone()).await;
        }
        let counts = context.tally.counts();
        let (well, ill) = (&counts.ticks["well"], &counts.ticks["ill"]);
        assert_eq!((well.durations.count(), well.failures, well.succeeded_at), (1, 0, Some(at(NOW))));
        assert_eq!((ill.durations.count(), ill.failures, ill.succeeded_at), (1, 1, None));
    }

    /// How often Slurm is looked at in so many seconds by one who is poked without end, where a look takes so long.
    async fn looks_of(look: Duration, seconds: u32) -> u64 {
        let context = testing::context();
        let engine = Arc::new(Engine::new(Arc::clone(&context)));
        let mut tasks = all(Duration::from_secs(2), &context, &engine);
        tasks.retain(|task| task.name == "watch");
        for task in &mut tasks {
            task.reconciler = Arc::new(Slow(look));
        }
        let (stop, mut driven) = (CancellationToken::new(), JoinSet::new());
        spawn(&mut driven, tasks, &context, &stop);
        for _ in 0..seconds * 200 {
            context.nudges.watch.notify_one();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        while driven.join_next().await.is_some() {}
        context.tally.counts().ticks["watch"].durations.count()
    }

    /// However often somebody pokes: five looks a second where they are cheap, and one in half a period where they are not.
    #[tokio::test(start_paused = true)]
    async fn who_pokes_without_end_makes_it_look_for_a_tenth_of_the_time_at_most() {
        let mut in_a_minute = Vec::new();
        for milliseconds in [0, 50, 150, 2_000] {
            let look = Duration::from_millis(milliseconds);
            // The first minute has what was put off before it as well.
            in_a_minute.push(looks_of(look, 120).await - looks_of(look, 60).await);
        }
        assert!((295..=301).contains(&in_a_minute[0]), "{in_a_minute:?}");
        assert!((118..=121).contains(&in_a_minute[1]), "{in_a_minute:?}");
        assert!((51..=53).contains(&in_a_minute[2]), "{in_a_minute:?}");
        assert!((19..=21).contains(&in_a_minute[3]), "{in_a_minute:?}");
    }

    /// Whoever comes while it has rest to put off is looked at as soon as the look before is over.
    #[tokio::test(start_paused = true)]
    async fn a_few_ends_in_a_row_wait_for_no_rest() {
        assert!((10..=13).contains(&looks_of(Duration::from_millis(50), 1).await));
    }

    struct Slow(Duration);

    #[async_trait]
    impl Reconciler for Slow {
        async fn tick(&self) -> Result<(), TickError> {
            tokio::time::sleep(self.0).await;
            Ok(())
        }
    }

    struct Fixed(bool);

    #[async_trait]
    impl Reconciler for Fixed {
        async fn tick(&self) -> Result<(), TickError> {
            let error = std::io::Error::other("full");
            if self.0 { Ok(()) } else { Err(TickError::File { path: "x".into(), source: error }) }
        }
    }
}
