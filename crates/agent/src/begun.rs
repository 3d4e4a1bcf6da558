//! Which start of each job runs on this node, and on what, as Slurm told it of the job's script, or the decision of an interactive job. All
//! later steps of the job are answered from here: they are begun by the script, with an environment of its making, and nothing of that is
//! believed.

use pillion_core::{GresType, JobStart, SlurmJobId};
use std::collections::BTreeMap;

/// A start whose script has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunStart {
    pub start: JobStart,
    /// The devices that Slurm gave it.
    pub gres_types: Vec<GresType>,
    /// Whether it began with its share. One that did not has none later: half of its processes would share.
    pub has_share: bool,
}

/// The starts whose scripts have begun, one a job.
#[derive(Debug, Default)]
pub struct BegunStarts {
    of_jobs: BTreeMap<SlurmJobId, BegunStart>,
}

impl BegunStarts {
    /// A script begins: an earlier start of the job is over, whether we saw its end or not.
    pub fn begin(&mut self, begun: BegunStart) {
        self.of_jobs.insert(begun.start.job_id, begun);
    }

    /// Takes up one from before the agent began; a later one of the job that it holds already stays.
    pub fn restore(&mut self, begun: BegunStart) {
        let known = self.of_jobs.get(&begun.start.job_id);
        if known.is_none_or(|known| known.start.restart_count < begun.start.restart_count) {
            self.begin(begun);
        }
    }

    /// The start of this job that runs.
    pub fn get(&self, job_id: SlurmJobId) -> Option<&BegunStart> {
        self.of_jobs.get(&job_id)
    }

    /// It is over.
    pub fn end(&mut self, start: JobStart) {
        if self.get(start.job_id).is_some_and(|begun| begun.start == start) {
            self.of_jobs.remove(&start.job_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(restart_count: u32) -> BegunStart {
        let start = JobStart { job_id: SlurmJobId::plain(33), restart_count };
        BegunStart { start, gres_types: Vec::new(), has_share: true }
    }

    #[test]
    fn the_last_start_that_began_is_the_one_that_runs() {
        let mut starts = BegunStarts::default();
        let running = |starts: &BegunStarts| Some(starts.get(SlurmJobId::plain(33))?.start.restart_count);
        starts.begin(begun(0));
        starts.begin(begun(1));
        assert_eq!(running(&starts), Some(1));
        starts.restore(begun(0));
        starts.end(begun(0).start);
        assert_eq!(running(&starts), Some(1), "the end of the one before is told late");
        starts.restore(begun(2));
        assert_eq!(running(&starts), Some(2));
        starts.end(begun(2).start);
        assert_eq!(running(&starts), None);
    }
}
