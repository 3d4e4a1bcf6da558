//! Who of the waiting jobs could share an instance of a device: two of one user, never of two, whose promises both hold there at the
//! lower end of what is foretold, and who have room in it together. Must not choose where.

use super::Divider;
use super::offer::Offer;
use crate::mig::{Company, SliceJob, Together, beside, profile_in};
use crate::model::{SpeedEstimate, TenantInput};
use crate::planner::admit;
use crate::planner::candidates::caps::{CAP_GAIN_MIN, CapSlot, cap_sets};
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex};
use pillion_core::Fraction;
use pillion_core::device::Mechanism;
use pillion_core::mig::{Geometry, MigProfile, Size};
use pillion_core::share::Sharing;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// With how many of his user's jobs behind him one is weighed at most.
const WEIGHED_MAX: usize = 8;

/// How two classes would be together, by size: on a model of device, in sizes of the cutter of that number.
pub(super) type Known<'p> =
    FxHashMap<(ClassIndex, ClassIndex, &'p str, usize), Rc<BTreeMap<MigProfile, Together>>>;

/// Two jobs, by class, as they are in the sizes of a device, each to itself.
#[derive(Clone, Copy)]
struct Two<'t> {
    classes: [ClassIndex; 2],
    alone: [&'t SliceJob; 2],
    at: DeviceIndex,
    geometry: &'t Geometry,
}

impl<'p> Divider<'p> {
    /// Who would share with whom: each of those offered stands in one company at most, with whom it does most of those next to it in the
    /// queue. None where the site does not want it, and where the device has no MPS.
    pub(super) fn companies(
        &mut self,
        offer: &Offer<'_>,
        offered: &[SliceJob],
        geometry: &'p Geometry,
    ) -> Vec<Company> {
        let (context, at, number) = (self.context, offer.device, self.cutter(geometry).0);
        let policy = context.policy;
        let is_wanted = policy.share_instances && policy.allowed.is_none();
        if !is_wanted || !context.devices[at].mechanism.has_daemon() {
            return Vec::new();
        }
        let mut companies: Vec<Company> = Vec::new();
        let is_free = |companies: &[Company], place: usize| {
            let is_taken = |company: &Company| company.host == place || company.guest == place;
            !offered[place].speeds.is_empty() && !companies.iter().any(is_taken)
        };
        for host in 0..offered.len() {
            if !is_free(&companies, host) {
                continue;
            }
            let uid = context.jobs[offer.jobs[host]].uid;
            let behind = (host + 1..offered.len())
                .filter(|guest| context.jobs[offer.jobs[*guest]].uid == uid && is_free(&companies, *guest));
            let behind: Vec<usize> = behind.take(WEIGHED_MAX).collect();
            let weighed = behind.into_iter().map(|guest| {
                let two = Two {
                    classes: [host, guest].map(|place| context.class_of[offer.jobs[place]]),
                    alone: [&offered[host], &offered[guest]],
                    at,
                    geometry,
                };
                (guest, self.together(two, number))
            });
            let most = |sizes: &BTreeMap<MigProfile, Together>| {
                sizes.values().map(Together::speed_sum).fold(0.0, f64::max)
            };
            let possible = weighed.filter(|(_, sizes)| !sizes.is_empty()).collect::<Vec<_>>();
            // Of those that are as good the first in the queue.
            let best = possible.into_iter().rev().max_by(|a, b| most(&a.1).total_cmp(&most(&b.1)));
            if let Some((guest, sizes)) = best {
                companies.push(Company { host, guest, sizes: (*sizes).clone() });
            }
        }
        companies
    }

    /// How two would be in each size in which they may be together.
    fn together(&mut self, two: Two<'_>, number: usize) -> Rc<BTreeMap<MigProfile, Together>> {
        let model = self.context.devices[two.at].model.as_str();
        let key = (two.classes[0], two.classes[1], model, number);
        if let Some(known) = self.together.get(&key) {
            return Rc::clone(known);
        }
        let whole = two.geometry.whole();
        let sizes = two.geometry.plain().filter(|size| size.profile != whole.profile);
        let found: BTreeMap<MigProfile, Together> =
            sizes.filter_map(|size| Some((size.profile, in_size(self.context, two, size)?))).collect();
        let found = Rc::new(found);
        self.together.insert(key, Rc::clone(&found));
        found
    }
}

/// How two are in one size; `None`: they may not be together there, or nothing would be gained.
fn in_size(context: &PlanContext<'_>, two: Two<'_>, size: &Size) -> Option<Together> {
    let Two { classes, alone, at, geometry } = two;
    let (kind, device) = (context.kind_of[at], &context.devices[at]);
    // 1. Each is fast enough there alone, and may share a device at all.
    let speeds = [alone[0].may_have(size.profile).ok()?, alone[1].may_have(size.profile).ok()?];
    if alone.iter().any(|job| job.tried == Some(size.profile)) {
        return None;
    }
    let sharers = [context.sharer(classes[0], kind).ok()?, context.sharer(classes[1], kind).ok()?];
    // 2. They have room.
    let memory_bytes = sharers.map(|(_, need)| need);
    let usable = admit::usable_bytes(size.memory_bytes?, context.policy);
    if memory_bytes[0].saturating_add(memory_bytes[1]) > usable {
        return None;
    }
    admit::are_served(sharers.iter().map(|(profile, _)| *profile), Mechanism::MigMps).ok()?;
    // 3. As they would be seen in it, side by side: without caps, and with those that do clearly more.
    let name = format!("{} {}", device.model, size.profile);
    let of_sizes = (size, geometry.whole());
    let profiles = [0, 1].map(|index| profile_in(sharers[index].0, speeds[index], of_sizes, &name));
    let promises = alone.map(|job| job.slowdown_ratio_max.value());
    let under = |caps: [Option<Fraction>; 2]| {
        let inputs = [0, 1].map(|index| TenantInput {
            profile: &profiles[index],
            sharing: Sharing::Mps { cap: caps[index], memory_limit_bytes: None },
        });
        let estimates: Vec<SpeedEstimate> = context.model.predict(&inputs, &name).ok()?;
        let [own, other] = estimates.as_slice() else { return None };
        let speeds = [beside(speeds[0], own), beside(speeds[1], other)];
        Some(Together { speeds, caps, memory_bytes }).filter(|together| together.keeps(promises))
    };
    let mut best = under([None, None]);
    let slots = [0, 1].map(|index| {
        CapSlot::of_new(context.classes[classes[index]].rules(context.policy), sharers[index].0)
    });
    for set in cap_sets(&slots) {
        let Some(capped) = set.try_into().ok().and_then(under) else { continue };
        let least = best.map_or(f64::NEG_INFINITY, |best| best.speed_sum() + CAP_GAIN_MIN);
        if capped.speed_sum() > least {
            best = Some(capped);
        }
    }
    // 4. Company is worth it.
    let most = speeds[0].speed_fraction.max(speeds[1].speed_fraction);
    best.filter(|together| together.speed_sum() >= most + context.policy.gain_min)
}
