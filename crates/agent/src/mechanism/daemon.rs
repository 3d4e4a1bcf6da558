//! The MPS daemon of a device, of an instance or of a set of devices, for its tenants: started with the first, held to the limits of
//! those who are there, and, where the site wants that, with compute units of each tenant's own.

use super::error::MechanismError;
use super::mps::{self, Served};
use pillion_core::share::Share;
use pillion_core::{DeviceUuid, Fraction, JobStart};
use pillion_device::mps::make_private;
use pillion_device::{DeviceError, MpsControl, MpsSettings, MpsState, MpsStatus};
use std::path::Path;
use tracing::{debug, warn};

/// What came of setting a share up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepared {
    /// The tenant's own SM partition.
    pub partition: Option<String>,
    /// The tenant's instance.
    pub instance: Option<DeviceUuid>,
    /// Why its cap is a cap only, where the site wants partitions. A tenant without a cap has no reason.
    pub without_partition: Option<String>,
    /// Why the device serves one user at a time, where the site wants more: said when it was found out.
    pub without_multi_user: Option<String>,
    /// The SM partitions of the others on the device: a daemon that was started anew gave them new ones.
    pub others: Vec<(JobStart, String)>,
}

/// What the site wants of MPS.
#[derive(Debug, Clone, Copy, Default)]
pub struct MpsPolicy {
    /// Several users on one device.
    pub multi_user: bool,
    /// Each tenant's cap as compute units of its own.
    pub static_partitions: bool,
}

/// One who comes to a daemon, beside those who hold it.
#[derive(Clone, Copy)]
pub(super) struct Newcomer<'a> {
    pub(super) served: &'a Served,
    pub(super) others: &'a [&'a Share],
    pub(super) share: &'a Share,
}

impl<'a> Newcomer<'a> {
    /// The others who stay: the job's own start before a requeue is over.
    fn stays(self) -> impl Iterator<Item = &'a Share> {
        self.others.iter().copied().filter(move |other| other.start.job_id != self.share.start.job_id)
    }

    fn has_cap(self) -> bool {
        self.share.sharing.cap().is_some()
    }
}

/// Starts the daemon, or lets the newcomer in to the one that runs.
///
/// # Errors
/// [`MechanismError`]; [`DeviceError::Unsupported`] where the driver's MPS cannot serve several users.
pub(super) fn prepare(
    control: &mut dyn MpsControl,
    runtime_directory: &Path,
    policy: MpsPolicy,
    newcomer: Newcomer<'_>,
) -> Result<Prepared, MechanismError> {
    let place = &newcomer.served.place;
    let plain = settings(runtime_directory, newcomer, policy.multi_user)?;
    let without = |reason: String| Prepared {
        without_partition: newcomer.has_cap().then_some(reason),
        ..Prepared::default()
    };
    if !policy.static_partitions {
        control.prepare(place, &plain)?;
        return Ok(Prepared::default());
    }
    if !wants_partitions(control, newcomer)? {
        control.prepare(place, &plain)?;
        return Ok(without("its MPS daemon was started without static SM partitions".to_owned()));
    }
    match control.prepare(place, &MpsSettings { partitions: true, ..plain.clone() }) {
        Ok(()) => partition(control, newcomer),
        Err(error @ DeviceError::Unsupported { .. }) => {
            control.prepare(place, &plain)?;
            Ok(without(pillion_core::report(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

fn settings(
    runtime_directory: &Path,
    newcomer: Newcomer<'_>,
    multi_user: bool,
) -> Result<MpsSettings, MechanismError> {
    let tenants = mps::tenants(newcomer.stays().chain([newcomer.share]));
    let settings = mps::settings(runtime_directory, newcomer.served, multi_user, &tenants);
    let MpsSettings { pipe_directory, log_directory, .. } = &settings;
    make_private(pipe_directory)
        .map_err(|source| MechanismError::Directory { path: pipe_directory.clone(), source })?;
    std::fs::create_dir_all(log_directory)
        .map_err(|source| MechanismError::Directory { path: log_directory.clone(), source })?;
    Ok(settings)
}

/// Whether the device's daemon is, or is to be, one that gives out partitions. One that somebody holds a share of stays as
/// it was started, also when it is started anew; else the tenant's cap decides: without one there is nothing to reserve.
fn wants_partitions(control: &mut dyn MpsControl, newcomer: Newcomer<'_>) -> Result<bool, MechanismError> {
    let Newcomer { served, others, .. } = newcomer;
    let has_cap = newcomer.has_cap();
    let status = control.status(&served.place)?;
    match status.filter(|status| status.state.takes_clients() || !others.is_empty()) {
        // Nobody's any more: as a plain one it leaves room for whoever joins. With clients it goes on as it is.
        Some(status) if status.settings.partitions && others.is_empty() && !has_cap => {
            Ok(control.release(&served.place).is_err())
        }
        Some(status) => Ok(status.settings.partitions),
        None => Ok(has_cap || others.iter().any(|other| other.sharing.cap().is_some())),
    }
}

/// Gives the tenant a partition, and those who are there the ones that a daemon that was started anew forgot. Tenants with a
/// cap come first: one without takes all that is free.
fn partition(control: &mut dyn MpsControl, newcomer: Newcomer<'_>) -> Result<Prepared, MechanismError> {
    let Newcomer { served, share, .. } = newcomer;
    // Those who have left are not in its way.
    let mut stays = mps::tenants(newcomer.stays());
    stays.sort_by_key(|other| other.sharing.cap().is_none());
    let tenants =
        stays.iter().map(|other| other.start.to_string()).chain([share.start.to_string()]).collect();
    if let Err(error) = control.keep_partitions(&served.place, &tenants) {
        debug!(error = %pillion_core::report(&error), "a partition is not taken back yet");
    }
    let mut add = |share: &Share| {
        let cap = share.sharing.cap().unwrap_or(Fraction::ONE);
        control.add_partition(&served.place, &share.start.to_string(), cap)
    };
    let mut prepared = Prepared::default();
    for other in stays {
        match add(other) {
            Ok(name) => prepared.others.push((other.start, name)),
            Err(error) => {
                warn!(start = %other.start, error = %pillion_core::report(&error), "a tenant has no SM partition");
            }
        }
    }
    prepared.partition = Some(add(share)?);
    Ok(prepared)
}

/// Takes back the partitions of those who have left, and holds the daemon's next clients to the limits of those who have not.
///
/// # Errors
/// Those of the daemon.
pub(super) fn tidy(
    control: &mut dyn MpsControl,
    served: &Served,
    shares: &[&Share],
) -> Result<(), DeviceError> {
    let names = shares.iter().map(|share| share.start.to_string()).collect();
    control.keep_partitions(&served.place, &names)?;
    let tenants = mps::tenants(shares.iter().copied());
    // Where it is to stop, or cannot take any, nobody is let in anyway.
    let status = control.status(&served.place)?.filter(|status| status.state == MpsState::Up);
    let Some(MpsStatus { settings, .. }) = status.filter(|_| !tenants.is_empty()) else { return Ok(()) };
    control.prepare(&served.place, &mps::for_tenants(&settings, served, &tenants))
}
