//! What a daemon holds its clients to, whatever stands in their environment. Its defaults are those of its next server; a server
//! that is up is told besides, and holds its next clients to it. Clients that are there keep what they came under.
//!
//! Source: NVIDIA Multi-Process Service (r550), appendix Tools and Interface Reference: `set_default_device_pinned_mem_limit`,
//! `set_device_pinned_mem_limit`, `set_default_active_thread_percentage`, `set_active_thread_percentage`; and what the daemon of
//! release 550 prints without a driver (`tests/hardware/vendor`).

use super::control::Control;
use super::parse::{self, ServerStatus, garbled};
use super::wait::{STEP, TRIES};
use crate::{DeviceError, MpsSettings};
use pillion_core::Fraction;
use std::path::Path;

/// Tells a daemon that runs, and the servers that it has. `device_count`: how many it serves, numbered from 0 as its clients see them.
///
/// # Errors
/// As [`set_defaults`]; [`DeviceError::Busy`] while a server comes up, which takes no word until it is.
pub(super) fn set_all(
    control: Control<'_>,
    settings: &MpsSettings,
    device_count: usize,
) -> Result<(), DeviceError> {
    set_defaults(control, settings, device_count)?;
    let listed = control.ask(&settings.pipe_directory, "get_server_list")?;
    for server in parse::servers(&listed).map_err(|it| garbled(&it))? {
        if is_up(control, settings, server)? {
            set_of_server(control, settings, device_count, server)?;
        }
    }
    Ok(())
}

/// Tells a daemon what its next server is to hold clients to.
///
/// # Errors
/// [`DeviceError::Refused`] where it does not take it: it prints what holds then, whatever it was told.
pub(super) fn set_defaults(
    control: Control<'_>,
    settings: &MpsSettings,
    device_count: usize,
) -> Result<(), DeviceError> {
    let pipe_directory = &settings.pipe_directory;
    if !settings.partitions {
        let percent = percent(settings);
        let said = control.ask(pipe_directory, &format!("set_default_active_thread_percentage {percent}"))?;
        if !parse::is_percentage(percent, &said) {
            return Err(not_taken(control, &format!("cap of {percent} percent"), &said));
        }
    }
    let Some(bytes) = settings.memory_limit_bytes_default else { return Ok(()) };
    (0..device_count).try_for_each(|device| set_default_memory(control, pipe_directory, device, bytes >> 20))
}

fn set_default_memory(
    control: Control<'_>,
    pipe_directory: &Path,
    device: usize,
    mebibytes: u64,
) -> Result<(), DeviceError> {
    // It prints words if it refuses, and nothing if it does not understand.
    let command = format!("set_default_device_pinned_mem_limit {device} {mebibytes}M");
    let said = control.ask(pipe_directory, &command)?;
    let holds = control.ask(pipe_directory, &format!("get_default_device_pinned_mem_limit {device}"))?;
    if !parse::is_limit(mebibytes, &holds) {
        let said = if said.trim().is_empty() { &holds } else { &said };
        return Err(not_taken(control, &format!("limit of {mebibytes} MiB"), said));
    }
    Ok(())
}

fn not_taken(control: Control<'_>, what: &str, said: &str) -> DeviceError {
    control.refused(format!("MPS took no default {what}: it says '{}'", said.trim()))
}

/// Waits until a server has come up. `false`: it is gone, and the next one takes the defaults.
fn is_up(control: Control<'_>, settings: &MpsSettings, server: u32) -> Result<bool, DeviceError> {
    for _ in 0..TRIES {
        let said = control.ask(&settings.pipe_directory, &format!("get_server_status {server}"))?;
        match parse::server_status(server, &said).map_err(|it| garbled(&it))? {
            None => return Ok(false),
            // It passes over what it is told meanwhile, without a word.
            Some(ServerStatus::Initializing) => std::thread::sleep(STEP),
            Some(ServerStatus::Active | ServerStatus::Fault) => return Ok(true),
        }
    }
    Err(control.busy(format!("its MPS server {server} comes up, and takes no limits meanwhile")))
}

fn set_of_server(
    control: Control<'_>,
    settings: &MpsSettings,
    device_count: usize,
    server: u32,
) -> Result<(), DeviceError> {
    let mut commands = Vec::new();
    if !settings.partitions {
        commands.push(format!("set_active_thread_percentage {server} {}", percent(settings)));
    }
    if let Some(bytes) = settings.memory_limit_bytes_default {
        let limit = |device| format!("set_device_pinned_mem_limit {server} {device} {}M", bytes >> 20);
        commands.extend((0..device_count).map(limit));
    }
    for command in commands {
        let said = control.ask(&settings.pipe_directory, &command)?;
        if parse::is_refusal(&said) {
            return Err(control.refused(format!("MPS took no limit of its server: '{}'", said.trim())));
        }
    }
    Ok(())
}

/// Hundredths, to two places.
fn percent(settings: &MpsSettings) -> f64 {
    (settings.cap_default.map_or(1.0, Fraction::value) * 10_000.0).round() / 100.0
}
