//! The graph of what could share: jobs that have a right to a device, running hosts that may be joined, and jobs that
//! could ride along. Turns verdicts into edges and the matching into mates; must not hand out devices.

use crate::admit;
use crate::matching::{Edge, max_weight_matching};
use crate::serve::Floor;
use crate::session::Session;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Devices that may be joined.
    pub(crate) joinable: &'q [usize],
    /// All other jobs that could start now, in the order of service.
    pub(crate) riders: &'q [usize],
    /// Jobs behind this place (absent = all) must not hold a device longer than the host (DESIGN D7).
    pub(crate) cutoff: Option<usize>,
    /// CPUs and memory of the nodes once the primaries have theirs.
    pub(crate) floor: &'q Floor,
}

/// A place beside somebody.
#[derive(Clone, Copy)]
enum Seat {
    Primary { job: usize, device: usize },
    Running { device: usize },
}

/// What a seat is worth to any job of one class.
#[derive(Clone, Copy)]
struct Offer {
    weight: f64,
    /// Whether the job could hold the device longer than its host.
    outlives: bool,
}

/// What is known of an offer.
#[derive(Clone, Copy)]
enum Looked {
    NotYet,
    /// `None` = they may not share.
    Found(Option<Offer>),
}

/// The seats, and what each is worth to each class of jobs, looked at once.
struct Offers<'o, 'a> {
    session: &'o Session<'a>,
    question: &'o Question<'o>,
    seats: Vec<Seat>,
    of_class: RefCell<Vec<Looked>>,
}

/// The mates that gain most together.
pub(crate) fn mates(session: &Session<'_>, question: &Question<'_>) -> BTreeMap<usize, Mate> {
    let primaries =
        question.primaries.iter().map(|(job, device)| Seat::Primary { job: *job, device: *device });
    let seats: Vec<Seat> =
        primaries.chain(question.joinable.iter().map(|device| Seat::Running { device: *device })).collect();
    let of_class = RefCell::new(vec![Looked::NotYet; seats.len() * session.classes.len()]);
    let offers = Offers { session, question, seats, of_class };
    let (riders, mut edges) = offers.to_riders();
    for at in 0..offers.seats.len() {
        let others = question.primaries.iter().enumerate();
        edges.extend(others.filter_map(|(other, job)| offers.to_primary(at, other, *job)));
    }
    let matched = max_weight_matching(offers.seats.len() + riders.len(), &edges);
    let mut mates = BTreeMap::new();
    for (at, seat) in offers.seats.iter().enumerate() {
        let Some(other) = matched[at] else { continue };
        let rider = riders.get(other.wrapping_sub(offers.seats.len())).copied();
        match (*seat, offers.seats.get(other), rider) {
            (Seat::Primary { job, .. }, Some(Seat::Primary { job: mate, .. }), _) => {
                mates.insert(job, Mate::Job(*mate));
            }
            (Seat::Primary { job, .. }, Some(Seat::Running { device }), _) => {
                mates.insert(job, Mate::Device(*device));
            }
            (Seat::Primary { job, .. }, None, Some(rider)) => {
                mates.insert(rider, Mate::Job(job));
                mates.insert(job, Mate::Job(rider));
            }
            (Seat::Running { device }, None, Some(rider)) => {
                mates.insert(rider, Mate::Device(device));
            }
            _ => {}
        }
    }
    mates
}

impl Offers<'_, '_> {
    /// What a seat is worth to one job.
    fn weight(&self, at: usize, job: usize) -> Option<f64> {
        let class = self.session.class_of[job];
        let slot = at * self.session.classes.len() + class;
        let known = self.of_class.borrow()[slot];
        let found = if let Looked::Found(offer) = known { offer } else { self.look_at(self.seats[at], job) };
        self.of_class.borrow_mut()[slot] = Looked::Found(found);
        let offer = found?;
        let must_end = self.question.cutoff.is_none_or(|cutoff| job > cutoff);
        (!must_end || !offer.outlives).then_some(offer.weight)
    }

    fn look_at(&self, seat: Seat, job: usize) -> Option<Offer> {
        let (session, class) = (self.session, self.session.class_of[job]);
        match seat {
            Seat::Primary { job: host, device } => {
                let weight = self.pair_weight(host, job, device)?;
                Some(Offer { weight, outlives: outlives_job(session, job, host) })
            }
            Seat::Running { device } => {
                if !session.matches(class, device) || !self.question.floor.has_room(session, device, job) {
                    return None;
                }
                let verdict = session.join(class, device);
                let outlives = outlives_tenants(session, job, device);
                verdict.is_admitted().then_some(Offer { weight: verdict.weight, outlives })
            }
        }
    }

    fn pair_weight(&self, host: usize, guest: usize, device: usize) -> Option<f64> {
        let session = self.session;
        let (host_class, guest_class) = (session.class_of[host], session.class_of[guest]);
        if !session.matches(guest_class, device) || !self.question.floor.has_room(session, device, guest) {
            return None;
        }
        let verdict = session.pair(host_class, guest_class, session.kind_of[device]);
        verdict.is_admitted().then_some(verdict.weight)
    }

    /// Two jobs that each have a right to a device may share one whatever their limits, since the other device becomes
    /// free for those behind them. Looked at from the earlier of two, on its device or else on the other's.
    fn to_primary(&self, at: usize, other: usize, (job, device): (usize, usize)) -> Option<Edge> {
        let weight = match self.seats[at] {
            Seat::Running { .. } => self.weight(at, job),
            Seat::Primary { job: earlier, device: own } if at < other => {
                self.pair_weight(earlier, job, own).or_else(|| self.pair_weight(job, earlier, device))
            }
            Seat::Primary { .. } => None,
        };
        weight.map(|weight| Edge { a: at, b: other, weight })
    }

    /// The riders that an optimum can need, and their edges: with `n` seats, the best `n` of each seat, since at most
    /// `n - 1` of them can be wanted elsewhere.
    fn to_riders(&self) -> (Vec<usize>, Vec<Edge>) {
        let count = self.seats.len();
        let mut of_class: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for rider in self.question.riders {
            let alike = of_class.entry(self.session.class_of[*rider]).or_default();
            // The earliest of a class are worth no less than the others: what binds those behind the cutoff is more.
            if alike.len() < count {
                alike.push(*rider);
            }
        }
        let mut wanted: Vec<(usize, usize, f64)> = Vec::new();
        for at in 0..count {
            let mut ranked: Vec<(f64, &Vec<usize>)> = of_class
                .values()
                .filter_map(|riders| self.weight(at, *riders.first()?).map(|weight| (weight, riders)))
                .collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
            let best = ranked.iter().flat_map(|(_, riders)| *riders);
            wanted.extend(
                best.filter_map(|rider| self.weight(at, *rider).map(|weight| (at, *rider, weight)))
                    .take(count),
            );
        }
        let riders: Vec<usize> =
            wanted.iter().map(|(_, rider, _)| *rider).collect::<BTreeSet<_>>().into_iter().collect();
        let place: BTreeMap<usize, usize> =
            riders.iter().enumerate().map(|(place, rider)| (*rider, count + place)).collect();
        let edges =
            wanted.iter().map(|(at, rider, weight)| Edge { a: *at, b: place[rider], weight: *weight });
        (riders, edges.collect())
    }
}

/// Whether a guest could run on when the job that it starts with is over.
pub(crate) fn outlives_job(session: &Session<'_>, guest: usize, host: usize) -> bool {
    let end = |job: usize| admit::latest_end(&session.view.waiting[job], session.view.taken_at);
    admit::outlives(end(guest), end(host))
}

/// Whether a guest could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(session: &Session<'_>, guest: usize, device: usize) -> bool {
    let tenants = &session.view.devices[device].tenants;
    let last = tenants
        .iter()
        .map(|tenant| tenant.time_limit_at)
        .reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b }));
    admit::outlives(admit::latest_end(&session.view.waiting[guest], session.view.taken_at), last.flatten())
}
