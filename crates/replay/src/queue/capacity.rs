//! What is free on each node, and where a job finds what it asks for.

use super::{Demand, Limits, QueueNode};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a job holds of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) node: usize,
    gpus: u32,
    cpus: u32,
    memory_mib: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    gpus: u32,
    cpus: u32,
    memory_mib: u64,
}

impl Free {
    fn meets(&self, demand: &Demand) -> bool {
        self.gpus >= demand.gpus && self.cpus >= demand.cpus && self.memory_mib >= demand.memory_mib
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    free: Vec<Free>,
    /// By class, the nodes on which it may run; classes of one partition and type share a list. The same for every copy.
    places: Arc<[Arc<[usize]>]>,
}

impl Capacity {
    pub(super) fn new(nodes: &[QueueNode], demands: &[Demand]) -> Self {
        let mut lists: FxHashMap<(u32, Option<u32>), Arc<[usize]>> = FxHashMap::default();
        let places = demands.iter().map(|demand| {
            let list = lists.entry((demand.partition, demand.gpu_type)).or_insert_with(|| {
                let may_run = |node: &QueueNode| {
                    let in_partition =
                        node.partitions.as_ref().is_none_or(|names| names.contains(&demand.partition));
                    in_partition && demand.gpu_type.is_none_or(|wanted| node.gpu_type == Some(wanted))
                };
                nodes.iter().enumerate().filter(|(_, node)| may_run(node)).map(|(at, _)| at).collect()
            });
            Arc::clone(list)
        });
        let places = places.collect();
        let free =
            nodes.iter().map(|node| Free { gpus: node.gpus, cpus: node.cpus, memory_mib: node.memory_mib });
        Self { free: free.collect(), places }
    }

    /// Whether one of these nodes alone could take a part of it now.
    pub(super) fn has_met(&self, demand: &Demand, parts: &[Part]) -> bool {
        parts.iter().any(|part| self.free[part.node].meets(demand))
    }

    /// The nodes that would be left with the fewest free GPUs; `None`: there are too few.
    pub(super) fn find(
        &self,
        demand: &Demand,
        class: usize,
        limits: Option<&Limits<'_>>,
    ) -> Option<Vec<Part>> {
        let part =
            |node: usize| Part { node, gpus: demand.gpus, cpus: demand.cpus, memory_mib: demand.memory_mib };
        let fitting = self.places[class].iter().copied().filter(|node| {
            self.free[*node].meets(demand) && limits.is_none_or(|limits| limits.allows(*node, demand))
        });
        if demand.nodes == 1 {
            return fitting.min_by_key(|node| self.free[*node].gpus).map(|node| vec![part(node)]);
        }
        let mut fitting: Vec<usize> = fitting.collect();
        if fitting.len() < demand.nodes as usize {
            return None;
        }
        fitting.sort_by_key(|node| self.free[*node].gpus);
        Some(fitting.into_iter().take(demand.nodes as usize).map(part).collect())
    }

    pub(super) fn take(&mut self, parts: &[Part]) {
        for part in parts {
            let free = &mut self.free[part.node];
            let left =
                |free: u32, taken: u32| free.checked_sub(taken).expect("a place is found before it is taken");
            free.gpus = left(free.gpus, part.gpus);
            free.cpus = left(free.cpus, part.cpus);
            free.memory_mib -= part.memory_mib;
        }
    }

    pub(super) fn give_back(&mut self, parts: &[Part]) {
        for part in parts {
            let free = &mut self.free[part.node];
            free.gpus += part.gpus;
            free.cpus += part.cpus;
            free.memory_mib += part.memory_mib;
        }
    }
}

/// A place that is kept for somebody from a time on.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    pub(super) at: u64,
    /// Of each of its nodes, what will be free then besides it.
    besides: BTreeMap<usize, Free>,
}

impl Reservation {
    /// `then`: what is free at that time, without what is kept.
    pub(super) fn new(at: u64, parts: &[Part], then: &Capacity) -> Self {
        Self { at, besides: parts.iter().map(|part| (part.node, then.free[part.node])).collect() }
    }

    /// Whether somebody may hold so much of a node when it comes.
    pub(super) fn leaves(&self, node: usize, demand: &Demand) -> bool {
        self.besides.get(&node).is_none_or(|free| free.meets(demand))
    }
}
