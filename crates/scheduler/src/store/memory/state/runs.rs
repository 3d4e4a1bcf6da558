//! Runs with all that is known of them: those that nobody looked at yet, and those that are counted.

use super::{Run, State};
use crate::store::{AccountedRun, Decision, MeasuredRun, Member, RunFilter};
use pillion_core::decision::MemberState;
use pillion_core::{JobStart, UserId};
use pillion_slurm::Ending;

impl State {
    pub(in crate::store::memory) fn unprofiled_runs(&self, limit: u32) -> Vec<MeasuredRun> {
        self.measured_runs(limit, |run| !run.is_profiled)
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

    pub(in crate::store::memory) fn accounted_runs(&self, filter: &RunFilter) -> Vec<AccountedRun> {
        let is_meant = |run: &AccountedRun, uid: UserId| {
            let is_in = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
            run.ended_at >= filter.since
                && run.ended_at < filter.until
                && is_in(&filter.user, &run.user)
                && is_in(&filter.account, &run.account)
                && is_in(&filter.partition, &run.partition)
                && is_in(&filter.workload, run.workload.as_str())
                && (filter.nodes.is_empty() || filter.nodes.contains(&run.node))
                && filter.uid.is_none_or(|wanted| wanted == uid)
        };
        let runs = self.runs.values().filter_map(|run| self.accounted(run));
        let mut runs: Vec<AccountedRun> =
            runs.filter(|(run, uid)| is_meant(run, *uid)).map(|(run, _)| run).collect();
        runs.sort_by(|a, b| a.ended_at.seconds().total_cmp(&b.ended_at.seconds()));
        runs
    }

    fn accounted(&self, run: &Run) -> Option<(AccountedRun, UserId)> {
        let (summary, start) = (&run.summary, run.summary.start);
        let job = self.jobs.get(&start.job_id)?;
        let is_it = |member: &&Member| member.plan.start == start && member.state != MemberState::Undone;
        let mut newest_first = self.decisions.values().rev();
        let member = newest_first.find_map(|committed| committed.decision.members.iter().find(is_it));
        let device = self.devices.get(&(run.node.clone(), summary.gres_type.clone()));
        let profile = device.and_then(|it| self.profiles.get(&(job.workload.clone(), it.model.clone())));
        let accounted = AccountedRun {
            user: job.user.clone(),
            account: job.account.clone(),
            partition: job.partition.clone(),
            workload: job.workload.clone(),
            node: run.node.clone(),
            started_at: summary.started_at,
            ended_at: summary.ended_at,
            shared_seconds: summary.shared_seconds,
            energy_joules: summary.energy_joules,
            solo_energy_joules: profile.and_then(|stored| stored.profile.energy_joules),
            speed_fraction: member.and_then(|member| member.measured_speed_fraction),
            slowdown_ratio_max: member.map(|member| member.plan.slowdown_ratio_max),
            is_completed: job.restart_count == start.restart_count && job.ending == Some(Ending::Completed),
        };
        Some((accounted, job.uid))
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
