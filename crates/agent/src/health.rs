//! How each device of the node is: what is wrong with it, since when, and which metrics it gives. Pure: it is fed with what
//! the driver said at each sample and with its notices. Knows nothing of jobs, of shares or of the scheduler.

use crate::mechanism::ccs::tiles_per_card;
use crate::outsider::{self, Outsider};
use pillion_core::device::{DeviceDescription, DeviceNotice, NoticeKind};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::metric::{Metric, MetricSource};
use pillion_core::mig::Slot;
use pillion_core::{GresType, UnixTime};
use pillion_device::{DeviceError, DeviceState, DeviceStates};
use std::collections::{BTreeMap, BTreeSet};

/// What may pass by itself counts when so many samples in a row met it.
const TRANSIENT_SAMPLES: u32 = 3;
/// How long it is told that a tenant took too much: long enough for a scheduler that is away for a moment.
const OVERUSE_SECONDS: f64 = 60.0;

/// How long a process that is no job's is told after it was last seen: one that comes and goes is one.
const OUTSIDER_SECONDS: f64 = 60.0;
/// At how many samples in a row somebody must be seen who is no job's: a job's own last process may outlive it for a moment.
const OUTSIDER_SAMPLES: u32 = 2;

/// All devices of the node.
#[derive(Debug)]
pub struct Health(BTreeMap<u32, Watched>);

#[derive(Debug)]
struct Watched {
    gres_type: GresType,
    /// The first device of its card: one card is one to the driver, of however many devices.
    card: u32,
    was_seen: bool,
    /// By kind, and by metric where one was lost.
    faults: BTreeMap<(FaultKind, Option<Metric>), DeviceFault>,
    sources: BTreeMap<Metric, MetricSource>,
    /// Since when it does not answer, and at how many samples.
    failing: Option<(UnixTime, u32)>,
    /// When somebody was last seen who is no job's, and at how many samples in a row.
    outsider: Option<(UnixTime, u32)>,
    /// Instances of ours that stand empty and can be given away as they are.
    instances_empty: Vec<Slot>,
}

impl Health {
    /// Of devices that nobody has looked at yet.
    pub fn new(devices: &[DeviceDescription]) -> Self {
        Self(devices.iter().map(|device| (device.index, Watched::new(device))).collect())
    }

    /// The node has one more.
    pub fn take_up(&mut self, device: &DeviceDescription) {
        self.0.entry(device.index).or_insert_with(|| Watched::new(device));
    }

    /// One sample: what each device said, or why none could be asked.
    pub fn sampled(&mut self, at: UnixTime, states: Result<&DeviceStates, &DeviceError>) {
        for (index, watched) in &mut self.0 {
            let state = states.map(|states| states.iter().find(|(of, _)| of == index));
            match state.map(|state| state.map(|(_, state)| state)) {
                Ok(Some(Ok(state))) => watched.answered(state),
                Ok(Some(Err(error))) | Err(error) => watched.failed(at, error),
                Ok(None) => watched.failed(at, &DeviceError::NoSuchDevice { index: *index }),
            }
            watched.was_seen = true;
            if watched
                .faults
                .get(&(FaultKind::Overused, None))
                .is_some_and(|fault| at.seconds_since(fault.since) > OVERUSE_SECONDS)
            {
                watched.clear(FaultKind::Overused, None);
            }
        }
        self.free_modes(states.map(Vec::as_slice).unwrap_or_default());
    }

    /// A device's CCS mode could not be set, because somebody is on its card.
    pub fn mode_refused(&mut self, at: UnixTime, index: u32, detail: String) {
        if let Some(watched) = self.0.get_mut(&index) {
            watched.raise(FaultKind::ModeHeld, None, at, detail);
        }
    }

    /// The modes of a card can be set again when nobody is on any of its devices.
    fn free_modes(&mut self, states: &[(u32, Result<DeviceState, DeviceError>)]) {
        let mut in_use = BTreeSet::new();
        for (index, watched) in &self.0 {
            let state = states.iter().find(|(of, _)| of == index);
            let is_idle =
                state.is_some_and(|(_, state)| state.as_ref().is_ok_and(|state| state.processes.is_empty()));
            if !is_idle {
                in_use.insert(watched.card);
            }
        }
        for watched in self.0.values_mut().filter(|watched| !in_use.contains(&watched.card)) {
            watched.clear(FaultKind::ModeHeld, None);
        }
    }

    /// Something that a driver told unasked.
    pub fn noticed(&mut self, at: UnixTime, notice: &DeviceNotice) {
        let Some(watched) = self.0.get_mut(&notice.index) else { return };
        let detail = &notice.detail;
        match notice.kind {
            // Its trace is in the log; what it leaves behind shows when the device is read.
            NoticeKind::Xid { .. } => {}
            NoticeKind::MetricLost(metric) => {
                watched.sources.remove(&metric);
                watched.raise(FaultKind::MetricLost, Some(metric), at, format!("{metric}: {detail}"));
            }
            NoticeKind::MetricBack(metric) => watched.clear(FaultKind::MetricLost, Some(metric)),
            NoticeKind::MpsFault => watched.raise(FaultKind::MpsFault, None, at, detail.clone()),
            NoticeKind::MpsDied => {
                watched.clear(FaultKind::MpsFault, None);
                watched.raise(FaultKind::MpsDied, None, at, detail.clone());
            }
            NoticeKind::MpsClear => watched.forget_mps(),
            // For as long as we run: a library that is installed meanwhile is not looked for.
            NoticeKind::NoMechanism => watched.raise(FaultKind::NoMechanism, None, at, detail.clone()),
            // For as long as we run: MIG is not turned off under a library that holds the device, but by us.
            NoticeKind::Divided => watched.raise(FaultKind::Divided, None, at, detail.clone()),
        }
    }

    /// What is wrong with how a device is divided that we cut, and which instances of ours stand empty there. Who holds it may be
    /// another each time.
    pub fn cut(&mut self, index: u32, fault: Option<&DeviceFault>, instances_empty: &[Slot]) {
        let Some(watched) = self.0.get_mut(&index) else { return };
        watched.instances_empty = instances_empty.to_vec();
        watched.clear(FaultKind::Divided, None);
        watched.clear(FaultKind::Held, None);
        if let Some(DeviceFault { kind, detail, since }) = fault {
            watched.raise(*kind, None, *since, detail.clone());
        }
    }

    /// A tenant was let in; `without_partition`: why it has no compute units of its own where the site wants that.
    pub fn partitioned(&mut self, at: UnixTime, index: u32, without_partition: Option<String>) {
        let Some(watched) = self.0.get_mut(&index) else { return };
        watched.clear(FaultKind::NoPartitions, None);
        if let Some(reason) = without_partition {
            watched.raise(FaultKind::NoPartitions, None, at, reason);
        }
    }

    /// A tenant held more of its memory than its share allows. Each new one is told anew.
    pub fn overused(&mut self, at: UnixTime, index: u32, detail: String) {
        let Some(watched) = self.0.get_mut(&index) else { return };
        let known = watched.faults.get(&(FaultKind::Overused, None));
        if known.is_none_or(|known| known.detail != detail) {
            watched.clear(FaultKind::Overused, None);
            watched.raise(FaultKind::Overused, None, at, detail);
        }
    }

    /// Who was seen on each device that answered and is no job's. The first are named for as long as somebody is there.
    pub fn outsiders(&mut self, at: UnixTime, seen: &BTreeMap<u32, Vec<Outsider>>) {
        for (index, watched) in &mut self.0 {
            let Some(outsiders) = seen.get(index) else { continue };
            let before = watched.outsider;
            let Some(detail) = outsider::sentence(outsiders) else {
                let is_over = before.is_none_or(|(last, _)| at.seconds_since(last) > OUTSIDER_SECONDS);
                if is_over {
                    watched.outsider = None;
                    watched.clear(FaultKind::Outsider, None);
                } else {
                    watched.outsider = before.map(|(last, _)| (last, 0));
                }
                continue;
            };
            let sample_count = before.map_or(0, |(_, count)| count).saturating_add(1);
            watched.outsider = Some((at, sample_count));
            if sample_count >= OUTSIDER_SAMPLES {
                watched.raise(FaultKind::Outsider, None, at, detail);
            }
        }
    }

    /// Whether somebody is told to be there who is no job's.
    pub fn has_outsider(&self, index: u32) -> bool {
        self.0.get(&index).is_some_and(|watched| watched.faults.contains_key(&(FaultKind::Outsider, None)))
    }

    /// The device serves one user at a time, though the site wants more: for as long as we run, for its driver stays.
    pub fn serves_one_user(&mut self, at: UnixTime, index: u32, reason: &str) {
        if let Some(watched) = self.0.get_mut(&index) {
            watched.raise(FaultKind::OneUser, None, at, reason.to_owned());
        }
    }

    /// How those devices are that were looked at.
    pub fn conditions(&self) -> Vec<DeviceCondition> {
        self.0.values().filter(|watched| watched.was_seen).map(Watched::condition).collect()
    }
}

impl Watched {
    fn new(device: &DeviceDescription) -> Self {
        Self {
            gres_type: device.gres_type.clone(),
            card: device.index - device.index % tiles_per_card(&device.model),
            was_seen: false,
            faults: BTreeMap::new(),
            sources: BTreeMap::new(),
            failing: None,
            outsider: None,
            instances_empty: Vec::new(),
        }
    }

    fn answered(&mut self, state: &DeviceState) {
        self.failing = None;
        self.clear(FaultKind::Unreadable, None);
        self.clear(FaultKind::Gone, None);
        // With nobody on the device, no server is left that could be at fault: the next tenant gets a new one.
        if state.processes.is_empty() {
            self.forget_mps();
        }
        // A metric that is missing for once is not lost: its backend says when it is.
        self.sources.extend(state.reading.metrics.sources());
    }

    fn failed(&mut self, at: UnixTime, error: &DeviceError) {
        let (since, sample_count) =
            self.failing.map_or((at, 1), |(since, sample_count)| (since, sample_count.saturating_add(1)));
        self.failing = Some((since, sample_count));
        if error.is_transient() && sample_count < TRANSIENT_SAMPLES {
            return;
        }
        let (kind, other) = if error.is_gone() {
            (FaultKind::Gone, FaultKind::Unreadable)
        } else {
            (FaultKind::Unreadable, FaultKind::Gone)
        };
        self.clear(other, None);
        let detail = match error {
            DeviceError::Gone { reason, .. } => reason.clone(),
            _ => pillion_core::report(error),
        };
        self.raise(kind, None, since, detail);
    }

    /// What is known already stays as it was first told.
    fn raise(&mut self, kind: FaultKind, metric: Option<Metric>, since: UnixTime, detail: String) {
        self.faults.entry((kind, metric)).or_insert(DeviceFault { kind, detail, since });
    }

    fn clear(&mut self, kind: FaultKind, metric: Option<Metric>) {
        self.faults.remove(&(kind, metric));
    }

    fn forget_mps(&mut self) {
        self.clear(FaultKind::MpsFault, None);
        self.clear(FaultKind::MpsDied, None);
    }

    fn condition(&self) -> DeviceCondition {
        DeviceCondition {
            gres_type: self.gres_type.clone(),
            faults: self.faults.values().rev().cloned().collect(),
            sources: self.sources.clone(),
            instances_empty: self.instances_empty.clone(),
        }
    }
}

/// A notice in one line for the log, and whether it is bad news.
pub fn sentence(notice: &DeviceNotice) -> (String, bool) {
    let DeviceNotice { index: _, kind, detail } = notice;
    let (what, is_bad) = match kind {
        NoticeKind::Xid { code, pid: Some(pid) } => (format!("Xid {code} of process {pid}"), true),
        NoticeKind::Xid { code, pid: None } => (format!("Xid {code}"), true),
        NoticeKind::MetricLost(metric) => (format!("{metric} is not given any more"), true),
        NoticeKind::MetricBack(metric) => (format!("{metric} is given again"), false),
        NoticeKind::MpsFault => (FaultKind::MpsFault.phrase().to_owned(), true),
        NoticeKind::MpsDied => (FaultKind::MpsDied.phrase().to_owned(), true),
        NoticeKind::Divided => (FaultKind::Divided.phrase().to_owned(), true),
        NoticeKind::NoMechanism => (FaultKind::NoMechanism.phrase().to_owned(), true),
        NoticeKind::MpsClear => ("its MPS server is well again".to_owned(), false),
    };
    (if detail.is_empty() { what } else { format!("{what}: {detail}") }, is_bad)
}

#[cfg(test)]
mod tests;
