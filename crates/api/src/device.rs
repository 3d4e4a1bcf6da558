//! Devices as their agents told them.

use crate::{DeviceStatus, Fault, Faults, MetricStatus};
use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_proto::v1 as wire;

impl DeviceStatus {
    /// A device with what was told of it last; `None`: nothing was.
    pub fn new(device: DeviceDescription, condition: Option<DeviceCondition>) -> Self {
        // What it could be cut into is the planner's.
        let wire::Device {
            index,
            uuid,
            model,
            memory_bytes,
            gres_type,
            mechanism,
            instances,
            mig_sizes: _,
            links,
        } = device.into();
        let (faults, metrics) = condition.map_or((None, Vec::new()), |condition| {
            let DeviceCondition { gres_type: _, faults, sources, instances_empty: _ } = condition;
            let metrics = sources.into_iter().map(|(metric, source)| MetricStatus {
                metric: metric.to_string(),
                source: source.to_string(),
                quality: source.quality(metric).to_string(),
            });
            (Some(Faults { list: faults.into_iter().map(Fault::from).collect() }), metrics.collect())
        });
        Self {
            index,
            uuid,
            model,
            memory_bytes,
            gres_type,
            mechanism,
            instances,
            faults,
            metrics,
            amiss: None,
            links,
        }
    }

    /// What is known to be wrong with it, the worst first.
    pub fn known_faults(&self) -> &[Fault] {
        self.faults.as_ref().map_or(&[], |faults| &faults.list)
    }
}

impl From<DeviceFault> for Fault {
    fn from(fault: DeviceFault) -> Self {
        let DeviceFault { kind, detail, since } = fault;
        let closes_device = kind.closes_device();
        Self { kind: kind.to_string(), detail, since_seconds: since.seconds(), closes_device }
    }
}
