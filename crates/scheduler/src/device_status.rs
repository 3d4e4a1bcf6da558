//! Every device of the pool as it is now: how it is in one word, how many are on it, and why it takes nobody new. Pure, and
//! the one module that says so: what the engine plans with (`view`), what `pillion top` shows and what the page shows come
//! from here. Whose the tenants are, and who may know it, is their callers' matter.

use crate::agents::AgentState;
use crate::idle::Place;
use crate::scan::Scan;
use crate::setup_backoff::{Failures, SetupBackoff};
use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::{DecisionId, GresType, NodeName};
use pillion_slurm::Node;
use pillion_store::{Drain, drain_of};
use std::collections::BTreeMap;
use std::fmt;

/// Devices that are not as they were planned with. They take nobody new while it lasts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Amiss {
    /// Somebody does far more than he was let in for, and whose sharing it is.
    pub overrun: BTreeMap<Place, DecisionId>,
    /// A promise is being broken, and whose sharing it is.
    pub strained: BTreeMap<Place, DecisionId>,
    /// Shares could not be set up there.
    pub setup_backoff: SetupBackoff,
}

#[cfg(test)]
pub static NOTHING_AMISS: Amiss =
    Amiss { overrun: BTreeMap::new(), strained: BTreeMap::new(), setup_backoff: SetupBackoff::new() };

impl Amiss {
    /// What is seen of this device; what says more of who is on it first.
    pub fn of(&self, node: &NodeName, gres_type: &GresType) -> Option<Closed<'_>> {
        let place = (node.clone(), gres_type.clone());
        let (overrun, strained) = (self.overrun.contains_key(&place), self.strained.contains_key(&place));
        let seen = overrun.then_some(Closed::Overrun).or(strained.then_some(Closed::Strained));
        seen.or_else(|| self.setup_backoff.closed(&place).map(Closed::SetupFailed))
    }
}

/// Why a device takes no new tenants, whoever is on it. What an operator says of it tells more than what it is like
/// meanwhile, so that goes first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Closed<'a> {
    /// An operator said so, of it or of its node.
    Drained(&'a Drain),
    /// Nobody is there who could prepare it.
    AgentNotResponding,
    /// Its worst fault.
    Fault(&'a DeviceFault),
    /// Somebody on it does far more than he was let in for.
    Overrun,
    /// Who is on it, is slowed more than he was promised.
    Strained,
    /// The last share could not be set up there.
    SetupFailed(&'a Failures),
}

impl Closed<'_> {
    /// As this reader may read it.
    pub fn told(&self, to_operator: bool) -> String {
        if to_operator { self.to_string() } else { self.for_everybody() }
    }

    /// As everybody may read it: nothing by which to know who is on the device.
    pub fn for_everybody(&self) -> String {
        match self {
            Self::Fault(fault) => fault.for_everybody().to_string(),
            // An agent may name jobs and users.
            Self::SetupFailed(_) => "a share could not be set up there a moment ago".to_owned(),
            Self::Drained(_) | Self::AgentNotResponding | Self::Overrun | Self::Strained => self.to_string(),
        }
    }
}

impl fmt::Display for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained(drain) => drain.fmt(f),
            Self::AgentNotResponding => f.write_str("its agent is not responding"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Overrun => f.write_str("who runs there is not as he was known"),
            Self::Strained => f.write_str("a promise is being broken there"),
            Self::SetupFailed(failures) => failures.fmt(f),
        }
    }
}

/// Why a device of this agent's node takes no new tenants; `None`: it does.
pub fn closed<'a>(
    drains: &'a [Drain],
    amiss: &'a Amiss,
    node: &NodeName,
    agent: &'a AgentState,
    gres_type: &GresType,
) -> Option<Closed<'a>> {
    if let Some(drain) = drain_of(drains, node, gres_type) {
        return Some(Closed::Drained(drain));
    }
    if !agent.is_connected {
        return Some(Closed::AgentNotResponding);
    }
    let fault = agent.conditions.get(gres_type).and_then(DeviceCondition::closed_by).map(Closed::Fault);
    fault.or_else(|| amiss.of(node, gres_type))
}

/// How many are on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupation {
    Idle,
    /// One, by a decision of ours or because Slurm itself put him there.
    Alone,
    /// Two or more by decisions of ours.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot<'a> {
    pub node: &'a NodeName,
    /// Its node's agent.
    pub agent: &'a AgentState,
    pub device: &'a DeviceDescription,
    /// Tenants by decisions of ours, as its caller counts them.
    pub tenant_count: u32,
    /// What Slurm has booked of 100.
    pub shards_used: u32,
    /// Why it takes no new tenants.
    pub closed: Option<Closed<'a>>,
}

impl<'a> Spot<'a> {
    /// Which device it is.
    pub const fn place(&self) -> (&'a NodeName, &'a GresType) {
        (self.node, &self.device.gres_type)
    }

    /// Who is on it, whether it is closed or not.
    pub const fn occupation(&self) -> Occupation {
        match (self.tenant_count, self.shards_used) {
            (0, 0) => Occupation::Idle,
            // A job that Slurm itself put there, without a decision of ours.
            (0 | 1, _) => Occupation::Alone,
            _ => Occupation::Shared,
        }
    }

    /// How it is, by what is worst about it: `not-responding`, `closed`, `shared`, `alone` or `idle`.
    pub const fn state(&self) -> &'static str {
        match (self.agent.is_connected, &self.closed, self.occupation()) {
            (false, ..) => "not-responding",
            (_, Some(_), _) => "closed",
            (_, None, Occupation::Shared) => "shared",
            (_, None, Occupation::Alone) => "alone",
            (_, None, Occupation::Idle) => "idle",
        }
    }
}

/// What the status of devices is made from.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// Agents by node.
    pub agents: &'a BTreeMap<NodeName, AgentState>,
    /// The last scan.
    pub scan: Option<&'a Scan>,
    /// What operators drained.
    pub drains: &'a [Drain],
    /// What was seen of who is there.
    pub amiss: &'a Amiss,
    /// Tenants of each device by decisions of ours; of those that are not here there is none.
    pub tenant_counts: BTreeMap<(&'a NodeName, &'a GresType), u32>,
}

/// All devices that agents reported, in the order of nodes and of a node's own indexes.
pub fn spots<'a>(sources: &Sources<'a>) -> Vec<Spot<'a>> {
    let nodes = sources.scan.into_iter().flat_map(|scan| &scan.nodes);
    let nodes: BTreeMap<&NodeName, &Node> = nodes.map(|node| (&node.name, node)).collect();
    let mut spots = Vec::new();
    for (node, agent) in sources.agents {
        for device in &agent.devices {
            let shards = nodes.get(node).and_then(|it| it.shards.get(&device.gres_type));
            let tenant_count = sources.tenant_counts.get(&(node, &device.gres_type)).copied();
            spots.push(Spot {
                node,
                agent,
                device,
                tenant_count: tenant_count.unwrap_or(0),
                shards_used: shards.map_or(0, |&(_, used)| used),
                closed: closed(sources.drains, sources.amiss, node, agent, &device.gres_type),
            });
        }
    }
    spots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, NOW, at, scan};
    use pillion_core::UserId;
    use pillion_core::health::FaultKind;
    use pillion_slurm::NodeAvailability;
    use pillion_store::DrainPlace;

    fn agent() -> AgentState {
        let device =
            DeviceDescription { model: "h100".into(), memory_bytes: 80, ..pillion_test_kit::device(0) };
        testing::agent(vec![device])
    }

    fn broken() -> AgentState {
        let faults = vec![DeviceFault { kind: FaultKind::Gone, detail: "it is gone".into(), since: at(NOW) }];
        let gres_type = GresType::new("g0");
        let condition = DeviceCondition {
            gres_type: gres_type.clone(),
            faults,
            sources: BTreeMap::new(),
            instances_empty: Vec::new(),
        };
        AgentState { conditions: [(gres_type, condition)].into(), ..agent() }
    }

    fn drain(gres_type: Option<&str>) -> Drain {
        let place = DrainPlace { node: NodeName::new("n1"), gres_type: gres_type.map(GresType::new) };
        Drain { place, by: "root".into(), reason: "fan noise".into(), since: at(NOW) }
    }

    fn status(agent: &AgentState, tenants: u32, booked: u32, drains: &[Drain]) -> (&'static str, String) {
        status_of(agent, tenants, booked, drains, &Amiss::default())
    }

    /// State, and why it is closed, of n1's only device.
    fn status_of(
        agent: &AgentState,
        tenants: u32,
        booked: u32,
        drains: &[Drain],
        amiss: &Amiss,
    ) -> (&'static str, String) {
        let mut scan = scan(None, NodeAvailability::Up);
        scan.nodes[0].shards = [(GresType::new("g0"), (100, booked))].into();
        let agents = [(NodeName::new("n1"), agent.clone())].into();
        let (node, gres_type) = (NodeName::new("n1"), GresType::new("g0"));
        let tenant_counts = [((&node, &gres_type), tenants)].into();
        let sources = Sources { agents: &agents, scan: Some(&scan), drains, amiss, tenant_counts };
        let spot = spots(&sources)[0];
        (spot.state(), spot.closed.map(|why| why.to_string()).unwrap_or_default())
    }

    #[test]
    fn a_device_is_what_is_worst_about_it() {
        let open = |tenants, booked| status(&agent(), tenants, booked, &[]);
        let none = String::new;
        assert_eq!([open(0, 0), open(1, 40), open(2, 90)].map(|it| it.0), ["idle", "alone", "shared"]);
        assert_eq!(open(0, 100), ("alone", none()), "Slurm itself put somebody there");
        assert_eq!(open(2, 0), ("shared", none()), "they are about to be there");
        let gone = status(&broken(), 2, 90, &[]);
        assert!(gone.0 == "closed" && gone.1.ends_with("it is gone"), "{gone:?}");
        let not_responding = AgentState { is_connected: false, ..broken() };
        assert_eq!(
            status(&not_responding, 2, 90, &[]),
            ("not-responding", "its agent is not responding".to_owned())
        );
    }

    #[test]
    fn a_device_whose_tenants_are_not_as_planned_takes_nobody_new_and_says_so() {
        let place = (NodeName::new("n1"), GresType::new("g0"));
        let only = |place: &Place| BTreeMap::from([(place.clone(), DecisionId(1))]);
        let strained = Amiss { strained: only(&place), ..Amiss::default() };
        let told = |agent: &AgentState, amiss: &Amiss| status_of(agent, 2, 90, &[], amiss);
        assert_eq!(told(&agent(), &strained), ("closed", "a promise is being broken there".to_owned()));
        let both = Amiss { overrun: only(&place), ..strained.clone() };
        assert_eq!(told(&agent(), &both), ("closed", "who runs there is not as he was known".to_owned()));
        assert!(told(&broken(), &both).1.ends_with("it is gone"), "what it is itself goes first");
        let mut failed = Amiss::default();
        failed.setup_backoff.failed(place.clone(), UserId(7), "start 8+0 holds it", at(NOW));
        let why = "a share could not be set up there: start 8+0 holds it".to_owned();
        assert_eq!(told(&agent(), &failed), ("closed", why));
        let for_everybody = failed.of(&place.0, &place.1).map(|why| why.told(false));
        assert_eq!(for_everybody.as_deref(), Some("a share could not be set up there a moment ago"));
        let elsewhere = Amiss { strained: only(&(place.0, GresType::new("g1"))), ..Amiss::default() };
        assert_eq!(told(&agent(), &elsewhere), ("shared", String::new()));
    }

    #[test]
    fn what_an_operator_says_is_told_before_what_is_seen() {
        let why = "drained by root: fan noise".to_owned();
        for drain in [drain(None), drain(Some("g0"))] {
            let drains = std::slice::from_ref(&drain);
            assert_eq!(status(&agent(), 1, 40, drains), ("closed", why.clone()));
            assert_eq!(status(&broken(), 1, 40, drains), ("closed", why.clone()));
            let not_responding = AgentState { is_connected: false, ..agent() };
            assert_eq!(status(&not_responding, 1, 40, drains), ("not-responding", why.clone()));
        }
        assert_eq!(status(&agent(), 1, 40, &[drain(Some("g1"))]), ("alone", String::new()), "another device");
    }
}
