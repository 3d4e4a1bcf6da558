//! Xids: errors that the driver numbers. Collected without waiting.
//!
//! One event set a device: a registration that fails destroys its set. If several Xids came since the last sample, NVML
//! names the last one for each of them (nvml.h, `nvmlEventSetWait_v2`), and it names no process: `xid_lines` has both.

use super::convert;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::{Device, EventSet};

/// The most events that are taken at one sample, so that a storm of them cannot hold us.
const EVENTS_MAX: usize = 64;

/// The Xids of one device.
#[derive(Debug)]
pub(super) struct XidEvents<'nvml> {
    set: Option<EventSet<'nvml>>,
}

impl<'nvml> XidEvents<'nvml> {
    /// Listens to a device, where it tells its Xids.
    pub(super) fn of(device: &Device<'nvml>) -> Self {
        let xid = EventTypes::CRITICAL_XID_ERROR;
        let is_told = device.supported_event_types().is_ok_and(|types| types.contains(xid));
        let set = is_told.then(|| device.nvml().create_event_set().ok()).flatten();
        Self { set: set.and_then(|set| device.register_events(xid, set).ok()) }
    }

    /// The numbers of those that came since the last sample.
    pub(super) fn new_codes(&self) -> Vec<u64> {
        let events = std::iter::from_fn(|| self.set.as_ref()?.wait(0).ok());
        events.take(EVENTS_MAX).filter_map(|event| event.event_data.as_ref().map(convert::xid_code)).collect()
    }
}
