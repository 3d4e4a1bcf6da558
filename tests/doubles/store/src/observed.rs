//! Jobs that are only observed, in memory.

use super::MemoryStore;
use super::state::State;
use async_trait::async_trait;
use pillion_core::report::JobSummary;
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_store::{Lesson, Observed, ObservedJob, ObservedRun, StoreError, StoredProfile};
use std::collections::BTreeMap;

/// All that is kept of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    jobs: BTreeMap<JobStart, (ObservedJob, Option<Lesson>)>,
    /// By start, node and device, the parts in order.
    runs: BTreeMap<(JobStart, NodeName, GresType), Vec<JobSummary>>,
}

impl Watched {
    pub(super) fn row_count(&self) -> usize {
        self.jobs.len() + self.runs.values().map(Vec::len).sum::<usize>()
    }

    /// What ended before then, and was learnt from; the parts of starts that nobody knows go too.
    pub(super) fn forget(&mut self, before: UnixTime) {
        self.jobs.retain(|_, (job, lesson)| lesson.is_none() || job.ended_at.is_none_or(|at| at >= before));
        let jobs = &self.jobs;
        self.runs.retain(|(start, ..), parts| {
            parts.retain(|part| part.ended_at >= before || jobs.contains_key(start));
            !parts.is_empty()
        });
    }
}

impl State {
    /// The first one counts of those that begin alike.
    pub(super) fn add_observed_run(&mut self, node: &NodeName, run: &JobSummary) {
        let key = (run.start, node.clone(), run.gres_type.clone());
        let parts = self.watched.runs.entry(key).or_default();
        if !parts.iter().any(|part| part.started_at == run.started_at) {
            parts.push(run.clone());
        }
    }

    fn observed_runs(&self, start: JobStart) -> Vec<ObservedRun> {
        let of_start = self.watched.runs.iter().filter(|((of, ..), _)| *of == start);
        let runs = of_start.flat_map(|((_, node, gres_type), parts)| {
            let device = self.devices.get(&(node.clone(), gres_type.clone()));
            parts.iter().map(move |summary| ObservedRun {
                node: node.clone(),
                summary: summary.clone(),
                device_model: device.map(|device| device.model.clone()).unwrap_or_default(),
                device_memory_bytes: device.map_or(0, |device| device.memory_bytes),
            })
        });
        runs.collect()
    }
}

impl State {
    /// These starts with their parts, by when they began.
    pub(super) fn observed_starts(&self, starts: &[JobStart]) -> Vec<(ObservedJob, Vec<ObservedRun>)> {
        let known = starts.iter().filter_map(|start| self.watched.jobs.get(start));
        let jobs = by_begin(known.map(|(job, _)| job.clone()).collect());
        jobs.into_iter().map(|job| (job.clone(), self.observed_runs(job.start))).collect()
    }
}

fn by_begin(mut jobs: Vec<ObservedJob>) -> Vec<ObservedJob> {
    jobs.sort_by(|a, b| a.started_at.seconds().total_cmp(&b.started_at.seconds()));
    jobs
}

#[async_trait]
impl Observed for MemoryStore {
    async fn record_observed(&self, jobs: &[ObservedJob]) -> Result<(), StoreError> {
        self.with("recording observed jobs", |state| {
            for job in jobs {
                let known = state.watched.jobs.entry(job.start).or_insert_with(|| (job.clone(), None));
                known.0 = job.clone();
            }
        })
    }

    async fn observed_by_number(&self, inner_ids: &[u32]) -> Result<Vec<ObservedJob>, StoreError> {
        self.with("reading observed jobs", |state| {
            let jobs = state.watched.jobs.values().filter(|(job, _)| inner_ids.contains(&job.inner_id));
            by_begin(jobs.map(|(job, _)| job.clone()).collect())
        })
    }

    async fn observed_job(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ObservedJob, Option<Lesson>)>, StoreError> {
        self.with("reading an observed job", |state| {
            state.watched.jobs.values().rfind(|(job, _)| job.start.job_id == job_id).cloned()
        })
    }

    async fn open_observed(&self) -> Result<Vec<ObservedJob>, StoreError> {
        self.with("reading open observed jobs", |state| {
            let open = state.watched.jobs.values().filter(|(job, _)| job.ended_at.is_none());
            by_begin(open.map(|(job, _)| job.clone()).collect())
        })
    }

    async fn unlearned_observed(
        &self,
        limit: u32,
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError> {
        self.with("reading unlearned observed jobs", |state| {
            let ended = state
                .watched
                .jobs
                .values()
                .filter(|(job, lesson)| job.ended_at.is_some() && lesson.is_none());
            let mut ended: Vec<_> =
                ended.map(|(job, _)| (job.clone(), state.observed_runs(job.start))).collect();
            ended.sort_by(|(a, _), (b, _)| {
                let end = |job: &ObservedJob| job.ended_at.map_or(0.0, UnixTime::seconds);
                end(a).total_cmp(&end(b))
            });
            ended.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            ended
        })
    }

    async fn learn_observed(
        &self,
        start: JobStart,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.with("learning from an observed job", |state| {
            let Some((_, known @ None)) = state.watched.jobs.get_mut(&start) else { return };
            *known = Some(lesson.clone());
            if let Some(stored) = profile {
                let key = (stored.profile.workload.clone(), stored.profile.device_model.clone());
                state.profiles.insert(key, stored.clone());
            }
        })
    }
}
