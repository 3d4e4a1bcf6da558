//! Step 0: jobs that get whole devices, which nobody shares with them: *wide* ones, of several devices of a node, and *plain* ones,
//! which did not ask for co-location. They are given theirs at their turn in the queue; jobs that may share are planned afterwards,
//! on what is left, as if there were no others. Where the site has it so (`policy.share_wide`) wide ones share a set of devices
//! ([`sets`]).
//!
//! A wide job that has to wait would wait for ever where every device that falls free goes to the next small one, and a plain one
//! where joiners come for as long as there are some. So the first that wait have devices *set apart*: those of the node that will
//! have enough of them first, by the time limits of whoever is there. Meanwhile they are for jobs that end well before, and for joiners
//! that do, so that nothing stands idle that need not.
//!
//! A job on several nodes is *let go* at its turn: when devices of the same names are free on so many nodes, Slurm is to start it there
//! by itself, and nobody else gets them.
//!
//! 1. Walk the queue: such a job takes devices or has some set apart, one that may share is taken to use one ([`floor`]).
//! 2. Plan the others without what was taken and set apart.
//! 3. Plan what was set apart for those of them that were left and end in time.
//! 4. Where wide jobs may share, plan those of each width once more, on the sets that they were given and on those that may be joined.

pub(super) mod alike;
mod floor;
mod near;
mod sets;
#[cfg(test)]
mod tests;
mod words;

use crate::plan::{Explanation, LetGo, Member, Pairing, Plan, Reason, Role, SetApart};
use crate::policy::Policy;
use crate::view::{AloneClaim, ClusterView, Demand, DeviceView, NodeView, WaitingJob};
use floor::{Claimed, Closed, Floor, Found, Window};
use near::Ways;
use pillion_core::share::Sharing;
use pillion_core::{GresType, GresTypes, JobStart, NodeName, Shards, SlurmJobId, UnixTime};
use sets::Ground;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use words::Wait;

/// For how many of them that wait devices are set apart at most: the first of the queue. Each holds back some of what is free.
const SET_APART_MAX: usize = 4;

/// Plans jobs that get whole devices, and all others by `plan_narrow`. `model`: what explanations call the model.
pub(super) fn plan_around(
    view: &ClusterView,
    (model, policy): (&str, &Policy),
    mut plan_narrow: impl FnMut(&ClusterView) -> Plan,
) -> Plan {
    let has_claim = view.alone_claims.iter().any(AloneClaim::is_of_several);
    if !has_claim && !view.waiting.iter().any(WaitingJob::has_whole_devices) {
        return plan_narrow(view);
    }
    let settled = settle(view, model);
    let mut plan = plan_narrow(&settled.rest(view));
    for window in &settled.windows {
        let Some(inside) = settled.inside(view, window, &plan.pairings) else { continue };
        let found = plan_narrow(&inside);
        let started = starts(&found.pairings);
        plan.left_waiting.retain(|one| !started.contains(&one.job_id));
        plan.pairings.extend(found.pairings);
    }
    let Settled { pairings, left, let_go, closed, apart, claimed, .. } = settled;
    plan.pairings.extend(pairings);
    plan.left_waiting.extend(left);
    if policy.share_wide {
        let ground = Ground { view, policy, let_go: &let_go, closed: &closed, claimed: &claimed };
        plan = sets::share(&ground, plan, &mut plan_narrow);
    }
    plan.let_go = let_go;
    plan.set_apart = apart.into_iter().map(|(job_id, places)| set_apart(view, job_id, &places)).collect();
    for at in 0..plan.let_go.len() {
        plan.let_go[at].at_once = !could_take_what_is_given(view, &plan, &plan.let_go[at]);
    }
    plan
}

fn set_apart(view: &ClusterView, job_id: SlurmJobId, places: &[usize]) -> SetApart {
    let devices = places.iter().map(|place| &view.devices[*place]);
    SetApart { job_id, devices: devices.map(|own| (own.node.clone(), own.gres_type.clone())).collect() }
}

/// Whether Slurm could start this job, which is pinned to no node, on devices that somebody else is about to start on: of another node
/// that nobody runs on yet, some of which this plan or one before gave away.
fn could_take_what_is_given(view: &ClusterView, plan: &Plan, one: &LetGo) -> bool {
    let given: BTreeSet<(&NodeName, &GresType)> = plan
        .pairings
        .iter()
        .flat_map(|pairing| pairing.gres_types.iter().map(move |gres_type| (&pairing.node, gres_type)))
        .collect();
    let is_given = |device: &DeviceView| {
        !device.tenants.is_empty() || given.contains(&(&device.node, &device.gres_type))
    };
    let mut others: BTreeMap<&NodeName, Vec<&DeviceView>> = BTreeMap::new();
    for device in
        view.devices.iter().filter(|device| !one.devices.iter().any(|(node, _)| *node == device.node))
    {
        let is_meant = one.gres_types.as_ref().is_none_or(|named| named.contains(&device.gres_type));
        let is_empty = device.tenants.iter().all(|tenant| !tenant.is_running);
        if is_meant && is_empty && device.blocked.is_none() {
            others.entry(&device.node).or_default().push(device);
        }
    }
    let count = one.gres_types.as_ref().map_or(1, GresTypes::count);
    others.values().any(|own| own.len() >= count && own.iter().any(|device| is_given(device)))
}

fn starts(pairings: &[Pairing]) -> BTreeSet<SlurmJobId> {
    pairings.iter().flat_map(|pairing| &pairing.members).map(|member| member.start.job_id).collect()
}

/// What was settled of jobs that get whole devices.
struct Settled<'v> {
    pairings: Vec<Pairing>,
    left: Vec<Explanation>,
    windows: Vec<Window>,
    /// Those that are let go.
    let_go: Vec<LetGo>,
    /// By device of the view: why it takes none of the others now.
    closed: Vec<Option<&'static str>>,
    /// For whom devices are set apart, by their places in the view.
    apart: BTreeMap<SlurmJobId, Vec<usize>>,
    claimed: Claimed<'v>,
}

fn settle<'v>(view: &'v ClusterView, model: &str) -> Settled<'v> {
    let model: Arc<str> = Arc::from(model);
    let mut floor = Floor::new(view);
    let (mut pairings, mut left, mut let_go) = (Vec::new(), Vec::new(), Vec::new());
    let mut moved = Vec::new();
    for (job, places) in floor.take_claims(&view.alone_claims) {
        let nodes: BTreeSet<&NodeName> = places.iter().map(|place| &view.devices[*place].node).collect();
        moved.extend(nodes.into_iter().map(|node| (node, job.demand())));
        let_go.push(turn(job, view, &places));
    }
    for job in &view.waiting {
        if let Some(held) = job.held_text() {
            left.extend(job.has_whole_devices().then(|| explained(job, Reason::Held, held, &model)));
            continue;
        }
        if !job.has_whole_devices() {
            floor.seat_narrow(job);
            continue;
        }
        match floor.take(job) {
            Found::Devices(places) if job.node_count > 1 => {
                left.push(explained(job, Reason::LetGo, words::let_go(job), &model));
                let_go.push(turn(job, view, &places));
            }
            Found::Devices(places) => pairings.push(started(job, view, &places, &model)),
            Found::None(wait) => {
                let apart = floor.set_apart(job, SET_APART_MAX);
                left.push(explained(job, reason(wait), words::waiting(job, wait, apart), &model));
            }
        }
    }
    let Closed { why: closed, windows, apart, mut claimed } = floor.closed();
    claimed.by_several.extend(moved);
    Settled { pairings, left, windows, let_go, closed, apart, claimed }
}

const fn reason(wait: Wait) -> Reason {
    match wait {
        Wait::NoNodeHasSoMany => Reason::NodeDoesNotMatch,
        Wait::Reserved => Reason::NodeReserved,
        Wait::Closed => Reason::Blocked,
        Wait::NodeTooFull => Reason::NodeTooFull,
        Wait::BehindOthers => Reason::BehindOthers,
        Wait::NotFree => Reason::NoDeviceFree,
    }
}

fn explained(job: &WaitingJob, reason: Reason, text: String, model: &Arc<str>) -> Explanation {
    Explanation {
        job_id: job.start.job_id,
        reason,
        text: Arc::from(text),
        model: Arc::clone(model),
        candidates: Arc::from([]),
    }
}

/// `places`: its devices' places in the view, those of one node after the other.
fn turn(job: &WaitingJob, view: &ClusterView, places: &[usize]) -> LetGo {
    let devices = || places.iter().map(|place| &view.devices[*place]);
    // The same names on each node.
    let of_first = devices().take(job.device_count.into()).map(|device| device.gres_type.clone());
    LetGo {
        start: job.start,
        gres_types: GresTypes::try_new(of_first.collect()).ok().filter(|all| all.count() > 1),
        devices: devices().map(|device| (device.node.clone(), device.gres_type.clone())).collect(),
        at_once: false,
    }
}

/// `places`: its devices' places in the view.
fn started(job: &WaitingJob, view: &ClusterView, places: &[usize], model: &Arc<str>) -> Pairing {
    let devices: Vec<_> = places.iter().map(|place| &view.devices[*place]).collect();
    let first = devices[0];
    let gres_types = GresTypes::try_new(devices.iter().map(|device| device.gres_type.clone()).collect());
    let reason = if job.is_plain { Reason::NotColocated } else { Reason::SeveralDevices };
    let all: Vec<usize> = (0..devices.len()).collect();
    let reach = Ways::between(&devices).reach(&all);
    let explanation = explained(job, reason, words::starts(&first.node, job, reach), model);
    Pairing {
        node: first.node.clone(),
        // A node has no two devices of one GRES type, so that there is a list of them.
        gres_types: gres_types.unwrap_or_else(|_| first.gres_type.clone().into()),
        device_model: first.model.clone(),
        joins: None,
        members: vec![Member {
            start: job.start,
            workload: job.workload.clone(),
            role: Role::Alone,
            sharing: Sharing::TimeSliced,
            shards: Shards::ALL,
            memory_bytes: None,
            estimate: None,
            explanation,
        }],
        gain: 0.0,
        trial: None,
    }
}

/// When Slurm ends a job that starts now; `None` = never.
fn ends_at(job: &WaitingJob, now: UnixTime) -> Option<UnixTime> {
    job.time_limit_seconds.map(|seconds| now + Duration::from_secs(seconds))
}

impl Settled<'_> {
    /// The snapshot for jobs that may share: without what the others were given, and what is set apart for them.
    fn rest(&self, view: &ClusterView) -> ClusterView {
        let waiting = view.waiting.iter().filter(|job| !job.has_whole_devices()).cloned().collect();
        let alone_claims = view.alone_claims.iter().filter(|claim| !claim.is_of_several());
        let closed = |place: usize| self.closed[place];
        let rest =
            ClusterView { alone_claims: alone_claims.cloned().collect(), ..with(view, waiting, closed) };
        let claimed = self.claimed.by_several.iter().copied();
        charged(rest, demands(view, self.uses()).into_iter().chain(claimed))
    }

    /// The snapshot of what is set apart: for jobs that end in time and are not among those that start elsewhere (`starting`).
    /// `None`: there is none.
    fn inside(&self, view: &ClusterView, window: &Window, starting: &[Pairing]) -> Option<ClusterView> {
        let started = starts(starting);
        let ends_in_time = |job: &&WaitingJob| {
            !job.has_whole_devices()
                && job.held.is_none()
                && !started.contains(&job.start.job_id)
                && ends_at(job, view.taken_at).is_some_and(|end| end <= window.until)
        };
        let waiting: Vec<WaitingJob> = view.waiting.iter().filter(ends_in_time).cloned().collect();
        if waiting.is_empty() {
            return None;
        }
        let closed = |place: usize| (!window.places.contains(&place)).then_some(words::ELSEWHERE);
        let inside = with(view, waiting, closed);
        let used = demands(view, self.uses().chain(uses_of(starting)));
        Some(charged(inside, used.into_iter().chain(self.claimed.all())))
    }

    /// Who starts on which nodes.
    fn uses(&self) -> impl Iterator<Item = (&NodeName, JobStart)> {
        uses_of(&self.pairings).chain(uses_of_let_go(&self.let_go))
    }
}

fn uses_of_let_go(let_go: &[LetGo]) -> impl Iterator<Item = (&NodeName, JobStart)> {
    let_go.iter().flat_map(|one| one.nodes().into_iter().map(|node| (node, one.start)))
}

fn uses_of(pairings: &[Pairing]) -> impl Iterator<Item = (&NodeName, JobStart)> {
    pairings.iter().flat_map(|pairing| pairing.members.iter().map(|member| (&pairing.node, member.start)))
}

/// The same snapshot with these jobs and no claims, and with devices closed by their places.
fn with(
    view: &ClusterView,
    waiting: Vec<WaitingJob>,
    closed: impl Fn(usize) -> Option<&'static str>,
) -> ClusterView {
    let mut devices = view.devices.clone();
    for (place, device) in devices.iter_mut().enumerate().filter(|(_, device)| device.blocked.is_none()) {
        device.blocked = closed(place).map(str::to_owned);
    }
    ClusterView {
        revision: view.revision,
        taken_at: view.taken_at,
        nodes: view.nodes.clone(),
        devices,
        waiting,
        alone_claims: Vec::new(),
        profiles: view.profiles.clone(),
        copies: view.copies.clone(),
        slices: view.slices.clone(),
        trials: view.trials.clone(),
    }
}

/// What these jobs of the queue use of nodes.
fn demands<'p>(
    view: &ClusterView,
    uses: impl Iterator<Item = (&'p NodeName, JobStart)>,
) -> Vec<(&'p NodeName, Demand)> {
    let jobs: BTreeMap<JobStart, &WaitingJob> = view.waiting.iter().map(|job| (job.start, job)).collect();
    uses.filter_map(|(node, start)| Some((node, jobs.get(&start)?.demand()))).collect()
}

/// Takes from nodes what is used of their CPUs and memory.
fn charged<'p>(mut left: ClusterView, used: impl Iterator<Item = (&'p NodeName, Demand)>) -> ClusterView {
    let mut nodes: BTreeMap<NodeName, &mut NodeView> =
        left.nodes.iter_mut().map(|node| (node.name.clone(), node)).collect();
    for (name, (cpus, memory_mib)) in used {
        if let Some(node) = nodes.get_mut(name) {
            node.cpus_free = node.cpus_free.saturating_sub(cpus);
            node.memory_mib_free = node.memory_mib_free.saturating_sub(memory_mib);
        }
    }
    left
}
