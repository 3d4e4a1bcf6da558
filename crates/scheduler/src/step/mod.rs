//! What comes next for one member of a decision: one pure function of what is durable and what Slurm says. `release`
//! carries the answer out; after a crash anywhere, the same function finds the same next step
//! (docs/decisions/0008-leases.md).

use crate::scan::{Scan, held_reason, mark_of, workload_of};
use pillion_core::UnixTime;
use pillion_core::decision::MemberState;
use pillion_slurm::updates::is_held;
use pillion_slurm::{Job, JobState, NodeAvailability};
use pillion_store::{Decision, Drain, Member};
use std::time::Duration;

/// How long things may take before they are given up.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// A plan that was not begun by then is abandoned.
    pub plan_age_max: Duration,
    /// A lease: not running by then is undone.
    pub lease: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { plan_age_max: Duration::from_mins(1), lease: Duration::from_secs(30) }
    }
}

/// What is known outside the store when a step is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The last scan.
    pub scan: &'a Scan,
    /// Whether the agent of the decision's node is connected.
    pub agent_connected: bool,
    /// Why the decision's device takes no new tenants, by an operator's word.
    pub drain: Option<&'a Drain>,
    /// For a joiner: whether its host runs, is still expected to, or is gone.
    pub host: Host,
    /// When the last release of it by this process was answered (or begun, if none answered yet), whatever became of it.
    pub tried_at: Option<UnixTime>,
    /// When a release of it was begun whose answer never came; `None`: of none that may be under way still.
    pub unanswered_at: Option<UnixTime>,
    /// What a release of it would need and nobody here knows, as a reason to give it up.
    pub unknown: Option<&'static str>,
    /// When its node said that it has begun this start.
    pub launched_at: Option<UnixTime>,
    /// Whether Slurm has to be asked again before anything is done (the last scan is too old).
    pub scan_is_stale: bool,
    /// Since when this scheduler leads; `None`: nobody led before it.
    pub led_since: Option<UnixTime>,
    /// Whether the scheduler is to release at all now (mode, supported Slurm, no violation on the node).
    pub releases_allowed: bool,
}

/// Where the host of a joiner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The member is no joiner.
    NotNeeded,
    /// It runs on the device.
    Running,
    /// Its release is under way.
    Expected,
    /// It ended, was undone, or never came.
    Gone,
}

/// The next step of one member.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing to do now.
    Wait,
    /// Ask the agent to get ready, and wait for it.
    Prepare,
    /// The agent is ready: release.
    Release,
    /// A release was made and not written down: write it down.
    AdoptRelease(u64),
    /// Slurm started it as planned.
    Started(UnixTime),
    /// It is over.
    Ended(UnixTime),
    /// Give it up without touching the job: it waits as before, runs by itself or is gone.
    Drop {
        reason: String,
        /// Slurm refused it: it is left out of plans for a while, or the same would come again at once.
        is_refused: bool,
    },
    /// Give it up and put the job's request back: it runs alone.
    Undo(String),
}

/// Chooses the next step of `member`.
pub fn next(decision: &Decision, member: &Member, around: Surroundings<'_>, timeouts: Timeouts) -> Next {
    if around.scan_is_stale || is_ahead_of_scan(member, around) {
        return Next::Wait;
    }
    let next = match (around.scan.jobs.get(&member.plan.start.job_id), member.state) {
        (None, _) => vanished(member, around),
        (Some(job), MemberState::Planned) => planned(decision, member, job, around, timeouts),
        (Some(job), MemberState::Released) => released(decision, member, job, around, timeouts),
        (Some(job), MemberState::Running) => running(member, job, around),
        (Some(_), MemberState::Ended | MemberState::Undone) => Next::Wait,
    };
    match next {
        // It is carried on by the scan that it was planned on, and given up by none that is older: another scheduler may have seen more.
        Next::Drop { .. } | Next::Undo(_) | Next::Ended(_)
            if predates(around.scan, Some(decision.created_at)) =>
        {
            Next::Wait
        }
        next => next,
    }
}

/// Whether something was done to the member that the scan may not show yet, by us or by whoever led meanwhile: it says nothing of it then.
/// The lease names the moment before the update, which Slurm may still have carried out when the scan was taken.
fn is_ahead_of_scan(member: &Member, around: Surroundings<'_>) -> bool {
    // Slurm tells whole seconds.
    let started_at = member.started_at.map(|at| at + Duration::from_secs(1));
    [member.released_at, started_at, around.tried_at].into_iter().any(|since| predates(around.scan, since))
}

fn vanished(member: &Member, around: Surroundings<'_>) -> Next {
    match member.state {
        MemberState::Planned => gone("the job is gone".to_owned()),
        MemberState::Released | MemberState::Running => Next::Ended(around.scan.at),
        MemberState::Ended | MemberState::Undone => Next::Wait,
    }
}

/// Why a job that was not released yet cannot be under this decision any more; `None` = it still waits as it did.
fn no_longer_waits(member: &Member, job: &Job) -> Option<String> {
    if job.restart_count != member.plan.start.restart_count {
        return Some(format!("it was restarted ({} times by now)", job.restart_count));
    }
    if job.state != JobState::Pending {
        return Some("it started or ended by itself".to_owned());
    }
    match mark_of(job) {
        None => Some("it left management".to_owned()),
        Some(mark) if mark.alone => Some("it runs alone after an undo".to_owned()),
        // A controller that lost its last seconds gives the number of a job to the next one, and that one's memory limit and
        // promise are another's.
        Some(mark) if job.uid != member.plan.uid || workload_of(job, mark) != member.plan.workload => {
            Some("its number was given to another job".to_owned())
        }
        Some(_) => None,
    }
}

/// Why nothing may be released to the decision's device now.
fn place_obstacle(decision: &Decision, around: Surroundings<'_>) -> Option<String> {
    if let Some(drain) = around.drain {
        return Some(format!("{} is {drain}", drain.place));
    }
    match around.scan.node(&decision.node).map(|node| &node.availability) {
        None => Some(format!("node {} is not in the pool any more", decision.node)),
        Some(NodeAvailability::Unavailable(state)) => Some(format!("node {} is {state}", decision.node)),
        Some(NodeAvailability::Up) if !around.agent_connected => {
            Some(format!("the agent of node {} is not responding", decision.node))
        }
        Some(NodeAvailability::Up) => None,
    }
}

fn planned(
    decision: &Decision,
    member: &Member,
    job: &Job,
    around: Surroundings<'_>,
    timeouts: Timeouts,
) -> Next {
    // The release arrived, whatever we were told of it, and it may even run by now.
    if let Some(lease) = own_lease(decision, member, job) {
        return Next::AdoptRelease(lease);
    }
    if let Some(reason) = no_longer_waits(member, job) {
        return gone(reason);
    }
    if mark_of(job).is_some_and(|mark| mark.lease_epoch.is_some()) {
        return gone("it carries another release".to_owned());
    }
    if let Some(reason) = half_released(decision, job) {
        return Next::Undo(reason);
    }
    if !around.releases_allowed {
        return Next::Wait;
    }
    let is_old = around.scan.at.seconds_since(decision.created_at) > timeouts.plan_age_max.as_secs_f64();
    let why_not = match around.host {
        Host::Gone => Some("its host did not stay".to_owned()),
        Host::NotNeeded | Host::Running if is_old => {
            Some("the plan grew old before it was carried out".to_owned())
        }
        Host::NotNeeded | Host::Running | Host::Expected => None,
    };
    // A hold or a dependency that came after the plan: the place is for others.
    let held = held_reason(job, around.scan);
    let why_not = held.or_else(|| place_obstacle(decision, around)).or(why_not);
    let why_not = why_not.or_else(|| around.unknown.map(str::to_owned));
    match (why_not, member.prepared_at, around.host) {
        (Some(_), ..) if may_be_released_yet(decision, around) => Next::Wait,
        (Some(reason), ..) => gone(reason),
        (None, _, Host::Expected) => Next::Wait,
        (None, None, _) => Next::Prepare,
        // Where an earlier call comes first, the fence refuses this one, and it is adopted.
        (None, Some(_), _) => Next::Release,
    }
}

/// Whether a call may be under way that releases it and that Slurm has not carried out yet: of whoever led before us, of ours before we died,
/// or one that we gave up waiting for. And the agents come to us one after the other: that one is missing says nothing so soon.
fn may_be_released_yet(decision: &Decision, around: Surroundings<'_>) -> bool {
    let may_land =
        |begun: UnixTime| is_before(around.scan.at, Some(begun + Duration::from_secs_f64(CALL_SECONDS_MAX)));
    let is_of_before = |since: &UnixTime| decision.created_at <= *since + CLOCKS_DIFFER;
    around.unanswered_at.is_some_and(may_land) || around.led_since.filter(is_of_before).is_some_and(may_land)
}

/// A job that was not touched, and may be planned again at once.
fn gone(reason: String) -> Next {
    Next::Drop { reason, is_refused: false }
}

/// What a release that Slurm refused may leave: the node list without the lease. The job would wait for that node for ever.
fn half_released(decision: &Decision, job: &Job) -> Option<String> {
    let is_pinned = job.required_nodes.as_slice() == std::slice::from_ref(&decision.node);
    is_pinned.then(|| "Slurm refused its release and kept the node".to_owned())
}

fn released(
    decision: &Decision,
    member: &Member,
    job: &Job,
    around: Surroundings<'_>,
    timeouts: Timeouts,
) -> Next {
    let restarted = job.restart_count != member.plan.start.restart_count;
    match &job.state {
        // Not this start any more: it ran, however shortly. Its pin is reset as a lost lease.
        _ if restarted => Next::Ended(around.scan.at),
        JobState::Running | JobState::Suspended | JobState::Completing => {
            Next::Started(job.started_at.unwrap_or(around.scan.at))
        }
        JobState::Ended(_) => Next::Ended(job.ended_at.unwrap_or(around.scan.at)),
        JobState::Other(_) => Next::Wait,
        JobState::Pending => match mark_of(job) {
            None => gone("it left management".to_owned()),
            Some(mark) if mark.lease_epoch.is_none() => {
                // Put back by `pillion rescue`, say: before its release it was not.
                if mark.alone || is_release_over(member, around) {
                    gone("the release was taken back".to_owned())
                } else {
                    Next::Wait
                }
            }
            // It lost its last seconds, as a controller that is killed does. Pinned to where the job runs already, it would
            // be started there a second time, which the node takes for an error of its own.
            Some(_) if around.launched_at.is_some_and(|at| at < around.scan.at) => {
                Next::Undo("Slurm has forgotten that it runs".to_owned())
            }
            Some(_) => undo_reason(decision, member, job, around, timeouts).map_or(Next::Wait, Next::Undo),
        },
    }
}

/// Whether the call that released it is over by this scan, so that a job without a lease has none any more. Of a call of our own we know when
/// it was answered; of one of another scheduler's, or of ours before we died, only when it began.
fn is_release_over(member: &Member, around: Surroundings<'_>) -> bool {
    let is_own = member.released_at.zip(around.tried_at).is_some_and(|(began, answered)| {
        let seconds = answered.seconds() - began.seconds();
        (0.0..CLOCK_STEP_SECONDS).contains(&seconds)
    });
    is_own || age(around, member.released_at) > CALL_SECONDS_MAX
}

fn undo_reason(
    decision: &Decision,
    member: &Member,
    job: &Job,
    around: Surroundings<'_>,
    timeouts: Timeouts,
) -> Option<String> {
    let waited = age(around, member.released_at);
    if waited > timeouts.lease.as_secs_f64() {
        return Some(format!("Slurm did not start it within {waited:.0} s: {}", job.reason));
    }
    if is_held(job) {
        return Some("its user or an admin holds it".to_owned());
    }
    if job.priority == 0 {
        return Some("Slurm holds it: the node does not match what it asked for".to_owned());
    }
    place_obstacle(decision, Surroundings { agent_connected: true, ..around })
}

fn running(member: &Member, job: &Job, around: Surroundings<'_>) -> Next {
    if job.restart_count != member.plan.start.restart_count {
        return Next::Ended(around.scan.at);
    }
    match &job.state {
        JobState::Ended(_) => Next::Ended(job.ended_at.unwrap_or(around.scan.at)),
        JobState::Pending => Next::Ended(around.scan.at),
        JobState::Running | JobState::Suspended | JobState::Completing | JobState::Other(_) => Next::Wait,
    }
}

/// The lease that Slurm holds for exactly this member's start and place: one that an earlier decision was given up for may land late, and
/// what it names is not what was prepared.
fn own_lease(decision: &Decision, member: &Member, job: &Job) -> Option<u64> {
    let mark = mark_of(job)?;
    let same_start = mark.lease_restart_count == Some(member.plan.start.restart_count)
        && job.restart_count == member.plan.start.restart_count;
    let nodes = if job.state == JobState::Pending { &job.required_nodes } else { &job.nodes };
    let same_place = nodes.as_slice() == std::slice::from_ref(&decision.node)
        && job.shards().all(|(gres_type, _)| {
            gres_type.is_none_or(|gres_type| decision.gres_types.iter().any(|own| *own == gres_type))
        });
    mark.lease_epoch.filter(|_| same_start && same_place)
}

/// A release changes nothing any more so long after it was begun: `pillion.lua` refuses one that comes after `LEASE_SECONDS`, and clocks differ
/// by a few. How long its call may take (`slurm.timeout_seconds`), and whether it outlives who made it, does not matter then.
const CALL_SECONDS_MAX: f64 = 35.0;

/// How far the clocks of two hosts that schedule may differ.
pub(crate) const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// A time further ahead than this can only come from a clock that was set back.
const CLOCK_STEP_SECONDS: f64 = 60.0;

/// Whether the scan may not show yet what was done at `since`.
pub(crate) fn predates(scan: &Scan, since: Option<UnixTime>) -> bool {
    is_before(scan.at, since)
}

/// Whether that was done after this moment, as far as clocks can be believed.
pub(crate) fn is_before(at: UnixTime, since: Option<UnixTime>) -> bool {
    since.is_some_and(|since| {
        let ahead = since.seconds() - at.seconds();
        (0.0..CLOCK_STEP_SECONDS).contains(&ahead)
    })
}

/// Seconds since then; infinite where the clock was set back meanwhile, so that nothing waits for it to catch up.
fn age(around: Surroundings<'_>, since: Option<UnixTime>) -> f64 {
    let seconds = since.map_or(0.0, |since| around.scan.at.seconds() - since.seconds());
    if seconds < -CLOCK_STEP_SECONDS { f64::INFINITY } else { seconds.max(0.0) }
}

#[cfg(test)]
mod tests;
