//! Learns what people call the workloads of the queue: the names of their jobs, as Slurm knows them. What `profile=` calls
//! them comes with the first launch (`ingest`). Nothing waits for a name: where Slurm does not tell, the key is shown.

use crate::context::Context;
use crate::scan::{Scan, mark_of, workload_of};
use crate::tick_error::TickError;
use pillion_core::name::NameSource;
use pillion_core::workload::on_any;
use pillion_core::{SlurmJobId, UnixTime, UserId, WorkloadKey, WorkloadName};
use pillion_slurm::{Job, NAMED_JOBS_MAX};
use pillion_store::Naming;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a workload that got no name is not asked for again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_mins(1);

pub struct Names {
    context: Arc<Context>,
    memory: Mutex<Memory>,
}

/// Of workloads in the queue.
#[derive(Default)]
struct Memory {
    /// Those that have a name.
    named: BTreeSet<WorkloadKey>,
    /// When the others were asked for.
    asked: BTreeMap<WorkloadKey, UnixTime>,
}

/// One job of each workload.
type Bearers = BTreeMap<WorkloadKey, (SlurmJobId, UserId)>;

impl Names {
    /// A namer that knows nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, memory: Mutex::default() }
    }

    /// Names what has no name: one call of Slurm for all of it, for each workload at most once a minute.
    ///
    /// # Errors
    /// [`TickError`] where Slurm or the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let Some(scan) = context.fresh_scan().filter(|_| context.is_leading()) else { return Ok(()) };
        let mut unnamed = self.unnamed(&scan);
        if unnamed.is_empty() {
            return Ok(());
        }
        let keys: Vec<WorkloadKey> = unnamed.keys().cloned().collect();
        let known = context.store.workload_names(&keys).await?;
        unnamed.retain(|workload, _| !known.contains_key(workload));
        self.lock().named.extend(known.into_keys());
        let asked: Bearers = unnamed.into_iter().take(NAMED_JOBS_MAX).collect();
        if asked.is_empty() {
            return Ok(());
        }
        self.lock().asked.extend(asked.keys().map(|workload| (workload.clone(), scan.at)));
        let jobs: BTreeSet<SlurmJobId> = asked.values().map(|(job, _)| *job).collect();
        let jobs: Vec<SlurmJobId> = jobs.into_iter().collect();
        let names =
            context.slurm.job_names(&jobs).await.map_err(TickError::slurm("read the names of jobs"))?;
        let mut namings = Vec::new();
        for (workload, (job, uid)) in asked {
            if let Some(name) = names.get(&job).and_then(|name| WorkloadName::safe(name)) {
                namings.push(Naming { workload, uid, name, source: NameSource::Job });
            }
        }
        self.keep(&namings, scan.at).await?;
        self.lock().named.extend(namings.into_iter().map(|naming| naming.workload));
        Ok(())
    }

    /// All at once; where that is refused, each on its own.
    async fn keep(&self, namings: &[Naming], at: UnixTime) -> Result<(), TickError> {
        let store = &self.context.store;
        match store.name_workloads(namings, at).await {
            Err(error) if error.is_of_one_row() => {}
            kept => return Ok(kept?),
        }
        for naming in namings {
            let kept = store.name_workloads(std::slice::from_ref(naming), at).await;
            kept.or_else(|error| self.context.pass_over("names", &naming.workload, error.into()))?;
        }
        Ok(())
    }

    /// The workloads of the queue that have no name, and were not asked for lately.
    fn unnamed(&self, scan: &Scan) -> Bearers {
        // One job of each, before anything is copied: a long queue has few workloads.
        let one_each = scan.jobs.values().filter_map(|job| Some((words_of(job)?, job)));
        let one_each: HashMap<(&str, &str, usize), &Job> = one_each.collect();
        let bearers: Bearers = one_each.into_values().flat_map(bearers).collect();
        let mut memory = self.lock();
        let Memory { named, asked } = &mut *memory;
        named.retain(|workload| bearers.contains_key(workload));
        asked.retain(|workload, at| bearers.contains_key(workload) && *at + ASKED_AGAIN_AFTER > scan.at);
        bearers
            .into_iter()
            .filter(|(workload, _)| !named.contains(workload) && !asked.contains_key(workload))
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the key of a job's workload is made of.
fn words_of(job: &Job) -> Option<(&str, &str, usize)> {
    mark_of(job).map(|mark| (job.user.as_str(), mark.workload_digest.as_str(), mark.device_count()))
}

/// The workload of a job, and the same whatever the number of its devices: how it scales is told of that one.
fn bearers(job: &Job) -> Vec<(WorkloadKey, (SlurmJobId, UserId))> {
    let Some(mark) = mark_of(job).filter(|mark| !mark.workload_digest.is_empty()) else { return Vec::new() };
    let (own, bearer) = (workload_of(job, mark), (job.id, job.uid));
    vec![(on_any(&own), bearer), (own, bearer)]
}

#[cfg(test)]
mod tests;
