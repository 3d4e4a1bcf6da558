//! Step 3: of all candidates, those that gain most together. Jobs that have a right to a device, running hosts that may be
//! joined, and joiners are the vertices of a graph, candidates its edges. What is alike is one class of the matching, so
//! that its size grows with the workloads and not with the queue. Must not hand out devices.

mod assign;
mod budget;

use crate::planner::admit;
use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::classes::PlanContext;
use crate::planner::index::{
    CandidateIndex, ClassIndex, DeviceIndex, GroupIndex, JobIndex, NodeClassIndex, PlaceIndex,
};
use crate::planner::placement::free_capacity::{FreeCapacity, NodeClasses};
use crate::planner::rounds::Cutoff;
use crate::policy::UserPolicy;
use assign::Assigner;
use budget::{Choice, Way};
use pillion_core::{UnixTime, UserId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// How often the choice is made anew at most, because evaluating what is not in it could still change it.
const EVALUATION_ROUNDS_MAX: usize = 3;
/// So many candidates of each group are evaluated at a time.
const EVALUATED_AT_ONCE_MAX: usize = 12;

/// With whom a job is to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Another waiting job, by its place in the queue.
    Job(JobIndex),
    /// What runs on this device.
    Device(DeviceIndex),
}

/// What is to be matched.
pub(crate) struct Question<'q> {
    /// Jobs with a right to a device, and the device on which sharing with them is evaluated.
    pub(crate) primaries: &'q [(JobIndex, DeviceIndex)],
    /// Jobs that start alone on a device for certain.
    pub(crate) hosts: &'q [(JobIndex, DeviceIndex)],
    /// Devices that may be joined.
    pub(crate) joinable: &'q [DeviceIndex],
    /// All other jobs that could start now, in the order of placement.
    pub(crate) joiners: &'q [JobIndex],
    /// Who must not hold a device longer than the host.
    pub(crate) cutoff: Cutoff,
    /// CPUs and memory of the nodes once the primaries have theirs.
    pub(crate) capacity: &'q FreeCapacity,
    /// How many more promises may be expected to break than the new sharings bring along.
    pub(crate) allowance: f64,
}

/// Jobs or running hosts that are alike in everything that a sharing depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Primary { class: ClassIndex, place: PlaceIndex, node_class: NodeClassIndex, must_end: bool },
    Host { class: ClassIndex, place: PlaceIndex, node_class: NodeClassIndex },
    Running { device: DeviceIndex, node_class: NodeClassIndex, end: usize },
    Joiner { class: ClassIndex, must_end: bool },
}

/// One of a group.
#[derive(Debug, Clone, Copy)]
enum Vertex {
    Job(JobIndex),
    Device(DeviceIndex),
}

impl Vertex {
    fn job(self) -> Option<JobIndex> {
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
struct Groups<'g, 'a> {
    context: &'g PlanContext<'a>,
    node_classes: NodeClasses,
    ends: Ends,
    kinds: TiVec<GroupIndex, Group>,
    vertices: TiVec<GroupIndex, Vec<Vertex>>,
}

/// A sharing between one of each group.
#[derive(Debug, Clone, Copy)]
struct Link {
    a: GroupIndex,
    b: GroupIndex,
    candidate: CandidateIndex,
}

/// The partners that gain most together, within the budget of broken promises.
pub(crate) fn select(
    candidates: &mut CandidateSet<'_, '_>,
    question: &Question<'_>,
) -> BTreeMap<JobIndex, Partner> {
    // 1. What is alike is one group, so that the matching grows with the workloads.
    let groups = Groups::new(candidates.context, question);
    // 2. Which groups could share, and what that is worth at the price of one estimate.
    let links = groups.links(candidates);
    candidates.screen();
    // 3. How often each is chosen, evaluating more where that could change the choice.
    let chosen = groups.choose(candidates, &links, question.allowance);
    // 4. Back from groups to jobs, the first ones first.
    let mut assigner = Assigner::new(&groups, question);
    for (link, count) in links.iter().zip(chosen) {
        for _ in 0..count {
            assigner.assign(link.a, link.b);
        }
    }
    assigner.partners
}

impl<'g, 'a> Groups<'g, 'a> {
    fn new(context: &'g PlanContext<'a>, question: &Question<'_>) -> Self {
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
    fn links(&self, candidates: &mut CandidateSet<'_, '_>) -> Vec<Link> {
        let mut links = Vec::new();
        for cohort in self.cohorts() {
            for (at, a) in cohort.iter().enumerate() {
                for b in &cohort[at..] {
                    let sharings = self.sharings(candidates, self.kinds[*a], self.kinds[*b]);
                    let possible = sharings.into_iter().flatten();
                    let possible = possible.filter(|candidate| !candidates.is_ruled_out(*candidate));
                    links.extend(possible.map(|candidate| Link { a: *a, b: *b, candidate }));
                }
            }
        }
        links
    }

    /// How often each link is chosen. What could turn out to be good enough is evaluated, until none is left.
    fn choose(&self, candidates: &mut CandidateSet<'_, '_>, links: &[Link], allowance: f64) -> Vec<u32> {
        let counts: Vec<u32> =
            self.vertices.iter().map(|vertices| u32::try_from(vertices.len()).unwrap_or(u32::MAX)).collect();
        for _ in 0..EVALUATION_ROUNDS_MAX {
            let known = Known::new(candidates, links);
            let near = budget::near(&counts, &known.ways, allowance, candidates.risk_price);
            candidates.risk_price = near.risk_price;
            let promising = self.promising(candidates, links, &near.prices);
            if promising.is_empty() && budget::is_settled(&counts, &known.ways, allowance, &near) {
                return known.taken(&near, links.len());
            }
            if promising.is_empty() {
                break;
            }
            candidates.evaluate(&promising);
        }
        let known = Known::new(candidates, links);
        let choice = budget::choose(&counts, &known.ways, allowance, candidates.risk_price);
        candidates.risk_price = choice.risk_price;
        known.taken(&choice, links.len())
    }

    /// The sharings that could turn out to be worth more than their two ends are now: the most promising of each group.
    fn promising(
        &self,
        candidates: &CandidateSet<'_, '_>,
        links: &[Link],
        prices: &[f64],
    ) -> Vec<CandidateIndex> {
        let mut all: Vec<(f64, GroupIndex, GroupIndex, CandidateIndex)> = Vec::new();
        for link in links {
            let Some(weight_bound) = candidates.known(link.candidate).weight_bound else { continue };
            let more = weight_bound - prices[usize::from(link.a)] - prices[usize::from(link.b)];
            if more > 0.0 {
                all.push((more, link.a, link.b, link.candidate));
            }
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.3.cmp(&b.3)));
        let mut seen: TiVec<GroupIndex, usize> = vec![0; self.kinds.len()].into();
        let mut promising: Vec<CandidateIndex> = Vec::new();
        for (_, a, b, candidate) in all {
            if seen[a].min(seen[b]) < EVALUATED_AT_ONCE_MAX {
                (seen[a], seen[b]) = (seen[a] + 1, seen[b] + 1);
                promising.push(candidate);
            }
        }
        promising.sort_unstable();
        promising.dedup();
        promising
    }

    /// Groups that the policy on users lets meet at all.
    fn cohorts(&self) -> Vec<Vec<GroupIndex>> {
        let mut cohorts: BTreeMap<Option<UserId>, Vec<GroupIndex>> = BTreeMap::new();
        for (number, group) in self.kinds.iter_enumerated() {
            let user = match (self.context.policy.users, *group) {
                (UserPolicy::SameAccount | UserPolicy::Any, _) => None,
                (_, Group::Running { device, .. }) => {
                    self.context.devices[device].tenants.first().map(|tenant| tenant.uid)
                }
                (
                    _,
                    Group::Primary { class, .. } | Group::Host { class, .. } | Group::Joiner { class, .. },
                ) => Some(self.context.classes[class].uid),
            };
            cohorts.entry(user).or_default().push(number);
        }
        cohorts.into_values().collect()
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
                let may_stay = !must_end || !self.ends.outlives(joiner, self.ends.of_class[class] + 1);
                [
                    may_stay
                        .then(|| self.beside(candidates, HostSite { class, place, node_class }, joiner))
                        .flatten(),
                    None,
                ]
            }
            (Group::Primary { class: joiner, must_end, .. }, Group::Running { device, node_class, end })
            | (Group::Running { device, node_class, end }, Group::Joiner { class: joiner, must_end }) => {
                let may_stay = !must_end || !self.ends.outlives(joiner, end);
                let context = self.context;
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

/// The links that are allowed by what is known, as ways to pair.
struct Known {
    ways: Vec<Way>,
    /// The link of each.
    link_of: Vec<usize>,
}

impl Known {
    fn new(candidates: &CandidateSet<'_, '_>, links: &[Link]) -> Self {
        let mut known = Self { ways: Vec::new(), link_of: Vec::new() };
        for (index, link) in links.iter().enumerate() {
            let appraisal = candidates.known(link.candidate);
            if let Some(weight) = appraisal.weight {
                let budget = candidates.context.policy.broken_budget(candidates.tenant_count(link.candidate));
                let (a, b) = (link.a.into(), link.b.into());
                known.ways.push(Way { a, b, weight, risk: appraisal.risk, budget });
                known.link_of.push(index);
            }
        }
        known
    }

    /// How often each link is taken.
    fn taken(&self, choice: &Choice, link_count: usize) -> Vec<u32> {
        let mut taken = vec![0; link_count];
        for (link, count) in self.link_of.iter().zip(&choice.counts) {
            taken[*link] = *count;
        }
        taken
    }
}

/// When jobs end by their limits, as numbers: of each class, how many different ends are earlier.
struct Ends {
    sorted: Vec<UnixTime>,
    of_class: TiVec<ClassIndex, usize>,
}

impl Ends {
    fn new(context: &PlanContext<'_>) -> Self {
        let ends: TiVec<ClassIndex, Option<UnixTime>> =
            context.classes.iter().map(|job| admit::latest_end(job, context.view.taken_at)).collect();
        let mut sorted: Vec<UnixTime> = ends.iter().flatten().copied().collect();
        sorted.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        sorted.dedup();
        // Whoever has no limit ends after all others.
        let of_class = ends
            .iter()
            .map(|end| end.map_or(sorted.len(), |end| sorted.partition_point(|other| *other < end)));
        Self { of_class: of_class.collect(), sorted }
    }

    /// How many of the different ends of classes are no later than this one; `None` = no limit.
    fn rank(&self, end: Option<UnixTime>) -> usize {
        end.map_or(usize::MAX, |end| self.sorted.partition_point(|other| *other <= end))
    }

    /// Whether a job of this class may run on when that is over which ends at this rank.
    fn outlives(&self, class: ClassIndex, rank: usize) -> bool {
        self.of_class[class] >= rank
    }
}

/// Whether a joiner could run on when the job that it starts with is over.
pub(crate) fn outlives_job(context: &PlanContext<'_>, joiner: JobIndex, host: JobIndex) -> bool {
    let [joiner_end, host_end] =
        [joiner, host].map(|job| admit::latest_end(&context.jobs[job], context.view.taken_at));
    admit::outlives(joiner_end, host_end)
}

/// Whether a joiner could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(context: &PlanContext<'_>, joiner: JobIndex, device: DeviceIndex) -> bool {
    let end = admit::latest_end(&context.jobs[joiner], context.view.taken_at);
    admit::outlives(end, last_end(context, device))
}

/// When the last that runs on a device is over; `None` = no limit.
fn last_end(context: &PlanContext<'_>, device: DeviceIndex) -> Option<UnixTime> {
    let ends = context.devices[device].tenants.iter().map(|tenant| tenant.time_limit_at);
    ends.reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b })).flatten()
}
