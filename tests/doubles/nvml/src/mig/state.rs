//! How devices are divided: the driver keeps it, for every process and beyond each. It stands in a file beside the simulated driver's
//! socket, which is read whole at each call, and written under a lock.

use super::tables::{self, COMPUTE_SLICES, Profile, Table};
use crate::control::Control;
use crate::library::Library;
use crate::model::Generation;
use crate::pointer::Outcome;
use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES as INSUFFICIENT_RESOURCES,
    nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

/// All devices, by their index in the simulation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// How often the machine was booted, and how many resets there were, when this was written.
    boots: u32,
    resets: usize,
    /// The next instance's, so that one is told from another of its number.
    next_serial: u64,
    devices: BTreeMap<u32, Device>,
}

/// One device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Whether MIG is on, and will be; `None`: as the control file says.
    current: Option<bool>,
    pending: Option<bool>,
    pub(crate) instances: Vec<Instance>,
    /// Instances of the control file that are not as it says any more.
    replaced: Vec<(String, c_uint)>,
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    profile: String,
    pub(crate) start: c_uint,
    pub(crate) serial: u64,
    pub(crate) compute: Vec<Compute>,
    /// When somebody was last seen in it, in milliseconds since 1970.
    pub(crate) occupied_at: Option<u64>,
}

/// A compute instance in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compute {
    pub(crate) id: c_uint,
    pub(crate) serial: u64,
    /// NVML's number of its size, which is also the driver's.
    pub(crate) number: c_uint,
    /// Its first compute slice.
    pub(crate) start: c_uint,
}

impl Compute {
    pub(crate) fn slices(self) -> Range<c_uint> {
        self.start..self.start + COMPUTE_SLICES[self.number as usize]
    }
}

impl Instance {
    pub(crate) fn profile(&self, table: Table) -> &'static Profile {
        table.by_name(&self.profile).expect("it was made by its table")
    }

    /// The driver's number of it.
    pub(crate) fn id(&self, table: Table) -> c_uint {
        self.profile(table).instance_at(self.start).expect("it was made at a place of its table")
    }

    fn slices(&self, table: Table) -> Range<c_uint> {
        self.start..self.start + self.profile(table).size
    }

    /// One with a compute instance that has all of it.
    fn foreign(profile: &Profile, start: c_uint) -> Self {
        let number = (0..).zip(COMPUTE_SLICES).find(|(_, slices)| *slices == profile.compute_slices);
        let number = number.map_or(0, |(number, _)| number);
        let compute = vec![Compute { id: 0, serial: 0, number, start: 0 }];
        Self { profile: profile.name.to_owned(), start, serial: 0, compute, occupied_at: None }
    }
}

/// Where the state stands.
fn path(control: &Control) -> PathBuf {
    let mut path = control.socket().into_os_string();
    path.push(".mig.json");
    PathBuf::from(path)
}

fn read(control: &Control) -> Outcome<State> {
    match std::fs::read(path(control)) {
        Ok(text) => serde_json::from_slice(&text).map_err(|_| UNKNOWN),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::default()),
        Err(_) => Err(UNKNOWN),
    }
}

impl Library {
    /// What the device at a place can be cut into.
    pub(crate) fn table(&self, place: usize) -> Table {
        tables::of(self.model_name(place))
    }

    /// How the device at a place is divided.
    pub(crate) fn mig(&self, place: usize) -> Outcome<Device> {
        let mut state = read(&self.control)?;
        self.settle(&mut state);
        self.laid_out(&state, place)
    }

    /// Changes how it is divided; what fails changes nothing.
    pub(crate) fn change_mig<T>(
        &self,
        place: usize,
        change: impl FnOnce(&mut Device, &mut dyn FnMut() -> u64) -> Outcome<T>,
    ) -> Outcome<T> {
        let path = path(&self.control);
        let lock = File::create(path.with_extension("lock")).map_err(|_| UNKNOWN)?;
        lock.lock().map_err(|_| UNKNOWN)?;
        let mut state = read(&self.control)?;
        self.settle(&mut state);
        let mut device = self.laid_out(&state, place)?;
        let mut serial = state.next_serial;
        let mut next_serial = || {
            serial += 1;
            serial
        };
        let changed = change(&mut device, &mut next_serial);
        // A refusal may leave its trace: what was to become of the mode.
        state.next_serial = serial;
        device.forget_foreign(self.foreign(place)?);
        state.devices.insert(self.index(place), device);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(&state).map_err(|_| UNKNOWN)?;
        std::fs::write(&new, text).and_then(|()| std::fs::rename(new, path)).map_err(|_| UNKNOWN)?;
        changed
    }

    /// Somebody was seen in these instances, by their numbers.
    pub(crate) fn see_occupants(&self, place: usize, inside: &[(c_uint, c_uint, u32)]) -> Outcome {
        if inside.is_empty() || self.control.destroy_busy_ms == 0 {
            return Ok(());
        }
        let (table, now) = (self.table(place), super::now_milliseconds());
        self.change_mig(place, |device, _| {
            for instance in &mut device.instances {
                let id = instance.id(table);
                if inside.iter().any(|(gi, _, _)| *gi == id) {
                    instance.occupied_at = Some(now);
                }
            }
            Ok(())
        })
    }

    /// What the control file says that has happened since.
    fn settle(&self, state: &mut State) {
        let control = &self.control;
        for place in 0..self.gpus.len() {
            let (index, generation) = (self.index(place), self.gpus[place].model.generation);
            let is_reset = control.resets.iter().skip(state.resets).any(|reset| *reset == index);
            let is_booted = control.boots > state.boots;
            if !is_reset && !is_booted {
                continue;
            }
            let is_on = control.mig.contains(&index);
            let device = state.devices.entry(index).or_default();
            let pending = device.pending.or(device.current).unwrap_or(is_on);
            // From Hopper on the mode is lost with the driver.
            let mode = pending && !(is_booted && generation >= Generation::Hopper);
            (device.current, device.pending) = (Some(mode), Some(mode));
            device.instances.clear();
        }
        (state.boots, state.resets) = (control.boots.max(state.boots), control.resets.len());
    }

    /// The instances of the control file.
    fn foreign(&self, place: usize) -> Outcome<Vec<(&'static Profile, c_uint)>> {
        let table = self.table(place);
        let here = self.control.mig_instances.iter().filter(|it| it.index == self.index(place));
        here.map(|it| Ok((table.by_name(&it.profile).ok_or(UNKNOWN)?, it.start))).collect()
    }

    /// A device as it is, those instances among it that the control file has: what no driver would have made together is a mistake
    /// of the test.
    fn laid_out(&self, state: &State, place: usize) -> Outcome<Device> {
        let mut device = state.devices.get(&self.index(place)).cloned().unwrap_or_default();
        let is_on = self.control.mig.contains(&self.index(place));
        device.current.get_or_insert(is_on);
        device.pending.get_or_insert(is_on);
        let table = self.table(place);
        let ours = std::mem::take(&mut device.instances);
        for (profile, start) in self.foreign(place)? {
            let is_replaced = device.replaced.iter().any(|it| it.0 == profile.name && it.1 == start);
            if !is_replaced {
                profile.instance_at(start).ok_or(UNKNOWN)?;
                device.check_room(table, profile, start).map_err(|_| UNKNOWN)?;
                device.instances.push(Instance::foreign(profile, start));
            }
        }
        for instance in ours {
            device.check_room(table, instance.profile(table), instance.start).map_err(|_| UNKNOWN)?;
            device.instances.push(instance);
        }
        Ok(device)
    }
}

impl Device {
    pub(crate) fn is_on(&self) -> bool {
        self.current == Some(true)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending == Some(true)
    }

    pub(crate) fn set_pending(&mut self, is_on: bool) {
        self.pending = Some(is_on);
    }

    pub(crate) fn set_current(&mut self, is_on: bool) {
        self.current = Some(is_on);
    }

    /// The instance of this number.
    pub(crate) fn by_id(&self, table: Table, id: c_uint) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.id(table) == id)
    }

    /// Whether one more has room beside those that are there.
    pub(crate) fn check_room(&self, table: Table, profile: &Profile, start: c_uint) -> Outcome {
        let slices = start..start + profile.size;
        let overlaps = |other: &Instance| {
            let other = other.slices(table);
            other.start < slices.end && slices.start < other.end
        };
        let profiles = || self.instances.iter().map(|instance| instance.profile(table));
        let compute: c_uint = profiles().map(|profile| profile.compute_slices).sum();
        let alike = profiles().filter(|other| other.id == profile.id).count();
        let is_full = self.instances.iter().any(overlaps)
            || compute + profile.compute_slices > table.compute_slices
            || alike >= profile.instances_max as usize
            || profile.has_media && profiles().any(|other| other.has_media);
        if is_full { Err(INSUFFICIENT_RESOURCES) } else { Ok(()) }
    }

    pub(crate) fn add(&mut self, profile: &Profile, start: c_uint, serial: u64) {
        let profile = profile.name.to_owned();
        self.instances.push(Instance { profile, start, serial, compute: Vec::new(), occupied_at: None });
    }

    /// Keeps those of the control file out of what is written, as long as they are as it says.
    fn forget_foreign(&mut self, listed: Vec<(&'static Profile, c_uint)>) {
        self.replaced
            .retain(|it| listed.iter().any(|(profile, start)| profile.name == it.0 && *start == it.1));
        for (profile, start) in listed {
            let as_listed = Instance::foreign(profile, start);
            let place = self
                .instances
                .iter()
                .position(|it| Instance { occupied_at: None, ..it.clone() } == as_listed);
            let is_replaced = self.replaced.iter().any(|it| it.0 == profile.name && it.1 == start);
            match place {
                Some(place) if !is_replaced => {
                    self.instances.remove(place);
                }
                None if !is_replaced => self.replaced.push((profile.name.to_owned(), start)),
                _ => {}
            }
        }
    }
}
