//! What becomes of each device by a plan: who has which part of it, and who gets which. For `pillion plan --mig`; decides nothing.

use crate::plan::Plan;
use crate::view::{ClusterView, DeviceView};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::{GresType, NodeName, SlurmJobId, WorkloadKey};
use serde::Serialize;

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceShape {
    /// Where it is.
    pub node: NodeName,
    /// Slurm's GRES type for it.
    pub gres_type: GresType,
    /// Its model.
    pub device_model: String,
    /// Whether it can be cut into instances.
    pub can_be_cut: bool,
    /// Whether how it is cut cannot be changed now.
    pub is_shape_held: bool,
    /// Its instances by where they lie, and whoever has it without one.
    pub parts: Vec<Part>,
}

/// A part of a device, and whose it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// The instance; absent: all of the device, alone or with others of this list.
    pub instance: Option<Slot>,
    /// What Slurm books for it.
    pub shards: Option<u8>,
    /// Who has it; absent: nobody.
    pub job_id: Option<SlurmJobId>,
    /// What he runs, where that is known.
    pub workload: Option<WorkloadKey>,
    /// Whether he is there already.
    pub standing: Standing,
    /// How fast he is expected to be, of his speed on a whole device; absent where that is not known.
    pub speed_fraction: Option<f64>,
    /// What it is at least.
    pub speed_fraction_low: Option<f64>,
}

/// Since when a part is somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// He is there already, or about to be.
    Runs,
    /// By this plan.
    Starts,
    /// It is nobody's.
    Empty,
}

impl Standing {
    /// As tables and JSON have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Starts => "starts",
            Self::Empty => "empty",
        }
    }
}

/// Lets every device be cut that nobody told how to cut and whose model is known; `true` where there was one.
pub fn let_be_cut(view: &mut ClusterView) -> bool {
    let mut is_new = false;
    for device in view.devices.iter_mut().filter(|device| device.geometry.is_none()) {
        device.geometry = Geometry::of_model(&device.model).cloned();
        is_new |= device.geometry.is_some();
    }
    is_new
}

/// Each device of the view under the plan that was made of it.
pub fn shapes(view: &ClusterView, plan: &Plan) -> Vec<DeviceShape> {
    let shape = |device: &DeviceView| {
        let mut parts: Vec<Part> = running(device).collect();
        parts.extend(starting(device, plan));
        let taken: Vec<Slot> = parts.iter().filter_map(|part| part.instance).collect();
        parts.extend(device.standing_beside(&taken).into_iter().map(empty));
        parts.sort_by_key(|part| part.instance.map(|slot| slot.start));
        DeviceShape {
            node: device.node.clone(),
            gres_type: device.gres_type.clone(),
            device_model: device.model.clone(),
            can_be_cut: device.geometry.is_some(),
            is_shape_held: device.is_shape_held,
            parts,
        }
    };
    view.devices.iter().map(shape).collect()
}

fn running(device: &DeviceView) -> impl Iterator<Item = Part> + '_ {
    device.tenants.iter().map(|tenant| Part {
        instance: tenant.sharing.mig_slot(),
        shards: Some(tenant.shards.count()),
        job_id: Some(tenant.job_id),
        workload: tenant.workload.clone(),
        standing: Standing::Runs,
        speed_fraction: None,
        speed_fraction_low: None,
    })
}

fn starting<'p>(device: &'p DeviceView, plan: &'p Plan) -> impl Iterator<Item = Part> + 'p {
    let here = |pairing: &&crate::plan::Pairing| {
        pairing.node == device.node && pairing.gres_types.contains(&device.gres_type)
    };
    plan.pairings.iter().filter(move |pairing| here(pairing)).flat_map(|pairing| &pairing.members).map(
        |member| {
            let estimate = member.estimate.as_ref();
            Part {
                instance: member.sharing.mig_slot(),
                shards: Some(member.shards.count()),
                job_id: Some(member.start.job_id),
                workload: Some(member.workload.clone()),
                standing: Standing::Starts,
                speed_fraction: estimate.map(|estimate| estimate.speed_fraction),
                speed_fraction_low: estimate.map(|estimate| estimate.speed_fraction_low),
            }
        },
    )
}

/// An instance that stands empty.
fn empty(slot: Slot) -> Part {
    Part {
        instance: Some(slot),
        shards: None,
        job_id: None,
        workload: None,
        standing: Standing::Empty,
        speed_fraction: None,
        speed_fraction_low: None,
    }
}
