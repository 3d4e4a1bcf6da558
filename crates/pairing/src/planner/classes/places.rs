//! What is alike among devices, so that thousands of them count as a few: *places* are alike for every job that
//! might start there, *hosts* are alike in what runs on them. Knows the snapshot only; must not choose.

use crate::planner::admit;
use crate::planner::index::{ClassIndex, DeviceIndex, KindIndex, NodeIndex, PlaceIndex};
use crate::policy::Policy;
use crate::view::{ClusterView, DeviceView, NodeView, Tenant, WaitingJob};
use pillion_core::{NodeName, UnixTime};
use rustc_hash::FxHashMap;
use std::hash::Hash;
use typed_index_collections::{TiSlice, TiVec};

/// Running hosts are told apart by the time that is left to them in steps of this ratio, or of the next where there are
/// too many of them.
const REMAINING_RATIOS: [f64; 4] = [1.05, 1.25, 2.0, f64::INFINITY];
/// So many hosts that are not alike are fine.
const HOSTS_MAX: usize = 500;

/// Numbers what is equal by `key`, in the order of first appearance: the group of each item, and the first item of each.
pub(crate) fn grouped<'a, T, K: Hash + Eq, G: From<usize> + Copy>(
    items: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> (Vec<G>, TiVec<G, &'a T>) {
    let mut groups: FxHashMap<K, G> = FxHashMap::default();
    let mut firsts = TiVec::new();
    let mut group_of = Vec::new();
    for item in items {
        let group = *groups.entry(key(item)).or_insert_with(|| {
            firsts.push(item);
            G::from(firsts.len() - 1)
        });
        group_of.push(group);
    }
    (group_of, firsts)
}

/// Devices by where they are.
pub(crate) struct Places {
    /// The place of each device.
    pub(crate) of_device: TiVec<DeviceIndex, PlaceIndex>,
    /// The kind of the devices of each place.
    pub(crate) kinds: TiVec<PlaceIndex, KindIndex>,
    /// The devices of each place that take something now, in the order in which they are given away.
    pub(crate) open: TiVec<PlaceIndex, Vec<DeviceIndex>>,
    /// How many devices of the same node are wholly free: those of nodes where few are go first, so that a job of several devices
    /// finds others whole.
    pub(crate) free_beside: TiVec<DeviceIndex, usize>,
    /// Whether a class can run at a place, whatever is free there.
    matches: TiVec<ClassIndex, TiVec<PlaceIndex, bool>>,
    /// Whether a place where a class could run is reserved for others before its jobs would end.
    is_reserved: TiVec<ClassIndex, bool>,
}

impl Places {
    pub(crate) fn new(
        view: &ClusterView,
        classes: &TiSlice<ClassIndex, &WaitingJob>,
        kind_of: &TiSlice<DeviceIndex, KindIndex>,
        node_of: &TiSlice<DeviceIndex, Option<NodeIndex>>,
    ) -> Self {
        let nodes: &TiSlice<NodeIndex, NodeView> = view.nodes.as_slice().as_ref();
        let views: &TiSlice<DeviceIndex, DeviceView> = view.devices.as_slice().as_ref();
        let group_of_node = alike_nodes(nodes, classes);
        let devices: Vec<DeviceIndex> = views.keys().collect();
        let (of_device, firsts) = grouped::<_, _, PlaceIndex>(&devices, |device| {
            let group = node_of[*device].map(|node| group_of_node[node]);
            (group, kind_of[*device], &views[*device].gpu_types)
        });
        let of_device: TiVec<DeviceIndex, PlaceIndex> = of_device.into();
        let mut open: TiVec<PlaceIndex, Vec<DeviceIndex>> = vec![Vec::new(); firsts.len()].into();
        for (device, place) in of_device.iter_enumerated() {
            let node = node_of[device].map(|node| &nodes[node]);
            if views[device].blocked.is_none() && node.is_some_and(|node| node.blocked.is_none()) {
                open[*place].push(device);
            }
        }
        let free_beside = free_beside(views, node_of);
        for devices in &mut open {
            devices.sort_by_key(|device| (free_beside[*device], node_of[*device], *device));
        }
        let matches = classes.iter().map(|job| {
            let of_class = firsts.iter().map(|device| {
                let node = node_of[**device];
                node.is_some_and(|node| admit::matches_device(job, &nodes[node], &views[**device]))
            });
            of_class.collect()
        });
        let is_reserved = classes.iter().map(|job| {
            firsts.iter().any(|device| {
                node_of[**device].map(|node| &nodes[node]).is_some_and(|node| {
                    !node.is_open_for(job.time_limit_seconds)
                        && admit::matches_but_for_reservations(job, node, &views[**device])
                })
            })
        });
        Self {
            is_reserved: is_reserved.collect(),
            kinds: firsts.iter().map(|device| kind_of[**device]).collect(),
            matches: matches.collect(),
            of_device,
            open,
            free_beside,
        }
    }

    /// How many kinds of devices there are.
    pub(crate) fn kind_count(&self) -> usize {
        self.kinds.iter().max().map_or(0, |last| usize::from(*last) + 1)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = PlaceIndex> + Clone + use<> {
        (0..self.kinds.len()).map(PlaceIndex::from)
    }

    /// The places at which a class can run, whatever is free there.
    pub(crate) fn of_class(&self, class: ClassIndex) -> impl Iterator<Item = PlaceIndex> + Clone + '_ {
        self.all().filter(move |place| self.matches(class, *place))
    }

    pub(crate) fn count(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn is_reserved(&self, class: ClassIndex) -> bool {
        self.is_reserved[class]
    }

    pub(crate) fn matches(&self, class: ClassIndex, place: PlaceIndex) -> bool {
        self.matches[class][place]
    }
}

/// For each device how many of its node are wholly free.
fn free_beside(
    views: &TiSlice<DeviceIndex, DeviceView>,
    node_of: &TiSlice<DeviceIndex, Option<NodeIndex>>,
) -> TiVec<DeviceIndex, usize> {
    let is_free = |device: DeviceIndex| views[device].blocked.is_none() && views[device].is_wholly_free();
    let mut of_node: FxHashMap<NodeIndex, usize> = FxHashMap::default();
    for node in views.keys().filter(|device| is_free(*device)).filter_map(|device| node_of[device]) {
        *of_node.entry(node).or_default() += 1;
    }
    let count = |node: &Option<NodeIndex>| node.and_then(|node| of_node.get(&node)).copied().unwrap_or(0);
    node_of.iter().map(count).collect()
}

/// Nodes that are the same to every class: by partitions, features, how large they are, for how long they are everybody's, and who
/// excludes them by name.
fn alike_nodes(
    nodes: &TiSlice<NodeIndex, NodeView>,
    classes: &TiSlice<ClassIndex, &WaitingJob>,
) -> TiVec<NodeIndex, usize> {
    let (_, exclusions) = grouped::<_, _, usize>(classes.iter().copied(), |job| &job.excluded_nodes);
    let mut excluded_by: FxHashMap<&NodeName, Vec<usize>> = FxHashMap::default();
    for (list, job) in exclusions.iter_enumerated() {
        for name in &job.excluded_nodes {
            excluded_by.entry(name).or_default().push(list);
        }
    }
    let (group_of, _) = grouped::<_, _, usize>(nodes, |node| {
        let NodeView { name, partitions, features, cpus, memory_mib, open_seconds, .. } = node;
        (partitions, features, cpus, memory_mib, open_seconds, excluded_by.get(name))
    });
    group_of.into()
}

/// For each device the first one on which the same runs in the same way: who joins either fares alike.
pub(crate) fn alike_hosts(
    view: &ClusterView,
    policy: &Policy,
    place_of: &TiSlice<DeviceIndex, PlaceIndex>,
) -> TiVec<DeviceIndex, DeviceIndex> {
    let views: &TiSlice<DeviceIndex, DeviceView> = view.devices.as_slice().as_ref();
    let busy: Vec<DeviceIndex> = views.keys().filter(|device| !views[*device].tenants.is_empty()).collect();
    let mut alike: TiVec<DeviceIndex, DeviceIndex> = views.keys().collect();
    for ratio in REMAINING_RATIOS {
        let (group_of, firsts) = grouped::<_, _, usize>(&busy, |device| {
            let host = &views[*device];
            let tenants: Vec<_> =
                host.tenants.iter().map(|tenant| tenant_key(tenant, view.taken_at, ratio)).collect();
            (place_of[*device], admit::may_be_joined(host, policy), tenants)
        });
        for (device, group) in busy.iter().zip(group_of) {
            alike[*device] = *firsts[group];
        }
        if firsts.len() <= HOSTS_MAX {
            break;
        }
    }
    alike
}

/// Everything about a tenant that a plan depends on.
fn tenant_key(tenant: &Tenant, now: UnixTime, ratio: f64) -> impl Hash + Eq + '_ {
    let promise = tenant.slowdown_ratio_max.value().to_bits();
    let is_guest = tenant.guest.is_some();
    let who =
        (&tenant.workload, tenant.uid, &tenant.account, promise, tenant.isolation, tenant.rules, is_guest);
    let cap = tenant.sharing.cap().map(|cap| cap.value().to_bits());
    let remaining =
        [tenant.expected_end_at, tenant.time_limit_at].map(|end| end.map(|end| step(now, end, ratio)));
    // No two first runs are known to be alike, and no two interactive jobs.
    let first_run = (tenant.first_run.is_some() || tenant.session.is_some()).then_some(tenant.job_id);
    (who, cap, tenant.sharing.ccs_mode(), tenant.memory_bytes, remaining, first_run)
}

/// Counts the steps of `ratio` from a minute to what is left.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm of seconds")]
fn step(now: UnixTime, end: UnixTime, ratio: f64) -> i64 {
    let minutes = end.seconds_since(now) / 60.0;
    (minutes.max(1.0).ln() / ratio.ln()).floor() as i64
}
