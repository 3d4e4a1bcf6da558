//! What both threads that look at devices do alike, whether they share them (`devices`) or only observe (`observe`).

use crate::backoff::Backoff;
use crate::disk;
use crate::health::Health;
use crate::inventory::{self, Site};
use crate::node::Node;
use crate::sampler::Sampler;
use pillion_core::device::DeviceDescription;
use pillion_core::health::DeviceCondition;
use pillion_device::{Backend, DeviceError, DeviceStates};
use std::path::Path;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// Asks the driver again which devices there are, and takes up those that are new, which are given back. Nothing changes for
/// the others.
pub(crate) fn for_devices(
    backend: &mut dyn Backend,
    site: &Site,
    node: &Node,
    backoff: &mut Backoff,
    (health, sampler): (&mut Health, &mut Sampler),
) -> Vec<DeviceDescription> {
    let known = node.devices();
    let found = inventory::ask(backend, site);
    let new = inventory::unknown(&known, found.as_ref().map(Vec::as_slice).unwrap_or_default());
    let fault = (known.is_empty() && new.is_empty())
        .then(|| inventory::fault(found.as_ref().err(), crate::closed::sentence(site.backend)));
    backoff.asked(Instant::now(), !new.is_empty(), !known.is_empty() || !new.is_empty());
    let reported = inventory::with(&known, &new, fault);
    if !node.set_inventory(reported.clone()) {
        return Vec::new();
    }
    if let Some(fault) = reported.fault {
        warn!("{}; looking again", fault.detail);
    }
    for device in &new {
        info!(device = device.index, uuid = %device.uuid, gres_type = %device.gres_type, "device taken up");
        health.take_up(device);
        sampler.take_up(device.clone());
    }
    new
}

/// What each device says now.
///
/// # Errors
/// As [`Backend::read_all`].
pub(crate) fn at_all(backend: &mut dyn Backend, node: &Node) -> Result<DeviceStates, DeviceError> {
    // Why there is none is told already, and looked for as often as is good.
    if node.devices().is_empty() { Ok(Vec::new()) } else { backend.read_all() }
}

/// The states, or none where no device could be read, which is logged once: jobs that end meanwhile are still noticed.
pub(crate) fn or_nothing(states: Result<DeviceStates, DeviceError>, is_failing: &mut bool) -> DeviceStates {
    let was_failing = std::mem::replace(is_failing, states.is_err());
    states.unwrap_or_else(|error| {
        if !was_failing {
            warn!(error = %pillion_core::report(&error), "no device can be read");
        }
        Vec::new()
    })
}

/// Keeps for Prometheus what each device said, or that it could not.
pub(crate) fn count(node: &Node, states: Option<&DeviceStates>) {
    for device in node.devices().iter() {
        let of_device = states.and_then(|states| states.iter().find(|(index, _)| *index == device.index));
        let state = of_device.and_then(|(_, state)| state.as_ref().ok());
        node.figures().read(&device.gres_type, state);
    }
}

/// Tells how the devices are; the scheduler hears of it where it changed.
pub(crate) fn tell(health: &Health, node: &Node, told: &watch::Sender<Vec<DeviceCondition>>) {
    let conditions = health.conditions();
    node.figures().conditions(&conditions);
    told.send_if_modified(|reported| {
        let is_new = *reported != conditions;
        *reported = conditions;
        is_new
    });
}

/// Writes down what is in progress.
pub(crate) fn save(sampler: &Sampler, path: &Path) {
    if let Err(error) = disk::replace(path, &sampler.state(), false) {
        warn!(path = %path.display(), %error, "runs in progress cannot be written down");
    }
}
