//! Who has lost the right to share for a while, and what he has done since.

use super::State;
use crate::store::{Atonement, CreditLoss, Event};
use pillion_core::{UnixTime, UserId};
use std::collections::BTreeMap;

impl State {
    pub(in crate::store::memory) fn lose_credit(&mut self, loss: &CreditLoss, event: &Event) -> bool {
        if self.credit_losses.iter().any(|known| known.start == loss.start) {
            return false;
        }
        self.credit_losses.push(loss.clone());
        self.record_event(event.clone());
        true
    }

    pub(in crate::store::memory) fn atonements(&self, seconds_min: f64, runs_max: u32) -> Vec<Atonement> {
        let mut last: BTreeMap<UserId, UnixTime> = BTreeMap::new();
        for loss in &self.credit_losses {
            let at = last.entry(loss.uid).or_insert(loss.lost_at);
            if loss.lost_at > *at {
                *at = loss.lost_at;
            }
        }
        let atonement = |(uid, lost_at): (UserId, UnixTime)| {
            let accounts = self.runs.values().filter_map(|run| run.account.as_ref());
            let alone = accounts.filter(|run| {
                let is_alone = run.sums.shared_run_count == 0 && run.sums.gpu_seconds >= seconds_min;
                run.uid == uid && run.ended_at > lost_at && is_alone
            });
            let count = u32::try_from(alone.count()).unwrap_or(u32::MAX);
            Atonement { uid, runs_alone: count.min(runs_max) }
        };
        last.into_iter().map(atonement).collect()
    }
}
