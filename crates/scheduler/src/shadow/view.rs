//! Observed partitions as if they were the pool: what Slurm says of them and what was decided in the shadow, in the words of the
//! pool's own view ([`crate::view::cluster_view`]), which makes the planner's snapshot of it. Pure, and with no memory: who would be
//! where follows from open decisions and from what Slurm says runs.
//!
//! ```text
//!  a group lives where its host runs in truth      w1 g0: host (runs), joiner (waits in truth, or runs at w2 g1)
//!  a joiner's own GPU is nobody's meanwhile        w2 g1: taken
//!  before the host runs: at the planned place      unless Slurm gave that to somebody else: then nowhere
//! ```

use super::standing::{Place, Ran, Standing, Standings};
use crate::agents::AgentState;
use crate::observe::seen::Observed;
use crate::scan::Scan;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mark::Mark;
use pillion_core::{DecisionId, GresType, JobStart, NodeName, UnixTime, WorkloadKey};
use pillion_pairing::SpeedEstimate;
use pillion_slurm::{Job, JobState, Node, ReasonKind};
use pillion_store::{Decision, Member, ShadowDecision};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a job runs that waits, and on how many nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) workload: WorkloadKey,
    pub(crate) node_count: u32,
}

/// What the pool is made from.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) at: UnixTime,
    pub(crate) observed: &'a Observed,
    pub(crate) standings: &'a Standings<'a>,
    /// What those run that wait; tasks of an array share theirs, by its number.
    pub(crate) works: &'a BTreeMap<u32, Work>,
    /// All agents, by node.
    pub(crate) agents: &'a BTreeMap<NodeName, AgentState>,
    /// Decisions that are open, in the order in which they were made.
    pub(crate) open: &'a [ShadowDecision],
    /// The observed partitions.
    pub(crate) partitions: &'a [String],
    /// The dead man's switch, as it would be.
    pub(crate) bound: Duration,
}

/// Slurm, decisions and agents as a pool has them.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) scan: Scan,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) agents: BTreeMap<NodeName, AgentState>,
}

/// Somebody who would be on a device, and since when he would run there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seat<'a> {
    pub(crate) decision: &'a ShadowDecision,
    pub(crate) place: Place,
    /// `None`: its host has not started.
    pub(crate) started_at: Option<UnixTime>,
}

/// When a decision's part of the story begins: a host's when Slurm starts it; a joiner's when it was decided or, where it was to begin
/// with its host, when the first of them starts.
pub(crate) fn begins_at(decision: &ShadowDecision, standings: &Standings<'_>) -> Option<UnixTime> {
    let started = |start: JobStart| standings.of(start).ran().map(|ran| ran.started_at);
    if !decision.is_joiner() {
        return started(decision.start());
    }
    if !decision.is_with_host {
        return Some(decision.decided_at);
    }
    let first = [started(decision.group), started(decision.start())].into_iter().flatten();
    first.min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
}

/// When somebody would leave his device: a host when it ends, a joiner when he would have ended beside others, by how long he ran or, as
/// long as nobody knows that, by how long he was believed to run. `None`: not known.
fn leaves_at(decision: &ShadowDecision, begun: UnixTime, standings: &Standings<'_>) -> Option<UnixTime> {
    let standing = standings.of(decision.start());
    let ran = standing.ran();
    if !decision.is_joiner() {
        return ran.and_then(|ran| ran.ended_at);
    }
    let seconds = ran.and_then(Ran::seconds).or(decision.member.solo_duration_seconds)?;
    Some(begun + Duration::from_secs_f64((seconds / own_speed(decision)).clamp(0.0, 1e9)))
}

/// How fast it was predicted to go beside the others.
pub(crate) fn own_speed(decision: &ShadowDecision) -> f64 {
    decision.member.estimate.as_ref().map_or(1.0, SpeedEstimate::lasting_speed_fraction)
}

/// Where each group lives now; groups that are not here live nowhere: nobody is seated, and nobody may join.
fn homes(ground: &Ground<'_>) -> BTreeMap<JobStart, Place> {
    let held = held_by(ground.observed);
    let mut with_hosts: BTreeMap<JobStart, Vec<JobStart>> = BTreeMap::new();
    for decision in ground.open.iter().filter(|decision| decision.is_with_host) {
        with_hosts.entry(decision.group).or_default().push(decision.start());
    }
    let hosts = ground.open.iter().filter(|decision| !decision.is_joiner());
    let homes = hosts.filter_map(|host| {
        let with_host = with_hosts.get(&host.group).map(Vec::as_slice).unwrap_or_default();
        let place = match ground.standings.of(host.start()) {
            Standing::Ran(ran) => place_of(ran),
            Standing::Gone => None,
            Standing::Waits => {
                let mut others = with_host.iter().map(|start| ground.standings.of(*start));
                let first = others.find_map(|it| if let Standing::Ran(ran) = it { Some(ran) } else { None });
                let planned = (host.node.clone(), host.gres_type.clone());
                // Nobody has started: where it was planned, unless Slurm gave that to somebody else.
                first.map_or_else(|| (!held.contains_key(&planned)).then_some(planned), place_of)
            }
        };
        Some((host.group, place?))
    });
    homes.collect()
}

/// The device of a start that runs.
fn place_of(ran: Ran) -> Option<Place> {
    ran.place.filter(|_| ran.ended_at.is_none())
}

/// Who would be on which device now.
pub(crate) fn seats<'a>(ground: &Ground<'a>) -> Vec<Seat<'a>> {
    let homes = homes(ground);
    let seated = ground.open.iter().filter_map(|decision| {
        let place = homes.get(&decision.group)?.clone();
        let standing = ground.standings.of(decision.start());
        let started_at = begins_at(decision, ground.standings);
        let has_left = match started_at {
            Some(begun) => leaves_at(decision, begun, ground.standings).is_some_and(|left| left <= ground.at),
            None => false,
        };
        let is_gone = matches!(standing, Standing::Gone);
        (!has_left && !is_gone).then_some(Seat { decision, place, started_at })
    });
    seated.collect()
}

/// Devices that Slurm has given to somebody, and to whom.
fn held_by(observed: &Observed) -> BTreeMap<Place, Vec<JobStart>> {
    let mut held: BTreeMap<Place, Vec<JobStart>> = BTreeMap::new();
    for job in observed.jobs.iter().filter(|job| job.ended_at.is_none()) {
        for device in &job.devices {
            held.entry((device.node.clone(), device.gres_type.clone())).or_default().push(job.start);
        }
    }
    held
}

/// Everything as a pool has it.
pub(crate) fn pool(ground: &Ground<'_>) -> Pool {
    let seats = seats(ground);
    let numbers = ground.open.iter().map(ShadowDecision::start).zip(1..).collect();
    let of_starts: BTreeMap<JobStart, &Seat<'_>> =
        seats.iter().map(|seat| (seat.decision.start(), seat)).collect();
    let mut of_places: BTreeMap<&Place, Vec<&Seat<'_>>> = BTreeMap::new();
    for seat in &seats {
        of_places.entry(&seat.place).or_default().push(seat);
    }
    let decided: BTreeSet<JobStart> = ground.open.iter().map(ShadowDecision::start).collect();
    let jobs = ground.observed.queue.iter().filter_map(|job| {
        match of_starts.get(&job.start()) {
            Some(seat) => Some(seated_job(job, seat, ground)),
            // Who has been decided on and sits nowhere is neither waiting nor there.
            None if decided.contains(&job.start()) && job.state == JobState::Pending => None,
            None => waiting_job(job, ground),
        }
    });
    let jobs = jobs.map(Arc::new).collect();
    let held = held_by(ground.observed);
    let nodes = ground.observed.nodes.values();
    let nodes = nodes.map(|node| pool_node(node, &of_places, &held, ground)).collect();
    Pool {
        scan: Scan::new(ground.at, jobs, nodes, ground.partitions, 0),
        decisions: seats.iter().map(|seat| decision(seat, &numbers)).collect(),
        agents: pool_agents(ground),
    }
}

/// Somebody who has a place: managed, and in Slurm's counts only where his host's GPU is his own.
fn seated_job(job: &Job, seat: &Seat<'_>, ground: &Ground<'_>) -> Job {
    let standing = ground.standings.of(job.start());
    let is_here = standing.runs() && standing.ran().and_then(|ran| ran.place.as_ref()) == Some(&seat.place);
    let state = if is_here { JobState::Running } else { JobState::Pending };
    Job { state, ..managed(job, &seat.decision.member.workload, ground) }
}

/// One that waits, or is none of ours: then it counts for the throttle of its array, and for nothing else.
fn waiting_job(job: &Job, ground: &Ground<'_>) -> Option<Job> {
    if job.state != JobState::Pending {
        return Some(Job { mark: Ok(None), ..job.clone() });
    }
    let work = ground.works.get(&job.id.id)?;
    is_manageable(job, work).then(|| managed(job, &work.workload, ground))
}

/// Whether `pillion.lua` would take it, as far as Slurm's queue says: a batch job of one GPU on one node, that names no node and no
/// reservation.
pub(crate) fn is_manageable(job: &Job, work: &Work) -> bool {
    let is_batch = !work.workload.as_str().split_once('/').is_some_and(|(_, it)| it.starts_with("line-"));
    is_batch
        && work.node_count == 1
        && asked_gpu(job).is_some()
        && job.required_nodes.is_empty()
        && job.reservation.is_empty()
}

/// The one GPU that a job asks for: `gpu:1`, `gpu:a100:1`; `None`: several or none.
fn asked_gpu(job: &Job) -> Option<&str> {
    let mut asked = job.gres.split(',').filter(|entry| *entry == "gpu" || entry.starts_with("gpu:"));
    let (first, None) = (asked.next()?, asked.next()) else { return None };
    let count = first.rsplit(':').next().and_then(|count| count.parse::<u32>().ok());
    (count.unwrap_or(1) == 1).then_some(first)
}

/// A job as it would be had its user said `--colocate`.
fn managed(job: &Job, workload: &WorkloadKey, ground: &Ground<'_>) -> Job {
    let digest = workload.as_str().split_once('/').map_or("", |(_, digest)| digest);
    let own_begin = job.eligible_at.filter(|at| job.state == JobState::Pending && *at > ground.at);
    let mark = Mark {
        workload_digest: digest.into(),
        original_gres: asked_gpu(job).unwrap_or_default().into(),
        original_begin_epoch: own_begin.map_or(0, UnixTime::epoch),
        ..Mark::default()
    };
    Job { eligible_at: Some(ground.at + ground.bound), mark: Ok(Some(mark)), ..job.clone() }
}

/// A decision as it is kept of those that are carried out.
fn decision(seat: &Seat<'_>, numbers: &BTreeMap<JobStart, u64>) -> Decision {
    let own = seat.decision;
    let state = if seat.started_at.is_some() { MemberState::Running } else { MemberState::Planned };
    let member = Member {
        plan: own.member.clone(),
        state,
        prepared_at: None,
        released_at: None,
        started_at: seat.started_at,
        ended_at: None,
        measured_speed_fraction: None,
        energy_joules: None,
    };
    Decision {
        id: numbered(numbers, own.start()),
        group: numbered(numbers, own.group),
        state: DecisionState::Released,
        created_at: own.decided_at,
        node: seat.place.0.clone(),
        gres_types: seat.place.1.clone().into(),
        device_model: own.device_model.clone(),
        gain: own.gain,
        trial: None,
        first_run: None,
        abandoned_reason: None,
        members: vec![member],
    }
}

/// The number by which a decision goes in one look.
fn numbered(numbers: &BTreeMap<JobStart, u64>, start: JobStart) -> DecisionId {
    DecisionId(numbers.get(&start).copied().unwrap_or(0))
}

/// A node whose GPUs are shards: booked by who would be there; taken whole by who holds one and would be nowhere or elsewhere.
fn pool_node(
    node: &Node,
    seats: &BTreeMap<&Place, Vec<&Seat<'_>>>,
    held: &BTreeMap<Place, Vec<JobStart>>,
    ground: &Ground<'_>,
) -> Node {
    let devices = ground.agents.get(&node.name).map(|agent| agent.devices.as_slice()).unwrap_or_default();
    let known_count = held.range((node.name.clone(), GresType::new(""))..);
    let known_count = known_count.take_while(|((name, _), _)| *name == node.name).count();
    let used_count: u32 = node.gpus.values().map(|(_, used)| used).sum();
    // Somebody holds GPUs of which Slurm has not said which: any free one may be his.
    let is_clear = usize::try_from(used_count).is_ok_and(|used| used <= known_count);
    let shards = devices.iter().map(|device| {
        let place = (node.name.clone(), device.gres_type.clone());
        let here = seats.get(&place).map(Vec::as_slice).unwrap_or_default();
        let holders = held.get(&place).map(Vec::as_slice).unwrap_or_default();
        let is_foreign = holders.iter().any(|start| here.iter().all(|seat| seat.decision.start() != *start));
        let booked = here.iter().filter(|seat| holders.contains(&seat.decision.start()));
        let booked: u32 = booked.map(|seat| u32::from(seat.decision.member.shards.count())).sum();
        let is_taken = is_foreign || (here.is_empty() && !is_clear);
        (device.gres_type.clone(), (100, if is_taken { 100 } else { booked }))
    });
    Node { shards: shards.collect(), gpus: BTreeMap::new(), ..node.clone() }
}

/// Agents as they would be in a pool: with the mechanism that their devices have there.
fn pool_agents(ground: &Ground<'_>) -> BTreeMap<NodeName, AgentState> {
    let observed = ground.agents.iter().filter(|(node, _)| ground.observed.nodes.contains_key(*node));
    let agents = observed.map(|(node, agent)| {
        let devices = agent.devices.iter().map(pool_device).collect();
        (node.clone(), AgentState { devices, observes: false, ..agent.clone() })
    });
    agents.collect()
}

/// An agent that observes sets nothing up, and says so of its devices. MIG is not decided on in the shadow.
fn pool_device(device: &DeviceDescription) -> DeviceDescription {
    let mechanism = match device.mechanism {
        Mechanism::TimeSliced if device.model.starts_with("max-") => Mechanism::Ccs,
        Mechanism::TimeSliced | Mechanism::Mig | Mechanism::MigMps => Mechanism::Mps,
        own @ (Mechanism::Mps | Mechanism::Ccs) => own,
    };
    DeviceDescription { mechanism, geometry: None, ..device.clone() }
}

/// The pool with one job alone that waits, and the device alone that Slurm gave it: what it would have been given there.
pub(crate) fn pool_of_one(job: &Job, work: &Work, place: &Place, ground: &Ground<'_>) -> Option<Pool> {
    let agent = ground.agents.get(&place.0)?;
    let devices = agent.devices.iter().filter(|device| device.gres_type == place.1).map(pool_device);
    let devices: Vec<DeviceDescription> = devices.collect();
    let waiting = Job {
        state: JobState::Pending,
        reason: ReasonKind::None,
        priority: job.priority.max(1),
        has_dependency: false,
        array_throttle: None,
        nodes: Vec::new(),
        ..managed(job, &work.workload, ground)
    };
    let node = ground.observed.nodes.get(&place.0)?;
    let node = Node {
        shards: BTreeMap::from([(place.1.clone(), (100, 0))]),
        gpus: BTreeMap::new(),
        // What it holds itself is free to it.
        cpus_allocated: node.cpus_allocated.saturating_sub(job.cpus),
        memory_mib_allocated: node.memory_mib_allocated.saturating_sub(job.memory_mib),
        ..node.clone()
    };
    let agent = AgentState { devices, observes: false, ..agent.clone() };
    Some(Pool {
        scan: Scan::new(ground.at, vec![Arc::new(waiting)], vec![node], ground.partitions, 0),
        decisions: Vec::new(),
        agents: BTreeMap::from([(place.0.clone(), agent)]),
    })
}

/// The names under which users ask for each model: those that the site gave, and those that Slurm has for the GPUs of its nodes.
pub(crate) fn gpu_types(
    given: &BTreeMap<String, Vec<String>>,
    observed: &Observed,
    agents: &BTreeMap<NodeName, AgentState>,
) -> BTreeMap<String, Vec<String>> {
    let mut names = given.clone();
    for (name, node) in &observed.nodes {
        let mut types = node.gpus.keys();
        // Of a node with several nobody says which GPU is of which.
        let (Some(only), None) = (types.next(), types.next()) else { continue };
        for device in agents.get(name).into_iter().flat_map(|agent| &agent.devices) {
            let known = names.entry(device.model.clone()).or_default();
            if !only.as_str().is_empty() && !known.iter().any(|own| own == only.as_str()) {
                known.push(only.to_string());
            }
        }
    }
    names
}
