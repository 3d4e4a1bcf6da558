//! What a sharing is worth at the price of one estimate, without caps, where a closer look would cost many. What two are
//! like depends on their profiles alone, whichever of them runs already: it is foreseen once for all that could meet.

use super::caps::{CapSlot, FAST_ENOUGH_FRACTION};
use super::{Seat, Verdict};
use crate::model::{SpeedEstimate, TenantInput};
use crate::plan::Reason;
use crate::planner::classes::{Found, PlanContext};
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, ProfileIndex};
use crate::view::DeviceView;
use pillion_core::share::Sharing;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// What caps win at most, in speed, of all but one pair in ten that were measured (KACE: 0.29 beside no caps).
const CAPS_WIN_MAX: f64 = 0.3;

/// What is known of a sharing after one look or another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Glance {
    /// What it is worth; absent = it is not allowed, as far as was looked.
    pub(crate) weight: Option<f64>,
    /// How many of its tenants are expected to run slower than promised.
    pub(crate) risk: f64,
    /// What it could turn out to be worth at a closer look; absent = what is known is final.
    pub(crate) hope: Option<f64>,
}

impl Glance {
    const NOTHING: Self = Self { weight: None, risk: 0.0, hope: None };

    /// After the closest look.
    pub(crate) fn of(verdict: &Verdict) -> Self {
        Self { weight: verdict.is_admitted().then_some(verdict.weight), risk: verdict.risk, hope: None }
    }
}

/// Two without caps: the kind of device, and their profiles, the lower first.
pub(crate) type Couple = (KindIndex, ProfileIndex, ProfileIndex);

/// How fast two are without caps, in the order of their profiles; absent = nothing can be said. Terms are left out: there
/// may be a hundred thousand of them.
pub(crate) type Foreseen = Arc<FxHashMap<Couple, Option<[SpeedEstimate; 2]>>>;

impl<'a> PlanContext<'a> {
    /// How to make another that knows what was foreseen, on another thread: what a context remembers besides is its own.
    pub(crate) fn aside(&self) -> impl Fn() -> PlanContext<'a> + Sync + use<'a> {
        let (view, model, policy) = (self.view, self.model, self.policy);
        let foreseen = Arc::clone(&self.found.foreseen.borrow());
        move || {
            let found = Found { foreseen: RefCell::new(Arc::clone(&foreseen)), ..Found::default() };
            PlanContext { found, ..PlanContext::new(view, model, policy) }
        }
    }

    /// Whether it was asked what these are like.
    pub(crate) fn has_foreseen(&self, couple: &Couple) -> bool {
        self.found.foreseen.borrow().contains_key(couple)
    }

    /// From now on this is known too.
    pub(crate) fn remember(&self, answers: impl Iterator<Item = (Couple, Option<[SpeedEstimate; 2]>)>) {
        Arc::make_mut(&mut self.found.foreseen.borrow_mut()).extend(answers);
    }

    /// The two waiting jobs, by class, of whom a glance would ask.
    pub(crate) fn couple_of_pair(
        &self,
        host: ClassIndex,
        guest: ClassIndex,
        kind: KindIndex,
    ) -> Option<Couple> {
        let device = Some(self.kinds[kind]).filter(|device| self.glances_at(device))?;
        self.couple(&self.pair_seats(host, guest, kind).ok()?, device)
    }

    /// The job, by class, and the one that runs on a device.
    pub(crate) fn couple_of_join(&self, class: ClassIndex, device: DeviceIndex) -> Option<Couple> {
        let host = Some(&self.devices[device]).filter(|host| self.glances_at(host))?;
        self.couple(&self.seats_with(class, device).ok()?, host)
    }

    fn couple(&self, seats: &[Seat<'a>], device: &DeviceView) -> Option<Couple> {
        let [one, other] = seats else { return None };
        let is_plain =
            [one, other].iter().all(|seat| matches!(seat.cap, CapSlot::Free | CapSlot::Fixed(None)));
        let (lower, higher) = (one.profile.min(other.profile), one.profile.max(other.profile));
        is_plain.then(|| (self.model_of(device), lower, higher))
    }

    /// What two are like.
    pub(crate) fn foresee(&self, (kind, lower, higher): Couple) -> Option<[SpeedEstimate; 2]> {
        let device = self.kinds[kind];
        let sharing = Sharing::by(device.mechanism, None, None);
        let inputs = [lower, higher].map(|profile| TenantInput { profile: self.profiles[profile], sharing });
        let estimates = self.model.predict(&inputs, &device.model).ok()?;
        let without_terms =
            estimates.into_iter().map(|estimate| SpeedEstimate { terms: Arc::default(), ..estimate });
        without_terms.collect::<Vec<_>>().try_into().ok()
    }

    /// Two waiting jobs, by class, at the price of one estimate where a closer look would cost many.
    pub(crate) fn glance_at_pair(&self, host: ClassIndex, guest: ClassIndex, kind: KindIndex) -> Glance {
        let device = self.kinds[kind];
        if !self.glances_at(device) {
            return Glance::of(&self.pair(host, guest, kind));
        }
        let seats = self.pair_seats(host, guest, kind);
        seats.and_then(|seats| self.glance(&seats, device)).unwrap_or(Glance::NOTHING)
    }

    /// A job, by class, that joins what runs on a device, likewise.
    pub(crate) fn glance_at_join(&self, class: ClassIndex, device: DeviceIndex) -> Glance {
        let host = &self.devices[device];
        if !self.glances_at(host) {
            return Glance::of(&self.join(class, device));
        }
        let glance = self.seats_with(class, device).and_then(|seats| self.glance(&seats, host));
        glance.unwrap_or(Glance::NOTHING)
    }

    /// Whether sharings on it are glanced at first: not where they are few, where a list says which caps may be tried, or
    /// where a card has modes.
    pub(super) fn glances_at(&self, device: &DeviceView) -> bool {
        !self.is_thorough && self.policy.allowed.is_none() && !device.mechanism.has_modes()
    }

    /// What they are like without caps, and what caps could make of that.
    fn glance(&self, seats: &[Seat<'a>], device: &DeviceView) -> Result<Glance, Reason> {
        let foreseen = self.found.foreseen.borrow();
        let known = self.couple(seats, device).and_then(|couple| foreseen.get(&couple));
        let Some(known) = known else {
            let verdict = self.without_caps(seats, device)?;
            let estimates: Vec<&SpeedEstimate> = verdict.estimates.iter().collect();
            return Ok(self.glanced(seats, device, &verdict, &estimates));
        };
        self.may_meet(seats, device)?;
        let [lower, higher] = known.as_ref().ok_or(Reason::UnknownWorkload)?;
        let is_turned = seats[0].profile > seats[1].profile;
        let estimates = if is_turned { [higher, lower] } else { [lower, higher] };
        let verdict = self.judged(seats, &[None, None], &estimates, device, None)?;
        Ok(self.glanced(seats, device, &verdict, &estimates))
    }

    fn glanced(
        &self,
        seats: &[Seat<'a>],
        device: &DeviceView,
        verdict: &Verdict,
        estimates: &[&SpeedEstimate],
    ) -> Glance {
        let is_fast = estimates.iter().all(|estimate| estimate.speed_fraction >= FAST_ENOUGH_FRACTION);
        let could_cap = device.mechanism.can_cap() && self.policy.caps;
        let is_final =
            !could_cap || (verdict.is_admitted() && is_fast) || !caps_could_help(seats, verdict, estimates);
        let hope = (!is_final).then(|| verdict.weight + CAPS_WIN_MAX * verdict.weight_of_speed());
        Glance { hope, ..Glance::of(verdict) }
    }
}

/// Whether there are caps under which the promises could be kept, as far as one estimate without any tells.
fn caps_could_help(seats: &[Seat<'_>], without: &Verdict, estimates: &[&SpeedEstimate]) -> bool {
    if without.is_admitted() {
        return true;
    }
    // A cap slows the one that has it: neighbours of another user cannot be helped by what he could take off.
    let is_one_user = seats.windows(2).all(|pair| pair[0].owner.uid == pair[1].owner.uid);
    let lacking = seats.iter().zip(estimates);
    let lacking: f64 = lacking.map(|(seat, own)| seat.promise.value().recip() - own.speed_fraction_low).sum();
    (is_one_user || without.excluded_by != Some(Reason::PromiseAtRisk)) && lacking <= CAPS_WIN_MAX
}
