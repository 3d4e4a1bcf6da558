//! What a node's Epilog does where no agent runs: ends the daemons that nobody uses any more. Needs neither the agent nor a
//! driver's library, only the daemons' own directories.

use super::compute_mode::ModeControl;
use super::control::Control;
use super::daemon::Daemon;
use super::directories::clear;
use super::record::{pipe_directories, read_record};
use crate::DeviceError;
use std::path::Path;

/// What became of one daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// It is wanted by somebody, or is not ours.
    Kept,
    /// It was ended.
    Ended,
    /// It had gone by itself; what it left is cleared away.
    Cleared,
}

/// Ends each daemon beneath `directory` that has no client, unless `is_wanted` says of the name of its device's directory
/// that it is. `modes`: gives their devices back to everybody.
///
/// Each daemon is given a few seconds; whoever has less stops waiting for the whole.
pub fn cleanup(
    control_binary: &Path,
    directory: &Path,
    mut modes: Option<&mut ModeControl>,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(String, Result<Cleaned, DeviceError>)> {
    let mut done = Vec::new();
    for (name, pipe_directory) in pipe_directories(directory) {
        let cleaned = if is_wanted(&name) {
            Ok(Cleaned::Kept)
        } else {
            end(control_binary, &pipe_directory, modes.as_deref_mut())
        };
        done.push((name, cleaned));
    }
    done
}

/// Ends the daemon at a pipe directory, unless a client holds it, and clears its files away.
fn end(
    control_binary: &Path,
    pipe_directory: &Path,
    modes: Option<&mut ModeControl>,
) -> Result<Cleaned, DeviceError> {
    // A daemon that is not ours is nobody's business.
    let Some(record) = read_record(pipe_directory) else { return Ok(Cleaned::Kept) };
    let control = Control { binary: control_binary, index: record.index };
    let mut daemon = Daemon::adopt(pipe_directory);
    if let Some(daemon) = &mut daemon {
        daemon.check(control)?;
    }
    let is_held = daemon.as_ref().is_some_and(Daemon::is_held);
    // Before the record goes: what fails now is tried again by the next Epilog.
    // One in an instance never closed its device.
    if let Some(modes) = modes.filter(|_| !is_held && record.instance.is_none()) {
        modes.open(record.served().iter(), record.is_closed)?;
    }
    if let Some(mut daemon) = daemon {
        daemon.end(control)?;
        daemon.clear_away(control)?;
        Ok(Cleaned::Ended)
    } else {
        clear(pipe_directory).map_err(|error| control.busy(error))?;
        Ok(Cleaned::Cleared)
    }
}
