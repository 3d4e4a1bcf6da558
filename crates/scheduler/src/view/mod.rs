//! Makes the engine's snapshot from the last scan, the active decisions, the agents and the profiles: pure.

mod alone;
mod charged;
mod copies;
mod limits;
mod order;
mod request;
mod sources;
mod trial_history;
mod trials;

pub use charged::Charged;
pub use copies::CopyHistory;
pub use request::gpu_type_names;
pub use sources::{Sources, TrialSources};
pub(crate) use trial_history::Combination;
pub use trial_history::{TrialHistory, Watched};

use crate::device_status::{Closed, closed};
use crate::first_runs::seen::is_first_run;
use crate::room_asked::{Leave, RoomAsked};
use crate::scan::{Scan, cpus_of_one_node, held_reason, is_waiting, mark_of, workload_of};
use alone::{StartedAlone, alone_claims};
use limits::Limits;
use pillion_core::decision::MemberState;
use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::invariant::Violation;
use pillion_core::isolation::Isolation;
use pillion_core::link::Link;
use pillion_core::workload::is_session;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_pairing::mig::SliceBook;
use pillion_pairing::{
    ClusterView, DeviceView, FirstRun, GuestTenant, NodeView, ProfileBook, Session, SpeedEstimate, Tenant,
    WaitingJob, known,
};
use pillion_slurm::{Job, JobState, Node, NodeAvailability};
use pillion_store::{Decision, Member};
use request::{asked_gpu_type, promise, promise_of};
use sources::active_members;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Makes the view.
pub fn cluster_view(sources: Sources<'_>) -> ClusterView {
    let profiles: Vec<_> = sources.profiles.iter().map(|stored| stored.profile.clone()).collect();
    let book = ProfileBook::from(profiles);
    let planned = planned_members(sources.decisions);
    let tenancies = by_node(sources.decisions);
    let here = |node: &Node| tenancies.get(&node.name).map(Vec::as_slice).unwrap_or_default();
    let waiting = waiting_jobs(&planned, sources);
    let started_alone = StartedAlone::of(sources);
    let trials = sources
        .trials
        .map_or_else(|| trials::what_is_watched(sources), |own| trials::book(&waiting, own, sources));
    ClusterView {
        revision: sources.revision,
        taken_at: sources.scan.at,
        nodes: sources.scan.nodes.iter().map(|node| node_view(node, here(node), sources)).collect(),
        devices: sources
            .scan
            .nodes
            .iter()
            .flat_map(|node| device_views(node, here(node), (&book, &started_alone), sources))
            .collect(),
        waiting,
        alone_claims: alone_claims(&planned, sources),
        profiles: book,
        copies: sources.copies.clone(),
        slices: SliceBook::default(),
        trials,
    }
}

fn planned_members(decisions: &[Decision]) -> BTreeSet<SlurmJobId> {
    active_members(decisions).map(|(_, member)| member.plan.start.job_id).collect()
}

/// An active member and its decision.
type Tenancy<'a> = (&'a Decision, &'a Member);

fn by_node(decisions: &[Decision]) -> BTreeMap<&NodeName, Vec<Tenancy<'_>>> {
    let mut nodes: BTreeMap<&NodeName, Vec<Tenancy<'_>>> = BTreeMap::new();
    for (decision, member) in active_members(decisions) {
        nodes.entry(&decision.node).or_default().push((decision, member));
    }
    nodes
}

/// Whether Slurm's own counts hold this job's resources already.
fn is_booked(scan: &Scan, job_id: SlurmJobId) -> bool {
    scan.jobs.get(&job_id).is_some_and(|job| {
        matches!(job.state, JobState::Running | JobState::Suspended | JobState::Completing)
    })
}

fn node_view(node: &Node, here: &[Tenancy<'_>], sources: Sources<'_>) -> NodeView {
    let unbooked: Vec<&Job> = here
        .iter()
        .filter(|(_, member)| !is_booked(sources.scan, member.plan.start.job_id))
        .filter_map(|(_, member)| sources.scan.jobs.get(&member.plan.start.job_id))
        .collect();
    let drain =
        sources.drains.iter().find(|drain| drain.place.node == node.name && drain.place.gres_type.is_none());
    // Told to every user whose job waits for the node: never whom it is about.
    let blocked = match &node.availability {
        // What an operator says of it tells more than what it is like meanwhile.
        _ if drain.is_some() => drain.map(ToString::to_string),
        NodeAvailability::Unavailable(state) => Some(format!("the node is {state}")),
        NodeAvailability::Up => match sources.agents.get(&node.name) {
            Some(agent) if agent.is_connected => {
                sources.stopped.get(&node.name).map(Violation::for_everybody)
            }
            _ => Some("its agent is not responding".to_owned()),
        },
    };
    NodeView {
        name: node.name.clone(),
        blocked,
        cpus: node.cpus,
        memory_mib: node.memory_mib,
        cpus_free: node
            .cpus
            .saturating_sub(node.cpus_allocated)
            .saturating_sub(unbooked.iter().map(|job| job.cpus).sum()),
        memory_mib_free: node
            .memory_mib
            .saturating_sub(node.memory_mib_allocated)
            .saturating_sub(unbooked.iter().map(|job| job.memory_mib).sum()),
        features: node.features.clone(),
        partitions: node.partitions.clone(),
        open_seconds: node.reserved_from.map(|from| open_seconds(from, sources.scan.at)),
    }
}

/// A release may take so long until Slurm starts the job, whose time begins then.
const STARTS_WITHIN_SECONDS: u64 = 30;

/// How long a job that is planned now may run on a node that is reserved from then on.
fn open_seconds(from: UnixTime, now: UnixTime) -> u64 {
    from.epoch().saturating_sub(now.epoch()).saturating_sub(STARTS_WITHIN_SECONDS)
}

fn device_views<'a>(
    node: &'a Node,
    here: &'a [Tenancy<'a>],
    known: (&'a ProfileBook, &'a StartedAlone<'a>),
    sources: Sources<'a>,
) -> impl Iterator<Item = DeviceView> + 'a {
    let devices = sources.agents.get(&node.name).map(|agent| agent.devices.as_slice()).unwrap_or_default();
    devices.iter().filter_map(move |device| {
        Some(device_view(node, device, *node.shards.get(&device.gres_type)?, here, known, sources))
    })
}

/// How it reaches the others, by what Slurm calls them.
pub(crate) fn links(device: &DeviceDescription, all: &[DeviceDescription]) -> BTreeMap<GresType, Link> {
    let named = |other: &DeviceDescription| Some((other.gres_type.clone(), *device.links.get(&other.index)?));
    all.iter().filter_map(named).collect()
}

fn device_view(
    node: &Node,
    device: &DeviceDescription,
    (shards_total, shards_used): (u32, u32),
    on_node: &[Tenancy<'_>],
    (book, started_alone): (&ProfileBook, &StartedAlone<'_>),
    sources: Sources<'_>,
) -> DeviceView {
    let here: Vec<Tenancy<'_>> = on_node
        .iter()
        .filter(|(decision, _)| decision.gres_types.contains(&device.gres_type))
        .copied()
        .collect();
    let (mut booked, mut unbooked) = (0, 0);
    for (_, member) in &here {
        let sum = if is_booked(sources.scan, member.plan.start.job_id) { &mut booked } else { &mut unbooked };
        *sum += u32::from(member.plan.shards.count());
    }
    let whole_gpu = node.gpus.get(&device.gres_type).is_some_and(|&(_, used)| used > 0);
    let agent = sources.agents.get(&node.name);
    let condition = agent.and_then(|agent| agent.conditions.get(&device.gres_type));
    let closed =
        agent.and_then(|agent| closed(sources.drains, sources.amiss, &node.name, agent, &device.gres_type));
    let instances_empty = condition.map(|condition| condition.instances_empty.clone()).unwrap_or_default();
    let is_shape_held = condition.is_some_and(DeviceCondition::is_shape_held);
    // Of one whose shape is held, what stands can be given away.
    let gives_standing = |why: &Closed<'_>| match why {
        Closed::Fault(fault) => fault.kind == FaultKind::Held && !instances_empty.is_empty(),
        Closed::Drained(_)
        | Closed::AgentNotResponding
        | Closed::Overrun
        | Closed::Strained
        | Closed::SetupFailed(_) => false,
    };
    let blocked = if let Some(why) = closed.filter(|why| !gives_standing(why)) {
        Some(why.for_everybody())
    } else if whole_gpu {
        Some("somebody holds the whole GPU".to_owned())
    } else if shards_used > booked && !here.is_empty() {
        Some("a job without a decision is on it".to_owned())
    } else {
        None
    };
    DeviceView {
        node: node.name.clone(),
        gres_type: device.gres_type.clone(),
        model: device.model.clone(),
        gpu_types: gpu_type_names(&device.model, sources.gpu_types),
        memory_bytes: device.memory_bytes,
        mechanism: device.mechanism,
        shards_free: shards_total.min(100).saturating_sub(shards_used).saturating_sub(unbooked),
        tenants: here.iter().map(|(decision, member)| tenant(decision, member, book, sources)).collect(),
        alone_until: started_alone.until(&node.name, &device.gres_type).filter(|_| shards_used > booked),
        blocked,
        geometry: device.geometry.clone(),
        is_shape_held,
        instances_empty,
        links: agent.map(|agent| links(device, &agent.devices)).unwrap_or_default(),
    }
}

fn tenant(decision: &Decision, member: &Member, book: &ProfileBook, sources: Sources<'_>) -> Tenant {
    let plan = &member.plan;
    let job = sources.scan.jobs.get(&plan.start.job_id);
    let started_at = member.started_at;
    let after = |at: UnixTime, seconds: f64| at + Duration::from_secs_f64(seconds.clamp(0.0, 1e9));
    let speed = plan.estimate.as_ref().map_or(1.0, SpeedEstimate::lasting_speed_fraction);
    let solo = book.get(&plan.workload, &decision.device_model).and_then(|profile| profile.duration_seconds);
    Tenant {
        job_id: plan.start.job_id,
        uid: plan.uid,
        account: job.map(|job| job.account.to_string()).unwrap_or_default(),
        workload: Some(plan.workload.clone()),
        group: Some(decision.group),
        is_running: member.state == MemberState::Running,
        sharing: plan.sharing,
        shards: plan.shards,
        slowdown_ratio_max: promise(plan.slowdown_ratio_max),
        memory_bytes: plan.memory_bytes,
        // One that is about to start has all of its limit before it.
        time_limit_at: job
            .and_then(|job| job.time_limit_seconds)
            .map(|limit| after(started_at.unwrap_or(sources.scan.at), seconds(limit))),
        expected_end_at: started_at.zip(solo).map(|(at, solo)| after(at, solo / speed)),
        // Whoever's mark cannot be read any more wanted a wall, as far as anybody knows.
        isolation: job.and_then(mark_of).map_or(Isolation::Hard, |mark| mark.isolation),
        first_run: first_run(decision, member, book, sources).map(Box::new),
        rules: sources.by_job.rules(job),
        guest: guest(member, sources),
        session: is_session(&plan.workload).then(|| {
            let is_idle = sources.idle_sessions.contains(&plan.start);
            Box::new(Session::new(plan.workload.clone(), &decision.device_model, is_idle))
        }),
        set: decision.gres_types.only().is_none().then(|| decision.gres_types.clone()),
    }
}

/// What becomes free when a tenant goes that was submitted as a guest; `None` where it is none, or did not go when it was to.
fn guest(member: &Member, sources: Sources<'_>) -> Option<GuestTenant> {
    let start = member.plan.start;
    let job = sources.scan.jobs.get(&start.job_id)?;
    mark_of(job).filter(|mark| mark.as_guest)?;
    let leave = RoomAsked::leave(sources.room_asked.get(&start), sources.scan.at);
    // Slurm has requeued it, and its decision does not know yet.
    let is_gone = job.start() != start || matches!(job.state, JobState::Completing | JobState::Ended(_));
    let is_leaving = is_gone || leave != Leave::Unasked;
    let stays = !is_gone && job.state == JobState::Running && leave == Leave::Stays;
    (!stays).then(|| GuestTenant {
        cpus: cpus_of_one_node(job),
        memory_mib: job.memory_mib,
        started_at: member.started_at,
        is_leaving,
    })
}

/// What was seen so far of a tenant that was started with nothing known of its workload; `None` where it is known by now, or
/// was when it started. Of one that was not measured yet it is nothing, so that nobody joins.
fn first_run(
    decision: &Decision,
    member: &Member,
    book: &ProfileBook,
    sources: Sources<'_>,
) -> Option<FirstRun> {
    let plan = &member.plan;
    let profile = book.get(&plan.workload, &decision.device_model);
    if !is_first_run(member) || known(profile, sources.policy).is_ok() {
        return None;
    }
    let job = sources.scan.jobs.get(&plan.start.job_id);
    let declared = job.and_then(mark_of).and_then(|mark| mark.memory_mib);
    let seen = sources.first_runs.get(&plan.start).map(|seen| seen.first.clone());
    let first = seen.unwrap_or_else(|| FirstRun::unseen(plan.workload.clone(), &decision.device_model));
    let memory_bytes_declared = declared.map(|mib| mib.saturating_mul(1 << 20));
    Some(FirstRun { memory_bytes_declared, ..first })
}

#[expect(clippy::cast_precision_loss, reason = "time limits are far below 2^53 seconds")]
fn seconds(count: u64) -> f64 {
    count as f64
}

fn waiting_jobs(planned: &BTreeSet<SlurmJobId>, sources: Sources<'_>) -> Vec<WaitingJob> {
    let scan = sources.scan;
    let jobs: Vec<&Job> =
        scan.jobs.values().filter(|job| is_waiting(job) && !planned.contains(&job.id)).collect();
    let jobs = order::ordered(jobs, sources);
    let mut turns = Turns { open_tasks: open_tasks(planned, scan), limits: Limits::of(scan) };
    let mut waiting = Vec::with_capacity(jobs.len());
    waiting.extend(jobs.into_iter().filter_map(|job| waiting_job(job, &mut turns, sources)));
    waiting
}

/// What lets some of several jobs through in one view, and not the others.
#[derive(Default)]
struct Turns<'a> {
    /// Tasks of each array that are about to start, or were let through, so that plans keep its throttle.
    open_tasks: BTreeMap<u32, usize>,
    limits: Limits<'a>,
}

/// Tasks that were planned and that Slurm does not count yet.
fn open_tasks(planned: &BTreeSet<SlurmJobId>, scan: &Scan) -> BTreeMap<u32, usize> {
    let mut open = BTreeMap::new();
    for id in planned.iter().filter(|id| id.task.is_some()) {
        if scan.jobs.get(id).is_some_and(|job| job.state == JobState::Pending) {
            *open.entry(id.id).or_default() += 1;
        }
    }
    open
}

fn waiting_job(job: &Job, turns: &mut Turns<'_>, sources: Sources<'_>) -> Option<WaitingJob> {
    let mark = mark_of(job)?;
    let cooling = sources.cooling.get(&job.id).is_some_and(|until| *until > sources.scan.at);
    let mut held = held_reason(job, sources.scan);
    if held.is_none() && cooling {
        held = Some("its last plan or start ended a moment ago".to_owned());
    }
    held = held.or_else(|| turns.limits.held(job));
    if let (None, Some(throttle), Some(_)) = (&held, job.array_throttle, job.id.task) {
        let open = turns.open_tasks.entry(job.id.id).or_default();
        *open += 1;
        if sources.scan.active_array_tasks(job.id.id) + *open > throttle as usize {
            held = Some(format!("its array runs at most {throttle} at once"));
        }
    }
    let workload = workload_of(job, mark);
    Some(WaitingJob {
        start: job.start(),
        uid: job.uid,
        account: job.account.clone(),
        partition: job.partition.clone(),
        use_beyond_fraction: sources.charged.beyond_fraction(job.uid, &workload),
        workload,
        submitted_at: job.submitted_at,
        starts_alone_at: job.eligible_at.unwrap_or(sources.scan.at),
        slowdown_ratio_max: promise_of(mark, sources.by_job.promise(job)),
        memory_bytes_declared: mark.memory_bytes(),
        may_run_out: sources.restarts_by_consent
            && mark.restart.is_given()
            && mark.again_lease_epoch.is_none()
            && !sources.steadfast.contains(&job.start()),
        solo_cap: mark.cap,
        owes_runs: sources.owed.get(&job.uid).copied().unwrap_or(0),
        isolation: mark.isolation,
        gpu_type: asked_gpu_type(&mark.original_gres),
        device_count: u8::try_from(mark.device_count()).unwrap_or(u8::MAX),
        node_count: mark.node_count(),
        fallback: mark.fallback.clone(),
        as_guest: mark.as_guest,
        rules: sources.by_job.rules(Some(job)),
        is_plain: mark.plain,
        cpus: cpus_of_one_node(job),
        memory_mib: job.memory_mib,
        features: job.features.split('&').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        excluded_nodes: job.excluded_nodes.clone(),
        time_limit_seconds: job.time_limit_seconds,
        duration_seconds_expected: None,
        held,
    })
}

/// Jobs on pinned devices now, with what was planned for them: the input of the invariants.
pub fn occupants(scan: &Scan, decisions: &[Decision]) -> Vec<pillion_core::invariant::Occupant> {
    let planned: BTreeMap<_, _> =
        active_members(decisions).map(|(decision, member)| (member.plan.start, (decision, member))).collect();
    scan.jobs
        .values()
        .filter(|job| matches!(job.state, JobState::Running | JobState::Suspended))
        .flat_map(|job| job.shards().map(move |shards| (job, shards)))
        .flat_map(|(job, pinned)| job.nodes.iter().map(move |node| (job, node, pinned.clone())))
        .filter_map(|(job, node, (gres_type, shards))| {
            // One that Slurm started by itself holds a whole device that only Slurm knows, whatever was planned for it.
            let gres_type: GresType = gres_type?;
            let decision = planned.get(&job.start());
            Some(pillion_core::invariant::Occupant {
                node: node.clone(),
                gres_type,
                job_id: job.id,
                uid: job.uid,
                shards,
                group: decision.map(|(decision, _)| decision.group.0),
                memory_bytes: decision.and_then(|(_, member)| member.plan.memory_bytes),
                instance: decision.and_then(|(_, member)| member.plan.sharing.mig_slot()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
