//! From a matching of groups back to jobs: partners, the first vertices first, where their nodes have CPUs and memory for it.

use super::groups::{Group, Groups, Vertex};
use super::question::{Partner, Question};
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{ClassIndex, DeviceIndex, GroupIndex, JobIndex};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// Turns a matching of groups into partners, the first vertices first.
pub(super) struct Assigner<'d, 'a> {
    context: &'d PlanContext<'a>,
    groups: &'d Groups<'d, 'a>,
    /// Of primaries and hosts.
    devices: FxHashMap<JobIndex, DeviceIndex>,
    /// As joiners take their parts of it.
    capacity: FreeCapacity,
    next: TiVec<GroupIndex, usize>,
    pub(super) partners: BTreeMap<JobIndex, Partner>,
}

impl<'d, 'a> Assigner<'d, 'a> {
    pub(super) fn new(groups: &'d Groups<'d, 'a>, question: &Question<'_>) -> Self {
        Self {
            context: groups.context,
            groups,
            devices: question.primaries.iter().chain(question.hosts).copied().collect(),
            capacity: question.capacity.clone(),
            next: vec![0; groups.kinds.len()].into(),
            partners: BTreeMap::new(),
        }
    }

    /// One pair of these groups, where the node still has CPUs and memory for it.
    pub(super) fn assign(&mut self, first: GroupIndex, second: GroupIndex) {
        match (self.groups.kinds[first], self.groups.kinds[second]) {
            (Group::Primary { .. }, Group::Primary { .. }) => {
                if let (Some(one), Some(other)) = (self.take_job(first), self.take_job(second)) {
                    self.partners.insert(one, Partner::Job(other));
                    self.partners.insert(other, Partner::Job(one));
                }
            }
            (Group::Primary { .. } | Group::Host { .. }, Group::Joiner { class, .. }) => {
                if let (Some(host), Some(joiner)) = (self.take_host(first, class), self.take_job(second)) {
                    self.partners.insert(host, Partner::Job(joiner));
                    self.partners.insert(joiner, Partner::Job(host));
                }
            }
            (Group::Primary { class, .. }, Group::Running { .. }) => self.assign_join(second, first, class),
            (Group::Running { .. }, Group::Joiner { class, .. }) => self.assign_join(first, second, class),
            _ => {}
        }
    }

    fn assign_join(&mut self, running: GroupIndex, joiners: GroupIndex, class: ClassIndex) {
        if let (Some(device), Some(joiner)) = (self.take_running(running, class), self.take_job(joiners)) {
            self.partners.insert(joiner, Partner::Device(device));
        }
    }

    fn take(&mut self, group: GroupIndex) -> Option<Vertex> {
        let vertex = self.groups.vertices[group].get(self.next[group]).copied()?;
        self.next[group] += 1;
        Some(vertex)
    }

    fn take_job(&mut self, group: GroupIndex) -> Option<JobIndex> {
        self.take(group)?.job()
    }

    /// The next job of a group on whose node a joiner of this class still fits; the others are passed over.
    fn take_host(&mut self, group: GroupIndex, joiner: ClassIndex) -> Option<JobIndex> {
        loop {
            let host = self.take_job(group)?;
            let device = *self.devices.get(&host)?;
            if self.reserve(device, joiner) {
                return Some(host);
            }
        }
    }

    /// Likewise the next device that may be joined.
    fn take_running(&mut self, group: GroupIndex, joiner: ClassIndex) -> Option<DeviceIndex> {
        loop {
            let Vertex::Device(device) = self.take(group)? else { return None };
            if self.reserve(device, joiner) {
                return Some(device);
            }
        }
    }

    /// Takes a joiner's part of a device's node, where there is enough of it.
    fn reserve(&mut self, device: DeviceIndex, joiner: ClassIndex) -> bool {
        let node_meets = self.capacity.node_meets(self.context, device, joiner);
        if node_meets {
            self.capacity.take(self.context, device, joiner);
        }
        node_meets
    }
}
