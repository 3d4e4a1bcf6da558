//! The answer to planning on files, in the form that scripts read. Every row of the queue stands in it exactly once.

use super::alone::{Alone, alone};
use super::candidates::{AnswerCandidate, candidates};
use super::input::FromFiles;
use super::pairings::{AnswerPairing, pairings};
use crate::model::InterferenceModel;
use crate::planner::plan_with_considered;
use crate::policy::Policy;
use pillion_core::device::Mechanism;
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
