//! How far measured pairs can be foretold, by how much is known: `limits SOLO.csv PAIRS.csv`. Whether more families would
//! help, or only other features: `tests/bench limits`, docs/benchmarks.md.

use pillion_core::device::Mechanism;
use pillion_core::{SlowdownRatio, WorkloadKey};
use pillion_pairing::files::{self, FileOptions, Measured, NamedText};
use pillion_pairing::model::{TrainOptions, train};
use pillion_pairing::{InterferenceModel as _, Learned, Observation, ObservedTenant, TenantInput};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::process::ExitCode;

const SEEDS: u64 = 30;
/// Parts into which pairs are cut to foretell each from the others.
const FOLDS: usize = 10;

/// Squared errors of foretold speeds: under caps that keep tenants apart, and without caps.
#[derive(Debug, Default, Clone, Copy)]
struct Errors {
    squares: [f64; 2],
    counts: [usize; 2],
}

impl Errors {
    fn add(&mut self, model: &Learned, measured: &Measured, observation: &Observation) {
        let input = |tenant: &'_ ObservedTenant| {
            let profile = measured.profiles.get(&tenant.workload, &observation.device_model)?;
            Some(TenantInput { profile, sharing: tenant.sharing })
        };
        // Whatever is named has a profile, if an empty one, but on another device.
        let Some(inputs) = observation.tenants.iter().map(input).collect::<Option<Vec<_>>>() else { return };
        let Ok(estimates) = model.predict(&inputs, &observation.device_model) else { return };
        let regime = usize::from(observation.tenants.iter().all(|tenant| tenant.sharing.cap().is_none()));
        for (estimate, tenant) in estimates.iter().zip(&observation.tenants) {
            if let Some(speed) = tenant.speed_fraction {
                self.squares[regime] += (estimate.speed_fraction - speed.min(1.0)).powi(2);
                self.counts[regime] += 1;
            }
        }
    }

    fn cells(&self) -> String {
        let cell = |regime: usize| match self.counts[regime] {
            0 => "-".to_owned(),
            count => format!("{:.3}", (self.squares[regime] / amount(count)).sqrt()),
        };
        format!("{} | {}", cell(0), cell(1))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of speeds")]
fn amount(count: usize) -> f64 {
    count as f64
}

/// How many tenants of a sharing are of a family that is not among these.
fn new_count(measured: &Measured, observation: &Observation, old: &BTreeSet<String>) -> usize {
    let is_old = |key: &WorkloadKey| {
        let profile = measured.profiles.get(key, &observation.device_model);
        profile.and_then(|profile| profile.family.as_ref()).is_some_and(|family| old.contains(family))
    };
    observation.tenants.iter().filter(|tenant| !is_old(&tenant.workload)).count()
}

fn trained<'o>(measured: &Measured, observations: impl Iterator<Item = &'o Observation>) -> Learned {
    let observations: Vec<Observation> = observations.cloned().collect();
    train(&measured.profiles, &observations, &TrainOptions::default())
}

/// Errors of pairs in which both, and in which one, is of a family that nothing was observed of.
fn of_families(measured: &Measured, families: &[String], old_count: usize) -> [Errors; 2] {
    let mut errors = [Errors::default(); 2];
    for seed in 0..SEEDS {
        let mut order = families.to_vec();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let old: BTreeSet<String> = order.into_iter().take(old_count).collect();
        let fitting = || measured.observations.iter().filter(|observation| observation.fits);
        let model =
            trained(measured, fitting().filter(|observation| new_count(measured, observation, &old) == 0));
        for observation in fitting() {
            match new_count(measured, observation, &old) {
                0 => {}
                1 => errors[1].add(&model, measured, observation),
                _ => errors[0].add(&model, measured, observation),
            }
        }
    }
    errors
}

/// Errors of pairs that were never seen together, though all else was: every workload, and every other pair.
fn of_pairs(measured: &Measured) -> Errors {
    let pair = |observation: &Observation| -> BTreeSet<WorkloadKey> {
        observation.tenants.iter().map(|tenant| tenant.workload.clone()).collect()
    };
    let mut pairs: Vec<BTreeSet<WorkloadKey>> = measured.observations.iter().map(pair).collect();
    pairs.sort();
    pairs.dedup();
    pairs.shuffle(&mut ChaCha8Rng::seed_from_u64(0));
    let mut errors = Errors::default();
    for fold in 0..FOLDS {
        let left_out: BTreeSet<&BTreeSet<WorkloadKey>> = pairs.iter().skip(fold).step_by(FOLDS).collect();
        let fitting = || measured.observations.iter().filter(|observation| observation.fits);
        let model = trained(measured, fitting().filter(|observation| !left_out.contains(&pair(observation))));
        for observation in fitting().filter(|observation| left_out.contains(&pair(observation))) {
            errors.add(&model, measured, observation);
        }
    }
    errors
}

fn measured() -> anyhow::Result<Measured> {
    let mut paths = std::env::args().skip(1);
    let (Some(solo), Some(pairs)) = (paths.next(), paths.next()) else {
        anyhow::bail!("usage: limits SOLO.csv PAIRS.csv");
    };
    let options = FileOptions {
        device_model: None,
        mechanism: Mechanism::Mps,
        device_memory_bytes: None,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.67)?,
    };
    let (solo_text, pairs_text) = (std::fs::read(&solo)?, std::fs::read(&pairs)?);
    let solo = NamedText { name: &solo, bytes: &solo_text };
    Ok(files::read_measured(solo, Some(NamedText { name: &pairs, bytes: &pairs_text }), &options)?)
}

fn main() -> ExitCode {
    let measured = match measured() {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let families: BTreeSet<String> =
        measured.profiles.iter().filter_map(|profile| profile.family.clone()).collect();
    let families: Vec<String> = families.into_iter().collect();
    println!("| families observed | both new, caps | both new, no caps | one new, caps | one new, no caps |");
    println!("|---|---:|---:|---:|---:|");
    for quarters in [1, 2, 3] {
        let old_count = (families.len() * quarters / 4).max(1);
        let [both, one] = of_families(&measured, &families, old_count);
        println!("| {old_count} of {} | {} | {} |", families.len(), both.cells(), one.cells());
    }
    let [both, one] = of_families(&measured, &families, families.len() - 1);
    println!("| {} of {} | {} | {} |", families.len() - 1, families.len(), both.cells(), one.cells());
    println!("| all, and every pair but this | {} | | |", of_pairs(&measured).cells());
    ExitCode::SUCCESS
}
