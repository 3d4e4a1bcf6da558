//! What is to be undone, decided from one scan of the queue: pure.

use pillion_core::mark::Mark;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobState, JobUpdate, updates};
use std::borrow::Borrow;
use std::fmt;

/// Why a job is given back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// It was released and did not start.
    LeaseOld {
        /// How long ago.
        seconds: f64,
    },
    /// The lease lies in the future: the clock was set back, and the lease would never grow old.
    LeaseInFuture,
    /// It was requeued since; the release was for an earlier start.
    Restarted {
        /// What the release was made for.
        leased: u32,
        /// What it is now.
        now: u32,
    },
    /// An undo before this one was cut short.
    HalfUndone,
    /// It was moved out of the pool and still asks for shards, which nobody gives it there.
    OutsidePool,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseOld { seconds } => write!(f, "released {seconds:.0} s ago and not started"),
            Self::LeaseInFuture => {
                f.write_str("released at a time that has not come yet: the clock was set back")
            }
            Self::Restarted { leased, now } => {
                write!(f, "released for restart {leased} and requeued since ({now})")
            }
            Self::HalfUndone => f.write_str("an earlier undo was cut short"),
            Self::OutsidePool => f.write_str("it asks for shards outside the pool"),
        }
    }
}

/// One job to be given back.
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    pub job_id: SlurmJobId,
    pub why: Why,
    /// Back to a whole device, anywhere; outside the pool back to its own request. One update, so that nothing is cut short.
    pub update: JobUpdate,
}

/// Every undo that is due. `pools`: the pool's partitions; empty where nobody knows them, and then each may be one.
pub fn plan<J: Borrow<Job>>(
    jobs: &[J],
    pools: &[String],
    now: UnixTime,
    older_than_seconds: f64,
) -> Vec<Undo> {
    jobs.iter().filter_map(|job| undo(job.borrow(), pools, now, older_than_seconds)).collect()
}

fn undo(job: &Job, pools: &[String], now: UnixTime, older_than_seconds: f64) -> Option<Undo> {
    if job.state != JobState::Pending {
        return None;
    }
    // A mark that cannot be read whole is left alone: nothing in it may be trusted.
    let mark = job.mark.as_ref().ok()?.as_ref().filter(|mark| !mark.left)?;
    if !pools.is_empty() && updates::stray(job, pools).is_some() {
        return Some(Undo { job_id: job.id, why: Why::OutsidePool, update: updates::leave(mark) });
    }
    if !pools.is_empty() && !updates::is_in(job, pools) {
        return None;
    }
    let why = why(job, mark, now, older_than_seconds)?;
    Some(Undo { job_id: job.id, why, update: updates::undo(job, mark, now) })
}

fn why(job: &Job, mark: &Mark, now: UnixTime, older_than_seconds: f64) -> Option<Why> {
    let Some(lease_epoch) = mark.lease_epoch else {
        return (mark.alone && updates::is_pinned(job, mark)).then_some(Why::HalfUndone);
    };
    let leased_at = UnixTime::from_epoch(lease_epoch);
    let leased = mark.lease_restart_count.unwrap_or(0);
    if job.restart_count > leased {
        return Some(Why::Restarted { leased, now: job.restart_count });
    }
    if leased_at.seconds_since(now) > older_than_seconds {
        return Some(Why::LeaseInFuture);
    }
    let seconds = now.seconds_since(leased_at);
    (seconds > older_than_seconds).then_some(Why::LeaseOld { seconds })
}
