//! `Hello` and `Device`.

use super::InvalidCondition;
use super::field::{self, InvalidField};
use crate::v1 as wire;
use pillion_core::device::{DeviceDescription, MigInstance, MigPlacement};
use pillion_core::health::DeviceCondition;
use pillion_core::link::Link;
use pillion_core::mig::{Geometry, Size};
use pillion_core::report::AgentHello;
use pillion_core::setup::NodeSetup;
use pillion_core::text::quoted;
use pillion_core::{DecisionId, DeviceUuid, GresType, NodeName};
use std::collections::BTreeMap;

/// A device that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid device {index}")]
pub struct InvalidDevice {
    /// The device's index, as the agent wrote it.
    pub index: u32,
    /// What is wrong with it.
    pub source: InvalidField,
}

/// An introduction that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidHello {
    /// A field of the agent.
    #[error("invalid hello")]
    Field(#[from] InvalidField),
    /// One of its devices.
    #[error("invalid hello")]
    Device(#[from] InvalidDevice),
    /// How one of them is.
    #[error("invalid hello")]
    Condition(#[from] InvalidCondition),
}

impl TryFrom<wire::Device> for DeviceDescription {
    type Error = InvalidDevice;
    fn try_from(wire: wire::Device) -> Result<Self, InvalidDevice> {
        let wire::Device {
            index,
            uuid,
            model,
            memory_bytes,
            gres_type,
            mechanism,
            instances,
            mig_sizes,
            links,
        } = wire;
        let checked = || -> Result<Self, InvalidField> {
            Ok(Self {
                index,
                uuid: DeviceUuid::new(field::name("uuid", uuid)?),
                model: field::title("model", &model)?,
                memory_bytes,
                gres_type: GresType::new(field::name("gres_type", gres_type)?),
                mechanism: field::mechanism(&mechanism)?,
                instances: instances.map(checked_instances).transpose()?,
                geometry: checked_geometry(mig_sizes)?,
                links: known_links(links)?,
            })
        };
        checked().map_err(|source| InvalidDevice { index, source })
    }
}

impl From<DeviceDescription> for wire::Device {
    fn from(device: DeviceDescription) -> Self {
        let DeviceDescription {
            index,
            uuid,
            model,
            memory_bytes,
            gres_type,
            mechanism,
            instances,
            geometry,
            links,
        } = device;
        Self {
            index,
            uuid: uuid.0.into(),
            model,
            memory_bytes,
            gres_type: gres_type.0.into(),
            mechanism: mechanism.to_string(),
            instances: instances.map(|instances| wire::MigInstances {
                instances: instances.into_iter().map(wire::MigInstance::from).collect(),
            }),
            mig_sizes: geometry
                .map(Vec::from)
                .unwrap_or_default()
                .into_iter()
                .map(wire::MigSize::from)
                .collect(),
            links: links
                .into_iter()
                .map(|(index, link)| wire::DeviceLink { index, kind: link.to_string() })
                .collect(),
        }
    }
}

/// Of a kind that a later release knows nothing is known here.
fn known_links(links: Vec<wire::DeviceLink>) -> Result<BTreeMap<u32, Link>, InvalidField> {
    let links = field::few("links", links, field::DEVICES_MAX)?;
    Ok(links.into_iter().filter_map(|link| Some((link.index, link.kind.parse().ok()?))).collect())
}

/// No size at all: the device is not to be cut.
fn checked_geometry(sizes: Vec<wire::MigSize>) -> Result<Option<Geometry>, InvalidField> {
    let sizes = field::few("mig_sizes", sizes, Geometry::SIZES_MAX)?;
    if sizes.is_empty() {
        return Ok(None);
    }
    let sizes = sizes.into_iter().map(checked_size).collect::<Result<_, _>>()?;
    Ok(Some(Geometry::try_new(sizes)?))
}

fn checked_size(wire: wire::MigSize) -> Result<Size, InvalidField> {
    let wire::MigSize { profile, memory_slices, starts, instances_max, memory_bytes, sm_count } = wire;
    let starts = field::few("starts", starts, usize::from(Geometry::MEMORY_SLICES_MAX))?;
    Ok(Size {
        profile: profile.parse()?,
        memory_slices: field::slices("memory_slices", memory_slices)?,
        starts: starts.into_iter().map(|start| field::slices("starts", start)).collect::<Result<_, _>>()?,
        instances_max: field::slices("instances_max", instances_max)?,
        memory_bytes,
        sm_count,
    })
}

impl From<Size> for wire::MigSize {
    fn from(size: Size) -> Self {
        let Size { profile, memory_slices, starts, instances_max, memory_bytes, sm_count } = size;
        Self {
            profile: profile.to_string(),
            memory_slices: memory_slices.into(),
            starts: starts.into_iter().map(u32::from).collect(),
            instances_max: instances_max.into(),
            memory_bytes,
            sm_count,
        }
    }
}

fn checked_instances(wire: wire::MigInstances) -> Result<Vec<MigInstance>, InvalidField> {
    let wire::MigInstances { instances } = wire;
    field::few("instances", instances, field::DEVICES_MAX)?.into_iter().map(checked_instance).collect()
}

fn checked_instance(wire: wire::MigInstance) -> Result<MigInstance, InvalidField> {
    let wire::MigInstance {
        uuid,
        gpu_instance_id,
        compute_instance_id,
        profile,
        placement,
        sm_count,
        memory_bytes,
    } = wire;
    Ok(MigInstance {
        uuid: DeviceUuid::new(field::name("uuid", uuid)?),
        gpu_instance_id,
        compute_instance_id,
        profile: field::title("profile", &profile)?,
        placement: placement.map(|wire::MigPlacement { start, size }| MigPlacement { start, size }),
        sm_count,
        memory_bytes,
    })
}

impl From<MigInstance> for wire::MigInstance {
    fn from(instance: MigInstance) -> Self {
        let MigInstance {
            uuid,
            gpu_instance_id,
            compute_instance_id,
            profile,
            placement,
            sm_count,
            memory_bytes,
        } = instance;
        Self {
            uuid: uuid.0.into(),
            gpu_instance_id,
            compute_instance_id,
            profile,
            placement: placement.map(|MigPlacement { start, size }| wire::MigPlacement { start, size }),
            sm_count,
            memory_bytes,
        }
    }
}

impl TryFrom<wire::Hello> for AgentHello {
    type Error = InvalidHello;
    fn try_from(wire: wire::Hello) -> Result<Self, InvalidHello> {
        let wire::Hello {
            protocol_version,
            node,
            agent_version,
            journal_id,
            devices,
            sent_at_seconds,
            decision_ids,
            conditions,
            setup,
            observes,
        } = wire;
        let devices = field::few("devices", devices, field::DEVICES_MAX)?;
        let conditions = field::few("conditions", conditions, field::DEVICES_MAX)?;
        let decision_ids = field::few("decision_ids", decision_ids, field::TENANTS_MAX * field::DEVICES_MAX)?;
        Ok(Self {
            protocol_version,
            node: NodeName::new(field::name("node", node)?),
            agent_version: quoted(&agent_version),
            journal_id: field::name("journal_id", journal_id)?,
            devices: devices.into_iter().map(DeviceDescription::try_from).collect::<Result<_, _>>()?,
            sent_at: field::time("sent_at_seconds", sent_at_seconds)?,
            decision_ids: decision_ids.into_iter().map(DecisionId).collect(),
            conditions: conditions.into_iter().map(DeviceCondition::try_from).collect::<Result<_, _>>()?,
            setup: setup.map(NodeSetup::from),
            observes,
        })
    }
}

impl From<AgentHello> for wire::Hello {
    fn from(hello: AgentHello) -> Self {
        let AgentHello {
            protocol_version,
            node,
            agent_version,
            journal_id,
            devices,
            sent_at,
            decision_ids,
            conditions,
            setup,
            observes,
        } = hello;
        Self {
            protocol_version,
            node: node.0.into(),
            agent_version,
            journal_id,
            devices: devices.into_iter().map(wire::Device::from).collect(),
            sent_at_seconds: sent_at.seconds(),
            decision_ids: decision_ids.into_iter().map(|id| id.0).collect(),
            conditions: conditions.into_iter().map(wire::DeviceCondition::from).collect(),
            setup: setup.map(wire::NodeSetup::from),
            observes,
        }
    }
}
