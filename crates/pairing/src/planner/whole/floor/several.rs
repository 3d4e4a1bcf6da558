//! The same for jobs on several nodes, each of which gives devices of the same names.

use super::room::{FAR, Room, Spot, Use};
use super::{Floor, Found};
use crate::planner::whole::alike::Set;
use crate::planner::whole::ends_at;
use crate::planner::whole::near::Reach;
use crate::planner::whole::words::Wait;
use crate::view::WaitingJob;
use pillion_core::UnixTime;

/// Devices of the same names that are free on enough nodes, what is better about it the less.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    reach: Reach,
    left_over: usize,
    spread: (u32, bool),
    /// A room each, and its spots.
    spots: Vec<(usize, Vec<usize>)>,
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

impl Floor<'_> {
    /// The same on several nodes: devices of the same names on each of them.
    pub(super) fn take_on_several(&mut self, job: &WaitingJob) -> Found {
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
            self.rooms[room].charge(job.demand());
            places.extend(self.give(room, &spots, end.unwrap_or(self.now + FAR)));
        }
        Found::Devices(places)
    }

    /// The names that a job on several nodes may be booked with, the same on each; `None` = one of each, whichever.
    pub(super) fn sets(&self, job: &WaitingJob, suitable: &[Vec<usize>]) -> Vec<Option<Set>> {
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
            () if !on_enough(&|_| true) => self.unless_reserved(job, Wait::NoNodeHasSoMany),
            () if !on_enough(&|spot| spot.use_ != Use::Closed) => Wait::Closed,
            () if on_enough(&|spot| spot.takes(end)) => Wait::NodeTooFull,
            () if on_enough(&|spot| spot.use_ == Use::Free) => Wait::BehindOthers,
            () => Wait::NotFree,
        }
    }
}
