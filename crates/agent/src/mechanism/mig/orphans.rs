//! A node whose agent is dead: what its jobs left is taken away by their Epilogs. For a job that Slurm starts alone there finds no
//! CUDA device on a GPU without an instance, and one slice of it, without an error, on a GPU with one that was left.

use super::carry::sentence;
use super::record::Record;
use super::step::{Rest, Wanted};
use super::wanted::{merged, wanted_by};
use super::{Mig, MigPolicy};
use pillion_core::DeviceUuid;
use pillion_core::device::DeviceDescription;
use pillion_core::share::Share;
use pillion_device::Backend;
use std::time::Duration;

/// What is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Whether nobody has any of the device.
    pub is_empty: bool,
    /// Which device that is, and why.
    pub why: String,
}

/// Takes away the instances of all but these shares, and makes devices whole on which none is left, as far as their driver lets it.
/// Returns what it did not let.
pub fn clear(
    backend: &mut dyn Backend,
    record: Record,
    devices: &[DeviceDescription],
    stay: &[Share],
) -> Vec<Left> {
    let is_known = |uuid: &DeviceUuid| devices.iter().any(|device| device.uuid == *uuid);
    let unseen = record.devices().filter(|uuid| !is_known(uuid));
    let not_shown = |uuid| format!("device {uuid} is cut, and its driver does not show it");
    let mut left: Vec<Left> = unseen.map(|uuid| Left { is_empty: true, why: not_shown(uuid) }).collect();
    let ours = devices.iter().filter(|device| record.devices().any(|uuid| *uuid == device.uuid));
    let ours: Vec<&DeviceDescription> = ours.collect();
    let mut mig = Mig::with(MigPolicy::default(), Some(record), Duration::ZERO);
    left.extend(ours.into_iter().filter_map(|device| of_device(&mut mig, backend, device, stay)));
    left
}

fn of_device(
    mig: &mut Mig,
    backend: &mut dyn Backend,
    device: &DeviceDescription,
    stay: &[Share],
) -> Option<Left> {
    let on_it = stay.iter().filter(|share| share.gres_types.contains(&device.gres_type));
    let wanted: Vec<Wanted> = merged(on_it.filter_map(|share| wanted_by(share, false)));
    let goal = mig.goal(&wanted, Rest::Whole);
    let tried = mig.on(backend, device).and_then(|mut cut| cut.carry_out(goal));
    let why = match tried {
        Ok(tried) if tried.is_served() && !tried.is_refused() => return None,
        Ok(tried) => sentence(&tried, &mig.holders(backend, device)),
        Err(error) => pillion_core::report(&error),
    };
    let (gres_type, uuid) = (&device.gres_type, &device.uuid);
    Some(Left {
        is_empty: wanted.is_empty(),
        why: format!("device {gres_type} ({uuid}) is not whole: {why}"),
    })
}
