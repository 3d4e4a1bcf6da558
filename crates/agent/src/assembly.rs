//! What both ways to run an agent put together alike: the ways to the schedulers, its own folder, and who asks regularly.

use crate::config::Config;
use crate::devices::Command;
use pillion_auth::{Claimant, Door, Prover};
use pillion_core::Clock;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How long the device thread may be behind before those who ask wait.
pub(crate) const COMMANDS_LENGTH: usize = 256;
/// While so many commands wait, nobody asks for one more sample.
const SAMPLES_WAITING_MAX: usize = 8;
/// How many reports may wait to be written.
pub(crate) const REPORTS_LENGTH: usize = 1024;

/// The ways to the schedulers, in the order of the configuration.
pub(crate) fn doors(config: &Config, clock: &Arc<dyn Clock>) -> Vec<Arc<Door>> {
    let prover = Arc::new(Prover::new(&config.auth, Arc::clone(clock)));
    let claimant = Claimant::Agent(config.node());
    config
        .scheduler_addresses()
        .into_iter()
        .map(|(host, port)| Arc::new(Door::new(host, port, claimant.clone(), Arc::clone(&prover))))
        .collect()
}

/// Nobody but us has business in there: it names every job.
pub(crate) fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))
}

/// Asks the device thread for the same once a period.
pub(crate) async fn ask_regularly(
    commands: mpsc::Sender<Command>,
    (period, command): (Duration, fn() -> Command),
    stop: CancellationToken,
) {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        // One that waits means that the driver is slow: more of them would keep tasks from registering.
        if commands.max_capacity() - commands.capacity() >= SAMPLES_WAITING_MAX {
            continue;
        }
        if let Err(mpsc::error::TrySendError::Closed(_)) = commands.try_send(command()) {
            return;
        }
    }
}
