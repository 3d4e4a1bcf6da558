//! Who has lost the right to share for a while, and what he has done since.

use super::MemoryStore;
use async_trait::async_trait;
use pillion_core::{UnixTime, UserId};
use pillion_store::{Atonement, Credit, CreditLoss, Event, StoreError};
use std::collections::BTreeMap;

#[async_trait]
impl Credit for MemoryStore {
    async fn lose_credit(&self, loss: &CreditLoss, event: &Event) -> Result<bool, StoreError> {
        self.with("taking credit", |state| {
            if state.credit_losses.iter().any(|known| known.start == loss.start) {
                return false;
            }
            state.credit_losses.push(loss.clone());
            state.record_event(event.clone());
            true
        })
    }

    async fn atonements(&self, seconds_min: f64, runs_max: u32) -> Result<Vec<Atonement>, StoreError> {
        self.with("reading who owes runs alone", |state| {
            let mut last: BTreeMap<UserId, UnixTime> = BTreeMap::new();
            for loss in &state.credit_losses {
                let at = last.entry(loss.uid).or_insert(loss.lost_at);
                if loss.lost_at > *at {
                    *at = loss.lost_at;
                }
            }
            let atonements = last.into_iter().map(|(uid, lost_at)| {
                let accounts = state.runs.values().filter_map(|run| run.account.as_ref());
                let alone = accounts.filter(|run| {
                    let is_alone = run.sums.shared_run_count == 0 && run.sums.gpu_seconds >= seconds_min;
                    run.uid == uid && run.ended_at > lost_at && is_alone
                });
                let count = u32::try_from(alone.count()).unwrap_or(u32::MAX);
                Atonement { uid, runs_alone: count.min(runs_max) }
            });
            atonements.collect()
        })
    }
}
