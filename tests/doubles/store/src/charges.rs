//! What runs used beyond their profiles.

use super::MemoryStore;
use super::state::State;
use async_trait::async_trait;
use pillion_core::{UserId, WorkloadKey};
use pillion_store::changes::CHARGED_RUNS_MAX;
use pillion_store::{Charge, Charges, RunAccount, StoreError};

impl State {
    /// Adds a run, where what it used is known.
    pub(super) fn add_charge(&mut self, run: &RunAccount) {
        let Some(beyond) = run.use_beyond_fraction else { return };
        for workload in [None, Some(run.workload.clone())] {
            let (count, mean) = self.charges.entry((run.uid, workload)).or_insert((0, 0.0));
            *count = (*count + 1).min(CHARGED_RUNS_MAX);
            *mean += (beyond - *mean) / f64::from(*count);
        }
    }

    fn has_charge(&self, uid: UserId) -> bool {
        self.charges.iter().any(|((whose, _), (_, beyond))| *whose == uid && *beyond > 0.0)
    }
}

#[async_trait]
impl Charges for MemoryStore {
    async fn charges(&self) -> Result<Vec<Charge>, StoreError> {
        self.with("reading what was used beyond profiles", |state| {
            let known = state.charges.iter().filter(|((uid, _), _)| state.has_charge(*uid));
            let charge =
                |(&(uid, ref workload), &(_, beyond_fraction)): (&(UserId, Option<WorkloadKey>), _)| Charge {
                    uid,
                    workload: workload.clone(),
                    beyond_fraction,
                };
            known.map(charge).collect()
        })
    }
}
