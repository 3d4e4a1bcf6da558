//! How a model is made of observations, and made again of its stored form. One recipe is in use; tests have others.

use pillion_pairing::model::{Owners, TrainOptions, train};
use pillion_pairing::{InterferenceModel, Learned, Observation, ProfileBook};
use serde_json::Value;
use std::sync::Arc;

/// Makes models: pure, deterministic.
pub trait Recipe: Send + Sync {
    /// Names the recipe: a stored model of another kind was made in another way.
    fn kind(&self) -> &str;
    /// Trains on what was observed, the oldest first, and gives the model in its stored form.
    fn train(&self, profiles: &ProfileBook, observations: &[Observation]) -> Value;
    /// The model from its stored form.
    ///
    /// # Errors
    /// Where this release cannot read it.
    fn read(&self, body: Value) -> Result<Arc<dyn InterferenceModel>, serde_json::Error>;
}

/// The model of `pillion-pairing`.
#[derive(Debug, Clone)]
pub struct LearnedRecipe {
    kind: String,
    options: TrainOptions,
}

impl Default for LearnedRecipe {
    fn default() -> Self {
        let options = TrainOptions { owners: Owners::InKeys, ..TrainOptions::default() };
        let kind = train(&ProfileBook::default(), &[], &options).name().to_owned();
        Self { kind, options }
    }
}

impl Recipe for LearnedRecipe {
    fn kind(&self) -> &str {
        &self.kind
    }
    fn train(&self, profiles: &ProfileBook, observations: &[Observation]) -> Value {
        let learned = train(profiles, observations, &self.options);
        serde_json::to_value(learned).expect("a model has no keys but text")
    }
    fn read(&self, body: Value) -> Result<Arc<dyn InterferenceModel>, serde_json::Error> {
        Ok(Arc::new(serde_json::from_value::<Learned>(body)?))
    }
}
