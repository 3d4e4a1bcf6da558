//! What is remembered of observations and models.

use pillion_core::{JobStart, UnixTime};
use pillion_pairing::{Observation, ObservedTenant};
use pillion_store::{
    LIST_LIMIT_DEFAULT, MODEL_BODIES_KEPT, ModelState, ModelVersion, NewModel, NewObservation,
    OBSERVATIONS_OF_COMBINATION_MAX, StoreError, StoredObservation,
};
use std::collections::BTreeMap;

/// What one sharing taught so far. The deviations are kept by tenant, because the observation tells the greatest only.
#[derive(Debug, Clone)]
struct Sharing {
    stored: StoredObservation,
    deviations: Vec<Option<f64>>,
}

#[derive(Debug, Clone)]
struct Model {
    version: ModelVersion,
    body: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Learning {
    changes: u64,
    sharings: BTreeMap<Vec<JobStart>, Sharing>,
    models: Vec<Model>,
}

impl Learning {
    pub(crate) fn record_observation(
        &mut self,
        new: &NewObservation,
        at: UnixTime,
    ) -> Result<bool, StoreError> {
        let starts: Vec<JobStart> = new.tenants.iter().map(|tenant| tenant.start).collect();
        let own = starts.iter().position(|start| *start == new.own);
        let own = own.ok_or_else(|| StoreError::Missing(format!("start {} among the tenants", new.own)))?;
        let is_first = !self.sharings.contains_key(&starts);
        let sharing = self.sharings.entry(starts).or_insert_with(|| unobserved(new, at));
        let observation = &mut sharing.stored.observation;
        let tenant = &mut observation.tenants[own];
        let before = (tenant.speed_fraction, sharing.deviations[own], tenant.is_self_reported);
        let now = (new.speed_fraction, new.speed_fraction_deviation, new.is_self_reported);
        if !is_first && before == now && (new.fits || !observation.fits) {
            return Ok(false);
        }
        (tenant.speed_fraction, sharing.deviations[own], tenant.is_self_reported) = now;
        observation.fits &= new.fits;
        observation.power_watts = new.power_watts.or(observation.power_watts);
        observation.speed_fraction_deviation = sharing.deviations.iter().copied().flatten().reduce(f64::max);
        self.changes += 1;
        (sharing.stored.number, sharing.stored.recorded_at) = (self.changes, at);
        Ok(true)
    }

    pub(crate) fn observations(&self, after: u64, limit: u32) -> Vec<StoredObservation> {
        let limit = if limit == 0 { LIST_LIMIT_DEFAULT } else { limit };
        let changed = self.sharings.values().map(|sharing| &sharing.stored);
        let mut found: Vec<StoredObservation> = changed.filter(|one| one.number > after).cloned().collect();
        found.sort_by_key(|one| one.number);
        keep_newest_of_each(&mut found);
        let surplus = found.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        found.drain(..surplus);
        found
    }

    pub(crate) fn add_model(&mut self, new: &NewModel, incumbent: Option<u64>) -> Option<u64> {
        if self.active_model() != incumbent {
            return None;
        }
        if new.state == ModelState::Active {
            let active = self.models.iter_mut().filter(|model| model.version.state == ModelState::Active);
            active.for_each(|model| model.version.state = ModelState::Retired);
        }
        let version = self.models.last().map_or(1, |model| model.version.version + 1);
        let NewModel { kind, state, trained_at, observation_count, observation_horizon, score, reason, body } =
            new.clone();
        let added = ModelVersion {
            version,
            kind,
            state,
            trained_at,
            observation_count,
            observation_horizon,
            score,
            reason,
        };
        self.models.push(Model { version: added, body: Some(body) });
        for Model { version: model, body } in &mut self.models {
            if model.state != ModelState::Active && model.version + MODEL_BODIES_KEPT <= version {
                *body = None;
            }
        }
        Some(version)
    }

    pub(crate) fn active_model(&self) -> Option<u64> {
        let mut models = self.models.iter().map(|model| &model.version);
        models.find(|model| model.state == ModelState::Active).map(|model| model.version)
    }

    pub(crate) fn models(&self, limit: u32) -> Vec<ModelVersion> {
        let limit = if limit == 0 { LIST_LIMIT_DEFAULT } else { limit };
        let newest_first = self.models.iter().rev().map(|model| model.version.clone());
        newest_first.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
    }

    pub(crate) fn model_body(&self, version: u64) -> Option<serde_json::Value> {
        self.models.iter().find(|model| model.version.version == version)?.body.clone()
    }
}

fn unobserved(new: &NewObservation, at: UnixTime) -> Sharing {
    let tenants = new.tenants.iter().map(|tenant| ObservedTenant {
        workload: tenant.workload.clone(),
        sharing: tenant.sharing,
        speed_fraction: None,
        is_self_reported: false,
    });
    Sharing {
        stored: StoredObservation {
            number: 0,
            starts: new.tenants.iter().map(|tenant| tenant.start).collect(),
            recorded_at: at,
            observation: Observation {
                device_model: new.device_model.clone(),
                tenants: tenants.collect(),
                power_watts: None,
                fits: true,
                run_count: 1.0,
                speed_fraction_deviation: None,
            },
        },
        deviations: vec![None; new.tenants.len()],
    }
}

/// Of each combination the newest, and apart of these the newest of which not all speeds are known.
fn keep_newest_of_each(found: &mut Vec<StoredObservation>) {
    let combination = |one: &StoredObservation| {
        let mut tenants: Vec<String> = one
            .observation
            .tenants
            .iter()
            .map(|own| format!("{:?} {:?}", own.workload, own.sharing))
            .collect();
        tenants.sort();
        let is_measured = one.observation.tenants.iter().all(|own| own.speed_fraction.is_some());
        (one.observation.device_model.clone(), tenants, is_measured)
    };
    let mut counts: BTreeMap<_, u32> = BTreeMap::new();
    let mut is_kept: Vec<bool> = found
        .iter()
        .rev()
        .map(|one| {
            let count = counts.entry(combination(one)).or_default();
            *count += 1;
            *count <= OBSERVATIONS_OF_COMBINATION_MAX
        })
        .collect();
    found.retain(|_| is_kept.pop().unwrap_or(true));
}
