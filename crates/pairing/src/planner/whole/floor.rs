//! The pool while the queue is walked: which devices are free, when the others will be, and for whom some are set apart. Must not know
//! who shares with whom.

use super::alike::{Names, Set};
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

/// Of the time until devices that are set apart are all free, by time limits, the part in which those must end who are lent one of
/// them. Most jobs end long before their limits, so that the devices fall free sooner than that, and who was lent one would be in the way
/// (`tests/beside_slurm.rs` shows what the whole of it would cost those who wait).
const LENT_FRACTION: f64 = 2.0 / 3.0;

/// A device while the queue is walked.
struct Spot<'v> {
    /// Its place in the view.
    place: usize,
    device: &'v DeviceView,
    /// Its name, among those of the pool.
    name: Set,
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
    names: Names<'v>,
    windows: Vec<Window>,
    /// For how many jobs devices are set apart, or a node is kept.
    apart_count: usize,
    device_count: usize,
}

/// Devices that are set apart, and by when those have to end who are lent one of them.
pub(super) struct Window {
    /// Their places in the view.
    pub(super) places: Vec<usize>,
    pub(super) until: UnixTime,
}

/// What a job that gets whole devices finds at its turn.
pub(super) enum Found {
    /// Places of its devices in the view, those of one node after the other.
    Devices(Vec<usize>),
    None(Wait),
}

/// Devices of the same names that are free on enough nodes, what is better about it the less.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    reach: Reach,
    left_over: usize,
    spread: (u32, bool),
    /// A room each, and its spots.
    spots: Vec<(usize, Vec<usize>)>,
}

impl Spot<'_> {
    /// Whether a job that ends then can start here now.
    fn takes(&self, end: Option<UnixTime>) -> bool {
        let ends_in_time = self.apart_until.is_none_or(|until| end.is_some_and(|end| end <= until));
        self.use_ == Use::Free && ends_in_time
    }

    const fn is_in(&self, set: Set) -> bool {
        !self.name.is_empty() && set.holds(self.name)
    }
}

impl<'v> Room<'v> {
    fn new(node: &'v NodeView) -> Self {
        let (cpus_free, memory_mib_free) = (node.cpus_free, node.memory_mib_free);
        Self { node, cpus_free, memory_mib_free, is_kept: false, spots: Vec::new(), ways: Ways::between(&[]) }
    }

    fn add(&mut self, place: usize, device: &'v DeviceView, name: Set, now: UnixTime) {
        let is_open = device.blocked.is_none() && self.node.blocked.is_none();
        let (use_, free_at) = match (is_open, device.is_wholly_free()) {
            (false, _) => (Use::Closed, now + FAR),
            (true, true) => (Use::Free, now),
            (true, false) => (Use::Held, end_of_tenants(device, now)),
        };
        self.spots.push(Spot { place, device, name, use_, free_at, apart_until: None });
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

    /// The spots on which Slurm starts a job by itself: those that are named, or the one that is free first. None that is closed.
    fn fallback(&self, named: Option<&GresTypes>) -> Option<Vec<usize>> {
        let Some(gres_types) = named else { return self.first_free((0..self.spots.len()).collect(), 1) };
        let find = |own: &GresType| self.spots.iter().position(|spot| spot.device.gres_type == *own);
        let spots: Vec<usize> = gres_types.iter().map(find).collect::<Option<_>>()?;
        spots.iter().all(|spot| self.spots[*spot].use_ != Use::Closed).then_some(spots)
    }

    /// Those of `among` of these names, all of them, or the one that is free first. None that is closed.
    fn booked(&self, among: &[usize], named: Option<Set>) -> Option<Vec<usize>> {
        let Some(set) = named else { return self.first_free(among.to_vec(), 1) };
        let is_named = |index: &&usize| {
            let spot = &self.spots[**index];
            spot.use_ != Use::Closed && spot.is_in(set)
        };
        let spots: Vec<usize> = among.iter().filter(is_named).copied().collect();
        (self.names_of(&spots, |_| true) == set).then_some(spots)
    }

    /// The names of those of these spots of which that is so.
    fn names_of(&self, indexes: &[usize], is_so: impl Fn(&Spot<'_>) -> bool) -> Set {
        let own = indexes.iter().map(|index| &self.spots[*index]).filter(|spot| is_so(spot));
        own.fold(Set::default(), |all, spot| all.with(spot.name))
    }

    /// When those are free at the latest.
    fn booked_at(&self, among: &[usize], named: Option<Set>) -> Option<UnixTime> {
        let Some(set) = named else { return self.free_at(&self.booked(among, None)?) };
        let is_named = |spot: &Spot<'_>| spot.use_ != Use::Closed && spot.is_in(set);
        let own = || among.iter().map(|index| &self.spots[*index]).filter(|spot| is_named(spot));
        let all = own().fold(Set::default(), |all, spot| all.with(spot.name));
        latest(own().map(|spot| spot.free_at)).filter(|_| all == set)
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

/// Whether enough of these nodes have those names.
fn is_on(of_rooms: &[Set], named: Option<Set>, node_count: u16) -> bool {
    let has = |own: &&Set| named.map_or(!own.is_empty(), |set| own.holds(set));
    of_rooms.iter().filter(has).count() >= usize::from(node_count)
}

impl Alike {
    /// On the best of these nodes; `None`: they are too few. `found`: of each what it would be there, the node and its spots.
    fn on(
        node_count: usize,
        named: Option<Set>,
        mut found: Vec<(Reach, usize, usize, Vec<usize>)>,
    ) -> Option<Self> {
        if found.len() < node_count {
            return None;
        }
        found.sort();
        found.truncate(node_count);
        Some(Self {
            reach: found.iter().map(|one| one.0).max()?,
            left_over: found.iter().map(|one| one.1).sum(),
            spread: named.map_or((1, false), Set::spread),
            spots: found.into_iter().map(|(_, _, at, spots)| (at, spots)).collect(),
        })
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
        Self { now, rooms, names, windows: Vec::new(), apart_count: 0, device_count: view.devices.len() }
    }

    /// Jobs that Slurm starts by itself: those that can run in fewer places first, and one of one device where the planner of those
    /// takes it to be, from the end. A wide one that finds its devices held has them set apart.
    /// Those on several nodes whose devices are gone are given others that are free; gives these jobs, each with its devices' places
    /// in the view.
    pub(super) fn take_claims<'c>(&mut self, claims: &'c [AloneClaim]) -> Vec<(&'c WaitingJob, Vec<usize>)> {
        let mut moved = Vec::new();
        let mut claims: Vec<&AloneClaim> = claims.iter().collect();
        claims.sort_by_key(|claim| {
            let node_count = claim.required_nodes.len();
            (claim.gres_types.is_none(), if node_count == 0 { usize::MAX } else { node_count })
        });
        for claim in claims {
            if claim.is_of_several() {
                moved.extend(self.take_named(claim));
            } else {
                self.take_any(claim);
            }
        }
        moved
    }

    fn take_any(&mut self, claim: &AloneClaim) {
        let rooms = self.rooms.iter_mut().filter(|room| is_allowed(claim, &room.node.name));
        let spots = rooms.flat_map(|room| room.spots.iter_mut());
        let free = spots.filter(|spot| spot.use_ == Use::Free);
        if let Some(last) = free.max_by_key(|spot| spot.place) {
            (last.use_, last.free_at) = (Use::Seated, self.now + FAR);
        }
    }

    fn take_named<'c>(&mut self, claim: &'c AloneClaim) -> Option<(&'c WaitingJob, Vec<usize>)> {
        let now = self.now;
        let allowed = self.rooms.iter().enumerate().filter(|(_, room)| is_allowed(claim, &room.node.name));
        let found = allowed.filter_map(|(at, room)| {
            let spots = room.fallback(claim.gres_types.as_ref())?;
            Some((room.free_at(&spots)?, at, spots))
        });
        let found = soonest(found, usize::from(claim.node_count));
        let is_free = found.as_ref().is_some_and(|(free_at, _)| *free_at <= now);
        if let Some(job) = claim.waits.as_deref().filter(|_| !is_free)
            && let Found::Devices(places) = self.take_on_several(job)
        {
            return Some((job, places));
        }
        let (free_at, dues) = found?;
        if is_free {
            for (_, room, spots) in dues {
                self.give(room, &spots, now + FAR);
            }
        } else {
            self.set_dues_apart(&dues, free_at, now + FAR);
        }
        None
    }

    /// A job that may share: it is taken to use one device, on the node with the fewest that are free, so that wide jobs find the others;
    /// one that is set apart only where there is no other.
    pub(super) fn seat_narrow(&mut self, job: &WaitingJob) {
        let end = ends_at(job, self.now);
        let mut best: Option<(bool, usize, usize, usize)> = None;
        for (at, room) in self.rooms.iter().enumerate().filter(|(_, room)| room.has_cpus(job)) {
            let suits = |spot: &&Spot<'_>| spot.takes(end) && matches_device(job, room.node, spot.device);
            for is_apart in [false, true] {
                let mut spots = room.spots.iter().enumerate();
                let own = |spot: &Spot<'_>| spot.apart_until.is_some() == is_apart;
                let Some((spot, _)) = spots.find(|(_, spot)| own(spot) && suits(spot)) else { continue };
                let found = (is_apart, room.free_count(), at, spot);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        let Some((_, _, room, spot)) = best else { return };
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

    /// The same on several nodes: devices of the same names on each of them.
    fn take_on_several(&mut self, job: &WaitingJob) -> Found {
        let end = ends_at(job, self.now);
        let suitable: Vec<Vec<usize>> = self.rooms.iter().map(|room| room.suitable(job)).collect();
        let sets = self.sets(job, &suitable);
        // What each room could give it now.
        let free = |room: &Room<'_>, own: &[usize]| {
            let has_cpus = room.has_cpus(job);
            own.iter().copied().filter(|spot| has_cpus && room.spots[*spot].takes(end)).collect()
        };
        let free: Vec<Vec<usize>> =
            self.rooms.iter().zip(&suitable).map(|(room, own)| free(room, own)).collect();
        let names: Vec<Set> =
            self.rooms.iter().zip(&free).map(|(room, own)| room.names_of(own, |_| true)).collect();
        let enough = sets.iter().filter(|named| is_on(&names, **named, job.node_count));
        let best = enough.filter_map(|named| self.alike(job, (&free, &names), *named)).min();
        let Some(Alike { spots: taken, .. }) = best else {
            return Found::None(self.why_not_on_several(job, &suitable, &sets, end));
        };
        let mut places = Vec::new();
        for (room, spots) in taken {
            self.rooms[room].charge(job);
            places.extend(self.give(room, &spots, end.unwrap_or(self.now + FAR)));
        }
        Found::Devices(places)
    }

    /// The names that a job on several nodes may be booked with, the same on each; `None` = one of each, whichever.
    fn sets(&self, job: &WaitingJob, suitable: &[Vec<usize>]) -> Vec<Option<Set>> {
        if job.device_count == 1 {
            return vec![None];
        }
        let of_rooms = self.rooms.iter().zip(suitable).map(|(room, own)| room.names_of(own, |_| true));
        let all = of_rooms.fold(Set::default(), Set::with);
        self.names.sets(all, usize::from(job.device_count)).into_iter().map(Some).collect()
    }

    /// The best nodes on which a job can have these now. `free`: of each room what it could give the job, and the names of that.
    fn alike(
        &self,
        job: &WaitingJob,
        (free, of_rooms): (&[Vec<usize>], &[Set]),
        named: Option<Set>,
    ) -> Option<Alike> {
        let rooms = self.rooms.iter().zip(free).zip(of_rooms).enumerate();
        let found = rooms.filter(|(_, (_, own))| named.is_none_or(|set| own.holds(set)));
        let found = found.filter_map(|(at, ((room, own), _))| {
            let spots = room.booked(own, named)?;
            Some((room.ways.reach(&spots), room.free_count() - spots.len(), at, spots))
        });
        Alike::on(usize::from(job.node_count), named, found.collect())
    }

    fn why_not_on_several(
        &self,
        job: &WaitingJob,
        suitable: &[Vec<usize>],
        sets: &[Option<Set>],
        end: Option<UnixTime>,
    ) -> Wait {
        let names = |is_so: &dyn Fn(&Spot<'_>) -> bool| -> Vec<Set> {
            self.rooms.iter().zip(suitable).map(|(room, own)| room.names_of(own, is_so)).collect()
        };
        let on_enough = |is_so: &dyn Fn(&Spot<'_>) -> bool| {
            let names = names(is_so);
            sets.iter().any(|named| is_on(&names, *named, job.node_count))
        };
        match () {
            () if !on_enough(&|_| true) => Wait::NoNodeHasSoMany,
            () if !on_enough(&|spot| spot.use_ != Use::Closed) => Wait::Closed,
            () if on_enough(&|spot| spot.takes(end)) => Wait::NodeTooFull,
            () if on_enough(&|spot| spot.use_ == Use::Free) => Wait::BehindOthers,
            () => Wait::NotFree,
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
                self.rooms[room].is_kept = true;
            }
            self.apart_count += 1;
            return Some(first);
        }
        let limit = job.time_limit_seconds.map_or(FAR, Duration::from_secs);
        self.set_dues_apart(&dues, free_at, free_at + limit).then_some(first)
    }

    /// `free_at`: when all of them are free, by time limits. `free_again_at`: when the job ends that they are set apart for. `false`: some
    /// are for another already, who goes before.
    fn set_dues_apart(&mut self, dues: &[Due], free_at: UnixTime, free_again_at: UnixTime) -> bool {
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
        self.windows.push(Window { places, until });
        self.apart_count += 1;
        true
    }

    /// Why devices take no job that may share, by their places in the view; and what is set apart, for those who end in time.
    /// Whoever was seated before keeps his seat.
    pub(super) fn closed(self) -> (Vec<Option<&'static str>>, Vec<Window>) {
        let mut closed = vec![None; self.device_count];
        for room in &self.rooms {
            for spot in &room.spots {
                closed[spot.place] = match spot.use_ {
                    Use::Given => Some(GIVEN),
                    Use::Free | Use::Held | Use::Lent if room.is_kept => Some(KEPT),
                    Use::Free | Use::Held | Use::Lent => spot.apart_until.map(|_| SET_APART),
                    Use::Seated | Use::Closed => None,
                };
            }
        }
        let mut windows = self.windows;
        for window in &mut windows {
            window.places.retain(|place| closed[*place] == Some(SET_APART));
        }
        windows.retain(|window| !window.places.is_empty());
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
