//! The jobs that do not share, as the answer has them, and why.

use super::pairings::{row_of, shares};
use crate::plan::{Explanation, Plan, Reason};
use crate::view::WaitingJob;
use serde::Serialize;

/// One job that does not share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alone {
    /// Its row in QUEUE.csv, from 0.
    pub row: u32,
    /// What it runs.
    pub workload: String,
    /// The rule, by name.
    pub reason: Reason,
    /// The same in a sentence.
    pub text: String,
}

/// By their rows.
pub(super) fn alone(plan: &Plan, waiting: &[WaitingJob]) -> Vec<Alone> {
    let lone = plan.pairings.iter().filter(|pairing| !shares(pairing)).flat_map(|pairing| &pairing.members);
    let explanations = lone.map(|member| &member.explanation).chain(&plan.left_waiting);
    let mut alone: Vec<Alone> = explanations.map(|why| alone_row(why, waiting)).collect();
    alone.sort_by_key(|job| job.row);
    alone
}

fn alone_row(explanation: &Explanation, waiting: &[WaitingJob]) -> Alone {
    let Explanation { job_id, text, candidates, .. } = explanation;
    // On files there is a device for everybody: why a job has it for itself is why its best partner was not chosen.
    let best = candidates.first().and_then(|candidate| candidate.excluded_by);
    let reason = if explanation.reason == Reason::AloneJoinable {
        best.unwrap_or(explanation.reason)
    } else {
        explanation.reason
    };
    let row = row_of(*job_id);
    let workload = waiting[row as usize].workload.as_str().to_owned();
    Alone { row, workload, reason, text: text.to_string() }
}
