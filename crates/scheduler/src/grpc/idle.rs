//! GPUs of observed partitions that jobs hold and do not use. Pure: what the caller may not see is left out here.

use super::auth::Caller;
use crate::agents::AgentState;
use crate::observe::activity::idle_since;
use crate::observe::seen::Observed;
use pillion_api as api;
use pillion_core::{GresType, NodeName, UnixTime};
use pillion_store::{HeldDevice, IDLE_LEVEL_USUAL, IDLE_LEVELS, ObservedJob};
use std::collections::BTreeMap;
use tonic::Status;

/// What counts as long where nobody says otherwise.
pub(crate) const IDLE_SECONDS_USUAL: f64 = 3600.0;
/// A process that was seen so shortly before the last look is still there: minutes are told when they are over.
const PROCESS_SECONDS: f64 = 120.0;

/// GPUs that are held, by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldCounts {
    pub(crate) working: u32,
    /// Without work for [`IDLE_SECONDS_USUAL`], by the usual level.
    pub(crate) idle: u32,
    /// Nobody can say.
    pub(crate) unseen: u32,
}

/// All that are held now.
pub(crate) fn counts(observed: &Observed, now: UnixTime) -> HeldCounts {
    let mut counts = HeldCounts::default();
    for (_, held) in held(observed) {
        let since = idle_since(held, IDLE_LEVEL_USUAL, now);
        if is_unseen(held, now) {
            counts.unseen += 1;
        } else if since.is_some_and(|since| now.seconds_since(since) >= IDLE_SECONDS_USUAL) {
            counts.idle += 1;
        } else {
            counts.working += 1;
        }
    }
    counts
}

/// The answer to somebody's question.
///
/// # Errors
/// Where it asks for a level that is not remembered.
pub(super) fn answer(
    observed: &Observed,
    agents: &BTreeMap<NodeName, AgentState>,
    request: &api::IdleRequest,
    caller: Caller,
    now: UnixTime,
) -> Result<api::IdleResponse, Status> {
    let level = level(request.busy_below_fraction)?;
    let for_seconds = if request.for_seconds > 0.0 { request.for_seconds } else { IDLE_SECONDS_USUAL };
    let own =
        |job: &ObservedJob| caller.may_see(job.uid) && (request.user.is_empty() || job.user == request.user);
    let (mut devices, mut held_count, mut unseen_count) = (Vec::new(), 0, 0);
    for (job, held) in held(observed).filter(|(job, _)| own(job)) {
        held_count += 1;
        unseen_count += u32::from(is_unseen(held, now));
        let since = idle_since(held, level, now);
        if let Some(since) = since.filter(|since| now.seconds_since(*since) >= for_seconds) {
            devices.push(row(job, held, since, model(agents, &held.node, &held.gres_type), now));
        }
    }
    devices.sort_by(|a, b| b.idle_seconds.total_cmp(&a.idle_seconds));
    Ok(api::IdleResponse {
        for_seconds,
        busy_below_fraction: IDLE_LEVELS[level],
        now_seconds: now.seconds(),
        seen_at_seconds: observed.at.map(UnixTime::seconds),
        held_count,
        unseen_count,
        devices,
    })
}

fn held(observed: &Observed) -> impl Iterator<Item = (&ObservedJob, &HeldDevice)> {
    let open = observed.jobs.iter().filter(|job| job.ended_at.is_none());
    open.flat_map(|job| job.devices.iter().map(move |held| (job, held)))
}

/// Whether nobody can say what it does: its agent was never there, or is away. By the greatest level whoever is seen is below it or
/// was above it.
fn is_unseen(held: &HeldDevice, now: UnixTime) -> bool {
    let is_away = held.seen_at.is_none_or(|at| now.seconds_since(at) > PROCESS_SECONDS + 60.0);
    is_away && idle_since(held, 0, now).is_none()
}

/// The place of a level among those that are remembered; 0 means the usual one.
fn level(fraction: f64) -> Result<usize, Status> {
    if fraction == 0.0 {
        return Ok(IDLE_LEVEL_USUAL);
    }
    let place = IDLE_LEVELS.iter().position(|level| (level - fraction).abs() < 1e-9);
    place.ok_or_else(|| Status::invalid_argument("busy_below_fraction is 0.01, 0.05, 0.1 or 0.25"))
}

fn model(agents: &BTreeMap<NodeName, AgentState>, node: &NodeName, gres_type: &GresType) -> Option<String> {
    let device = agents.get(node)?.devices.iter().find(|device| device.gres_type == *gres_type)?;
    Some(device.model.clone())
}

fn row(
    job: &ObservedJob,
    held: &HeldDevice,
    since: UnixTime,
    device_model: Option<String>,
    now: UnixTime,
) -> api::IdleDevice {
    let has_process = held
        .process_at
        .zip(held.seen_at)
        .is_some_and(|(process_at, seen_at)| seen_at.seconds_since(process_at) < PROCESS_SECONDS);
    api::IdleDevice {
        job_id: job.start.job_id.to_string(),
        user: job.user.clone(),
        account: job.account.clone(),
        partition: job.partition.clone(),
        workload: Some(job.workload.to_string()).filter(|key| !key.is_empty()),
        workload_name: None,
        node: held.node.to_string(),
        gres_type: held.gres_type.to_string(),
        device_model,
        since_seconds: since.seconds(),
        idle_seconds: now.seconds_since(since),
        has_process,
        job_started_at_seconds: job.started_at.seconds(),
    }
}

/// What was seen of the devices of a start.
pub(super) fn held_devices(job: &ObservedJob) -> Vec<api::HeldDevice> {
    let rows = job.devices.iter().map(|held| api::HeldDevice {
        node: held.node.to_string(),
        gres_type: held.gres_type.to_string(),
        seen_seconds: held.seen_seconds,
        idle_seconds: held.idle_seconds,
        was_used: held.process_at.is_some(),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{held as unseen, observed};
    use crate::testing::{NOW, at};
    use pillion_core::UserId;

    /// Seen from the beginning of its job until a minute ago, and busy last at these times by each level.
    fn seen(device: &str, busy_at: [Option<u64>; 4]) -> HeldDevice {
        HeldDevice {
            seen_since: Some(at(NOW)),
            seen_at: Some(at(NOW + 7_140)),
            busy_at: busy_at.map(|seconds| seconds.map(|seconds| at(NOW + seconds))),
            ..unseen("n1", device)
        }
    }

    fn world() -> Observed {
        let still = seen("g0", [None; 4]);
        let with_process = HeldDevice {
            process_at: Some(at(NOW + 7_140)),
            ..seen("g1", [Some(7_000), Some(1_000), None, None])
        };
        let working = seen("g2", [Some(7_140); 4]);
        let alices =
            ObservedJob { devices: vec![still, with_process, working, unseen("n1", "g3")], ..observed(7) };
        let bobs = ObservedJob {
            uid: UserId(2002),
            user: "bob".to_owned(),
            devices: vec![seen("g4", [None; 4])],
            ..observed(8)
        };
        let over = ObservedJob {
            ended_at: Some(at(NOW + 7_000)),
            ..ObservedJob { devices: vec![seen("g5", [None; 4])], ..observed(9) }
        };
        Observed { at: Some(at(NOW + 7_200)), jobs: vec![alices, bobs, over], ..Observed::default() }
    }

    fn asked(request: &api::IdleRequest, caller: Caller) -> api::IdleResponse {
        answer(&world(), &BTreeMap::new(), request, caller, at(NOW + 7_200)).unwrap()
    }

    fn devices(response: &api::IdleResponse) -> Vec<(&str, u64, bool)> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole seconds of a few hours"
        )]
        let rows =
            response.devices.iter().map(|it| (it.gres_type.as_str(), it.idle_seconds as u64, it.has_process));
        rows.collect()
    }

    #[test]
    fn who_holds_what_and_since_when_is_told_by_level_and_time() {
        let operator = Caller { uid: Some(UserId(0)), is_operator: true };
        let usual = asked(&api::IdleRequest::default(), operator);
        assert_eq!(devices(&usual), [("g0", 7_200, false), ("g4", 7_200, false), ("g1", 6_200, true)]);
        assert_eq!((usual.held_count, usual.unseen_count), (5, 1));
        let strict =
            api::IdleRequest { busy_below_fraction: 0.01, for_seconds: 100.0, ..api::IdleRequest::default() };
        assert_eq!(
            devices(&asked(&strict, operator)),
            [("g0", 7_200, false), ("g4", 7_200, false), ("g1", 200, true)]
        );
        let long = api::IdleRequest {
            for_seconds: 7_000.0,
            user: "alice".to_owned(),
            ..api::IdleRequest::default()
        };
        assert_eq!(devices(&asked(&long, operator)), [("g0", 7_200, false)]);
        assert_eq!(counts(&world(), at(NOW + 7_200)), HeldCounts { working: 1, idle: 3, unseen: 1 });
    }

    #[test]
    fn a_user_is_told_of_his_own_jobs_alone_and_nobody_of_none() {
        let bob = Caller { uid: Some(UserId(2002)), is_operator: false };
        let own = asked(&api::IdleRequest::default(), bob);
        assert_eq!((devices(&own), own.held_count), (vec![("g4", 7_200, false)], 1));
        let others = api::IdleRequest { user: "alice".to_owned(), ..api::IdleRequest::default() };
        assert_eq!(asked(&others, bob).devices, []);
        assert_eq!(
            asked(&api::IdleRequest::default(), Caller { uid: None, is_operator: false }).held_count,
            0
        );
        let odd = api::IdleRequest { busy_below_fraction: 0.07, ..api::IdleRequest::default() };
        assert!(answer(&world(), &BTreeMap::new(), &odd, bob, at(NOW)).is_err());
    }
}
