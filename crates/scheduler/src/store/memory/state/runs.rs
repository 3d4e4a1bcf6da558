//! Runs with all that is known of them: those that nobody looked at yet, and those that are counted.

use super::{Run, State};
use crate::store::{
    Account, Decision, GroupBy, Judgement, Lesson, MeasuredRun, Member, RunAccount, RunFilter, StoreError,
    StoredProfile, Sums,
};
use pillion_core::decision::MemberState;
use pillion_core::{GresType, JobStart};
use std::collections::BTreeMap;

impl State {
    pub(in crate::store::memory) fn unprofiled_runs(&self, limit: u32) -> Vec<MeasuredRun> {
        self.measured_runs(limit, |run| !run.is_done())
    }

    pub(in crate::store::memory) fn unjudged_runs(&self, limit: u32) -> Vec<MeasuredRun> {
        self.measured_runs(limit, |run| !run.is_judged)
    }

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
        })
    }

    pub(in crate::store::memory) fn accounts(&self, filter: &RunFilter, group_by: GroupBy) -> Vec<Account> {
        let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
        let accounts = self.runs.values().filter_map(|run| run.account.as_ref());
        for run in accounts.filter(|run| filter.takes(run)) {
            groups.entry(group_by.key(run)).or_default().add(&run.sums);
        }
        groups.into_iter().map(|(key, sums)| Account { key, sums }).collect()
    }

    pub(in crate::store::memory) fn profile_run(
        &mut self,
        start: JobStart,
        gres_type: &GresType,
        account: &RunAccount,
        lesson: &Lesson,
        profile: Option<&StoredProfile>,
    ) -> Result<(), StoreError> {
        let run = self.runs.get_mut(&(start, gres_type.clone()));
        let run = run.ok_or_else(|| StoreError::Missing(format!("the run of {start} on {gres_type}")))?;
        if run.is_done() {
            return Ok(());
        }
        run.account = Some(account.clone());
        run.lesson = Some(lesson.clone());
        if let Some(stored) = profile {
            let key = (stored.profile.workload.clone(), stored.profile.device_model.clone());
            self.profiles.insert(key, stored.clone());
        }
        Ok(())
    }

    pub(in crate::store::memory) fn pass_run(
        &mut self,
        start: JobStart,
        gres_type: &GresType,
        lesson: &Lesson,
    ) {
        let run = self.runs.get_mut(&(start, gres_type.clone()));
        if let Some(run) = run.filter(|run| !run.is_done()) {
            run.is_passed = true;
            run.lesson = Some(lesson.clone());
        }
    }

    pub(in crate::store::memory) fn lesson(&self, start: JobStart) -> Option<Lesson> {
        let mut runs = self.runs.iter().filter(|((of, _), _)| *of == start);
        runs.next().and_then(|(_, run)| run.lesson.clone())
    }

    pub(in crate::store::memory) fn judge_run(
        &mut self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError> {
        let run = self.runs.get_mut(&(start, gres_type.clone()));
        let run = run.ok_or_else(|| StoreError::Missing(format!("the run of {start} on {gres_type}")))?;
        if std::mem::replace(&mut run.is_judged, true) {
            return Ok(false);
        }
        self.events.extend(judgement.events.iter().cloned());
        if let Some(requeue) = &judgement.requeue {
            self.faults.intend(requeue);
        }
        Ok(true)
    }

    /// The newest decision that this start was released under.
    fn ran_under(&self, start: JobStart) -> Option<Decision> {
        let has_run = |member: &Member| {
            let ran =
                matches!(member.state, MemberState::Released | MemberState::Running | MemberState::Ended);
            member.plan.start == start && ran
        };
        let mut newest_first = self.decisions.values().rev().map(|committed| &committed.decision);
        newest_first.find(|decision| decision.members.iter().any(has_run)).cloned()
    }
}
