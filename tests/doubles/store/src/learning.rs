//! Observations and models in memory.

use super::MemoryStore;
use async_trait::async_trait;
use pillion_core::UnixTime;
use pillion_store::{
    ModelState, ModelVersion, Models, NewModel, NewObservation, Observations, StoreError, StoredObservation,
};

#[async_trait]
impl Observations for MemoryStore {
    async fn record_observation(&self, new: &NewObservation, at: UnixTime) -> Result<bool, StoreError> {
        self.call("recording an observation", |state| state.learning.record_observation(new, at))
    }

    async fn observations(&self, after: u64, limit: u32) -> Result<Vec<StoredObservation>, StoreError> {
        self.with("reading observations", |state| state.learning.observations(after, limit))
    }
}

#[async_trait]
impl Models for MemoryStore {
    async fn add_model(&self, new: &NewModel, incumbent: Option<u64>) -> Result<Option<u64>, StoreError> {
        self.with("keeping a model", |state| {
            let version = state.learning.add_model(new, incumbent)?;
            if new.state == ModelState::Active {
                state.bump();
            }
            Some(version)
        })
    }

    async fn active_model(&self) -> Result<Option<u64>, StoreError> {
        self.with("reading which model is active", |state| state.learning.active_model())
    }

    async fn models(&self, limit: u32) -> Result<Vec<ModelVersion>, StoreError> {
        self.with("listing models", |state| state.learning.models(limit))
    }

    async fn model_body(&self, version: u64) -> Result<Option<serde_json::Value>, StoreError> {
        self.with("reading a model", |state| state.learning.model_body(version))
    }
}
