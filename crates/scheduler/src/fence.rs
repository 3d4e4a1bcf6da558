//! Whether `pillion.lua` stands between our updates and the jobs: without its comparison under slurmctld's lock an update may
//! hit a job that its user has changed a moment before, so without it nothing is released or renewed
//! (docs/decisions/0012-a-fence-under-slurms-lock.md).

use crate::context::Context;
use crate::tick_error::TickError;
use pillion_core::mark::Mark;
use pillion_slurm::{Job, SlurmError, updates};
use std::time::Duration;
use tracing::error;

/// Why it refuses to release a job that was released already, in its own words.
pub(crate) const HAS_LEASE: &str = "the job has a lease";

/// How long a fence is believed in that was met: the site's script may be changed at any time.
const FRESH: Duration = Duration::from_mins(1);

/// Whether the fence stands. Where that is not known, it is tried with an update of this waiting job that asks for nothing,
/// which the fence always refuses and which changes nothing where there is none.
///
/// # Errors
/// [`TickError`] where Slurm did not answer.
pub(crate) async fn holds(context: &Context, job: &Job, mark: &Mark) -> Result<bool, TickError> {
    let now = context.now();
    let met_at = context.board().fence_met_at;
    if met_at.is_some_and(|at| now.seconds_since(at).abs() < FRESH.as_secs_f64()) {
        return Ok(true);
    }
    match context.slurm.update(&[job.id], &updates::probe(mark)).await {
        Err(SlurmError::Fenced { .. }) => {
            context.board_mut().fence_met_at = Some(now);
            Ok(true)
        }
        Ok(()) => {
            error!(
                "pillion.lua of this release is not in use: nothing is released until it is, and Slurm starts waiting jobs alone"
            );
            context.board_mut().fence_missing_since = Some(now);
            Ok(false)
        }
        // This one has ended meanwhile; another one will tell.
        Err(error) if !error.is_transient() => Ok(false),
        Err(error) => Err(TickError::slurm("find the fence")(error)),
    }
}
