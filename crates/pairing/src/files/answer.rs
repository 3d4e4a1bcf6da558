//! The answer to planning on files, in the form that scripts read. Every row of the queue stands in it exactly once.

use super::candidates::{AnswerCandidate, candidates};
use super::{FromFiles, RUNNING_ID_FIRST};
use crate::model::{InterferenceModel, SpeedEstimate};
use crate::plan::{Candidate, Explanation, Member, Pairing, Plan, Reason};
use crate::planner::plan_with_considered;
use crate::policy::Policy;
use crate::view::WaitingJob;
use pillion_core::device::Mechanism;
use pillion_core::{Fraction, SlurmJobId};
use serde::Serialize;

/// The probability that a truth lies above its `low`.
const INTERVAL: f64 = 0.9;

/// A plan on files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Devices that jobs share, by the first row of each.
    pub pairings: Vec<AnswerPairing>,
    /// Who does not, and why.
    pub alone: Vec<Alone>,
    /// The model that predicted the speeds.
    pub model: AnswerModel,
    /// Every way of sharing that was considered, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<AnswerCandidate>>,
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
    /// Its row in QUEUE.csv, from 0; `null` for one that runs already.
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
    /// What it runs.
    pub workload: String,
    /// The rule, by name.
    pub reason: Reason,
    /// The same in a sentence.
    pub text: String,
}

/// The model that predicted the speeds, and what it was trained on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerModel {
    /// Its name and version.
    pub name: String,
    /// The probability of each one-sided bound.
    pub interval: f64,
    /// The device model that it predicted for.
    pub device: String,
    /// How that is shared.
    pub mechanism: Mechanism,
    /// Rows of PAIRS.csv of this device model and mechanism.
    pub observations: usize,
    /// Rows of another device model or mechanism.
    pub observations_elsewhere: usize,
}

/// Plans on what was read: what ALLOW.csv says goes before `policy.allowed`.
pub fn answer(
    files: &FromFiles,
    model: &dyn InterferenceModel,
    policy: &Policy,
    with_candidates: bool,
) -> Answer {
    let allowed = files.allowed.clone().or_else(|| policy.allowed.clone());
    let policy = Policy { allowed, ..policy.clone() };
    let (plan, considered) = plan_with_considered(&files.view, model, &policy);
    let (pairings, alone) = (pairings(&plan), alone(&plan, &files.view.waiting));
    Answer {
        model: of_model(files, model),
        candidates: with_candidates.then(|| candidates(&considered, &pairings, &alone)),
        pairings,
        alone,
    }
}

fn of_model(files: &FromFiles, model: &dyn InterferenceModel) -> AnswerModel {
    let FromFiles { observations, device_model, mechanism, .. } = files;
    let here = observations
        .iter()
        .filter(|seen| seen.device_model == *device_model && seen.mechanism() == *mechanism)
        .count();
    AnswerModel {
        name: model.name().to_owned(),
        interval: INTERVAL,
        device: device_model.clone(),
        mechanism: *mechanism,
        observations: here,
        observations_elsewhere: observations.len() - here,
    }
}

fn shares(pairing: &Pairing) -> bool {
    pairing.joins.is_some() || pairing.members.len() > 1
}

fn pairings(plan: &Plan) -> Vec<AnswerPairing> {
    let mut pairings: Vec<AnswerPairing> =
        plan.pairings.iter().filter(|pairing| shares(pairing)).map(pairing).collect();
    pairings.sort_by_key(|pairing| pairing.members.iter().filter_map(|member| member.row).min());
    pairings
}

fn alone(plan: &Plan, waiting: &[WaitingJob]) -> Vec<Alone> {
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
    Alone { row, workload, reason, text: text.clone() }
}

fn row_of(job_id: SlurmJobId) -> u32 {
    job_id.id - 1
}

fn pairing(pairing: &Pairing) -> AnswerPairing {
    let mut members: Vec<AnswerMember> = Vec::new();
    if pairing.joins.is_some() {
        let candidates = pairing.members.iter().flat_map(|member| member.explanation.candidates.iter());
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
    let member = member(starting.workload.as_str(), starting.sharing.cap(), starting.estimate.as_ref()?);
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
