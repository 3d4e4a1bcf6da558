//! One planning session: what is alike is looked at once. Jobs fall into classes, devices into kinds; estimates are kept
//! by profiles and caps, verdicts by classes and kind. Says what a sharing would be like; must not choose who gets what.

mod glance;
mod mode;
mod verdict;

use glance::Foreseen;
pub(crate) use glance::{Couple, Glance};
pub(crate) use verdict::Verdict;

use crate::admit::{self, Owner};
use crate::caps::{self, CAP_GAIN_MIN, CapSlot, FAST_ENOUGH_FRACTION};
use crate::model::{InterferenceModel, SpeedEstimate};
use crate::places::{self, Places, grouped};
use crate::plan::Reason;
use crate::policy::Policy;
use crate::view::{ClusterView, DeviceView, NodeView, WaitingJob};
use crate::worth::{self, TypicalRun};
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{Fraction, NodeName, SlowdownRatio, WorkloadKey};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::rc::Rc;

/// A lone tenant in a part of a card must lose no more than this, or it gets the whole card and cannot be joined.
const SPEED_ALONE_IN_PART_MIN: f64 = 0.95;
/// Where no more ways of sharing than this are possible, all of them are looked at closely.
const CLOSE_LOOKS_MAX: usize = 4000;
/// The mode of a card that two share, and of one on which a job starts that may be joined
/// (docs/principles.md#order-of-service).
pub(crate) const CCS_MODE_SHARED: u8 = 2;

/// A tenant of a sharing that is being looked at.
#[derive(Clone, Copy)]
struct Seat<'a> {
    profile: usize,
    memory_bytes: u64,
    promise: SlowdownRatio,
    owner: Owner<'a>,
    cap: CapSlot,
    /// How long it would still run alone, in typical runs.
    runs: f64,
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
    typical: TypicalRun,
    profile_index: FxHashMap<(&'a WorkloadKey, &'a str), usize>,
    sharers: Vec<Result<(usize, u64), Reason>>,
    /// How many of each class could start now.
    startable_count: Vec<usize>,
    /// Whether jobs would be left over if two shared every free device.
    is_crowded: bool,
    pub(crate) places: Places,
    /// For each device the first on which the same runs; itself where nothing runs.
    pub(crate) alike: Vec<usize>,
    /// Whether there are so few ways of sharing that all are looked at closely.
    pub(crate) is_thorough: bool,
    /// What jobs of each class want of a node: an index into `demands`, CPUs and MiB.
    pub(crate) demand_of: Vec<usize>,
    pub(crate) demands: Vec<(u32, u64)>,
    predictions: RefCell<FxHashMap<PredictionKey, Option<Rc<Vec<SpeedEstimate>>>>>,
    pairs: RefCell<FxHashMap<(usize, usize, usize), Rc<Verdict>>>,
    joins: RefCell<FxHashMap<(usize, usize), Rc<Verdict>>>,
    foreseen: RefCell<Foreseen>,
    /// By kind, who fits in a quarter of a card.
    quarter_guests: RefCell<FxHashMap<usize, Rc<[usize]>>>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(view: &'a ClusterView, model: &'a dyn InterferenceModel, policy: &'a Policy) -> Self {
        let (class_of, classes) = grouped(&view.waiting, class_key);
        let (kind_of, kinds) =
            grouped(&view.devices, |device| (&device.model, device.mechanism, device.memory_bytes));
        let nodes: BTreeMap<&NodeName, usize> =
            view.nodes.iter().enumerate().map(|(index, node)| (&node.name, index)).collect();
        let profiles: Vec<&WorkloadProfile> = view.profiles.iter().collect();
        let profile_index: FxHashMap<_, _> = profiles
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
        let host_count = view.devices.iter().filter(|device| !device.tenants.is_empty()).count();
        let way_count = classes.len() * (classes.len() * kinds.len() / 2 + host_count);
        let places = Places::new(view, &classes, &kind_of, &node_of);
        let mut startable_count = vec![0; classes.len()];
        for (job, class) in view.waiting.iter().zip(&class_of) {
            startable_count[*class] += usize::from(job.held.is_none());
        }
        let free_count = view.devices.iter().filter(|device| device.tenants.is_empty()).count();
        let (demand_of, demanding) = grouped(&classes, |job| (job.cpus, job.memory_mib));
        Self {
            view,
            model,
            policy,
            alike: places::alike_hosts(view, policy, &places.of_device),
            places,
            is_thorough: way_count <= CLOSE_LOOKS_MAX,
            demands: demanding.iter().map(|job| (job.cpus, job.memory_mib)).collect(),
            demand_of,
            node_of,
            class_of,
            classes,
            kind_of,
            kinds,
            typical: worth::typical_run(view),
            profiles,
            sharers,
            profile_index,
            is_crowded: startable_count.iter().sum::<usize>() > 2 * free_count,
            startable_count,
            predictions: RefCell::default(),
            pairs: RefCell::default(),
            joins: RefCell::default(),
            foreseen: RefCell::default(),
            quarter_guests: RefCell::default(),
        }
    }

    /// The node of a device that takes something now.
    pub(crate) fn open_node(&self, device: usize) -> Option<(usize, &'a NodeView)> {
        let node = self.node_of[device]?;
        let is_open = self.view.devices[device].blocked.is_none() && self.view.nodes[node].blocked.is_none();
        is_open.then(|| (node, &self.view.nodes[node]))
    }

    /// Why a device takes nothing now: its node's reason goes before its own.
    pub(crate) fn closed_by(&self, device: usize) -> Option<&'a str> {
        let node = self.node_of[device].and_then(|node| self.view.nodes[node].blocked.as_deref());
        node.or(self.view.devices[device].blocked.as_deref())
    }

    /// Whether jobs of this class can run on this device, whatever is free there.
    pub(crate) fn matches(&self, class: usize, device: usize) -> bool {
        self.places.matches(class, self.places.of_device[device])
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
        self.in_best_mode([host, guest], seats, kind)
    }

    /// A waiting job, by class, that joins what runs on a device.
    pub(crate) fn join(&self, class: usize, device: usize) -> Rc<Verdict> {
        let device = self.alike[device];
        if let Some(verdict) = self.joins.borrow().get(&(class, device)) {
            return Rc::clone(verdict);
        }
        let verdict = Rc::new(self.look_at_join(class, device).unwrap_or_else(Verdict::excluded));
        self.joins.borrow_mut().insert((class, device), Rc::clone(&verdict));
        verdict
    }

    fn look_at_join(&self, class: usize, device: usize) -> Result<Verdict, Reason> {
        let host = &self.view.devices[device];
        let seats = self.seats_with(class, device)?;
        self.look_at(&seats, host, host.tenants.iter().find_map(|tenant| tenant.ccs_mode))
    }

    /// What two waiting jobs would be like, to be told: without caps where nobody looked closer, and that costs too much.
    pub(crate) fn shown_pair(&self, host: usize, guest: usize, kind: usize) -> Rc<Verdict> {
        let is_known = self.pairs.borrow().contains_key(&(host, guest, kind));
        if is_known || !self.glances_at(self.kinds[kind]) {
            return self.pair(host, guest, kind);
        }
        let seats = || Ok([self.waiting_seat(host, kind)?, self.waiting_seat(guest, kind)?]);
        let verdict = seats().and_then(|seats| self.without_caps(&seats, self.kinds[kind]));
        Rc::new(verdict.unwrap_or_else(Verdict::excluded))
    }

    /// Likewise what a job would be like beside what runs on a device.
    pub(crate) fn shown_join(&self, class: usize, device: usize) -> Rc<Verdict> {
        let device = self.alike[device];
        let host = &self.view.devices[device];
        let is_known = self.joins.borrow().contains_key(&(class, device));
        if is_known || !self.glances_at(host) {
            return self.join(class, device);
        }
        let verdict = self.seats_with(class, device).and_then(|seats| self.without_caps(&seats, host));
        Rc::new(verdict.unwrap_or_else(Verdict::excluded))
    }

    /// What runs on a device, and last a job that joins it.
    fn seats_with(&self, class: usize, device: usize) -> Result<Vec<Seat<'a>>, Reason> {
        admit::may_be_joined(&self.view.devices[device], self.policy)?;
        let mut seats = self.running_seats(device)?;
        seats.push(self.waiting_seat(class, self.kind_of[device])?);
        Ok(seats)
    }

    fn without_caps(&self, seats: &[Seat<'a>], device: &DeviceView) -> Result<Verdict, Reason> {
        self.may_meet(seats, device)?;
        let slots: Vec<CapSlot> = seats.iter().map(|seat| seat.cap).collect();
        self.verdict(seats, &caps::without_caps(&slots), device, None)
    }

    /// Every sharing of two waiting jobs that was looked at, by class (host, guest) and kind, in one of both orders.
    pub(crate) fn pairs_looked_at(&self) -> Vec<((usize, usize, usize), Rc<Verdict>)> {
        let pairs = self.pairs.borrow();
        let once = pairs.iter().filter(|((host, guest, _), _)| host <= guest);
        let mut all: Vec<_> = once.map(|(key, verdict)| (*key, Rc::clone(verdict))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Every sharing of a class with what runs on a device that was looked at.
    pub(crate) fn joins_looked_at(&self) -> Vec<((usize, usize), Rc<Verdict>)> {
        let joins = self.joins.borrow();
        let mut all: Vec<_> = joins.iter().map(|(key, verdict)| (*key, Rc::clone(verdict))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn waiting_seat(&self, class: usize, kind: usize) -> Result<Seat<'a>, Reason> {
        let (profile, memory_bytes) = self.sharers[class * self.kinds.len() + kind]?;
        let job = self.classes[class];
        let promise = job.slowdown_ratio_max;
        let known = self.profiles[profile].duration_seconds;
        let runs = self.typical.of(job.duration_seconds_expected.or(known));
        Ok(Seat { profile, memory_bytes, promise, owner: job.into(), cap: CapSlot::Free, runs })
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
                runs: self.typical.of(worth::remaining_seconds(tenant, self.view.taken_at)),
            })
        };
        host.tenants.iter().map(seat).collect()
    }

    /// The rules that need no estimate.
    fn may_meet(&self, seats: &[Seat<'a>], device: &DeviceView) -> Result<(), Reason> {
        let (guest, hosts) = seats.split_last().ok_or(Reason::NotShareable)?;
        if hosts.iter().any(|host| !admit::owners_may_share(self.policy, host.owner, guest.owner)) {
            return Err(Reason::UserPolicy);
        }
        let need = seats.iter().map(|seat| seat.memory_bytes).fold(0_u64, u64::saturating_add);
        if need > admit::memory_usable(device, self.policy) {
            return Err(Reason::MemoryDoesNotFit);
        }
        Ok(())
    }

    /// What tenants of a device would be like together; the last one is new. Every rule but those on the node and the
    /// order of service.
    fn look_at(&self, seats: &[Seat<'a>], device: &DeviceView, mode: Option<u8>) -> Result<Verdict, Reason> {
        self.may_meet(seats, device)?;
        let mut untried = self.sets_of_caps(seats, device).into_iter();
        let first = untried.next().ok_or(Reason::NotAllowed)?;
        let is_capped = |set: &[Option<Fraction>]| {
            let is_new =
                |(seat, cap): (&Seat<'_>, &Option<Fraction>)| seat.cap == CapSlot::Free && cap.is_some();
            seats.iter().zip(set).any(is_new)
        };
        let mut chosen = self.verdict(seats, &first, device, mode)?;
        if is_capped(&first) && !self.neighbours_are_safe(seats, &first, device, mode) {
            chosen.excluded_by = chosen.excluded_by.or(Some(Reason::PromiseAtRisk));
        }
        let is_fast = chosen.estimates.iter().all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION);
        if chosen.is_admitted() && is_fast {
            return Ok(chosen);
        }
        for set in untried {
            let other = self.verdict(seats, &set, device, mode)?;
            let least = match chosen.is_admitted() {
                true if !is_capped(&chosen.caps) => chosen.value() + CAP_GAIN_MIN,
                true => chosen.value(),
                false => f64::NEG_INFINITY,
            };
            let is_better = other.is_admitted() && other.value() > least;
            if is_better && self.neighbours_are_safe(seats, &set, device, mode) {
                chosen = other;
            }
        }
        Ok(chosen)
    }

    /// The sets of caps that are looked at, no caps first where that is allowed.
    fn sets_of_caps(&self, seats: &[Seat<'a>], device: &DeviceView) -> Vec<Vec<Option<Fraction>>> {
        let slots: Vec<CapSlot> = seats.iter().map(|seat| seat.cap).collect();
        let may_cap = device.mechanism == Mechanism::Mps && self.policy.caps;
        if let Some(allowed) = &self.policy.allowed {
            let workloads: Vec<&WorkloadKey> =
                seats.iter().map(|seat| &self.profiles[seat.profile].workload).collect();
            return caps::allowed_sets(&slots, &workloads, allowed, may_cap);
        }
        let mut all = vec![caps::without_caps(&slots)];
        if may_cap {
            all.extend(caps::cap_sets(&slots));
        }
        all
    }

    /// A cap in the environment can be taken off by the job that has it, so what neighbours are promised must hold
    /// without it (docs/principles.md#caps), unless all tenants are one user's.
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

/// Everything about a job that a plan looks at, but its place in the queue.
fn class_key(job: &WaitingJob) -> impl Hash + Eq + '_ {
    let promise = job.slowdown_ratio_max.value().to_bits();
    let sharing = (promise, job.memory_bytes_declared, job.solo_cap, job.owes_runs > 0);
    let who = (&job.workload, job.uid, &job.account, sharing);
    let place = (&job.partition, &job.gpu_type, &job.features, &job.excluded_nodes);
    // Durations in steps of a twentieth: closer they are guesses.
    let duration = job.duration_seconds_expected.map(worth::duration_step);
    (who, place, job.cpus, job.memory_mib, job.time_limit_seconds, duration)
}
