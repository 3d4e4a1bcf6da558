//! From observations to knowledge: facts, variances, and how far to trust them.

use super::calibrate::{Calibration, Sample};
use super::columns::Layout;
use super::fact::{Fact, rows};
use super::features::{FeatureSpace, Point};
use super::fit::Evidence;
use super::knowledge::{Knowledge, Stored, added_power, bounded, noise_of};
use super::misfits::Misfits;
use super::prior::{self, Appetite};
use super::row::{Row, Variances};
use crate::history::{Observation, ObservedTenant};
use crate::model::interface::TenantInput;
use crate::view::ProfileBook;
use pillion_core::WorkloadKey;
use pillion_core::profile::WorkloadProfile;
use pillion_core::share::Sharing;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of expectation maximisation.
const ITERATIONS: usize = 8;
/// Folds for pairings and for workloads; families are left out one by one, at most so many.
const FOLDS: usize = 5;
const FAMILY_FOLDS_MAX: usize = 8;
/// How many measurements of power the profiles count for.
const POWER_PRIOR_WEIGHT: f64 = 3.0;
/// Speeds above this are noise.
const SPEED_CLIP: f64 = 1.02;
/// No measurement is more exact than this.
const DEVIATION_MIN: f64 = 0.01;
/// So many facts of one user may teach of all however few others there are.
const OWNER_FACTS_MIN: usize = 40;
/// Variances and trust are learnt from at most so many workloads: they are numbers that hold for all.
const SAMPLED_WORKLOADS_MAX: usize = 80;

/// Whose a workload is, so that one user's jobs do not decide what holds for all
/// (docs/principles.md#learning).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owners {
    /// Nobody's in particular: on files, where names are what they are.
    #[default]
    Unknown,
    /// The user's before the slash in its key: on a cluster.
    InKeys,
}

impl Owners {
    fn of(self, workload: &WorkloadKey) -> Option<&str> {
        match self {
            Self::Unknown => None,
            Self::InKeys => workload.as_str().split_once('/').map(|(owner, _)| owner),
        }
    }
}

/// Workloads and families by number, in the order in which they were first seen.
#[derive(Default)]
struct Names {
    workloads: Vec<WorkloadKey>,
    families: Vec<String>,
    workload_numbers: BTreeMap<WorkloadKey, u32>,
    family_numbers: BTreeMap<String, u32>,
}

impl Names {
    fn workload(&mut self, key: &WorkloadKey) -> u32 {
        *self.workload_numbers.entry(key.clone()).or_insert_with(|| {
            self.workloads.push(key.clone());
            last(self.workloads.len())
        })
    }

    fn family(&mut self, name: &str) -> u32 {
        *self.family_numbers.entry(name.to_owned()).or_insert_with(|| {
            self.families.push(name.to_owned());
            last(self.families.len())
        })
    }
}

/// Learns from observations on one device model under one mechanism.
pub(super) fn train(profiles: &ProfileBook, observations: &[&Observation], owners: Owners) -> Knowledge {
    let device_model = observations.first().map(|observation| observation.device_model.as_str());
    let is_time_sliced =
        observations.first().is_some_and(|observation| observation.sharing().is_time_sliced());
    let known: Vec<(&WorkloadProfile, Appetite)> = profiles
        .iter()
        .filter(|profile| device_model.is_none_or(|model| profile.device_model == model))
        .map(|profile| (profile, Appetite::of(profile, is_time_sliced)))
        .collect();
    let space = FeatureSpace::of(&known);
    let mut names = Names::default();
    let mut facts = facts(profiles, observations, &space, &mut names);
    bound_owners(&mut facts, &names.workloads, owners);
    let misfits = misfits(observations, &mut names);
    let sampled = sampled(of_everybody(&facts, &names.workloads, owners), names.workloads.len());
    let (rows, columns, _) = rows(&sampled);
    let variances = Evidence::of(rows.iter(), &columns.layout).variances(ITERATIONS);
    let calibration = calibrated(&sampled, &rows, &columns.layout, &variances);
    drop((sampled, rows, columns));
    Knowledge::from(Stored {
        space,
        workloads: names.workloads,
        families: names.families,
        facts,
        variances: variances.of_group.into_iter().collect(),
        noise: variances.noise,
        calibration,
        misfits,
        power_ratio: power_ratio(profiles, observations),
    })
}

/// Measured speeds, equal circumstances made one.
fn facts(
    profiles: &ProfileBook,
    observations: &[&Observation],
    space: &FeatureSpace,
    names: &mut Names,
) -> Vec<Fact> {
    let mut means: BTreeMap<Circumstances, Mean> = BTreeMap::new();
    let mut order: Vec<Circumstances> = Vec::new();
    for observation in
        observations.iter().filter(|observation| observation.fits && observation.tenants.len() > 1)
    {
        let device_model = observation.device_model.as_str();
        let nothing: Vec<WorkloadProfile> = observation
            .tenants
            .iter()
            .map(|tenant| WorkloadProfile::empty(tenant.workload.clone(), device_model))
            .collect();
        let found: Vec<&WorkloadProfile> = observation
            .tenants
            .iter()
            .zip(&nothing)
            .map(|(tenant, nothing)| profiles.get(&tenant.workload, device_model).unwrap_or(nothing))
            .collect();
        let inputs: Vec<TenantInput<'_>> = found
            .iter()
            .zip(&observation.tenants)
            .map(|(profile, tenant)| TenantInput { profile, sharing: tenant.sharing })
            .collect();
        let appetites: Vec<Appetite> = inputs.iter().map(Appetite::of_tenant).collect();
        let caps: Vec<f64> = inputs.iter().map(prior::cap).collect();
        for (own, tenant) in observation.tenants.iter().enumerate() {
            let Some(speed) = tenant.speed_fraction.filter(|speed| *speed > 0.0) else { continue };
            let places = std::iter::once(own).chain((0..found.len()).filter(|other| *other != own));
            let actors: Vec<_> = places
                .map(|at| {
                    let workload = names.workload(&found[at].workload);
                    let family = found[at].family.as_ref().map(|family| names.family(family));
                    (workload, family, space.point(found[at], &appetites[at]))
                })
                .collect();
            let expected = prior::expected(&appetites, &caps, own);
            let key = circumstances(observation, own, tenant);
            let mean = means.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                let solo_deviation = expected.solo_deviation;
                let expected = (expected.speed_fraction, expected.doubt, expected.overlap, expected.cap);
                let is_shared = !tenant.is_self_reported;
                Mean { actors, expected, solo_deviation, is_shared, ..Mean::default() }
            });
            mean.add(speed.min(SPEED_CLIP), observation);
        }
    }
    order.iter().filter_map(|key| means.get(key)).map(Mean::fact).collect()
}

/// One user's workloads teach of all no more than everybody else's do (docs/principles.md#learning), or than a few: the
/// oldest beyond that teach of themselves only.
fn bound_owners(facts: &mut [Fact], workloads: &[WorkloadKey], owners: Owners) {
    let owned = facts.iter().map(|fact| owner(fact, workloads, owners).filter(|_| fact.is_shared));
    let is_surplus = beyond_share(&owned.collect::<Vec<_>>());
    for (fact, is_surplus) in facts.iter_mut().zip(is_surplus) {
        fact.is_shared &= !is_surplus;
    }
}

/// The facts that say how exact measurements and estimates are: those that teach of all. Where there are hardly any, because programs
/// count their own steps and nothing else is measured, others as well, of each user no more than everybody else has.
fn of_everybody(facts: &[Fact], workloads: &[WorkloadKey], owners: Owners) -> Vec<Fact> {
    let shared_count = facts.iter().filter(|fact| fact.is_shared).count();
    let mut left: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    if shared_count < OWNER_FACTS_MIN {
        for fact in facts {
            *left.entry(owner(fact, workloads, owners)).or_default() += 1;
        }
        // Whoever is alone decides for nobody else.
        let is_one = left.len() == 1;
        for own in left.values_mut().filter(|_| !is_one) {
            *own = facts.len() - *own;
        }
    }
    let mut taken: Vec<Fact> = Vec::new();
    // The newest first.
    for fact in facts.iter().rev() {
        let others = left.get_mut(&owner(fact, workloads, owners));
        let is_within = others.filter(|left| **left > 0).map(|left| *left -= 1).is_some();
        if fact.is_shared || is_within {
            taken.push(fact.clone());
        }
    }
    taken.reverse();
    taken
}

/// Of facts by whose they are, the oldest first, those that one has more than all others together, or than a few.
fn beyond_share(owned: &[Option<&str>]) -> Vec<bool> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for owner in owned.iter().flatten() {
        *counts.entry(owner).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    for count in counts.values_mut() {
        *count = count.saturating_sub((all - *count).max(OWNER_FACTS_MIN));
    }
    let is_beyond = owned.iter().map(|owner| {
        let surplus = owner.and_then(|owner| counts.get_mut(owner)).filter(|surplus| **surplus > 0);
        surplus.map(|surplus| *surplus -= 1).is_some()
    });
    is_beyond.collect()
}

/// Whose a fact is; `None` where nobody's is told apart.
fn owner<'k>(fact: &Fact, workloads: &'k [WorkloadKey], owners: Owners) -> Option<&'k str> {
    let (workload, ..) = fact.actors.first()?;
    owners.of(&workloads[*workload as usize])
}

/// How much more power was measured than the profiles say, as a mean over combinations that starts from "as much": one that is run
/// for months tells no more than another. Speeds that jobs say of themselves tell nothing of others' power.
fn power_ratio(profiles: &ProfileBook, observations: &[&Observation]) -> f64 {
    let mut of_combination: BTreeMap<Vec<&WorkloadKey>, (f64, f64)> = BTreeMap::new();
    let is_measured = |observation: &&&Observation| {
        observation.fits && !observation.tenants.iter().any(|tenant| tenant.is_self_reported)
    };
    for observation in observations.iter().filter(is_measured) {
        let found: Option<Vec<(&WorkloadProfile, f64)>> = observation
            .tenants
            .iter()
            .map(|tenant| {
                profiles.get(&tenant.workload, &observation.device_model).zip(tenant.speed_fraction)
            })
            .collect();
        let Some(found) = found else { continue };
        let inputs: Vec<TenantInput<'_>> =
            found.iter().map(|(profile, _)| TenantInput { profile, sharing: Sharing::TimeSliced }).collect();
        let speeds: Vec<f64> = found.iter().map(|(_, speed)| speed.min(1.0)).collect();
        let added = added_power(&inputs, &speeds).filter(|watts| *watts > 0.0);
        if let Some((watts, added)) = observation.power_watts.zip(added) {
            let mut combination: Vec<&WorkloadKey> =
                observation.tenants.iter().map(|tenant| &tenant.workload).collect();
            combination.sort();
            let (sum, count) = of_combination.entry(combination).or_default();
            *sum += observation.run_count.max(1.0) * (watts / added).clamp(0.2, 5.0);
            *count += observation.run_count.max(1.0);
        }
    }
    let (sum, count) = of_combination
        .values()
        .fold((0.0, 0.0), |(sum, count), (of_one, weight)| (sum + of_one / weight, count + 1.0));
    (POWER_PRIOR_WEIGHT + sum) / (POWER_PRIOR_WEIGHT + count)
}

/// Who was tried together, and whether it fitted. Workloads that are known from this alone are numbered too.
fn misfits(observations: &[&Observation], names: &mut Names) -> Misfits {
    let mut tried = Vec::new();
    for observation in observations.iter().filter(|observation| observation.tenants.len() > 1) {
        let tenants = observation.tenants.iter();
        let mut workloads: Vec<u32> = tenants.map(|tenant| names.workload(&tenant.workload)).collect();
        workloads.sort_unstable();
        let count = observation.run_count.max(1.0);
        tried.push(((workloads[0], workloads[1..].to_vec()), observation.fits, count));
    }
    Misfits::of(&tried)
}

fn last(count: usize) -> u32 {
    u32::try_from(count - 1).unwrap_or(u32::MAX)
}

/// Who, under which caps, beside whom.
type Circumstances = (WorkloadKey, u64, Vec<(WorkloadKey, u64)>, Option<u8>, bool);

fn circumstances(observation: &Observation, own: usize, tenant: &ObservedTenant) -> Circumstances {
    let others = observation.tenants.iter().enumerate().filter(|(at, _)| *at != own);
    let mut others: Vec<(WorkloadKey, u64)> =
        others.map(|(_, other)| (other.workload.clone(), cap_bits(other))).collect();
    others.sort();
    (tenant.workload.clone(), cap_bits(tenant), others, tenant.sharing.ccs_mode(), tenant.is_self_reported)
}

/// The cap as a key; no cap comes last.
fn cap_bits(tenant: &ObservedTenant) -> u64 {
    tenant.sharing.cap().map_or(u64::MAX, |cap| cap.value().to_bits())
}

/// A mean of measured speeds, by the weight of each.
#[derive(Debug, Clone, Default)]
struct Mean {
    actors: Vec<(u32, Option<u32>, Point)>,
    expected: (f64, f64, f64, f64),
    solo_deviation: f64,
    is_shared: bool,
    weight: f64,
    sum: f64,
}

impl Mean {
    fn add(&mut self, speed: f64, observation: &Observation) {
        let one = observation.speed_fraction_deviation.unwrap_or_else(|| noise_of(speed));
        let variance = one.max(DEVIATION_MIN).powi(2) / observation.run_count.max(1.0);
        self.weight += 1.0 / variance;
        self.sum += speed / variance;
    }
    fn fact(&self) -> Fact {
        Fact {
            actors: self.actors.clone(),
            expected: self.expected,
            solo_deviation: self.solo_deviation,
            speed_fraction: self.sum / self.weight,
            deviation: (1.0 / self.weight).sqrt().max(DEVIATION_MIN),
            is_shared: self.is_shared,
        }
    }
}

/// The facts among some of the workloads, where there are many: those that were seen beside the most others, each with these others,
/// because only facts whose workloads are all among them tell anything.
fn sampled(mut facts: Vec<Fact>, workload_count: usize) -> Vec<Fact> {
    if workload_count <= SAMPLED_WORKLOADS_MAX {
        return facts;
    }
    let mut partners: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for fact in &facts {
        for (workload, _, _) in &fact.actors {
            partners.entry(*workload).or_default().extend(fact.actors.iter().map(|(other, _, _)| *other));
        }
    }
    let mut by_partners: Vec<(&u32, &BTreeSet<u32>)> = partners.iter().collect();
    by_partners.sort_by_key(|(workload, others)| (Reverse(others.len()), **workload));
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    for one in by_partners.iter().flat_map(|(workload, others)| std::iter::once(*workload).chain(*others)) {
        if taken.len() == SAMPLED_WORKLOADS_MAX {
            break;
        }
        taken.insert(*one);
    }
    facts.retain(|fact| fact.actors.iter().all(|(workload, _, _)| taken.contains(workload)));
    facts
}

fn calibrated(facts: &[Fact], rows: &[Row], layout: &Layout, variances: &Variances) -> Calibration {
    let pairings: Vec<BTreeSet<u32>> =
        facts.iter().map(|fact| fact.actors.iter().map(|(workload, _, _)| *workload).collect()).collect();
    let mut numbers: BTreeMap<&BTreeSet<u32>, usize> = BTreeMap::new();
    for pairing in &pairings {
        let next = numbers.len();
        numbers.entry(pairing).or_insert(next);
    }
    // Of a sample some numbers are missing: folds are of those that are there.
    let places: BTreeMap<u32, usize> =
        pairings.iter().flatten().copied().collect::<BTreeSet<u32>>().into_iter().zip(0..).collect();
    let folds = Folds { facts, rows, layout, variances };
    let by_pairing = (0..FOLDS).flat_map(|fold| {
        folds.left_out(|at| (numbers[&pairings[at]] % FOLDS == fold).then(|| numbers[&pairings[at]]))
    });
    let by_workload = (0..FOLDS).flat_map(|fold| {
        folds.left_out(|at| {
            pairings[at].iter().map(|workload| places[workload]).find(|place| place % FOLDS == fold)
        })
    });
    let families: BTreeSet<u32> =
        facts.iter().flat_map(|fact| &fact.actors).filter_map(|(_, family, _)| *family).collect();
    let by_family = families.iter().take(FAMILY_FOLDS_MAX).flat_map(|family| {
        folds.left_out(|at| {
            let is_of_it = facts[at].actors.iter().any(|(_, of, _)| of == &Some(*family));
            is_of_it.then_some(*family as usize)
        })
    });
    let (by_pairing, by_workload): (Vec<Sample>, Vec<Sample>) = (by_pairing.collect(), by_workload.collect());
    // Without families each workload is one of its own.
    let by_family: Vec<Sample> = if families.len() < 2 { by_workload.clone() } else { by_family.collect() };
    Calibration::of([by_pairing, by_workload, by_family])
}

struct Folds<'f> {
    facts: &'f [Fact],
    rows: &'f [Row],
    layout: &'f Layout,
    variances: &'f Variances,
}

impl Folds<'_> {
    /// Leaves out the rows that belong to a block, and predicts them from the others.
    fn left_out(&self, block_of: impl Fn(usize) -> Option<usize>) -> Vec<Sample> {
        let blocks: Vec<Option<usize>> = (0..self.rows.len()).map(block_of).collect();
        if blocks.iter().all(Option::is_none) || blocks.iter().all(Option::is_some) {
            return Vec::new();
        }
        let others = self.rows.iter().zip(&blocks).filter(|(_, block)| block.is_none()).map(|(row, _)| row);
        let Some(posterior) = Evidence::of(others, self.layout).into_posterior(self.variances) else {
            return Vec::new();
        };
        let mut samples = Vec::new();
        for ((fact, row), block) in self.facts.iter().zip(self.rows).zip(&blocks) {
            let Some(block) = *block else { continue };
            let expected = fact.expected();
            let scale = expected.doubt;
            let predicted = posterior.predict(&row.effects, row.pair, Some(row.combination), self.variances);
            let speed = bounded(expected.speed_fraction + scale * predicted.mean);
            let variance = scale * scale * (predicted.variance + row.noise * self.variances.noise);
            samples.push(Sample {
                deviations: (fact.speed_fraction.min(1.0) - speed) / variance.sqrt(),
                predicted: speed,
                is_together: expected.overlap > 0.5,
                block,
            });
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::learned::calibrate::Novelty;

    fn fact(workloads: [usize; 2]) -> Fact {
        let actors = workloads.map(|workload| (u32::try_from(workload).unwrap(), None, Point::default()));
        Fact {
            actors: actors.to_vec(),
            expected: (0.8, 0.2, 1.0, 1.0),
            solo_deviation: 0.0,
            // Nothing tells who is slow beside whom.
            speed_fraction: if (workloads[0] * 31 + workloads[1] * 17).is_multiple_of(3) {
                0.55
            } else {
                0.95
            },
            deviation: 0.03,
            is_shared: true,
        }
    }

    /// Of so many facts of each of these users, measured or of their own counters, how many say how exact all are, by user.
    fn heard(facts_of: &[(&str, usize, bool)]) -> Vec<usize> {
        let workloads: Vec<WorkloadKey> =
            facts_of.iter().map(|(user, ..)| WorkloadKey::new(format!("{user}/1"))).collect();
        let facts: Vec<Fact> = (0..)
            .zip(facts_of)
            .flat_map(|(at, (_, count, is_shared))| {
                vec![Fact { is_shared: *is_shared, ..fact([at, at]) }; *count]
            })
            .collect();
        let heard = of_everybody(&facts, &workloads, Owners::InKeys);
        (0..facts_of.len())
            .map(|at| heard.iter().filter(|fact| fact.actors[0].0 as usize == at).count())
            .collect()
    }

    #[test]
    fn counters_say_how_exact_all_are_where_hardly_anything_is_measured_and_nobodys_outweigh_all_others() {
        assert_eq!(heard(&[("bob", 40, true), ("mallory", 900, false)]), [40, 0]);
        assert_eq!(heard(&[("bob", 10, true), ("mallory", 500, false), ("alice", 20, false)]), [10, 30, 20]);
        assert_eq!(heard(&[("bob", 39, true), ("bob", 80, false)]), [39, 80], "he is alone");
    }

    /// Two that are numbered one after the other meet most: of one user, they were first seen together.
    fn facts_of(count: usize) -> Vec<Fact> {
        let beside = |at: usize| [(at + 1) % count, (at + 2) % count, (at * 7 + 3) % count];
        let pairs = (0..count).flat_map(|at| beside(at).map(|other| [at, other]));
        pairs.filter(|[one, other]| one != other).map(fact).collect()
    }

    /// Variances and calibration are learnt from some of many: no number of workloads may leave none of them, or no fold.
    #[test]
    fn of_however_many_workloads_enough_is_learnt_from() {
        for count in [79, 81, 161, 321, 400, 2_000] {
            let facts = facts_of(count);
            let taken = sampled(facts.clone(), count);
            assert!(taken.len() >= 80, "{count} workloads: {} of {} facts", taken.len(), facts.len());
            assert!(taken.len() <= SAMPLED_WORKLOADS_MAX * SAMPLED_WORKLOADS_MAX);
            let (rows, columns, _) = rows(&taken);
            let variances = Evidence::of(rows.iter(), &columns.layout).variances(ITERATIONS);
            let calibration = calibrated(&taken, &rows, &columns.layout, &variances);
            let untested = Calibration::of([Vec::new(), Vec::new(), Vec::new()]);
            assert_ne!(calibration, untested, "{count} workloads");
            for novelty in [Novelty::Pairing, Novelty::Workload, Novelty::Family] {
                let stretch = calibration.stretch(novelty, 1.0, 0.8);
                assert_ne!(stretch, untested.stretch(novelty, 1.0, 0.8), "{count} workloads, {novelty:?}");
            }
        }
    }
}
