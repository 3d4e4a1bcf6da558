//! The pool while the queue is walked: which devices are free, when the others will be, and for whom some are set apart. Must not know
//! who shares with whom.

mod room;
mod several;

use super::alike::Names;
use super::ends_at;
use super::near::{Reach, Ways, choose};
use super::words::{GIVEN, KEPT, SET_APART, Wait};
use crate::planner::admit::matches_device;
use crate::view::{AloneClaim, ClusterView, Demand, NodeView, WaitingJob};
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use room::{Due, FAR, Room, Spot, Use, soonest};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of the time until devices that are set apart are all free, by time limits, the part in which those must end who are lent one of
/// them. Most jobs end long before their limits, so that the devices fall free sooner than that, and who was lent one would be in the way
/// (`tests/beside_slurm.rs` shows what the whole of it would cost those who wait).
const LENT_FRACTION: f64 = 2.0 / 3.0;

pub(super) struct Floor<'v> {
    now: UnixTime,
    rooms: Vec<Room<'v>>,
    names: Names<'v>,
    windows: Vec<Window>,
    claimed: Claimed<'v>,
    /// For how many jobs devices are set apart, or a node is kept.
    apart_count: usize,
    device_count: usize,
}

/// Devices that are set apart, and by when those have to end who are lent one of them.
pub(super) struct Window {
    job_id: SlurmJobId,
    /// Their places in the view.
    pub(super) places: Vec<usize>,
    pub(super) until: UnixTime,
}

/// What is used of nodes by jobs that are not in the queue: Slurm starts them by itself, or they are let go once more.
#[derive(Default)]
pub(super) struct Claimed<'v> {
    /// By those of several devices.
    pub(super) by_several: Vec<(&'v NodeName, Demand)>,
    /// By those of one, which the planner of those counts itself where it knows of them.
    pub(super) by_one: Vec<(&'v NodeName, Demand)>,
}

impl<'v> Claimed<'v> {
    pub(super) fn all(&self) -> impl Iterator<Item = (&'v NodeName, Demand)> {
        self.by_several.iter().chain(&self.by_one).copied()
    }
}

/// What becomes of devices after the walk, by their places in the view.
pub(super) struct Closed<'v> {
    /// Why each takes nobody else now.
    pub(super) why: Vec<Option<&'static str>>,
    /// What is set apart for those who end in time.
    pub(super) windows: Vec<Window>,
    /// For whom each is set apart or kept.
    pub(super) apart: BTreeMap<SlurmJobId, Vec<usize>>,
    pub(super) claimed: Claimed<'v>,
}

/// What a job that gets whole devices finds at its turn.
pub(super) enum Found {
    /// Places of its devices in the view, those of one node after the other.
    Devices(Vec<usize>),
    None(Wait),
}

impl<'v> Floor<'v> {
    pub(super) fn new(view: &'v ClusterView) -> Self {
        let now = view.taken_at;
        let mut rooms: Vec<Room<'v>> = view.nodes.iter().map(Room::new).collect();
        let mut names = Names::default();
        let at: BTreeMap<&NodeName, usize> =
            view.nodes.iter().enumerate().map(|(at, node)| (&node.name, at)).collect();
        for (place, device) in view.devices.iter().enumerate() {
            if let Some(at) = at.get(&device.node) {
                rooms[*at].add(place, device, names.one(&device.gres_type), now);
            }
        }
        for room in &mut rooms {
            room.ways = Ways::between(&room.devices());
        }
        let (claimed, device_count) = (Claimed::default(), view.devices.len());
        Self { now, rooms, names, windows: Vec::new(), claimed, apart_count: 0, device_count }
    }

    /// Jobs that Slurm starts by itself: those that can run in fewer places first, and one of one device where the planner of those
    /// takes it to be, from the end, first where there are CPUs for it. A wide one that finds its devices held has them set apart.
    /// Those on several nodes whose devices are gone are given others that are free; gives these jobs, each with its devices' places
    /// in the view.
    pub(super) fn take_claims<'c>(&mut self, claims: &'c [AloneClaim]) -> Vec<(&'c WaitingJob, Vec<usize>)> {
        let mut moved = Vec::new();
        let mut claims: Vec<&AloneClaim> = claims.iter().collect();
        claims.sort_by_key(|claim| (claim.gres_types.is_none(), claim.place_count()));
        for claim in claims {
            let may_run_on = claim.may_run_on();
            let may_take = |node: &NodeView| may_run_on(&node.name) && node.is_large_enough(claim.demand());
            let allowed: Vec<usize> =
                (0..self.rooms.len()).filter(|at| may_take(self.rooms[*at].node)).collect();
            if claim.is_of_several() {
                moved.extend(self.take_named(claim, &allowed));
            } else {
                self.take_any(claim, &allowed);
            }
        }
        moved
    }

    fn take_any(&mut self, claim: &AloneClaim, allowed: &[usize]) {
        let demand = claim.demand();
        let free = allowed.iter().flat_map(|at| {
            let room = &self.rooms[*at];
            let has_cpus = room.meets(demand);
            let spots = room.spots.iter().enumerate().filter(|(_, spot)| spot.use_ == Use::Free);
            spots.map(move |(index, spot)| (has_cpus, spot.place, *at, index))
        });
        if let Some((_, _, at, index)) = free.max() {
            let room = &mut self.rooms[at];
            room.charge(demand);
            self.claimed.by_one.push((&room.node.name, demand));
            let spot = &mut room.spots[index];
            (spot.use_, spot.free_at) = (Use::Seated, self.now + FAR);
        }
    }

    fn take_named<'c>(
        &mut self,
        claim: &'c AloneClaim,
        allowed: &[usize],
    ) -> Option<(&'c WaitingJob, Vec<usize>)> {
        let now = self.now;
        let allowed = allowed.iter().map(|at| (*at, &self.rooms[*at]));
        // Of nodes that have them equally soon Slurm starts it where there are CPUs for it.
        let mut found: Vec<(bool, Due)> = allowed
            .filter_map(|(at, room)| {
                let spots = room.fallback(claim.gres_types.as_ref())?;
                let due = (room.free_at(&spots)?, at, spots);
                Some((!room.meets(claim.demand()), due))
            })
            .collect();
        found.sort_by_key(|(lacks_cpus, _)| *lacks_cpus);
        let count = usize::from(claim.node_count);
        let can_start = |(lacks_cpus, due): &&(bool, Due)| !lacks_cpus && due.0 <= now;
        let is_free = found.iter().filter(can_start).count() >= count;
        let found = soonest(found.into_iter().map(|(_, due)| due), count);
        if let Some(job) = claim.waits.as_deref().filter(|_| !is_free)
            && let Found::Devices(places) = self.take_on_several(job)
        {
            return Some((job, places));
        }
        let (free_at, dues) = found?;
        if free_at <= now {
            for (_, room, spots) in dues {
                self.rooms[room].charge(claim.demand());
                self.claimed.by_several.push((&self.rooms[room].node.name, claim.demand()));
                self.give(room, &spots, now + FAR);
            }
        } else {
            self.set_dues_apart(claim.job_id, &dues, (free_at, now + FAR));
        }
        None
    }

    /// A job that may share: it is taken to use one device, on the node with the fewest that are free, so that wide jobs find the others;
    /// one that is set apart only where there is no other.
    pub(super) fn seat_narrow(&mut self, job: &WaitingJob) {
        let end = ends_at(job, self.now);
        let rooms = self.rooms.iter().enumerate().filter(|(_, room)| room.has_cpus(job));
        let best = rooms.filter_map(|(at, room)| {
            let suits = |spot: &Spot<'_>| spot.takes(end) && matches_device(job, room.node, spot.device);
            let spots = room.spots.iter().enumerate().filter(|(_, spot)| suits(spot));
            let (is_apart, spot) = spots.map(|(index, spot)| (spot.apart_until.is_some(), index)).min()?;
            Some((is_apart, room.free_count(), at, spot))
        });
        let Some((_, _, room, spot)) = best.min() else { return };
        let room = &mut self.rooms[room];
        room.charge(job.demand());
        let spot = &mut room.spots[spot];
        match spot.apart_until {
            None => (spot.use_, spot.free_at) = (Use::Seated, end.unwrap_or(self.now + FAR)),
            // It is over when the other job begins.
            Some(_) => spot.use_ = Use::Lent,
        }
    }

    /// Gives a job its whole devices, on the node where they reach each other best; of several such where the fewest are left over.
    pub(super) fn take(&mut self, job: &WaitingJob) -> Found {
        if job.node_count > 1 {
            return self.take_on_several(job);
        }
        let count = usize::from(job.device_count);
        let end = ends_at(job, self.now);
        let mut wait = Wait::NoNodeHasSoMany;
        let mut best: Option<(Reach, usize, usize, Vec<usize>)> = None;
        for (at, room) in self.rooms.iter().enumerate() {
            let suitable = room.suitable(job);
            let of_use = |use_: fn(&Spot<'_>) -> bool| {
                suitable.iter().filter(|index| use_(&room.spots[**index])).count() >= count
            };
            let free: Vec<usize> =
                suitable.iter().copied().filter(|index| room.spots[*index].takes(end)).collect();
            let why = match choose(&room.devices(), &room.ways, &free, count) {
                Some(set) if room.has_cpus(job) => {
                    let found = (room.ways.reach(&set), room.free_count() - count, at, set);
                    best = Some(best.map_or(found.clone(), |best| best.min(found)));
                    continue;
                }
                Some(_) => Wait::NodeTooFull,
                None if of_use(|spot| spot.use_ == Use::Free) => Wait::BehindOthers,
                None if of_use(|spot| spot.use_ != Use::Closed) => Wait::NotFree,
                None if suitable.len() >= count => Wait::Closed,
                None => continue,
            };
            wait = nearer(wait, why);
        }
        let Some((_, _, room, spots)) = best else { return Found::None(self.unless_reserved(job, wait)) };
        self.rooms[room].charge(job.demand());
        Found::Devices(self.give(room, &spots, end.unwrap_or(self.now + FAR)))
    }

    /// The same, or that it is for reservations alone that no nodes have so many.
    fn unless_reserved(&self, job: &WaitingJob, wait: Wait) -> Wait {
        let (count, node_count) = (usize::from(job.device_count), usize::from(job.node_count));
        let is_of_none = matches!(wait, Wait::NoNodeHasSoMany);
        let would = |room: &&Room<'_>| room.would_suit_count(job) >= count;
        if is_of_none && self.rooms.iter().filter(would).count() >= node_count {
            Wait::Reserved
        } else {
            wait
        }
    }

    fn give(&mut self, room: usize, spots: &[usize], until: UnixTime) -> Vec<usize> {
        let room = &mut self.rooms[room];
        let give = |index: &usize| {
            let spot = &mut room.spots[*index];
            (spot.use_, spot.free_at) = (Use::Given, until);
            spot.place
        };
        spots.iter().map(give).collect()
    }

    /// Sets devices apart for a job that found none, where it will first have them; gives that node. `None`: nowhere, or for
    /// others before it already.
    pub(super) fn set_apart(&mut self, job: &WaitingJob, jobs_max: usize) -> Option<&'v NodeName> {
        if self.apart_count >= jobs_max {
            return None;
        }
        let count = usize::from(job.device_count);
        let suitable: Vec<Vec<usize>> = self.rooms.iter().map(|room| room.suitable(job)).collect();
        let rooms = || self.rooms.iter().zip(&suitable).enumerate();
        let node_count = usize::from(job.node_count);
        let (free_at, dues) = if node_count == 1 {
            let found = rooms().filter_map(|(at, (room, own))| {
                let spots = room.first_free(own.clone(), count)?;
                Some((room.free_at(&spots)?, at, spots))
            });
            soonest(found, 1)?
        } else {
            let of_sets = self.sets(job, &suitable).into_iter().filter_map(|named| {
                let mut found: Vec<UnixTime> =
                    rooms().filter_map(|(_, (room, own))| room.booked_at(own, named)).collect();
                found.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
                Some((*found.get(node_count - 1)?, named))
            });
            let (_, named) = of_sets.min_by(|a, b| a.0.seconds().total_cmp(&b.0.seconds()))?;
            let found = rooms().filter_map(|(at, (room, own))| {
                let spots = room.booked(own, named)?;
                Some((room.free_at(&spots)?, at, spots))
            });
            soonest(found, node_count)?
        };
        let first = dues.first().map(|due| &self.rooms[due.1].node.name)?;
        if free_at <= self.now {
            // Its devices are there, and it lacks something else of the nodes.
            for (_, room, _) in dues {
                self.rooms[room].kept_for = Some(job.start.job_id);
            }
            self.apart_count += 1;
            return Some(first);
        }
        let limit = job.time_limit_seconds.map_or(FAR, Duration::from_secs);
        self.set_dues_apart(job.start.job_id, &dues, (free_at, free_at + limit)).then_some(first)
    }

    /// `free_at`: when all of them are free, by time limits. `free_again_at`: when the job ends that they are set apart for. `false`: some
    /// are for another already, who goes before.
    fn set_dues_apart(
        &mut self,
        job_id: SlurmJobId,
        dues: &[Due],
        (free_at, free_again_at): (UnixTime, UnixTime),
    ) -> bool {
        let is_another =
            |due: &Due| due.2.iter().any(|spot| self.rooms[due.1].spots[*spot].apart_until.is_some());
        if dues.iter().any(is_another) {
            return false;
        }
        let seconds = (free_at.seconds() - self.now.seconds()).max(0.0);
        let until = self.now + Duration::from_secs_f64(seconds * LENT_FRACTION);
        let mut places = Vec::new();
        for (_, room, spots) in dues {
            for index in spots {
                let spot = &mut self.rooms[*room].spots[*index];
                (spot.apart_until, spot.free_at) = (Some(until), free_again_at);
                places.push(spot.place);
            }
        }
        self.windows.push(Window { job_id, places, until });
        self.apart_count += 1;
        true
    }

    /// Which devices take no job that may share. Whoever was seated before keeps his seat.
    pub(super) fn closed(self) -> Closed<'v> {
        let mut apart: BTreeMap<SlurmJobId, Vec<usize>> = BTreeMap::new();
        let mut closed = vec![None; self.device_count];
        for room in &self.rooms {
            for spot in &room.spots {
                closed[spot.place] = match spot.use_ {
                    Use::Given => Some(GIVEN),
                    Use::Free | Use::Held | Use::Lent if room.kept_for.is_some() => Some(KEPT),
                    Use::Free | Use::Held | Use::Lent => spot.apart_until.map(|_| SET_APART),
                    Use::Seated | Use::Closed => None,
                };
            }
            if let Some(job_id) = room.kept_for {
                let kept = room.spots.iter().map(|spot| spot.place);
                apart.entry(job_id).or_default().extend(kept.filter(|place| closed[*place] == Some(KEPT)));
            }
        }
        let mut windows = self.windows;
        for window in &mut windows {
            window.places.retain(|place| closed[*place] == Some(SET_APART));
        }
        windows.retain(|window| !window.places.is_empty());
        for window in &windows {
            apart.entry(window.job_id).or_default().extend(&window.places);
        }
        Closed { why: closed, windows, apart, claimed: self.claimed }
    }
}

/// Of two reasons on two nodes the one that is nearer to a start.
const fn nearer(a: Wait, b: Wait) -> Wait {
    if rank(b) > rank(a) { b } else { a }
}

const fn rank(wait: Wait) -> u8 {
    match wait {
        Wait::NoNodeHasSoMany | Wait::Reserved => 0,
        Wait::Closed => 1,
        Wait::NotFree => 2,
        Wait::BehindOthers => 3,
        Wait::NodeTooFull => 4,
    }
}
