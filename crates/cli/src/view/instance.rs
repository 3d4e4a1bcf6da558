//! What MIG has cut a device into.

use pillion_proto::v1 as wire;
use serde::Serialize;

/// A MIG instance of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceRow {
    /// The vendor's name.
    pub uuid: String,
    /// The driver's number of its GPU instance.
    pub gpu_instance_id: u32,
    /// That of its compute instance within it.
    pub compute_instance_id: u32,
    /// Its size, as Slurm names it.
    pub profile: String,
    /// Its memory slices; absent = not told.
    pub placement: Option<PlacementRow>,
    /// Its compute units.
    pub sm_count: u32,
    /// Its memory.
    pub memory_bytes: u64,
}

/// The memory slices of a MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PlacementRow {
    /// The first, from 0.
    pub start: u32,
    /// How many.
    pub size: u32,
}

impl From<wire::MigInstance> for InstanceRow {
    fn from(instance: wire::MigInstance) -> Self {
        let wire::MigInstance {
            uuid,
            gpu_instance_id,
            compute_instance_id,
            profile,
            placement,
            sm_count,
            memory_bytes,
        } = instance;
        let placement = placement.map(|wire::MigPlacement { start, size }| PlacementRow { start, size });
        Self { uuid, gpu_instance_id, compute_instance_id, profile, placement, sm_count, memory_bytes }
    }
}
