//! The first words with a daemon that was just started: whether it answers, and has what is wanted of it.

use super::control::Control;
use super::process::{CONTROL_PROGRAM, Process};
use super::record::Record;
use super::wait::STEP;
use super::{limits, partition};
use crate::{DeviceError, MpsSettings};
use std::process::Child;
use std::time::Duration;
use tokio::time::Instant;

/// How long a daemon may take until it answers. Without persistence mode the driver sets the device up first, which takes
/// seconds; the scheduler waits a minute for an agent.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// What the control program says where it finds no daemon.
const NO_DAEMON: &str = "Cannot find MPS control daemon process";

/// Waits until `child` answers, and tells it how it is to serve. Returns its process.
///
/// # Errors
/// As `MpsControl::prepare`.
pub(super) fn begin(
    control: Control<'_>,
    record: &Record,
    child: &mut Child,
) -> Result<Process, DeviceError> {
    let settings = &record.settings;
    wait_for_answer(control, settings, child)?;
    // Before the first server, which takes them.
    limits::set_defaults(control, settings, record.device_count())?;
    probe_partitions(control, settings)?;
    Process::find(child.id()).ok_or_else(|| ended(control, settings))
}

/// Its files tell nothing: its pid file may be there before its socket, and in the foreground perhaps never.
fn wait_for_answer(
    control: Control<'_>,
    settings: &MpsSettings,
    child: &mut Child,
) -> Result<(), DeviceError> {
    let begun_at = Instant::now();
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(ended(control, settings));
        }
        match control.ask(&settings.pipe_directory, "get_server_list") {
            Ok(_) => return Ok(()),
            // There is no daemon, as far as the control program can see, or it does not listen yet.
            Err(DeviceError::Refused { .. } | DeviceError::NoAnswer { .. })
                if begun_at.elapsed() < START_TIMEOUT =>
            {
                std::thread::sleep(STEP);
            }
            Err(DeviceError::Refused { reason, .. }) => {
                return Err(control.busy(format!("its MPS daemon does not come up: {reason}")));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A daemon that ends by itself at its start. With an option that not every driver knows, that is the likely reason.
fn ended(control: Control<'_>, settings: &MpsSettings) -> DeviceError {
    let words = Control::last_words(settings);
    let options = [(settings.multi_user, "-multiuser-server"), (settings.partitions, "-S")];
    let options: Vec<&str> = options.iter().filter(|(is_given, _)| *is_given).map(|(_, it)| *it).collect();
    // With an option that it does not know it is no daemon but asks for one, which is not there.
    if !options.is_empty() && words == NO_DAEMON {
        let reason = format!("the {CONTROL_PROGRAM} of this node does not know {}", options.join(" "));
        return DeviceError::Unsupported { index: control.index, reason };
    }
    if !options.is_empty() {
        let reason = format!("its MPS daemon does not start with {}: {words}", options.join(" "));
        return DeviceError::Unsupported { index: control.index, reason };
    }
    control.refused(format!("its MPS daemon ended at once: {words}"))
}

/// A daemon that takes the option may yet have no partitions to give: its table tells.
fn probe_partitions(control: Control<'_>, settings: &MpsSettings) -> Result<(), DeviceError> {
    if !settings.partitions {
        return Ok(());
    }
    let unsupported = |words: String| {
        let reason = format!("its MPS daemon offers no static SM partitions: {words}");
        DeviceError::Unsupported { index: control.index, reason }
    };
    match control.ask(&settings.pipe_directory, "lspart") {
        Ok(text) => partition::table(&text).map(drop).map_err(|error| unsupported(error.to_string())),
        Err(DeviceError::Refused { reason, .. }) => Err(unsupported(reason)),
        Err(error) => Err(error),
    }
}
