//! What a device with MIG is asked and told: what it can be cut into, how it is cut, and every change of that.
//!
//! Who could act between two of our calls is another program of root: `nvidia-smi mig`, or an agent's cleanup. Each answer of
//! the driver is taken as it is then, and what is not there any more is no error where it was to go.

use super::calls::{self, ComputeInstance, GpuInstance, Place, Profile};
use super::files::{self, MigFiles};
use super::{bytes, mig_devices};
use crate::DeviceError;
use crate::mechanism::mig::{self, Access, Instance, Layout, MigMode};
use crate::nvidia::processes;
use crate::nvidia::trouble::Trouble;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use pillion_core::DeviceUuid;
use pillion_core::mig::{Geometry, InvalidGeometry, MigProfile, Size, Slot};
use std::collections::BTreeMap;

/// More sizes than NVML has numbers for.
const SIZES_MAX: u32 = 64;
/// `NVML_ERROR_INSUFFICIENT_RESOURCES` (nvml.h, `nvmlReturn_t`), which `nvml-wrapper` has no word for.
const INSUFFICIENT_RESOURCES: u32 = 23;
/// `NVML_DEVICE_ARCH_HOPPER`, the first that changes its mode without a reset; `NVML_DEVICE_ARCH_UNKNOWN` is no newer one.
const HOPPER: u32 = 9;
const UNKNOWN: u32 = u32::MAX;

/// What NVML's error means of a device that is cut.
fn failed(index: u32, error: NvmlError) -> DeviceError {
    let reason = error.to_string();
    match error {
        NvmlError::InUse => DeviceError::Busy { index, reason },
        NvmlError::UnexpectedVariant(INSUFFICIENT_RESOURCES) => {
            DeviceError::Busy { index, reason: "there is no room for it".to_owned() }
        }
        // We pass what NVML has told us just now.
        NvmlError::InvalidArg => {
            let reason = "its instances changed while they were looked at".to_owned();
            DeviceError::NotReady { index, reason }
        }
        error => Trouble::from(error).of(index),
    }
}

fn refused(index: u32, reason: String) -> DeviceError {
    DeviceError::Refused { index, reason }
}

/// Whether it changes its mode without being reset.
fn is_resetless(device: &Device<'_>) -> Result<bool, NvmlError> {
    Ok(changes_without_reset(calls::architecture(device)?))
}

/// Whether its mode changes by a reset alone.
pub(super) fn needs_reset(device: &Device<'_>, index: u32) -> Result<bool, DeviceError> {
    is_resetless(device).map(|is_resetless| !is_resetless).map_err(|error| failed(index, error))
}

fn changes_without_reset(architecture: u32) -> bool {
    architecture != UNKNOWN && architecture >= HOPPER
}

fn mode(device: &Device<'_>) -> Result<(bool, MigMode), NvmlError> {
    let told = device.mig_mode()?;
    let mode = match (told.current == 1, told.pending == 1) {
        (false, false) => MigMode::Off,
        (true, true) => MigMode::On,
        (true, false) | (false, true) => MigMode::Pending,
    };
    Ok((told.current == 1, mode))
}

/// All sizes that the device has now: without MIG some drivers tell none.
fn profiles(device: &Device<'_>) -> Result<Vec<Profile>, NvmlError> {
    let mut found: Vec<Profile> = Vec::new();
    for number in 0..SIZES_MAX {
        match calls::profile(device, number) {
            Ok(profile) if found.iter().any(|known| known.id == profile.id) => {}
            Ok(profile) => found.push(profile),
            Err(NvmlError::NotSupported) => {}
            Err(NvmlError::InvalidArg) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The size in our words; `None` for a name that is none.
fn size_of(profile: &Profile) -> Option<MigProfile> {
    profile.name.strip_prefix("MIG ").unwrap_or(&profile.name).parse().ok()
}

/// The one that is the whole device.
fn is_whole(profile: &Profile, all: &[Profile]) -> bool {
    all.iter().all(|other| other.compute_slices <= profile.compute_slices)
}

/// What it can be cut into.
pub(super) fn geometry(device: &Device<'_>, index: u32) -> Result<Geometry, DeviceError> {
    mode(device).map_err(|error| failed(index, error))?;
    let profiles = profiles(device).map_err(|error| failed(index, error))?;
    let mut sizes: Vec<Size> = Vec::new();
    for profile in &profiles {
        let Some(name) = size_of(profile).filter(|name| sizes.iter().all(|it| it.profile != *name)) else {
            tracing::debug!(index, profile = ?profile.name, "a size of instance that is not used");
            continue;
        };
        let places = calls::places(device, profile.id).map_err(|error| failed(index, error))?;
        sizes.extend(size(name, profile, &places));
    }
    Geometry::try_new(sizes).map_err(|error| match error {
        InvalidGeometry::Empty => {
            DeviceError::Unsupported { index, reason: "its driver tells of no size of instance".to_owned() }
        }
        error => DeviceError::Garbled { reason: format!("what device {index} can be cut into: {error}") },
    })
}

/// A size that can be made somewhere. One whose places differ in size is none that we could lay out.
fn size(name: MigProfile, profile: &Profile, places: &[Place]) -> Option<Size> {
    let memory_slices = places.first()?.size;
    if places.iter().any(|place| place.size != memory_slices) {
        return None;
    }
    let starts: Option<Vec<u8>> = places.iter().map(|place| u8::try_from(place.start).ok()).collect();
    Some(Size {
        profile: name,
        memory_slices: u8::try_from(memory_slices).ok()?,
        starts: starts?,
        instances_max: u8::try_from(profile.instances_max).unwrap_or(u8::MAX),
        memory_bytes: Some(bytes(profile.memory_mebibytes)),
        sm_count: profile.sm_count,
    })
}

/// How it is divided.
pub(super) fn layout(device: &Device<'_>, index: u32) -> Result<Layout, DeviceError> {
    let (is_on, mode) = mode(device).map_err(|error| failed(index, error))?;
    let mut instances = Vec::new();
    if is_on {
        let pids = processes::by_instance(device).map_err(|trouble| trouble.of(index))?;
        let compute = compute(device).map_err(|error| failed(index, error))?;
        for profile in profiles(device).map_err(|error| failed(index, error))? {
            for instance in GpuInstance::all(device, profile.id).map_err(|error| failed(index, error))? {
                let info = instance.info().map_err(|error| failed(index, error))?;
                instances.push(Instance {
                    slot: slot(&profile, info.place)?,
                    gpu_instance_id: info.id,
                    compute: compute.get(&info.id).cloned().unwrap_or_default(),
                    pids: pids.get(&info.id).cloned().unwrap_or_default().into_iter().collect(),
                });
            }
        }
        instances.sort_by_key(|instance| instance.slot.start);
    }
    Ok(Layout { mode, instances })
}

/// An instance in our words: one of a size that we have no words for is somebody's all the same.
fn slot(profile: &Profile, place: Place) -> Result<Slot, DeviceError> {
    let start = u8::try_from(place.start).ok();
    size_of(profile).zip(start).map(|(profile, start)| Slot { profile, start }).ok_or_else(|| {
        let name = pillion_core::text::quoted(&profile.name);
        DeviceError::Garbled { reason: format!("there is a MIG instance '{name}' at {}", place.start) }
    })
}

/// The compute instances of each GPU instance, by which CUDA knows them.
fn compute(device: &Device<'_>) -> Result<BTreeMap<u32, Vec<mig::ComputeInstance>>, NvmlError> {
    let mut found: BTreeMap<u32, Vec<mig::ComputeInstance>> = BTreeMap::new();
    for instance in mig_devices(device)? {
        let (gpu_instance_id, id) = calls::numbers(&instance)?;
        let uuid = DeviceUuid::new(instance.uuid()?);
        found.entry(gpu_instance_id).or_default().push(mig::ComputeInstance { id, uuid });
    }
    Ok(found)
}

/// Makes an instance and the compute instance in it. The way to it is root's only, but for one that is the whole device: in that an
/// empty device rests, and whoever Slurm starts there has to come in, even if our caller dies next.
pub(super) fn make(
    device: &Device<'_>,
    index: u32,
    slot: Slot,
    files: &MigFiles,
) -> Result<Instance, DeviceError> {
    let (is_on, _) = mode(device).map_err(|error| failed(index, error))?;
    if !is_on {
        return Err(refused(index, "MIG is off".to_owned()));
    }
    let profiles = profiles(device).map_err(|error| failed(index, error))?;
    let profile = profiles.iter().find(|profile| size_of(profile) == Some(slot.profile));
    let profile = profile.ok_or_else(|| refused(index, format!("it has no {}", slot.profile)))?;
    let places = calls::places(device, profile.id).map_err(|error| failed(index, error))?;
    let place = places.iter().find(|place| place.start == u32::from(slot.start));
    let place = *place.ok_or_else(|| {
        refused(index, format!("a {} may not start at memory slice {}", slot.profile, slot.start))
    })?;
    let made = GpuInstance::create(device, profile.id, place).map_err(|error| match error {
        NvmlError::InvalidArg => refused(index, format!("its driver takes no {slot}: {error}")),
        error => failed(index, error),
    })?;
    furnish(device, index, made, profile)
        .and_then(|instance| {
            let access = if is_whole(profile, &profiles) { Access::Everybody } else { Access::Root };
            // What a tenant before left of the files: they outlive an instance, and its number comes again.
            files.set_present(index, instance.gpu_instance_id, access)?;
            Ok(Instance { slot, ..instance })
        })
        .inspect_err(|_| take_back(index, made))
}

/// Gives a new GPU instance its compute instance, and finds its name.
fn furnish(
    device: &Device<'_>,
    index: u32,
    made: GpuInstance<'_, '_>,
    profile: &Profile,
) -> Result<Instance, DeviceError> {
    let info = made.info().map_err(|error| failed(index, error))?;
    let whole = compute_profiles(made).map_err(|error| failed(index, error))?;
    let whole = whole.into_iter().find(|(_, slices)| *slices == profile.compute_slices);
    let (whole, _) = whole.ok_or_else(|| {
        let reason = format!("{} has no compute instance of {} slices", profile.name, profile.compute_slices);
        DeviceError::Unsupported { index, reason }
    })?;
    let id =
        made.create_compute(whole).and_then(ComputeInstance::id).map_err(|error| failed(index, error))?;
    let compute = compute(device).map_err(|error| failed(index, error))?.remove(&info.id).unwrap_or_default();
    if !compute.iter().any(|instance| instance.id == id) {
        let reason = "its driver names no MIG device for the instance that it made".to_owned();
        return Err(DeviceError::NotReady { index, reason });
    }
    let slot = slot(profile, info.place)?;
    Ok(Instance { slot, gpu_instance_id: info.id, compute, pids: Vec::new() })
}

/// The driver's number of each size of compute instance, and its slices.
fn compute_profiles(instance: GpuInstance<'_, '_>) -> Result<Vec<(u32, u32)>, NvmlError> {
    let mut found = Vec::new();
    for number in 0..SIZES_MAX {
        match instance.compute_profile(number) {
            Ok(profile) => found.push((profile.id, profile.compute_slices)),
            Err(NvmlError::NotSupported) => {}
            Err(NvmlError::InvalidArg) => break,
            Err(error) => return Err(error),
        }
    }
    found.dedup();
    Ok(found)
}

/// Nobody knows of it yet. If the driver refuses this too, [`layout`] shows what is left.
fn take_back(index: u32, made: GpuInstance<'_, '_>) {
    if let Err(error) = destroy_whole(made) {
        tracing::warn!(index, %error, "a half-made MIG instance cannot be taken back");
    }
}

/// Compute instances first: a GPU instance with one in it counts as used.
fn destroy_whole(instance: GpuInstance<'_, '_>) -> Result<(), NvmlError> {
    for (profile_id, _) in compute_profiles(instance)? {
        for compute in instance.compute_instances(profile_id)? {
            compute.destroy()?;
        }
    }
    instance.destroy()
}

/// Takes an instance away.
pub(super) fn destroy(
    device: &Device<'_>,
    index: u32,
    gpu_instance_id: u32,
    files: &MigFiles,
) -> Result<(), DeviceError> {
    let (is_on, _) = mode(device).map_err(|error| failed(index, error))?;
    if !is_on {
        return Ok(());
    }
    let instance = match GpuInstance::by_id(device, gpu_instance_id) {
        Ok(instance) => instance,
        Err(NvmlError::NotFound) => return Ok(()),
        Err(error) => return Err(failed(index, error)),
    };
    // Nobody comes in any more, and whoever gets an instance of this number later finds nobody's files.
    let before = files.set_present(index, gpu_instance_id, Access::Root)?;
    let ended = match destroy_whole(instance) {
        // Somebody else was faster, wholly or in part.
        Err(NvmlError::InvalidArg | NvmlError::NotFound) => {
            match GpuInstance::by_id(device, gpu_instance_id) {
                Err(NvmlError::NotFound) => Ok(()),
                Ok(_) => Err(failed(index, NvmlError::InvalidArg)),
                Err(error) => Err(failed(index, error)),
            }
        }
        ended => ended.map_err(|error| failed(index, error)),
    };
    // One that stays is whose it was: a job that Slurm started alone may be in it, and begin programs still.
    ended.or_else(|error| files::restore(index, &before).and(Err(error)))
}

/// Turns MIG on or off.
pub(super) fn set_mode(device: &Device<'_>, index: u32, is_on: bool) -> Result<(), DeviceError> {
    let (is_on_now, mode) = mode(device).map_err(|error| failed(index, error))?;
    if is_on_now == is_on && mode != MigMode::Pending {
        return Ok(());
    }
    if needs_reset(device, index)? {
        let reason =
            "its MIG mode changes when the GPU is reset, which is an administrator's to do".to_owned();
        return Err(DeviceError::Unsupported { index, reason });
    }
    let busy = |reason: String| DeviceError::Busy { index, reason };
    // Asked first: what the driver cannot do now it would do later, unasked.
    if mode == MigMode::Pending {
        return Err(busy("somebody else changes its MIG mode".to_owned()));
    }
    let layout = layout(device, index)?;
    if let Some(instance) = layout.instances.first() {
        return Err(busy(format!("there is a MIG instance {}", instance.slot)));
    }
    if let Some(process) = processes::processes(device).map_err(|trouble| trouble.of(index))?.first() {
        return Err(busy(format!("process {} is on it", process.pid)));
    }
    let Err(error) = calls::set_mode(device, is_on).map_err(|error| failed(index, error))? else {
        return Ok(());
    };
    // It would change at the next occasion, whoever is on the device then.
    if let Err(error) = calls::set_mode(device, is_on_now) {
        tracing::warn!(index, %error, "a change of MIG mode that was refused still waits");
    }
    match error {
        NvmlError::ResetRequired => Err(DeviceError::Unsupported {
            index,
            reason: "its MIG mode changes when the GPU is reset".to_owned(),
        }),
        error => Err(failed(index, error)),
    }
}

/// Leaves the way to each of these instances to somebody. A number may be another instance's by now, a UUID never is.
pub(super) fn give(
    device: &Device<'_>,
    index: u32,
    ways: &[(Instance, Access)],
    files: &MigFiles,
) -> Result<(), DeviceError> {
    let there = compute(device).map_err(|error| failed(index, error))?;
    for (instance, access) in ways {
        let Instance { slot, gpu_instance_id, compute, .. } = instance;
        if there.get(gpu_instance_id) != Some(compute) {
            return Err(refused(index, format!("{slot} is not there any more")));
        }
        let compute: Vec<u32> = compute.iter().map(|instance| instance.id).collect();
        files.give(index, *gpu_instance_id, &compute, *access)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: u32, name: &str, compute_slices: u32) -> Profile {
        let name = name.to_owned();
        Profile { id, name, compute_slices, instances_max: 300, sm_count: 16, memory_mebibytes: 9_984 }
    }

    #[test]
    fn the_generations_from_hopper_on_change_without_a_reset() {
        for (architecture, is_resetless) in
            [(5, false), (7, false), (8, false), (9, true), (10, true), (12, true)]
        {
            assert_eq!(changes_without_reset(architecture), is_resetless, "{architecture}");
        }
        assert!(!changes_without_reset(UNKNOWN), "whatever it is");
    }

    #[test]
    fn a_size_is_named_with_and_without_the_drivers_prefix() {
        let named = |name| size_of(&profile(0, name, 1)).map(|it| it.to_string());
        assert_eq!(named("MIG 1g.10gb+me").as_deref(), Some("1g.10gb+me"));
        assert_eq!(named("3g.40gb").as_deref(), Some("3g.40gb"));
        assert_eq!(named("MIG 1c.3g.40gb"), None);
        assert_eq!(named(""), None);
    }

    #[test]
    fn a_size_has_one_size_of_place() {
        let name: MigProfile = "1g.10gb".parse().unwrap();
        let of = |places: &[(u32, u32)]| {
            let places: Vec<Place> = places.iter().map(|&(start, size)| Place { start, size }).collect();
            size(name, &profile(19, "MIG 1g.10gb", 1), &places)
        };
        let known = of(&[(4, 1), (0, 1)]).unwrap();
        assert_eq!((known.memory_slices, known.starts, known.instances_max), (1, vec![4, 0], 255));
        assert_eq!(known.memory_bytes, Some(9_984 << 20));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(0, 1), (2, 2)]), None);
        assert_eq!(of(&[(300, 1)]), None);
        assert_eq!(of(&[(0, 300)]), None);
    }

    #[test]
    fn the_whole_is_what_has_most_slices() {
        let all = [profile(19, "1g", 1), profile(0, "7g", 7), profile(5, "4g", 4)];
        assert!(is_whole(&all[1], &all) && !is_whole(&all[0], &all) && !is_whole(&all[2], &all));
    }

    #[test]
    fn each_refusal_is_told_as_what_it_is() {
        assert!(matches!(failed(3, NvmlError::InUse), DeviceError::Busy { index: 3, .. }));
        let full = failed(3, NvmlError::UnexpectedVariant(INSUFFICIENT_RESOURCES));
        assert!(matches!(full, DeviceError::Busy { index: 3, .. }), "{full}");
        assert!(matches!(failed(3, NvmlError::NoPermission), DeviceError::Refused { index: 3, .. }));
        assert!(matches!(failed(3, NvmlError::NotSupported), DeviceError::Unsupported { index: 3, .. }));
        assert!(matches!(failed(3, NvmlError::InvalidArg), DeviceError::NotReady { index: 3, .. }));
        assert!(failed(3, NvmlError::GpuLost).is_gone());
    }
}
