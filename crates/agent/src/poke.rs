//! `pillion-agent poke`, for Prolog and Epilog: tells the running agent to look now. A hook that fails drains its node, so
//! this takes two seconds at most and always succeeds.

use crate::handoff_server::Poke;
use anyhow::Context as _;
use pillion_core::SlurmJobId;
use pillion_core::handoff::HANDOFF_VERSION;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long each of writing and reading may take.
const DEADLINE: Duration = Duration::from_millis(900);

/// How long a Prolog waits for devices that are made whole: less than its hook has.
const PROLOG_DEADLINE: Duration = Duration::from_millis(1800);

/// Pokes the agent that listens at `socket`.
///
/// # Errors
/// If there is none, or it does not answer in time.
pub fn poke(socket: &Path) -> anyhow::Result<()> {
    say(socket, None, DEADLINE)
}

/// The same before a job begins: of devices that Slurm gave it and that are cut, it has an instance, or finds them whole.
/// `variable`: the environment of its Prolog.
///
/// # Errors
/// As [`poke`].
pub(crate) fn poke_before(socket: &Path, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let devices: Vec<u32> = variable("SLURM_JOB_GPUS")
        .map(|listed| listed.split(',').filter_map(|index| index.trim().parse().ok()).collect())
        .unwrap_or_default();
    let begins = job_of(variable).filter(|_| !devices.is_empty()).map(|job_id| (job_id, devices));
    let deadline = if begins.is_some() { PROLOG_DEADLINE } else { DEADLINE };
    say(socket, begins, deadline)
}

/// The job that a Prolog or Epilog is of, from what Slurm tells it. `variable`: its environment.
pub(crate) fn job_of(variable: impl Fn(&str) -> Option<String>) -> Option<SlurmJobId> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    match number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID")) {
        Some((id, task)) => Some(SlurmJobId::array_task(id, task)),
        None => number("SLURM_JOB_ID").map(SlurmJobId::plain),
    }
}

fn say(socket: &Path, begins: Option<(SlurmJobId, Vec<u32>)>, deadline: Duration) -> anyhow::Result<()> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("no agent listens at {}", socket.display()))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    stream.set_read_timeout(Some(deadline))?;
    let mut line = serde_json::to_vec(&Poke { poke: HANDOFF_VERSION, begins })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = [0; 16];
    let length = stream.read(&mut answer).context("the agent did not answer in time")?;
    anyhow::ensure!(length > 0, "the agent did not answer; it answers root only");
    Ok(())
}
