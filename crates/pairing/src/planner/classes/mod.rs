//! Step 1: what is alike is one. Jobs fall into classes, devices into kinds and places; the context of a plan holds them. Must not
//! choose who gets what.

pub(crate) mod places;

use crate::copies::CopyKind;
use crate::model::InterferenceModel;
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::copies::{self, Ladder};
use crate::planner::index::{
    ClassIndex, DemandIndex, DeviceIndex, JobIndex, KindIndex, NodeIndex, ProfileIndex,
};
use crate::planner::trial::{Trials, WatchedPairs};
use crate::policy::Policy;
use crate::view::{ClusterView, Demand, DeviceView, NodeView, Tenant, WaitingJob};
use pillion_core::device::TENANTS_MAX;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{NodeName, SlurmJobId, WorkloadKey};
use places::{Places, grouped};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::hash::Hash;
use typed_index_collections::{TiSlice, TiVec};

/// Where no more ways of sharing than this are possible, all of them are evaluated.
const EVALUATED_ALL_MAX: usize = 4000;
/// Durations that differ by less than this factor are taken as equal.
const DURATION_STEP: f64 = 1.05;

/// For each class and kind a profile and the device memory that it is admitted with, or why it may not share.
pub(crate) type Sharers = TiVec<ClassIndex, TiVec<KindIndex, Result<(ProfileIndex, u64), Reason>>>;

/// For how many tenants a device has shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seats {
    /// All of them.
    pub(crate) most: u32,
    /// What each needs at least.
    pub(crate) shards_min: u32,
}

/// What every step of one plan knows.
pub(crate) struct PlanContext<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) model: &'a dyn InterferenceModel,
    pub(crate) policy: &'a Policy,
    pub(crate) jobs: &'a TiSlice<JobIndex, WaitingJob>,
    pub(crate) devices: &'a TiSlice<DeviceIndex, DeviceView>,
    pub(crate) nodes: &'a TiSlice<NodeIndex, NodeView>,
    /// The class of each waiting job, and one job of each class.
    pub(crate) class_of: TiVec<JobIndex, ClassIndex>,
    pub(crate) classes: TiVec<ClassIndex, &'a WaitingJob>,
    /// The kind of each device, and one device of each kind.
    pub(crate) kind_of: TiVec<DeviceIndex, KindIndex>,
    pub(crate) kinds: TiVec<KindIndex, &'a DeviceView>,
    /// The node of each device; `None` = not in the view, so that nothing is known of it.
    pub(crate) node_of: TiVec<DeviceIndex, Option<NodeIndex>>,
    pub(crate) places: Places,
    /// For each device the first on which the same runs; itself where nothing runs.
    pub(crate) alike: TiVec<DeviceIndex, DeviceIndex>,
    /// What jobs of each class want of a node: CPUs and MiB.
    pub(crate) demand_of: TiVec<ClassIndex, DemandIndex>,
    pub(crate) demands: TiVec<DemandIndex, Demand>,
    /// Whether there are so few ways of sharing that all are evaluated.
    pub(crate) is_thorough: bool,
    /// Whether jobs would be left over if two shared every free device.
    pub(crate) is_crowded: bool,
    /// How many of each class could start now.
    pub(crate) startable_count: TiVec<ClassIndex, usize>,
    pub(crate) profiles: TiVec<ProfileIndex, &'a WorkloadProfile>,
    /// The least speed that anybody with this profile was promised, 0..=1; 0 where pairs outside the bounds may be tried.
    pub(crate) least_speeds: TiVec<ProfileIndex, f64>,
    pub(crate) profile_index: FxHashMap<(&'a WorkloadKey, &'a str), ProfileIndex>,
    /// What is seen of first runs and of interactive jobs while they run; no job that waits is known by it.
    pub(crate) seen_index: FxHashMap<SlurmJobId, ProfileIndex>,
    /// By how much it may be off: the standard error of its activity over the mean.
    pub(crate) first_run_errors: FxHashMap<ProfileIndex, f64>,
    /// Whether a class may share devices of a kind: its profile and the memory that it is admitted with.
    pub(crate) sharers: Sharers,
    /// What the watch sees of those who run.
    pub(crate) watched: WatchedPairs<'a>,
    /// What is known of trials; absent = nothing is tried.
    pub(crate) trials: Option<Trials<'a>>,
}

impl<'a> PlanContext<'a> {
    pub(crate) fn new(view: &'a ClusterView, model: &'a dyn InterferenceModel, policy: &'a Policy) -> Self {
        // 1. Jobs and devices that are alike. Whatever is looked up by class or kind is looked up once.
        let trials = Trials::of(view, policy.trials);
        let (class_of, classes) = grouped::<_, _, ClassIndex>(&view.waiting, |job| {
            // Whoever started again is tried with more care, and some are not tried at all.
            let trial =
                trials.as_ref().map(|trials| (trials.may_try(job.start.job_id), job.start.restart_count > 0));
            (class_key(job), trial)
        });
        let (kind_of, kinds) = grouped::<_, _, KindIndex>(&view.devices, |device| {
            (&device.model, device.mechanism, device.memory_bytes)
        });
        let (class_of, kind_of) = (TiVec::from(class_of), TiVec::from(kind_of));
        let (demand_of, demanding) =
            grouped::<_, _, DemandIndex>(classes.iter().copied(), WaitingJob::demand);
        // 2. Where each device is.
        let nodes: BTreeMap<&NodeName, NodeIndex> =
            view.nodes.iter().enumerate().map(|(index, node)| (&node.name, index.into())).collect();
        let node_of: TiVec<DeviceIndex, Option<NodeIndex>> =
            view.devices.iter().map(|device| nodes.get(&device.node).copied()).collect();
        let places = Places::new(view, &classes, &kind_of, &node_of);
        // 3. What is known of the workloads.
        let mut profiles: TiVec<ProfileIndex, &WorkloadProfile> = view.profiles.iter().collect();
        let profile_index: FxHashMap<(&WorkloadKey, &str), ProfileIndex> = profiles
            .iter_enumerated()
            .map(|(index, profile)| ((&profile.workload, profile.device_model.as_str()), index))
            .collect();
        let sharers = sharers(&classes, &kinds, &profiles, &profile_index, policy);
        let (mut seen_index, mut first_run_errors) = (FxHashMap::default(), FxHashMap::default());
        for tenant in view.devices.iter().flat_map(|device| &device.tenants) {
            if let Some((seen, error_fraction)) = tenant.seen() {
                let index = profiles.push_and_get_key(seen);
                seen_index.insert(tenant.job_id, index);
                first_run_errors.insert(index, error_fraction);
            }
        }
        // 4. How much there is of it: few ways of sharing are all evaluated.
        let host_count = view.devices.iter().filter(|device| !device.tenants.is_empty()).count();
        let free_count = view.devices.len() - host_count;
        let way_count = classes.len() * (classes.len() * kinds.len() / 2 + host_count);
        let mut startable_count: TiVec<ClassIndex, usize> = vec![0; classes.len()].into();
        for (job, class) in view.waiting.iter().zip(&class_of) {
            startable_count[*class] += usize::from(job.held.is_none());
        }
        Self {
            view,
            model,
            policy,
            jobs: view.waiting.as_slice().as_ref(),
            devices: view.devices.as_slice().as_ref(),
            nodes: view.nodes.as_slice().as_ref(),
            alike: places::alike_hosts(view, policy, &places.of_device),
            places,
            demands: demanding.iter().map(|job| job.demand()).collect(),
            demand_of: demand_of.into(),
            node_of,
            class_of,
            classes,
            kind_of,
            kinds,
            is_thorough: way_count <= EVALUATED_ALL_MAX,
            is_crowded: startable_count.iter().sum::<usize>() > 2 * free_count,
            startable_count,
            least_speeds: match trials {
                None => least_speeds(view, &profiles),
                Some(_) => vec![0.0; profiles.len()].into(),
            },
            profiles,
            profile_index,
            seen_index,
            first_run_errors,
            sharers,
            watched: WatchedPairs::new(&view.trials.watched),
            trials,
        }
    }

    /// How many tenants shards are left for on a device with these two, and with who runs there, in this mode of a card, and how
    /// many for each: of copies that go up step by step as many as what was measured lets come.
    pub(crate) fn tenants_max(
        &self,
        classes: [ClassIndex; 2],
        kind: KindIndex,
        device: Option<DeviceIndex>,
        sharing: Sharing,
    ) -> Seats {
        let new = classes.map(|class| self.classes[class]);
        let here = device.map_or(&[][..], |device| &self.devices[device].tenants);
        let rules =
            new.iter().map(|job| job.rules(self.policy)).chain(here.iter().map(|own| own.rules(self.policy)));
        let wanted = rules.map(|rules| rules.tenants_max).min().unwrap_or(1);
        let runs_it =
            |own: &Tenant| own.workload.as_ref() == Some(&new[0].workload) && own.first_run.is_none();
        let are_copies = new[0].workload == new[1].workload && here.iter().all(runs_it);
        let mode_max = sharing.ccs_mode().map_or(u32::MAX, u32::from);
        let (mechanism, model) = (self.kinds[kind].mechanism, &self.kinds[kind].model);
        let most = copies::tenants_max(wanted, are_copies, mechanism).min(mode_max);
        let climbs = copies::climb(wanted, are_copies);
        if !climbs {
            return Seats { most, shards_min: copies::shards_min(climbs) };
        }
        let kind = CopyKind::new(&new[0].workload, model, sharing);
        let ladder = Ladder { book: &self.view.copies, kind, believes_counters: true };
        // As many as may be of any, until copies are known to be more.
        let reach = ladder.reach(most, new[0].slowdown_ratio_max).max(TENANTS_MAX);
        Seats { most: reach.min(most), shards_min: copies::shards_min(climbs) }
    }

    /// The node of a device that takes something now.
    pub(crate) fn open_node(&self, device: DeviceIndex) -> Option<NodeIndex> {
        let node = self.node_of[device]?;
        let is_open = self.devices[device].blocked.is_none() && self.nodes[node].blocked.is_none();
        is_open.then_some(node)
    }

    /// Why a device takes nothing now: its node's reason goes before its own.
    pub(crate) fn closed_by(&self, device: DeviceIndex) -> Option<&'a str> {
        let node = self.node_of[device].and_then(|node| self.nodes[node].blocked.as_deref());
        node.or(self.devices[device].blocked.as_deref())
    }

    /// Whether jobs of this class can run on this device, whatever is free there.
    pub(crate) fn matches(&self, class: ClassIndex, device: DeviceIndex) -> bool {
        self.places.matches(class, self.places.of_device[device])
    }

    /// What is known of this class on devices of this kind.
    pub(crate) fn profile(&self, class: ClassIndex, kind: KindIndex) -> Option<&'a WorkloadProfile> {
        self.profile_on(class, &self.kinds[kind].model)
    }

    /// The same on devices of this model.
    pub(crate) fn profile_on(&self, class: ClassIndex, model: &str) -> Option<&'a WorkloadProfile> {
        let key = (&self.classes[class].workload, model);
        self.profile_index.get(&key).map(|profile| self.profiles[*profile])
    }

    /// Whether this class may share devices of this kind: its profile and the memory that it is admitted with.
    pub(crate) fn sharer(
        &self,
        class: ClassIndex,
        kind: KindIndex,
    ) -> Result<(&'a WorkloadProfile, u64), Reason> {
        self.sharers[class][kind].map(|(profile, memory)| (self.profiles[profile], memory))
    }
}

/// For each profile the least speed that any of its jobs was promised: the loosest of their promises.
fn least_speeds(
    view: &ClusterView,
    profiles: &TiSlice<ProfileIndex, &WorkloadProfile>,
) -> TiVec<ProfileIndex, f64> {
    let waiting = view.waiting.iter().map(|job| (&job.workload, job.slowdown_ratio_max));
    let running = view.devices.iter().flat_map(|device| &device.tenants);
    let running = running.filter_map(|tenant| Some((tenant.workload.as_ref()?, tenant.slowdown_ratio_max)));
    let mut least: FxHashMap<&WorkloadKey, f64> = FxHashMap::default();
    for (workload, promise) in waiting.chain(running) {
        let own = least.entry(workload).or_insert(1.0);
        *own = own.min(promise.value().recip());
    }
    profiles.iter().map(|profile| least.get(&profile.workload).copied().unwrap_or(0.0)).collect()
}

/// For each class and kind its profile and the memory that it is admitted with, or why it may not share.
fn sharers(
    classes: &TiSlice<ClassIndex, &WaitingJob>,
    kinds: &TiSlice<KindIndex, &DeviceView>,
    profiles: &TiSlice<ProfileIndex, &WorkloadProfile>,
    profile_index: &FxHashMap<(&WorkloadKey, &str), ProfileIndex>,
    policy: &Policy,
) -> Sharers {
    let of_class = classes.iter().map(|job| {
        let of_kind = kinds.iter().map(|device| {
            let index = profile_index.get(&(&job.workload, device.model.as_str())).copied();
            let memory = admit::may_share(job, index.map(|index| profiles[index]), device, policy)?;
            Ok((index.ok_or(Reason::UnknownWorkload)?, memory))
        });
        of_kind.collect()
    });
    of_class.collect()
}

/// Everything about a job that a plan depends on, but its place in the queue.
fn class_key(job: &WaitingJob) -> impl Hash + Eq + '_ {
    let promise = job.slowdown_ratio_max.value().to_bits();
    let beyond = job.use_beyond_fraction.to_bits();
    let memory = (job.memory_bytes_declared, job.may_run_out);
    let sharing = (promise, memory, job.solo_cap, job.owes_runs > 0, beyond, job.isolation, job.as_guest);
    let who = (&job.workload, job.uid, &job.account, sharing, job.rules);
    let place = (&job.partition, &job.gpu_type, &job.features, &job.excluded_nodes);
    // Durations in steps of a twentieth: closer they are guesses.
    let duration = job.duration_seconds_expected.map(duration_step);
    (who, place, job.cpus, job.memory_mib, job.time_limit_seconds, duration)
}

/// A duration as a whole number of steps: equal for durations that hardly differ.
#[expect(clippy::cast_possible_truncation, reason = "the logarithm of a duration is small")]
fn duration_step(seconds: f64) -> i32 {
    (seconds.max(1e-3).ln() / DURATION_STEP.ln()).round() as i32
}
