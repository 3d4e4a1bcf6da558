//! The updates that Pillion makes to waiting jobs, each from the job and its mark alone: pure. Shared by the scheduler and
//! by `pillion rescue`.
//!
//! Each writes the job's mark, and what it presupposes follows from that mark: `pillion.lua` compares it with the job as it
//! is then, under slurmctld's lock, and refuses the update whole where they differ
//! (docs/decisions/0012-a-fence-under-slurms-lock.md).

use crate::types::{Job, JobState, JobUpdate, ReasonKind};
use pillion_core::mark::Mark;
use pillion_core::{GresTypes, NodeName, Shards, UnixTime};
use std::time::Duration;

/// How long a job that is put back waits at least: its agent has to be told first that the share is taken back. More than
/// two seconds, because Slurm cuts begin times to whole ones.
const UNDO_PAUSE: Duration = Duration::from_secs(3);
/// How long a job that is started again waits at least. The node refuses a start whose credential is no younger than the
/// end of the one before, by the second and by its own clock, and Slurm then fails the job ("credential revoked").
pub const RESTART_PAUSE: Duration = Duration::from_secs(5);
/// How long a start that slurmctld forgot waits at least. Begun again at once, and on the same node, it would be there twice, for which
/// Slurm drains the node (*Duplicate jobid*): as long as slurmctld, started anew, may take to have nodes end what it believes to wait.
pub const FORGOTTEN_PAUSE: Duration = Duration::from_secs(10);

/// Pins a job to its devices, writes the lease into its mark, and makes it eligible.
pub fn release(
    job: &Job,
    mark: &Mark,
    node: &NodeName,
    gres_types: &GresTypes,
    shards: Shards,
    at: UnixTime,
) -> JobUpdate {
    JobUpdate {
        gres: Some(mark.gres_with(&gres_types.shards(shards.count().into()))),
        required_nodes: Some(node.to_string()),
        partition: None,
        admin_comment: Some(mark.leased(at, job.restart_count).to_string()),
        start_time: Some(at),
    }
}

/// Moves the begin time of a job that waits, and nothing else.
pub fn renewal(mark: &Mark, begin: UnixTime) -> JobUpdate {
    JobUpdate { admin_comment: Some(mark.to_string()), start_time: Some(begin), ..JobUpdate::default() }
}

/// Asks for nothing: what the fence always refuses, and what changes nothing where there is none.
pub fn probe(mark: &Mark) -> JobUpdate {
    JobUpdate { admin_comment: Some(mark.to_string()), ..JobUpdate::default() }
}

/// Puts a waiting job's request back: whole devices, as soon as its user wanted it, and never released again. A hold of its
/// user's stays; one that our own pin brought about (`BadConstraints`) goes with the update.
pub fn undo(job: &Job, mark: &Mark, now: UnixTime) -> JobUpdate {
    let pause = if job.restart_count > 0 { RESTART_PAUSE } else { UNDO_PAUSE };
    let (own_begin, soon) = (UnixTime::from_epoch(mark.original_begin_epoch), now + pause);
    JobUpdate {
        gres: Some(mark.gres_with(&mark.fallback_shards())),
        required_nodes: Some(String::new()),
        partition: None,
        admin_comment: Some(mark.undone().to_string()),
        start_time: Some(if own_begin > soon { own_begin } else { soon }),
    }
}

/// Lets a job on several nodes go, of which the same devices are free: Slurm starts it there by itself, now or when its user wanted it.
/// From then on it is what a job is after an undo, and these are what it waits with. `gres_types`: the devices; `None` = those that it
/// waits with, or one, whichever it is. `at_once`: nobody else is about to start on such devices, so that it need not wait until
/// they have.
pub fn let_go(
    job: &Job,
    mark: &Mark,
    gres_types: Option<&GresTypes>,
    at_once: bool,
    now: UnixTime,
) -> JobUpdate {
    let undo = undo(job, &mark.let_go_with(gres_types, now, job.restart_count), now);
    let own_begin = UnixTime::from_epoch(mark.original_begin_epoch);
    let is_now = at_once && job.restart_count == 0 && own_begin < now;
    JobUpdate { start_time: if is_now { Some(now) } else { undo.start_time }, ..undo }
}

/// Puts back the request of a job that ran out of device memory, so that it waits for a decision once more: Slurm starts it alone at
/// the latest one bound later. `mark`: with its need ([`Mark::again`]). A hold of its user's stays.
pub fn again(mark: &Mark, now: UnixTime, bound: Duration) -> JobUpdate {
    let (own_begin, latest) = (UnixTime::from_epoch(mark.original_begin_epoch), now + bound);
    JobUpdate {
        gres: Some(mark.gres_with(&mark.fallback_shards())),
        required_nodes: Some(String::new()),
        partition: None,
        admin_comment: Some(mark.to_string()),
        start_time: Some(if own_begin > latest { own_begin } else { latest }),
    }
}

/// Gives a job that is outside the pool its own request back. When it may begin is left as it is: its user may have said so.
pub fn leave(mark: &Mark) -> JobUpdate {
    JobUpdate {
        gres: Some(mark.own_gres()),
        required_nodes: Some(String::new()),
        partition: None,
        admin_comment: Some(mark.left().to_string()),
        start_time: None,
    }
}

/// Whether a job still asks for other devices than it waits with, or for one node. A managed job of its user names no node.
pub fn is_pinned(job: &Job, mark: &Mark) -> bool {
    !job.required_nodes.is_empty() || !asks_as_it_waits(job, mark)
}

/// Whether a job asks for, or has, the shards that it waits with.
pub fn asks_as_it_waits(job: &Job, mark: &Mark) -> bool {
    let shards = job.shards();
    match &mark.fallback {
        None => shards.eq([(None, 100)]),
        Some(all) => shards.eq(all.iter().map(|own| (Some(own.clone()), 100))),
    }
}

/// Whether a job is in one of these partitions, also where it names several.
pub fn is_in(job: &Job, pools: &[String]) -> bool {
    job.partition.split(',').any(|name| pools.iter().any(|pool| pool == name))
}

/// The mark of a waiting job that holds out for shards where nobody gives any: its user or an admin moved it, and Slurm
/// refused the rest of that change. It would wait for ever. `pools`: the pool's partitions.
pub fn stray<'a>(job: &'a Job, pools: &[String]) -> Option<&'a Mark> {
    let mark = job.mark.as_ref().ok()?.as_ref()?;
    let is_stray =
        job.state == JobState::Pending && !mark.left && !is_in(job, pools) && job.shards().next().is_some();
    is_stray.then_some(mark)
}

/// Whether its user or an admin holds a job. Slurm sets a job whose nodes, features and exclusions exclude each other aside
/// with a priority of 0 as well, and calls that `BadConstraints`: it goes with the next update that mends it.
pub fn is_held(job: &Job) -> bool {
    let is_set_aside = matches!(&job.reason, ReasonKind::Other(word) if word == "BadConstraints");
    job.priority == 0 && !is_set_aside
}
