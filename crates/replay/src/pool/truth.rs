//! What comes of jobs that share a GPU, in a replay. Nobody has measured it at the site yet, so it is drawn: from how fast jobs
//! that were as busy ran beside each other where that was published, in part with the same luck for the whole site. The planner
//! knows nothing of it: it believes its own model, and where that is too bold, promises break here as they would there. Against
//! measured pairs it is looked up, and then a replay can be held against the truth.

use pillion_core::device::Mechanism;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use pillion_core::{Fraction, SlowdownRatio};
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
    /// Drawn from what was published of jobs as busy, by this seed.
    Drawn(u64),
    /// What was measured of pairs.
    Measured(MeasuredPairs),
}

impl Truth {
    /// The speed of each, over its speed alone; `None`: they do not fit together. `foretold`: of these tenants.
    pub(crate) fn speeds(&self, tenants: &[Present<'_>], foretold: &Foretold) -> Option<Vec<f64>> {
        match self {
            Self::Drawn(seed) => Some(drawn(*seed, tenants, foretold)),
            Self::Measured(pairs) => pairs.speeds(tenants),
        }
    }
}

/// How fast jobs ran beside each other under MPS without caps, by the sum of the parts of the time in which they keep a GPU busy
/// alone.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedsByBusy {
    /// That sum, and the speed there: from the least sum to the greatest.
    rows: Vec<(f64, Speed)>,
}

/// Sums that rows are made for.
const BUSY_SUMS: [f64; 8] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0];
/// With fewer speeds no row is made.
const SPEEDS_MIN: usize = 5;

impl SpeedsByBusy {
    /// 722 measured speeds of pairs on a V100 (KACE), put together in steps of a quarter
    /// (docs/decisions/0021-replay-claims-a-difference.md): the mean and the standard deviation at each of [`BUSY_SUMS`].
    pub fn published() -> Self {
        let speeds = [
            (0.987, 0.011),
            (0.943, 0.065),
            (0.923, 0.091),
            (0.887, 0.115),
            (0.868, 0.171),
            (0.797, 0.194),
            (0.711, 0.179),
            (0.560, 0.206),
        ];
        let speeds = speeds.map(|(mean, deviation)| Speed { mean, deviation });
        Self { rows: BUSY_SUMS.into_iter().zip(speeds).collect() }
    }

    /// The same of other speeds: for each job the sum of what it and its neighbour are busy alone, and its speed beside it. `None`
    /// where there are too few of them.
    pub fn of(measured: &[(f64, f64)]) -> Option<Self> {
        let rows = BUSY_SUMS.into_iter().filter_map(|sum| {
            let is_near =
                |other: f64| BUSY_SUMS.into_iter().all(|row| (row - other).abs() >= (sum - other).abs());
            let near: Vec<f64> =
                measured.iter().filter(|(other, _)| is_near(*other)).map(|(_, speed)| *speed).collect();
            #[expect(clippy::cast_precision_loss, reason = "a count of measurements")]
            let count = near.len() as f64;
            let mean = near.iter().sum::<f64>() / count;
            let variance = near.iter().map(|speed| (speed - mean).powi(2)).sum::<f64>() / (count - 1.0);
            (near.len() >= SPEEDS_MIN).then(|| (sum, Speed { mean, deviation: variance.sqrt() }))
        });
        let rows: Vec<(f64, Speed)> = rows.collect();
        (!rows.is_empty()).then_some(Self { rows })
    }

    /// Between two rows it is between them; beyond the last, more than two take turns at what two had.
    fn at(&self, sum: f64) -> Speed {
        let at = self.rows.iter().position(|(busy, _)| *busy >= sum).unwrap_or(self.rows.len());
        let (last, before) = self.rows[at.saturating_sub(1)];
        let Some((next, behind)) = self.rows.get(at) else {
            return Speed { mean: before.mean * last / sum, ..before };
        };
        let part = if *next > last { (sum - last) / (next - last) } else { 0.0 };
        Speed {
            mean: before.mean + part * (behind.mean - before.mean),
            deviation: before.deviation + part * (behind.deviation - before.deviation),
        }
    }
}

/// Compute units in use over busy time, the median of 29 of these workloads: where busy time is not known.
const UNITS_OF_BUSY: f64 = 0.62;

/// A speed that is not known: its mean and standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed {
    mean: f64,
    deviation: f64,
}

fn busy(profile: &WorkloadProfile) -> f64 {
    let units = profile.metrics.get(Metric::SmActiveFraction).map(|units| (units / UNITS_OF_BUSY).min(1.0));
    profile.metrics.get(Metric::GpuBusyFraction).or(units).unwrap_or(1.0)
}

/// What is known of the speed of each of several; nothing of one alone.
#[derive(Debug, Clone)]
pub(crate) struct Foretold(Vec<Speed>);

impl Foretold {
    /// By what was measured of others.
    pub(crate) fn of(tenants: &[Present<'_>], speeds: &SpeedsByBusy) -> Self {
        if tenants.len() < 2 {
            return Self(Vec::new());
        }
        let of_all = speeds.at(tenants.iter().map(|tenant| busy(tenant.profile)).sum());
        let is_uncapped =
            |tenant: &Present<'_>| tenant.sharing.mechanism().can_cap() && tenant.sharing.cap().is_none();
        if tenants.iter().all(is_uncapped) {
            // As those were of whom it was published.
            return Self(vec![of_all; tenants.len()]);
        }
        let uncapped: Vec<Sharing> = tenants
            .iter()
            .map(|tenant| Sharing::by(tenant.sharing.mechanism(), None, tenant.sharing.ccs_mode()))
            .collect();
        let (as_is, without) = (modelled(tenants, None), modelled(tenants, Some(&uncapped)));
        let each = as_is.into_iter().zip(without).zip(tenants).map(|((as_is, without), tenant)| {
            let mean = match tenant.sharing.mechanism() {
                // What a cap does to a speed only the model says.
                Mechanism::Mps => of_all.mean * as_is / without.max(SPEED_MIN),
                // Of other ways nothing was published; they do no better.
                Mechanism::Ccs | Mechanism::Mig | Mechanism::MigMps | Mechanism::TimeSliced => {
                    of_all.mean.min(as_is)
                }
            };
            Speed { mean: mean.min(1.0), ..of_all }
        });
        Self(each.collect())
    }

    /// How probably each is slower than promised, added up.
    pub(crate) fn risk(&self, promise: SlowdownRatio) -> f64 {
        let least = promise.value().recip();
        let of_one = |speed: &Speed| {
            0.5 * libm::erfc((speed.mean - least) / speed.deviation.max(1e-6) / std::f64::consts::SQRT_2)
        };
        self.0.iter().map(of_one).sum()
    }
}

/// Speeds by the model of profiles alone; 1 where it knows nothing.
fn modelled(tenants: &[Present<'_>], sharings: Option<&[Sharing]>) -> Vec<f64> {
    let inputs: Vec<TenantInput<'_>> = tenants
        .iter()
        .enumerate()
        .map(|(at, tenant)| TenantInput {
            profile: tenant.profile,
            sharing: sharings.map_or(tenant.sharing, |sharings| sharings[at]),
        })
        .collect();
    let estimates = Contention.predict(&inputs, &tenants[0].profile.device_model);
    estimates
        .map_or_else(|_| vec![1.0; tenants.len()], |all| all.iter().map(|own| own.speed_fraction).collect())
}

fn drawn(seed: u64, tenants: &[Present<'_>], foretold: &Foretold) -> Vec<f64> {
    if tenants.len() == 1 {
        // Alone under a cap nobody else matters.
        return modelled(tenants, None);
    }
    let mut all: Vec<u32> = tenants.iter().map(|tenant| tenant.workload).collect();
    all.sort_unstable();
    let site = normal((seed, "site"));
    let speeds = foretold.0.iter().zip(tenants).map(|(speed, tenant)| {
        let own = normal((seed, "workload", tenant.workload));
        let pair = normal((seed, "pair", &all, tenant.workload));
        let deviations = SITE_PART * site + WORKLOAD_PART * own + PAIR_PART * pair;
        (speed.mean + speed.deviation * deviations).clamp(SPEED_MIN, 1.0)
    });
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
    use pillion_core::metric::Metrics;

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
        let published = SpeedsByBusy::published();
        let drawn = |seed, tenants: &[Present<'_>]| {
            Truth::Drawn(seed).speeds(tenants, &Foretold::of(tenants, &published)).unwrap()
        };
        let speeds = drawn(7, &pair);
        let mut back = drawn(7, &turned);
        back.reverse();
        assert_eq!(speeds, back);
        assert_ne!(speeds, drawn(8, &pair));
        let of_many: Vec<f64> = (0..200).map(|seed| drawn(seed, &pair)[0]).collect();
        assert!(of_many.iter().all(|speed| (SPEED_MIN..=1.0).contains(speed)));
        let promise = SlowdownRatio::try_promise(1.25).unwrap();
        assert!(
            Foretold::of(&pair, &published).risk(promise) > 0.5
                && Foretold::of(&[pair[0], pair[0]], &published).risk(promise) < 0.3,
            "the busier the riskier"
        );
        assert!(of_many.iter().any(|speed| *speed < 0.8) && of_many.iter().any(|speed| *speed > 0.95));
    }

    #[test]
    fn other_measurements_are_put_together_in_the_same_way() {
        let near = |sum: f64, speed: f64| {
            (0..6).map(move |at| (sum + f64::from(at) * 0.01, speed + f64::from(at % 2) * 0.1))
        };
        let measured: Vec<(f64, f64)> = near(0.5, 0.9).chain(near(1.5, 0.5)).chain([(1.0, 0.1)]).collect();
        let speeds = SpeedsByBusy::of(&measured).unwrap();
        let close = |speed: Speed, mean: f64| (speed.mean - mean).abs() < 1e-9;
        assert!(close(speeds.at(0.5), 0.95) && close(speeds.at(1.5), 0.55), "{speeds:?}");
        assert!(close(speeds.at(1.0), 0.75), "one speed is no row: {speeds:?}");
        assert!(close(speeds.at(0.0), 0.95) && close(speeds.at(3.0), 0.275), "{speeds:?}");
        assert!(SpeedsByBusy::of(&measured[..3]).is_none());
        assert!(close(SpeedsByBusy::published().at(1.75), 0.6355));
    }
}
