//! Decisions that are only recorded, in memory.

use super::MemoryStore;
use super::state::State;
use async_trait::async_trait;
use pillion_core::{JobStart, SlurmJobId, UnixTime};
use pillion_store::{ObservedJob, ObservedRun, ShadowDecision, ShadowScore, Shadows, StoreError};

impl State {
    /// Those that are asked for, in the order in which they were decided.
    fn shadow_where(
        &self,
        is_asked: impl Fn(&ShadowDecision, Option<&ShadowScore>) -> bool,
    ) -> Vec<ShadowDecision> {
        let closed = |score: &Option<(UnixTime, ShadowScore)>| score.as_ref().map(|(_, score)| score.clone());
        let mut found: Vec<ShadowDecision> = self
            .shadow
            .values()
            .filter(|(decision, score)| is_asked(decision, closed(score).as_ref()))
            .map(|(decision, _)| decision.clone())
            .collect();
        found.sort_by(|a, b| a.decided_at.seconds().total_cmp(&b.decided_at.seconds()));
        found
    }
}

#[async_trait]
impl Shadows for MemoryStore {
    async fn record_shadow(&self, decisions: &[ShadowDecision]) -> Result<(), StoreError> {
        self.with("recording shadow decisions", |state| {
            for decision in decisions {
                state.shadow.entry(decision.start()).or_insert_with(|| (decision.clone(), None));
            }
        })
    }

    async fn open_shadow(&self) -> Result<Vec<ShadowDecision>, StoreError> {
        self.with("reading open shadow decisions", |state| state.shadow_where(|_, score| score.is_none()))
    }

    async fn shadow_groups(&self, groups: &[JobStart]) -> Result<Vec<ShadowDecision>, StoreError> {
        self.with("reading shadow groups", |state| {
            state.shadow_where(|decision, _| groups.contains(&decision.group))
        })
    }

    async fn close_shadow(&self, scores: &[(JobStart, ShadowScore)], at: UnixTime) -> Result<(), StoreError> {
        self.with("closing shadow decisions", |state| {
            for (start, score) in scores {
                if let Some((_, closed @ None)) = state.shadow.get_mut(start) {
                    *closed = Some((at, score.clone()));
                }
            }
        })
    }

    async fn shadow_of(
        &self,
        job_id: SlurmJobId,
    ) -> Result<Option<(ShadowDecision, Option<ShadowScore>)>, StoreError> {
        self.with("reading a shadow decision", |state| {
            let newest = state.shadow.values().rfind(|(decision, _)| decision.start().job_id == job_id);
            newest.map(|(decision, score)| (decision.clone(), score.clone().map(|(_, score)| score)))
        })
    }

    async fn observed_starts(
        &self,
        starts: &[JobStart],
    ) -> Result<Vec<(ObservedJob, Vec<ObservedRun>)>, StoreError> {
        self.with("reading observed starts", |state| state.observed_starts(starts))
    }
}
