//! One planning session: what is alike is looked at once. Jobs fall into classes, devices into kinds; estimates are kept
//! by profiles and caps, verdicts by classes and kind. Says what a sharing would be like; must not choose who gets what.

use crate::admit::{self, Owner};
use crate::caps::{self, CAP_GAIN_MIN, CapSlot, FAST_ENOUGH_FRACTION};
use crate::model::{InterferenceModel, SharedDevice, SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::policy::{Objective, Policy};
use crate::view::{ClusterView, DeviceView, NodeView, WaitingJob};
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{Fraction, NodeName, SlowdownRatio, WorkloadKey};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A lone tenant in a part of a card must lose no more than this, or it gets the whole card and cannot be joined.
const SPEED_ALONE_IN_PART_MIN: f64 = 0.95;
/// The mode of a card that is shared by two (DESIGN D7).
pub(crate) const CCS_MODE_SHARED: u8 = 2;

/// What a sharing would be like.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    /// For each tenant: those that run already, then those that start.
    pub(crate) caps: Vec<Option<Fraction>>,
    /// In the same order; empty where nothing could be said.
    pub(crate) estimates: Rc<Vec<SpeedEstimate>>,
    /// Sum of speeds less one, after.
    pub(crate) gain: f64,
    /// What the plan maximises: what is won against before.
    pub(crate) weight: f64,
    /// The rule that forbids it.
    pub(crate) excluded_by: Option<Reason>,
}

impl Verdict {
    fn excluded(reason: Reason) -> Self {
        Self { caps: Vec::new(), estimates: Rc::default(), gain: 0.0, weight: 0.0, excluded_by: Some(reason) }
    }
    pub(crate) fn is_admitted(&self) -> bool {
        self.excluded_by.is_none()
    }
}

/// A tenant of a sharing that is being looked at.
#[derive(Clone, Copy)]
struct Seat<'a> {
    profile: usize,
    memory_bytes: u64,
    promise: SlowdownRatio,
    owner: Owner<'a>,
    cap: CapSlot,
}

type PredictionKey = (usize, Option<u8>, Vec<(usize, u64)>);

/// See the module.
pub(crate) struct Session<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) model: &'a dyn InterferenceModel,
    pub(crate) policy: &'a Policy,
    /// The class of each waiting job, and one job of each class.
    pub(crate) class_of: Vec<usize>,
    pub(crate) classes: Vec<&'a WaitingJob>,
    /// The kind of each device, and one device of each kind.
    pub(crate) kind_of: Vec<usize>,
    kinds: Vec<&'a DeviceView>,
    /// The node of each device; `None` = not in the view, so that nothing is known of it.
    pub(crate) node_of: Vec<Option<usize>>,
    profiles: Vec<&'a WorkloadProfile>,
    profile_index: BTreeMap<(&'a WorkloadKey, &'a str), usize>,
    sharers: Vec<Result<(usize, u64), Reason>>,
    matches: Vec<bool>,
    predictions: RefCell<BTreeMap<PredictionKey, Option<Rc<Vec<SpeedEstimate>>>>>,
    pairs: RefCell<BTreeMap<(usize, usize, usize), Rc<Verdict>>>,
    joins: RefCell<BTreeMap<(usize, usize), Rc<Verdict>>>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(view: &'a ClusterView, model: &'a dyn InterferenceModel, policy: &'a Policy) -> Self {
        let (class_of, classes) = grouped(&view.waiting, class_key);
        let (kind_of, kinds) =
            grouped(&view.devices, |device| (&device.model, device.mechanism, device.memory_bytes));
        let nodes: BTreeMap<&NodeName, usize> =
            view.nodes.iter().enumerate().map(|(index, node)| (&node.name, index)).collect();
        let profiles: Vec<&WorkloadProfile> = view.profiles.iter().collect();
        let profile_index: BTreeMap<_, _> = profiles
            .iter()
            .enumerate()
            .map(|(index, profile)| ((&profile.workload, profile.device_model.as_str()), index))
            .collect();
        let sharer = |job: &WaitingJob, device: &DeviceView| {
            let index = profile_index.get(&(&job.workload, device.model.as_str())).copied();
            let memory = admit::may_share(job, index.map(|index| profiles[index]), device, policy)?;
            Ok((index.ok_or(Reason::UnknownWorkload)?, memory))
        };
        let sharers = classes.iter().flat_map(|job| kinds.iter().map(|device| sharer(job, device))).collect();
        let node_of: Vec<Option<usize>> =
            view.devices.iter().map(|device| nodes.get(&device.node).copied()).collect();
        let matching = |job: &WaitingJob, device: usize| {
            node_of[device]
                .is_some_and(|node| admit::matches_device(job, &view.nodes[node], &view.devices[device]))
        };
        let matches =
            classes.iter().flat_map(|job| (0..node_of.len()).map(|device| matching(job, device))).collect();
        Self {
            view,
            model,
            policy,
            matches,
            node_of,
            class_of,
            classes,
            kind_of,
            kinds,
            profiles,
            sharers,
            profile_index,
            predictions: RefCell::default(),
            pairs: RefCell::default(),
            joins: RefCell::default(),
        }
    }

    /// The node of a device that takes something now.
    pub(crate) fn open_node(&self, device: usize) -> Option<(usize, &'a NodeView)> {
        let node = self.node_of[device]?;
        let is_open = self.view.devices[device].blocked.is_none() && self.view.nodes[node].blocked.is_none();
        is_open.then(|| (node, &self.view.nodes[node]))
    }

    /// Whether jobs of this class can run on this device, whatever is free there.
    pub(crate) fn matches(&self, class: usize, device: usize) -> bool {
        self.matches[class * self.view.devices.len() + device]
    }

    /// Whether this class may share devices of this kind: its profile and the memory that it is admitted with.
    pub(crate) fn sharer(&self, class: usize, kind: usize) -> Result<(&'a WorkloadProfile, u64), Reason> {
        self.sharers[class * self.kinds.len() + kind]
            .map(|(profile, memory)| (self.profiles[profile], memory))
    }

    /// Two waiting jobs, by class, that start together. Looked at once for both orders.
    pub(crate) fn pair(&self, host: usize, guest: usize, kind: usize) -> Rc<Verdict> {
        if let Some(verdict) = self.pairs.borrow().get(&(host, guest, kind)) {
            return Rc::clone(verdict);
        }
        let (first, second) = (host.min(guest), host.max(guest));
        let straight = Rc::new(self.look_at_pair(first, second, kind).unwrap_or_else(Verdict::excluded));
        let mut turned = Verdict::clone(&straight);
        turned.caps.reverse();
        turned.estimates = Rc::new(straight.estimates.iter().rev().cloned().collect());
        let turned = Rc::new(turned);
        self.pairs.borrow_mut().insert((second, first, kind), Rc::clone(&turned));
        self.pairs.borrow_mut().insert((first, second, kind), Rc::clone(&straight));
        if host == first { straight } else { turned }
    }

    fn look_at_pair(&self, host: usize, guest: usize, kind: usize) -> Result<Verdict, Reason> {
        let seats = [self.waiting_seat(host, kind)?, self.waiting_seat(guest, kind)?];
        let device = self.kinds[kind];
        let mode = (device.mechanism == Mechanism::Ccs).then_some(CCS_MODE_SHARED);
        self.look_at(&seats, device, mode)
    }

    /// A waiting job, by class, that joins what runs on a device.
    pub(crate) fn join(&self, class: usize, device: usize) -> Rc<Verdict> {
        if let Some(verdict) = self.joins.borrow().get(&(class, device)) {
            return Rc::clone(verdict);
        }
        let verdict = Rc::new(self.look_at_join(class, device).unwrap_or_else(Verdict::excluded));
        self.joins.borrow_mut().insert((class, device), Rc::clone(&verdict));
        verdict
    }

    fn look_at_join(&self, class: usize, device: usize) -> Result<Verdict, Reason> {
        let host = &self.view.devices[device];
        admit::may_be_joined(host, self.policy)?;
        let mut seats = self.running_seats(device)?;
        seats.push(self.waiting_seat(class, self.kind_of[device])?);
        self.look_at(&seats, host, host.tenants.iter().find_map(|tenant| tenant.ccs_mode))
    }

    fn waiting_seat(&self, class: usize, kind: usize) -> Result<Seat<'a>, Reason> {
        let (profile, memory_bytes) = self.sharers[class * self.kinds.len() + kind]?;
        let job = self.classes[class];
        let promise = job.slowdown_ratio_max;
        Ok(Seat { profile, memory_bytes, promise, owner: job.into(), cap: CapSlot::Free })
    }

    fn running_seats(&self, device: usize) -> Result<Vec<Seat<'a>>, Reason> {
        let host = &self.view.devices[device];
        let seat = |tenant: &'a crate::view::Tenant| {
            let workload = tenant.workload.as_ref().ok_or(Reason::NotShareable)?;
            let profile = self.profile_index.get(&(workload, host.model.as_str())).copied();
            let profile = profile.ok_or(Reason::UnknownWorkload)?;
            let need = tenant.memory_bytes.or_else(|| admit::memory_need(None, self.profiles[profile]));
            Ok(Seat {
                profile,
                memory_bytes: need.ok_or(Reason::MemoryUnknown)?,
                promise: tenant.slowdown_ratio_max,
                owner: tenant.into(),
                cap: CapSlot::Fixed(tenant.cap_fraction),
            })
        };
        host.tenants.iter().map(seat).collect()
    }

    /// What tenants of a device would be like together; the last one is new. Every rule but those on the node and the
    /// order of service.
    fn look_at(&self, seats: &[Seat<'a>], device: &DeviceView, mode: Option<u8>) -> Result<Verdict, Reason> {
        let (guest, hosts) = seats.split_last().ok_or(Reason::NotShareable)?;
        if hosts.iter().any(|host| !admit::owners_may_share(self.policy, host.owner, guest.owner)) {
            return Err(Reason::UserPolicy);
        }
        let need = seats.iter().map(|seat| seat.memory_bytes).fold(0_u64, u64::saturating_add);
        if need > admit::memory_usable(device, self.policy) {
            return Err(Reason::MemoryDoesNotFit);
        }
        let slots: Vec<CapSlot> = seats.iter().map(|seat| seat.cap).collect();
        let without = caps::without_caps(&slots);
        let uncapped = self.verdict(seats, &without, device, mode)?;
        let is_fast =
            uncapped.estimates.iter().all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION);
        if device.mechanism != Mechanism::Mps || !self.policy.caps || (uncapped.is_admitted() && is_fast) {
            return Ok(uncapped);
        }
        let needed = if uncapped.is_admitted() { uncapped.weight + CAP_GAIN_MIN } else { 0.0 };
        let mut chosen = uncapped;
        for set in caps::cap_sets(&slots) {
            let capped = self.verdict(seats, &set, device, mode)?;
            let is_better = capped.weight > if chosen.caps == without { needed } else { chosen.weight };
            if capped.is_admitted() && is_better && self.neighbours_are_safe(seats, &set, device, mode) {
                chosen = capped;
            }
        }
        Ok(chosen)
    }

    /// A cap in the environment can be taken off by the job that has it, so what neighbours are promised must hold
    /// without it (DESIGN D6), unless all tenants are one user's.
    fn neighbours_are_safe(
        &self,
        seats: &[Seat<'a>],
        set: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> bool {
        if seats.windows(2).all(|pair| pair[0].owner.uid == pair[1].owner.uid) {
            return true;
        }
        (0..seats.len()).all(|own| {
            let only_own: Vec<Option<Fraction>> =
                set.iter().enumerate().map(|(index, cap)| cap.filter(|_| index == own)).collect();
            let estimates = self.predict(seats, &only_own, device, mode);
            estimates.is_ok_and(|estimates| admit::keeps_promise(&estimates[own], seats[own].promise))
        })
    }

    fn verdict(
        &self,
        seats: &[Seat<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Verdict, Reason> {
        let estimates = self.predict(seats, caps, device, mode)?;
        let sum: f64 = estimates.iter().map(|estimate| estimate.speed_fraction).sum();
        let before = if let [_, _] = seats { 1.0 } else { self.sum_before(seats, caps, device, mode)? };
        let keeps =
            |(estimate, seat): (&SpeedEstimate, &Seat<'_>)| admit::keeps_promise(estimate, seat.promise);
        let shared = SharedDevice { model: &device.model, mechanism: device.mechanism, ccs_mode: mode };
        let weight = self.weight(seats, caps, &estimates, shared) - (before - 1.0);
        let excluded_by = if !estimates.iter().zip(seats).all(keeps) {
            Some(Reason::PromiseAtRisk)
        } else if sum - before < self.policy.gain_min || weight <= 0.0 {
            Some(Reason::GainTooSmall)
        } else {
            None
        };
        Ok(Verdict { caps: caps.to_vec(), estimates, gain: sum - 1.0, weight, excluded_by })
    }

    /// The sum of speeds without the last tenant.
    fn sum_before(
        &self,
        seats: &[Seat<'a>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<f64, Reason> {
        let count = seats.len() - 1;
        let estimates = self.predict(&seats[..count], &caps[..count], device, mode)?;
        Ok(estimates.iter().map(|estimate| estimate.speed_fraction).sum())
    }

    /// What the site's objective makes of a sharing, in devices saved. Without known power, throughput counts.
    fn weight(
        &self,
        seats: &[Seat<'_>],
        caps: &[Option<Fraction>],
        estimates: &[SpeedEstimate],
        shared: SharedDevice<'_>,
    ) -> f64 {
        let gain = estimates.iter().map(|estimate| estimate.speed_fraction).sum::<f64>() - 1.0;
        let inputs = self.inputs(seats, caps);
        let alone: Option<Vec<f64>> = inputs.iter().map(|input| input.profile.power_watts_mean).collect();
        let (Some(alone), false) = (alone, self.policy.objective == Objective::Throughput) else {
            return gain;
        };
        let Some(together) = self.model.power_watts(&inputs, shared).filter(|watts| *watts > 0.0) else {
            return gain;
        };
        // What the same work would draw alone, one after the other, in the same time.
        let same_work: f64 = alone.iter().zip(estimates).map(|(watts, own)| watts * own.speed_fraction).sum();
        match self.policy.objective {
            Objective::Throughput => gain,
            Objective::Energy => 2.0 * (same_work - together) / (alone[0] + alone[alone.len() - 1]),
            Objective::ThroughputPerWatt => same_work / together - 1.0,
        }
    }

    fn inputs(&self, seats: &[Seat<'_>], caps: &[Option<Fraction>]) -> Vec<TenantInput<'a>> {
        let input = |(seat, cap): (&Seat<'_>, &Option<Fraction>)| TenantInput {
            profile: self.profiles[seat.profile],
            cap_fraction: *cap,
        };
        seats.iter().zip(caps).map(input).collect()
    }

    fn predict(
        &self,
        seats: &[Seat<'_>],
        caps: &[Option<Fraction>],
        device: &DeviceView,
        mode: Option<u8>,
    ) -> Result<Rc<Vec<SpeedEstimate>>, Reason> {
        let kind = self
            .kinds
            .iter()
            .position(|kind| kind.model == device.model && kind.mechanism == device.mechanism);
        let tenant = |(seat, cap): (&Seat<'_>, &Option<Fraction>)| {
            (seat.profile, cap.map_or(f64::MAX, Fraction::value).to_bits())
        };
        let key = (kind.unwrap_or(0), mode, seats.iter().zip(caps).map(tenant).collect());
        if let Some(known) = self.predictions.borrow().get(&key) {
            return known.clone().ok_or(Reason::UnknownWorkload);
        }
        let shared = SharedDevice { model: &device.model, mechanism: device.mechanism, ccs_mode: mode };
        let estimates = self.model.predict(&self.inputs(seats, caps), shared).ok().map(Rc::new);
        self.predictions.borrow_mut().insert(key, estimates.clone());
        estimates.ok_or(Reason::UnknownWorkload)
    }

    /// Whether a job that starts alone may be joined later without being slower for it meanwhile.
    pub(crate) fn may_host(&self, class: usize, kind: usize) -> Result<(), Reason> {
        let seat = self.waiting_seat(class, kind)?;
        let device = self.kinds[kind];
        if device.mechanism != Mechanism::Ccs {
            return Ok(());
        }
        let estimates = self.predict(&[seat], &[None], device, Some(CCS_MODE_SHARED))?;
        let suffices = estimates[0].speed_fraction >= SPEED_ALONE_IN_PART_MIN
            && admit::keeps_promise(&estimates[0], seat.promise);
        if suffices { Ok(()) } else { Err(Reason::PromiseAtRisk) }
    }
}

/// Numbers what is equal by `key`: the group of each item, and the first item of each group.
fn grouped<'a, T, K: Ord>(items: &'a [T], key: impl Fn(&'a T) -> K) -> (Vec<usize>, Vec<&'a T>) {
    let mut groups: BTreeMap<K, usize> = BTreeMap::new();
    let mut firsts = Vec::new();
    let group_of = items
        .iter()
        .map(|item| {
            *groups.entry(key(item)).or_insert_with(|| {
                firsts.push(item);
                firsts.len() - 1
            })
        })
        .collect();
    (group_of, firsts)
}

/// Everything about a job that a plan looks at, but its place in the queue.
fn class_key(job: &WaitingJob) -> impl Ord + '_ {
    let promise = job.slowdown_ratio_max.value().to_bits();
    let who = (&job.workload, job.uid, &job.account, promise, job.memory_bytes_declared);
    let place = (&job.partition, &job.gpu_type, &job.features, &job.excluded_nodes);
    (who, place, job.cpus, job.memory_mib, job.time_limit_seconds)
}
