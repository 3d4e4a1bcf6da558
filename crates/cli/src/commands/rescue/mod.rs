//! `pillion rescue`: gives back released jobs that did not start, when nobody else is left to do it.
//!
//! And gives a job that is outside the pool, and waits there for shards, its own request back.
//!
//! It needs Slurm only: the lease and all that an undo needs stand in the job's own mark. A systemd timer runs it once a
//! minute; beside a living scheduler it finds nothing, for that one undoes a lease long before.

mod carry_out;
mod plan;
#[cfg(test)]
mod tests;

pub use carry_out::{Outcome, carry_out};
pub use plan::{Undo, Why, plan};

use crate::args::RescueArgs;
use crate::config::Config;
use crate::error::CliError;
use crate::exit::{self, ExitStatus};
use crate::format;
use crate::output::{Answer, Block, Output, Table, json};
use pillion_core::{Clock, report};
use pillion_slurm::CommandSlurm;
use serde::Serialize;
use std::path::Path;

/// Runs it against the machine's Slurm.
///
/// # Errors
/// [`CliError::Slurm`] when the queue cannot be read; the timer tries again.
pub async fn run(
    args: &RescueArgs,
    config: Option<&Path>,
    clock: &dyn Clock,
    output: &Output,
) -> Result<ExitStatus, CliError> {
    // A configuration that cannot be read must not keep the last resort from working.
    let config = Config::load(config).unwrap_or_else(|error| {
        eprintln!("pillion: {}; going on with Slurm's own defaults", format::clean(&report(&error)));
        Config::default()
    });
    let slurm = CommandSlurm::new(config.slurm.command_settings());
    let older_than_seconds = f64::from(args.older_than);
    let (outcomes, dropped_line_count) =
        carry_out(&slurm, clock, &config.pool.partitions, older_than_seconds, args.dry_run).await?;
    let left = outcomes.iter().any(Outcome::is_left);
    output.print(&show(&outcomes, dropped_line_count, args.dry_run))?;
    Ok(if left { exit::TRY_LATER } else { exit::OK })
}

#[derive(Serialize)]
struct Rescued<'a> {
    dry_run: bool,
    dropped_line_count: u64,
    jobs: &'a [Outcome],
}

fn show(outcomes: &[Outcome], dropped_line_count: u64, dry_run: bool) -> Answer {
    let mut table = Table::new(&["JOBID", "RESULT", "WHY"]);
    let mut blocks = Vec::new();
    for outcome in outcomes {
        blocks.push(Block::Line(format!("job {}: {} ({})", outcome.job_id, outcome.result, outcome.why)));
        table.push(vec![outcome.job_id.to_string(), outcome.result.clone(), outcome.why.clone()]);
    }
    if dropped_line_count > 0 {
        blocks.push(Block::Line(format!(
            "{dropped_line_count} lines of Slurm's answer could not be read and were passed over"
        )));
    }
    Answer {
        blocks,
        parsable: table,
        json: json::render(&Rescued { dry_run, dropped_line_count, jobs: outcomes }),
    }
}
