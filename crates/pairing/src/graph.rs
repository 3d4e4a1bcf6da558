//! The graph of what could share: jobs that have a right to a device, running hosts that may be joined, and jobs that
//! could ride along. Turns verdicts into edges and the matching into mates; must not hand out devices.

use crate::admit;
use crate::matching::{Edge, max_weight_matching};
use crate::serve::Floor;
use crate::session::Session;
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

/// The mates that gain most together.
pub(crate) fn mates(session: &Session<'_>, question: &Question<'_>) -> BTreeMap<usize, Mate> {
    let primaries =
        question.primaries.iter().map(|(job, device)| Seat::Primary { job: *job, device: *device });
    let seats: Vec<Seat> =
        primaries.chain(question.joinable.iter().map(|device| Seat::Running { device: *device })).collect();
    let riders = useful_riders(session, question, &seats);
    let mut edges = Vec::new();
    for (at, seat) in seats.iter().enumerate() {
        for (other, (job, device)) in question.primaries.iter().enumerate() {
            edges.extend(primary_edge(session, question, (at, *seat), (other, *job, *device)));
        }
        for (place, rider) in riders.iter().enumerate() {
            let weight = rider_weight(session, question, *seat, *rider);
            edges.extend(weight.map(|weight| Edge { a: at, b: seats.len() + place, weight }));
        }
    }
    let matched = max_weight_matching(seats.len() + riders.len(), &edges);
    let mut mates = BTreeMap::new();
    let mut marry = |job: usize, mate: Mate| mates.insert(job, mate);
    for (at, seat) in seats.iter().enumerate() {
        let Some(other) = matched[at] else { continue };
        let other_job = riders.get(other.wrapping_sub(seats.len())).copied();
        match (*seat, seats.get(other), other_job) {
            (Seat::Primary { job, .. }, Some(Seat::Primary { job: mate, .. }), _) => {
                marry(job, Mate::Job(*mate))
            }
            (Seat::Primary { job, .. }, Some(Seat::Running { device }), _) => {
                marry(job, Mate::Device(*device))
            }
            (Seat::Primary { job, .. }, None, Some(rider)) => {
                marry(rider, Mate::Job(job));
                marry(job, Mate::Job(rider))
            }
            (Seat::Running { device }, None, Some(rider)) => marry(rider, Mate::Device(device)),
            _ => None,
        };
    }
    mates
}

/// Two jobs that each have a right to a device may share one whatever their limits, since the other device becomes free
/// for those behind them. Looked at from the earlier of two, on its device or else on the other's.
fn primary_edge(
    session: &Session<'_>,
    question: &Question<'_>,
    (at, seat): (usize, Seat),
    (other, job, device): (usize, usize, usize),
) -> Option<Edge> {
    let weight = match seat {
        Seat::Running { .. } => rider_weight(session, question, seat, job),
        Seat::Primary { job: earlier, device: own } if at < other => {
            pair_weight(session, question, earlier, job, own)
                .or_else(|| pair_weight(session, question, job, earlier, device))
        }
        Seat::Primary { .. } => None,
    };
    weight.map(|weight| Edge { a: at, b: other, weight })
}

fn pair_weight(
    session: &Session<'_>,
    question: &Question<'_>,
    host: usize,
    guest: usize,
    device: usize,
) -> Option<f64> {
    let (host_class, guest_class) = (session.class_of[host], session.class_of[guest]);
    if !session.matches(guest_class, device) || !question.floor.has_room(session, device, guest) {
        return None;
    }
    let verdict = session.pair(host_class, guest_class, session.kind_of[device]);
    verdict.is_admitted().then_some(verdict.weight)
}

fn rider_weight(session: &Session<'_>, question: &Question<'_>, seat: Seat, rider: usize) -> Option<f64> {
    if question.cutoff.is_none_or(|cutoff| rider > cutoff) && rider_outlives(session, seat, rider) {
        return None;
    }
    match seat {
        Seat::Primary { job, device } => pair_weight(session, question, job, rider, device),
        Seat::Running { device } => {
            let class = session.class_of[rider];
            if !session.matches(class, device) || !question.floor.has_room(session, device, rider) {
                return None;
            }
            let verdict = session.join(class, device);
            verdict.is_admitted().then_some(verdict.weight)
        }
    }
}

fn rider_outlives(session: &Session<'_>, seat: Seat, rider: usize) -> bool {
    match seat {
        Seat::Primary { job, .. } => outlives_job(session, rider, job),
        Seat::Running { device } => outlives_tenants(session, rider, device),
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

/// The riders that an optimum can need: with `n` seats, the best `n` of each seat, since at most `n - 1` others can be
/// taken before it is this seat's turn; and of each class no more than the first `n`.
fn useful_riders(session: &Session<'_>, question: &Question<'_>, seats: &[Seat]) -> Vec<usize> {
    let mut of_class: BTreeMap<usize, usize> = BTreeMap::new();
    let first_of_class = question.riders.iter().copied().filter(|rider| {
        let count = of_class.entry(session.class_of[*rider]).or_default();
        *count += 1;
        *count <= seats.len()
    });
    let candidates: Vec<usize> = first_of_class.collect();
    let mut useful = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for seat in seats {
        let alike = match *seat {
            Seat::Primary { job, device } => (session.class_of[job], device),
            Seat::Running { device } => (usize::MAX, device),
        };
        if !seen.insert(alike) {
            continue;
        }
        let weight =
            |rider: &usize| rider_weight(session, question, *seat, *rider).map(|weight| (weight, *rider));
        let mut ranked: Vec<(f64, usize)> = candidates.iter().filter_map(weight).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        useful.extend(ranked.into_iter().take(seats.len()).map(|(_, rider)| rider));
    }
    useful.into_iter().collect()
}
