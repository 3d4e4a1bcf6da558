//! Step 5: of devices that can be cut into instances (MIG), which jobs that would wait get one of their own
//! (docs/decisions/0018-mig-walls-mps-flows.md). What was placed before stays as it is where no device can be cut.
//!
//! 1. What is cut already, or held as it is cut, is filled with those who wait.
//! 2. Where somebody starts on a free device while others wait, the device is cut if that does more than he alone, or than those who
//!    share it without walls, and if each of them gets an instance in which his promise holds: whoever has a right to a device is
//!    passed over by nobody.
//!
//! Where the site has it so (`policy.share_instances`) two jobs of one user may have one instance together, by its MPS daemon: weighed
//! beside an instance for each.
//!
//! Whoever can have a whole device has one, since only what is left over is offered here. Must not say how an instance is made.

mod company;
mod offer;

use crate::mig::{Choice, Company, Cutter, DeviceState, Rival, SliceJob};
use crate::plan::Reason;
use crate::planner::candidates::Evaluator;
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex};
use crate::planner::placement::{Instance, Placement, Start};
use offer::{Offer, is_offered};
use pillion_core::WorkloadKey;
use pillion_core::mig::{Geometry, Slot};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use typed_index_collections::TiVec;

/// How many jobs are offered to a device at most, from the head of the queue.
const OFFERED_MAX: usize = 64;
/// How many devices are filled in one plan at most, and how many free ones are weighed; the next plan goes on with those that have
/// room still.
const DEVICES_MAX: usize = 64;
/// How often a device is weighed again because its node has too few CPUs or too little memory for all who were chosen.
const WEIGHED_AGAIN_MAX: usize = 4;

/// Cuts devices for those who are left, where that can be.
pub(crate) fn divide(evaluator: &Evaluator<'_, '_>, mut placement: Placement) -> Placement {
    let context = evaluator.context;
    let can_be_cut = context.devices.iter().any(|device| device.geometry.is_some());
    let Some(capacity) = placement.capacity.take().filter(|_| can_be_cut) else { return placement };
    let mut divider = Divider::new(context, placement, capacity);
    let standing: Vec<DeviceIndex> =
        context.devices.keys().filter(|at| divider.has_room(*at) && divider.is_filled(*at)).collect();
    for device in standing.into_iter().take(DEVICES_MAX) {
        divider.fill(device);
    }
    let free: Vec<DeviceIndex> = divider.started_fresh().take(DEVICES_MAX).collect();
    for device in free {
        divider.weigh(device);
    }
    divider.say_why();
    divider.placement
}

/// A placement while devices are cut.
struct Divider<'p> {
    context: &'p PlanContext<'p>,
    placement: Placement,
    capacity: FreeCapacity,
    /// One for each way in which devices can be cut.
    cutters: Vec<(&'p Geometry, Cutter<'p>)>,
    /// What jobs of a class are like on a model of device, in sizes of the cutter of that number.
    known: FxHashMap<(ClassIndex, &'p str, usize), SliceJob>,
    /// How two classes would be together in the sizes of the cutter of that number.
    together: company::Known<'p>,
    /// Workloads of which one is tried in less memory than it held at most, by model of device: one at a time.
    tried: BTreeSet<(&'p WorkloadKey, &'p str)>,
}

impl<'p> Divider<'p> {
    fn new(context: &'p PlanContext<'p>, placement: Placement, capacity: FreeCapacity) -> Self {
        Self {
            context,
            placement,
            capacity,
            cutters: Vec::new(),
            known: FxHashMap::default(),
            together: FxHashMap::default(),
            tried: BTreeSet::new(),
        }
    }

    /// Whether the smallest instance can be booked there.
    fn has_room(&self, at: DeviceIndex) -> bool {
        let device = &self.context.devices[at];
        let smallest = device
            .geometry
            .as_ref()
            .and_then(|geometry| Some(geometry.shards(geometry.plain().last()?.profile)));
        smallest.is_some_and(|smallest| device.shards_free >= u32::from(smallest.count()))
    }

    /// Whether a device has instances that can be given away, or room for some beside others: everybody there has one of his own.
    fn is_filled(&self, at: DeviceIndex) -> bool {
        let device = &self.context.devices[at];
        let is_cut = !device.tenants.is_empty() || device.is_shape_held;
        let are_walled = device.tenants.iter().all(|tenant| tenant.sharing.mig_slot().is_some());
        device.geometry.is_some() && is_cut && are_walled && self.context.open_node(at).is_some()
    }

    /// Devices that can be cut on which somebody starts now who may be joined by nobody, or by one.
    fn started_fresh(&self) -> impl Iterator<Item = DeviceIndex> + use<'p> {
        let context = self.context;
        let starts = self.placement.starts.iter().filter(|start| !start.is_join && start.instance.is_none());
        let devices: Vec<DeviceIndex> = starts.map(|start| start.device).collect();
        devices.into_iter().filter(move |at| context.devices[*at].geometry.is_some())
    }

    /// Gives what stands, and what can be made beside it, to those who wait.
    fn fill(&mut self, at: DeviceIndex) {
        let device = &self.context.devices[at];
        let Some(geometry) = &device.geometry else { return };
        // One that several share is one.
        let tenants: BTreeSet<Slot> =
            device.tenants.iter().filter_map(|tenant| tenant.sharing.mig_slot()).collect();
        let tenants: Vec<Slot> = tenants.into_iter().collect();
        if geometry.check(&tenants).is_err() {
            return;
        }
        let standing = device.standing_beside(&tenants);
        let state = DeviceState { tenants: &tenants, standing: &standing, is_held: device.is_shape_held };
        if let Some(chosen) = self.choose(at, geometry, state, &[]) {
            for (jobs, instance) in chosen {
                self.start(at, jobs, instance);
            }
        }
    }

    /// Cuts a free device, where that does more than what was placed on it.
    fn weigh(&mut self, at: DeviceIndex) {
        let Some(place) = self.placement.starts.iter().position(|start| start.device == at) else { return };
        let start = self.placement.starts.raw[place].clone();
        let device = &self.context.devices[at];
        let Some(geometry) = &device.geometry else { return };
        let state = DeviceState { tenants: &[], standing: &[], is_held: false };
        let Some(chosen) = self.choose(at, geometry, state, &start.jobs) else { return };
        self.placement.starts.raw.remove(place);
        for (jobs, instance) in chosen {
            self.start(at, jobs, instance);
        }
    }

    /// Who gets which instance of a device, the larger ones first; `None`: it stays as it is. `rights`: those who start there
    /// otherwise. Of two who share one the host comes first.
    fn choose(
        &mut self,
        at: DeviceIndex,
        geometry: &'p Geometry,
        state: DeviceState<'_>,
        rights: &[JobIndex],
    ) -> Option<Vec<(Vec<JobIndex>, Instance)>> {
        let mut jobs: Vec<JobIndex> = self.waiting_for(at);
        if jobs.is_empty() {
            return None;
        }
        jobs.extend(rights);
        jobs.sort_unstable();
        let places = |of: &[JobIndex]| -> Vec<usize> {
            of.iter().filter_map(|job| jobs.iter().position(|other| other == job)).collect()
        };
        let (rights_at, rivals) = (places(rights), self.rivals(at, &jobs));
        let mut without: BTreeSet<JobIndex> = BTreeSet::new();
        for _ in 0..WEIGHED_AGAIN_MAX {
            let offer = Offer { device: at, jobs: &jobs, rights, without: &without };
            let offered = self.offered(&offer, geometry);
            if rights_at.iter().any(|place| offered[*place].speeds.is_empty()) {
                return None;
            }
            let companies = self.companies(&offer, &offered, geometry);
            let choice = self.cutter(geometry).1.choose_for(state, &offered, &rivals, &rights_at, &companies);
            let Choice::Instances(slots) = choice else { return None };
            let chosen = seats(&slots, &jobs, &offered, &companies);
            if !self.has_shards(at, geometry, &chosen) {
                return None;
            }
            let beyond = self.beyond_node(at, &chosen, rights);
            if beyond.is_empty() {
                return Some(chosen);
            }
            without.extend(beyond);
        }
        None
    }

    /// Those left whom this device suits, in the order of the queue.
    fn waiting_for(&self, at: DeviceIndex) -> Vec<JobIndex> {
        let context = self.context;
        let left = self.placement.left.iter().filter(|(job, reason)| {
            !matches!(reason, Reason::Held | Reason::AwaitsVerdict)
                && context.matches(context.class_of[**job], at)
        });
        left.map(|(job, _)| *job).take(OFFERED_MAX).collect()
    }

    /// Those who were to share the device without walls, by their places.
    fn rivals(&self, at: DeviceIndex, jobs: &[JobIndex]) -> Vec<Rival> {
        let starts = self.placement.starts.iter().filter(|start| start.device == at);
        let of_start = |start: &Start| {
            let evaluation = start.evaluation.as_ref()?;
            let speeds = start.jobs.iter().zip(evaluation.estimates.iter()).filter_map(|(job, estimate)| {
                Some((jobs.iter().position(|other| other == job)?, estimate.speed_fraction))
            });
            Some(Rival { jobs: speeds.collect() })
        };
        starts.filter_map(of_start).collect()
    }

    /// Whether Slurm has shards enough for all of these: it has, as long as nobody is there whom we do not know.
    fn has_shards(&self, at: DeviceIndex, geometry: &Geometry, chosen: &[(Vec<JobIndex>, Instance)]) -> bool {
        let shards = chosen.iter().map(|(_, own)| u32::from(geometry.shards(own.slot.profile).count()));
        shards.sum::<u32>() <= self.context.devices[at].shards_free
    }

    /// For whom the node has no CPUs or memory left beside the others.
    fn beyond_node(
        &self,
        at: DeviceIndex,
        chosen: &[(Vec<JobIndex>, Instance)],
        rights: &[JobIndex],
    ) -> Vec<JobIndex> {
        let mut capacity = self.capacity.clone();
        let jobs = chosen.iter().flat_map(|(jobs, _)| jobs.iter().copied());
        let mut newcomers: Vec<JobIndex> = jobs.filter(|job| !rights.contains(job)).collect();
        newcomers.sort_unstable();
        newcomers.retain(|job| {
            let class = self.context.class_of[*job];
            let meets = capacity.node_meets(self.context, at, class);
            if meets {
                capacity.take(self.context, at, class);
            }
            !meets
        });
        newcomers
    }

    /// Somebody starts in an instance of this device, or two do.
    fn start(&mut self, device: DeviceIndex, jobs: Vec<JobIndex>, instance: Instance) {
        for job in &jobs {
            if self.placement.left.remove(job).is_some() {
                self.capacity.take(self.context, device, self.context.class_of[*job]);
            }
            if instance.is_tried {
                self.tried.insert((&self.context.jobs[*job].workload, &self.context.devices[device].model));
            }
        }
        let instance = Some(instance);
        self.placement.starts.push(Start { device, is_join: false, jobs, evaluation: None, instance });
    }

    /// Why those who wait have no instance of a device that is cut, where that is what keeps them.
    fn say_why(&mut self) {
        let context = self.context;
        let is_cut: TiVec<DeviceIndex, bool> = context.devices.keys().map(|at| self.is_filled(at)).collect();
        let cut_now: BTreeSet<DeviceIndex> = self
            .placement
            .starts
            .iter()
            .filter(|start| start.instance.is_some())
            .map(|start| start.device)
            .collect();
        let mut known: FxHashMap<ClassIndex, Option<Reason>> = FxHashMap::default();
        for (job, reason) in &mut self.placement.left {
            let class = context.class_of[*job];
            if !matches!(reason, Reason::NoDeviceFree | Reason::BehindOthers) {
                continue;
            }
            let why = *known.entry(class).or_insert_with(|| {
                let suits = |at: &DeviceIndex| {
                    context.matches(class, *at)
                        && context.open_node(*at).is_some()
                        && (is_cut[*at] || cut_now.contains(at))
                };
                let mut cut = context.devices.keys().filter(suits).peekable();
                let first = cut.peek().copied()?;
                if cut.all(|at| context.devices[at].is_shape_held) {
                    return Some(Reason::ShapeHeld);
                }
                let device = &context.devices[first];
                offer::is_too_slow(context, class, &device.model, device.geometry.as_ref()?)
                    .then_some(Reason::SliceTooSlow)
            });
            *reason = why.unwrap_or(*reason);
        }
    }

    /// For devices that can be cut so.
    fn cutter(&mut self, geometry: &'p Geometry) -> (usize, &Cutter<'p>) {
        let known = self.cutters.iter().position(|(other, _)| *other == geometry);
        let number = known.unwrap_or_else(|| {
            self.cutters.push((geometry, Cutter::new(geometry, self.context.policy.gain_min)));
            self.cutters.len() - 1
        });
        (number, &self.cutters[number].1)
    }

    /// What each job of an offer is like in instances of the device; without any speed where it may have none.
    fn offered(&mut self, offer: &Offer<'_>, geometry: &'p Geometry) -> Vec<SliceJob> {
        let (context, number) = (self.context, self.cutter(geometry).0);
        let model = context.devices[offer.device].model.as_str();
        let may_have = is_offered(context, offer, &self.capacity, self.placement.has_waiting_claim);
        let mut tried = self.tried.clone();
        let of_job = |(job, may_have): (&JobIndex, bool)| {
            let (class, waiting) = (context.class_of[*job], &context.jobs[*job]);
            let known = self
                .known
                .entry((class, model, number))
                .or_insert_with(|| offer::in_sizes(context, class, model, geometry));
            let mut own = SliceJob { submitted_at: waiting.submitted_at, ..known.clone() };
            if !may_have {
                own.speeds.clear();
            } else if own.tried.is_some() {
                // Nor whoever has a right to the device: if nobody would start him again, his place would be another's by then.
                let has_right = offer.rights.contains(job);
                if has_right || !tried.insert((&waiting.workload, model)) {
                    own.do_not_try();
                }
            }
            own
        };
        offer.jobs.iter().zip(may_have).map(of_job).collect()
    }
}

/// Who has which instance: those with the same one share it.
fn seats(
    slots: &[(usize, Slot)],
    jobs: &[JobIndex],
    offered: &[SliceJob],
    companies: &[Company],
) -> Vec<(Vec<JobIndex>, Instance)> {
    let mut seats: Vec<(Vec<JobIndex>, Instance)> = Vec::new();
    for (place, slot) in slots {
        if let Some((host, _)) = seats.iter_mut().find(|(_, own)| own.slot == *slot) {
            host.push(jobs[*place]);
            continue;
        }
        let Ok(speed) = offered[*place].may_have(slot.profile) else { continue };
        let is_shared = slots.iter().filter(|(_, other)| other == slot).count() > 1;
        let company = companies.iter().find(|company| is_shared && company.host == *place);
        let together = company.and_then(|company| company.sizes.get(&slot.profile).copied());
        let is_tried = !is_shared && offered[*place].tried == Some(slot.profile);
        seats.push((vec![jobs[*place]], Instance { slot: *slot, speed, together, is_tried }));
    }
    seats
}
