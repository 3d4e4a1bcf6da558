//! NVIDIA's MIG: cut for those who come, held for those who are there, drained of those who have left, and whole again when
//! nobody is.
//!
//! | file | what it does |
//! |---|---|
//! | `record` | what of a device is ours, on disk |
//! | `wanted` | what shares want of a device, and whether it can be had (pure) |
//! | `step` | what is next (pure) |
//! | `carry` | does it, one act after the other |
//! | `announce` | what is told of a device that is cut by us |
//! | `orphans` | the same for a node whose agent is dead: its Epilog |
//!
//! **Who may act between two of our steps.** An administrator who cuts the device: his instances are in no record of ours and are not
//! touched; the device is closed while they are there. Somebody who enters an instance between its making and its giving: he is seen in
//! it before its tenant is told of it, and then nobody is. A program that keeps a file open: the driver refuses, what stands stays of
//! use, and the device is *held* until it lets go. A crash: the record says what was begun. A job that Slurm starts alone meanwhile:
//! `handoff_server` makes the device whole before it begins.

pub mod announce;
mod carry;
pub mod orphans;
pub mod record;
pub mod step;
mod wanted;

use super::error::MechanismError;
use super::variable::Variable;
use carry::{Cut, Goal, Tried, sentence};
use pillion_core::device::DeviceDescription;
use pillion_core::health::{DeviceFault, FaultKind};
use pillion_core::mig::{Geometry, Slot, resolve};
use pillion_core::share::Share;
use pillion_core::{DeviceUuid, GresType, JobStart, UnixTime, UserId};
use pillion_device::Backend;
use pillion_device::mechanism::mig::{Holder, Layout, MigMode};
use record::{Record, Tenant};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use step::{Rest, Stop, Wanted};
use tokio::time::Instant;
use tracing::{info, warn};
pub(super) use wanted::check;
use wanted::{merged, refusal, wanted_by};

/// For how long a refusal may pass by itself, as it does after a process has ended; then the device is held.
pub const HELD_AFTER_SECONDS: f64 = 5.0;
/// How much sooner a look may come than it is due: one that is a hair too soon does not wait for the next.
const LOOK_JITTER_SECONDS: f64 = 0.5;
/// How long one who comes waits for what is in his way to go.
pub const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// How long an agent that begins waits for an Epilog that is at work.
const LOCK_PATIENCE: Duration = Duration::from_secs(6);

/// What the site wants of MIG.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MigPolicy {
    /// Whether devices are cut for tenants.
    pub is_enabled: bool,
    /// Whether MIG may be turned on for that, and off again.
    pub may_toggle: bool,
}

/// What is wrong with a device.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trouble {
    kind: FaultKind,
    since: UnixTime,
}

/// The devices that are cut by us.
#[derive(Debug)]
pub struct Mig {
    policy: MigPolicy,
    /// Absent where nothing is cut, and nothing was.
    record: Option<Record>,
    geometries: BTreeMap<u32, Geometry>,
    troubles: BTreeMap<GresType, Trouble>,
    /// Of those, what does not pass by itself, and is told.
    faults: BTreeMap<GresType, DeviceFault>,
    /// What stands empty on devices that are held.
    standing: BTreeMap<GresType, Vec<Slot>>,
    /// Devices that are in more than one piece, or in one that is somebody's.
    cut: BTreeSet<GresType>,
    /// Devices whose ways could not be closed, as it was told.
    unguarded: BTreeSet<GresType>,
    patience: Duration,
}

impl Mig {
    /// Takes over from an earlier agent. `boot_id`: the machine's, for no instance outlives it.
    pub fn open(policy: MigPolicy, state_directory: &Path, boot_id: &str) -> Self {
        let path = record::path(state_directory);
        if !policy.is_enabled && !record::is_there(&path) {
            return Self::with(policy, None, PATIENCE);
        }
        let record = Record::open(path, boot_id, LOCK_PATIENCE);
        if let Err(error) = &record {
            warn!(%error, "the record of instances cannot be had: nothing is cut, and nothing is made whole");
        }
        Self::with(policy, record.ok(), PATIENCE)
    }

    /// With this record.
    pub fn with(policy: MigPolicy, record: Option<Record>, patience: Duration) -> Self {
        Self {
            policy,
            record,
            geometries: BTreeMap::new(),
            troubles: BTreeMap::new(),
            faults: BTreeMap::new(),
            standing: BTreeMap::new(),
            cut: BTreeSet::new(),
            unguarded: BTreeSet::new(),
            patience,
        }
    }

    /// To be called once for a device, before anything else of it: what an earlier agent was about to make and has not made is forgotten at once, so
    /// that whatever somebody else makes at that place from now on is known for his.
    pub fn begin(&mut self, backend: &mut dyn Backend, devices: &[DeviceDescription]) {
        let Some(record) = self.record.as_mut() else { return };
        for device in devices {
            // What a driver says otherwise than our table is what is gone by, and worth a line.
            for difference in resolve(device.geometry.clone(), &device.model).1 {
                info!(device = device.index, %difference, "MIG on this device is not as in our table");
            }
            let mut known = record.device(&device.uuid);
            if known.is_nothing() {
                continue;
            }
            let layout = backend.mig_on(device.index).and_then(|control| control.layout(device.index));
            let Ok(layout) = layout else { continue };
            known.ours.retain(|ours| ours.made.is_some() || ours.find(&layout).is_some());
            if let Err(error) = record.put(&device.uuid, known) {
                warn!(device = device.index, %error, "the record of instances cannot be written");
            }
        }
    }

    /// Whether anything is cut here, or was: else there is nothing to look after.
    pub const fn has_record(&self) -> bool {
        self.record.is_some()
    }

    /// Devices on which a job that gets none of their instances would not have all of them.
    pub fn cut(&self) -> &BTreeSet<GresType> {
        &self.cut
    }

    /// What is wrong with how a device is divided, as it was seen when it was last settled.
    pub fn fault(&self, gres_type: &GresType) -> Option<&DeviceFault> {
        self.faults.get(gres_type)
    }

    /// Instances of ours that stand empty on a device which is held, and can be given away as they are.
    pub fn instances_empty(&self, gres_type: &GresType) -> &[Slot] {
        self.standing.get(gres_type).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the device is cut by us, or something of ours is left on it: then we say how it is divided, and not its driver.
    pub fn is_managed(&self, device: &DeviceDescription) -> bool {
        self.record.as_ref().is_some_and(|record| {
            (self.policy.is_enabled && device.geometry.is_some()) || !record.device(&device.uuid).is_nothing()
        })
    }

    fn goal<'a>(&self, wanted: &'a [Wanted], rest: Rest) -> Goal<'a> {
        Goal { wanted, rest, may_turn_on: self.policy.is_enabled && self.policy.may_toggle }
    }

    /// The device as it can be changed.
    fn on<'a>(
        &'a mut self,
        backend: &'a mut dyn Backend,
        device: &'a DeviceDescription,
    ) -> Result<Cut<'a>, MechanismError> {
        if let (Some(geometry), None) = (&device.geometry, self.geometries.get(&device.index)) {
            self.geometries.insert(device.index, geometry.clone());
        }
        let geometry = match self.geometries.entry(device.index) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(backend.mig_on(device.index)?.geometry(device.index)?)
            }
        };
        let record = self.record.as_mut().ok_or_else(|| MechanismError::NotThere {
            gres_type: device.gres_type.clone(),
            can: device.mechanism,
            asked: pillion_core::device::Mechanism::Mig,
        })?;
        Ok(Cut { backend, record, index: device.index, uuid: &device.uuid, geometry })
    }

    /// Cuts an instance for `share` beside those of `others`, or finds that which it is to share with some of them. Returns its name.
    ///
    /// # Errors
    /// [`MechanismError`]; then nothing has changed for those who run, and what was begun is taken back at the next look.
    pub fn prepare(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        others: &[&Share],
        share: &Share,
    ) -> Result<DeviceUuid, MechanismError> {
        let own = wanted_by(share, true);
        let is_other = |other: &&&Share| other.start.job_id != share.start.job_id;
        let Some(Wanted { slot, tenant, .. }) = own else {
            return Err(refusal(device, "it is no share of an instance"));
        };
        let there: Vec<Wanted> =
            others.iter().filter(is_other).filter_map(|other| wanted_by(other, false)).collect();
        // One of his user's who is there already has seen to it that nobody else is.
        let host = there.iter().find(|other| other.slot == slot && other.is_shared);
        let was_there = self.holds(device, slot, tenant)
            || host.is_some_and(|host| self.holds_for(device, slot, host.tenant.uid));
        let wanted = merged(there.into_iter().chain(own));
        let before = self.name_at(device, slot);
        let tried = self.insist(backend, device, (&wanted, Rest::Whole), self.until(), Tried::is_served)?;
        if !tried.is_served() {
            let why = sentence(&tried, &self.holders(backend, device));
            return Err(refusal(device, &why));
        }
        if let Some(reason) = tried.unguarded {
            return Err(refusal(
                device,
                &format!("the way to {slot} cannot be left to its user alone: {reason}"),
            ));
        }
        let mut cut = self.on(backend, device)?;
        // After it was closed to all others: whoever came in before is in it.
        let layout = cut.control()?.layout(device.index)?;
        let of_device = cut.record.device(&device.uuid);
        let Some(ours) = of_device.at(slot) else { return Err(refusal(device, "it was taken away at once")) };
        let (Some(instance), Some(made)) = (ours.find(&layout), &ours.made) else {
            return Err(refusal(device, "it was taken away at once"));
        };
        if let (Some(pid), false) = (instance.pids.first(), was_there) {
            return Err(refusal(device, &format!("process {pid} is in {slot}, and is none of its tenant's")));
        }
        let (name, id) = (made.uuid.clone(), instance.gpu_instance_id);
        // One that stood already may be open to somebody of before, whom the driver does not show as long as he does not compute.
        if !was_there && before.as_ref() == Some(&name) {
            let holders = cut.holders();
            if let Some(Holder { pid, .. }) = stranger(&holders, id, Some(tenant.uid)) {
                let why = format!("process {pid} of another user has a file of {slot} open");
                return Err(refusal(device, &why));
            }
        }
        self.cut.insert(device.gres_type.clone());
        if !was_there {
            info!(start = %tenant.start, %slot, uuid = %name, device = device.index, "an instance was cut");
        }
        Ok(name)
    }

    /// The name of our instance at this place.
    fn name_at(&self, device: &DeviceDescription, slot: Slot) -> Option<DeviceUuid> {
        let of_device = self.record.as_ref()?.device(&device.uuid);
        of_device.at(slot)?.made.as_ref().map(|made| made.uuid.clone())
    }

    /// The name of the instance that a share is of: its start's own, or one that its user's share.
    pub fn instance_of(&self, device: &DeviceDescription, share: &Share) -> Option<DeviceUuid> {
        let of_device = self.record.as_ref()?.device(&device.uuid);
        let own = wanted_by(share, false)?;
        let is_its =
            |tenant: Tenant| tenant.start == share.start || (own.is_shared && tenant.uid == own.tenant.uid);
        let ours = of_device.at(own.slot).filter(|ours| ours.tenant.is_some_and(is_its))?;
        ours.made.as_ref().map(|made| made.uuid.clone())
    }

    /// The instances of a device that several may share, each with its name and with those of `shares` who do.
    pub(super) fn shared_instances<'s>(
        &self,
        device: &DeviceDescription,
        shares: &[&'s Share],
    ) -> Vec<(DeviceUuid, Slot, Vec<&'s Share>)> {
        let mut found: BTreeMap<Slot, (DeviceUuid, Vec<&Share>)> = BTreeMap::new();
        for share in shares.iter().copied().filter(|share| share.mechanism().has_daemon()) {
            if let (Some(slot), Some(name)) = (share.sharing.mig_slot(), self.instance_of(device, share)) {
                found.entry(slot).or_insert_with(|| (name, Vec::new())).1.push(share);
            }
        }
        found.into_iter().map(|(slot, (name, tenants))| (name, slot, tenants)).collect()
    }

    /// Whether this start has this instance already.
    fn holds(&self, device: &DeviceDescription, slot: Slot, tenant: Tenant) -> bool {
        let of_device = self.record.as_ref().map(|record| record.device(&device.uuid));
        of_device.is_some_and(|of| {
            of.at(slot).is_some_and(|ours| ours.made.is_some() && ours.tenant == Some(tenant))
        })
    }

    /// Whether an instance at this place is this user's.
    fn holds_for(&self, device: &DeviceDescription, slot: Slot, uid: UserId) -> bool {
        let of_device = self.record.as_ref().map(|record| record.device(&device.uuid));
        of_device.is_some_and(|of| {
            let is_his = |ours: &record::Ours| ours.tenant.is_some_and(|tenant| tenant.uid == uid);
            of.at(slot).is_some_and(|ours| ours.made.is_some() && is_his(ours))
        })
    }

    /// Makes a device whole for somebody who is not to have an instance; a device on which nothing of ours is, is left alone.
    /// `rest`: with [`Rest::Off`] MIG is off then. Tried once, and until `until` where what is in the way may pass by itself.
    ///
    /// # Errors
    /// [`MechanismError::Uncut`]: what is in the way.
    pub fn make_whole(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        rest: Rest,
        until: Instant,
    ) -> Result<(), MechanismError> {
        let is_ours = self.record.as_ref().is_some_and(|record| !record.device(&device.uuid).is_nothing());
        if !is_ours {
            return Ok(());
        }
        let is_so =
            |tried: &Tried| tried.is_served() && (rest == Rest::Whole || tried.layout.mode == MigMode::Off);
        let tried = self.insist(backend, device, (&[], rest), until, is_so)?;
        if is_so(&tried) {
            self.cut.remove(&device.gres_type);
            return Ok(());
        }
        let why = sentence(&tried, &self.holders(backend, device));
        if rest == Rest::Off {
            // As it was: open to whoever Slurm starts there.
            self.insist(backend, device, (&[], Rest::Whole), until, Tried::is_served)?;
        }
        Err(MechanismError::Uncut { gres_type: device.gres_type.clone(), why })
    }

    /// How long one who comes now waits.
    pub fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Tries until it is so, for as long as what is refused may pass.
    fn insist(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        (wanted, rest): (&[Wanted], Rest),
        until: Instant,
        is_so: impl Fn(&Tried) -> bool,
    ) -> Result<Tried, MechanismError> {
        let goal = self.goal(wanted, rest);
        loop {
            let tried = self.on(backend, device)?.carry_out(goal)?;
            let may_pass = matches!(tried.stop, Stop::Refused | Stop::Occupied(_));
            if is_so(&tried) || !may_pass || Instant::now() >= until {
                return Ok(tried);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes away what nobody has any more, makes whole what is empty, and closes every way again that somebody opened. To be
    /// called at every look.
    ///
    /// `is_over`: of a start whose tasks have gone: nothing is made for it any more.
    pub fn settle(
        &mut self,
        backend: &mut dyn Backend,
        devices: &[DeviceDescription],
        (shares, is_over): (&[Share], &dyn Fn(JobStart) -> bool),
        now: UnixTime,
    ) {
        for device in devices {
            if !self.is_managed(device) {
                self.clear(&device.gres_type);
                self.cut.remove(&device.gres_type);
                continue;
            }
            let on_it = shares.iter().filter(|share| share.gres_types.contains(&device.gres_type));
            let is_other_way = |share: &Share| share.sharing.mig_slot().is_none();
            // Who shares it in another way has it whole already: MIG stays as it is while he is there.
            if on_it.clone().any(is_other_way) {
                continue;
            }
            let wanted = merged(on_it.filter_map(|share| wanted_by(share, !is_over(share.start))));
            let goal = self.goal(&wanted, Rest::Whole);
            let tried = self.on(backend, device).and_then(|mut cut| cut.carry_out(goal));
            match tried {
                Ok(tried) => self.settled(backend, device, &tried, (wanted.is_empty(), now)),
                // That it does not answer is told of it anyway.
                Err(MechanismError::Device(_)) => {}
                Err(error) => {
                    warn!(device = device.index, error = %pillion_core::report(&error), "cannot be settled");
                }
            }
        }
    }

    fn settled(
        &mut self,
        backend: &mut dyn Backend,
        device: &DeviceDescription,
        tried: &Tried,
        (is_empty, now): (bool, UnixTime),
    ) {
        let gres_type = &device.gres_type;
        let is_whole = is_empty && tried.is_served();
        if is_whole {
            self.cut.remove(gres_type)
        } else {
            self.cut.insert(gres_type.clone())
        };
        match &tried.unguarded {
            None => {
                self.unguarded.remove(gres_type);
            }
            Some(reason) => {
                if self.unguarded.insert(gres_type.clone()) {
                    warn!(%gres_type, reason, "the way to an instance cannot be left to its user alone");
                }
            }
        }
        let kind = match tried.stop {
            Stop::Foreign(_) | Stop::Pending => Some(FaultKind::Divided),
            _ if tried.is_refused() || (is_empty && !is_whole) => Some(FaultKind::Held),
            _ => None,
        };
        let Some(kind) = kind else {
            self.clear(gres_type);
            return;
        };
        let before = self.troubles.get(gres_type).filter(|trouble| trouble.kind == kind);
        let trouble = before.copied().unwrap_or(Trouble { kind, since: now });
        self.troubles.insert(gres_type.clone(), trouble);
        let is_held = kind == FaultKind::Held;
        if is_held && now.seconds_since(trouble.since) < HELD_AFTER_SECONDS - LOOK_JITTER_SECONDS {
            self.faults.remove(gres_type);
            self.standing.remove(gres_type);
            return;
        }
        // All processes of the node are looked through for them: only where it is told.
        let holders = if is_held { self.holders(backend, device) } else { Vec::new() };
        let detail = sentence(tried, &holders);
        let standing =
            if is_held { self.standing_empty(device, &tried.layout, &holders) } else { Vec::new() };
        self.standing.insert(gres_type.clone(), standing);
        self.faults.insert(gres_type.clone(), DeviceFault { kind, detail, since: trouble.since });
    }

    fn clear(&mut self, gres_type: &GresType) {
        self.troubles.remove(gres_type);
        self.faults.remove(gres_type);
        self.standing.remove(gres_type);
    }

    /// Those that were to go and could not, of which all is there and into which nobody has a way open any more: whoever comes may
    /// have them as they stand.
    fn standing_empty(&self, device: &DeviceDescription, layout: &Layout, holders: &[Holder]) -> Vec<Slot> {
        let of_device = self.record.as_ref().map(|record| record.device(&device.uuid)).unwrap_or_default();
        let leaving = of_device.ours.iter().filter(|ours| ours.made.is_some() && ours.is_leaving);
        let found = leaving.filter_map(|ours| ours.find(layout));
        let whole = found.filter(|instance| instance.compute.len() == 1 && instance.pids.is_empty());
        let free = whole.filter(|instance| stranger(holders, instance.gpu_instance_id, None).is_none());
        free.map(|instance| instance.slot).collect()
    }

    /// Who has the device or an instance of it open, as far as that can be seen.
    fn holders(&mut self, backend: &mut dyn Backend, device: &DeviceDescription) -> Vec<Holder> {
        self.on(backend, device).map(|mut cut| cut.holders()).unwrap_or_default()
    }
}

/// A program that has a file of this instance open and is neither root's, who comes in anyway, nor this user's.
fn stranger(holders: &[Holder], gpu_instance_id: u32, tenant: Option<UserId>) -> Option<&Holder> {
    holders.iter().find(|holder| {
        holder.gpu_instance_ids.contains(&gpu_instance_id)
            && holder.uid != UserId(0)
            && Some(holder.uid) != tenant
    })
}

/// The variables of a tenant: its instance, by the only name that no other has.
pub(crate) fn environment(instance: &DeviceUuid) -> Vec<Variable> {
    vec![("CUDA_VISIBLE_DEVICES".to_owned(), instance.to_string())]
}

#[cfg(test)]
mod double;
#[cfg(test)]
mod tests;
