//! Interactive jobs as hosts: each has its device first, and while it is idle small guests may be there, which go as soon as it is not
//! (docs/decisions/0039-interactive-hosts.md). Pure; whether it is idle stands in the view. Must not know who measures.

use crate::plan::Reason;
use crate::planner::first_run;
use crate::policy::Policy;
use crate::view::{DeviceView, Session, WaitingJob};
use pillion_core::Shards;

/// What one books where guests may come: what is left suffices for them.
const SHARDS: u8 = 60;
/// How much of a device guests beside one may use together: when it begins to work, what is used in all has to grow by so much that it is
/// noticed (`scheduler/sessions`), and meanwhile there is room for it.
const GUESTS_USE_MAX: f64 = 0.6;

/// What is booked for a job of which nothing is foretold, its workload's first run or an interactive one, where it may be joined later;
/// `None` = it has the whole device.
pub(crate) fn shards_of_unknown(
    why_alone: Reason,
    job: &WaitingJob,
    device: &DeviceView,
    policy: &Policy,
) -> Option<Shards> {
    first_run::shards(why_alone, job, device, policy).or_else(|| shards(why_alone, job, device, policy))
}

/// What an interactive job is booked with where guests may come to it; `None` = it has the whole device.
///
/// Not where a card has modes, which are set before anybody runs: in a part of the card it would be slower all the time.
fn shards(why_alone: Reason, job: &WaitingJob, device: &DeviceView, policy: &Policy) -> Option<Shards> {
    let has_clients = device.mechanism.has_daemon() && !device.mechanism.has_instances();
    let may_host = job.rules(policy).tenants_max > 1 && job.memory_bytes_declared.is_some();
    (why_alone == Reason::Interactive && has_clients && may_host)
        .then(|| Shards::try_new(SHARDS).expect("it is 1 to 100"))
}

/// Whether somebody may come to it now.
///
/// # Errors
/// That it is not idle.
pub(crate) const fn may_be_joined(session: &Session) -> Result<(), Reason> {
    if session.is_idle { Ok(()) } else { Err(Reason::SessionActive) }
}

/// Whether a job may come beside an interactive one. `uses`: the part of the device that it and the guests there use alone; absent of one
/// of whom that was not measured.
///
/// # Errors
/// That it is no guest, or that they would use too much.
pub(crate) fn may_come(is_guest: bool, uses: impl IntoIterator<Item = Option<f64>>) -> Result<(), Reason> {
    let together: Option<f64> = uses.into_iter().sum();
    let is_small = together.is_some_and(|all| all <= GUESTS_USE_MAX);
    if is_guest && is_small { Ok(()) } else { Err(Reason::GuestsOnly) }
}

#[cfg(test)]
mod tests;
