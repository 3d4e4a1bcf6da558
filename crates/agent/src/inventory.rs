//! Which devices the node has, as its driver tells it and as Slurm calls them, and why it has none. Keeps nothing.

use crate::closed;
use crate::config::{BackendKind, Config, mig_policy};
use crate::mechanism::mig::announce::Announcer;
use crate::mechanism::mig::record;
use crate::node::Inventory;
use pillion_core::GresType;
use pillion_core::device::DeviceDescription;
use pillion_core::setup::{SetupFault, SetupFaultKind};
use pillion_device::{Backend, DeviceError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long an agent that begins waits for a driver that may be about to answer: at boot it may come up after us, and a driver
/// that nobody used may take seconds to wake its devices.
const DRIVER_WAIT: Duration = Duration::from_secs(10);
/// How long to wait before it is asked again meanwhile.
const DRIVER_PAUSE: Duration = Duration::from_millis(500);

/// What the site says of its devices, beside what their driver does.
pub struct Site {
    /// Whose devices they are.
    pub backend: BackendKind,
    /// What Slurm calls each device; absent where it is called as its backend calls it.
    pub gres_type: Box<dyn Fn(u32) -> Option<GresType> + Send>,
    /// What is told of devices that are cut.
    pub instances: Announcer,
}

/// What a configuration says. `boot_id`: the machine's.
pub fn site(config: &Config, boot_id: &str) -> Site {
    let instances = Announcer {
        policy: mig_policy(config),
        record: record::path(&config.state_directory),
        boot_id: boot_id.to_owned(),
    };
    let (backend, config) = (config.backend, config.clone());
    Site { backend, gres_type: Box::new(move |index| config.gres_type(index)), instances }
}

/// Asks the driver which devices there are.
///
/// # Errors
/// As [`Backend::devices`].
pub fn ask(backend: &mut dyn Backend, site: &Site) -> Result<Vec<DeviceDescription>, DeviceError> {
    let mut devices = backend.devices()?;
    for device in &mut devices {
        if let Some(gres_type) = (site.gres_type)(device.index) {
            device.gres_type = gres_type;
        }
        site.instances.complete(backend, device);
    }
    Ok(devices)
}

/// What an agent that begins finds. A driver that may answer soon is waited for, for a moment; `None`: stopped meanwhile.
pub async fn first(backend: &mut dyn Backend, site: &Site, stop: &CancellationToken) -> Option<Inventory> {
    let until = Instant::now() + DRIVER_WAIT;
    loop {
        let found = ask(backend, site);
        let is_worth_waiting = found.as_ref().is_err_and(DeviceError::is_transient);
        if !is_worth_waiting || Instant::now() >= until {
            let devices = found.as_ref().map(Vec::as_slice).unwrap_or_default();
            let fault =
                devices.is_empty().then(|| fault(found.as_ref().err(), closed::sentence(site.backend)));
            return Some(Inventory { devices: devices.into(), fault });
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(DRIVER_PAUSE) => {}
        }
    }
}

/// Why there is no device. `closed`: what keeps us from them by ourselves.
pub fn fault(error: Option<&DeviceError>, closed: Option<String>) -> SetupFault {
    let why = error.map_or_else(|| "its driver shows none".to_owned(), |error| pillion_core::report(error));
    let closed = closed.map(|sentence| format!("; {sentence}")).unwrap_or_default();
    SetupFault {
        kind: SetupFaultKind::NoDevices,
        detail: format!("no device can be shared here: {why}{closed}"),
    }
}

/// Those that nobody knows yet. A device keeps its index and its name for as long as we run.
pub fn unknown(known: &[DeviceDescription], found: &[DeviceDescription]) -> Vec<DeviceDescription> {
    let mut unknown = found.to_vec();
    unknown.retain(|device| {
        !known.iter().any(|other| other.index == device.index || other.gres_type == device.gres_type)
    });
    unknown
}

/// All of them, by index.
pub fn with(known: &[DeviceDescription], new: &[DeviceDescription], fault: Option<SetupFault>) -> Inventory {
    let mut devices = [known, new].concat();
    devices.sort_by_key(|device| device.index);
    Inventory { devices: devices.into(), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, gres_type: &str) -> DeviceDescription {
        DeviceDescription {
            memory_bytes: 1 << 37,
            gres_type: GresType::new(gres_type),
            ..pillion_test_kit::device(index)
        }
    }

    #[test]
    fn a_device_that_comes_late_has_its_place_among_those_that_stay() {
        let known = [device(0, "g0"), device(2, "g2")];
        let found =
            [DeviceDescription { memory_bytes: 1, ..device(0, "g0") }, device(1, "g1"), device(3, "g2")];
        let new = unknown(&known, &found);
        assert_eq!(new, [device(1, "g1")], "neither one that is known nor another one of its name");
        let all = with(&known, &new, None);
        assert_eq!(*all.devices, [device(0, "g0"), device(1, "g1"), device(2, "g2")]);
        assert_eq!(unknown(&all.devices, &[]), [], "one that is away stays known");
    }

    #[test]
    fn why_there_is_none_is_told() {
        assert_eq!(fault(None, None).detail, "no device can be shared here: its driver shows none");
        let error = DeviceError::NoLibrary { library: "libx.so".into(), reason: "no such file".into() };
        let SetupFault { kind, detail } = fault(Some(&error), Some("the unit is shut".to_owned()));
        assert_eq!(kind, SetupFaultKind::NoDevices);
        assert_eq!(
            detail,
            "no device can be shared here: libx.so cannot be loaded: no such file; the unit is shut"
        );
    }
}
