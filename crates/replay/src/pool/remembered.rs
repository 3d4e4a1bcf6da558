//! What a model has once said of tenants, for a replay asks the same of it in a hundred thousand plans: it is asked anew only once it
//! has learnt, or one of them has run alone again.

use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_pairing::{Hope, InterferenceModel, PredictError, SpeedEstimate, TenantInput};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};

/// Of more tenants than this together nothing is remembered.
const TENANTS_MAX: usize = 3;
/// So many are remembered at most. Those of profiles that have changed since are among them: then it forgets all.
const ANSWERS_MAX: usize = 20_000;

/// What its answers hang on besides the model itself: which workload, after how many runs alone. A replay's profiles change in no
/// other way ([`super::learn::Known`]).
type Tenants = [(u32, u32); TENANTS_MAX];
/// The ways of sharing of the same tenants, and what is said of them so.
type Answers = Vec<([Sharing; TENANTS_MAX], Result<Vec<SpeedEstimate>, PredictError>)>;

/// The answers by model of device.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    by_device: Mutex<FxHashMap<String, FxHashMap<Tenants, Answers>>>,
}

impl Remembered {
    /// The model has learnt.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// A model that remembers. It says nothing of what made its estimates.
pub(super) struct Remembering<'m, M> {
    pub(super) model: &'m M,
    pub(super) remembered: &'m Remembered,
}

impl<M: InterferenceModel> Remembering<'_, M> {
    fn ask(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        let any = Hope { least: &[], lacking_max: f64::INFINITY };
        Ok(self.model.predict_if(tenants, device_model, &any)?.unwrap_or_default())
    }
}

impl<M: InterferenceModel> InterferenceModel for Remembering<'_, M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn predict(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
    ) -> Result<Vec<SpeedEstimate>, PredictError> {
        let Some((key, sharings)) = key_of(tenants) else { return self.ask(tenants, device_model) };
        // What is in it is whole whoever has died.
        let mut by_device = self.remembered.by_device.lock().unwrap_or_else(PoisonError::into_inner);
        if !by_device.contains_key(device_model) {
            by_device.insert(device_model.to_owned(), FxHashMap::default());
        }
        let known = by_device.get_mut(device_model).expect("it was put there");
        if known.len() >= ANSWERS_MAX && !known.contains_key(&key) {
            known.clear();
        }
        let answers = known.entry(key).or_default();
        if let Some((_, answer)) = answers.iter().find(|(of, _)| *of == sharings) {
            return answer.clone();
        }
        let answer = self.ask(tenants, device_model);
        answers.push((sharings, answer.clone()));
        answer
    }

    fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        device_model: &str,
        hope: &Hope<'_>,
    ) -> Result<Option<Vec<SpeedEstimate>>, PredictError> {
        if hope.lacking_max.is_infinite() {
            return self.predict(tenants, device_model).map(Some);
        }
        self.model.predict_if(tenants, device_model, hope)
    }

    fn misfit_probability(&self, tenants: &[TenantInput<'_>], device_model: &str) -> f64 {
        self.model.misfit_probability(tenants, device_model)
    }

    fn power_watts(&self, tenants: &[TenantInput<'_>], device_model: &str) -> Option<f64> {
        self.model.power_watts(tenants, device_model)
    }
}

/// `None`: too many, or not of a replay.
fn key_of(tenants: &[TenantInput<'_>]) -> Option<(Tenants, [Sharing; TENANTS_MAX])> {
    if tenants.len() > TENANTS_MAX {
        return None;
    }
    // No workload has this number: there are not so many jobs.
    let mut key = [(u32::MAX, 0); TENANTS_MAX];
    let mut sharings = [Sharing::default(); TENANTS_MAX];
    for ((key, sharing), tenant) in key.iter_mut().zip(&mut sharings).zip(tenants) {
        *key = (workload(tenant.profile)?, tenant.profile.run_count);
        *sharing = tenant.sharing;
    }
    Some((key, sharings))
}

/// Its number, which stands behind the slash (`scenario::workload_key`).
fn workload(profile: &WorkloadProfile) -> Option<u32> {
    profile.workload.as_str().rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_key;
    use pillion_core::device::Mechanism;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Says how often it was asked.
    #[derive(Default)]
    struct Counting(AtomicU32);

    impl InterferenceModel for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }
        fn predict(&self, tenants: &[TenantInput<'_>], _: &str) -> Result<Vec<SpeedEstimate>, PredictError> {
            let speed_fraction = f64::from(self.0.fetch_add(1, Ordering::Relaxed));
            let estimate = SpeedEstimate {
                speed_fraction,
                speed_fraction_deviation: 0.0,
                has_heavy_tail: false,
                speed_fraction_low: 0.0,
                speed_fraction_high: 1.0,
                terms: std::sync::Arc::default(),
            };
            Ok(vec![estimate; tenants.len()])
        }
        fn power_watts(&self, _: &[TenantInput<'_>], _: &str) -> Option<f64> {
            None
        }
    }

    #[test]
    fn the_same_is_asked_once_and_whatever_is_not_the_same_is_asked() {
        let model = Counting::default();
        let mut remembered = Remembered::default();
        let profile = |workload, run_count| WorkloadProfile {
            run_count,
            ..WorkloadProfile::empty(workload_key(1, workload), "a100")
        };
        let (a, b, again) = (profile(1, 2), profile(2, 2), profile(1, 3));
        let mps = Sharing::by(Mechanism::Mps, None, None);
        let of = |profile, sharing| TenantInput { profile, sharing };
        let asked = |remembered: &Remembered, tenants: &[TenantInput<'_>], device: &str| {
            let estimates = Remembering { model: &model, remembered }.predict(tenants, device).unwrap();
            assert_eq!(estimates.len(), tenants.len());
            estimates[0].speed_fraction
        };
        let pair = [of(&a, mps), of(&b, mps)];
        let first = asked(&remembered, &pair, "a100");
        assert!((asked(&remembered, &pair, "a100") - first).abs() < 0.5, "remembered");
        let sliced = Sharing::by(Mechanism::TimeSliced, None, None);
        let others: [(&[TenantInput<'_>], &str); 6] = [
            (&pair, "h100"),
            (&[of(&b, mps), of(&a, mps)], "a100"),
            (&[of(&again, mps), of(&b, mps)], "a100"),
            (&[of(&a, mps), of(&b, sliced)], "a100"),
            (&[of(&a, mps)], "a100"),
            (&[of(&a, mps), of(&b, mps), of(&b, mps)], "a100"),
        ];
        for (count, (tenants, device)) in others.into_iter().enumerate() {
            let said = asked(&remembered, tenants, device);
            assert!((said - f64::from(u32::try_from(count).unwrap()) - 1.0).abs() < 0.5, "{count}: {said}");
        }
        // Of four nothing is remembered, and nothing once the model has learnt.
        let four = [pair, pair].concat();
        assert!(asked(&remembered, &four, "a100") + 0.5 < asked(&remembered, &four, "a100"));
        remembered.forget();
        assert!(asked(&remembered, &pair, "a100") > first + 0.5);
    }
}
