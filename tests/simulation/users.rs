//! Users who act between any two of our steps: at random moments, and in the middle of a call, after we have decided and
//! before Slurm hears of it. Holds, changes that take a job out of the pool, changes that Slurm refuses halfway, cancels and
//! requeues.

use pillion_core::mark::Mark;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_fake_slurm::FakeSlurm;
use pillion_slurm::{Job, JobState, JobUpdate};
use rand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// The partition that jobs leave the pool for, on a node without shards.
pub(crate) const OUTSIDE: &str = "everyday";

/// Whose jobs under this QOS meet no other user's, where the site's rules go by job.
pub(crate) const STRICT: &str = "strict";

/// So long `pillion.lua` leaves whoever is started again by an admin before the place of his earlier start was taken back.
const TAKE_BACK: Duration = Duration::from_secs(20);

/// What a user does to a job of his, or an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// `scontrol hold`.
    Hold,
    /// `scontrol release`.
    Release,
    /// A change that `pillion.lua` lets out of the pool whole: partition, request and begin time.
    Leave,
    /// An admin's change of the partition alone: the request for shards stays.
    Strand,
    /// `scancel`.
    Cancel,
    /// `scontrol requeue`.
    Requeue,
    /// The same by an admin, who lifts in the same moment the time that Slurm has it wait: `StartTime=now`.
    StartAgain,
    /// `scontrol update QOS=`: under the strict one, or no more.
    Charge,
}

impl Action {
    /// One that fits in between. `by_job`: whether a QOS makes a difference.
    pub(crate) fn draw(rng: &mut impl Rng, by_job: bool) -> Self {
        if by_job && rng.random_bool(0.3) {
            return Self::Charge;
        }
        match rng.random_range(0..11) {
            0..3 => Self::Hold,
            3..5 => Self::Release,
            5..7 => Self::Leave,
            7 => Self::Strand,
            8 => Self::Cancel,
            9 => Self::StartAgain,
            _ => Self::Requeue,
        }
    }
}

/// Where users' jobs stand by what was done to them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Users {
    /// Held, and not released since.
    pub(crate) held: BTreeMap<SlurmJobId, UnixTime>,
    /// Out of the pool, and when their user wants them to begin.
    pub(crate) left: BTreeMap<SlurmJobId, Option<UnixTime>>,
}

impl Users {
    /// Does it, where Slurm lets the user; says whether it did.
    pub(crate) fn act(&mut self, slurm: &FakeSlurm, id: SlurmJobId, action: Action, now: UnixTime) -> bool {
        let Some(job) = slurm.job(id) else { return false };
        let is_pending = job.state == JobState::Pending;
        match action {
            Action::Hold => {
                let did = is_pending && slurm.hold(id);
                if did {
                    self.held.insert(id, now);
                }
                did
            }
            Action::Release => self.held.remove(&id).is_some() && is_pending && slurm.release_hold(id),
            Action::Leave => is_pending && self.leave(slurm, &job, now),
            Action::Strand => {
                let update = JobUpdate { partition: Some(OUTSIDE.to_owned()), ..JobUpdate::default() };
                let may = is_pending && !self.left.contains_key(&id) && waits_unleased(&job);
                let did = may && slurm.foreign_update(&[id], &update).is_ok();
                if did {
                    self.left.insert(id, None);
                }
                did
            }
            Action::Cancel => slurm.cancel(id),
            Action::Requeue => slurm.user_requeue(id),
            Action::StartAgain => {
                let has_place = mark(&job).is_some_and(|mark| mark.lease_epoch.is_some());
                let begins = JobUpdate { start_time: Some(now + TAKE_BACK), ..JobUpdate::default() };
                let did = slurm.user_requeue(id);
                if did && has_place {
                    slurm.foreign_update(&[id], &begins).expect("it waits");
                }
                did
            }
            // `pillion.lua` refuses it between a release and its start.
            Action::Charge => {
                let qos = if job.qos == STRICT { "normal" } else { STRICT };
                is_pending && waits_unleased(&job) && slurm.charge_to(id, &job.account, qos)
            }
        }
    }

    /// As `pillion.lua` does it: refused while a lease stands, else all of it.
    fn leave(&mut self, slurm: &FakeSlurm, job: &Job, now: UnixTime) -> bool {
        let Some(mark) = mark(job).filter(|mark| mark.lease_epoch.is_none()) else { return false };
        if self.left.contains_key(&job.id) || !waits_unleased(job) {
            return false;
        }
        let own_begin = UnixTime::from_epoch(mark.original_begin_epoch.max(now.epoch() + 30));
        let update = JobUpdate {
            partition: Some(OUTSIDE.to_owned()),
            gres: Some(mark.own_gres()),
            start_time: Some(own_begin),
            ..JobUpdate::default()
        };
        let did = slurm.foreign_update(&[job.id], &update).is_ok();
        if did {
            self.left.insert(job.id, Some(own_begin));
        }
        did
    }

    /// A job that its user holds does not start, and one that left is as its user wants it.
    pub(crate) fn check(&self, slurm: &FakeSlurm) {
        for id in self.held.keys() {
            let runs = slurm.state(*id) == Some(JobState::Running);
            assert!(!runs, "{id} runs although its user holds it");
        }
        for (id, begin) in &self.left {
            if slurm.state(*id) != Some(JobState::Pending) {
                continue;
            }
            let Some(job) = slurm.job(*id) else { continue };
            assert_eq!(job.partition, OUTSIDE, "{id}");
            let is_restarted = job.restart_count > 0;
            if let Some((begin, eligible_at)) = begin.filter(|_| !is_restarted).zip(job.eligible_at) {
                assert_eq!(eligible_at, begin, "the begin time of {id} is its user's");
                assert_eq!(job.shards().next(), None, "{id} left the pool, and asks for {}", job.gres);
            }
        }
    }

    /// Everybody lets his jobs go.
    pub(crate) fn release_all(&mut self, slurm: &FakeSlurm) {
        for id in std::mem::take(&mut self.held).into_keys() {
            slurm.release_hold(id);
        }
    }
}

fn mark(job: &Job) -> Option<&Mark> {
    job.mark.as_ref().ok()?.as_ref()
}

fn waits_unleased(job: &Job) -> bool {
    mark(job).is_some_and(|mark| mark.lease_epoch.is_none() && !mark.left)
}

/// What `pillion.lua` leaves in a job.
pub(crate) fn mark_of(workload: &str) -> Mark {
    Mark {
        workload_digest: workload.replace('-', "").into(),
        original_partition: "gpu".into(),
        original_field: "node".into(),
        original_gres: "gpu:1".into(),
        ..Mark::default()
    }
}
