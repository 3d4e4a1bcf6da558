//! Step 2: which jobs could share a device, and what that would be like: speeds under the caps that suit them best, what it
//! gains and risks, or the rule that forbids it. Estimates are kept by profiles and caps, verdicts by classes and kind.

pub(crate) mod candidate_set;
pub(crate) mod caps;
mod ccs_mode;
mod glance;
mod verdict;
pub(crate) mod worth;

pub(crate) use glance::{Couple, Foreseen, Glance};
pub(crate) use verdict::Verdict;

use crate::plan::Reason;
use crate::planner::admit::{self, Owner};
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::view::{DeviceView, Tenant};
use caps::{CAP_GAIN_MIN, CapSlot, FAST_ENOUGH_FRACTION};
use pillion_core::{Fraction, SlowdownRatio, WorkloadKey};
use std::rc::Rc;

/// A lone tenant in a part of a card must lose no more than this, or it gets the whole card and cannot be joined.
const SPEED_ALONE_IN_PART_MIN: f64 = 0.95;
/// The mode of a card that two share, and of one on which a job starts that may be joined
/// (docs/principles.md#order-of-service).
pub(crate) const CCS_MODE_SHARED: u8 = 2;

/// A tenant of a sharing that is being looked at.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    profile: ProfileIndex,
    memory_bytes: u64,
    promise: SlowdownRatio,
    owner: Owner<'a>,
    cap: CapSlot,
    /// How long it would still run alone, in typical runs.
    runs: f64,
}

impl<'a> PlanContext<'a> {
    /// Two waiting jobs, by class, that start together. Looked at once for both orders.
    pub(crate) fn pair(&self, host: ClassIndex, guest: ClassIndex, kind: KindIndex) -> Rc<Verdict> {
        if let Some(verdict) = self.found.pairs.borrow().get(&(host, guest, kind)) {
            return Rc::clone(verdict);
        }
        let (first, second) = (host.min(guest), host.max(guest));
        let straight = Rc::new(self.look_at_pair(first, second, kind).unwrap_or_else(Verdict::excluded));
        let mut turned = Verdict::clone(&straight);
        turned.caps.reverse();
        turned.estimates = Rc::new(straight.estimates.iter().rev().cloned().collect());
        let turned = Rc::new(turned);
        self.found.pairs.borrow_mut().insert((second, first, kind), Rc::clone(&turned));
        self.found.pairs.borrow_mut().insert((first, second, kind), Rc::clone(&straight));
        if host == first { straight } else { turned }
    }

    fn look_at_pair(&self, host: ClassIndex, guest: ClassIndex, kind: KindIndex) -> Result<Verdict, Reason> {
        self.in_best_mode([host, guest], self.pair_seats(host, guest, kind)?, kind)
    }

    /// A waiting job, by class, that joins what runs on a device.
    pub(crate) fn join(&self, class: ClassIndex, device: DeviceIndex) -> Rc<Verdict> {
        let device = self.alike[device];
        if let Some(verdict) = self.found.joins.borrow().get(&(class, device)) {
            return Rc::clone(verdict);
        }
        let verdict = Rc::new(self.look_at_join(class, device).unwrap_or_else(Verdict::excluded));
        self.found.joins.borrow_mut().insert((class, device), Rc::clone(&verdict));
        verdict
    }

    fn look_at_join(&self, class: ClassIndex, device: DeviceIndex) -> Result<Verdict, Reason> {
        let host = &self.devices[device];
        let seats = self.seats_with(class, device)?;
        self.look_at(&seats, host, host.tenants.iter().find_map(|tenant| tenant.sharing.ccs_mode()))
    }

    /// What two waiting jobs would be like, to be told: without caps where nobody looked closer, and that costs too much.
    pub(crate) fn shown_pair(&self, host: ClassIndex, guest: ClassIndex, kind: KindIndex) -> Rc<Verdict> {
        let is_known = self.found.pairs.borrow().contains_key(&(host, guest, kind));
        if is_known || !self.glances_at(self.kinds[kind]) {
            return self.pair(host, guest, kind);
        }
        let seats = self.pair_seats(host, guest, kind);
        let verdict = seats.and_then(|seats| self.without_caps(&seats, self.kinds[kind]));
        Rc::new(verdict.unwrap_or_else(Verdict::excluded))
    }

    /// Likewise what a job would be like beside what runs on a device.
    pub(crate) fn shown_join(&self, class: ClassIndex, device: DeviceIndex) -> Rc<Verdict> {
        let device = self.alike[device];
        let host = &self.devices[device];
        let is_known = self.found.joins.borrow().contains_key(&(class, device));
        if is_known || !self.glances_at(host) {
            return self.join(class, device);
        }
        let verdict = self.seats_with(class, device).and_then(|seats| self.without_caps(&seats, host));
        Rc::new(verdict.unwrap_or_else(Verdict::excluded))
    }

    /// What runs on a device, and last a job that joins it.
    fn seats_with(&self, class: ClassIndex, device: DeviceIndex) -> Result<Vec<Seat<'a>>, Reason> {
        admit::may_be_joined(&self.devices[device], self.policy)?;
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
    pub(crate) fn pairs_looked_at(&self) -> Vec<((ClassIndex, ClassIndex, KindIndex), Rc<Verdict>)> {
        let pairs = self.found.pairs.borrow();
        let once = pairs.iter().filter(|((host, guest, _), _)| host <= guest);
        let mut all: Vec<_> = once.map(|(key, verdict)| (*key, Rc::clone(verdict))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Every sharing of a class with what runs on a device that was looked at.
    pub(crate) fn joins_looked_at(&self) -> Vec<((ClassIndex, DeviceIndex), Rc<Verdict>)> {
        let joins = self.found.joins.borrow();
        let mut all: Vec<_> = joins.iter().map(|(key, verdict)| (*key, Rc::clone(verdict))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    fn pair_seats(
        &self,
        host: ClassIndex,
        guest: ClassIndex,
        kind: KindIndex,
    ) -> Result<[Seat<'a>; 2], Reason> {
        Ok([self.waiting_seat(host, kind)?, self.waiting_seat(guest, kind)?])
    }

    fn waiting_seat(&self, class: ClassIndex, kind: KindIndex) -> Result<Seat<'a>, Reason> {
        let (profile, memory_bytes) = self.sharers[class][kind]?;
        let job = self.classes[class];
        let promise = job.slowdown_ratio_max;
        let known = self.profiles[profile].duration_seconds;
        let runs = self.typical.of(job.duration_seconds_expected.or(known));
        Ok(Seat { profile, memory_bytes, promise, owner: job.into(), cap: CapSlot::Free, runs })
    }

    fn running_seats(&self, device: DeviceIndex) -> Result<Vec<Seat<'a>>, Reason> {
        let host = &self.devices[device];
        host.tenants.iter().map(|tenant| self.running_seat(tenant, host)).collect()
    }

    fn running_seat(&self, tenant: &'a Tenant, device: &'a DeviceView) -> Result<Seat<'a>, Reason> {
        let workload = tenant.workload.as_ref().ok_or(Reason::NotShareable)?;
        let profile = self.profile_index.get(&(workload, device.model.as_str())).copied();
        let profile = profile.ok_or(Reason::UnknownWorkload)?;
        let need = tenant.memory_bytes.or_else(|| admit::memory_need(None, self.profiles[profile]));
        Ok(Seat {
            profile,
            memory_bytes: need.ok_or(Reason::MemoryUnknown)?,
            promise: tenant.slowdown_ratio_max,
            owner: tenant.into(),
            cap: CapSlot::Fixed(tenant.sharing.cap()),
            runs: self.typical.of(worth::remaining_seconds(tenant, self.view.taken_at)),
        })
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
    /// order of placement.
    fn look_at(&self, seats: &[Seat<'a>], device: &DeviceView, mode: Option<u8>) -> Result<Verdict, Reason> {
        self.may_meet(seats, device)?;
        let mut untried = self.sets_of_caps(seats, device).into_iter();
        let first = untried.next().ok_or(Reason::NotAllowed)?;
        let mut chosen = self.verdict(seats, &first, device, mode)?;
        if sets_a_cap(seats, &first) && !self.neighbours_are_safe(seats, &first, device, mode) {
            chosen.excluded_by = chosen.excluded_by.or(Some(Reason::PromiseAtRisk));
        }
        let is_fast = chosen.estimates.iter().all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION);
        if chosen.is_admitted() && is_fast {
            return Ok(chosen);
        }
        for set in untried {
            let other = self.verdict(seats, &set, device, mode)?;
            let least = match chosen.is_admitted() {
                true if !sets_a_cap(seats, &chosen.caps) => chosen.value() + CAP_GAIN_MIN,
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
        let may_cap = device.mechanism.can_cap() && self.policy.caps;
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
    pub(crate) fn may_host(&self, class: ClassIndex, kind: KindIndex) -> Result<(), Reason> {
        let seat = self.waiting_seat(class, kind)?;
        let device = self.kinds[kind];
        if !device.mechanism.has_modes() {
            return Ok(());
        }
        let estimates = self.predict(&[seat], &[None], device, Some(CCS_MODE_SHARED))?;
        let suffices = estimates[0].speed_fraction >= SPEED_ALONE_IN_PART_MIN
            && admit::keeps_promise(&estimates[0], seat.promise);
        if suffices { Ok(()) } else { Err(Reason::PromiseAtRisk) }
    }
}

/// Whether a tenant that may be capped is: those that run already keep what they have.
fn sets_a_cap(seats: &[Seat<'_>], set: &[Option<Fraction>]) -> bool {
    seats.iter().zip(set).any(|(seat, cap)| seat.cap == CapSlot::Free && cap.is_some())
}
