//! What is free, as it is handed out: devices, and the CPUs and memory of their nodes. Things only become less free, so
//! that no place in a list is tried twice. Must not decide the order.

use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DemandIndex, DeviceIndex, NodeClassIndex, NodeIndex, PlaceIndex};
use crate::view::{AloneClaim, Demand};
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct FreeCapacity {
    free: TiVec<DeviceIndex, bool>,
    cpus: TiVec<NodeIndex, u32>,
    memory_mib: TiVec<NodeIndex, u64>,
    /// Nodes kept for an earlier job that lacks CPUs or memory there.
    kept: TiVec<NodeIndex, bool>,
    /// By place and demand: how many of the place's devices are no use for it any more.
    passed: TiVec<PlaceIndex, TiVec<DemandIndex, usize>>,
    /// By place: how many are not free, or kept.
    passed_by_all: TiVec<PlaceIndex, usize>,
}

impl FreeCapacity {
    /// What is wholly free now, less what Slurm is about to give to jobs alone; and whether such a job has to wait.
    pub(crate) fn new(context: &PlanContext<'_>) -> (Self, bool) {
        let view = context.view;
        let free = context
            .devices
            .iter_enumerated()
            .map(|(device, view)| view.is_wholly_free() && context.open_node(device).is_some());
        let mut capacity = Self {
            free: free.collect(),
            cpus: view.nodes.iter().map(|node| node.cpus_free).collect(),
            memory_mib: view.nodes.iter().map(|node| node.memory_mib_free).collect(),
            kept: vec![false; view.nodes.len()].into(),
            passed: vec![vec![0; context.demands.len()].into(); context.places.count()].into(),
            passed_by_all: vec![0; context.places.count()].into(),
        };
        // Those that can run in fewer places first; from the end, where ours come last.
        let mut claims: Vec<&AloneClaim> = view.alone_claims.iter().collect();
        claims.sort_by_key(|claim| claim.place_count());
        let mut one_waits = false;
        for claim in claims {
            one_waits |= !capacity.take_claim(context, claim);
        }
        (capacity, one_waits)
    }

    /// Gives a job that Slurm starts by itself a device; `false`: none is free. Where no node with one has CPUs for it, any that is large
    /// enough will do: it starts there when it has.
    fn take_claim(&mut self, context: &PlanContext<'_>, claim: &AloneClaim) -> bool {
        let (demand, may_run_on) = (claim.demand(), claim.may_run_on());
        let is_large_enough = |node: NodeIndex| context.view.nodes[usize::from(node)].is_large_enough(demand);
        let free = || {
            let devices = context.devices.keys().rev();
            devices.filter(|device| {
                self.free[*device]
                    && may_run_on(&context.devices[*device].node)
                    && context.node_of[*device].is_none_or(is_large_enough)
            })
        };
        let has_cpus =
            |device: &DeviceIndex| context.open_node(*device).is_some_and(|node| self.meets(node, demand));
        let Some(device) = free().find(has_cpus).or_else(|| free().next()) else { return false };
        self.occupy(context, device, demand);
        true
    }

    pub(crate) fn is_free(&self, device: DeviceIndex) -> bool {
        self.free[device]
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.iter().filter(|free| **free).count()
    }

    /// Whether the device's node has the CPUs and the memory for one more job of this class, and is not kept for an
    /// earlier one.
    pub(crate) fn node_meets(
        &self,
        context: &PlanContext<'_>,
        device: DeviceIndex,
        class: ClassIndex,
    ) -> bool {
        let demand = context.demands[context.demand_of[class]];
        context.open_node(device).is_some_and(|node| self.meets(node, demand))
    }

    fn meets(&self, node: NodeIndex, (cpus, memory_mib): Demand) -> bool {
        !self.kept[node] && self.cpus[node] >= cpus && self.memory_mib[node] >= memory_mib
    }

    /// For each node a number that tells which demands it meets, equal for nodes that meet the same; 0 = none.
    pub(crate) fn node_classes(&self, context: &PlanContext<'_>) -> NodeClasses {
        let mut numbers = BTreeMap::from([(vec![false; context.demands.len()], NodeClassIndex::from(0))]);
        let of_node = self.kept.keys().map(|node| {
            let met: Vec<bool> = context.demands.iter().map(|demand| self.meets(node, *demand)).collect();
            let next = NodeClassIndex::from(numbers.len());
            *numbers.entry(met).or_insert(next)
        });
        let of_node = of_node.collect();
        let mut met: TiVec<NodeClassIndex, TiVec<DemandIndex, bool>> =
            vec![TiVec::new(); numbers.len()].into();
        for (demands, number) in numbers {
            met[number] = demands.into();
        }
        NodeClasses { of_node, met }
    }

    /// Gives a job of this class its part of a device's node, and the device.
    pub(crate) fn take(&mut self, context: &PlanContext<'_>, device: DeviceIndex, class: ClassIndex) {
        self.occupy(context, device, context.demands[context.demand_of[class]]);
    }

    fn occupy(&mut self, context: &PlanContext<'_>, device: DeviceIndex, (cpus, memory_mib): Demand) {
        self.free[device] = false;
        if let Some(node) = context.open_node(device) {
            self.cpus[node] = self.cpus[node].saturating_sub(cpus);
            self.memory_mib[node] = self.memory_mib[node].saturating_sub(memory_mib);
        }
    }

    /// A free device for a job of this class: the one preferred, else the first where its workload may share, else the
    /// first. First come those of nodes of which few are free.
    pub(crate) fn find(
        &mut self,
        context: &PlanContext<'_>,
        class: ClassIndex,
        preferred: Option<DeviceIndex>,
    ) -> Option<DeviceIndex> {
        if let Some(device) = preferred
            && self.free[device]
            && context.matches(class, device)
            && self.node_meets(context, device, class)
        {
            return Some(device);
        }
        let mut best: Option<(bool, usize, DeviceIndex)> = None;
        for place in context.places.of_class(class) {
            if let Some(device) = self.first_that_fits(context, place, class) {
                let is_alone = context.sharer(class, context.places.kinds[place]).is_err();
                let found = (is_alone, context.places.free_beside[device], device);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        best.map(|(.., device)| device)
    }

    fn first_that_fits(
        &mut self,
        context: &PlanContext<'_>,
        place: PlaceIndex,
        class: ClassIndex,
    ) -> Option<DeviceIndex> {
        let open = &context.places.open[place];
        let demand = context.demand_of[class];
        while let Some(device) = open.get(self.passed[place][demand]).copied() {
            if self.free[device] && self.node_meets(context, device, class) {
                return Some(device);
            }
            self.passed[place][demand] += 1;
        }
        None
    }

    /// A free device that would do if its node had CPUs and memory enough.
    pub(crate) fn find_ignoring_node(
        &mut self,
        context: &PlanContext<'_>,
        class: ClassIndex,
    ) -> Option<DeviceIndex> {
        context.places.of_class(class).filter_map(|place| self.first_free(context, place)).min()
    }

    fn first_free(&mut self, context: &PlanContext<'_>, place: PlaceIndex) -> Option<DeviceIndex> {
        let open = &context.places.open[place];
        while let Some(device) = open.get(self.passed_by_all[place]).copied() {
            let is_kept = context.node_of[device].is_none_or(|node| self.kept[node]);
            if self.free[device] && !is_kept {
                return Some(device);
            }
            self.passed_by_all[place] += 1;
        }
        None
    }

    pub(crate) fn keep_node_of(&mut self, context: &PlanContext<'_>, device: DeviceIndex) {
        if let Some(node) = context.node_of[device] {
            self.kept[node] = true;
        }
    }
}

/// Nodes by which demands they meet.
pub(crate) struct NodeClasses {
    /// The class of each node.
    of_node: TiVec<NodeIndex, NodeClassIndex>,
    /// Which demands each class of nodes meets.
    met: TiVec<NodeClassIndex, TiVec<DemandIndex, bool>>,
}

impl NodeClasses {
    /// The class of a device's node; 0 = it meets no demand.
    pub(crate) fn of_device(&self, context: &PlanContext<'_>, device: DeviceIndex) -> NodeClassIndex {
        context.open_node(device).map_or(NodeClassIndex::from(0), |node| self.of_node[node])
    }

    pub(crate) fn fits(
        &self,
        context: &PlanContext<'_>,
        node_class: NodeClassIndex,
        class: ClassIndex,
    ) -> bool {
        self.met[node_class][context.demand_of[class]]
    }
}
