//! The model that the engine plans with: the store's active version, read again whenever the store names another. So a
//! promotion takes effect with the next plan, on every scheduler, and a restart changes nothing.

use super::recipe::Recipe;
use crate::tick_error::TickError;
use pillion_pairing::model::Hope;
use pillion_pairing::{InterferenceModel, PredictError, ProfileBook, SpeedEstimate, TenantInput};
use pillion_store::Store;
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};

/// A model with its version: what explanations name.
pub struct CurrentModel {
    /// The version in the store; `None` = nothing was learnt yet.
    pub version: Option<u64>,
    /// The stored version cannot be read by this release: the model without observations stands in for it.
    pub is_stand_in: bool,
    name: String,
    model: Arc<dyn InterferenceModel>,
}

impl CurrentModel {
    fn new(version: Option<u64>, model: Option<Arc<dyn InterferenceModel>>, recipe: &dyn Recipe) -> Self {
        let is_stand_in = version.is_some() && model.is_none();
        let model = model.unwrap_or_else(|| untrained(recipe));
        let shown = if is_stand_in { 0 } else { version.unwrap_or(0) };
        Self { version, is_stand_in, name: format!("{} v{shown}", model.name()), model }
    }
}

impl InterferenceModel for CurrentModel {
    fn name(&self) -> &str {
        &self.name
    }
    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        self.model.predict(tenants, device_model)
    }
    fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: &Hope<'_>,
    ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
        self.model.predict_if(tenants, device_model, hope)
    }
    fn misfit_probability(&self, tenants: &[TenantInput<'_>], device_model: &str) -> f64 {
        self.model.misfit_probability(tenants, device_model)
    }
    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64> {
        self.model.power_watts(tenants, device_model)
    }
}

/// The model without observations: the recipe's prior.
pub(super) fn untrained(recipe: &dyn Recipe) -> Arc<dyn InterferenceModel> {
    let body = recipe.train(&ProfileBook::default(), &[]);
    recipe.read(body).expect("what was written now can be read now")
}

/// Keeps the current model.
pub struct Models {
    recipe: Arc<dyn Recipe>,
    current: RwLock<Arc<CurrentModel>>,
}

impl Models {
    /// Nothing was learnt yet.
    pub fn new(recipe: Arc<dyn Recipe>) -> Self {
        let current = CurrentModel::new(None, None, recipe.as_ref());
        Self { recipe, current: RwLock::new(Arc::new(current)) }
    }

    /// How models are made.
    pub fn recipe(&self) -> Arc<dyn Recipe> {
        Arc::clone(&self.recipe)
    }

    /// The model that the store says is active.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn current(&self, store: &dyn Store) -> Result<Arc<CurrentModel>, TickError> {
        let version = store.active_model().await?;
        let known = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        if known.version == version {
            return Ok(known);
        }
        let body = match version {
            Some(version) => store.model_body(version).await?,
            None => None,
        };
        let recipe = self.recipe();
        // A large body takes a while, and this thread has others to serve.
        let read = tokio::task::spawn_blocking(move || read(version, body, recipe.as_ref()));
        let current = Arc::new(read.await.map_err(|source| TickError::Training { source })?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&current);
        Ok(current)
    }
}

fn read(version: Option<u64>, body: Option<Value>, recipe: &dyn Recipe) -> CurrentModel {
    let model = body.and_then(|body| match recipe.read(body) {
        Ok(model) => Some(model),
        Err(error) => {
            tracing::warn!(version, %error, "the active model cannot be read by this release");
            None
        }
    });
    CurrentModel::new(version, model, recipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_pairing::Observation;

    /// Says of everybody that there is no hope.
    struct Hopeless;

    impl InterferenceModel for Hopeless {
        fn name(&self) -> &'static str {
            "hopeless"
        }
        fn predict(&self, _: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
            Ok(Vec::new())
        }
        fn predict_if(
            &self,
            _: &[TenantInput<'_>],
            _: &str,
            _: &Hope<'_>,
        ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
            Ok(None)
        }
        fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
            None
        }
    }

    impl Recipe for Hopeless {
        fn kind(&self) -> &'static str {
            "hopeless"
        }
        fn train(&self, _: &ProfileBook, _: &[Observation]) -> Value {
            Value::Null
        }
        fn read(&self, _: Value) -> Result<Arc<dyn InterferenceModel>, serde_json::Error> {
            Ok(Arc::new(Self))
        }
    }

    /// The planner asks the current model, and what the model behind it knows sooner it has to say sooner, too.
    #[test]
    fn what_the_model_knows_sooner_is_said_sooner() {
        let current = CurrentModel::new(None, None, &Hopeless);
        let hope = Hope { least: &[], lacking_max: 0.0 };
        assert_eq!(current.predict_if(&[], "h100", &hope), Ok(None));
    }
}
