//! Runs reconcilers: each on its period and whenever it is nudged, until told to stop. No retries inside: the
//! next tick is the retry.

use crate::context::Context;
use crate::tick_error::TickError;
use async_trait::async_trait;
use pillion_core::report;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Who looks at what is there and does what is to be done next: idempotent, and safe to be stopped between any two calls.
#[async_trait]
pub trait Reconciler: Send + Sync {
    /// One tick: does what is to be done now.
    ///
    /// # Errors
    /// [`TickError`] where somebody did not answer; the next tick tries again.
    async fn tick(&self) -> Result<(), TickError>;
}

/// A reconciler on its rhythm.
pub struct Task {
    /// Its name in logs, metrics and docs/architecture.md.
    pub name: &'static str,
    /// How often it ticks.
    pub rhythm: Rhythm,
    /// What wakes it.
    pub wake: Option<Arc<Notify>>,
    pub reconciler: Arc<dyn Reconciler>,
}

/// How often a reconciler ticks.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    /// At the latest after so long.
    pub period: Duration,
    /// At the earliest after so long: who is woken by every end of a job is not to ask Slurm that often.
    pub pause: Duration,
    /// It rests for so many times what its last tick took, up to `rest_max`: who is always woken leaves a core to others, and asks a
    /// controller that is slow less often.
    pub rest_ratio: u32,
    pub rest_max: Duration,
    /// So much rest it may put off: who was left alone for a while answers several at once, and rests no less in the long run.
    pub rest_put_off_max: Duration,
}

/// Rest that ticks have made due and that was not taken yet.
#[derive(Debug, Clone, Copy, Default)]
struct Due(Duration);

impl Due {
    /// After it was left alone for `rested`, and then ticked for `tick`.
    fn after(self, rested: Duration, tick: Duration, rhythm: Rhythm) -> Self {
        Self(self.0.saturating_sub(rested) + rhythm.pause_after(tick))
    }

    /// What cannot be put off.
    const fn now(self, rhythm: Rhythm) -> Duration {
        self.0.saturating_sub(rhythm.rest_put_off_max)
    }
}

impl Rhythm {
    /// Every so often, and at once when woken.
    pub const fn every(period: Duration) -> Self {
        Self {
            period,
            pause: Duration::ZERO,
            rest_ratio: 1,
            rest_max: Duration::ZERO,
            rest_put_off_max: Duration::ZERO,
        }
    }

    /// The same, with a pause.
    #[must_use]
    pub const fn pausing(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// The same, with rests as long as the tick before.
    #[must_use]
    pub const fn resting(self, rest_max: Duration) -> Self {
        Self { rest_max, ..self }
    }

    /// The same, with rests of so many times the tick before.
    #[must_use]
    pub const fn resting_times(self, rest_ratio: u32, rest_max: Duration) -> Self {
        Self { rest_ratio, rest_max, ..self }
    }

    /// The same, with so much of its rest put off until nobody wakes it.
    #[must_use]
    pub const fn putting_off(self, rest_put_off_max: Duration) -> Self {
        Self { rest_put_off_max, ..self }
    }

    /// How much rest a tick makes due that took so long.
    fn pause_after(self, tick: Duration) -> Duration {
        self.pause.max(tick.saturating_mul(self.rest_ratio).min(self.rest_max))
    }
}

/// Runs a task until `stop`, every `period` and when it is woken, but not before it has rested. The first tick comes at
/// once. An error is logged when it begins and when it changes, not on every tick.
pub async fn drive(task: Task, context: Arc<Context>, stop: CancellationToken) {
    let Task { name, rhythm, wake, reconciler } = task;
    let mut last_error = None;
    let (mut due, mut ended) = (Due::default(), Instant::now());
    loop {
        let begun = Instant::now();
        let rested = begun - ended;
        let done = reconciler.tick().await;
        context.tally.ticked(name, begun.elapsed(), done.is_ok().then(|| context.now()));
        match done {
            Ok(()) => last_error = None,
            Err(error) => {
                let text = report(&error);
                if last_error.as_ref() != Some(&text) {
                    warn!(task = name, error = %text, "tick failed; trying again");
                }
                last_error = Some(text);
            }
        }
        ended = Instant::now();
        due = due.after(rested, ended - begun, rhythm);
        let pause = due.now(rhythm);
        let woken = async {
            match &wake {
                Some(wake) => wake.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = woken => {}
            () = tokio::time::sleep(rhythm.period.saturating_sub(pause)) => {}
        }
    }
}
