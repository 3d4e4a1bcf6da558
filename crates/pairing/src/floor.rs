//! What is free, as it is handed out: devices, and the CPUs and memory of their nodes. Things only become less free, so
//! that places in lists need not be looked at twice. Must not decide the order.

use crate::session::Session;
use crate::view::AloneClaim;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    free: Vec<bool>,
    cpus: Vec<u32>,
    memory_mib: Vec<u64>,
    /// Nodes kept for an earlier job that lacks CPUs or memory there.
    kept: Vec<bool>,
    /// By place and demand: how many of the place's devices are no use for it any more.
    passed: Vec<usize>,
    /// By place: how many are not free, or kept.
    passed_by_all: Vec<usize>,
}

impl Floor {
    /// What is wholly free now, less what Slurm is about to give to jobs alone; and whether such a job has to wait.
    pub(crate) fn new(session: &Session<'_>) -> (Self, bool) {
        let view = session.view;
        let is_free = |device: usize| {
            let free = view.devices[device].tenants.is_empty() && view.devices[device].shards_free >= 100;
            free && session.open_node(device).is_some()
        };
        let mut floor = Self {
            free: (0..view.devices.len()).map(is_free).collect(),
            cpus: view.nodes.iter().map(|node| node.cpus_free).collect(),
            memory_mib: view.nodes.iter().map(|node| node.memory_mib_free).collect(),
            kept: vec![false; view.nodes.len()],
            passed: vec![0; session.places.count() * session.demands.len()],
            passed_by_all: vec![0; session.places.count()],
        };
        // Those that can run in fewer places first; from the end, where ours come last.
        let mut claims: Vec<&AloneClaim> = view.alone_claims.iter().collect();
        claims.sort_by_key(|claim| {
            if claim.required_nodes.is_empty() { usize::MAX } else { claim.required_nodes.len() }
        });
        let mut one_waits = false;
        for claim in claims {
            let fits = |device: &usize| {
                let node = &view.devices[*device].node;
                floor.free[*device]
                    && (claim.required_nodes.is_empty() || claim.required_nodes.contains(node))
            };
            match (0..view.devices.len()).rev().find(fits) {
                Some(device) => floor.free[device] = false,
                None => one_waits = true,
            }
        }
        (floor, one_waits)
    }

    pub(crate) fn is_free(&self, device: usize) -> bool {
        self.free[device]
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.iter().filter(|free| **free).count()
    }

    /// Whether the device's node has the CPUs and the memory for one more job of this class, and is not kept for an
    /// earlier one.
    pub(crate) fn has_room(&self, session: &Session<'_>, device: usize, class: usize) -> bool {
        session.open_node(device).is_some_and(|(node, _)| self.node_has_room(session, node, class))
    }

    fn node_has_room(&self, session: &Session<'_>, node: usize, class: usize) -> bool {
        self.meets(node, session.demands[session.demand_of[class]])
    }

    fn meets(&self, node: usize, (cpus, memory_mib): (u32, u64)) -> bool {
        !self.kept[node] && self.cpus[node] >= cpus && self.memory_mib[node] >= memory_mib
    }

    /// For each node a number that tells which demands it meets, equal for nodes that meet the same; 0 = none.
    pub(crate) fn rooms(&self, session: &Session<'_>) -> Rooms {
        let mut numbers = BTreeMap::from([(vec![false; session.demands.len()], 0)]);
        let of_node = (0..self.kept.len()).map(|node| {
            let met: Vec<bool> = session.demands.iter().map(|demand| self.meets(node, *demand)).collect();
            let next = numbers.len();
            *numbers.entry(met).or_insert(next)
        });
        let of_node = of_node.collect();
        let mut met = vec![Vec::new(); numbers.len()];
        for (demands, number) in numbers {
            met[number] = demands;
        }
        Rooms { of_node, met }
    }

    /// Gives a job of this class its part of a device's node, and the device.
    pub(crate) fn take(&mut self, session: &Session<'_>, device: usize, class: usize) {
        let (cpus, memory_mib) = session.demands[session.demand_of[class]];
        self.free[device] = false;
        if let Some((node, _)) = session.open_node(device) {
            self.cpus[node] = self.cpus[node].saturating_sub(cpus);
            self.memory_mib[node] = self.memory_mib[node].saturating_sub(memory_mib);
        }
    }

    /// A free device for a job of this class: the one preferred, else the first where its workload may share, else the
    /// first.
    pub(crate) fn find(
        &mut self,
        session: &Session<'_>,
        class: usize,
        preferred: Option<usize>,
    ) -> Option<usize> {
        let fits = |device: &usize| {
            self.free[*device] && session.matches(class, *device) && self.has_room(session, *device, class)
        };
        if let Some(device) = preferred.filter(fits) {
            return Some(device);
        }
        let mut best: Option<(bool, usize)> = None;
        for place in 0..session.places.count() {
            if session.places.matches(class, place)
                && let Some(device) = self.first_with_room(session, place, class)
            {
                let found = (session.sharer(class, session.places.kinds[place]).is_err(), device);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        best.map(|(_, device)| device)
    }

    fn first_with_room(&mut self, session: &Session<'_>, place: usize, class: usize) -> Option<usize> {
        let open = &session.places.open[place];
        let at = place * session.demands.len() + session.demand_of[class];
        while let Some(device) = open.get(self.passed[at]).copied() {
            if self.free[device] && self.has_room(session, device, class) {
                return Some(device);
            }
            self.passed[at] += 1;
        }
        None
    }

    /// A free device that would do if its node had CPUs and memory enough.
    pub(crate) fn find_but_for_room(&mut self, session: &Session<'_>, class: usize) -> Option<usize> {
        let matching = (0..session.places.count()).filter(|place| session.places.matches(class, *place));
        let places: Vec<usize> = matching.collect();
        places.into_iter().filter_map(|place| self.first_free(session, place)).min()
    }

    fn first_free(&mut self, session: &Session<'_>, place: usize) -> Option<usize> {
        let open = &session.places.open[place];
        while let Some(device) = open.get(self.passed_by_all[place]).copied() {
            let is_kept = session.node_of[device].is_none_or(|node| self.kept[node]);
            if self.free[device] && !is_kept {
                return Some(device);
            }
            self.passed_by_all[place] += 1;
        }
        None
    }

    pub(crate) fn keep_node_of(&mut self, session: &Session<'_>, device: usize) {
        if let Some(node) = session.node_of[device] {
            self.kept[node] = true;
        }
    }
}

/// What nodes have room for.
pub(crate) struct Rooms {
    /// The room of each node.
    of_node: Vec<usize>,
    /// Which demands each room meets.
    met: Vec<Vec<bool>>,
}

impl Rooms {
    /// The room of a device's node; 0 = none for anybody.
    pub(crate) fn of_device(&self, session: &Session<'_>, device: usize) -> usize {
        session.open_node(device).map_or(0, |(node, _)| self.of_node[node])
    }

    pub(crate) fn fits(&self, session: &Session<'_>, room: usize, class: usize) -> bool {
        self.met[room][session.demand_of[class]]
    }
}
