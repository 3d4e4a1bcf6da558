//! What is to be undone, decided from one scan of the queue: pure.

use pillion_core::mark::Mark;
use pillion_core::{SlurmJobId, UnixTime};
use pillion_slurm::{Job, JobState, JobUpdate, ReasonKind};
use std::fmt;

/// What an exclusive job asks for.
const WHOLE_DEVICE: &str = "shard:100";

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
        }
    }
}

/// One job to be given back.
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    /// The job.
    pub job_id: SlurmJobId,
    /// Why.
    pub why: Why,
    /// Back to a whole device, anywhere, now; without the mark where [`Self::release_hold`] has to come between.
    pub update: JobUpdate,
    /// Whether the pin left it held (never where its user or an admin holds it).
    pub release_hold: bool,
    /// The mark without its lease. It is written last, so that whatever is cut short is found again.
    pub mark_after: Mark,
}

/// Every undo that is due.
pub fn plan(jobs: &[Job], now: UnixTime, older_than_seconds: f64) -> Vec<Undo> {
    jobs.iter().filter_map(|job| undo(job, now, older_than_seconds)).collect()
}

fn undo(job: &Job, now: UnixTime, older_than_seconds: f64) -> Option<Undo> {
    if job.state != JobState::Pending {
        return None;
    }
    // A mark that cannot be read whole is left alone: nothing in it may be trusted.
    let mark = job.mark.as_ref().ok()?.as_ref()?;
    let why = why(job, mark, now, older_than_seconds)?;
    let release_hold = is_held_by_our_pin(job);
    let own_begin = UnixTime::from_epoch(mark.original_begin_epoch);
    let mark_after = mark.undone();
    let update = JobUpdate {
        gres: Some(mark.gres_with(WHOLE_DEVICE)),
        required_nodes: Some(String::new()),
        partition: None,
        admin_comment: (!release_hold).then(|| mark_after.to_string()),
        start_time: Some(if own_begin > now { own_begin } else { now }),
    };
    Some(Undo { job_id: job.id, why, update, release_hold, mark_after })
}

fn why(job: &Job, mark: &Mark, now: UnixTime, older_than_seconds: f64) -> Option<Why> {
    let Some(lease_epoch) = mark.lease_epoch else {
        return (mark.alone && is_pinned(job)).then_some(Why::HalfUndone);
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

/// Whether the job still asks for one device or one node. A managed job of its user names neither.
pub(super) fn is_pinned(job: &Job) -> bool {
    !job.required_nodes.is_empty() || job.shards() != Some((None, 100))
}

/// Slurm sets the priority of a job to 0 when its nodes, features and exclusions exclude each other, with the reason
/// `BadConstraints`; a user's or an admin's hold says `JobHeldUser` or `JobHeldAdmin` and is not ours to lift.
fn is_held_by_our_pin(job: &Job) -> bool {
    job.priority == 0 && matches!(&job.reason, ReasonKind::Other(word) if word == "BadConstraints")
}
