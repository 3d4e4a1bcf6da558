//! A slurmctld in memory for very many jobs: it knows begin times, pins, leases and shards, and nothing else of Slurm. What
//! `squeue` would print is printed and read by the real parser (`print`); an update takes a turn at the one lock, as long as the
//! real one takes for it. Must not know how the scheduler decides.

use crate::options::Options;
use crate::print;
use crate::world::{Told, World};
use async_trait::async_trait;
use pillion_core::{Clock as _, SlurmJobId, SystemClock};
use pillion_slurm::{
    JobUpdate, JobsScan, Node, Partition, Privacy, Requeued, Reservation, Slurm, SlurmError, SlurmVersion,
    parse::queue,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often it looks for jobs that may start.
const PASS_PERIOD: Duration = Duration::from_millis(500);
/// How often jobs end and come.
const CHURN_PERIOD: Duration = Duration::from_millis(50);
/// Of many updates in one call, how many are made before another call has its turn.
const TURN: usize = 10;
/// Fences the records of the queue: no text in it is somebody else's.
const NONCE: &str = "0123456789abcdef";

/// The double.
pub(crate) struct Controller {
    world: Arc<Mutex<World>>,
    reader: Mutex<queue::Reader>,
    update_time: Duration,
    /// Until when its lock is taken.
    busy_until: Mutex<Instant>,
    /// Seconds from the call of each single update to its answer.
    update_waits: Mutex<Vec<f64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has ended the measurement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole seconds of now.
pub(crate) fn epoch() -> u32 {
    u32::try_from(SystemClock.now().epoch()).unwrap_or(u32::MAX)
}

impl Controller {
    /// All jobs wait, no device is taken. What nodes would see is told to `told`.
    pub(crate) fn new(options: &Options, told: Vec<mpsc::UnboundedSender<Told>>) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(options, epoch(), told))),
            reader: Mutex::default(),
            update_time: Duration::from_secs_f64(options.update_milliseconds / 1e3),
            busy_until: Mutex::new(Instant::now()),
            update_waits: Mutex::default(),
        }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }

    /// What single updates waited since the last question.
    pub(crate) fn take_update_waits(&self) -> Vec<f64> {
        std::mem::take(&mut *locked(&self.update_waits))
    }

    /// Starts what may start, for as long as it is polled.
    pub(crate) async fn schedule(&self) {
        loop {
            tokio::time::sleep(PASS_PERIOD).await;
            self.world().pass(epoch());
        }
    }

    /// Ends so many jobs a second, drawn from those that run, and lets as many come.
    pub(crate) async fn churn(&self, per_second: u32) {
        let mut due = 0.0;
        let mut period = tokio::time::interval(CHURN_PERIOD);
        loop {
            period.tick().await;
            due += f64::from(per_second) * CHURN_PERIOD.as_secs_f64();
            let mut world = self.world();
            while due >= 1.0 && world.replace_one(epoch()) {
                due -= 1.0;
            }
            // What could not end yet does not end all at once later.
            due = due.min(f64::from(per_second));
        }
    }

    /// Waits for so many updates at the lock.
    async fn turn(&self, updates: usize) {
        let until = {
            let mut busy_until = locked(&self.busy_until);
            let begins = (*busy_until).max(Instant::now());
            *busy_until = begins + self.update_time * u32::try_from(updates).unwrap_or(u32::MAX);
            *busy_until
        };
        tokio::time::sleep_until(until).await;
    }
}

#[async_trait]
impl Slurm for Controller {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        Ok(SlurmVersion { major: 24, minor: 11, patch: 5 })
    }

    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        Ok(Privacy::default())
    }

    async fn jobs(&self, _partitions: &[String]) -> Result<JobsScan, SlurmError> {
        let (world, mut answer) = (Arc::clone(&self.world), locked(&self.reader).answer(NONCE));
        // As by another process, and as through its pipe: not on a thread of the scheduler's, and never the whole text at once.
        let (pipe, mut pieces) = mpsc::channel(1);
        let printed = tokio::task::spawn_blocking(move || {
            let mut after = None;
            while let Some((last, text)) = print::queue(&locked(&world), after, NONCE) {
                after = Some(last);
                if pipe.blocking_send(text).is_err() {
                    return;
                }
            }
        });
        while let Some(text) = pieces.recv().await {
            answer.push(text.as_bytes());
        }
        printed.await.expect("it does not panic");
        Ok(locked(&self.reader).finish(answer))
    }

    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        Ok(print::nodes(&self.world()))
    }

    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        Ok(Vec::new())
    }

    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        Ok(Vec::new())
    }

    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        let called_at = Instant::now();
        self.turn(jobs.len()).await;
        let answer = {
            let mut world = self.world();
            jobs.iter().try_for_each(|job| world.update(*job, update, epoch()))
        };
        locked(&self.update_waits).push(called_at.elapsed().as_secs_f64());
        answer
    }

    async fn update_each(&self, updates: &[(SlurmJobId, JobUpdate)]) -> Result<u64, SlurmError> {
        let mut refused_count = 0;
        for some in updates.chunks(TURN) {
            self.turn(some.len()).await;
            let mut world = self.world();
            for (job, update) in some {
                refused_count += u64::from(world.update(*job, update, epoch()).is_err());
            }
        }
        Ok(refused_count)
    }

    async fn allows_requeue(&self, _job: SlurmJobId) -> Result<bool, SlurmError> {
        Ok(false)
    }

    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        Ok(jobs.iter().map(|job| (*job, "train.sh".to_owned())).collect())
    }

    async fn requeue(&self, _job: SlurmJobId, _which: Requeued) -> Result<(), SlurmError> {
        Err(SlurmError::Failed { program: "scontrol".to_owned(), status: 1, detail: "not here".to_owned() })
    }
}
