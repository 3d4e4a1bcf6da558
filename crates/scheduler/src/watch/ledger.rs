//! What managed jobs do, as it is written into the store: only what has changed, and no more of a long queue in one scan than
//! can be done in a moment. Jobs that run or are over come first; of one that waits there is nothing to lose.

use crate::context::Context;
use crate::scan::{Kept, Scan, record_of};
use crate::tick_error::TickError;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_slurm::{Ending, JobState};
use pillion_store::JobRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

/// How many jobs are read from the store, and written to it, at once.
const JOBS_PER_QUERY: usize = 5_000;
/// How many jobs are compared with the store or written to it in one scan; the others follow in the next ones.
const READ_PER_SCAN: usize = 20_000;
const WRITTEN_PER_SCAN: usize = 10_000;

/// Keeps the table of jobs up to date.
pub(super) struct Ledger {
    context: Arc<Context>,
    hasher: RandomState,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// What the store has, so that only changes are written again; `None`: nothing. Filled from the store on first sight.
    known: BTreeMap<SlurmJobId, Option<Known>>,
    /// The scan of which all but what is owed is written down.
    last: Option<Arc<Scan>>,
    /// Jobs that were left for a later scan.
    owed: BTreeSet<SlurmJobId>,
}

/// A job as it was written down last.
struct Known {
    kept: Kept,
    digest: u64,
}

impl Ledger {
    /// A ledger that has seen nothing yet.
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context, hasher: RandomState::new(), memory: Mutex::default() }
    }

    /// Forgets what it has seen: while another scheduler leads, that one writes.
    pub(super) fn forget(&self) {
        *self.lock() = Memory::default();
    }

    /// Writes down what is new in a scan.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer; the next scan brings it again.
    pub(super) async fn write_down(&self, scan: &Arc<Scan>) -> Result<(), TickError> {
        let (mut read, mut written) = (0, 0);
        let mut open = self.open(scan);
        while !open.is_empty() && read < READ_PER_SCAN && written < WRITTEN_PER_SCAN {
            let next = open.split_off(open.len().saturating_sub(JOBS_PER_QUERY));
            read += self.recall(scan, &next).await?;
            let changed = self.changed(scan, &next);
            if !changed.is_empty() {
                self.record(&changed, scan.at).await?;
            }
            written += changed.len();
            let mut memory = self.lock();
            for record in changed {
                let known = Known { kept: Kept::from(&record), digest: self.digest(&record) };
                memory.known.insert(record.id, Some(known));
            }
        }
        let mut memory = self.lock();
        memory.owed = open.into_iter().collect();
        memory.known.retain(|id, _| scan.jobs.contains_key(id));
        memory.last = Some(Arc::clone(scan));
        Ok(())
    }

    /// All of them at once. Where that is refused, by halves, until those stand alone that cannot be written down: nobody plans
    /// with them, and they do not keep the queue from being seen.
    async fn record(&self, jobs: &[JobRecord], at: UnixTime) -> Result<(), TickError> {
        let mut parts = vec![jobs];
        while let Some(part) = parts.pop() {
            match (self.context.store.record_jobs(part, at).await, part) {
                (Ok(()), _) => {}
                (Err(error), [job]) => self.context.pass_over("watch", job.id, error.into())?,
                (Err(error), part) if error.is_of_one_row() => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([first, second]);
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Jobs whose row may be out of date; the last ones are the most urgent.
    fn open(&self, scan: &Scan) -> Vec<SlurmJobId> {
        let memory = self.lock();
        let owed = memory.owed.iter().filter_map(|id| scan.jobs.get(id));
        let changed = scan.jobs.changed_since(memory.last.as_ref().map(|last| &last.jobs));
        let (waiting, others): (BTreeSet<_>, BTreeSet<_>) = owed
            .chain(changed)
            .map(|job| (job.state != JobState::Pending, job.id))
            .partition(|(is_urgent, _)| !is_urgent);
        waiting.into_iter().chain(others).map(|(_, id)| id).collect()
    }

    /// Reads what is stored of those that were not seen before; how many were asked for.
    async fn recall(&self, scan: &Scan, ids: &[SlurmJobId]) -> Result<usize, TickError> {
        // Only a job of ours can have a row: one that carries a mark, or shards that only we hand out.
        let mut unknown: Vec<SlurmJobId> = {
            let memory = self.lock();
            ids.iter().filter(|id| !memory.known.contains_key(id)).copied().collect()
        };
        unknown.retain(|id| {
            let job = scan.jobs.get(id);
            job.is_some_and(|job| !matches!(job.mark, Ok(None)) || job.shards().next().is_some())
        });
        if unknown.is_empty() {
            return Ok(0);
        }
        let mut stored = self.context.store.jobs(&unknown).await?;
        let mut memory = self.lock();
        for id in &unknown {
            // Job ids may be used again after years: a row of another submission is not this job.
            let submitted_at = scan.jobs.get(id).map(|job| job.submitted_at);
            let known = stored.remove(id).filter(|record| submitted_at == Some(record.submitted_at));
            let known = known.map(|record| Known { kept: Kept::from(&record), digest: self.digest(&record) });
            memory.known.insert(*id, known);
        }
        Ok(unknown.len())
    }

    fn changed(&self, scan: &Scan, ids: &[SlurmJobId]) -> Vec<JobRecord> {
        let memory = self.lock();
        ids.iter()
            .filter_map(|id| {
                let known = memory.known.get(id).and_then(Option::as_ref);
                let record = record_of(scan.jobs.get(id)?, known.map(|known| &known.kept))?;
                let is_new = known.is_none_or(|known| known.digest != self.digest(&record));
                is_new.then_some(record)
            })
            .collect()
    }

    fn digest(&self, record: &JobRecord) -> u64 {
        let JobRecord {
            id,
            restart_count,
            uid,
            user,
            account,
            partition,
            workload,
            slowdown_ratio_max,
            memory_bytes_declared,
            submitted_at,
            started_at,
            ended_at,
            ending,
            node,
            node_count,
            gres,
            alone,
            exit,
        } = record;
        self.hasher.hash_one((
            (id, restart_count, uid, user, account, partition),
            (workload, slowdown_ratio_max.map(f64::to_bits), memory_bytes_declared),
            (bits(*submitted_at), started_at.map(bits), ended_at.map(bits)),
            (ending.map(Ending::as_str), node, node_count, gres, alone, exit),
        ))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A float has no hash; its bits have.
fn bits(time: UnixTime) -> u64 {
    time.seconds().to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, NOW, at};
    use pillion_core::mark::Mark;
    use pillion_slurm::{Job, NodeAvailability};

    #[tokio::test]
    async fn a_renewed_begin_time_writes_no_row() {
        let ledger = Ledger::new(testing::context());
        let mark = Mark { workload_digest: "w".into(), ..Mark::default() };
        let waits = Job { mark: Ok(Some(mark)), ..testing::job(JobState::Pending) };
        let id = waits.id;
        let renewed = Job { eligible_at: Some(at(NOW + 900)), ..waits.clone() };
        let moved = Job { partition: "other".into(), ..renewed.clone() };
        let [first, renewed, moved] =
            [waits, renewed, moved].map(|job| testing::scan(Some(job), NodeAvailability::Up));
        assert_eq!(ledger.changed(&first, &[id]).len(), 1);
        ledger.write_down(&Arc::new(first)).await.unwrap();
        assert!(
            ledger.changed(&renewed, &[id]).is_empty(),
            "its begin time is read of Slurm where it is asked for"
        );
        assert_eq!(ledger.changed(&moved, &[id]).len(), 1);
    }
}
