//! The answer to planning on files, in the form that scripts read. Every row of the queue stands in it exactly once.

use super::RUNNING_ID_FIRST;
use crate::model::{InterferenceModel, SpeedEstimate};
use crate::plan::{Candidate, Explanation, Member, Pairing, Plan, Reason};
use pillion_core::{Fraction, SlurmJobId};
use serde::Serialize;

/// The probability that a truth lies above its `low`.
const INTERVAL: f64 = 0.9;

/// A plan on files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Who shares.
    pub pairings: Vec<AnswerPairing>,
    /// Who does not, and why.
    pub alone: Vec<Alone>,
    /// What predicted.
    pub model: AnswerModel,
}

/// Jobs that share one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerPairing {
    /// Running ones first.
    pub members: Vec<AnswerMember>,
    /// Sum of speed fractions less one.
    pub gain: f64,
}

/// One job that shares.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerMember {
    /// Its row in QUEUE.csv, from 0; absent for one that runs already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// Its row in RUNNING.csv, from 0; absent for one that starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_row: Option<u32>,
    /// What it runs.
    pub workload: String,
    /// Its cap; `null` = none.
    pub cap_fraction: Option<Fraction>,
    /// What would be booked; `null` for one that runs already.
    pub shards: Option<u8>,
    /// Expected speed over solo speed.
    pub speed_fraction: f64,
    /// The truth lies above it with the probability `model.interval`.
    pub speed_fraction_low: f64,
    /// The truth lies below it with the probability `model.interval`.
    pub speed_fraction_high: f64,
}

/// One job that does not share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alone {
    /// Its row in QUEUE.csv, from 0.
    pub row: u32,
    /// The rule, by name.
    pub reason: Reason,
    /// The same in a sentence.
    pub text: String,
}

/// What predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerModel {
    /// Its name and version.
    pub name: String,
    /// The probability of each one-sided bound.
    pub interval: f64,
}

/// The answer that a plan on a view from files amounts to.
pub fn answer(plan: &Plan, model: &dyn InterferenceModel) -> Answer {
    let shares = |pairing: &&Pairing| pairing.joins.is_some() || pairing.members.len() > 1;
    let lone = plan.pairings.iter().filter(|pairing| !shares(pairing)).flat_map(|pairing| &pairing.members);
    let mut alone: Vec<Alone> =
        lone.map(|member| &member.explanation).chain(&plan.left_waiting).map(alone_row).collect();
    alone.sort_by_key(|job| job.row);
    let mut pairings: Vec<AnswerPairing> = plan.pairings.iter().filter(shares).map(pairing).collect();
    pairings.sort_by_key(|pairing| pairing.members.iter().filter_map(|member| member.row).min());
    Answer { pairings, alone, model: AnswerModel { name: model.name().to_owned(), interval: INTERVAL } }
}

fn alone_row(explanation: &Explanation) -> Alone {
    let Explanation { job_id, text, candidates, .. } = explanation;
    // On files there is a device for everybody: why a job has it for itself is why its best partner was not chosen.
    let best = candidates.first().and_then(|candidate| candidate.excluded_by);
    let reason = if explanation.reason == Reason::AloneJoinable {
        best.unwrap_or(explanation.reason)
    } else {
        explanation.reason
    };
    Alone { row: row_of(*job_id), reason, text: text.clone() }
}

fn row_of(job_id: SlurmJobId) -> u32 {
    job_id.id - 1
}

fn pairing(pairing: &Pairing) -> AnswerPairing {
    let mut members: Vec<AnswerMember> = Vec::new();
    if pairing.joins.is_some() {
        let candidates = pairing.members.iter().flat_map(|member| &member.explanation.candidates);
        members.extend(candidates.filter(|candidate| candidate.chosen).filter_map(running_member));
    }
    members.extend(pairing.members.iter().filter_map(starting_member));
    AnswerPairing { members, gain: pairing.gain }
}

fn running_member(candidate: &Candidate) -> Option<AnswerMember> {
    let row = candidate.partner.id.checked_sub(RUNNING_ID_FIRST)?;
    let member = member(candidate.workload.as_str(), candidate.cap_fractions.1, candidate.other.as_ref()?);
    Some(AnswerMember { running_row: Some(row), ..member })
}

fn starting_member(starting: &Member) -> Option<AnswerMember> {
    let member = member(starting.workload.as_str(), starting.cap_fraction, starting.estimate.as_ref()?);
    Some(AnswerMember {
        row: Some(row_of(starting.start.job_id)),
        shards: Some(starting.shards.count()),
        ..member
    })
}

fn member(workload: &str, cap_fraction: Option<Fraction>, estimate: &SpeedEstimate) -> AnswerMember {
    AnswerMember {
        row: None,
        running_row: None,
        workload: workload.to_owned(),
        cap_fraction,
        shards: None,
        speed_fraction: estimate.speed_fraction,
        speed_fraction_low: estimate.speed_fraction_low,
        speed_fraction_high: estimate.speed_fraction_high,
    }
}
