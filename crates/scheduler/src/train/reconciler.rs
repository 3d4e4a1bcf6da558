//! One tick of the training: is it due, and what became of it.

use super::backtest::surprises;
use super::due::{Situation, Why, due};
use super::judge::Verdict;
use super::models::CurrentModel;
use super::trial::{self, Incumbent, Trial, TrialInput};
use crate::context::{Context, ModelSeen};
use crate::tick_error::TickError;
use pillion_core::UnixTime;
use pillion_core::event::EventKind;
use pillion_core::profile::WorkloadProfile;
use pillion_pairing::{Observation, ProfileBook};
use pillion_store::{Event, ModelState, ModelVersion, NewModel, StoredObservation};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::info;

pub struct Train {
    context: Arc<Context>,
    tried_at: Mutex<Option<UnixTime>>,
}

impl Train {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, tried_at: Mutex::default() }
    }

    /// Trains where there is enough to learn. A tick that is dropped on its way has changed nothing.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer or the training failed.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        if !context.is_leading() {
            return Ok(());
        }
        let store = context.store.as_ref();
        let current = context.models.current(store).await?;
        let newest = store.models(1).await?.into_iter().next();
        let seen = newest.as_ref().map_or(0, |newest| newest.observation_horizon);
        let fresh = store.observations(seen, context.settings.training.observations_max).await?;
        context.board_mut().model = Some(seen_of(&current, newest.as_ref(), fresh.len()));
        if fresh.is_empty() && newest.is_none() {
            return Ok(());
        }
        let stored = store.profiles().await?;
        let trained_at = newest.as_ref().map(|newest| newest.trained_at);
        let profile_count = stored
            .iter()
            .filter(|stored| trained_at.is_some_and(|trained_at| stored.updated_at > trained_at))
            .count();
        let profiles: Vec<WorkloadProfile> = stored.into_iter().map(|stored| stored.profile).collect();
        let profiles = ProfileBook::from(profiles);
        let training = &context.settings.training;
        // Where there are many, they are learnt from anyway, and need not be looked at one by one here.
        let surprise_count = if fresh.len() < training.observations_min as usize {
            surprises(current.as_ref(), &profiles, &observations(&fresh))
        } else {
            0
        };
        let why = due(
            &Situation {
                now: context.now(),
                newest: newest.as_ref(),
                tried_at: *self.tried_at.lock().unwrap_or_else(PoisonError::into_inner),
                is_stand_in: current.is_stand_in,
                fresh_count: fresh.len(),
                surprise_count,
                profile_count,
            },
            training,
        );
        match why {
            Some(why) => self.train(why, current, profiles).await,
            None => Ok(()),
        }
    }

    async fn train(
        &self,
        why: Why,
        current: Arc<CurrentModel>,
        profiles: ProfileBook,
    ) -> Result<(), TickError> {
        let context = &self.context;
        let store = context.store.as_ref();
        let trained_at = context.now();
        *self.tried_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(trained_at);
        let active = current.version;
        if why == Why::Unreadable {
            let detail = format!("model {} {why}: trained anew from all observations", active.unwrap_or(0));
            self.event(EventKind::ModelUnreadable, detail).await?;
        }
        let observations = store.observations(0, context.settings.training.observations_max).await?;
        let incumbent = self.incumbent(current).await?;
        let (count, horizon) = (observations.len(), observations.last().map_or(0, |last| last.number));
        let input = TrialInput { recipe: context.models.recipe(), incumbent, profiles, observations };
        let kind = input.recipe.kind().to_owned();
        let trial = tokio::task::spawn_blocking(move || trial::run(&input)).await;
        let trial = trial.map_err(|source| TickError::Training { source })?;
        let Trial { body, score, verdict } = trial.map_err(|source| TickError::Model { source })?;
        let (state, clause) = match verdict {
            Verdict::Promote(clause) => (ModelState::Active, clause),
            Verdict::Reject(clause) => (ModelState::Rejected, clause),
        };
        let new = NewModel {
            kind,
            state,
            trained_at,
            observation_count: count as u64,
            observation_horizon: horizon,
            score,
            reason: format!("{why}; {clause}"),
            body,
        };
        let Some(version) = store.add_model(&new, active).await? else {
            info!("another model was promoted meanwhile; this one is thrown away");
            return Ok(());
        };
        info!(version, state = state.as_str(), observations = count, reason = %new.reason, "model trained");
        let (kind, did) = match state {
            ModelState::Active => (EventKind::ModelPromoted, "is in use"),
            ModelState::Rejected | ModelState::Retired => (EventKind::ModelRejected, "is kept and not used"),
        };
        context.tally.trained(if state == ModelState::Active { "promoted" } else { "rejected" });
        self.event(kind, format!("model {version} of {count} observations {did}: {}", new.reason)).await?;
        context.nudges.engine.notify_one();
        Ok(())
    }

    /// The model that a candidate must not be worse than; `None` = the model without observations.
    async fn incumbent(&self, current: Arc<CurrentModel>) -> Result<Option<Incumbent>, TickError> {
        let Some(version) = current.version.filter(|_| !current.is_stand_in) else { return Ok(None) };
        let known = self.context.store.models(0).await?;
        let Some(known) = known.iter().find(|known| known.version == version) else { return Ok(None) };
        Ok(Some(Incumbent {
            version,
            horizon: known.observation_horizon,
            is_same_recipe: known.kind == self.context.models.recipe().kind(),
            model: current,
        }))
    }

    async fn event(&self, kind: EventKind, detail: String) -> Result<(), TickError> {
        let event = Event { at: self.context.now(), kind, job_id: None, node: None, detail };
        let kept = self.context.store.record_event(&event).await;
        kept.or_else(|error| self.context.pass_over("train", "an event", error.into()))
    }
}

/// For operators: whether it learns.
fn seen_of(current: &CurrentModel, newest: Option<&ModelVersion>, fresh_count: usize) -> ModelSeen {
    let score = newest.and_then(|newest| newest.score.candidate);
    ModelSeen {
        version: current.version,
        is_stand_in: current.is_stand_in,
        trained_at: newest.map(|newest| newest.trained_at),
        observation_count: newest.map(|newest| newest.observation_count),
        error_mean: score.map(|score| score.error_mean),
        waiting_count: fresh_count as u64,
    }
}

fn observations(stored: &[StoredObservation]) -> Vec<Observation> {
    stored.iter().map(|stored| stored.observation.clone()).collect()
}
