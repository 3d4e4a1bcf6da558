//! Runs with all that is known of them: those that nobody looked at yet, and those that are counted.

use super::MemoryStore;
use super::state::{Run, State};
use async_trait::async_trait;
use pillion_core::decision::MemberState;
use pillion_core::report::JobSummary;
use pillion_core::{GresType, JobStart, WorkloadKey};
use pillion_store::{Decision, Lesson, MeasuredRun, Profiles, RunAccount, Runs, StoreError, StoredProfile};

impl State {
    fn measured_runs(&self, limit: u32, is_open: impl Fn(&Run) -> bool) -> Vec<MeasuredRun> {
        let open = self.runs.values().filter(|run| is_open(run));
        let mut runs: Vec<_> = open.filter_map(|run| self.measured(run)).collect();
        runs.sort_by(|a, b| a.summary.ended_at.seconds().total_cmp(&b.summary.ended_at.seconds()));
        runs.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        runs
    }

    /// The run with all that is known of it, once its end is certain.
    fn measured(&self, run: &Run) -> Option<MeasuredRun> {
        let start = run.summary.start;
        let job = self.jobs.get(&start.job_id)?;
        let is_over = job.restart_count > start.restart_count
            || (job.restart_count == start.restart_count && job.ended_at.is_some());
        if !is_over {
            return None;
        }
        let device = self.devices.get(&(run.node.clone(), run.summary.gres_type.clone()))?;
        Some(MeasuredRun {
            summary: run.summary.clone(),
            node: run.node.clone(),
            device_model: device.model.clone(),
            device_memory_bytes: device.memory_bytes,
            job: job.clone(),
            decision: self.ran_under(start),
            requeue: self.faults.requeue_of(start),
        })
    }

    /// The newest decision that this start was released under.
    fn ran_under(&self, start: JobStart) -> Option<Decision> {
        let mut newest_first = self.decisions.values().rev().map(|committed| &committed.decision);
        let ran_under = newest_first.find(|decision| {
            decision.members.iter().any(|member| {
                let has_run =
                    matches!(member.state, MemberState::Released | MemberState::Running | MemberState::Ended);
                member.plan.start == start && has_run
            })
        });
        ran_under.cloned()
    }
}

#[async_trait]
impl Runs for MemoryStore {
    async fn unprofiled_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.with("reading unprofiled runs", |state| state.measured_runs(limit, |run| !run.is_done()))
    }

    async fn pass_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) -> Result<(), StoreError> {
        self.with("passing over a run", |state| {
            let run = state.runs.get_mut(&(start, gres_type.clone()));
            if let Some(run) = run.filter(|run| !run.is_done()) {
                run.is_passed = true;
                run.lesson = Some(lesson.clone());
            }
        })
    }

    async fn lesson(&self, start: JobStart) -> Result<Option<Lesson>, StoreError> {
        self.with("reading a lesson", |state| {
            let mut runs = state.runs.iter().filter(|((of, _), _)| *of == start);
            runs.next().and_then(|(_, run)| run.lesson.clone())
        })
    }

    async fn unjudged_runs(&self, limit: u32) -> Result<Vec<MeasuredRun>, StoreError> {
        self.with("reading unjudged runs", |state| state.measured_runs(limit, |run| !run.is_judged))
    }

    async fn summary(&self, start: JobStart) -> Result<Option<JobSummary>, StoreError> {
        self.with("reading a summary", |state| {
            let mut of_start = state.runs.values().filter(|run| run.summary.start == start);
            of_start.next().map(|run| run.summary.clone())
        })
    }

    async fn summaries(&self, start: JobStart) -> Result<Vec<JobSummary>, StoreError> {
        self.with("reading the summaries of a start", |state| {
            let of_start = state.runs.values().filter(|run| run.summary.start == start);
            of_start.map(|run| run.summary.clone()).collect()
        })
    }
}

#[async_trait]
impl Profiles for MemoryStore {
    async fn profile_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        self.call("profiling a run", |state| {
            let run = state.runs.get_mut(&(start, gres_type.clone()));
            let run = run.ok_or_else(|| StoreError::Missing(format!("the run of {start} on {gres_type}")))?;
            if run.is_done() {
                return Ok(());
            }
            run.account = Some(account.clone());
            run.lesson = Some(lesson.clone());
            state.add_charge(account);
            state.add_slice(account);
            if let Some(stored) = profile {
                let key = (stored.profile.workload.clone(), stored.profile.device_model.clone());
                state.profiles.insert(key, stored.clone());
            }
            Ok(())
        })
    }

    async fn profile(
        &self,
        workload: &WorkloadKey,
        device_model: &str,
    ) -> Result<Option<StoredProfile>, StoreError> {
        self.call("reading a profile", |state| {
            let mut profiles = state.profiles().into_iter();
            Ok(profiles.find(|StoredProfile { profile, .. }| {
                profile.workload == *workload && profile.device_model == device_model
            }))
        })
    }

    async fn profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        self.with("reading profiles", |state| state.profiles())
    }
}
