//! What `pillion.lua` refuses of our own updates, as it was written down for it
//! (docs/decisions/0012-a-fence-under-slurms-lock.md): on every update that carries a mark.

use super::world::{Record, World};
use pillion_core::UnixTime;
use pillion_core::mark::Mark;
use pillion_core::name::digest;
use pillion_slurm::{JobState, JobUpdate, SlurmError};

/// A release that is older than this, in seconds, comes from a leader that was frozen.
const RELEASE_AGE_SECONDS_MAX: u64 = 30;

impl World {
    /// Refuses an update that carries a mark where the job is not what it presupposes.
    pub(super) fn pass_fence(&self, record: &Record, update: &JobUpdate) -> Result<(), SlurmError> {
        let new = update.admin_comment.as_deref().and_then(|text| Mark::parse(text).ok().flatten());
        let Some(new) = new.filter(|_| self.settings.is_fenced) else { return Ok(()) };
        let in_pool = record
            .request
            .partition
            .split(',')
            .any(|name| self.settings.pools.iter().any(|pool| pool == name));
        match refusal(record, &new, update, in_pool, self.now) {
            None => Ok(()),
            Some(reason) => Err(SlurmError::Fenced { reason: reason.to_owned() }),
        }
    }
}

fn refusal(
    record: &Record,
    new: &Mark,
    update: &JobUpdate,
    in_pool: bool,
    now: UnixTime,
) -> Option<&'static str> {
    let JobUpdate { gres, required_nodes, start_time, .. } = update;
    let is_renewal = new.lease_epoch.is_none() && !new.alone && !new.left;
    if is_renewal && gres.is_none() && required_nodes.is_none() && start_time.is_none() {
        return Some("nothing was asked");
    }
    if record.state != JobState::Pending && !record.takes_updates() {
        return Some("the job does not wait");
    }
    let old = Mark::parse(&record.request.admin_comment).ok().flatten();
    let Some(old) = old.filter(|old| old.workload_digest == new.workload_digest) else {
        return Some("the job carries another mark");
    };
    if old.left {
        return Some("the job was given back");
    }
    let undoes = new.undone_lease_epoch == Some(old.lease_epoch.unwrap_or(0));
    if new.left {
        return match (undoes, in_pool) {
            (false, _) => Some("the job carries another lease"),
            (true, true) => Some("the job is in a pool"),
            (true, false) => None,
        };
    }
    if !in_pool {
        return Some("the job is not in a pool");
    }
    if new.alone && undoes {
        return refusal_to_let_go(record, new, &old, now);
    }
    if new.alone {
        return Some("the job carries another lease");
    }
    if new.again_lease_epoch != old.again_lease_epoch {
        let takes_back = old.lease_epoch.is_some() && new.again_lease_epoch == old.lease_epoch;
        return if !takes_back || new.lease_epoch.is_some() || old.again_lease_epoch.is_some() {
            Some("the job carries another lease")
        } else {
            start_time.is_none().then_some("no begin time was asked")
        };
    }
    let is_for_decision = new.lease_epoch.is_none() && new.as_guest;
    if is_for_decision && new.undone_lease_epoch.is_some() && new.undone_lease_epoch != old.undone_lease_epoch
    {
        return if old.alone || !old.as_guest || !undoes {
            Some("the job carries another lease")
        } else {
            start_time.is_none().then_some("no begin time was asked")
        };
    }
    if old.lease_epoch.is_some() {
        return Some("the job has a lease");
    }
    if old.alone {
        return Some("the job is to run alone");
    }
    if record.priority == 0 {
        return Some("the job is held");
    }
    let Some(lease) = new.lease_epoch else {
        return start_time.is_none().then_some("no begin time was asked");
    };
    if new.lease_restart_count != Some(record.restart_count) {
        return Some("the job was started meanwhile");
    }
    let request = &record.request;
    let is = || digest(&format!("{}\n{}\n{}", request.account, request.qos, request.partition));
    if new.decided_on.as_ref().is_some_and(|decided| *decided != is()) {
        return Some("its account, QOS or partition is not what was decided on");
    }
    (lease.abs_diff(now.epoch()) > RELEASE_AGE_SECONDS_MAX).then_some("the release is out of date")
}

/// Of an undo that lets a job on several nodes go, and of no other.
fn refusal_to_let_go(record: &Record, new: &Mark, old: &Mark, now: UnixTime) -> Option<&'static str> {
    let (decided, restart_count) = new.let_go.filter(|_| new.let_go != old.let_go)?;
    if record.priority == 0 {
        return Some("the job is held");
    }
    if restart_count != record.restart_count {
        return Some("the job was started meanwhile");
    }
    (decided.abs_diff(now.epoch()) > RELEASE_AGE_SECONDS_MAX).then_some("it was let go too long ago")
}
