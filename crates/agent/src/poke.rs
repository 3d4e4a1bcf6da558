//! `pillion-agent poke`, for Prolog and Epilog: tells the running agent to look now. A hook that fails drains its node, so
//! this takes two seconds at most and always succeeds.

use crate::handoff_server::Poke;
use anyhow::Context as _;
use pillion_core::handoff::HANDOFF_VERSION;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long each of writing and reading may take.
const DEADLINE: Duration = Duration::from_millis(900);

/// Pokes the agent that listens at `socket`.
///
/// # Errors
/// If there is none, or it does not answer in time.
pub fn poke(socket: &Path) -> anyhow::Result<()> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("no agent listens at {}", socket.display()))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut line = serde_json::to_vec(&Poke { poke: HANDOFF_VERSION })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = [0; 16];
    let length = stream.read(&mut answer).context("the agent did not answer in time")?;
    anyhow::ensure!(length > 0, "the agent did not answer; it answers root only");
    Ok(())
}
