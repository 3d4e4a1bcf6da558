//! How a simulated machine is described: one struct, checked once when the machine is made.

use super::hardware::{UnknownHardware, Vendor, by_name};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::link::Link;
use pillion_core::mig::Geometry;
use pillion_core::{DeviceUuid, GresType};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A node's simulated devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineConfig {
    /// The node's name: device names are made from it.
    pub node: String,
    /// How many times faster than real work goes. Watts and joules stay per real second: a workload of 600 s takes 10 s
    /// at 60, and a sixtieth of its energy.
    pub time_scale: f64,
    /// GRES types are this and the device's index.
    pub gres_prefix: String,
    /// Standard deviation of speeds and readings; 0 for none.
    pub noise_fraction: f64,
    /// What the noise is drawn from.
    pub seed: u64,
    /// Slurm's `ConstrainDevices`: a job sees only the devices of `SLURM_JOB_GPUS`, numbered from 0.
    pub constrain_devices: bool,
    /// What must agree on one CCS mode.
    pub ccs_scope: CcsScope,
    /// Whether killing an MPS client at work ends its neighbours too, which NVIDIA does not rule out.
    pub killed_client_ends_mps: bool,
    /// Pairs of devices that NVLink joins, by their indexes.
    pub nvlinks: Vec<[u32; 2]>,
    /// For how long after its last process ended an instance is said to be in use, in real seconds.
    pub mig_busy_seconds: f64,
    /// The devices, by index.
    pub devices: Vec<DeviceConfig>,
}

/// One simulated device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// `v100`, `a30`, `a100-40`, `h100`, `h200` or `max-1550`.
    pub model: String,
    /// Another mechanism than the model's own: `none` for a site that shares by time slices only.
    #[serde(default)]
    pub mechanism: Option<Mechanism>,
    /// Whether MIG is on when it comes up: an Ampere keeps it over boots once it was turned on, and nobody can turn it over here.
    #[serde(default)]
    pub mig: bool,
    /// The NUMA node that it hangs on, where that is told.
    #[serde(default)]
    pub numa_node: Option<u32>,
}

/// What must agree on one CCS mode: the documents on Intel's driver disagree (a tile in FLAT hierarchy, or the card).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CcsScope {
    /// Each tile has its mode.
    #[default]
    Tile,
    /// Both tiles of a card: devices 2n and 2n + 1.
    Card,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            node: "localhost".to_owned(),
            time_scale: 60.0,
            gres_prefix: "g".to_owned(),
            noise_fraction: 0.015,
            seed: 0,
            constrain_devices: false,
            ccs_scope: CcsScope::Tile,
            killed_client_ends_mps: false,
            nvlinks: Vec::new(),
            mig_busy_seconds: 0.3,
            devices: Vec::new(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No device is described.
    #[error("a simulated machine needs at least one device")]
    NoDevices,
    /// A model that is not known.
    #[error("device {index}")]
    Model {
        /// The device's place in the list.
        index: usize,
        /// The model that nobody knows.
        #[source]
        source: UnknownHardware,
    },
    /// Two vendors on one node.
    #[error("device {index} is of another vendor than device 0; a node has the devices of one vendor")]
    Vendor {
        /// The first that differs.
        index: usize,
    },
    /// A mechanism that the model lacks.
    #[error(
        "device {index} is a {model} and cannot be shared by {mechanism}; allowed are {allowed} and none"
    )]
    Mechanism {
        /// The device's place in the list.
        index: usize,
        /// The model of the device.
        model: String,
        /// What was asked for.
        mechanism: Mechanism,
        /// What it has.
        allowed: Mechanism,
    },
    /// NVLink between what is not there, or on another vendor's devices.
    #[error("nvlinks has [{0}, {1}]; allowed are pairs of two NVIDIA devices of this machine, by index")]
    NoLink(u32, u32),
    /// MIG on a model that has none.
    #[error("device {index} is a {model} and has no MIG; allowed is mig = false")]
    NoMig {
        /// The device's place in the list.
        index: usize,
        /// The model of the device.
        model: String,
    },
    /// A number out of range.
    #[error("{name} is {value}; allowed is {allowed}")]
    Number {
        /// The setting that is out of range.
        name: &'static str,
        /// The value that it has.
        value: f64,
        /// What is allowed, in words.
        allowed: &'static str,
    },
}

impl DeviceConfig {
    /// One of this model, as it comes.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), mechanism: None, mig: false, numa_node: None }
    }
}

impl MachineConfig {
    /// `count` devices of one model, without noise, in real time: for tests and simulations.
    pub fn plain(node: &str, model: &str, count: usize) -> Self {
        Self {
            node: node.to_owned(),
            time_scale: 1.0,
            noise_fraction: 0.0,
            devices: vec![DeviceConfig::new(model); count],
            ..Self::default()
        }
    }

    /// Checks everything and says what the devices are.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn describe(&self) -> Result<Vec<DeviceDescription>, ConfigError> {
        if !(self.time_scale > 0.0 && self.time_scale <= 1e6) {
            return Err(number("time_scale", self.time_scale, "more than 0, up to 1000000"));
        }
        if !(0.0..=0.2).contains(&self.noise_fraction) {
            return Err(number("noise_fraction", self.noise_fraction, "0 to 0.2"));
        }
        if !(0.0..=60.0).contains(&self.mig_busy_seconds) {
            return Err(number("mig_busy_seconds", self.mig_busy_seconds, "0 to 60"));
        }
        let mut vendor: Option<Vendor> = None;
        let devices: Vec<DeviceDescription> = self
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| self.describe_device(index, device, &mut vendor))
            .collect::<Result<_, _>>()?;
        let is_there = |index: u32| devices.iter().any(|device| device.index == index);
        let cannot_be =
            |[a, b]: &&[u32; 2]| a == b || vendor != Some(Vendor::Nvidia) || !is_there(*a) || !is_there(*b);
        if let Some([a, b]) = self.nvlinks.iter().find(cannot_be) {
            return Err(ConfigError::NoLink(*a, *b));
        }
        if devices.is_empty() { Err(ConfigError::NoDevices) } else { Ok(devices) }
    }

    fn links_of(&self, own: u32) -> BTreeMap<u32, Link> {
        let numa_node = |index: u32| self.devices.get(usize::try_from(index).ok()?)?.numa_node;
        let link = |other: u32| {
            if self.nvlinks.iter().any(|pair| *pair == [own, other] || *pair == [other, own]) {
                return Some(Link::NvLink);
            }
            let is_near = numa_node(own)? == numa_node(other)?;
            Some(if is_near { Link::Node } else { Link::Sys })
        };
        let others = (0..).take(self.devices.len()).filter(|other| *other != own);
        others.filter_map(|other| Some((other, link(other)?))).collect()
    }

    /// `vendor`: that of the devices before it, which it has to share.
    fn describe_device(
        &self,
        index: usize,
        device: &DeviceConfig,
        vendor: &mut Option<Vendor>,
    ) -> Result<DeviceDescription, ConfigError> {
        let hardware = by_name(&device.model).map_err(|source| ConfigError::Model { index, source })?;
        if *vendor.get_or_insert(hardware.vendor) != hardware.vendor {
            return Err(ConfigError::Vendor { index });
        }
        if device.mig && Geometry::of_model(hardware.name).is_none() {
            return Err(ConfigError::NoMig { index, model: device.model.clone() });
        }
        let allowed = hardware.mechanism();
        let mechanism = device.mechanism.unwrap_or(allowed);
        if mechanism != allowed && mechanism.is_set_up() {
            return Err(ConfigError::Mechanism { index, model: device.model.clone(), mechanism, allowed });
        }
        let index = u32::try_from(index).expect("a node has few devices");
        Ok(DeviceDescription {
            index,
            uuid: uuid(&self.node, index, hardware.vendor),
            model: hardware.name.to_owned(),
            memory_bytes: hardware.memory_bytes,
            gres_type: GresType::new(format!("{}{index}", self.gres_prefix)),
            mechanism,
            instances: None,
            geometry: None,
            links: self.links_of(index),
        })
    }
}

fn number(name: &'static str, value: f64, allowed: &'static str) -> ConfigError {
    ConfigError::Number { name, value, allowed }
}

/// A name for a device, unique in the world as far as node names are, and the same after a restart.
fn uuid(node: &str, index: u32, vendor: Vendor) -> DeviceUuid {
    // FNV-1a, twice with another start: spread, not secrecy.
    let hash = |start: u64| {
        let text = format!("{node}/{index}");
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15));
    let prefix = if vendor == Vendor::Nvidia { "GPU-" } else { "" };
    DeviceUuid::new(format!(
        "{prefix}{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_of_their_own() {
        let mut names: Vec<DeviceUuid> = ["n1", "n2"]
            .into_iter()
            .flat_map(|node| MachineConfig::plain(node, "h200", 8).describe().unwrap())
            .map(|device| device.uuid)
            .collect();
        assert!(names[0].as_str().starts_with("GPU-") && names[0].as_str().len() == 40, "{}", names[0]);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
    }

    #[test]
    fn each_mistake_is_named() {
        let says = |config: MachineConfig, words: &str| {
            let text = pillion_core::report(&config.describe().unwrap_err());
            assert!(text.contains(words), "{text} does not say {words}");
        };
        let good = MachineConfig::plain("n1", "h200", 2);
        says(MachineConfig { devices: Vec::new(), ..good.clone() }, "at least one device");
        says(MachineConfig { time_scale: 0.0, ..good.clone() }, "time_scale is 0");
        says(MachineConfig { noise_fraction: f64::NAN, ..good.clone() }, "noise_fraction is NaN");
        says(MachineConfig::plain("n1", "h300", 1), "device 0: 'h300' is not a device model");
        let mut mixed = good.clone();
        mixed.devices[1].model = "max-1550".into();
        says(mixed, "device 1 is of another vendor");
        let mut uncut = MachineConfig::plain("n1", "v100", 1);
        uncut.devices[0].mig = true;
        says(uncut, "device 0 is a v100 and has no MIG");
        says(MachineConfig { mig_busy_seconds: -1.0, ..good.clone() }, "mig_busy_seconds is -1");
        let mut wrong = good;
        wrong.devices[1].mechanism = Some(Mechanism::Ccs);
        says(wrong, "device 1 is a h200 and cannot be shared by ccs");
    }

    #[test]
    fn devices_reach_each_other_as_the_machine_is_built() {
        let mut machine = MachineConfig::plain("n1", "h200", 4);
        assert!(machine.describe().unwrap().iter().all(|device| device.links.is_empty()), "nobody says");
        for (index, device) in machine.devices.iter_mut().enumerate() {
            device.numa_node = Some(u32::from(index >= 2));
        }
        machine.nvlinks = vec![[1, 0]];
        let devices = machine.describe().unwrap();
        let ways = |index: usize| devices[index].links.values().map(|link| link.as_str()).collect::<Vec<_>>();
        assert_eq!([ways(0), ways(3)], [["NV", "SYS", "SYS"], ["SYS", "SYS", "NODE"]]);
        for pair in [[0, 0], [0, 4]] {
            machine.nvlinks = vec![pair];
            assert_eq!(machine.describe(), Err(ConfigError::NoLink(pair[0], pair[1])));
        }
        let mut cards = MachineConfig::plain("n1", "max-1550", 2);
        cards.nvlinks = vec![[0, 1]];
        assert_eq!(cards.describe(), Err(ConfigError::NoLink(0, 1)));
    }
}
