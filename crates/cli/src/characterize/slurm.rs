//! Slurm's own programs, asked as the user who calls.

use crate::error::CliError;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// slurmctld may be busy for a while.
const DEADLINE: Duration = Duration::from_mins(1);

/// What a program printed, or what it said where it failed.
///
/// # Errors
/// [`CliError::SlurmBusy`] where it did not end, [`CliError::Refused`] where it could not be begun.
pub(crate) async fn ask(program: &str, arguments: &[&str]) -> Result<Result<String, String>, CliError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output())
        .await
        .map_err(|_| CliError::SlurmBusy(format!("{program} did not end within {} s", DEADLINE.as_secs())))?
        .map_err(|error| {
            CliError::Refused(format!("{program} could not be run ({error}); is Slurm installed here?"))
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}
