//! What the product's own planner makes of observed partitions, as decisions that are only recorded. Pure.

use super::standing::Place;
use super::view::{Ground, Pool, Seat, Work, gpu_types, is_manageable, pool, pool_of_one, seats};
use crate::device_status::Amiss;
use crate::job_rules::ByJob;
use crate::view::{Charged, Sources, cluster_view};
use pillion_core::share::Sharing;
use pillion_core::{JobStart, Revision, SlowdownRatio, SlurmJobId, UnixTime, UserId, WorkloadKey};
use pillion_pairing::{
    ClusterView, CopyBook, DeviceView, InterferenceModel, Member, Pairing, Plan, Policy, SpeedEstimate,
    Tenant, TenantInput, WaitingJob, plan,
};
use pillion_slurm::{Job, JobState};
use pillion_store::{NewMember, ObservedJob, ShadowDecision, ShadowNeighbour, StoredProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Starts that are given their own GPU in the books in one look: each is a plan of its own.
const ADOPTED_MAX: usize = 50;

/// What is the same for all plans of one look.
#[derive(Clone, Copy)]
pub(crate) struct Minds<'a> {
    pub(crate) profiles: &'a [StoredProfile],
    pub(crate) model: &'a dyn InterferenceModel,
    pub(crate) policy: &'a Policy,
    pub(crate) by_job: ByJob<'a>,
    pub(crate) alone_devices_max: u32,
    pub(crate) gpu_types: &'a BTreeMap<String, Vec<String>>,
}

/// What one look brought.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) decisions: Vec<ShadowDecision>,
    /// Of those that wait and were not decided on: a sentence each.
    pub(crate) reasons: BTreeMap<SlurmJobId, Arc<str>>,
}

/// Starts that run and of which nothing was decided: as the pool would have started each where Slurm has.
pub(crate) fn adopted(ground: &Ground<'_>, minds: &Minds<'_>) -> Vec<ShadowDecision> {
    let known: BTreeSet<JobStart> = ground.open.iter().map(ShadowDecision::start).collect();
    let new = ground.observed.jobs.iter().filter(|job| {
        job.ended_at.is_none() && !known.contains(&job.start) && !job.workload.as_str().is_empty()
    });
    new.filter_map(|observed| adopt(observed, ground, minds)).take(ADOPTED_MAX).collect()
}

fn adopt(observed: &ObservedJob, ground: &Ground<'_>, minds: &Minds<'_>) -> Option<ShadowDecision> {
    let [held] = &observed.devices[..] else { return None };
    let place = (held.node.clone(), held.gres_type.clone());
    let job = ground.standings.job(observed.start).filter(|job| job.state == JobState::Running)?;
    let work = Work {
        workload: observed.workload.clone(),
        node_count: u32::try_from(observed.nodes.len()).unwrap_or(u32::MAX),
    };
    // Slurm names its node once it runs, and not by its user's wish.
    let free = Job { required_nodes: Vec::new(), ..job.clone() };
    if !is_manageable(&free, &work) {
        return None;
    }
    let own: Vec<StoredProfile> =
        minds.profiles.iter().filter(|stored| stored.profile.workload == work.workload).cloned().collect();
    let view =
        view_of(&pool_of_one(&free, &work, &place, ground)?, &Minds { profiles: &own, ..*minds }, ground);
    let planned = plan(&view, minds.model, minds.policy);
    let pairing = planned.pairings.first()?;
    let member = pairing.members.first()?;
    Some(Scene { view: &view, minds, ground }.lone(pairing, member))
}

/// What the planner decides on the queue as it is.
pub(crate) fn decided(ground: &Ground<'_>, minds: &Minds<'_>) -> Decided {
    let view = view_of(&pool(ground), minds, ground);
    if view.waiting.is_empty() {
        return Decided::default();
    }
    let Plan { pairings, left_waiting, .. } = plan(&view, minds.model, minds.policy);
    let scene = Scene { view: &view, minds, ground };
    let seats = seats(ground);
    let mut decided = Decided::default();
    let waits = left_waiting.iter().map(|left| (left.job_id, would("it would wait", &left.text)));
    decided.reasons.extend(waits);
    for pairing in &pairings {
        // Who would start alone on a free GPU is about to by Slurm's own hand; then it is decided on.
        if pairing.joins.is_none() && pairing.members.len() < 2 {
            let alone = pairing.members.iter().map(|member| &member.explanation);
            let alone = alone.map(|one| (one.job_id, would("it would start alone", &one.text)));
            decided.reasons.extend(alone);
        } else {
            decided.decisions.extend(scene.shared(pairing, &seats).unwrap_or_default());
        }
    }
    decided
}

fn would(what: &str, why: &str) -> Arc<str> {
    if why.is_empty() { what.into() } else { format!("{what}: {why}").into() }
}

fn view_of(pool: &Pool, minds: &Minds<'_>, ground: &Ground<'_>) -> ClusterView {
    let gpu_types = gpu_types(minds.gpu_types, ground.observed, ground.agents);
    cluster_view(Sources {
        revision: Revision(0),
        scan: &pool.scan,
        decisions: &pool.decisions,
        agents: &pool.agents,
        stopped: &BTreeMap::new(),
        drains: &[],
        cooling: &BTreeMap::new(),
        profiles: minds.profiles,
        policy: minds.policy,
        by_job: minds.by_job,
        owed: &BTreeMap::new(),
        charged: &Charged::default(),
        amiss: &Amiss::default(),
        // Nobody joins a first run here: how steady one is, the samples of the pool's agents tell.
        first_runs: &BTreeMap::new(),
        idle_sessions: &BTreeSet::new(),
        alone_devices_max: minds.alone_devices_max,
        gpu_types: &gpu_types,
        room_asked: &BTreeMap::new(),
        steadfast: &BTreeSet::new(),
        watched: &BTreeMap::new(),
        restarts_by_consent: false,
        // Nobody runs there together, so nothing is measured of three: two share.
        copies: &CopyBook::default(),
        trials: None,
    })
}

/// A plan's decisions are told by what it was made from.
#[derive(Clone, Copy)]
struct Scene<'a> {
    view: &'a ClusterView,
    minds: &'a Minds<'a>,
    ground: &'a Ground<'a>,
}

/// One of those who would be on a device, as a model sees it, and what he was promised.
struct Present<'a> {
    workload: &'a WorkloadKey,
    sharing: Sharing,
    promise: SlowdownRatio,
}

impl Scene<'_> {
    fn waiting(&self, member: &Member) -> Option<&WaitingJob> {
        self.view.waiting.iter().find(|job| job.start == member.start)
    }

    fn device(&self, pairing: &Pairing) -> Option<&DeviceView> {
        let here = |device: &&DeviceView| {
            device.node == pairing.node && pairing.gres_types.contains(&device.gres_type)
        };
        self.view.devices.iter().find(here)
    }

    /// How long a workload was found to run alone there.
    fn solo_seconds(&self, workload: &WorkloadKey, model: &str) -> Option<f64> {
        self.view.profiles.get(workload, model).and_then(|profile| profile.duration_seconds)
    }

    /// A decision without anybody beside it.
    fn lone(&self, pairing: &Pairing, member: &Member) -> ShadowDecision {
        let (waiting, device) = (self.waiting(member), self.device(pairing));
        let job = self.ground.standings.job(member.start);
        let model = pairing.device_model.as_str();
        ShadowDecision {
            member: NewMember {
                start: member.start,
                uid: waiting.map_or(UserId(u32::MAX), |job| job.uid),
                workload: member.workload.clone(),
                role: member.role,
                sharing: member.sharing,
                shards: member.shards,
                memory_bytes: member.memory_bytes,
                slowdown_ratio_max: waiting.map_or(1.0, |job| job.slowdown_ratio_max.value()),
                estimate: member.estimate.clone(),
                solo_duration_seconds: self.solo_seconds(&member.workload, model),
                explanation: Some(member.explanation.clone()),
            },
            user: job.map(|job| job.user.to_string()).unwrap_or_default(),
            partition: job.map(|job| job.partition.to_string()).unwrap_or_default(),
            decided_at: self.ground.at,
            group: member.start,
            is_with_host: false,
            node: pairing.node.clone(),
            gres_type: pairing.gres_types.first().clone(),
            device_model: pairing.device_model.clone(),
            device_memory_bytes: device.map_or(0, |device| device.memory_bytes),
            beside: Vec::new(),
            gain: 0.0,
            gain_low: 0.0,
            broken_expected: 0.0,
            overlap_seconds_believed: None,
            time_limit_seconds: waiting.and_then(|job| job.time_limit_seconds),
        }
    }

    /// The decisions of a pairing of several: the host's, where it is one that waits, and the joiners'. `None`: what the planner knew of
    /// one of them is not there any more, and the next look is the retry.
    fn shared(&self, pairing: &Pairing, seats: &[Seat<'_>]) -> Option<Vec<ShadowDecision>> {
        let device = self.device(pairing)?;
        let place: Place = (pairing.node.clone(), pairing.gres_types.first().clone());
        let seated = seats.iter().find(|seat| seat.place == place).map(|seat| seat.decision.group);
        let group = seated.or_else(|| pairing.members.first().map(|host| host.start))?;
        let mut starts: Vec<JobStart> = Vec::new();
        let mut present: Vec<Present<'_>> = Vec::new();
        for tenant in &device.tenants {
            let seat = seats.iter().find(|seat| seat.decision.start().job_id == tenant.job_id)?;
            starts.push(seat.decision.start());
            present.push(tenant_present(tenant)?);
        }
        let mut decisions = Vec::new();
        for member in &pairing.members {
            let before = self.estimates(&present, &pairing.device_model)?;
            let promise = self.waiting(member)?.slowdown_ratio_max;
            present.push(Present { workload: &member.workload, sharing: member.sharing, promise });
            let lone = ShadowDecision { group, ..self.lone(pairing, member) };
            if present.len() == 1 {
                decisions.push(lone);
                starts.push(member.start);
                continue;
            }
            let now = self.estimates(&present, &pairing.device_model)?;
            let (own, others) = now.split_last()?;
            let beside = starts.iter().zip(others);
            let beside = beside.map(|(start, it)| ShadowNeighbour { start: *start, estimate: it.clone() });
            let broken = now.iter().zip(&present).map(|(it, one)| it.break_probability(one.promise));
            let beside: Vec<ShadowNeighbour> = beside.collect();
            let mut decision = ShadowDecision {
                is_with_host: device.tenants.is_empty(),
                gain: speeds(&now, false) - speeds(&before, false).max(1.0),
                gain_low: speeds(&now, true) - speeds(&before, false).max(1.0),
                broken_expected: broken.sum(),
                overlap_seconds_believed: self.overlap_believed(pairing, device, member, &now),
                beside,
                ..lone
            };
            // As predicted of all together: what the plan says of a member is of him alone.
            decision.member.estimate = Some(own.clone());
            decisions.push(decision);
            starts.push(member.start);
        }
        Some(decisions)
    }

    fn estimates(&self, present: &[Present<'_>], model: &str) -> Option<Vec<SpeedEstimate>> {
        if present.len() < 2 {
            return Some(Vec::new());
        }
        let tenants = present.iter().map(|one| {
            let profile = self.view.profiles.get(one.workload, model)?;
            Some(TenantInput { profile, sharing: one.sharing })
        });
        self.minds.model.predict(&tenants.collect::<Option<Vec<_>>>()?, model).ok()
    }

    /// How long a joiner is believed to be beside its host: until the first of the two ends, each slowed as predicted.
    fn overlap_believed(
        &self,
        pairing: &Pairing,
        device: &DeviceView,
        member: &Member,
        speeds: &[SpeedEstimate],
    ) -> Option<f64> {
        let model = pairing.device_model.as_str();
        let host_left = match device.tenants.first() {
            Some(host) => {
                let end: UnixTime = host.expected_end_at.or(host.time_limit_at)?;
                end.seconds_since(self.ground.at).max(0.0)
            }
            None => self.solo_seconds(&pairing.members.first()?.workload, model)?,
        };
        let own = self.solo_seconds(&member.workload, model)?;
        let [host_speed, own_speed] =
            [speeds.first()?, speeds.last()?].map(SpeedEstimate::lasting_speed_fraction);
        Some((host_left / host_speed).min(own / own_speed))
    }
}

fn tenant_present(tenant: &Tenant) -> Option<Present<'_>> {
    let workload = tenant.workload.as_ref()?;
    Some(Present { workload, sharing: tenant.sharing, promise: tenant.slowdown_ratio_max })
}

/// The sum of speeds, as expected or by the pessimistic bounds.
fn speeds(estimates: &[SpeedEstimate], is_low: bool) -> f64 {
    let one = |it: &SpeedEstimate| if is_low { it.speed_fraction_low } else { it.speed_fraction };
    estimates.iter().map(one).sum()
}
