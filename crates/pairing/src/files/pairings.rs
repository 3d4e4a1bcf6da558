//! The devices that jobs share, as the answer has them.

use super::ground::RUNNING_ID_FIRST;
use crate::model::SpeedEstimate;
use crate::plan::{Candidate, Member, Pairing, Plan};
use pillion_core::{Fraction, SlurmJobId};
use serde::Serialize;

/// Jobs that share one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerPairing {
    /// Running ones first.
    pub members: Vec<AnswerMember>,
    /// Sum of speed fractions less one.
    pub gain: f64,
    /// How probably both keep their promises, where they share for a trial; absent = the bounds admit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<f64>,
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

/// Whether it is one: a job alone has a device of its own.
pub(super) fn shares(pairing: &Pairing) -> bool {
    pairing.joins.is_some() || pairing.members.len() > 1
}

/// By the first row of each.
pub(super) fn pairings(plan: &Plan) -> Vec<AnswerPairing> {
    let mut pairings: Vec<AnswerPairing> =
        plan.pairings.iter().filter(|pairing| shares(pairing)).map(pairing).collect();
    pairings.sort_by_key(|pairing| pairing.members.iter().filter_map(|member| member.row).min());
    pairings
}

fn pairing(pairing: &Pairing) -> AnswerPairing {
    let mut members: Vec<AnswerMember> = Vec::new();
    if pairing.joins.is_some() {
        let candidates = pairing.members.iter().flat_map(|member| member.explanation.candidates.iter());
        members.extend(candidates.filter(|candidate| candidate.chosen).filter_map(running_member));
    }
    members.extend(pairing.members.iter().filter_map(starting_member));
    AnswerPairing { members, gain: pairing.gain, trial: pairing.trial.map(Fraction::value) }
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

/// A job's row in its file, and whether that is RUNNING.csv.
pub fn row_in_file(job_id: SlurmJobId) -> (u32, bool) {
    match job_id.id.checked_sub(RUNNING_ID_FIRST) {
        Some(row) => (row, true),
        None => (job_id.id.saturating_sub(1), false),
    }
}

/// A job's row in QUEUE.csv.
pub(super) fn row_of(job_id: SlurmJobId) -> u32 {
    job_id.id - 1
}
