//! What users and Slurm do to jobs, and who dies of it.

use super::World;
use crate::node::Node;
use crate::users::Action;
use pillion_core::{JobStart, SlurmJobId};
use pillion_slurm::{Ending, JobState};
use rand::Rng;
use std::time::Duration;

impl World {
    fn draw_action(&mut self) -> Action {
        Action::draw(&mut self.rng, !self.settings.job_policy.is_uniform())
    }

    /// Users and Slurm do things to jobs.
    pub(super) fn meddle(&mut self) {
        if self.is_slurmctld_down || self.works.is_empty() {
            return;
        }
        let which = self.below(self.works.len());
        let id = *self.works.keys().nth(which).expect("counted");
        match self.below(9) {
            0 => self.cancel(id),
            3 => self.kill_a_tenant(),
            4..6 => {
                let action = self.draw_action();
                // Who kills a tenant dooms others: `cancel` does that.
                if action != Action::Cancel && self.line.act(id, action) {
                    self.note(format!("user: {action:?} {id}"));
                }
            }
            6..9 => {
                let (skip, action) = (self.rng.random_range(0..4), self.draw_action());
                self.note(format!("user: {action:?} between, after {skip}"));
                self.line.come_between(skip, action);
            }
            1 => {
                if self.slurm.user_requeue(id) {
                    self.note(format!("requeue {id}"));
                }
            }
            _ => {
                if self.slurm.preempt(id) {
                    self.note(format!("preempt {id}"));
                }
            }
        }
        self.follow_slurm();
    }

    fn cancel(&mut self, id: SlurmJobId) {
        self.doom_partners(id);
        if self.slurm.cancel(id) {
            self.note(format!("cancel {id}"));
        }
    }

    /// Cancels somebody who shares a device under MPS now.
    pub(crate) fn kill_a_tenant(&mut self) {
        let runs = self.nodes.iter().flat_map(|node| node.running.iter().map(move |run| (node, run.start)));
        let shares = |(node, start): &(&Node, JobStart)| !node.beside_under_mps(*start).is_empty();
        let tenants: Vec<SlurmJobId> = runs.filter(shares).map(|(_, start)| start.job_id).collect();
        let which = self.below(tenants.len());
        if let Some(tenant) = tenants.get(which) {
            self.cancel(*tenant);
        }
    }

    /// A tenant is about to be killed: some of those beside it under MPS will die of it.
    fn doom_partners(&mut self, id: SlurmJobId) {
        let Some(job) = self.slurm.job(id).filter(|job| job.state == JobState::Running) else { return };
        let beside: Vec<JobStart> =
            self.nodes.iter().flat_map(|node| node.beside_under_mps(job.start())).collect();
        for start in beside {
            if self.rng.random_bool(0.7) {
                let at = self.now + Duration::from_secs_f64(self.rng.random_range(0.5..20.0));
                self.dying.push((at, start));
            }
        }
    }

    /// Who shared a device with a tenant that was killed fails a moment later, unless it was done by then.
    pub(super) fn let_victims_die(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = self.dying.drain(..).partition(|(at, _)| *at <= now);
        self.dying = later;
        for (_, start) in due {
            let is_it = self.slurm.job(start.job_id).is_some_and(|job| job.start() == start);
            if is_it && self.slurm.finish(start.job_id, Ending::Failed) {
                self.victims.entry(start.job_id).or_insert(start);
                self.note(format!("{start} dies with its partner"));
            }
        }
    }
}
