//! By which rule a device is cut: the product's own, and those that it is held against.

use super::QueuedJob;
use super::device::Device;
use crate::mig::{Choice, Cutter, DeviceState, SliceJob, SliceSpeed};
use crate::policy::Policy;
use pillion_core::mig::{Geometry, MigProfile, Slot};
use pillion_core::{SlowdownRatio, UnixTime};
use std::collections::BTreeMap;

/// Who starts, by the place in the queue, and where.
type Starts = Vec<(usize, Slot)>;

/// A rule.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// Each job has all of the device.
    OneAtATime,
    /// The device is cut once, and each job goes into the largest instance that is free and has room.
    Static(Vec<Slot>),
    /// The seed's: each job goes into the smallest instance in which it has room, in the order of the queue.
    Tightest,
    /// The product's, by what was measured.
    Ours {
        /// The promise to everybody.
        bound: SlowdownRatio,
    },
}

impl Rule {
    pub(super) fn choose(&self, geometry: &Geometry, device: &Device, queue: &[&QueuedJob]) -> Starts {
        let tenants = device.tenants();
        if queue.is_empty() {
            return Vec::new();
        }
        match self {
            Self::OneAtATime if tenants.is_empty() => vec![(0, whole(geometry))],
            Self::OneAtATime => Vec::new(),
            Self::Static(shape) => fixed(shape, &tenants, queue),
            Self::Tightest => tightest(geometry, &tenants, queue[0]),
            Self::Ours { bound } => ours(geometry, device, &tenants, queue, *bound),
        }
    }
}

/// Whether somebody has room in one of these.
pub(super) fn suits(shape: &[Slot], speeds: &BTreeMap<MigProfile, f64>) -> bool {
    shape.iter().any(|slot| speeds.contains_key(&slot.profile))
}

/// `static 4g+2g`.
pub(super) fn name(shape: &[Slot]) -> String {
    let sizes: Vec<String> = shape.iter().map(|slot| format!("{}g", slot.profile.compute_slices())).collect();
    format!("static {}", sizes.join("+"))
}

fn whole(geometry: &Geometry) -> Slot {
    Slot { profile: geometry.whole().profile, start: 0 }
}

fn fixed(shape: &[Slot], tenants: &[Slot], queue: &[&QueuedJob]) -> Starts {
    let mut starts = Starts::new();
    for slot in shape.iter().filter(|slot| !tenants.contains(slot)) {
        let mut suited = (0..queue.len()).filter(|job| queue[*job].speeds.contains_key(&slot.profile));
        let job = suited.find(|job| starts.iter().all(|(started, _)| started != job));
        starts.extend(job.map(|job| (job, *slot)));
    }
    starts
}

fn tightest(geometry: &Geometry, tenants: &[Slot], head: &QueuedJob) -> Starts {
    let Some(least) = head.speeds.keys().min_by_key(|profile| profile.memory_gigabytes()) else {
        return Starts::new();
    };
    let single = geometry.sets(tenants).into_iter().find(|set| set.len() == 1 && set[0].profile == *least);
    single.map(|set| (0, set[0])).into_iter().collect()
}

fn ours(
    geometry: &Geometry,
    device: &Device,
    tenants: &[Slot],
    queue: &[&QueuedJob],
    bound: SlowdownRatio,
) -> Starts {
    let whole = whole(geometry);
    let jobs: Vec<SliceJob> = queue
        .iter()
        .map(|job| SliceJob {
            slowdown_ratio_max: bound,
            submitted_at: UnixTime::from_epoch(0),
            duration_seconds: Some(job.duration_seconds),
            tried: None,
            speeds: job
                .speeds
                .iter()
                .filter(|(profile, _)| **profile != whole.profile)
                .map(|(profile, speed)| (*profile, SliceSpeed::measured(*speed)))
                .collect(),
        })
        .collect();
    let state = DeviceState { tenants, standing: &device.standing, is_held: false };
    let free_count = usize::from(tenants.is_empty());
    match Cutter::new(geometry, Policy::default().gain_min).choose(state, &jobs, &[], free_count) {
        Choice::Nothing | Choice::Together(_) => Starts::new(),
        Choice::Alone(job) => vec![(job, whole)],
        Choice::Instances(starts) => starts,
    }
}
