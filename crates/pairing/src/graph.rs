//! The graph of what could share: jobs that have a right to a device, running hosts that may be joined, and jobs that
//! could ride along. What is alike is one class of the matching, so that its size grows with the workloads and not with
//! the queue. Turns verdicts into edges and the matching into mates; must not hand out devices.

use crate::admit;
use crate::budget::{self, Choice, Way};
use crate::floor::{Floor, Rooms};
use crate::policy::UserPolicy;
use crate::prospects::Prospects;
use crate::session::Session;
use pillion_core::{UnixTime, UserId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How often the choice is made anew at most, because a closer look at what is not in it could still change it.
const LOOKS_MAX: usize = 3;
/// So many sharings of each group are looked at closely at a time.
const LOOKS_AT_ONCE_MAX: usize = 12;

/// With whom a job is to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mate {
    /// Another waiting job, by its place in the queue.
    Job(usize),
    /// What runs on this device.
    Device(usize),
}

/// What is to be matched.
pub(crate) struct Question<'q> {
    /// Jobs with a right to a device, and the device on which a sharing with them is looked at.
    pub(crate) primaries: &'q [(usize, usize)],
    /// Jobs that start alone on a device for certain.
    pub(crate) hosts: &'q [(usize, usize)],
    /// Devices that may be joined.
    pub(crate) joinable: &'q [usize],
    /// All other jobs that could start now, in the order of service.
    pub(crate) riders: &'q [usize],
    /// Jobs behind this place (absent = all) must not hold a device longer than the host
    /// (docs/principles.md#order-of-service).
    pub(crate) cutoff: Option<usize>,
    /// CPUs and memory of the nodes once the primaries have theirs.
    pub(crate) floor: &'q Floor,
    /// How many more promises may be expected to break than the new sharings bring along.
    pub(crate) allowance: f64,
}

/// Jobs or running hosts that are alike in everything that a sharing depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Primary { class: usize, place: usize, room: usize, must_end: bool },
    Host { class: usize, place: usize, room: usize },
    Running { device: usize, room: usize, end: usize },
    Rider { class: usize, must_end: bool },
}

/// A job beside which there is a seat.
#[derive(Clone, Copy)]
struct Seat {
    class: usize,
    place: usize,
    room: usize,
}

/// The groups, and their members in the order of service or of devices.
struct Groups<'g, 'a> {
    session: &'g Session<'a>,
    rooms: Rooms,
    ends: Ends,
    kinds: Vec<Group>,
    members: Vec<Vec<usize>>,
}

/// A sharing between one of each group.
#[derive(Debug, Clone, Copy)]
struct Link {
    a: usize,
    b: usize,
    /// Which of the prospects.
    sharing: usize,
}

/// The mates that gain most together.
pub(crate) fn mates(prospects: &mut Prospects<'_, '_>, question: &Question<'_>) -> BTreeMap<usize, Mate> {
    let session = prospects.session;
    let groups = Groups::new(session, question);
    let links = groups.links(prospects);
    prospects.glance();
    let chosen = groups.choose(prospects, &links, question.allowance);
    let mut dealer = Dealer {
        session,
        groups: &groups,
        devices: question.primaries.iter().chain(question.hosts).copied().collect(),
        floor: question.floor.clone(),
        next: vec![0; groups.kinds.len()],
        mates: BTreeMap::new(),
    };
    for (link, count) in links.iter().zip(chosen) {
        for _ in 0..count {
            dealer.deal(link.a, link.b);
        }
    }
    dealer.mates
}

impl<'g, 'a> Groups<'g, 'a> {
    fn new(session: &'g Session<'a>, question: &Question<'_>) -> Self {
        let mut groups = Self {
            session,
            rooms: question.floor.rooms(session),
            ends: Ends::new(session),
            kinds: Vec::new(),
            members: Vec::new(),
        };
        let mut numbers = FxHashMap::default();
        let must_end = |job: usize| question.cutoff.is_none_or(|cutoff| job > cutoff);
        let class_of = |job: usize| session.class_of[job];
        for (job, device) in question.primaries {
            let Seat { class, place, room } = groups.seat(class_of(*job), *device);
            groups.add(&mut numbers, Group::Primary { class, place, room, must_end: must_end(*job) }, *job);
        }
        for (job, device) in question.hosts {
            let Seat { class, place, room } = groups.seat(class_of(*job), *device);
            groups.add(&mut numbers, Group::Host { class, place, room }, *job);
        }
        for device in question.joinable {
            let room = groups.rooms.of_device(session, *device);
            let end = groups.ends.rank(last_end(session, *device));
            groups.add(&mut numbers, Group::Running { device: session.alike[*device], room, end }, *device);
        }
        for rider in question.riders {
            let group = Group::Rider { class: class_of(*rider), must_end: must_end(*rider) };
            groups.add(&mut numbers, group, *rider);
        }
        groups
    }

    fn seat(&self, class: usize, device: usize) -> Seat {
        let room = self.rooms.of_device(self.session, device);
        Seat { class, place: self.session.places.of_device[device], room }
    }

    fn add(&mut self, numbers: &mut FxHashMap<Group, usize>, group: Group, member: usize) {
        let number = *numbers.entry(group).or_insert_with(|| {
            self.kinds.push(group);
            self.members.push(Vec::new());
            self.kinds.len() - 1
        });
        self.members[number].push(member);
    }

    /// What could be, of each two groups.
    fn links(&self, prospects: &mut Prospects<'_, '_>) -> Vec<Link> {
        let mut links = Vec::new();
        for company in self.companies() {
            for (at, a) in company.iter().enumerate() {
                for b in &company[at..] {
                    let sharings = self.sharings(prospects, self.kinds[*a], self.kinds[*b]);
                    let possible = sharings.into_iter().flatten();
                    let possible = possible.filter(|sharing| !prospects.is_ruled_out(*sharing));
                    links.extend(possible.map(|sharing| Link { a: *a, b: *b, sharing }));
                }
            }
        }
        links
    }

    /// How often each link is chosen. What only a closer look could make good enough is looked at, until none is left.
    fn choose(&self, prospects: &mut Prospects<'_, '_>, links: &[Link], allowance: f64) -> Vec<u32> {
        let counts: Vec<u32> =
            self.members.iter().map(|members| u32::try_from(members.len()).unwrap_or(u32::MAX)).collect();
        for _ in 0..LOOKS_MAX {
            let known = Known::new(prospects, links);
            let near = budget::near(&counts, &known.ways, allowance, prospects.risk_price);
            prospects.risk_price = near.risk_price;
            let promising = self.promising(prospects, links, &near.prices);
            if promising.is_empty() && budget::is_settled(&counts, &known.ways, allowance, &near) {
                return known.taken(&near, links.len());
            }
            if promising.is_empty() {
                break;
            }
            prospects.look(&promising);
        }
        let known = Known::new(prospects, links);
        let choice = budget::choose(&counts, &known.ways, allowance, prospects.risk_price);
        prospects.risk_price = choice.risk_price;
        known.taken(&choice, links.len())
    }

    /// The sharings that could turn out to be worth more than their two ends are now: the most promising of each group.
    fn promising(&self, prospects: &Prospects<'_, '_>, links: &[Link], prices: &[f64]) -> Vec<usize> {
        let more = |link: &Link| {
            let hope = prospects.known(link.sharing).hope?;
            let more = hope - prices[link.a] - prices[link.b];
            (more > 0.0).then_some((more, link.a, link.b, link.sharing))
        };
        let mut all: Vec<(f64, usize, usize, usize)> = links.iter().filter_map(more).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.3.cmp(&b.3)));
        let mut seen = vec![0; self.kinds.len()];
        let mut promising: Vec<usize> = Vec::new();
        for (_, a, b, sharing) in all {
            if seen[a].min(seen[b]) < LOOKS_AT_ONCE_MAX {
                (seen[a], seen[b]) = (seen[a] + 1, seen[b] + 1);
                promising.push(sharing);
            }
        }
        promising.sort_unstable();
        promising.dedup();
        promising
    }

    /// Groups that the policy on users lets meet at all.
    fn companies(&self) -> Vec<Vec<usize>> {
        let mut companies: BTreeMap<Option<UserId>, Vec<usize>> = BTreeMap::new();
        for (number, group) in self.kinds.iter().enumerate() {
            let user = match (self.session.policy.users, *group) {
                (UserPolicy::SameAccount | UserPolicy::Any, _) => None,
                (_, Group::Running { device, .. }) => {
                    self.session.view.devices[device].tenants.first().map(|tenant| tenant.uid)
                }
                (
                    _,
                    Group::Primary { class, .. } | Group::Host { class, .. } | Group::Rider { class, .. },
                ) => Some(self.session.classes[class].uid),
            };
            companies.entry(user).or_default().push(number);
        }
        companies.into_values().collect()
    }

    /// How one of each group could share. The first comes before the second in `kinds`.
    fn sharings(&self, prospects: &mut Prospects<'_, '_>, first: Group, second: Group) -> [Option<usize>; 2] {
        match (first, second) {
            // Two jobs that each have a right to a device may share one whatever their limits, since the other device
            // becomes free for those behind them.
            (
                Group::Primary { class, place, room, .. },
                Group::Primary { class: other, place: there, room: room_there, .. },
            ) => {
                let here = self.beside(prospects, Seat { class, place, room }, other);
                let there =
                    self.beside(prospects, Seat { class: other, place: there, room: room_there }, class);
                [here, there.filter(|there| here != Some(*there))]
            }
            (
                Group::Primary { class, place, room, .. } | Group::Host { class, place, room },
                Group::Rider { class: guest, must_end },
            ) => {
                let may_stay = !must_end || !self.ends.outlives(guest, self.ends.of_class[class] + 1);
                [may_stay.then(|| self.beside(prospects, Seat { class, place, room }, guest)).flatten(), None]
            }
            (Group::Primary { class: guest, must_end, .. }, Group::Running { device, room, end })
            | (Group::Running { device, room, end }, Group::Rider { class: guest, must_end }) => {
                let may_stay = !must_end || !self.ends.outlives(guest, end);
                let session = self.session;
                let fits = session.matches(guest, device)
                    && self.rooms.fits(session, room, guest)
                    && session.sharer(guest, session.kind_of[device]).is_ok();
                [(may_stay && fits).then(|| prospects.join(guest, device)), None]
            }
            _ => [None, None],
        }
    }

    fn beside(
        &self,
        prospects: &mut Prospects<'_, '_>,
        Seat { class, place, room }: Seat,
        guest: usize,
    ) -> Option<usize> {
        let session = self.session;
        let kind = session.places.kinds[place];
        let fits = session.places.matches(guest, place) && self.rooms.fits(session, room, guest);
        let may_share = fits && session.sharer(class, kind).is_ok() && session.sharer(guest, kind).is_ok();
        may_share.then(|| prospects.pair(class, guest, kind))
    }
}

/// The links that are allowed by what is known, as ways to pair.
struct Known {
    ways: Vec<Way>,
    /// The link of each.
    link_of: Vec<usize>,
}

impl Known {
    fn new(prospects: &Prospects<'_, '_>, links: &[Link]) -> Self {
        let budget = prospects.session.policy.broken_budget_fraction;
        let mut known = Self { ways: Vec::new(), link_of: Vec::new() };
        for (index, link) in links.iter().enumerate() {
            let glance = prospects.known(link.sharing);
            if let Some(weight) = glance.weight {
                #[expect(clippy::cast_precision_loss, reason = "a few tenants")]
                let tenants = prospects.tenant_count(link.sharing) as f64;
                let budget = budget * tenants;
                known.ways.push(Way { a: link.a, b: link.b, weight, risk: glance.risk, budget });
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
    of_class: Vec<usize>,
}

impl Ends {
    fn new(session: &Session<'_>) -> Self {
        let of = |class: usize| admit::latest_end(session.classes[class], session.view.taken_at);
        let mut sorted: Vec<UnixTime> = (0..session.classes.len()).filter_map(of).collect();
        sorted.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        sorted.dedup();
        let mut ends = Self { sorted, of_class: Vec::new() };
        // Whoever has no limit ends after all others.
        let number = |end: Option<UnixTime>| {
            end.map_or(ends.sorted.len(), |end| ends.sorted.partition_point(|other| *other < end))
        };
        ends.of_class = (0..session.classes.len()).map(|class| number(of(class))).collect();
        ends
    }

    /// How many of the different ends of classes are no later than this one; `None` = no limit.
    fn rank(&self, end: Option<UnixTime>) -> usize {
        end.map_or(usize::MAX, |end| self.sorted.partition_point(|other| *other <= end))
    }

    /// Whether a job of this class may run on when that is over which ends at this rank.
    fn outlives(&self, class: usize, rank: usize) -> bool {
        self.of_class[class] >= rank
    }
}

/// Turns a matching of groups into mates, the first members first.
struct Dealer<'d, 'a> {
    session: &'d Session<'a>,
    groups: &'d Groups<'d, 'a>,
    /// Of primaries and hosts.
    devices: FxHashMap<usize, usize>,
    /// As guests take their parts of it.
    floor: Floor,
    next: Vec<usize>,
    mates: BTreeMap<usize, Mate>,
}

impl Dealer<'_, '_> {
    /// One pair of these groups, where there is room for it still.
    fn deal(&mut self, first: usize, second: usize) {
        match (self.groups.kinds[first], self.groups.kinds[second]) {
            (Group::Primary { .. }, Group::Primary { .. }) => {
                if let (Some(one), Some(other)) = (self.take(first), self.take(second)) {
                    self.mates.insert(one, Mate::Job(other));
                    self.mates.insert(other, Mate::Job(one));
                }
            }
            (Group::Primary { .. } | Group::Host { .. }, Group::Rider { class, .. }) => {
                if let (Some(host), Some(guest)) = (self.take_seat(first, class), self.take(second)) {
                    self.mates.insert(host, Mate::Job(guest));
                    self.mates.insert(guest, Mate::Job(host));
                }
            }
            (Group::Primary { class, .. }, Group::Running { .. }) => self.deal_join(second, first, class),
            (Group::Running { .. }, Group::Rider { class, .. }) => self.deal_join(first, second, class),
            _ => {}
        }
    }

    fn deal_join(&mut self, running: usize, guests: usize, class: usize) {
        if let (Some(device), Some(guest)) = (self.take_seat(running, class), self.take(guests)) {
            self.mates.insert(guest, Mate::Device(device));
        }
    }

    fn take(&mut self, group: usize) -> Option<usize> {
        let member = self.groups.members[group].get(self.next[group]).copied()?;
        self.next[group] += 1;
        Some(member)
    }

    /// The next of a group beside which a guest of this class still has room; the others are passed over.
    fn take_seat(&mut self, group: usize, guest: usize) -> Option<usize> {
        loop {
            let member = self.take(group)?;
            let device = match self.groups.kinds[group] {
                Group::Running { .. } => member,
                _ => *self.devices.get(&member)?,
            };
            if self.floor.has_room(self.session, device, guest) {
                self.floor.take(self.session, device, guest);
                return Some(member);
            }
        }
    }
}

/// Whether a guest could run on when the job that it starts with is over.
pub(crate) fn outlives_job(session: &Session<'_>, guest: usize, host: usize) -> bool {
    let end = |job: usize| admit::latest_end(&session.view.waiting[job], session.view.taken_at);
    admit::outlives(end(guest), end(host))
}

/// Whether a guest could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(session: &Session<'_>, guest: usize, device: usize) -> bool {
    let end = admit::latest_end(&session.view.waiting[guest], session.view.taken_at);
    admit::outlives(end, last_end(session, device))
}

/// When the last that runs on a device is over; `None` = no limit.
fn last_end(session: &Session<'_>, device: usize) -> Option<UnixTime> {
    let ends = session.view.devices[device].tenants.iter().map(|tenant| tenant.time_limit_at);
    ends.reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b })).flatten()
}
