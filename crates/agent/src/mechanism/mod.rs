//! The sharing mechanism of each device: set up before the first tenant, taken down after the last.
//!
//! ```text
//! free ── first mps share ──► mps: daemon up ── last share gone ──► draining ── no client left ──► free
//!  │                                                                   │ first mps share again: mps
//!  ├── first mps share of a set ──► as mps, on all its devices by one daemon, and taken down together
//!  ├── first ccs share ──► ccs: one mode ── last share gone ──► draining ── nobody in a part ──► free, mode 1
//!  ├── each mig share ──► an instance of its own ── its share gone ──► taken away ── the last one gone ──► free, and whole
//!  ├── mig-mps shares of one user ──► an instance, its daemon up ── the last of them gone ──► daemon ended ──► taken away
//!  └── first share without a mechanism ──► plain ── last share gone ──► free
//! ```
//!
//! The state is not kept here: it follows from the shares that the node holds, so that an agent that starts again finds
//! it; only which instances are ours is written down ([`mig`]). A mechanism that cannot be set up is an answer to the scheduler, never the failure of a job.

pub mod ccs;
mod daemon;
mod error;
pub mod mig;
pub mod mps;
mod sets;
mod undo;
mod variable;

pub use daemon::{MpsPolicy, Prepared};
pub use error::MechanismError;
pub use variable::Variable;

use daemon::Newcomer;
use mig::step::Rest;
use mig::{Mig, MigPolicy};
use mps::Served;
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::share::{Share, Sharing};
use pillion_core::{GresType, GresTypes};
use pillion_core::{JobStart, UnixTime};
use pillion_device::{Backend, DeviceError, MpsPlace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tokio::time::Instant;
use tracing::{debug, warn};
use undo::Undo;

/// Whether `share` can join `others` on `device`. Pure.
///
/// # Errors
/// [`MechanismError`], which says what stands in the way.
pub fn admit<'a>(
    device: &DeviceDescription,
    others: impl Iterator<Item = &'a Share>,
    share: &Share,
    multi_user: bool,
) -> Result<(), MechanismError> {
    let gres_type = || device.gres_type.clone();
    let (can, asked) = (device.mechanism, share.mechanism());
    // What a device can be cut into is said beside how it is shared else.
    if asked.is_set_up() && asked != can && !asked.has_instances() {
        return Err(MechanismError::NotThere { gres_type: gres_type(), can, asked });
    }
    match share.sharing {
        Sharing::Mps { cap, memory_limit_bytes } | Sharing::MigMps { cap, memory_limit_bytes, .. } => {
            mps::check(cap, memory_limit_bytes)?;
        }
        Sharing::Mig { .. } | Sharing::Ccs { .. } | Sharing::TimeSliced => {}
    }
    if asked.has_instances() && asked.has_daemon() && !can.has_daemon() {
        return Err(MechanismError::NotThere { gres_type: gres_type(), can, asked });
    }
    let others: Vec<&Share> = others.filter(|other| other.start.job_id != share.start.job_id).collect();
    for other in &others {
        // Who is in another instance is met by nobody.
        let are_walled = other.mechanism().has_instances()
            && asked.has_instances()
            && other.sharing.mig_slot() != share.sharing.mig_slot();
        if are_walled {
            continue;
        }
        if other.mechanism() != asked {
            let (tenant, held) = (other.start, other.mechanism());
            return Err(MechanismError::HeldOtherwise { gres_type: gres_type(), tenant, held, asked });
        }
        if asked.takes_several() && other.gres_types != share.gres_types {
            let (tenant, held, asked) = (other.start, other.gres_types.clone(), share.gres_types.clone());
            return Err(MechanismError::OtherSet { gres_type: gres_type(), tenant, held, asked });
        }
        match share.sharing {
            Sharing::Mps { .. } if !multi_user && other.uid != share.uid => {
                return Err(MechanismError::OtherUser(gres_type()));
            }
            Sharing::Ccs { mode: asked } => {
                if let Some(held) = other.sharing.ccs_mode().filter(|held| *held != asked) {
                    return Err(MechanismError::OtherMode { gres_type: gres_type(), held, asked });
                }
            }
            // Whatever the site says of users, and whatever the scheduler asks: a wall is what an instance is for.
            Sharing::MigMps { .. } if other.uid != share.uid => {
                return Err(MechanismError::OtherUserInside(gres_type()));
            }
            Sharing::Mps { .. } | Sharing::Mig { .. } | Sharing::MigMps { .. } | Sharing::TimeSliced => {}
        }
    }
    match share.sharing.mig_slot() {
        Some(slot) => mig::check(device, &others, share, slot),
        None => Ok(()),
    }
}

/// Where the MPS daemon of a share's devices and its clients meet.
pub type PipeFinder = Box<dyn Fn(&Share) -> PathBuf + Send + Sync>;

/// Carries the mechanisms of a node's devices.
#[derive(Debug)]
pub struct Mechanisms {
    runtime_directory: PathBuf,
    policy: MpsPolicy,
    mig: Mig,
    /// Devices whose MPS was found to have no multi-user mode.
    single_user: BTreeSet<GresType>,
    /// Devices, or sets of them, that may have partitions of tenants who have left.
    untidy: BTreeMap<GresTypes, Undo>,
    /// Devices, or sets of them, that are to be as nobody's again: their MPS daemon stops as soon as it has no client, their card is whole
    /// as soon as nobody runs in a part of it. One that fails stays here: nobody else would ever undo its sharing.
    draining: BTreeMap<GresTypes, Undo>,
    /// The devices that the node has had.
    indexes: BTreeMap<GresType, u32>,
    /// Whether the daemons of sets that an earlier agent left were looked for.
    has_found_sets: bool,
}

impl Mechanisms {
    /// Takes over from an earlier agent: daemons that serve nobody any more drain.
    pub fn new(
        runtime_directory: &Path,
        policy: MpsPolicy,
        devices: &[DeviceDescription],
        shares: &[Share],
    ) -> Self {
        let (runtime_directory, single_user) = (runtime_directory.to_owned(), BTreeSet::new());
        let (untidy, draining, indexes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mig = Mig::with(MigPolicy::default(), None, mig::PATIENCE);
        let has_found_sets = false;
        let mut mechanisms =
            Self { runtime_directory, policy, mig, single_user, untidy, draining, indexes, has_found_sets };
        mechanisms.take_up(devices, shares);
        mechanisms
    }

    /// The same with devices that are cut, or that an earlier agent has cut.
    #[must_use]
    pub fn cutting(self, mig: Mig) -> Self {
        Self { mig, ..self }
    }

    /// The node has these too: as with all of them when the agent begins.
    pub fn take_up(&mut self, devices: &[DeviceDescription], shares: &[Share]) {
        // One of them may be of a set that was not all there.
        self.has_found_sets = false;
        for device in devices {
            self.indexes.insert(device.gres_type.clone(), device.index);
            let is_held = shares.iter().any(|share| {
                share.mechanism() == device.mechanism && share.gres_types.contains(&device.gres_type)
            });
            if device.mechanism.is_set_up() && !is_held {
                self.draining.insert(device.gres_type.clone().into(), Undo::default());
            }
            if device.mechanism.has_daemon() {
                self.untidy.insert(device.gres_type.clone().into(), Undo::default());
            }
        }
    }

    /// Says of any share where its MPS daemon and its clients meet.
    pub fn mps_pipe_finder(&self) -> PipeFinder {
        let runtime_directory = self.runtime_directory.clone();
        Box::new(move |share| mps::pipe_directory_of(&runtime_directory, share))
    }

    /// Sets up what `share` needs on `devices`, one of [`Share::device_groups`], beside `others` who have one of these. With the same
    /// share again it does nothing.
    ///
    /// # Errors
    /// [`MechanismError`]; then nothing has changed for those who run.
    pub fn prepare<'a>(
        &mut self,
        backend: &mut dyn Backend,
        devices: &[DeviceDescription],
        others: impl Iterator<Item = &'a Share>,
        share: &Share,
    ) -> Result<Prepared, MechanismError> {
        let [device, beside @ ..] = devices else { return Ok(Prepared::default()) };
        let others: Vec<&Share> = others.collect();
        let served = Served::devices(device, beside);
        let multi_user = self.policy.multi_user && self.has_multi_user(backend, devices, (&served, share))?;
        for device in devices {
            let on_it = others.iter().copied().filter(|other| other.gres_types.contains(&device.gres_type));
            self.admit(device, on_it, share, multi_user)?;
        }
        if !share.mechanism().has_instances() {
            // Under MPS, MIG is off.
            let rest = if share.mechanism().has_daemon() { Rest::Off } else { Rest::Whole };
            for device in devices {
                let until = self.mig.until();
                self.mig.make_whole(backend, device, rest, until)?;
            }
        }
        match share.sharing {
            // Whoever is not to share gets no part of a card that could not be made whole yet.
            Sharing::TimeSliced if device.mechanism.has_modes() && self.is_draining(device) => {
                backend.ccs_on(device.index)?.release(device.index)?;
                self.draining.remove(&only(device));
                Ok(Prepared::default())
            }
            Sharing::TimeSliced => Ok(Prepared::default()),
            Sharing::Mig { .. } => self.prepare_instance(backend, device, &others, share),
            Sharing::MigMps { .. } => self.prepare_in_instance(backend, device, &others, share),
            Sharing::Ccs { mode } => {
                backend.ccs_on(device.index)?.prepare(device.index, mode)?;
                self.draining.remove(&only(device));
                Ok(Prepared::default())
            }
            Sharing::Mps { .. } => {
                self.make_way(backend, &share.gres_types)?;
                let newcomer = Newcomer { served: &served, others: &others, share };
                let prepared = self.prepare_mps(backend, devices, newcomer, multi_user);
                if prepared.is_err() && others.is_empty() {
                    // What was begun for nobody.
                    self.draining.insert(share.gres_types.clone(), Undo::default());
                }
                let prepared = prepared?;
                self.draining.remove(&share.gres_types);
                Ok(prepared)
            }
        }
    }

    /// What shared the device before is taken down first: MIG wants nobody on it.
    fn prepare_instance(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        others: &[&Share],
        share: &Share,
    ) -> Result<Prepared, MechanismError> {
        if device.mechanism.has_daemon() && self.is_draining(device) {
            backend.mps_on(device.index)?.release(&MpsPlace::device(device.index))?;
            self.draining.remove(&only(device));
        }
        let instance = self.mig.prepare(backend, device, others, share)?;
        Ok(Prepared { instance: Some(instance), ..Prepared::default() })
    }

    /// The instance, and then its daemon: one without clients of its own goes with the instance, when nobody wants that.
    fn prepare_in_instance(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        others: &[&Share],
        share: &Share,
    ) -> Result<Prepared, MechanismError> {
        let prepared = self.prepare_instance(backend, device, others, share)?;
        let (Some(slot), Some(name)) = (share.sharing.mig_slot(), prepared.instance.clone()) else {
            return Ok(prepared);
        };
        let served = Served::instance(device, slot, name);
        let beside: Vec<&Share> =
            others.iter().copied().filter(|other| other.sharing.mig_slot() == Some(slot)).collect();
        // One user's, and never parted for good: partitions of compute units within an instance are not NVIDIA's to give.
        let policy = MpsPolicy { multi_user: false, static_partitions: false };
        let newcomer = Newcomer { served: &served, others: &beside, share };
        daemon::prepare(backend.mps_on(device.index)?, &self.runtime_directory, policy, newcomer)?;
        Ok(prepared)
    }

    fn is_draining(&self, device: &DeviceDescription) -> bool {
        self.draining.contains_key(&only(device))
    }

    /// Whether several users may share the devices, as far as is known: a daemon that runs serves as it was started.
    fn has_multi_user(
        &self,
        backend: &mut dyn Backend,
        devices: &[DeviceDescription],
        (served, share): (&Served, &Share),
    ) -> Result<bool, MechanismError> {
        let is_of_devices = share.mechanism().has_daemon() && !share.mechanism().has_instances();
        if !is_of_devices || devices.iter().any(|device| self.single_user.contains(&device.gres_type)) {
            return Ok(false);
        }
        let Some(mps) = backend.mps() else { return Ok(true) };
        let status = mps.status(&served.place)?.filter(|status| status.state.takes_clients());
        Ok(status.is_none_or(|status| status.settings.multi_user))
    }

    fn admit<'a>(
        &self,
        device: &DeviceDescription,
        others: impl Iterator<Item = &'a Share>,
        share: &Share,
        multi_user: bool,
    ) -> Result<(), MechanismError> {
        admit(device, others, share, multi_user).map_err(|error| match error {
            MechanismError::OtherUser(gres_type) if self.policy.multi_user => {
                MechanismError::OneUserOnly(gres_type)
            }
            error => error,
        })
    }

    /// With the multi-user mode where the site wants it, or without where the driver does not have it: those of one user
    /// share all the same.
    fn prepare_mps(
        &mut self,
        backend: &mut dyn Backend,
        devices: &[DeviceDescription],
        newcomer: Newcomer<'_>,
        multi_user: bool,
    ) -> Result<Prepared, MechanismError> {
        let Newcomer { served, others, share } = newcomer;
        let control = backend.mps_on(served.place.index)?;
        let policy = MpsPolicy { multi_user, ..self.policy };
        match daemon::prepare(control, &self.runtime_directory, policy, newcomer) {
            Err(MechanismError::Device(error @ DeviceError::Unsupported { .. })) if multi_user => {
                self.single_user.extend(devices.iter().map(|device| device.gres_type.clone()));
                for device in devices {
                    self.admit(device, others.iter().copied(), share, false)?;
                }
                let policy = MpsPolicy { multi_user: false, ..self.policy };
                let prepared = daemon::prepare(control, &self.runtime_directory, policy, newcomer)?;
                Ok(Prepared { without_multi_user: Some(pillion_core::report(&error)), ..prepared })
            }
            prepared => prepared,
        }
    }

    /// A tenant has left these devices, one of [`Share::device_groups`], all of which are shared by `mechanism`; `remaining` are those
    /// who have not.
    pub fn left<'a>(
        &mut self,
        devices: &GresTypes,
        mechanism: Mechanism,
        mut remaining: impl Iterator<Item = &'a Share>,
    ) {
        self.untidy.insert(devices.clone(), Undo::default());
        let holds = |share: &Share| share.mechanism() == mechanism && share.device_groups().contains(devices);
        if mechanism.is_set_up() && !remaining.any(holds) {
            self.draining.insert(devices.clone(), Undo::default());
        }
    }

    /// Stops daemons that have drained, and makes cards whole: a mode that stays would give the next job a part of it. To
    /// be called now and then: clients take their time to go.
    ///
    /// `shares`: all that the node holds; partitions of other starts are taken back.
    pub fn settle(&mut self, backend: &mut dyn Backend, devices: &[DeviceDescription], shares: &[Share]) {
        self.find_sets(backend, shares);
        self.tidy(backend, devices, shares);
        try_due(&mut self.draining, devices, "the sharing of a device", |_, device, beside| {
            match device.mechanism {
                Mechanism::Mps => {
                    backend.mps_on(device.index)?.release(&Served::devices(device, beside).place)
                }
                Mechanism::Ccs => backend.ccs_on(device.index)?.release(device.index),
                // What is cut is settled by itself.
                Mechanism::Mig | Mechanism::MigMps | Mechanism::TimeSliced => Ok(()),
            }
        });
    }

    /// Takes away the instances of those who have left, and makes whole what is empty. As often as [`Mechanisms::settle`].
    /// `is_over`: of a start whose tasks have gone.
    pub fn settle_instances(
        &mut self,
        backend: &mut dyn Backend,
        devices: &[DeviceDescription],
        (shares, is_over): (&[Share], &dyn Fn(JobStart) -> bool),
        now: UnixTime,
    ) {
        self.mig.settle(backend, devices, (shares, is_over), now);
    }

    /// To be called once before anything else is asked of it, and of devices that come later.
    pub fn begin(&mut self, backend: &mut dyn Backend, devices: &[DeviceDescription]) {
        self.mig.begin(backend, devices);
    }

    /// The instances of the node.
    pub const fn mig(&self) -> &Mig {
        &self.mig
    }

    /// Makes a device whole for a job that Slurm has given all of it: tried once. Whether those who have an instance there are over
    /// is the caller's to know.
    ///
    /// # Errors
    /// [`MechanismError::Uncut`]: what is in the way.
    pub fn make_whole(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
    ) -> Result<(), MechanismError> {
        self.mig.make_whole(backend, device, Rest::Whole, Instant::now())
    }

    fn tidy(&mut self, backend: &mut dyn Backend, devices: &[DeviceDescription], shares: &[Share]) {
        let mig = &self.mig;
        try_due(
            &mut self.untidy,
            devices,
            "what is left of a tenant at an MPS daemon",
            |group, device, beside| {
                let Some(control) = backend.mps() else { return Ok(()) };
                let on_it = shares.iter().filter(|share| share.device_groups().contains(group));
                let (inside, whole): (Vec<&Share>, Vec<&Share>) =
                    on_it.partition(|share| share.mechanism().has_instances());
                daemon::tidy(control, &Served::devices(device, beside), &whole)?;
                for (name, slot, tenants) in mig.shared_instances(device, &inside) {
                    daemon::tidy(control, &Served::instance(device, slot, name), &tenants)?;
                }
                Ok(())
            },
        );
    }
}

/// Tries what is due; what is undone, or is on no device any more, is off the list. `undo_on`: is told the entry of
/// the list, its first device, and those of its set besides.
fn try_due(
    list: &mut BTreeMap<GresTypes, Undo>,
    devices: &[DeviceDescription],
    what: &'static str,
    mut undo_on: impl FnMut(&GresTypes, &DeviceDescription, &[DeviceDescription]) -> Result<(), DeviceError>,
) {
    let find = |own: &GresType| devices.iter().find(|device| device.gres_type == *own).cloned();
    list.retain(|gres_types, undo| {
        let found: Option<Vec<DeviceDescription>> = gres_types.iter().map(find).collect();
        let Some([device, beside @ ..]) = found.as_deref() else { return false };
        if !undo.is_due() {
            return true;
        }
        let Err(error) = undo_on(gres_types, device, beside) else { return false };
        let text = pillion_core::report(&error);
        if undo.failed(&error) {
            warn!(%gres_types, what, error = %text, "what was set up cannot be undone; it is tried again");
        } else {
            debug!(%gres_types, what, error = %text, "what was set up is not undone yet");
        }
        true
    });
}

fn only(device: &DeviceDescription) -> GresTypes {
    device.gres_type.clone().into()
}

#[cfg(test)]
mod tests;
