//! A node of the pool while the queue is walked, and its devices. Must not know for whom anything is set apart.

use crate::planner::admit::{matches_but_for_reservations, matches_device};
use crate::planner::whole::alike::Set;
use crate::planner::whole::near::Ways;
use crate::view::{Demand, DeviceView, NodeView, WaitingJob};
use pillion_core::{GresType, GresTypes, SlurmJobId, UnixTime};
use std::time::Duration;

/// When somebody ends of whom nobody knows when: later than any time limit, so that whoever has one ends before.
pub(super) const FAR: Duration = Duration::from_hours(10 * 365 * 24);

/// When somebody ends who should have ended: any moment, and not yet, for what he is on is not free.
const ANY_MOMENT: Duration = Duration::from_secs(1);

/// A device while the queue is walked.
pub(super) struct Spot<'v> {
    /// Its place in the view.
    pub(super) place: usize,
    pub(super) device: &'v DeviceView,
    /// Its name, among those of the pool.
    pub(super) name: Set,
    pub(super) use_: Use,
    /// When it is wholly free, by time limits; now where it is.
    pub(super) free_at: UnixTime,
    /// Set apart: only for those who end by then.
    pub(super) apart_until: Option<UnixTime>,
}

/// What becomes of a device in this plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
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
pub(super) struct Room<'v> {
    pub(super) node: &'v NodeView,
    pub(super) cpus_free: u32,
    pub(super) memory_mib_free: u64,
    /// For a job that lacks CPUs or memory only.
    pub(super) kept_for: Option<SlurmJobId>,
    pub(super) spots: Vec<Spot<'v>>,
    /// Of the devices of `spots`, in their order.
    pub(super) ways: Ways,
}

impl Spot<'_> {
    /// Whether a job that ends then can start here now.
    pub(super) fn takes(&self, end: Option<UnixTime>) -> bool {
        let ends_in_time = self.apart_until.is_none_or(|until| end.is_some_and(|end| end <= until));
        self.use_ == Use::Free && ends_in_time
    }
}

impl<'v> Room<'v> {
    pub(super) fn new(node: &'v NodeView) -> Self {
        let (cpus_free, memory_mib_free) = (node.cpus_free, node.memory_mib_free);
        Self { node, cpus_free, memory_mib_free, kept_for: None, spots: Vec::new(), ways: Ways::between(&[]) }
    }

    pub(super) fn add(&mut self, place: usize, device: &'v DeviceView, name: Set, now: UnixTime) {
        let is_open = device.blocked.is_none() && self.node.blocked.is_none();
        let (use_, free_at) = match (is_open, device.is_wholly_free()) {
            (false, _) => (Use::Closed, now + FAR),
            (true, true) => (Use::Free, now),
            (true, false) => (Use::Held, end_of_tenants(device, now)),
        };
        self.spots.push(Spot { place, device, name, use_, free_at, apart_until: None });
    }

    pub(super) fn has_cpus(&self, job: &WaitingJob) -> bool {
        self.kept_for.is_none() && self.meets(job.demand())
    }

    pub(super) const fn meets(&self, (cpus, memory_mib): Demand) -> bool {
        self.cpus_free >= cpus && self.memory_mib_free >= memory_mib
    }

    pub(super) const fn charge(&mut self, (cpus, memory_mib): Demand) {
        self.cpus_free = self.cpus_free.saturating_sub(cpus);
        self.memory_mib_free = self.memory_mib_free.saturating_sub(memory_mib);
    }

    pub(super) fn free_count(&self) -> usize {
        self.spots.iter().filter(|spot| spot.use_ == Use::Free).count()
    }

    /// Indexes of the spots that suit a job, whatever is there.
    pub(super) fn suitable(&self, job: &WaitingJob) -> Vec<usize> {
        let suits = |spot: &Spot<'_>| matches_device(job, self.node, spot.device);
        (0..self.spots.len()).filter(|index| suits(&self.spots[*index])).collect()
    }

    /// How many of the spots suit it whoever has the node before it would end.
    pub(super) fn would_suit_count(&self, job: &WaitingJob) -> usize {
        self.spots.iter().filter(|spot| matches_but_for_reservations(job, self.node, spot.device)).count()
    }

    pub(super) fn devices(&self) -> Vec<&'v DeviceView> {
        self.spots.iter().map(|spot| spot.device).collect()
    }

    /// The spots on which Slurm starts a job by itself: those that are named, or the one that is free first. None that is closed.
    pub(super) fn fallback(&self, named: Option<&GresTypes>) -> Option<Vec<usize>> {
        let Some(gres_types) = named else { return self.first_free((0..self.spots.len()).collect(), 1) };
        let find = |own: &GresType| self.spots.iter().position(|spot| spot.device.gres_type == *own);
        let spots: Vec<usize> = gres_types.iter().map(find).collect::<Option<_>>()?;
        spots.iter().all(|spot| self.spots[*spot].use_ != Use::Closed).then_some(spots)
    }

    /// Those of `among` of these names, all of them, or the one that is free first. None that is closed.
    pub(super) fn booked(&self, among: &[usize], named: Option<Set>) -> Option<Vec<usize>> {
        let Some(set) = named else { return self.first_free(among.to_vec(), 1) };
        let spots: Vec<usize> = self.open_of(among, set).collect();
        (self.names_of(&spots, |_| true) == set).then_some(spots)
    }

    /// Those of `among` of these names that are not closed.
    fn open_of<'a>(&'a self, among: &'a [usize], set: Set) -> impl Iterator<Item = usize> + 'a {
        let is_open = move |spot: &Spot<'_>| spot.use_ != Use::Closed && spot.name.is_part_of(set);
        among.iter().copied().filter(move |index| is_open(&self.spots[*index]))
    }

    /// The names of those of these spots of which that is so.
    pub(super) fn names_of(&self, indexes: &[usize], is_so: impl Fn(&Spot<'_>) -> bool) -> Set {
        let own = indexes.iter().map(|index| &self.spots[*index]).filter(|spot| is_so(spot));
        own.fold(Set::default(), |all, spot| all.with(spot.name))
    }

    /// When those are free at the latest: asked of many sets, so nothing is collected for it.
    pub(super) fn booked_at(&self, among: &[usize], named: Option<Set>) -> Option<UnixTime> {
        let Some(set) = named else { return self.free_at(&self.booked(among, None)?) };
        let own = || self.open_of(among, set).map(|index| &self.spots[index]);
        let all = own().fold(Set::default(), |all, spot| all.with(spot.name));
        latest(own().map(|spot| spot.free_at)).filter(|_| all == set)
    }

    /// When all of these are free at the latest.
    pub(super) fn free_at(&self, indexes: &[usize]) -> Option<UnixTime> {
        latest(indexes.iter().map(|index| self.spots[*index].free_at))
    }

    /// So many of these that are free first.
    pub(super) fn first_free(&self, mut indexes: Vec<usize>, count: usize) -> Option<Vec<usize>> {
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

pub(super) fn latest(times: impl Iterator<Item = UnixTime>) -> Option<UnixTime> {
    times.max_by(|a, b| a.seconds().total_cmp(&b.seconds()))
}

/// Spots of a room, and when all of them are free.
pub(super) type Due = (UnixTime, usize, Vec<usize>);

/// Of so many rooms those that are free first; and when all of them are.
pub(super) fn soonest(found: impl Iterator<Item = Due>, room_count: usize) -> Option<(UnixTime, Vec<Due>)> {
    let mut found: Vec<Due> = found.collect();
    found.sort_by(|a, b| a.0.seconds().total_cmp(&b.0.seconds()));
    found.truncate(room_count);
    let all = latest(found.iter().map(|due| due.0)).filter(|_| found.len() == room_count)?;
    Some((all, found))
}

/// When the last of those ends who are on a device, tenants or whom Slurm started there by itself.
pub(super) fn end_of_tenants(device: &DeviceView, now: UnixTime) -> UnixTime {
    let tenants = device.tenants.iter().map(|tenant| tenant.time_limit_at.unwrap_or(now + FAR));
    let last = latest(tenants.chain(device.alone_until));
    last.map_or(now + FAR, |last| if last > now { last } else { now + ANY_MOMENT })
}
