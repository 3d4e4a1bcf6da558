//! Gives jobs their own request back that are outside the pool and wait there for shards: their user or an admin moved them,
//! and Slurm refused the rest of that change. `watch` reads the pool only and never sees them. `pillion rescue` does the same
//! where no scheduler lives.

use crate::context::Context;
use crate::tick_error::TickError;
use pillion_core::event::EventKind;
use pillion_core::report;
use pillion_slurm::updates::{leave, stray};
use pillion_store::Event;
use std::sync::Arc;
use tracing::warn;

pub struct Strays {
    context: Arc<Context>,
}

impl Strays {
    /// Remembers nothing: a job that was mended says so in its mark.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Checks all partitions once. One job that Slurm refuses to change keeps no other from its own.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let pool = &context.settings.pool;
        // Without a pool every job would be outside it.
        if !context.is_active() || !context.is_leading() || pool.is_empty() {
            return Ok(());
        }
        let at = context.now();
        let answer = context.slurm.jobs(&[]).await.map_err(TickError::slurm("read the whole queue"))?;
        for (job, mark) in answer.jobs.iter().filter_map(|job| Some((job, stray(job, pool)?))) {
            if let Err(error) = context.slurm.update(&[job.id], &leave(mark)).await {
                let (job_id, text) = (job.id, report(&error));
                if context.repeats.is_news(&format!("strays {job_id} {text}"), at) {
                    warn!(%job_id, error = text, "cannot give a job outside the pool its own request back");
                }
                continue;
            }
            let detail = format!(
                "it was moved to {} and waited there for {}: it asks for {} again, as its user did",
                job.partition,
                job.gres,
                mark.own_gres()
            );
            warn!(job_id = %job.id, partition = %job.partition, "a job outside the pool has its own request back");
            let (job_id, kind) = (Some(job.id), EventKind::Stray);
            // The job is no stray any more: what is not told now is told never, but the others are mended.
            match context.store.record_event(&Event { at, kind, job_id, node: None, detail }).await {
                Ok(()) => context.tally.event(&EventKind::Stray),
                Err(error) => context.pass_over("strays", job.id, error.into())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agents;
    use crate::context::Settings;
    use crate::testing::{NOW, at};
    use pillion_core::mark::Mark;
    use pillion_core::{ManualClock, SlurmJobId};
    use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
    use pillion_memory_store::MemoryStore;
    use pillion_slurm::{JobUpdate, SlurmVersion};
    use pillion_store::prelude::*;
    use std::time::Duration;

    /// A pool, a partition without shards beside it, and a scheduler that leads.
    fn world(pool: &[&str]) -> (Arc<FakeSlurm>, Arc<MemoryStore>, Strays) {
        let mut outside = FakeNode::pool("w1", 1);
        outside.devices.values_mut().for_each(|shards| *shards = 0);
        let partitions = vec![FakePartition::new("shared", &["n1"]), FakePartition::new("gpu", &["w1"])];
        let nodes = vec![FakeNode::pool("n1", 1), outside];
        let slurm = Arc::new(FakeSlurm::new(FakeSettings::default(), nodes, partitions, at(NOW)));
        let store = Arc::new(MemoryStore::default());
        let settings =
            Settings { pool: pool.iter().map(|&name| name.to_owned()).collect(), ..Settings::default() };
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let context = Context::new(
            clock,
            Arc::clone(&slurm) as _,
            Arc::clone(&store) as _,
            Arc::new(Agents::default()),
            settings,
        );
        context.board_mut().slurm_version = Some(SlurmVersion { major: 24, minor: 11, patch: 5 });
        (slurm, store, Strays::new(Arc::new(context)))
    }

    /// A managed job whose partition alone was changed.
    fn stranded(slurm: &FakeSlurm, gres_per_job: Option<&str>) -> SlurmJobId {
        let mark = Mark {
            original_partition: "gpu".into(),
            original_field: "node".into(),
            original_gres: "gpu:1".into(),
            ..Mark::default()
        };
        let begin = Some(at(NOW) + Duration::from_mins(1));
        let (admin_comment, gres_per_job) = (mark.to_string(), gres_per_job.map(str::to_owned));
        let id = slurm.submit(FakeJob { begin, admin_comment, gres_per_job, ..FakeJob::default() });
        let moved = JobUpdate { partition: Some("gpu".to_owned()), ..JobUpdate::default() };
        slurm.foreign_update(&[id], &moved).unwrap();
        id
    }

    #[tokio::test]
    async fn a_job_that_was_moved_alone_asks_for_what_its_user_asked_for_again() {
        let (slurm, store, strays) = world(&["shared"]);
        let (id, other) = (stranded(&slurm, None), stranded(&slurm, None));
        slurm.cancel(other);
        for _ in 0..2 {
            strays.tick().await.unwrap();
        }
        assert_eq!(slurm.job(id).unwrap().gres, "gpu:1");
        let kinds: Vec<_> = store.events(id).await.unwrap().into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Stray], "once");
        assert_eq!(store.events(other).await.unwrap(), [], "it is over");
    }

    #[tokio::test]
    async fn a_job_that_slurm_refuses_to_change_keeps_no_other_from_its_own_request() {
        let (slurm, _, strays) = world(&["shared"]);
        // Slurm takes no other GRES for a job that asks for some as a whole (`--gpus`).
        let (first, second) = (stranded(&slurm, Some("gpu:1")), stranded(&slurm, None));
        strays.tick().await.unwrap();
        assert_ne!(slurm.job(first).unwrap().gres, "gpu:1");
        assert_eq!(slurm.job(second).unwrap().gres, "gpu:1");
    }

    #[tokio::test]
    async fn without_a_pool_nobody_is_outside_it() {
        let (slurm, _, strays) = world(&[]);
        let id = stranded(&slurm, None);
        strays.tick().await.unwrap();
        assert_eq!(slurm.job(id).unwrap().gres, "shard:100");
    }
}
