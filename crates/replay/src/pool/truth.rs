//! What comes of jobs that share a GPU, in a replay. Nobody has measured it at the site yet, so it is drawn: from what the model
//! says of solo profiles, with all the doubt that it states, in part the same doubt for the whole site. Against measured pairs it
//! is looked up, and then a replay can be held against the truth.

use pillion_core::Fraction;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_pairing::{Contention, InterferenceModel as _, Observation, TenantInput};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// How the doubt about a speed is made up, in standard deviations: what the site's jobs have in common that the model does not
/// know, what a workload has, and what a pair has. Their squares sum to 1.
const SITE_PART: f64 = 0.5;
const WORKLOAD_PART: f64 = 0.5;
const PAIR_PART: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Nobody is slower beside another.
const SPEED_MIN: f64 = 0.02;
/// A profile without the doubt of having seen few runs: it is of this very run.
const RUNS_SEEN: u32 = 100;

/// A job on a device, as what comes of it depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present<'p> {
    /// Its workload, by number.
    pub(crate) workload: u32,
    /// How this very run uses the device alone.
    pub(crate) profile: &'p WorkloadProfile,
    /// How it shares it.
    pub(crate) sharing: Sharing,
}

/// Where what comes of sharing is taken from.
#[derive(Debug, Clone)]
pub enum Truth {
    /// Drawn from the model's own doubt, by this seed.
    Drawn(u64),
    /// What was measured of pairs.
    Measured(MeasuredPairs),
}

impl Truth {
    /// The speed of each, over its speed alone; `None`: they do not fit together.
    pub(crate) fn speeds(&self, tenants: &[Present<'_>]) -> Option<Vec<f64>> {
        match self {
            Self::Drawn(seed) => Some(drawn(*seed, tenants)),
            Self::Measured(pairs) => pairs.speeds(tenants),
        }
    }
}

fn drawn(seed: u64, tenants: &[Present<'_>]) -> Vec<f64> {
    let profiles: Vec<WorkloadProfile> = tenants
        .iter()
        .map(|tenant| WorkloadProfile { run_count: RUNS_SEEN, ..tenant.profile.clone() })
        .collect();
    let inputs: Vec<TenantInput<'_>> = profiles
        .iter()
        .zip(tenants)
        .map(|(profile, tenant)| TenantInput { profile, sharing: tenant.sharing })
        .collect();
    let model = &profiles[0].device_model;
    let Ok(estimates) = Contention.predict(&inputs, model) else {
        // Only what has a profile shares; without one nobody gains by it.
        return vec![1.0 / f64::from(u32::try_from(tenants.len()).unwrap_or(u32::MAX)); tenants.len()];
    };
    let mut all: Vec<u32> = tenants.iter().map(|tenant| tenant.workload).collect();
    all.sort_unstable();
    let site = normal((seed, "site"));
    let speeds = estimates.iter().zip(tenants).map(|(estimate, tenant)| {
        let own = normal((seed, "workload", tenant.workload));
        let pair = normal((seed, "pair", &all, tenant.workload));
        let deviations = SITE_PART * site + WORKLOAD_PART * own + PAIR_PART * pair;
        (estimate.speed_fraction + estimate.speed_fraction_deviation * deviations).clamp(SPEED_MIN, 1.0)
    });
    if tenants.len() == 1 {
        // Alone under a cap nobody else matters.
        return estimates.iter().map(|estimate| estimate.speed_fraction).collect();
    }
    speeds.collect()
}

/// Of a standard normal distribution, the same for the same subject.
fn normal(subject: impl Hash) -> f64 {
    let mut hasher = rustc_hash::FxHasher::default();
    subject.hash(&mut hasher);
    StandardNormal.sample(&mut ChaCha8Rng::seed_from_u64(hasher.finish()))
}

/// A cap in thousandths; 1000: none.
fn thousandths(cap: Option<Fraction>) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction is 0 to 1")]
    cap.map_or(1000, |cap| (cap.value() * 1000.0).round() as u16)
}

type End = (u32, u16);

/// What was measured of pairs: which workload of theirs each workload of the replay is, and how fast two of them ran.
#[derive(Debug, Clone, Default)]
pub struct MeasuredPairs {
    /// By number of the replay's workload, the number of the measured one.
    kind_of: FxHashMap<u32, u32>,
    speeds: FxHashMap<(End, End), Option<[f64; 2]>>,
}

impl MeasuredPairs {
    /// `kinds`: the measured workloads by name; `kind_of`: which of them each workload of the replay is.
    pub fn new(observations: &[Observation], kinds: &[String], kind_of: FxHashMap<u32, u32>) -> Self {
        let number =
            |name: &str| kinds.iter().position(|kind| kind == name).and_then(|at| u32::try_from(at).ok());
        let mut speeds = FxHashMap::default();
        for seen in observations {
            let [a, b] = &seen.tenants[..] else { continue };
            let (Some(kind_a), Some(kind_b)) = (number(a.workload.as_str()), number(b.workload.as_str()))
            else {
                continue;
            };
            let (end_a, end_b) =
                ((kind_a, thousandths(a.sharing.cap())), (kind_b, thousandths(b.sharing.cap())));
            let both = a.speed_fraction.zip(b.speed_fraction).filter(|_| seen.fits);
            if seen.fits && both.is_none() {
                continue;
            }
            let both = both.map(|(a, b)| [a.clamp(SPEED_MIN, 1.0), b.clamp(SPEED_MIN, 1.0)]);
            speeds.insert((end_a, end_b), both);
            speeds.insert((end_b, end_a), both.map(|[a, b]| [b, a]));
        }
        Self { kind_of, speeds }
    }

    fn speeds(&self, tenants: &[Present<'_>]) -> Option<Vec<f64>> {
        let end = |tenant: &Present<'_>| {
            Some((*self.kind_of.get(&tenant.workload)?, thousandths(tenant.sharing.cap())))
        };
        match tenants {
            [_] => Some(vec![1.0]),
            [a, b] => {
                let found = end(a).zip(end(b)).and_then(|ends| self.speeds.get(&ends).copied());
                found.flatten().map(Vec::from)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::WorkloadKey;
    use pillion_core::device::Mechanism;
    use pillion_core::metric::{Metric, Metrics};

    fn profile(busy: f64) -> WorkloadProfile {
        let metrics = Metrics::from([(Metric::GpuBusyFraction, busy)]);
        WorkloadProfile { metrics, ..WorkloadProfile::empty(WorkloadKey::new("u/w"), "a100") }
    }

    #[test]
    fn what_is_drawn_is_the_same_again_and_other_with_another_seed() {
        let (light, heavy) = (profile(0.2), profile(0.9));
        let sharing = Sharing::by(Mechanism::Mps, None, None);
        let present = |workload, profile| Present { workload, profile, sharing };
        let pair = [present(1, &light), present(2, &heavy)];
        let turned = [present(2, &heavy), present(1, &light)];
        let speeds = Truth::Drawn(7).speeds(&pair).unwrap();
        let mut back = Truth::Drawn(7).speeds(&turned).unwrap();
        back.reverse();
        assert_eq!(speeds, back);
        assert_ne!(Some(speeds), Truth::Drawn(8).speeds(&pair));
        let of_many: Vec<f64> = (0..200).map(|seed| Truth::Drawn(seed).speeds(&pair).unwrap()[0]).collect();
        assert!(of_many.iter().all(|speed| (SPEED_MIN..=1.0).contains(speed)));
        assert!(of_many.iter().any(|speed| *speed < 0.8) && of_many.iter().any(|speed| *speed > 0.95));
    }
}
