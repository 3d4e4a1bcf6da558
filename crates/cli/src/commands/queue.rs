//! `pillion queue`: jobs that wait for a decision, why, and when Slurm starts them by itself at the latest.

use crate::args::QueueArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Table, json};
use pillion_api::{QueueRequest, QueueResponse};

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, args: &QueueArgs) -> Result<Answer, CliError> {
    Ok(show(&answer(client.queue(QueueRequest { user: args.user.clone() })).await?))
}

fn show(queue: &QueueResponse) -> Answer {
    let columns = [
        "JOBID",
        "USER",
        "ACCOUNT",
        "PARTITION",
        "STATE",
        "SUBMIT_TIME",
        "STARTS_ALONE",
        ">PROMISE",
        "WORKLOAD",
        "REASON",
    ];
    let mut table = Table::new(&columns);
    for job in &queue.jobs {
        table.push(vec![
            job.job_id.clone(),
            job.user.clone(),
            job.account.clone(),
            job.partition.clone(),
            job.state.clone(),
            format::time_or_none(job.submitted_at_seconds),
            format::time_or_none(job.starts_alone_at_seconds),
            format::ratio(job.slowdown_ratio_max),
            format::shown(job.workload_name.as_ref()),
            job.reason.clone(),
        ]);
    }
    Answer::table(table, json::render(queue))
}
