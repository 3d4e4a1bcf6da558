//! What is alike among devices, so that thousands of them are looked at as a few: *places* are alike for every job that
//! might start there, *hosts* are alike in what runs on them. Knows the snapshot only; must not choose.

use crate::admit;
use crate::policy::Policy;
use crate::view::{ClusterView, NodeView, Tenant, WaitingJob};
use pillion_core::{NodeName, UnixTime};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Running hosts are told apart by the time that is left to them in steps of this ratio, or of the next where there are
/// too many of them.
const REMAINING_RATIOS: [f64; 4] = [1.05, 1.25, 2.0, f64::INFINITY];
/// So many hosts that are not alike are fine.
const HOSTS_MAX: usize = 500;

/// Numbers what is equal by `key`, in the order of first appearance: the group of each item, and the first item of each.
pub(crate) fn grouped<'a, T, K: Hash + Eq>(
    items: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> (Vec<usize>, Vec<&'a T>) {
    let mut groups: FxHashMap<K, usize> = FxHashMap::default();
    let mut firsts = Vec::new();
    let group_of = items
        .into_iter()
        .map(|item| {
            *groups.entry(key(item)).or_insert_with(|| {
                firsts.push(item);
                firsts.len() - 1
            })
        })
        .collect();
    (group_of, firsts)
}

/// Devices by where they are.
pub(crate) struct Places {
    /// The place of each device.
    pub(crate) of_device: Vec<usize>,
    /// The kind of the devices of each place.
    pub(crate) kinds: Vec<usize>,
    /// The devices of each place that take something now.
    pub(crate) open: Vec<Vec<usize>>,
    /// Whether a class can run at a place, whatever is free there: by class, then place.
    matches: Vec<bool>,
}

impl Places {
    /// `kind_of` and `node_of` by device.
    pub(crate) fn new(
        view: &ClusterView,
        classes: &[&WaitingJob],
        kind_of: &[usize],
        node_of: &[Option<usize>],
    ) -> Self {
        let group_of_node = alike_nodes(&view.nodes, classes);
        let devices: Vec<usize> = (0..view.devices.len()).collect();
        let (of_device, firsts) = grouped(&devices, |device| {
            let group = node_of[*device].map(|node| group_of_node[node]);
            (group, kind_of[*device], &view.devices[*device].gpu_types)
        });
        let mut open = vec![Vec::new(); firsts.len()];
        for (device, place) in of_device.iter().enumerate() {
            let node = node_of[device].map(|node| &view.nodes[node]);
            if view.devices[device].blocked.is_none() && node.is_some_and(|node| node.blocked.is_none()) {
                open[*place].push(device);
            }
        }
        let matching = |job: &WaitingJob, device: usize| {
            node_of[device]
                .is_some_and(|node| admit::matches_device(job, &view.nodes[node], &view.devices[device]))
        };
        let of_class = |job| firsts.iter().map(move |device| matching(job, **device));
        Self {
            kinds: firsts.iter().map(|device| kind_of[**device]).collect(),
            matches: classes.iter().flat_map(|job| of_class(job)).collect(),
            of_device,
            open,
        }
    }

    /// How many kinds of devices there are.
    pub(crate) fn kind_count(&self) -> usize {
        self.kinds.iter().max().map_or(0, |last| last + 1)
    }

    pub(crate) fn count(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn matches(&self, class: usize, place: usize) -> bool {
        self.matches[class * self.kinds.len() + place]
    }
}

/// Nodes that are the same to every class: by partitions, features, and who excludes them by name.
fn alike_nodes(nodes: &[NodeView], classes: &[&WaitingJob]) -> Vec<usize> {
    let (_, exclusions) = grouped(classes.iter().copied(), |job| &job.excluded_nodes);
    let mut excluded_by: FxHashMap<&NodeName, Vec<usize>> = FxHashMap::default();
    for (list, job) in exclusions.iter().enumerate() {
        for name in &job.excluded_nodes {
            excluded_by.entry(name).or_default().push(list);
        }
    }
    let key = |node: &'_ &NodeView| excluded_by.get(&node.name);
    let all: Vec<&NodeView> = nodes.iter().collect();
    grouped(&all, |node| (&node.partitions, &node.features, key(node))).0
}

/// For each device the first one on which the same runs in the same way: who joins either fares alike.
pub(crate) fn alike_hosts(view: &ClusterView, policy: &Policy, place_of: &[usize]) -> Vec<usize> {
    let busy: Vec<usize> =
        (0..view.devices.len()).filter(|device| !view.devices[*device].tenants.is_empty()).collect();
    let mut alike: Vec<usize> = (0..view.devices.len()).collect();
    for ratio in REMAINING_RATIOS {
        let (group_of, firsts) = grouped(&busy, |device| {
            let host = &view.devices[*device];
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

/// Everything about a tenant that a plan looks at.
fn tenant_key(tenant: &Tenant, now: UnixTime, ratio: f64) -> impl Hash + Eq + '_ {
    let who = (&tenant.workload, tenant.uid, &tenant.account, tenant.slowdown_ratio_max.value().to_bits());
    let cap = tenant.cap_fraction.map(|cap| cap.value().to_bits());
    let remaining =
        [tenant.expected_end_at, tenant.time_limit_at].map(|end| end.map(|end| step(now, end, ratio)));
    (who, cap, tenant.ccs_mode, tenant.memory_bytes, remaining)
}

/// Counts the steps of `ratio` from a minute to what is left.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm of seconds")]
fn step(now: UnixTime, end: UnixTime, ratio: f64) -> i64 {
    let minutes = end.seconds_since(now) / 60.0;
    (minutes.max(1.0).ln() / ratio.ln()).floor() as i64
}
