//! What is known on one device model under one mechanism, and what it says of tenants.

use super::calibrate::{Calibration, Novelty};
use super::columns::Columns;
use super::effects::{Actor, Effects, Group, Kind};
use super::fact::{Combinations, Fact, rows};
use super::features::FeatureSpace;
use super::fit::{Evidence, Posterior};
use super::misfits::Misfits;
use super::prior::{self, Appetite, Expected};
use super::row::Variances;
use super::solo_curve::NOISE_FRACTION;
use crate::model::interface::{Hope, TenantInput, Terms};
use pillion_core::WorkloadKey;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// The fastest and the slowest that anybody is expected to be beside others.
const SPEEDS: (f64, f64) = (0.02, 0.99);
/// Slow tenants are measured no more exactly than this.
const NOISE_SPEED_MIN: f64 = 0.3;
/// With fewer measured speeds than these, variances are what was expected of them.
const FACTS_FEW: usize = 40;
/// Device power at rest, of the least solo power: profiles do not tell it.
const POWER_IDLE_FRACTION: f64 = 0.3;
/// A workload that was seen this often is half as new as one never seen.
const NOVELTY_HALF_COUNT: f64 = 12.0;

/// What is stored; the posterior follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) space: FeatureSpace,
    pub(super) workloads: Vec<WorkloadKey>,
    pub(super) families: Vec<String>,
    pub(super) facts: Vec<Fact>,
    pub(super) variances: Vec<(Group, f64)>,
    pub(super) noise: f64,
    pub(super) calibration: Calibration,
    pub(super) misfits: Misfits,
    /// Measured power over what the profiles alone say.
    pub(super) power_ratio: f64,
}

/// Everything that a prediction needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", from = "Stored")]
pub(super) struct Knowledge {
    stored: Stored,
    columns: Columns,
    combinations: Combinations,
    /// What was measured itself: combination, own cap, and how much is shared.
    measured: FxHashSet<(usize, u64, u64)>,
    variances: Variances,
    posterior: Option<Posterior>,
    workloads: FxHashMap<WorkloadKey, u32>,
    families: FxHashMap<String, u32>,
    /// How often each workload and each family was seen, kept apart from others and together with them.
    seen: (Vec<[f64; 2]>, Vec<[f64; 2]>),
}

impl From<Knowledge> for Stored {
    fn from(knowledge: Knowledge) -> Self {
        knowledge.stored
    }
}

/// A speed that is possible beside others.
pub(super) fn bounded(speed_fraction: f64) -> f64 {
    speed_fraction.clamp(SPEEDS.0, SPEEDS.1)
}

/// What a measurement of this speed may be off by.
pub(super) fn noise_of(speed_fraction: f64) -> f64 {
    NOISE_FRACTION * speed_fraction.clamp(NOISE_SPEED_MIN, 1.0)
}

impl From<Stored> for Knowledge {
    fn from(stored: Stored) -> Self {
        let (rows, columns, combinations) = rows(&stored.facts);
        let measured = stored.facts.iter().map(|fact| (combinations[&fact.combination()], &fact.expected));
        let measured =
            measured.map(|(number, (_, _, overlap, cap))| (number, cap.to_bits(), overlap.to_bits()));
        let measured = measured.collect();
        let variances =
            Variances { of_group: stored.variances.iter().copied().collect(), noise: stored.noise };
        let posterior = Evidence::of(rows.iter(), &columns.layout).into_posterior(&variances);
        let mut seen = (vec![[0.0; 2]; stored.workloads.len()], vec![[0.0; 2]; stored.families.len()]);
        for fact in &stored.facts {
            let overlap = fact.expected().overlap;
            for (workload, family, _) in &fact.actors {
                let of_workload = std::iter::once(&mut seen.0[*workload as usize]);
                for count in of_workload.chain(family.map(|family| &mut seen.1[family as usize])) {
                    *count = [count[0] + 1.0 - overlap, count[1] + overlap];
                }
            }
        }
        let workloads = (0..).zip(&stored.workloads).map(|(number, key)| (key.clone(), number)).collect();
        let families = (0..).zip(&stored.families).map(|(number, name)| (name.clone(), number)).collect();
        Self { stored, columns, combinations, measured, variances, posterior, workloads, families, seen }
    }
}

/// What is predicted of one tenant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prediction {
    pub(super) speed_fraction: f64,
    /// Whether truths far off are frequent: who wins where tenants meet on the same units is not a matter of degree.
    pub(super) has_heavy_tail: bool,
    /// For the bound that is stated.
    pub(super) deviation_bound: f64,
    /// For the risk of a broken promise.
    pub(super) deviation_tail: f64,
    pub(super) terms: Terms,
}

/// What one tenant feels of the others.
struct Felt {
    /// Amounts of effects that have a column.
    known: Vec<(usize, f64)>,
    /// Variance of those that have none.
    unseen: f64,
    /// Amounts of the combination's own effect.
    pair: [f64; 2],
    /// What is expected of all but the combination's own, in units of speed, by name.
    means: [f64; TERMS.len()],
}

impl Felt {
    /// The speed that is expected, but for the combination's own effect.
    fn speed_fraction(&self, expected: &Expected) -> f64 {
        bounded(expected.speed_fraction + self.means.iter().sum::<f64>())
    }
}

impl Knowledge {
    fn actor(&self, profile: &WorkloadProfile, appetite: &Appetite) -> Actor {
        Actor {
            workload: self.workloads.get(&profile.workload).copied(),
            family: profile.family.as_ref().map(|family| self.families.get(family).copied()),
            point: self.stored.space.point(profile, appetite),
        }
    }

    /// How new a workload is to tenants that share so much: 0 = often seen, 1 = never; and which kind of novelty that is.
    fn novelty(&self, actor: &Actor, overlap: f64) -> (f64, Novelty) {
        let seen = actor.workload.map(|workload| self.seen.0[workload as usize]);
        let of_family = actor.family.flatten().map(|family| self.seen.1[family as usize]);
        let [seen, of_family] = [seen, of_family].map(|counts| {
            counts.map_or(0.0, |[apart, together]| apart * (1.0 - overlap) + together * overlap)
        });
        let novelty = if of_family > seen { Novelty::Workload } else { Novelty::Family };
        (NOVELTY_HALF_COUNT / (NOVELTY_HALF_COUNT + seen), novelty)
    }

    pub(super) fn predict(&self, tenants: &[TenantInput<'_>]) -> Vec<Prediction> {
        self.predict_if(tenants, None).unwrap_or_default()
    }

    /// With a hope, without terms; `None` where the expected speeds alone leave none.
    pub(super) fn predict_if(
        &self,
        tenants: &[TenantInput<'_>],
        hope: Option<&Hope<'_>>,
    ) -> Option<Vec<Prediction>> {
        let appetites: Vec<Appetite> = tenants.iter().map(Appetite::of_tenant).collect();
        let caps: Vec<f64> = tenants.iter().map(prior::cap).collect();
        let actors: Vec<Actor> = tenants
            .iter()
            .zip(&appetites)
            .map(|(tenant, appetite)| self.actor(tenant.profile, appetite))
            .collect();
        let expected: Vec<Expected> =
            (0..tenants.len()).map(|own| prior::expected(&appetites, &caps, own)).collect();
        if let [own] = &expected[..] {
            return Some(vec![alone(own)]);
        }
        let combinations: Vec<Option<usize>> =
            (0..actors.len()).map(|own| self.combination(&actors, own)).collect();
        let felt: Vec<Felt> =
            expected.iter().enumerate().map(|(own, expected)| self.felt(&actors, own, expected)).collect();
        let is_new = combinations.iter().any(Option::is_none);
        // What is particular about the combination is not in the means yet, and what speeds exceed together only slows.
        if let Some(hope) = hope.filter(|_| combinations.iter().all(Option::is_none))
            && !hope.allows(felt.iter().zip(&expected).map(|(felt, expected)| felt.speed_fraction(expected)))
        {
            return None;
        }
        let tenants = felt.into_iter().zip(&expected).zip(&combinations);
        let mut predictions: Vec<Prediction> = tenants
            .map(|((felt, expected), combination)| {
                self.predict_one(&actors, felt, *combination, expected, hope.is_none())
            })
            .collect();
        if is_new {
            let speeds: Vec<f64> = predictions.iter().map(|tenant| tenant.speed_fraction).collect();
            let excess = prior::excess(&appetites, &speeds);
            for (tenant, expected) in predictions.iter_mut().zip(&expected) {
                tenant.speed_fraction /= 1.0 + (excess - 1.0) * expected.overlap;
            }
        }
        Some(predictions)
    }

    fn felt(&self, actors: &[Actor], own: usize, expected: &Expected) -> Felt {
        let others: Vec<&Actor> =
            actors.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, actor)| actor).collect();
        let effects = Effects::on(&actors[own], &others, expected);
        let scale = expected.doubt;
        let mut known: Vec<(usize, f64)> = Vec::with_capacity(effects.known.len());
        let mut unseen: f64 =
            effects.unseen.iter().map(|(group, square)| square * self.variances.of(*group)).sum();
        let mut means = [0.0; TERMS.len()];
        for (column, amount) in &effects.known {
            let Some(place) = self.columns.place(column) else {
                unseen += amount * amount * self.variances.of(column.group());
                continue;
            };
            known.push((place, *amount));
            if let Some(posterior) = &self.posterior {
                means[term(column.group().0)] += scale * amount * posterior.mean_of(place);
            }
        }
        Felt { known, unseen, pair: effects.pair, means }
    }

    fn predict_one(
        &self,
        actors: &[Actor],
        felt: Felt,
        combination: Option<usize>,
        expected: &Expected,
        wants_terms: bool,
    ) -> Prediction {
        let Felt { mut known, unseen, pair, means } = felt;
        let scale = expected.doubt;
        if combination.is_some() {
            known.sort_unstable_by_key(|(place, _)| *place);
        }
        let (mean, variance, of_pair) = match &self.posterior {
            Some(posterior) => {
                let predicted = posterior.predict(&known, pair, combination, &self.variances);
                (predicted.mean, predicted.variance, predicted.of_pair)
            }
            None => (0.0, 0.0, 0.0),
        };
        let speed_fraction = bounded(expected.speed_fraction + scale * mean);
        let is_measured = combination.is_some_and(|number| {
            self.measured.contains(&(number, expected.cap.to_bits(), expected.overlap.to_bits()))
        });
        // What was measured itself needs no allowance for what is particular about it.
        let noise = if is_measured { 0.0 } else { self.variances.noise * noise_of(speed_fraction).powi(2) };
        let deviation = (scale * scale * (variance + unseen) + noise).sqrt();
        let mut stretch = self.stretch(actors, expected.overlap, speed_fraction);
        if is_measured {
            // How well others are predicted makes a measurement no more exact.
            stretch = (stretch.0.max(1.0), stretch.1.max(1.0));
        }
        let mut terms = Terms::new();
        if wants_terms {
            let named = TERMS.iter().zip(means).filter(|(_, mean)| *mean != 0.0);
            terms.extend(named.map(|(name, mean)| ((*name).into(), mean)));
            terms.insert("prior".into(), expected.speed_fraction);
            terms.insert("pair".into(), scale * of_pair);
            terms.insert("deviation".into(), deviation * stretch.0);
        }
        Prediction {
            speed_fraction,
            has_heavy_tail: expected.overlap > 0.0 && !is_measured,
            deviation_bound: deviation * stretch.0,
            deviation_tail: deviation * stretch.1,
            terms,
        }
    }

    /// Stretches of the newest tenant, in proportion to how new it is.
    fn stretch(&self, actors: &[Actor], overlap: f64, predicted: f64) -> (f64, f64) {
        let newest =
            actors.iter().map(|actor| self.novelty(actor, overlap)).max_by(|a, b| a.0.total_cmp(&b.0));
        let (part, novelty) = newest.unwrap_or((1.0, Novelty::Family));
        let seen = self.stored.calibration.stretch(Novelty::Pairing, overlap, predicted);
        let new = self.stored.calibration.stretch(novelty, overlap, predicted);
        let mixed = seen.mixed(new, part);
        (mixed.bound, mixed.tail)
    }

    /// The device's mean power: at rest, and what each tenant adds to that alone, in proportion to its speed; times what
    /// was measured of such sums.
    pub(super) fn power_watts(&self, tenants: &[TenantInput<'_>]) -> Option<f64> {
        let speeds: Vec<f64> =
            self.predict(tenants).iter().map(|prediction| prediction.speed_fraction).collect();
        Some(self.stored.power_ratio * added_power(tenants, &speeds)?)
    }

    /// The number of each tenant's workload; `None` for one that was never observed.
    fn numbers(&self, tenants: &[TenantInput<'_>]) -> impl Iterator<Item = Option<u32>> {
        tenants.iter().map(|tenant| self.workloads.get(&tenant.profile.workload).copied())
    }

    /// Whether little was observed, but these very workloads were.
    pub(super) fn has_few_facts_but(&self, tenants: &[TenantInput<'_>]) -> bool {
        let Some(numbers) = self.numbers(tenants).collect::<Option<Vec<u32>>>() else { return false };
        let is_tried = (0..numbers.len()).all(|own| {
            let others = numbers.iter().enumerate().filter(|(at, _)| *at != own);
            let mut others: Vec<u32> = others.map(|(_, number)| *number).collect();
            others.sort_unstable();
            self.combinations.contains_key(&(numbers[own], others))
        });
        self.stored.facts.len() < FACTS_FEW && is_tried
    }

    /// Whether little was observed, none of these workloads among it, and the throughput of none under caps is known.
    pub(super) fn is_new_to(&self, tenants: &[TenantInput<'_>]) -> bool {
        let are_new = tenants.iter().all(|tenant| {
            !self.workloads.contains_key(&tenant.profile.workload)
                && tenant.profile.throughput_per_second_at_cap.iter().all(Option::is_none)
        });
        self.stored.facts.len() < FACTS_FEW && are_new
    }

    pub(super) fn misfit_probability(&self, tenants: &[TenantInput<'_>]) -> f64 {
        self.stored.misfits.probability(&self.numbers(tenants).collect::<Vec<_>>())
    }

    fn combination(&self, actors: &[Actor], own: usize) -> Option<usize> {
        let workload = actors[own].workload?;
        let others = actors.iter().enumerate().filter(|(at, _)| *at != own);
        let mut others: Vec<u32> = others.map(|(_, actor)| actor.workload).collect::<Option<_>>()?;
        others.sort_unstable();
        self.combinations.get(&(workload, others)).copied()
    }
}

/// What the profiles alone say of the power of tenants that run at these speeds.
pub(super) fn added_power(tenants: &[TenantInput<'_>], speeds: &[f64]) -> Option<f64> {
    let solo: Option<Vec<f64>> =
        tenants.iter().map(|tenant| tenant.profile.metrics.get(Metric::PowerWatts)).collect();
    let solo = solo?;
    let idle = solo.iter().copied().reduce(f64::min)? * POWER_IDLE_FRACTION;
    Some(idle + solo.iter().zip(speeds).map(|(watts, speed)| speed * (watts - idle)).sum::<f64>())
}

/// A tenant without neighbours is as fast as its cap lets it be.
fn alone(expected: &Expected) -> Prediction {
    let deviation = if expected.cap < 1.0 { NOISE_FRACTION.hypot(expected.solo_deviation) } else { 0.0 };
    Prediction {
        speed_fraction: expected.speed_fraction,
        has_heavy_tail: false,
        deviation_bound: deviation,
        deviation_tail: deviation,
        terms: [("prior".into(), expected.speed_fraction)].into(),
    }
}

/// What effects are called in explanations.
const TERMS: [&str; 4] = ["model", "profiles", "workloads", "families"];

/// Under which of these names a kind of effect goes. That of the very combination has its own.
fn term(kind: Kind) -> usize {
    match kind {
        Kind::All | Kind::Pair => 0,
        Kind::UseStrength
        | Kind::VictimProfile
        | Kind::AggressorProfile
        | Kind::Profiles
        | Kind::ProfileCap => 1,
        Kind::Victim | Kind::Aggressor | Kind::VictimCap | Kind::Solo | Kind::Strength => 2,
        Kind::FamilyStrength
        | Kind::VictimFamily
        | Kind::AggressorFamily
        | Kind::Families
        | Kind::FamilySizes
        | Kind::Alike
        | Kind::AlikeFamily => 3,
    }
}
