//! The fake Slurm behind a bad line: a call may time out before it arrives, or after it took effect.

use crate::users::{Action, Users};
use async_trait::async_trait;
use pillion_core::mark::Mark;
use pillion_core::{Clock as _, ManualClock, NodeName, SlurmJobId, UnixTime};
use pillion_fake_slurm::FakeSlurm;
use pillion_slurm::{
    JobState, JobUpdate, JobsScan, Node, Partition, Privacy, Requeued, Reservation, Slurm, SlurmError,
    SlurmVersion,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// When a call is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Slurm never saw it.
    Before,
    /// Slurm did it, and the answer was lost.
    After,
    /// Nobody waits for its answer any more, and Slurm does it so many seconds later: the next one that releases a job.
    Late(u64),
}

pub(crate) struct FaultySlurm {
    pub(crate) slurm: Arc<FakeSlurm>,
    faults: Mutex<VecDeque<Option<Lost>>>,
    /// What users do to a job in the moment in which it is updated, or started again.
    between: Mutex<VecDeque<Option<Action>>>,
    pub(crate) users: Mutex<Users>,
    clock: Arc<ManualClock>,
    /// What Slurm is still to hear of, and when.
    late: Mutex<Vec<(UnixTime, Vec<SlurmJobId>, JobUpdate)>>,
}

impl FaultySlurm {
    pub(crate) fn new(slurm: Arc<FakeSlurm>, clock: Arc<ManualClock>) -> Self {
        let (faults, between, users) = <(Mutex<_>, Mutex<_>, Mutex<_>)>::default();
        Self { slurm, faults, between, users, clock, late: Mutex::default() }
    }

    /// After `skip` more changes, a user does this to the job of the next one, just before Slurm hears of ours.
    pub(crate) fn come_between(&self, skip: usize, action: Action) {
        let mut between = self.between.lock().expect("nobody panics with it");
        between.clear();
        between.extend(std::iter::repeat_n(None, skip));
        between.push_back(Some(action));
    }

    /// What was drawn for the call that is about to be made.
    fn let_users_between(&self, job: SlurmJobId) {
        let between = self.between.lock().expect("nobody panics with it").pop_front().flatten();
        if let Some(action) = between {
            self.act(job, action);
        }
    }

    /// A user does something now.
    pub(crate) fn act(&self, job: SlurmJobId, action: Action) -> bool {
        let mut users = self.users.lock().expect("nobody panics with it");
        users.act(&self.slurm, job, action, self.clock.now())
    }

    /// After `skip` more changes, one is lost.
    pub(crate) fn lose_update(&self, skip: usize, lost: Lost) {
        let mut faults = self.faults.lock().expect("nobody panics with it");
        faults.clear();
        faults.extend(std::iter::repeat_n(None, skip));
        faults.push_back(Some(lost));
    }

    /// Slurm hears of what was on its way for long enough.
    pub(crate) async fn deliver(&self) {
        let now = self.clock.now();
        let due: Vec<_> = {
            let mut late = self.late.lock().expect("nobody panics with it");
            late.extract_if(.., |(at, ..)| *at <= now).collect()
        };
        for (_, jobs, update) in due {
            let _ = self.slurm.update(&jobs, &update).await;
        }
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().expect("nobody panics with it").clear();
        self.between.lock().expect("nobody panics with it").clear();
        self.users.lock().expect("nobody panics with it").release_all(&self.slurm);
    }

    /// The nodes of jobs whose release lands only after that.
    pub(crate) fn late_after(&self, at: UnixTime) -> BTreeSet<NodeName> {
        let late = self.late.lock().expect("nobody panics with it");
        let after = late.iter().filter(|(due, ..)| *due > at);
        after.filter_map(|(_, _, update)| update.required_nodes.as_deref().map(NodeName::new)).collect()
    }

    fn next_fault(&self, releases: bool) -> Option<Lost> {
        let mut faults = self.faults.lock().expect("nobody panics with it");
        if matches!(faults.front(), Some(Some(Lost::Late(_)))) && !releases {
            return None;
        }
        faults.pop_front().flatten()
    }
}

fn timeout() -> SlurmError {
    SlurmError::Timeout { program: "scontrol".to_owned(), seconds: 10 }
}

#[async_trait]
impl Slurm for FaultySlurm {
    async fn version(&self) -> Result<SlurmVersion, SlurmError> {
        self.slurm.version().await
    }
    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        self.slurm.privacy().await
    }
    async fn jobs(&self, partitions: &[String]) -> Result<JobsScan, SlurmError> {
        self.slurm.jobs(partitions).await
    }
    async fn nodes(&self) -> Result<Vec<Node>, SlurmError> {
        self.slurm.nodes().await
    }
    async fn reservations(&self) -> Result<Vec<Reservation>, SlurmError> {
        self.slurm.reservations().await
    }
    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        self.slurm.partitions().await
    }
    async fn update(&self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        if let Some(job) = jobs.first() {
            self.let_users_between(*job);
        }
        let mark = update.admin_comment.as_deref().and_then(|text| Mark::parse(text).ok().flatten());
        match self.next_fault(mark.is_some_and(|mark| mark.lease_epoch.is_some())) {
            Some(Lost::Before) => Err(timeout()),
            Some(Lost::After) => self.slurm.update(jobs, update).await.and(Err(timeout())),
            Some(Lost::Late(seconds)) => {
                let at = self.clock.now() + Duration::from_secs(seconds);
                let late = (at, jobs.to_vec(), update.clone());
                self.late.lock().expect("nobody panics with it").push(late);
                Err(timeout())
            }
            None => self.slurm.update(jobs, update).await,
        }
    }
    async fn allows_requeue(&self, job: SlurmJobId) -> Result<bool, SlurmError> {
        self.slurm.allows_requeue(job).await
    }
    async fn job_names(&self, jobs: &[SlurmJobId]) -> Result<BTreeMap<SlurmJobId, String>, SlurmError> {
        self.slurm.job_names(jobs).await
    }
    async fn requeue(&self, job: SlurmJobId, which: Requeued) -> Result<(), SlurmError> {
        self.let_users_between(job);
        match self.next_fault(false) {
            Some(Lost::Before | Lost::Late(_)) => Err(timeout()),
            Some(Lost::After) => self.slurm.requeue(job, which).await.and(Err(timeout())),
            None => self.slurm.requeue(job, which).await,
        }
    }
}

/// Whether a job has ended, or is forgotten.
pub(crate) fn is_over(slurm: &FakeSlurm, job: SlurmJobId) -> bool {
    slurm.state(job).is_none_or(|state| matches!(state, JobState::Ended(_)))
}
