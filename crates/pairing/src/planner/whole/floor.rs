//! The pool while the queue is walked: which devices are free, when the others will be, and for whom some are set apart. Must not know
//! who shares with whom.

use super::ends_at;
use super::near::{Reach, Ways, choose};
use super::words::{GIVEN, KEPT, SET_APART, Wait};
use crate::planner::admit::matches_device;
use crate::view::{AloneClaim, ClusterView, DeviceView, NodeView, WaitingJob};
use pillion_core::{GresType, GresTypes, NodeName, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// When somebody ends of whom nobody knows when: later than any time limit, so that whoever has one ends before.
const FAR: Duration = Duration::from_hours(10 * 365 * 24);

/// A device while the queue is walked.
struct Spot<'v> {
    /// Its place in the view.
    place: usize,
    device: &'v DeviceView,
    use_: Use,
    /// When it is wholly free, by time limits; now where it is.
    free_at: UnixTime,
    /// Set apart: only for those who end by then.
    apart_until: Option<UnixTime>,
}

/// What becomes of a device in this plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nobody is there, and nobody was seated there.
    Free,
    /// Somebody runs there, or is about to.
    Held,
    /// A job that may share was seated there.
    Seated,
    /// The same where it was set apart: the job ends in time.
    Lent,
    /// A job that shares with nobody gets it.
    Given,
    /// It takes nothing.
    Closed,
}

/// A node while the queue is walked.
struct Room<'v> {
    node: &'v NodeView,
    cpus_free: u32,
    memory_mib_free: u64,
    /// For a job that lacks CPUs or memory only.
    is_kept: bool,
    spots: Vec<Spot<'v>>,
    /// Of the devices of `spots`, in their order.
    ways: Ways,
}

pub(super) struct Floor<'v> {
    now: UnixTime,
    rooms: Vec<Room<'v>>,
    windows: Vec<Window>,
    /// For how many jobs devices are set apart, or a node is kept.
    apart_count: usize,
    device_count: usize,
}

/// Devices that are set apart, and until when: by then all are free, if nobody stays longer.
pub(super) struct Window {
    room: usize,
    /// Their places in the view.
    pub(super) places: Vec<usize>,
    pub(super) until: UnixTime,
}

/// What a job that gets whole devices finds at its turn.
pub(super) enum Found {
    /// Places of its devices in the view.
    Devices(Vec<usize>),
    None(Wait),
}

impl Spot<'_> {
    /// Whether a job that ends then can start here now.
    fn takes(&self, end: Option<UnixTime>) -> bool {
        let ends_in_time = self.apart_until.is_none_or(|until| end.is_some_and(|end| end <= until));
        self.use_ == Use::Free && ends_in_time
    }
}

impl<'v> Room<'v> {
    fn new(node: &'v NodeView) -> Self {
        let (cpus_free, memory_mib_free) = (node.cpus_free, node.memory_mib_free);
        Self { node, cpus_free, memory_mib_free, is_kept: false, spots: Vec::new(), ways: Ways::between(&[]) }
    }

    fn add(&mut self, place: usize, device: &'v DeviceView, now: UnixTime) {
        let is_open = device.blocked.is_none() && self.node.blocked.is_none();
        let (use_, free_at) = match (is_open, device.is_wholly_free()) {
            (false, _) => (Use::Closed, now + FAR),
            (true, true) => (Use::Free, now),
            (true, false) => (Use::Held, end_of_tenants(device, now)),
        };
        self.spots.push(Spot { place, device, use_, free_at, apart_until: None });
    }

    fn has_cpus(&self, job: &WaitingJob) -> bool {
        !self.is_kept && self.cpus_free >= job.cpus && self.memory_mib_free >= job.memory_mib
    }

    fn charge(&mut self, job: &WaitingJob) {
        self.cpus_free = self.cpus_free.saturating_sub(job.cpus);
        self.memory_mib_free = self.memory_mib_free.saturating_sub(job.memory_mib);
    }

    fn free_count(&self) -> usize {
        self.spots.iter().filter(|spot| spot.use_ == Use::Free).count()
    }

    /// Indexes of the spots that suit a job, whatever is there.
    fn suitable(&self, job: &WaitingJob) -> Vec<usize> {
        let suits = |spot: &Spot<'_>| matches_device(job, self.node, spot.device);
        (0..self.spots.len()).filter(|index| suits(&self.spots[*index])).collect()
    }

    fn devices(&self) -> Vec<&'v DeviceView> {
        self.spots.iter().map(|spot| spot.device).collect()
    }

    fn named(&self, gres_types: &GresTypes) -> Option<Vec<usize>> {
        let find = |own: &GresType| self.spots.iter().position(|spot| spot.device.gres_type == *own);
        gres_types.iter().map(find).collect()
    }

    /// The spots on which Slurm would start a job by itself: those that are named, or the one of `among` that is free first. None that
    /// is closed.
    fn fallback(&self, among: Vec<usize>, named: Option<&GresTypes>) -> Option<Vec<usize>> {
        let Some(gres_types) = named else { return self.first_free(among, 1) };
        let spots = self.named(gres_types)?;
        let is_open = |spot: &usize| among.contains(spot) && self.spots[*spot].use_ != Use::Closed;
        spots.iter().all(is_open).then_some(spots)
    }

    /// When all of these are free at the latest.
    fn free_at(&self, indexes: &[usize]) -> Option<UnixTime> {
        latest(indexes.iter().map(|index| self.spots[*index].free_at))
    }

    /// So many of these that are free first.
    fn first_free(&self, mut indexes: Vec<usize>, count: usize) -> Option<Vec<usize>> {
        indexes.retain(|index| self.spots[*index].use_ != Use::Closed);
        indexes.sort_by(|a, b| {
            let [a, b] = [a, b].map(|index| self.spots[*index].free_at.seconds());
            a.total_cmp(&b)
        });
        indexes.truncate(count);
        indexes.sort_unstable();
        (indexes.len() == count).then_some(indexes)
    }
}

fn latest(times: impl Iterator<Item = UnixTime>) -> Option<UnixTime> {
    times.max_by(|a, b| a.seconds().total_cmp(&b.seconds()))
}

/// Spots of a room, and when all of them are free.
type Due = (UnixTime, usize, Vec<usize>);

/// Of so many rooms those that are free first; and when all of them are.
fn soonest(found: impl Iterator<Item = Due>, room_count: usize) -> Option<(UnixTime, Vec<Due>)> {
    let mut found: Vec<Due> = found.collect();
    found.sort_by(|a, b| a.0.seconds().total_cmp(&b.0.seconds()));
    found.truncate(room_count);
    let all = latest(found.iter().map(|due| due.0)).filter(|_| found.len() == room_count)?;
    Some((all, found))
}

/// When the last of those ends who are on a device. One that nobody of ours is on is held by somebody whom only Slurm knows.
fn end_of_tenants(device: &DeviceView, now: UnixTime) -> UnixTime {
    let last = latest(device.tenants.iter().map(|tenant| tenant.time_limit_at.unwrap_or(now + FAR)));
    // Whoever should have ended does any moment.
    last.map_or(now + FAR, |last| if last > now { last } else { now })
}

impl<'v> Floor<'v> {
    pub(super) fn new(view: &'v ClusterView) -> Self {
        let now = view.taken_at;
        let mut rooms: Vec<Room<'v>> = view.nodes.iter().map(Room::new).collect();
        let at: BTreeMap<&NodeName, usize> =
            view.nodes.iter().enumerate().map(|(at, node)| (&node.name, at)).collect();
        for (place, device) in view.devices.iter().enumerate() {
            if let Some(at) = at.get(&device.node) {
                rooms[*at].add(place, device, now);
            }
        }
        for room in &mut rooms {
            room.ways = Ways::between(&room.devices());
        }
        Self { now, rooms, windows: Vec::new(), apart_count: 0, device_count: view.devices.len() }
    }

    /// Jobs that Slurm starts by itself: those that can run in fewer places first, and one of one device where the planner of those
    /// takes it to be, from the end. A wide one that finds its devices held has them set apart.
    pub(super) fn take_claims(&mut self, claims: &[AloneClaim]) {
        let mut claims: Vec<&AloneClaim> = claims.iter().collect();
        claims.sort_by_key(|claim| {
            let node_count = claim.required_nodes.len();
            (claim.gres_types.is_none(), if node_count == 0 { usize::MAX } else { node_count })
        });
        for claim in claims {
            if claim.is_of_several() {
                self.take_named(claim);
            } else {
                self.take_any(claim);
            }
        }
    }

    fn take_any(&mut self, claim: &AloneClaim) {
        let rooms = self.rooms.iter_mut().filter(|room| is_allowed(claim, &room.node.name));
        let spots = rooms.flat_map(|room| room.spots.iter_mut());
        let free = spots.filter(|spot| spot.use_ == Use::Free);
        if let Some(last) = free.max_by_key(|spot| spot.place) {
            (last.use_, last.free_at) = (Use::Seated, self.now + FAR);
        }
    }

    fn take_named(&mut self, claim: &AloneClaim) {
        let now = self.now;
        let allowed = self.rooms.iter().enumerate().filter(|(_, room)| is_allowed(claim, &room.node.name));
        let found = allowed.filter_map(|(at, room)| {
            let spots = room.fallback((0..room.spots.len()).collect(), claim.gres_types.as_ref())?;
            Some((room.free_at(&spots)?, at, spots))
        });
        let Some((free_at, dues)) = soonest(found, usize::from(claim.node_count)) else { return };
        if free_at <= now {
            for (_, room, spots) in dues {
                self.give(room, &spots, now + FAR);
            }
        } else {
            self.set_dues_apart(&dues, free_at, now + FAR);
        }
    }

    /// A job that may share: it is taken to use one device, on the node with the fewest that are free, so that wide jobs find the others.
    pub(super) fn seat_narrow(&mut self, job: &WaitingJob) {
        let end = ends_at(job, self.now);
        let mut best: Option<(usize, usize, usize)> = None;
        for (at, room) in self.rooms.iter().enumerate().filter(|(_, room)| room.has_cpus(job)) {
            let suits = |spot: &Spot<'_>| spot.takes(end) && matches_device(job, room.node, spot.device);
            let Some(spot) = room.spots.iter().position(suits) else { continue };
            let found = (room.free_count(), at, spot);
            best = Some(best.map_or(found, |best| best.min(found)));
        }
        let Some((_, room, spot)) = best else { return };
        let room = &mut self.rooms[room];
        room.charge(job);
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
        let Some((_, _, room, spots)) = best else { return Found::None(wait) };
        self.rooms[room].charge(job);
        Found::Devices(self.give(room, &spots, end.unwrap_or(self.now + FAR)))
    }

    /// The same on several nodes: those devices on which Slurm starts it by itself.
    fn take_on_several(&mut self, job: &WaitingJob) -> Found {
        let node_count = usize::from(job.node_count);
        let end = ends_at(job, self.now);
        let (mut with_so_many, mut open, mut free, mut best) = (0, 0, 0, Vec::new());
        for (at, room) in self.rooms.iter().enumerate() {
            let suitable = room.suitable(job);
            with_so_many += usize::from(suitable.len() >= usize::from(job.device_count));
            let Some(spots) = room.fallback(suitable, job.fallback.as_ref()) else { continue };
            open += 1;
            if spots.iter().all(|spot| room.spots[*spot].takes(end)) {
                free += 1;
                if room.has_cpus(job) {
                    best.push((room.free_count() - spots.len(), at, spots));
                }
            }
        }
        if best.len() < node_count {
            return Found::None(match () {
                () if with_so_many < node_count => Wait::NoNodeHasSoMany,
                () if open < node_count => Wait::Closed,
                () if free < node_count => Wait::NotFree,
                () => Wait::NodeTooFull,
            });
        }
        best.sort();
        best.truncate(node_count);
        let mut places = Vec::new();
        for (_, room, spots) in best {
            self.rooms[room].charge(job);
            places.extend(self.give(room, &spots, end.unwrap_or(self.now + FAR)));
        }
        Found::Devices(places)
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
        let found = self.rooms.iter().enumerate().filter_map(|(at, room)| {
            let suitable = room.suitable(job);
            let spots = match job.node_count {
                1 => room.first_free(suitable, count)?,
                _ => room.fallback(suitable, job.fallback.as_ref())?,
            };
            Some((room.free_at(&spots)?, at, spots))
        });
        let (free_at, dues) = soonest(found, usize::from(job.node_count))?;
        let first = dues.first().map(|due| &self.rooms[due.1].node.name)?;
        if free_at <= self.now {
            // Its devices are there, and it lacks something else of the nodes.
            for (_, room, _) in dues {
                self.rooms[room].is_kept = true;
            }
            self.apart_count += 1;
            return Some(first);
        }
        let limit = job.time_limit_seconds.map_or(FAR, Duration::from_secs);
        self.set_dues_apart(&dues, free_at, free_at + limit).then_some(first)
    }

    /// Until all of them are free. `false`: some are for another already, who goes before.
    fn set_dues_apart(&mut self, dues: &[Due], until: UnixTime, free_again_at: UnixTime) -> bool {
        let is_another =
            |due: &Due| due.2.iter().any(|spot| self.rooms[due.1].spots[*spot].apart_until.is_some());
        if dues.iter().any(is_another) {
            return false;
        }
        for (_, room, spots) in dues {
            self.set_spots_apart(*room, spots, until, free_again_at);
        }
        self.apart_count += 1;
        true
    }

    /// `free_again_at`: when the job ends that they are set apart for.
    fn set_spots_apart(&mut self, room: usize, spots: &[usize], until: UnixTime, free_again_at: UnixTime) {
        let own = &mut self.rooms[room];
        for index in spots {
            let spot = &mut own.spots[*index];
            (spot.apart_until, spot.free_at) = (Some(until), free_again_at);
        }
        let places = spots.iter().map(|index| own.spots[*index].place).collect();
        self.windows.push(Window { room, places, until });
    }

    /// Why devices take no job that may share, by their places in the view; and what is set apart, for those who end in time.
    /// Whoever was seated before keeps his seat.
    pub(super) fn closed(self) -> (Vec<Option<&'static str>>, Vec<Window>) {
        let mut closed = vec![None; self.device_count];
        for room in &self.rooms {
            for spot in &room.spots {
                closed[spot.place] = match spot.use_ {
                    Use::Given => Some(GIVEN),
                    Use::Free | Use::Held if room.is_kept => Some(KEPT),
                    Use::Free | Use::Held | Use::Lent => spot.apart_until.map(|_| SET_APART),
                    Use::Seated | Use::Closed => None,
                };
            }
        }
        let mut windows = self.windows;
        for window in &mut windows {
            window.places.retain(|place| closed[*place] == Some(SET_APART));
        }
        windows.retain(|window| !self.rooms[window.room].is_kept && !window.places.is_empty());
        (closed, windows)
    }
}

fn is_allowed(claim: &AloneClaim, node: &NodeName) -> bool {
    claim.required_nodes.is_empty() || claim.required_nodes.contains(node)
}

/// Of two reasons on two nodes the one that is nearer to a start.
const fn nearer(a: Wait, b: Wait) -> Wait {
    if rank(b) > rank(a) { b } else { a }
}

const fn rank(wait: Wait) -> u8 {
    match wait {
        Wait::NoNodeHasSoMany => 0,
        Wait::Closed => 1,
        Wait::NotFree => 2,
        Wait::BehindOthers => 3,
        Wait::NodeTooFull => 4,
    }
}
