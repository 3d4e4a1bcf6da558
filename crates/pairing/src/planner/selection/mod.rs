//! Step 3: of all that could share, those that gain most together. The graph of what could share: jobs that have a right to a device, running hosts that may be joined, and jobs that
//! could ride along. What is alike is one class of the matching, so that its size grows with the workloads and not with
//! the queue. Turns verdicts into edges and the matching into mates; must not hand out devices.

mod budget;

use crate::planner::admit;
use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::classes::PlanContext;
use crate::planner::index::{
    CandidateIndex, ClassIndex, DeviceIndex, GroupIndex, JobIndex, PlaceIndex, RoomIndex,
};
use crate::planner::placement::free_capacity::{FreeCapacity, Rooms};
use crate::planner::rounds::Cutoff;
use crate::policy::UserPolicy;
use budget::{Choice, Way};
use pillion_core::{UnixTime, UserId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// How often the choice is made anew at most, because a closer look at what is not in it could still change it.
const LOOKS_MAX: usize = 3;
/// So many sharings of each group are looked at closely at a time.
const LOOKS_AT_ONCE_MAX: usize = 12;

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
    /// Jobs with a right to a device, and the device on which a sharing with them is looked at.
    pub(crate) primaries: &'q [(JobIndex, DeviceIndex)],
    /// Jobs that start alone on a device for certain.
    pub(crate) hosts: &'q [(JobIndex, DeviceIndex)],
    /// Devices that may be joined.
    pub(crate) joinable: &'q [DeviceIndex],
    /// All other jobs that could start now, in the order of placement.
    pub(crate) guests: &'q [JobIndex],
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
    Primary { class: ClassIndex, place: PlaceIndex, room: RoomIndex, must_end: bool },
    Host { class: ClassIndex, place: PlaceIndex, room: RoomIndex },
    Running { device: DeviceIndex, room: RoomIndex, end: usize },
    Guest { class: ClassIndex, must_end: bool },
}

/// One of a group.
#[derive(Debug, Clone, Copy)]
enum Member {
    Job(JobIndex),
    Device(DeviceIndex),
}

impl Member {
    fn job(self) -> Option<JobIndex> {
        match self {
            Self::Job(job) => Some(job),
            Self::Device(_) => None,
        }
    }
}

/// A job beside which there is a seat.
#[derive(Clone, Copy)]
struct Seat {
    class: ClassIndex,
    place: PlaceIndex,
    room: RoomIndex,
}

/// The groups, and their members in the order of placement or of devices.
struct Groups<'g, 'a> {
    context: &'g PlanContext<'a>,
    rooms: Rooms,
    ends: Ends,
    kinds: TiVec<GroupIndex, Group>,
    members: TiVec<GroupIndex, Vec<Member>>,
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
    let context = candidates.context;
    // 1. What is alike is one group, so that the matching grows with the workloads.
    let groups = Groups::new(context, question);
    // 2. Which groups could share, and what that is worth at the price of one estimate.
    let links = groups.links(candidates);
    candidates.glance();
    // 3. How often each is chosen, looking closer where that could change the choice.
    let chosen = groups.choose(candidates, &links, question.allowance);
    // 4. Back from groups to jobs, the first ones first.
    let mut dealer = Dealer {
        context,
        groups: &groups,
        devices: question.primaries.iter().chain(question.hosts).copied().collect(),
        capacity: question.capacity.clone(),
        next: vec![0; groups.kinds.len()].into(),
        partners: BTreeMap::new(),
    };
    for (link, count) in links.iter().zip(chosen) {
        for _ in 0..count {
            dealer.deal(link.a, link.b);
        }
    }
    dealer.partners
}

impl<'g, 'a> Groups<'g, 'a> {
    fn new(context: &'g PlanContext<'a>, question: &Question<'_>) -> Self {
        let mut groups = Self {
            context,
            rooms: question.capacity.rooms(context),
            ends: Ends::new(context),
            kinds: TiVec::new(),
            members: TiVec::new(),
        };
        let mut numbers = FxHashMap::default();
        for (job, device) in question.primaries {
            let Seat { class, place, room } = groups.seat(context.class_of[*job], *device);
            let must_end = question.cutoff.binds(*job);
            groups.add(&mut numbers, Group::Primary { class, place, room, must_end }, Member::Job(*job));
        }
        for (job, device) in question.hosts {
            let Seat { class, place, room } = groups.seat(context.class_of[*job], *device);
            groups.add(&mut numbers, Group::Host { class, place, room }, Member::Job(*job));
        }
        for device in question.joinable {
            let room = groups.rooms.of_device(context, *device);
            let end = groups.ends.rank(last_end(context, *device));
            groups.add(
                &mut numbers,
                Group::Running { device: context.alike[*device], room, end },
                Member::Device(*device),
            );
        }
        for guest in question.guests {
            let (class, must_end) = (context.class_of[*guest], question.cutoff.binds(*guest));
            groups.add(&mut numbers, Group::Guest { class, must_end }, Member::Job(*guest));
        }
        groups
    }

    fn seat(&self, class: ClassIndex, device: DeviceIndex) -> Seat {
        let room = self.rooms.of_device(self.context, device);
        Seat { class, place: self.context.places.of_device[device], room }
    }

    fn add(&mut self, numbers: &mut FxHashMap<Group, GroupIndex>, group: Group, member: Member) {
        let number = *numbers.entry(group).or_insert_with(|| {
            self.kinds.push(group);
            self.members.push_and_get_key(Vec::new())
        });
        self.members[number].push(member);
    }

    /// What could be, of each two groups.
    fn links(&self, candidates: &mut CandidateSet<'_, '_>) -> Vec<Link> {
        let mut links = Vec::new();
        for company in self.companies() {
            for (at, a) in company.iter().enumerate() {
                for b in &company[at..] {
                    let sharings = self.sharings(candidates, self.kinds[*a], self.kinds[*b]);
                    let possible = sharings.into_iter().flatten();
                    let possible = possible.filter(|candidate| !candidates.is_ruled_out(*candidate));
                    links.extend(possible.map(|candidate| Link { a: *a, b: *b, candidate }));
                }
            }
        }
        links
    }

    /// How often each link is chosen. What only a closer look could make good enough is looked at, until none is left.
    fn choose(&self, candidates: &mut CandidateSet<'_, '_>, links: &[Link], allowance: f64) -> Vec<u32> {
        let counts: Vec<u32> =
            self.members.iter().map(|members| u32::try_from(members.len()).unwrap_or(u32::MAX)).collect();
        for _ in 0..LOOKS_MAX {
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
            candidates.look(&promising);
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
            let Some(hope) = candidates.known(link.candidate).hope else { continue };
            let more = hope - prices[usize::from(link.a)] - prices[usize::from(link.b)];
            if more > 0.0 {
                all.push((more, link.a, link.b, link.candidate));
            }
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.3.cmp(&b.3)));
        let mut seen: TiVec<GroupIndex, usize> = vec![0; self.kinds.len()].into();
        let mut promising: Vec<CandidateIndex> = Vec::new();
        for (_, a, b, candidate) in all {
            if seen[a].min(seen[b]) < LOOKS_AT_ONCE_MAX {
                (seen[a], seen[b]) = (seen[a] + 1, seen[b] + 1);
                promising.push(candidate);
            }
        }
        promising.sort_unstable();
        promising.dedup();
        promising
    }

    /// Groups that the policy on users lets meet at all.
    fn companies(&self) -> Vec<Vec<GroupIndex>> {
        let mut companies: BTreeMap<Option<UserId>, Vec<GroupIndex>> = BTreeMap::new();
        for (number, group) in self.kinds.iter_enumerated() {
            let user = match (self.context.policy.users, *group) {
                (UserPolicy::SameAccount | UserPolicy::Any, _) => None,
                (_, Group::Running { device, .. }) => {
                    self.context.devices[device].tenants.first().map(|tenant| tenant.uid)
                }
                (
                    _,
                    Group::Primary { class, .. } | Group::Host { class, .. } | Group::Guest { class, .. },
                ) => Some(self.context.classes[class].uid),
            };
            companies.entry(user).or_default().push(number);
        }
        companies.into_values().collect()
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
                Group::Primary { class, place, room, .. },
                Group::Primary { class: other, place: there, room: room_there, .. },
            ) => {
                let here = self.beside(candidates, Seat { class, place, room }, other);
                let there =
                    self.beside(candidates, Seat { class: other, place: there, room: room_there }, class);
                [here, there.filter(|there| here != Some(*there))]
            }
            (
                Group::Primary { class, place, room, .. } | Group::Host { class, place, room },
                Group::Guest { class: guest, must_end },
            ) => {
                let may_stay = !must_end || !self.ends.outlives(guest, self.ends.of_class[class] + 1);
                [
                    may_stay.then(|| self.beside(candidates, Seat { class, place, room }, guest)).flatten(),
                    None,
                ]
            }
            (Group::Primary { class: guest, must_end, .. }, Group::Running { device, room, end })
            | (Group::Running { device, room, end }, Group::Guest { class: guest, must_end }) => {
                let may_stay = !must_end || !self.ends.outlives(guest, end);
                let context = self.context;
                let fits = context.matches(guest, device)
                    && self.rooms.fits(context, room, guest)
                    && context.sharer(guest, context.kind_of[device]).is_ok();
                [(may_stay && fits).then(|| candidates.join(guest, device)), None]
            }
            _ => [None, None],
        }
    }

    fn beside(
        &self,
        candidates: &mut CandidateSet<'_, '_>,
        Seat { class, place, room }: Seat,
        guest: ClassIndex,
    ) -> Option<CandidateIndex> {
        let context = self.context;
        let kind = context.places.kinds[place];
        let fits = context.places.matches(guest, place) && self.rooms.fits(context, room, guest);
        let may_share = fits && context.sharer(class, kind).is_ok() && context.sharer(guest, kind).is_ok();
        may_share.then(|| candidates.pair(class, guest, kind))
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
        let budget = candidates.context.policy.broken_budget_fraction;
        let mut known = Self { ways: Vec::new(), link_of: Vec::new() };
        for (index, link) in links.iter().enumerate() {
            let glance = candidates.known(link.candidate);
            if let Some(weight) = glance.weight {
                #[expect(clippy::cast_precision_loss, reason = "a few tenants")]
                let tenants = candidates.tenant_count(link.candidate) as f64;
                let budget = budget * tenants;
                known.ways.push(Way {
                    a: link.a.into(),
                    b: link.b.into(),
                    weight,
                    risk: glance.risk,
                    budget,
                });
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

/// Turns a matching of groups into mates, the first members first.
struct Dealer<'d, 'a> {
    context: &'d PlanContext<'a>,
    groups: &'d Groups<'d, 'a>,
    /// Of primaries and hosts.
    devices: FxHashMap<JobIndex, DeviceIndex>,
    /// As guests take their parts of it.
    capacity: FreeCapacity,
    next: TiVec<GroupIndex, usize>,
    partners: BTreeMap<JobIndex, Partner>,
}

impl Dealer<'_, '_> {
    /// One pair of these groups, where there is room for it still.
    fn deal(&mut self, first: GroupIndex, second: GroupIndex) {
        match (self.groups.kinds[first], self.groups.kinds[second]) {
            (Group::Primary { .. }, Group::Primary { .. }) => {
                if let (Some(one), Some(other)) = (self.take_job(first), self.take_job(second)) {
                    self.partners.insert(one, Partner::Job(other));
                    self.partners.insert(other, Partner::Job(one));
                }
            }
            (Group::Primary { .. } | Group::Host { .. }, Group::Guest { class, .. }) => {
                if let (Some(host), Some(guest)) = (self.take_host(first, class), self.take_job(second)) {
                    self.partners.insert(host, Partner::Job(guest));
                    self.partners.insert(guest, Partner::Job(host));
                }
            }
            (Group::Primary { class, .. }, Group::Running { .. }) => self.deal_join(second, first, class),
            (Group::Running { .. }, Group::Guest { class, .. }) => self.deal_join(first, second, class),
            _ => {}
        }
    }

    fn deal_join(&mut self, running: GroupIndex, guests: GroupIndex, class: ClassIndex) {
        if let (Some(device), Some(guest)) = (self.take_running(running, class), self.take_job(guests)) {
            self.partners.insert(guest, Partner::Device(device));
        }
    }

    fn take(&mut self, group: GroupIndex) -> Option<Member> {
        let member = self.groups.members[group].get(self.next[group]).copied()?;
        self.next[group] += 1;
        Some(member)
    }

    fn take_job(&mut self, group: GroupIndex) -> Option<JobIndex> {
        self.take(group)?.job()
    }

    /// The next job of a group beside which a guest of this class still has room; the others are passed over.
    fn take_host(&mut self, group: GroupIndex, guest: ClassIndex) -> Option<JobIndex> {
        loop {
            let host = self.take_job(group)?;
            let device = *self.devices.get(&host)?;
            if self.has_taken_room(device, guest) {
                return Some(host);
            }
        }
    }

    /// Likewise the next device that may be joined.
    fn take_running(&mut self, group: GroupIndex, guest: ClassIndex) -> Option<DeviceIndex> {
        loop {
            let Member::Device(device) = self.take(group)? else { return None };
            if self.has_taken_room(device, guest) {
                return Some(device);
            }
        }
    }

    fn has_taken_room(&mut self, device: DeviceIndex, guest: ClassIndex) -> bool {
        let has_room = self.capacity.has_room(self.context, device, guest);
        if has_room {
            self.capacity.take(self.context, device, guest);
        }
        has_room
    }
}

/// Whether a guest could run on when the job that it starts with is over.
pub(crate) fn outlives_job(context: &PlanContext<'_>, guest: JobIndex, host: JobIndex) -> bool {
    let [guest_end, host_end] =
        [guest, host].map(|job| admit::latest_end(&context.jobs[job], context.view.taken_at));
    admit::outlives(guest_end, host_end)
}

/// Whether a guest could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(context: &PlanContext<'_>, guest: JobIndex, device: DeviceIndex) -> bool {
    let end = admit::latest_end(&context.jobs[guest], context.view.taken_at);
    admit::outlives(end, last_end(context, device))
}

/// When the last that runs on a device is over; `None` = no limit.
fn last_end(context: &PlanContext<'_>, device: DeviceIndex) -> Option<UnixTime> {
    let ends = context.devices[device].tenants.iter().map(|tenant| tenant.time_limit_at);
    ends.reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b })).flatten()
}
