//! What all jobs on files have in common: the device that each of them may have, and the profiles as they are read.

use crate::view::DeviceView;
use pillion_core::device::Mechanism;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{GresType, NodeName, SlowdownRatio, WorkloadKey};
use std::collections::BTreeMap;

/// Ids of running jobs start here; those of waiting jobs are their row and one.
pub(super) const RUNNING_ID_FIRST: u32 = 1_000_000_000;
/// Memory of a device where none is given: nothing is too large for it.
const MEMORY_BOUNDLESS_BYTES: u64 = 1 << 50;

/// The one node.
pub(super) const NODE: &str = "files";

/// Profiles by workload.
pub(super) type Profiles = BTreeMap<WorkloadKey, WorkloadProfile>;

/// What all jobs have in common.
pub(super) struct Ground {
    pub(super) device_model: String,
    pub(super) mechanism: Mechanism,
    pub(super) device_memory_bytes: Option<u64>,
    pub(super) slowdown_ratio_max: SlowdownRatio,
}

impl Ground {
    /// The profile of a workload; of one that is known by name only, an empty one.
    pub(super) fn profile<'p>(
        &self,
        profiles: &'p mut Profiles,
        workload: &WorkloadKey,
    ) -> &'p WorkloadProfile {
        profiles.entry(workload.clone()).or_insert_with(|| WorkloadProfile {
            // Counted as run: on files a workload needs no solo run.
            run_count: 1,
            ..WorkloadProfile::empty(workload.clone(), &*self.device_model)
        })
    }

    pub(super) fn device(&self, index: usize) -> DeviceView {
        DeviceView {
            node: NodeName::new(NODE),
            gres_type: GresType::new(format!("g{index}")),
            model: self.device_model.clone(),
            gpu_types: Vec::new(),
            memory_bytes: self.device_memory_bytes.unwrap_or(MEMORY_BOUNDLESS_BYTES),
            mechanism: self.mechanism,
            shards_free: 100,
            tenants: Vec::new(),
            geometry: None,
            is_shape_held: false,
            instances_empty: Vec::new(),
            alone_until: None,
            links: BTreeMap::new(),
            blocked: None,
        }
    }
}
