//! Users in front of interactive jobs: they begin something when they like, and leave when they are done.

use super::{BOUND_SECONDS, HEAVY, LIGHT, USERS, World};
use crate::node::Work;
use crate::users::mark_of;
use pillion_core::mark::Mark;
use pillion_core::{JobStart, NodeName, SlurmJobId, UserId};
use pillion_fake_slurm::FakeJob;
use pillion_slurm::{Ending, JobState};
use rand::Rng;
use std::time::Duration;

/// Device memory that they declare, in MiB.
const DECLARED_MIB: u64 = 2048;
/// What they then take, a process's context beside it.
const TAKEN_BYTES: u64 = 1 << 30;
/// How long one waits for us at most (docs/decisions/0039-interactive-hosts.md).
pub(crate) const SESSION_BOUND_SECONDS: u64 = 20;
/// For so long one has to be idle, in these worlds, before guests come.
pub(crate) const IDLE: Duration = Duration::from_secs(8);
/// How often somebody begins something, a second.
const BEGUN_PER_SECOND: f64 = 0.02;

impl World {
    /// As `pillion.lua` writes `salloc --colocate=memory=2G --gres=gpu:1`, or the same by `sbatch` with `session`.
    pub(super) fn submit_session(&mut self) {
        let (user, uid) = USERS[self.below(USERS.len())];
        let mark = Mark { session: true, memory_mib: Some(DECLARED_MIB), ..mark_of("session") };
        // Only one with a script can be started again.
        let is_batch = self.rng.random_bool(0.4);
        let id = self.slurm.submit(FakeJob {
            uid: UserId(uid),
            user: user.to_owned(),
            begin: Some(self.now + Duration::from_secs(SESSION_BOUND_SECONDS)),
            // Only there are devices that others may come to.
            excluded_nodes: vec![NodeName::new("n2")],
            admin_comment: mark.to_string(),
            script: is_batch.then(|| "#!/bin/bash\njupyter lab\n".to_owned()),
            requeue: is_batch,
            ..FakeJob::default()
        });
        self.note(format!("submit {id}, a session of {user}, by sbatch: {is_batch}"));
        self.keep_class(id, false);
        let seconds = self.rng.random_range(40.0..240.0);
        let memory_bytes = Some(TAKEN_BYTES);
        let work = Work {
            memory_bytes,
            is_session: true,
            is_interactive: !is_batch,
            ..Work::of(LIGHT, seconds, UserId(uid))
        };
        self.works.insert(id, work);
    }

    /// Whether somebody sits in front of this job.
    pub(crate) fn is_session(&self, id: SlurmJobId) -> bool {
        self.works.get(&id).is_some_and(|work| work.is_session)
    }

    /// In some worlds somebody sits down in quiet, and guests come while he does nothing, for all else is taken: what happens from
    /// then on happens beside them.
    pub(crate) async fn sit_down(&mut self) {
        if self.is_cut || !self.rng.random_bool(0.4) {
            return;
        }
        self.submit_session();
        let whole = Mark { plain: true, ..mark_of(LIGHT) };
        let guest = Mark { as_guest: true, ..mark_of(LIGHT) };
        for _ in 0..2 {
            self.submit_on_n1(&whole);
        }
        self.run_for(16).await;
        for _ in 0..2 {
            self.submit_on_n1(&guest);
        }
        self.run_for(16).await;
    }

    fn submit_on_n1(&mut self, mark: &Mark) {
        let (user, uid) = USERS[self.below(USERS.len())];
        let id = self.slurm.submit(FakeJob {
            uid: UserId(uid),
            user: user.to_owned(),
            begin: Some(self.now + Duration::from_secs(BOUND_SECONDS)),
            excluded_nodes: vec![NodeName::new("n2")],
            admin_comment: mark.to_string(),
            ..FakeJob::default()
        });
        self.note(format!("submit {id} of {user}, as a guest: {}", mark.as_guest));
        self.keep_class(id, mark.as_guest);
        let seconds = self.rng.random_range(60.0..200.0);
        self.works.insert(id, Work::of(LIGHT, seconds, UserId(uid)));
    }

    pub(super) fn sit_in_front(&mut self, by: Duration) {
        for place in 0..self.nodes.len() {
            for start in self.nodes[place].sessions_at_rest() {
                if self.rng.random_bool((BEGUN_PER_SECOND * by.as_secs_f64()).min(1.0)) {
                    let workload = if self.rng.random_bool(0.5) { HEAVY } else { LIGHT };
                    let seconds = self.rng.random_range(2.0..15.0);
                    self.nodes[place].begin_in_session(start, workload, seconds);
                    self.note(format!("{start} begins {workload}"));
                }
            }
        }
    }

    /// A session is over when its user has had enough.
    pub(super) fn leave_sessions(&mut self) {
        let jobs = self.slurm.open_jobs().into_iter().filter(|job| job.state == JobState::Running);
        let over = jobs.filter(|job| {
            let work = self.works.get(&job.id).filter(|work| work.is_session);
            let since = job.started_at.map_or(0.0, |at| self.now.seconds_since(at));
            work.is_some_and(|work| since >= work.seconds)
        });
        let over: Vec<JobStart> = over.map(|job| job.start()).collect();
        for start in over {
            self.slurm.finish(start.job_id, Ending::Completed);
        }
    }
}
