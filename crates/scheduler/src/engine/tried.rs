//! The engine's part of trials: what came of sharings before, and who may not be started again. Asks; the view and the planner
//! decide.

use super::Engine;
use crate::scan::Scan;
use crate::tick_error::TickError;
use crate::view::{CopyHistory, TrialHistory};
use pillion_core::JobStart;
use pillion_pairing::{Pairing, Plan, Reason};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use tracing::warn;

/// So many jobs are asked about after one plan at most: each is a call of Slurm. Trials beyond that wait for the next plan.
const ASKED_MAX: usize = 32;

impl Engine {
    /// What came of sharings before, with what is new; `None` where the site wants no trials.
    pub(super) async fn history(&self) -> Result<Option<Arc<TrialHistory>>, TickError> {
        if self.context.settings.policy.trials.is_none() {
            return Ok(None);
        }
        let known = Arc::clone(&self.history.lock().unwrap_or_else(PoisonError::into_inner));
        let most = self.context.settings.training.observations_max;
        let new = self.context.store.observations(known.horizon(), most).await?;
        if new.is_empty() {
            return Ok(Some(known));
        }
        let mut history = TrialHistory::clone(&known);
        history.learn(&new);
        // What was measured to the end counts for more than what the watch saw before.
        let measured = TrialHistory::combinations(&new);
        self.context.board_mut().watched.retain(|key, _| !measured.contains(key));
        let history = Arc::new(history);
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&history);
        Ok(Some(history))
    }

    /// What was measured of copies of one workload, with what is new; nothing where the site lets no more than four share.
    pub(super) async fn copies(&self) -> Result<Arc<CopyHistory>, TickError> {
        let known = Arc::clone(&self.copies.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.context.settings.has_copies() {
            return Ok(known);
        }
        let most = self.context.settings.training.observations_max;
        let new = self.context.store.observations(known.horizon(), most).await?;
        if new.is_empty() {
            return Ok(known);
        }
        let mut copies = CopyHistory::clone(&known);
        copies.learn(&new);
        let copies = Arc::new(copies);
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&copies);
        Ok(copies)
    }

    /// Takes those out of the plan that presuppose a start once more which there would not be: of whoever wrote `--no-requeue`, and of
    /// whomever Slurm says nothing of. The next plan knows.
    pub(super) async fn leave_steadfast(&self, plan: &mut Plan, scan: &Scan) {
        let context = &self.context;
        let tried = plan.pairings.iter().filter(|pairing| may_start_again(pairing));
        let asked: Vec<JobStart> =
            tried.flat_map(|pairing| pairing.members.iter().map(|member| member.start)).collect();
        if asked.is_empty() {
            return;
        }
        let (mut allowed, mut steadfast) = (BTreeSet::new(), BTreeSet::new());
        for start in asked.into_iter().take(ASKED_MAX) {
            match context.slurm.allows_requeue(start.job_id).await {
                Ok(is_allowed) => {
                    if is_allowed { &mut allowed } else { &mut steadfast }.insert(start);
                }
                Err(error) => {
                    warn!(%start, %error, "nobody knows whether it may be started again: it is not tried");
                }
            }
        }
        plan.pairings.retain(|pairing| {
            !may_start_again(pairing) || pairing.members.iter().all(|member| allowed.contains(&member.start))
        });
        if !steadfast.is_empty() {
            let mut board = context.board_mut();
            board.steadfast.retain(|start| scan.jobs.contains_key(&start.job_id));
            board.steadfast.extend(steadfast);
            drop(board);
            context.nudges.engine.notify_one();
        }
    }
}

/// Whether it presupposes that its jobs may be started again: a trial, which the watch takes apart, and an instance with less memory
/// than its job held at most.
fn may_start_again(pairing: &Pairing) -> bool {
    let mut reasons = pairing.members.iter().map(|member| member.explanation.reason);
    pairing.trial.is_some() || reasons.any(|reason| reason == Reason::SmallerInstance)
}

#[cfg(test)]
mod tests;
