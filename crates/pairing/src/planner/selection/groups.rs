//! What is alike in everything that a sharing depends on is one group: the vertices of the graph, and its edges, which are
//! the sharings that could be between one of each group.

use super::ends::{Ends, last_end};
use super::question::Question;
use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::NodeClasses;
use crate::planner::index::{
    CandidateIndex, ClassIndex, DeviceIndex, GroupIndex, JobIndex, NodeClassIndex, PlaceIndex,
};
use crate::policy::UserPolicy;
use pillion_core::UserId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use typed_index_collections::TiVec;

/// Jobs or running hosts that are alike in everything that a sharing depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Primary { class: ClassIndex, place: PlaceIndex, node_class: NodeClassIndex, must_end: bool },
    Host { class: ClassIndex, place: PlaceIndex, node_class: NodeClassIndex },
    Running { device: DeviceIndex, node_class: NodeClassIndex, end: usize },
    Joiner { class: ClassIndex, must_end: bool },
}

/// One of a group.
#[derive(Debug, Clone, Copy)]
pub(super) enum Vertex {
    Job(JobIndex),
    Device(DeviceIndex),
}

impl Vertex {
    pub(super) fn job(self) -> Option<JobIndex> {
        match self {
            Self::Job(job) => Some(job),
            Self::Device(_) => None,
        }
    }
}

/// A job that another could join, and where.
#[derive(Clone, Copy)]
struct HostSite {
    class: ClassIndex,
    place: PlaceIndex,
    node_class: NodeClassIndex,
}

/// The groups, and their vertices in the order of placement or of devices.
pub(super) struct Groups<'g, 'a> {
    pub(super) context: &'g PlanContext<'a>,
    node_classes: NodeClasses,
    ends: Ends,
    pub(super) kinds: TiVec<GroupIndex, Group>,
    pub(super) vertices: TiVec<GroupIndex, Vec<Vertex>>,
}

/// A sharing between one of each group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) a: GroupIndex,
    pub(super) b: GroupIndex,
    pub(super) candidate: CandidateIndex,
}

impl<'g, 'a> Groups<'g, 'a> {
    pub(super) fn new(context: &'g PlanContext<'a>, question: &Question<'_>) -> Self {
        let mut groups = Self {
            context,
            node_classes: question.capacity.node_classes(context),
            ends: Ends::new(context),
            kinds: TiVec::new(),
            vertices: TiVec::new(),
        };
        let mut numbers = FxHashMap::default();
        for (job, device) in question.primaries {
            let HostSite { class, place, node_class } = groups.host_site(context.class_of[*job], *device);
            let must_end = question.cutoff.binds(*job);
            groups.add(
                &mut numbers,
                Group::Primary { class, place, node_class, must_end },
                Vertex::Job(*job),
            );
        }
        for (job, device) in question.hosts {
            let HostSite { class, place, node_class } = groups.host_site(context.class_of[*job], *device);
            groups.add(&mut numbers, Group::Host { class, place, node_class }, Vertex::Job(*job));
        }
        for device in question.joinable {
            let node_class = groups.node_classes.of_device(context, *device);
            let end = groups.ends.rank(last_end(context, *device));
            groups.add(
                &mut numbers,
                Group::Running { device: context.alike[*device], node_class, end },
                Vertex::Device(*device),
            );
        }
        for joiner in question.joiners {
            let (class, must_end) = (context.class_of[*joiner], question.cutoff.binds(*joiner));
            groups.add(&mut numbers, Group::Joiner { class, must_end }, Vertex::Job(*joiner));
        }
        groups
    }

    fn host_site(&self, class: ClassIndex, device: DeviceIndex) -> HostSite {
        let node_class = self.node_classes.of_device(self.context, device);
        HostSite { class, place: self.context.places.of_device[device], node_class }
    }

    fn add(&mut self, numbers: &mut FxHashMap<Group, GroupIndex>, group: Group, vertex: Vertex) {
        let number = *numbers.entry(group).or_insert_with(|| {
            self.kinds.push(group);
            self.vertices.push_and_get_key(Vec::new())
        });
        self.vertices[number].push(vertex);
    }

    /// What could be, of each two groups.
    pub(super) fn links(&self, candidates: &mut CandidateSet<'_, '_>) -> Vec<Link> {
        let mut links = Vec::new();
        let meets_others: TiVec<GroupIndex, bool> =
            self.kinds.keys().map(|group| self.meets_others(group)).collect();
        for (user, cohort) in self.cohorts(&meets_others) {
            for (at, a) in cohort.iter().enumerate() {
                // Nobody shares with himself.
                let is_one = self.vertices[*a].len() < 2;
                for b in &cohort[at + usize::from(is_one)..] {
                    // Of one user's those meet here of whom one may not meet others.
                    if user.is_some() && meets_others[*a] && meets_others[*b] {
                        continue;
                    }
                    let sharings = self.sharings(candidates, self.kinds[*a], self.kinds[*b]);
                    let possible = sharings.into_iter().flatten();
                    let possible = possible.filter(|candidate| !candidates.is_ruled_out(*candidate));
                    links.extend(possible.map(|candidate| Link { a: *a, b: *b, candidate }));
                }
            }
        }
        links
    }

    /// Groups that the rules on users let meet at all: those of one user, and all who may meet others.
    fn cohorts(&self, meets_others: &TiVec<GroupIndex, bool>) -> BTreeMap<Option<UserId>, Vec<GroupIndex>> {
        let mut cohorts: BTreeMap<Option<UserId>, Vec<GroupIndex>> = BTreeMap::new();
        let strict: BTreeSet<UserId> = self
            .kinds
            .keys()
            .filter(|group| !meets_others[*group])
            .filter_map(|group| self.user(group))
            .collect();
        for group in self.kinds.keys() {
            if meets_others[group] {
                cohorts.entry(None).or_default().push(group);
            }
            if let Some(user) = self.user(group).filter(|user| strict.contains(user)) {
                cohorts.entry(Some(user)).or_default().push(group);
            }
        }
        cohorts
    }

    /// Whose it is: of a device, whose its first tenant is.
    fn user(&self, group: GroupIndex) -> Option<UserId> {
        match self.kinds[group] {
            Group::Running { device, .. } => {
                self.context.devices[device].tenants.first().map(|tenant| tenant.uid)
            }
            Group::Primary { class, .. } | Group::Host { class, .. } | Group::Joiner { class, .. } => {
                Some(self.context.classes[class].uid)
            }
        }
    }

    /// Whether its rules let other users' jobs beside it, as far as it goes.
    fn meets_others(&self, group: GroupIndex) -> bool {
        let policy = self.context.policy;
        match self.kinds[group] {
            Group::Running { device, .. } => {
                let mut tenants = self.context.devices[device].tenants.iter();
                tenants.all(|tenant| tenant.rules(policy).users != UserPolicy::SameUser)
            }
            Group::Primary { class, .. } | Group::Host { class, .. } | Group::Joiner { class, .. } => {
                self.context.classes[class].rules(policy).users != UserPolicy::SameUser
            }
        }
    }

    /// How one of each group could share. The first comes before the second in `kinds`.
    fn sharings(
        &self,
        candidates: &mut CandidateSet<'_, '_>,
        first: Group,
        second: Group,
    ) -> [Option<CandidateIndex>; 2] {
        match (first, second) {
            // Two jobs that each have a right to a device may share one whatever their limits, since the other device
            // becomes free for those behind them.
            (
                Group::Primary { class, place, node_class, .. },
                Group::Primary { class: other, place: there, node_class: node_class_there, .. },
            ) => {
                let here = self.beside(candidates, HostSite { class, place, node_class }, other);
                let there = self.beside(
                    candidates,
                    HostSite { class: other, place: there, node_class: node_class_there },
                    class,
                );
                [here, there.filter(|there| here != Some(*there))]
            }
            (
                Group::Primary { class, place, node_class, .. } | Group::Host { class, place, node_class },
                Group::Joiner { class: joiner, must_end },
            ) => {
                let kind = self.context.places.kinds[place];
                let may_stay = !must_end || !self.ends.outlives_host(joiner, class, kind);
                [
                    may_stay
                        .then(|| self.beside(candidates, HostSite { class, place, node_class }, joiner))
                        .flatten(),
                    None,
                ]
            }
            (Group::Primary { class: joiner, must_end, .. }, Group::Running { device, node_class, end })
            | (Group::Running { device, node_class, end }, Group::Joiner { class: joiner, must_end }) => {
                let context = self.context;
                let may_stay = !must_end || !self.ends.outlives(joiner, context.kind_of[device], end);
                let fits = context.matches(joiner, device)
                    && self.node_classes.fits(context, node_class, joiner)
                    && context.sharer(joiner, context.kind_of[device]).is_ok();
                [(may_stay && fits).then(|| candidates.join(joiner, device)), None]
            }
            _ => [None, None],
        }
    }

    fn beside(
        &self,
        candidates: &mut CandidateSet<'_, '_>,
        HostSite { class, place, node_class }: HostSite,
        joiner: ClassIndex,
    ) -> Option<CandidateIndex> {
        let context = self.context;
        let kind = context.places.kinds[place];
        let fits =
            context.places.matches(joiner, place) && self.node_classes.fits(context, node_class, joiner);
        let may_share = fits && context.sharer(class, kind).is_ok() && context.sharer(joiner, kind).is_ok();
        may_share.then(|| candidates.pair(class, joiner, kind))
    }
}
