//! `pillion evict JOB`: an operator's word that a job is to run alone. It is written down at once and done within seconds.

use crate::args::EvictArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{EvictRequest, EvictResponse};

/// Gives the order.
///
/// # Errors
/// As [`answer`]; [`CliError::Refused`] says why it cannot be done.
pub async fn evict(client: &mut Operator, args: &EvictArgs) -> Result<Answer, CliError> {
    let request = EvictRequest { job_id: args.job.to_string(), reason: args.reason.clone() };
    Ok(show(&answer(client.evict(request)).await?))
}

fn show(evicted: &EvictResponse) -> Answer {
    let EvictResponse { job_id, node, reason } = evicted;
    let mut table = Table::new(&["JOBID", "NODE", "REASON"]);
    table.push(vec![job_id.clone(), node.clone(), reason.clone()]);
    let lines = [
        format!("Job {job_id} on {node} is ended and started again, alone: {reason}"),
        format!("'pillion why {job_id}' tells what became of it"),
    ];
    let blocks = lines.into_iter().map(Block::Line).collect();
    Answer { blocks, parsable: table, json: json::render(evicted) }
}
