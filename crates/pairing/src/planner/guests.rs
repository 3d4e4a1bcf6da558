//! Which guests make room: jobs that were submitted to run where nobody else needs the device, and are started again where somebody
//! does. A job that is left waiting gets the devices of guests alone, as few of them as it takes and rather those that began last;
//! from who is there besides nobody takes anything.
//!
//! Nothing is reserved: when they have gone, the next plan gives the devices to whom they are for, and guests come after everybody.
//! Whatever comes between (the job starts elsewhere, or is cancelled) costs guests what they agreed to.

use crate::plan::{Pairing, Plan, Reason};
use crate::planner::admit::matches_device;
use crate::planner::whole::alike::{Names, Set};
use crate::view::{AloneClaim, ClusterView, DeviceView, NodeView, Tenant, WaitingJob};
use pillion_core::{GresType, GresTypes, NodeName, SlurmJobId};
use std::collections::{BTreeMap, BTreeSet};

/// A guest that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomMade {
    /// Who goes.
    pub guest: SlurmJobId,
    /// From where.
    pub node: NodeName,
    /// Who waits for the device.
    pub waits: SlurmJobId,
}

/// What follows of a plan for guests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    /// The guests that are to go now.
    pub going: Vec<RoomMade>,
    /// For whom somebody is on the way out: these, or others before.
    pub expected: BTreeSet<SlurmJobId>,
}

/// The guests that are to go now, after this plan of the view. `settling`: for whom somebody was on the way out a moment ago; until
/// Slurm has cleared the devices nobody else goes for them.
pub fn make_room(view: &ClusterView, plan: &Plan, settling: &BTreeSet<SlurmJobId>) -> Room {
    if !view.devices.iter().any(|device| device.tenants.iter().any(|tenant| tenant.guest.is_some())) {
        return Room::default();
    }
    let mut names = Names::default();
    let mut nodes = nodes(view, plan, &mut names);
    let reasons: BTreeMap<SlurmJobId, Reason> =
        plan.left_waiting.iter().map(|left| (left.job_id, left.reason)).collect();
    // Those that Slurm starts by itself come first: nothing of ours may stand in their way.
    let claims = view.alone_claims.iter().map(Need::of_claim);
    let waiting = view.waiting.iter().filter(|job| {
        !job.as_guest && reasons.get(&job.start.job_id).is_some_and(|reason| lacks_devices(*reason))
    });
    let mut room = Room::default();
    for need in claims.chain(waiting.map(Need::of_job)) {
        if nodes.is_empty() {
            break;
        }
        let may_ask = !settling.contains(&need.job_id);
        let Some(going) = clear(&mut nodes, &names, &need, may_ask) else { continue };
        room.going.extend(going);
        room.expected.insert(need.job_id);
    }
    room
}

/// Whether it would start if devices were free for it.
const fn lacks_devices(reason: Reason) -> bool {
    !matches!(reason, Reason::Held | Reason::LetGo | Reason::AwaitsVerdict)
}

/// What somebody who waits needs.
struct Need<'v> {
    job_id: SlurmJobId,
    /// Absent: of a job that Slurm starts by itself, whose devices and nodes are known from its claim.
    job: Option<&'v WaitingJob>,
    required_nodes: &'v [NodeName],
    /// Devices that it must have; absent: any, and of several on several nodes the same ones of each.
    named: Option<&'v GresTypes>,
    device_count: usize,
    node_count: usize,
}

impl<'v> Need<'v> {
    fn of_claim(claim: &'v AloneClaim) -> Self {
        Self {
            job_id: claim.job_id,
            job: None,
            required_nodes: &claim.required_nodes,
            named: claim.gres_types.as_ref(),
            device_count: claim.gres_types.as_ref().map_or(1, GresTypes::count),
            node_count: usize::from(claim.node_count),
        }
    }

    fn of_job(job: &'v WaitingJob) -> Self {
        Self {
            job_id: job.start.job_id,
            job: Some(job),
            required_nodes: &[],
            named: None,
            device_count: usize::from(job.device_count),
            node_count: usize::from(job.node_count),
        }
    }

    fn suits(&self, node: &NodeView, spot: &Spot<'_>) -> bool {
        let device = spot.device;
        self.named.is_none_or(|named| named.contains(&device.gres_type))
            && (self.required_nodes.is_empty() || self.required_nodes.contains(&node.name))
            && self.job.is_none_or(|job| matches_device(job, node, device))
            && !(self.job.is_some() && device.is_wholly_free() && self.was_not_given(spot))
    }

    /// Whether it would have a device that is free by now, were it for it: one that is all that it needs, or is set apart for somebody
    /// else. Guests that went for the rest of what it needs would go for nothing, and again and again.
    fn was_not_given(&self, spot: &Spot<'_>) -> bool {
        self.device_count * self.node_count == 1 || spot.apart_for.is_some_and(|job| job != self.job_id)
    }

    fn cpus(&self) -> u32 {
        self.job.map_or(0, |job| job.cpus)
    }

    fn memory_mib(&self) -> u64 {
        self.job.map_or(0, |job| job.memory_mib)
    }
}

/// A node, with what of it is free or would be if guests went.
struct Host<'v> {
    node: &'v NodeView,
    cpus_free: u32,
    memory_mib_free: u64,
    spots: Vec<Spot<'v>>,
}

/// A device that is free, or has guests alone.
struct Spot<'v> {
    device: &'v DeviceView,
    /// Its name, among those of all of them.
    name: Set,
    /// For whom it is set apart.
    apart_for: Option<SlurmJobId>,
}

impl Spot<'_> {
    /// Guests that would have to be told to go.
    fn guests(&self) -> impl Iterator<Item = &Tenant> {
        let tenants = self.device.tenants.iter();
        tenants.filter(|tenant| tenant.guest.as_ref().is_some_and(|guest| !guest.is_leaving))
    }

    /// First what costs nobody anything, then the fewest guests, then those that have done least.
    fn cost(&self) -> (usize, i64, &GresType) {
        let begun = self.guests().filter_map(|tenant| tenant.guest.as_ref()?.started_at);
        let first = begun.map(|at| i64::try_from(at.epoch()).unwrap_or(i64::MAX)).min();
        (self.guests().count(), first.map_or(0, |first| -first), &self.device.gres_type)
    }

    /// CPUs and MiB that are free when all guests have gone.
    fn freed(&self) -> (u32, u64) {
        let guests = self.device.tenants.iter().filter_map(|tenant| tenant.guest.as_ref());
        guests.fold((0, 0), |(cpus, mib), guest| {
            (cpus.saturating_add(guest.cpus), mib.saturating_add(guest.memory_mib))
        })
    }
}

/// Open nodes with devices that are free after this plan, or have guests alone.
fn nodes<'v>(view: &'v ClusterView, plan: &Plan, names: &mut Names<'v>) -> Vec<Host<'v>> {
    let places = |pairing: &'_ Pairing| {
        let node = pairing.node.clone();
        pairing.gres_types.iter().map(move |gres_type| (node.clone(), gres_type.clone())).collect::<Vec<_>>()
    };
    let let_go = plan.let_go.iter().flat_map(|one| one.devices.iter().cloned());
    let planned: BTreeSet<(NodeName, GresType)> =
        plan.pairings.iter().flat_map(places).chain(let_go).collect();
    let set_apart = plan.set_apart.iter().flat_map(|one| one.devices.iter().map(|place| (place, one.job_id)));
    let set_apart: BTreeMap<&(NodeName, GresType), SlurmJobId> = set_apart.collect();
    let mut spots: BTreeMap<&NodeName, Vec<Spot<'v>>> = BTreeMap::new();
    for device in view.devices.iter().filter(|device| is_for_guests(device)) {
        let place = (device.node.clone(), device.gres_type.clone());
        if !planned.contains(&place) {
            let (name, apart_for) = (names.one(&device.gres_type), set_apart.get(&place).copied());
            spots.entry(&device.node).or_default().push(Spot { device, name, apart_for });
        }
    }
    let open = view.nodes.iter().filter(|node| node.blocked.is_none());
    let hosts = open.filter_map(|node| {
        let (cpus_free, memory_mib_free) = (node.cpus_free, node.memory_mib_free);
        Some(Host { node, cpus_free, memory_mib_free, spots: spots.remove(&node.name)? })
    });
    hosts.collect()
}

/// Whether nobody but guests is on it.
fn is_for_guests(device: &DeviceView) -> bool {
    let is_clear = device.is_wholly_free()
        || (!device.tenants.is_empty()
            && device.tenants.iter().all(|tenant| tenant.guest.is_some() && tenant.is_running));
    device.blocked.is_none() && is_clear
}

/// Guests that would go, and how late they began: the less of both, the better.
type Cost = (usize, i64);

/// Where a need is met: nodes, each with devices of it, by their places.
type Found = Vec<(usize, Vec<usize>)>;

/// The guests that go for this need: nobody where those suffice that are on their way. `None`: no guests' going would be enough, or
/// nobody may be asked (`may_ask`).
fn clear(
    nodes: &mut Vec<Host<'_>>,
    names: &Names<'_>,
    need: &Need<'_>,
    may_ask: bool,
) -> Option<Vec<RoomMade>> {
    // Of a single one of each node Slurm takes any.
    let is_alike = need.node_count > 1 && need.device_count > 1 && need.named.is_none();
    let found = if is_alike {
        cheapest_alike(nodes, names, need, may_ask)
    } else {
        cheapest(nodes, need, may_ask, None).map(|(_, found)| found)
    };
    let mut going = Vec::new();
    for (place, spots) in found? {
        going.extend(nodes[place].take(&spots, need));
    }
    nodes.retain(|host| !host.spots.is_empty());
    Some(going)
}

/// The cheapest set of names that as many nodes have: Slurm books the same ones of each.
fn cheapest_alike(nodes: &[Host<'_>], names: &Names<'_>, need: &Need<'_>, may_ask: bool) -> Option<Found> {
    let spots = nodes.iter().flat_map(|host| host.spots.iter().map(move |spot| (host.node, spot)));
    let suiting = spots.filter(|(node, spot)| need.suits(node, spot));
    let all = suiting.fold(Set::default(), |all, (_, spot)| all.with(spot.name));
    let sets = names.sets(all, need.device_count).into_iter();
    let found = sets.filter_map(|set| {
        let (cost, found) = cheapest(nodes, need, may_ask, Some(set))?;
        Some((cost, set.spread(), found))
    });
    found.min_by_key(|(cost, spread, _)| (*cost, *spread)).map(|(.., found)| found)
}

/// The cheapest nodes for it, of devices of these names; `None` = of any.
fn cheapest(nodes: &[Host<'_>], need: &Need<'_>, may_ask: bool, among: Option<Set>) -> Option<(Cost, Found)> {
    let mut found: Vec<(Cost, usize, Vec<usize>)> = Vec::new();
    for (place, host) in nodes.iter().enumerate() {
        let Some(spots) = host.enough_for(need, may_ask, among) else { continue };
        let costs = spots.iter().map(|spot| host.spots[*spot].cost());
        found.push((sum(costs.map(|(count, begun, _)| (count, begun))), place, spots));
    }
    if found.len() < need.node_count {
        return None;
    }
    found.sort();
    found.truncate(need.node_count);
    let cost = sum(found.iter().map(|(cost, ..)| *cost));
    Some((cost, found.into_iter().map(|(_, place, spots)| (place, spots)).collect()))
}

fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

impl Host<'_> {
    /// The cheapest devices of this node that suffice, of these names.
    fn enough_for(&self, need: &Need<'_>, may_ask: bool, among: Option<Set>) -> Option<Vec<usize>> {
        let suits = |spot: &Spot<'_>| {
            let is_open = may_ask || spot.guests().next().is_none();
            let is_meant = among.is_none_or(|set| spot.name.is_part_of(set));
            is_open && is_meant && need.suits(self.node, spot)
        };
        let mut suitable: Vec<usize> =
            (0..self.spots.len()).filter(|spot| suits(&self.spots[*spot])).collect();
        suitable.sort_by(|a, b| self.spots[*a].cost().cmp(&self.spots[*b].cost()));
        let others = suitable.split_off(need.device_count.min(suitable.len()));
        if suitable.len() < need.device_count {
            return None;
        }
        // More of them where it lacks CPUs or memory.
        let mut others = others.into_iter().filter(|spot| self.spots[*spot].guests().next().is_some());
        while !self.has_cpus(&suitable, need) {
            suitable.push(others.next()?);
        }
        Some(suitable)
    }

    fn has_cpus(&self, spots: &[usize], need: &Need<'_>) -> bool {
        let (cpus, memory_mib) = self.with_freed(spots);
        cpus >= need.cpus() && memory_mib >= need.memory_mib()
    }

    fn with_freed(&self, spots: &[usize]) -> (u32, u64) {
        spots.iter().fold((self.cpus_free, self.memory_mib_free), |(cpus, memory_mib), spot| {
            let freed = self.spots[*spot].freed();
            (cpus.saturating_add(freed.0), memory_mib.saturating_add(freed.1))
        })
    }

    /// Gives them to the one who needs them.
    fn take(&mut self, spots: &[usize], need: &Need<'_>) -> Vec<RoomMade> {
        let (cpus, memory_mib) = self.with_freed(spots);
        self.cpus_free = cpus.saturating_sub(need.cpus());
        self.memory_mib_free = memory_mib.saturating_sub(need.memory_mib());
        let mut going = Vec::new();
        for spot in spots {
            going.extend(self.spots[*spot].guests().map(|tenant| RoomMade {
                guest: tenant.job_id,
                node: self.node.name.clone(),
                waits: need.job_id,
            }));
        }
        let mut place = 0..;
        self.spots.retain(|_| place.next().is_none_or(|place| !spots.contains(&place)));
        going
    }
}

#[cfg(test)]
mod tests;
