//! What fails: daemons, nodes, the store, the line to Slurm, and Slurm itself.

use super::{Stays, World, is_outside};
use crate::faulty::Lost;
use crate::node::Work;
use crate::users::Users;
use pillion_core::{JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_memory_store::{Backup, FailWhen};
use pillion_slurm::{JobState, Reservation};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often slurmctld writes its state at most, in seconds (`SAVE_MAX_WAIT` in its source).
const SAVE_INTERVAL_SECONDS: f64 = 5.0;

/// How often the store is copied, in seconds, and how many copies are kept.
const BACKUP_INTERVAL_SECONDS: f64 = 5.0;
const BACKUPS_MAX: usize = 12;

/// A copy of the store, and when it was made.
pub(super) type Copied = (UnixTime, Backup);

/// What is forgotten with the jobs: what their users know of them.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    at: UnixTime,
    users: Users,
    works: BTreeMap<SlurmJobId, Work>,
}

impl World {
    /// slurmctld writes its state while it is up, as long as it may be killed.
    pub(super) fn save_now_and_then(&mut self) {
        let is_fresh =
            self.saved.as_ref().is_some_and(|saved| self.now.seconds_since(saved.at) < SAVE_INTERVAL_SECONDS);
        if self.is_slurmctld_down || is_fresh || self.is_healed {
            return;
        }
        self.slurm.save();
        self.saved = Some(Saved {
            at: self.now,
            users: self.line.users.lock().expect("nobody panics with it").clone(),
            works: self.works.clone(),
        });
    }

    /// slurmctld is killed and started. Nodes then tell what runs on them: what it believes to wait is ended there
    /// (`Registered PENDING`), and what it believes to run and is not there is requeued (`missing from batch node`).
    fn kill_slurmctld(&mut self) {
        let Some(saved) = self.saved.clone().filter(|_| self.slurm.forget()) else { return };
        self.note(format!("slurmctld forgets {:.1} s", self.now.seconds_since(saved.at)));
        *self.line.users.lock().expect("nobody panics with it") = saved.users;
        self.works = saved.works;
        // What it believes to run it launches no more, where it has forgotten that it ended it too.
        let believed = self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Running);
        self.started.extend(believed.map(|job| job.start()));
        self.follow_slurm();
        let there: BTreeSet<JobStart> =
            self.nodes.iter().flat_map(|node| node.running.iter().map(|run| run.start)).collect();
        self.started.retain(|start| there.contains(start));
        for job in self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Running) {
            if !is_outside(&job) && !there.contains(&job.start()) {
                self.slurm.user_requeue(job.id);
            }
        }
    }

    /// The store is copied now and then, as long as it may forget.
    pub(super) fn back_up_now_and_then(&mut self) {
        let is_fresh =
            self.backups.back().is_some_and(|(at, _)| self.now.seconds_since(*at) < BACKUP_INTERVAL_SECONDS);
        if is_fresh || self.is_healed {
            return;
        }
        if self.backups.len() == BACKUPS_MAX {
            self.backups.pop_front();
        }
        self.backups.push_back((self.now, self.store.backup()));
    }

    /// The store holds what it held seconds or minutes ago: a copy of it took over that had not everything, or a backup was
    /// restored, with which the scheduler starts anew.
    fn forget_stored(&mut self) {
        let which = self.below(self.backups.len());
        let Some((at, backup)) = self.backups.get(which).cloned() else { return };
        self.backups.truncate(which + 1);
        self.store.restore(&backup);
        self.forgot_stored_at.push(self.slurm.journal().len());
        self.forgot_stored = Some(self.now);
        let starts_anew = self.rng.random_bool(0.5);
        if starts_anew {
            self.schedulers.clear();
            self.start_scheduler();
        }
        self.note(format!(
            "the store forgets {:.1} s; the scheduler starts anew: {starts_anew}",
            self.now.seconds_since(at)
        ));
    }

    /// A driver that takes no instance away, or does again.
    pub(super) fn refuse_now_and_then(&mut self) {
        if self.is_cut && self.rng.random_bool(0.03) {
            self.refuse(!self.nodes[0].instances.refuses);
        }
    }

    /// Whether the driver of a node whose devices are cut takes no instance away.
    pub(crate) fn refuse(&mut self, refuses: bool) {
        let instances = &mut self.nodes[0].instances;
        if self.is_cut && instances.refuses != refuses {
            instances.refuses = refuses;
            instances.rest();
            self.note(format!("n1 keeps its instances: {refuses}"));
        }
    }

    pub(super) fn fault(&mut self) {
        let place = self.below(self.nodes.len());
        let name = self.nodes[place].name.clone();
        match self.below(17) {
            0 => {
                self.schedulers.clear();
                self.start_scheduler();
                self.note("scheduler killed and started");
            }
            1 => {
                let leads = self.rng.random_range(0..2);
                self.let_lead(leads);
            }
            2 => {
                self.nodes[place].is_agent_alive ^= true;
                self.note(format!("agent of {name} alive: {}", self.nodes[place].is_agent_alive));
            }
            3 => {
                self.is_slurmctld_down ^= true;
                self.slurm.set_down(self.is_slurmctld_down);
                self.note(format!("slurmctld down: {}", self.is_slurmctld_down));
            }
            4 => {
                let when = if self.rng.random_bool(0.5) { FailWhen::Before } else { FailWhen::After };
                let count = self.rng.random_range(1..4);
                self.store.fail_next(count, when);
                self.note(format!("store fails {when:?}"));
            }
            5 | 6 => {
                let lost = self.lost();
                let skip = self.rng.random_range(0..3);
                self.line.lose_update(skip, lost);
                self.note(format!("update lost {lost:?} after {skip}"));
            }
            7 => {
                let flag = self.rng.random_bool(0.5).then_some("DRAIN");
                self.slurm.set_node_flag(&name, flag);
                self.note(format!("node {name} {flag:?}"));
            }
            8 if !self.is_slurmctld_down && self.rng.random_bool(0.3) => {
                self.slurm.fail_node(&name);
                self.note(format!("node {name} fails"));
                self.follow_slurm();
                self.slurm.set_node_flag(&name, None);
            }
            9 if self.rng.random_bool(0.3) => self.stand_still(),
            10 if !self.is_slurmctld_down => self.kill_slurmctld(),
            11 => {
                let count = self.rng.random_range(1..4);
                self.slurm.refuse_partition_updates(count);
                self.note(format!("{count} updates of partitions are refused"));
            }
            12 => {
                let jobs_max = self.rng.random_bool(0.5).then(|| self.rng.random_range(1..4));
                self.slurm.set_user_jobs_max(jobs_max);
                self.note(format!("a user may run {jobs_max:?} jobs"));
            }
            13 => {
                let seconds = self.rng.random_range(-900.0..900.0);
                self.nodes[place].clock_ahead_seconds = seconds;
                self.note(format!("clock of {name} off by {seconds:.1} s"));
            }
            14 | 15 => self.forget_stored(),
            16 => self.reserve(name),
            _ => {}
        }
    }

    fn stand_still(&mut self) {
        let seconds = self.rng.random_range(30..400);
        self.note(format!("nothing runs for {seconds} s"));
        for _ in 0..seconds {
            self.pass(Duration::from_secs(1));
        }
    }

    /// An admin reserves a node for others: jobs have no time limits here, so that nobody is started there from now on.
    fn reserve(&mut self, name: NodeName) {
        let (ahead, length) = (self.rng.random_range(0..200), self.rng.random_range(30..300));
        let starts_at = self.now + Duration::from_secs(ahead);
        let ends_at = starts_at + Duration::from_secs(length);
        self.note(format!("{name} is reserved in {ahead} s, for {length} s"));
        self.slurm.set_reservations(vec![Reservation { nodes: vec![name], starts_at, ends_at }]);
    }

    fn lost(&mut self) -> Lost {
        match self.rng.random_range(0..3) {
            0 => Lost::Before,
            1 => Lost::After,
            _ => Lost::Late(self.rng.random_range(1..40)),
        }
    }

    /// Another job comes, and the next release lands late: until shortly before, its node is drained.
    pub(crate) fn be_late(&mut self) {
        let seconds = self.rng.random_range(5..40);
        self.line.lose_update(0, Lost::Late(seconds));
        self.note(format!("the next release lands {seconds} s late"));
        self.submit();
    }

    pub(super) fn drain_where_late(&self) {
        let drained = self.line.late_after(self.now + Duration::from_secs(3));
        for node in &self.nodes {
            self.slurm.set_node_flag(&node.name, drained.contains(&node.name).then_some("DRAIN"));
        }
    }

    /// Of two schedulers this one leads.
    fn let_lead(&mut self, leads: usize) {
        if self.schedulers.len() < 2 {
            self.start_scheduler();
            self.schedulers[1].context.set_leading(false);
        }
        for (number, scheduler) in self.schedulers.iter().enumerate() {
            scheduler.context.set_leading(number == leads);
        }
        self.note(format!("scheduler {leads} of two leads"));
    }

    /// Ends all faults: one scheduler leads, agents, nodes and slurmctld are up.
    pub(crate) fn heal(&mut self) {
        self.note("healed");
        self.is_healed = true;
        self.backups.clear();
        self.store.heal();
        self.line.heal();
        self.is_slurmctld_down = false;
        self.slurm.set_down(false);
        self.slurm.refuse_partition_updates(0);
        self.slurm.set_user_jobs_max(None);
        self.slurm.set_reservations(Vec::new());
        self.schedulers.truncate(1);
        if self.schedulers.is_empty() {
            self.start_scheduler();
        }
        if self.stays.contains(&Stays::Standby) {
            self.let_lead(0);
        }
        self.schedulers[0].context.set_leading(true);
        for node in &mut self.nodes {
            node.is_agent_alive = true;
            node.clock_ahead_seconds = 0.0;
            node.instances.refuses = false;
            node.instances.rest();
            self.slurm.set_node_flag(&node.name, None);
        }
    }
}
