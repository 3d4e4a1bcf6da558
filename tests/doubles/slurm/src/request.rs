//! GRES requests as the fake's scheduler reads them, and what is booked on a node.

use super::settings::FakeNode;
use pillion_core::{GresType, NodeName};
use std::collections::BTreeMap;

/// One entry of a GRES request: `shard:g1:40`, `shard:100`, `gpu`, `lscratch:100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) gres_type: Option<GresType>,
    pub(super) count: u64,
}

impl Entry {
    /// Whether a device is of the type that it asks for; one that names none takes any.
    fn takes(&self, device: &GresType) -> bool {
        self.gres_type.as_ref().is_none_or(|wanted| wanted == device)
    }
}

/// The entries of a request. Like Slurm, what follows the name is a count if it is a number, else a type.
pub(super) fn entries(gres: &str) -> Vec<Entry> {
    let texts = gres.split(',').filter(|text| !text.is_empty());
    texts
        .map(|text| {
            let mut parts = text.split(':');
            let name = parts.next().unwrap_or_default().to_owned();
            let (second, third) = (parts.next(), parts.next());
            let [second_count, third_count] = [second, third].map(|part| part?.parse::<u64>().ok());
            match second_count {
                Some(count) => Entry { name, gres_type: None, count },
                None => Entry { name, gres_type: second.map(GresType::new), count: third_count.unwrap_or(1) },
            }
        })
        .collect()
}

/// What a running job holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Booking {
    pub(super) node: Option<NodeName>,
    pub(super) cpus: u32,
    pub(super) memory_mib: u64,
    /// Shards by device.
    pub(super) shards: BTreeMap<GresType, u32>,
    /// Devices that are held whole.
    pub(super) gpus: Vec<GresType>,
    /// Other GRES by name.
    pub(super) other: BTreeMap<String, u64>,
}

impl Booking {
    /// Adds what another job on the same node holds.
    pub(super) fn add(&mut self, other: &Self) {
        self.cpus += other.cpus;
        self.memory_mib += other.memory_mib;
        for (device, shards) in &other.shards {
            *self.shards.entry(device.clone()).or_insert(0) += shards;
        }
        self.gpus.extend(other.gpus.iter().cloned());
        for (name, count) in &other.other {
            *self.other.entry(name.clone()).or_insert(0) += count;
        }
    }

    fn shards_of(&self, device: &GresType) -> u32 {
        self.shards.get(device).copied().unwrap_or(0)
    }
}

/// Books `gres` on `node` beside what `used` holds; `None`: it does not fit.
pub(super) fn book(gres: &str, node: &FakeNode, used: &Booking) -> Option<Booking> {
    let mut all = used.clone();
    let mut mine = Booking::default();
    for entry in entries(gres) {
        let mut part = Booking::default();
        match entry.name.as_str() {
            "shard" => {
                let device = shard_device(&entry, node, &all)?;
                part.shards.insert(device, u32::try_from(entry.count).ok()?);
            }
            "gpu" => part.gpus = whole_devices(&entry, node, &all)?,
            name => {
                let (total, held) = (node.other_gres.get(name)?, all.other.get(name).copied().unwrap_or(0));
                if held + entry.count > *total {
                    return None;
                }
                part.other.insert(name.to_owned(), entry.count);
            }
        }
        all.add(&part);
        mine.add(&part);
    }
    Some(mine)
}

/// The named device, or for an untyped request the first one that has room for all of it.
fn shard_device(entry: &Entry, node: &FakeNode, used: &Booking) -> Option<GresType> {
    let count = u32::try_from(entry.count).ok()?;
    let fitting = node.devices.iter().find(|(device, total)| {
        entry.takes(device)
            && !used.gpus.contains(device)
            && used.shards_of(device).checked_add(count).is_some_and(|sum| sum <= **total)
    });
    fitting.map(|(device, _)| device.clone())
}

fn whole_devices(entry: &Entry, node: &FakeNode, used: &Booking) -> Option<Vec<GresType>> {
    let devices = node
        .devices
        .keys()
        .filter(|device| entry.takes(device) && used.shards_of(device) == 0 && !used.gpus.contains(device));
    let count = usize::try_from(entry.count).ok()?;
    let taken: Vec<GresType> = devices.take(count).cloned().collect();
    (taken.len() == count).then_some(taken)
}

/// Whether Slurm would ever start this request on the node: its sums are compared, not its devices, so an untyped
/// `shard:150` on two devices of 100 waits for ever and is no error.
pub(super) fn possible(gres: &str, node: &FakeNode) -> bool {
    entries(gres).iter().all(|entry| {
        let devices = node.devices.iter().filter(|(device, _)| entry.takes(device));
        let total: u64 = match entry.name.as_str() {
            "shard" => devices.map(|(_, shards)| u64::from(*shards)).sum(),
            "gpu" => devices.count() as u64,
            name => node.other_gres.get(name).copied().unwrap_or(0),
        };
        entry.count <= total
    })
}

/// `-C`: `a&b` wants both, `a|b` one of them.
pub(super) fn features_match(wanted: &str, has: &[String]) -> bool {
    wanted.is_empty()
        || wanted.split('|').any(|all| all.split('&').all(|feature| has.iter().any(|name| name == feature)))
}
