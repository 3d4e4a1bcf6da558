//! A node whose agent is dead: what its jobs left is taken away by their Epilogs. For a job that Slurm starts alone there finds no
//! CUDA device on a GPU without an instance, and one slice of it, without an error, on a GPU with one that was left.

use super::carry::sentence;
use super::record::Record;
use super::step::{Rest, Wanted};
use super::{Mig, MigPolicy, wanted_by};
use pillion_core::device::DeviceDescription;
use pillion_core::share::Share;
use pillion_device::Backend;
use std::time::Duration;
use tokio::time::Instant;

const PAUSE: Duration = Duration::from_millis(100);

/// Takes away the instances of all but these shares, and makes devices whole on which none is left, trying for so long. Returns
/// those that should be whole and are not, each with why.
pub fn clear(
    backend: &mut dyn Backend,
    record: Record,
    devices: &[DeviceDescription],
    stay: &[Share],
    patience: Duration,
) -> Vec<String> {
    let until = Instant::now() + patience;
    let ours: Vec<&DeviceDescription> =
        devices.iter().filter(|device| record.devices().any(|uuid| *uuid == device.uuid)).collect();
    let mut unseen: Vec<String> = Vec::new();
    for uuid in record.devices().filter(|uuid| !devices.iter().any(|device| device.uuid == **uuid)) {
        unseen.push(format!("device {uuid} is cut, and its driver does not show it"));
    }
    let mut mig = Mig::with(MigPolicy::default(), Some(record), Duration::ZERO);
    loop {
        let left: Vec<String> =
            ours.iter().filter_map(|device| of_device(&mut mig, backend, device, stay)).collect();
        if left.is_empty() || Instant::now() + PAUSE >= until {
            return left.into_iter().chain(unseen).collect();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why the device should be whole and is not.
fn of_device(
    mig: &mut Mig,
    backend: &mut dyn Backend,
    device: &DeviceDescription,
    stay: &[Share],
) -> Option<String> {
    let on_it = stay.iter().filter(|share| share.gres_type == device.gres_type);
    let wanted: Vec<Wanted> = on_it.filter_map(|share| wanted_by(share, false)).collect();
    let goal = mig.goal(&wanted, Rest::Whole);
    let tried = mig.on(backend, device).and_then(|mut cut| cut.carry_out(goal));
    let why = match tried {
        Ok(tried) if wanted.is_empty() && !tried.is_served() => {
            let holders = mig.on(backend, device).ok().and_then(|mut cut| cut.holders());
            sentence(&tried, holders)
        }
        Ok(_) => return None,
        Err(_) if !wanted.is_empty() => return None,
        Err(error) => pillion_core::report(&error),
    };
    Some(format!("device {} ({}) is not whole: {why}", device.gres_type, device.uuid))
}
