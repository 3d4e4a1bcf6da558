//! Which agents are connected, what their nodes have, and the way to each of them. Filled by `grpc::agent` (and by the
//! simulation), read by `view` and `release`; knows nothing of Slurm or the store.

use pillion_core::device::{DeviceDescription, Mechanism, Reading, TenantUse};
use pillion_core::health::{DeviceCondition, FaultKind};
use pillion_core::report::{AgentHello, DeviceSamples, ToAgent};
use pillion_core::setup::NodeSetup;
use pillion_core::{GresType, NodeName, UnixTime};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// How many messages may wait for one agent; a full box drops a `Prepare`, which the next tick sends again.
const OUTBOX_LENGTH: usize = 256;

/// One agent, as last heard.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentState {
    /// Its node's devices.
    pub devices: Vec<DeviceDescription>,
    pub version: String,
    /// Whether a stream is open.
    pub is_connected: bool,
    /// It observes an ordinary node: it is no agent of the pool.
    pub observes: bool,
    /// When it last said anything.
    pub last_seen_at: UnixTime,
    /// Its clock less ours at the last hello, in seconds.
    pub clock_skew_seconds: f64,
    /// How its devices are, as it reported last; of those that are not here nothing is known yet.
    pub conditions: BTreeMap<GresType, DeviceCondition>,
}

fn by_device(conditions: &[DeviceCondition]) -> BTreeMap<GresType, DeviceCondition> {
    conditions.iter().map(|condition| (condition.gres_type.clone(), condition.clone())).collect()
}

#[derive(Debug)]
struct Entry {
    state: AgentState,
    /// What its devices did last, and when. Beside the state: the state is copied for every plan.
    readings: BTreeMap<GresType, DeviceSeen>,
    /// How its node is set up, as it reported when it connected. Beside the state, likewise.
    setup: Option<NodeSetup>,
    stream: u64,
    /// Of its reports: another one is another agent.
    journal_id: String,
    outbox: mpsc::Sender<ToAgent>,
}

impl Entry {
    fn is_connected(&self) -> bool {
        self.state.is_connected && !self.outbox.is_closed()
    }

    fn state(&self) -> AgentState {
        AgentState { is_connected: self.is_connected(), ..self.state.clone() }
    }

    fn has_outsider(&self, gres_type: &GresType) -> bool {
        let condition = self.state.conditions.get(gres_type);
        condition
            .is_some_and(|condition| condition.faults.iter().any(|fault| fault.kind == FaultKind::Outsider))
    }

    /// The devices that are not closed by a fault, but for one that any user can bring about: where jobs wait for such a device,
    /// it is Slurm's to start them, alone and at their bound. None of an agent that does not respond.
    fn open_devices(&self) -> impl Iterator<Item = &DeviceDescription> {
        let devices = if self.is_connected() { self.state.devices.as_slice() } else { &[] };
        devices.iter().filter(|device| {
            let condition = self.state.conditions.get(&device.gres_type);
            let closed_by = condition.and_then(DeviceCondition::closed_by);
            closed_by.is_none_or(|fault| fault.kind.is_at_users_will())
        })
    }
}

/// All agents by node.
#[derive(Debug, Default)]
pub struct Agents {
    registry: Mutex<Registry>,
    /// A stream has ended.
    left: Notify,
}

#[derive(Debug, Default)]
struct Registry {
    entries: BTreeMap<NodeName, Entry>,
    streams: u64,
}

impl Registry {
    fn connect(&mut self, hello: &AgentHello, now: UnixTime) -> (StreamId, mpsc::Receiver<ToAgent>) {
        let (outbox, inbox) = mpsc::channel(OUTBOX_LENGTH);
        self.streams += 1;
        let number = self.streams;
        let state = AgentState {
            devices: hello.devices.clone(),
            version: hello.agent_version.clone(),
            is_connected: true,
            observes: hello.observes,
            last_seen_at: now,
            clock_skew_seconds: hello.sent_at.seconds() - now.seconds(),
            conditions: by_device(&hello.conditions),
        };
        let entry = Entry {
            state,
            readings: BTreeMap::new(),
            setup: hello.setup.clone(),
            stream: number,
            journal_id: hello.journal_id.clone(),
            outbox,
        };
        self.entries.insert(hello.node.clone(), entry);
        (StreamId { node: hello.node.clone(), number }, inbox)
    }
}

/// The newest reading of each device that an agent sent, and when it was taken.
pub type Readings = BTreeMap<(NodeName, GresType), (UnixTime, Reading)>;

/// What a device did, and who was on it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSeen {
    /// When it was taken.
    pub at: UnixTime,
    /// What it did.
    pub reading: Reading,
    /// Who was on it.
    pub tenants: Vec<TenantUse>,
}

/// One open stream; a newer one of the same node replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamId {
    node: NodeName,
    number: u64,
}

impl StreamId {
    pub const fn node(&self) -> &NodeName {
        &self.node
    }
}

impl Agents {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        // A panic elsewhere cannot leave the map half changed: each change is one insert.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another agent, which is still connected, says that it is this node.
    pub fn has_rival(&self, hello: &AgentHello) -> bool {
        let registry = self.lock();
        let known = registry.entries.get(&hello.node);
        known.is_some_and(|entry| entry.is_connected() && entry.journal_id != hello.journal_id)
    }

    /// A stream was opened: returns its id and what is to be sent on it.
    pub fn connect(&self, hello: &AgentHello, now: UnixTime) -> (StreamId, mpsc::Receiver<ToAgent>) {
        self.lock().connect(hello, now)
    }

    /// The same, unless another stream of this node is open.
    pub fn connect_vacant(
        &self,
        hello: &AgentHello,
        now: UnixTime,
    ) -> Option<(StreamId, mpsc::Receiver<ToAgent>)> {
        let mut registry = self.lock();
        let is_taken = registry.entries.get(&hello.node).is_some_and(Entry::is_connected);
        (!is_taken).then(|| registry.connect(hello, now))
    }

    /// Something arrived on a stream.
    pub fn heard(&self, stream: &StreamId, now: UnixTime) {
        if let Some(entry) =
            self.lock().entries.get_mut(&stream.node).filter(|entry| entry.stream == stream.number)
        {
            entry.state.last_seen_at = now;
        }
    }

    /// A node's devices are otherwise than they were reported before. `false`: an older stream, which says nothing of a
    /// newer one's.
    pub fn set_conditions(&self, stream: &StreamId, conditions: &[DeviceCondition]) -> bool {
        let mut registry = self.lock();
        let entry = registry.entries.get_mut(&stream.node).filter(|entry| entry.stream == stream.number);
        entry.is_some_and(|entry| {
            entry.state.conditions = by_device(conditions);
            true
        })
    }

    /// What devices of a node did. Reports that were kept while we were away come late: the newest counts.
    pub fn set_readings(&self, node: &NodeName, samples: &DeviceSamples) {
        let mut registry = self.lock();
        let Some(entry) = registry.entries.get_mut(node) else { return };
        for sample in &samples.samples {
            let known = entry.readings.get(&sample.gres_type);
            if known.is_none_or(|known| known.at <= samples.recorded_at) {
                let (at, reading, tenants) =
                    (samples.recorded_at, sample.reading.clone(), sample.tenants.clone());
                entry.readings.insert(sample.gres_type.clone(), DeviceSeen { at, reading, tenants });
            }
        }
    }

    /// A stream ended. A newer stream of the same node stays.
    pub fn disconnect(&self, stream: &StreamId) {
        if let Some(entry) =
            self.lock().entries.get_mut(&stream.node).filter(|entry| entry.stream == stream.number)
        {
            entry.state.is_connected = false;
        }
        self.left.notify_waiters();
    }

    /// Returns when no stream of this node is open.
    pub async fn vacated(&self, node: &NodeName) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            // From here on an end is not missed.
            left.as_mut().enable();
            if !self.is_connected(node) {
                return;
            }
            left.await;
        }
    }

    /// What is known of who reports something of a node: its clock less ours, and the memory of each of its devices.
    pub fn reporter(&self, node: &NodeName) -> (f64, BTreeMap<GresType, u64>) {
        let registry = self.lock();
        let Some(entry) = registry.entries.get(node) else { return (0.0, BTreeMap::new()) };
        let devices =
            entry.state.devices.iter().map(|device| (device.gres_type.clone(), device.memory_bytes));
        (entry.state.clock_skew_seconds, devices.collect())
    }

    /// Forgets the nodes that Slurm does not know, each asked for with whether its agent observes: their streams end.
    pub fn retain(&self, is_known: impl Fn(&NodeName, bool) -> bool) {
        self.lock().entries.retain(|node, entry| is_known(node, entry.state.observes));
    }

    /// Whether the agent of a node only observes it.
    pub fn observes(&self, node: &NodeName) -> bool {
        self.lock().entries.get(node).is_some_and(|entry| entry.state.observes)
    }

    /// How a node is set up beside its devices; `None`: its agent has never connected, or does not tell.
    pub fn setup(&self, node: &NodeName) -> Option<NodeSetup> {
        self.lock().entries.get(node)?.setup.clone()
    }

    /// Puts a message into an agent's box. `false`: it does not respond or its box is full; the next tick tries again.
    pub fn send(&self, node: &NodeName, message: ToAgent) -> bool {
        let registry = self.lock();
        let entry = registry.entries.get(node).filter(|entry| entry.state.is_connected);
        entry.is_some_and(|entry| entry.outbox.try_send(message).is_ok())
    }

    /// Whether the agent of a node is there to prepare shares and answer starts.
    pub fn is_connected(&self, node: &NodeName) -> bool {
        self.lock().entries.get(node).is_some_and(Entry::is_connected)
    }

    /// Which stream of a node's agent is open, of all that there were; `None`: none.
    pub fn stream_number(&self, node: &NodeName) -> Option<u64> {
        self.lock().entries.get(node).filter(|entry| entry.is_connected()).map(|entry| entry.stream)
    }

    /// Whether that agent has so many devices (from 1) that no fault of their own keeps new tenants from. One with fewer, such as
    /// over a library without a driver, can start nobody who needs them, as if it did not respond.
    pub fn takes_tenants(&self, node: &NodeName, device_count: usize) -> bool {
        let registry = self.lock();
        let open_count = registry.entries.get(node).map_or(0, |entry| entry.open_devices().count());
        open_count >= device_count
    }

    /// Whether it can set a cap on one of those, too.
    pub fn sets_caps(&self, node: &NodeName) -> bool {
        let registry = self.lock();
        let entry = registry.entries.get(node);
        entry.is_some_and(|entry| entry.open_devices().any(|device| device.mechanism.can_cap()))
    }

    /// The newest readings of these devices.
    pub fn readings<'a>(&self, places: impl Iterator<Item = (&'a NodeName, &'a GresType)>) -> Readings {
        self.seen(places, |newest| (newest.at, newest.reading.clone()))
    }

    /// The newest samples of these devices, with who was on them. Where a process is besides that is no job's none: what the device
    /// does then, and how fast its tenants go, is nobody's of them, and a user who logs in to the node could have them answer for it.
    pub fn samples_of<'a>(
        &self,
        places: impl Iterator<Item = (&'a NodeName, &'a GresType)>,
    ) -> BTreeMap<(NodeName, GresType), DeviceSeen> {
        let mut samples = self.seen(places, DeviceSeen::clone);
        let registry = self.lock();
        samples.retain(|(node, gres_type), _| {
            registry.entries.get(node).is_some_and(|entry| !entry.has_outsider(gres_type))
        });
        samples
    }

    fn seen<'a, T>(
        &self,
        places: impl Iterator<Item = (&'a NodeName, &'a GresType)>,
        take: impl Fn(&DeviceSeen) -> T,
    ) -> BTreeMap<(NodeName, GresType), T> {
        let registry = self.lock();
        let mut seen = BTreeMap::new();
        for (node, gres_type) in places {
            if let Some(newest) = registry.entries.get(node).and_then(|entry| entry.readings.get(gres_type)) {
                seen.insert((node.clone(), gres_type.clone()), take(newest));
            }
        }
        seen
    }

    /// Every device that no fault of its own keeps new tenants from, of every agent that is there, and how it is shared.
    pub fn open_devices(&self) -> BTreeMap<(NodeName, GresType), Mechanism> {
        let registry = self.lock();
        let mut open = BTreeMap::new();
        for (node, entry) in &registry.entries {
            for device in entry.open_devices() {
                open.insert((node.clone(), device.gres_type.clone()), device.mechanism);
            }
        }
        open
    }

    /// All agents, connected or not.
    pub fn all(&self) -> BTreeMap<NodeName, AgentState> {
        self.lock().entries.iter().map(|(node, entry)| (node.clone(), entry.state())).collect()
    }
}

#[cfg(test)]
mod tests;
