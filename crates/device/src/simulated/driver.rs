//! What a vendor's driver library makes of a process's environment: which device it opens, and how. Pure.
//!
//! Strict where the real ones are (CUDA's rules for `CUDA_VISIBLE_DEVICES`, the MPS guide, NEO's parser for
//! `ZEX_NUMBER_OF_CCS`), so that a variable that Pillion sets wrongly shows as a wrong speed or as no device at all.

use super::hardware::Vendor;
use pillion_core::DeviceUuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The variables that a driver library reads; `pillion-load` sends these and no others.
pub const VARIABLES: [&str; 8] = [
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "ZE_AFFINITY_MASK",
    "ZEX_NUMBER_OF_CCS",
    "ZE_FLAT_DEVICE_HIERARCHY",
];

/// Where CUDA looks for a control daemon if nobody says otherwise.
const MPS_PIPE_DIRECTORY_DEFAULT: &str = "/tmp/nvidia-mps";

/// A process's environment, as far as a driver reads it.
pub type Environment = BTreeMap<String, String>;

/// Why a process could not use a device, or was thrown off it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClientError {
    /// The environment names no device of this node.
    #[error("no device: {reason}")]
    NoDevice {
        /// Which variable, and what it said.
        reason: String,
    },
    /// The driver refuses to start with this environment.
    #[error("driver initialisation failed: {reason}")]
    Initialization {
        /// Which variable, and what is allowed.
        reason: String,
    },
    /// The device's memory, or the client's limit, does not hold what was asked for.
    #[error(
        "out of memory. Tried to allocate {asked_bytes} bytes; device {index} has {total_bytes} bytes in all, of which {free_bytes} bytes are free to this process"
    )]
    OutOfMemory {
        /// The device, by its index on the machine.
        index: u32,
        /// What was asked for.
        asked_bytes: u64,
        /// The device's memory.
        total_bytes: u64,
        /// What was left for this process, its limit included.
        free_bytes: u64,
    },
    /// The MPS server of this device failed, or this client was terminated there.
    #[error("MPS: {reason}")]
    Mps {
        /// What happened to it, for its user.
        reason: String,
    },
    /// More processes than this simulation holds.
    #[error("device {index} is simulated with at most {limit} processes at once")]
    TooManyClients {
        /// The device, by its index on the machine.
        index: u32,
        /// The greatest number.
        limit: usize,
    },
    /// The device is closed to all but one process, and that is another.
    #[error("all CUDA-capable devices are busy or unavailable (device {index} is in exclusive-process mode)")]
    Unavailable {
        /// The device, by its index on the machine.
        index: u32,
    },
    /// The device is gone.
    #[error("device {index} is lost: {reason}")]
    Lost {
        /// The device, by its index on the machine.
        index: u32,
        /// Why it was not let in, for its user.
        reason: String,
    },
    /// The request itself makes no sense.
    #[error("{reason}")]
    Invalid {
        /// What, and what is allowed.
        reason: String,
    },
}

/// Where an MPS control daemon of a device and its clients meet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pipe {
    /// The number of the GPU instance that it serves, if one.
    pub instance: Option<u32>,
    pub directory: PathBuf,
    /// Which of the daemon's devices this is: clients see them in that order.
    pub order: usize,
}

/// A device as the driver library finds it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slot {
    /// Its index on the node.
    pub index: u32,
    /// Its UUID, by which a limit may name it.
    pub uuid: DeviceUuid,
    /// Those of the MPS control daemons that run: of the device, or of its GPU instances.
    pub mps_pipes: Vec<Pipe>,
    /// With MIG on, its instances that the process may open, each with the number of its GPU instance.
    pub instances: Option<Vec<(DeviceUuid, u32)>>,
}

impl Slot {
    /// As a client of the daemon at this pipe directory sees it, and in which place, if that daemon serves it.
    fn served_at(&self, pipe_directory: &str) -> Option<(usize, Self)> {
        let pipe_directory = Path::new(pipe_directory);
        let is_its = |pipe: &&Pipe| pipe.directory.components().eq(pipe_directory.components());
        self.mps_pipes.iter().find(is_its).map(|pipe| (pipe.order, self.served(pipe.instance)))
    }

    /// As a client of the daemon of one of its instances sees it; of the device's own daemon: as it is.
    fn served(&self, instance: Option<u32>) -> Self {
        let of_daemon = |instances: &Vec<(DeviceUuid, u32)>| -> Vec<(DeviceUuid, u32)> {
            instances.iter().filter(|(_, id)| Some(*id) == instance).cloned().collect()
        };
        Self { instances: self.instances.as_ref().map(of_daemon), ..self.clone() }
    }

    /// What CUDA counts of it: itself, or with MIG on its first instance; without any it is none.
    fn counted(&self) -> Option<Seen<'_>> {
        match &self.instances {
            None => Some((self, None)),
            Some(instances) => instances.first().map(|(_, id)| (self, Some(*id))),
        }
    }
}

/// The device that a process opens, and how.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    /// The device, by its index on the machine.
    pub index: u32,
    /// The GPU instance of it that the process has, where MIG is on.
    pub instance: Option<u32>,
    /// How the client uses the device.
    pub access: Access,
}

/// How a process uses its device.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Access {
    /// On its own: time-sliced with everybody else.
    Plain,
    /// As a client of the device's MPS server.
    Mps {
        /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` / 100.
        cap: Option<f64>,
        /// What `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` says of this device.
        memory_limit: PinnedLimit,
    },
    /// With the card in this CCS mode.
    Ccs {
        /// 1, 2 or 4.
        mode: u8,
    },
}

/// What a client's own variable makes of the limits of its device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PinnedLimit {
    /// It says nothing of the device: the server's holds.
    Absent,
    /// Its own, or the server's if that is less.
    Bytes(u64),
    /// It names a GPU that the process does not see, and then none holds, the server's neither (NVIDIA, MPS r615).
    Dropped,
}

/// Finds the device of a process: of those that it sees the one with this number.
///
/// `constrained`: the job's cgroup shows only the devices of `SLURM_JOB_GPUS`, and indexes count among those.
///
/// # Errors
/// [`ClientError::NoDevice`] or [`ClientError::Initialization`], naming the variable.
pub(super) fn resolve(
    vendor: Vendor,
    (environment, number): (&Environment, usize),
    slots: &[Slot],
    constrained: bool,
) -> Result<Claim, ClientError> {
    let slots: Vec<&Slot> = if constrained { in_cgroup(environment, slots) } else { slots.iter().collect() };
    match vendor {
        Vendor::Nvidia => cuda((environment, number), &slots),
        Vendor::Intel => level_zero((environment, number), &slots),
    }
}

fn in_cgroup<'a>(environment: &Environment, slots: &'a [Slot]) -> Vec<&'a Slot> {
    let listed = environment.get("SLURM_JOB_GPUS").map_or("", String::as_str);
    let indexes: Vec<u32> = listed.split(',').filter_map(|index| index.trim().parse().ok()).collect();
    slots.iter().filter(|slot| indexes.contains(&slot.index)).collect()
}

fn cuda((environment, number): (&Environment, usize), slots: &[&Slot]) -> Result<Claim, ClientError> {
    let pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY").map_or(MPS_PIPE_DIRECTORY_DEFAULT, String::as_str);
    let mut served: Vec<(usize, Slot)> = slots.iter().filter_map(|slot| slot.served_at(pipe)).collect();
    // A control daemon shows its clients what it serves only, numbered from 0.
    served.sort_by_key(|(order, _)| *order);
    let is_client = !served.is_empty();
    let seen: Vec<&Slot> =
        if is_client { served.iter().map(|(_, slot)| slot).collect() } else { slots.to_vec() };
    let visible = cuda_visible(environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str), &seen);
    let Some((device, instance)) = visible.get(number).copied() else {
        return Err(ClientError::NoDevice {
            reason: format!(
                "no CUDA-capable device is detected (CUDA_VISIBLE_DEVICES={}, {} of {} devices to choose from)",
                environment.get("CUDA_VISIBLE_DEVICES").map_or("unset", String::as_str),
                seen.len(),
                slots.len()
            ),
        });
    };
    if !is_client {
        return Ok(Claim { index: device.index, instance, access: Access::Plain });
    }
    let cap =
        environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").map(|text| percentage(text)).transpose()?;
    let limits = environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    let memory_limit =
        limits.map_or(Ok(PinnedLimit::Absent), |text| memory_limit(text, device.index, &visible))?;
    Ok(Claim { index: device.index, instance, access: Access::Mps { cap, memory_limit } })
}

/// A device as a process sees it, and the GPU instance that is all that it sees of it.
type Seen<'a> = (&'a Slot, Option<u32>);

/// CUDA's reading of the list: up to the first entry that names no device; repeated ones make it empty. Of a device with MIG on a
/// process sees one instance: the one that is named, else the first.
fn cuda_visible<'a>(list: Option<&str>, slots: &[&'a Slot]) -> Vec<Seen<'a>> {
    let counted: Vec<Seen<'a>> = slots.iter().filter_map(|slot| slot.counted()).collect();
    let Some(list) = list else {
        return counted;
    };
    let mut visible: Vec<Seen<'a>> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = if let Ok(position) = entry.parse::<usize>() {
            counted.get(position).copied()
        } else if entry.starts_with("GPU-") {
            let mut matching = counted.iter().filter(|(slot, _)| slot.uuid.as_str().starts_with(entry));
            matching.next().filter(|_| matching.next().is_none()).copied()
        } else if entry.starts_with("MIG-") {
            named_instance(entry, slots)
        } else {
            None
        };
        match found {
            Some(seen) if visible.iter().any(|(slot, _)| slot.index == seen.0.index) => return Vec::new(),
            Some(seen) => visible.push(seen),
            None => break,
        }
    }
    visible
}

fn named_instance<'a>(name: &str, slots: &[&'a Slot]) -> Option<Seen<'a>> {
    slots.iter().find_map(|slot| {
        let instances = slot.instances.as_ref()?;
        let (_, id) = instances.iter().find(|(uuid, _)| uuid.as_str() == name)?;
        Some((*slot, Some(*id)))
    })
}

fn percentage(text: &str) -> Result<f64, ClientError> {
    let number = text.trim().parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 100.0);
    number.map(|number| number / 100.0).ok_or_else(|| ClientError::Initialization {
        reason: format!(
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE='{text}' is not a percentage; allowed is more than 0, up to 100"
        ),
    })
}

/// The limit for the device with this index in a list such as `0=8G,GPU-..=512M`. `visible`: what the process sees, in its numbers.
fn memory_limit(text: &str, index: u32, visible: &[Seen<'_>]) -> Result<PinnedLimit, ClientError> {
    let invalid = || ClientError::Initialization {
        reason: format!(
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT='{text}' is not a list of limits; write 0=8G or 0=512M"
        ),
    };
    let mut limit = PinnedLimit::Absent;
    let mut is_dropped = false;
    for entry in text.split(',') {
        let (name, size) = entry.trim().split_once('=').ok_or_else(invalid)?;
        let size = size.strip_suffix('B').unwrap_or(size);
        let (digits, shift) = match size.as_bytes().last() {
            Some(b'G') => (&size[..size.len() - 1], 30),
            Some(b'M') => (&size[..size.len() - 1], 20),
            _ => return Err(invalid()),
        };
        let bytes =
            digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)).ok_or_else(invalid)?;
        let named = match name.parse::<usize>() {
            Ok(number) => visible.get(number),
            Err(_) => visible.iter().find(|(slot, _)| slot.uuid.as_str() == name),
        };
        match named {
            Some((slot, _)) if slot.index == index => limit = PinnedLimit::Bytes(bytes),
            Some(_) => {}
            None => is_dropped = true,
        }
    }
    Ok(if is_dropped { PinnedLimit::Dropped } else { limit })
}

fn level_zero((environment, number): (&Environment, usize), slots: &[&Slot]) -> Result<Claim, ClientError> {
    let composite = match environment.get("ZE_FLAT_DEVICE_HIERARCHY").map_or("FLAT", String::as_str) {
        "COMPOSITE" => true,
        "FLAT" | "COMBINED" => false,
        other => {
            return Err(ClientError::Initialization {
                reason: format!(
                    "ZE_FLAT_DEVICE_HIERARCHY='{other}' is unknown; allowed are FLAT, COMBINED and COMPOSITE"
                ),
            });
        }
    };
    let mask = environment.get("ZE_AFFINITY_MASK").map(String::as_str);
    let visible = affinity(mask, composite, slots);
    let Some(device) = visible.get(number) else {
        return Err(ClientError::NoDevice {
            reason: format!(
                "ZE_AFFINITY_MASK={} names none of the {} tiles",
                mask.unwrap_or("unset"),
                slots.len()
            ),
        });
    };
    let mode = environment.get("ZEX_NUMBER_OF_CCS").map_or(Ok(1), |text| ccs_mode(text))?;
    Ok(Claim { index: device.index, instance: None, access: Access::Ccs { mode } })
}

/// The tiles that a mask shows. FLAT counts tiles and ignores `card.tile`; COMPOSITE counts cards of two tiles, and a
/// process that opens a whole card runs on its first tile (implicit scaling is not simulated).
fn affinity<'a>(mask: Option<&str>, composite: bool, slots: &[&'a Slot]) -> Vec<&'a Slot> {
    let Some(mask) = mask else {
        return slots.to_vec();
    };
    let tiles = mask.split(',').filter_map(|entry| tile_of_entry(entry.trim(), composite));
    tiles.filter_map(|tile| slots.get(tile)).copied().collect()
}

/// The tile that an entry of `ZE_AFFINITY_MASK` names, of cards of two; `composite`: an entry alone is a card.
fn tile_of_entry(entry: &str, composite: bool) -> Option<usize> {
    match (composite, entry.split_once('.')) {
        (false, None) => entry.parse().ok(),
        (false, Some(_)) => None,
        (true, None) => entry.parse::<usize>().ok().map(|card| card * 2),
        (true, Some((card, tile))) => {
            let tile = tile.parse::<usize>().ok().filter(|tile| *tile < 2);
            card.parse::<usize>().ok().zip(tile).map(|(card, tile)| card * 2 + tile)
        }
    }
}

/// The mode of the first visible device in a list such as `0:2`. Entries for others are ignored, as NEO does; above 4 it
/// is clamped to 4; 3 is what NEO takes and the hardware does not have.
fn ccs_mode(text: &str) -> Result<u8, ClientError> {
    let invalid = || ClientError::Initialization {
        reason: format!(
            "ZEX_NUMBER_OF_CCS='{text}' is not a list of index:mode; write 0:2; allowed modes are 1, 2 and 4"
        ),
    };
    let mut first = 1;
    for entry in text.split(',') {
        let (index, mode) = entry.trim().split_once(':').ok_or_else(invalid)?;
        let index: u32 = index.parse().map_err(|_| invalid())?;
        let mode: u32 = mode.parse().map_err(|_| invalid())?;
        let mode = match mode {
            1 => 1,
            2 => 2,
            4.. => 4,
            _ => return Err(invalid()),
        };
        if index == 0 {
            first = mode;
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests;
