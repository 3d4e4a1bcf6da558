//! The backtest of instances: queues of measured workloads on one device that can be cut, by each rule on the same queues.
//! What the product's rule does is `crate::mig`'s; what a job really does in an instance is what was measured there.
//!
//! A device is cut into sizes that were measured, and into no others.

mod device;
mod play;
mod rules;
#[cfg(test)]
mod tests;

use crate::files::SliceSpeeds;
use pillion_core::SlowdownRatio;
use pillion_core::mig::{Geometry, InvalidGeometry, MigProfile};
use play::{Played, play};
use rand::Rng as _;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use rules::Rule;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many jobs wait at first.
pub const JOBS: usize = 60;
/// How long a job runs alone: as likely anything between these.
pub const DURATION_SECONDS: std::ops::Range<f64> = 300.0..900.0;
/// Workloads below this speed in the largest part of a device are heavy.
const HEAVY_BELOW: f64 = 0.7;

/// Workloads from which queues are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// All that were measured.
    All,
    /// Those that have room in the smallest size that was measured.
    Small,
    /// Those slower than 0.7 in the largest part of a device.
    Heavy,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::All, Self::Small, Self::Heavy];

    /// As written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Small => "small",
            Self::Heavy => "heavy",
        }
    }
}

/// What one rule came to on the queues of one mix: means over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleScore {
    /// From which workloads.
    pub mix: Mix,
    /// How many there are.
    pub workload_count: usize,
    /// By which rule.
    pub rule: String,
    /// Work done a second, over one at a time.
    pub throughput_ratio: f64,
    /// Mean time from submission to end, over one at a time.
    pub turnaround_ratio: f64,
    /// The slowdown of all but one job in twenty.
    pub slowdown_ratio_p95: f64,
    /// The greatest of any job of any seed.
    pub slowdown_ratio_most: f64,
}

/// Why nothing can be replayed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SlicesError {
    /// Nothing was measured in a part of a device.
    #[error("no workload was measured in the whole of {0} and in a part of it")]
    NothingMeasured(MigProfile),
    /// Sizes that are those of no device.
    #[error("the measured sizes are those of no device")]
    Geometry(#[from] InvalidGeometry),
}

/// What is to be replayed.
#[derive(Debug)]
pub struct SliceBacktest {
    geometry: Geometry,
    workloads: Vec<BTreeMap<MigProfile, f64>>,
    bounds: Vec<SlowdownRatio>,
}

/// A job of a queue.
#[derive(Debug, Clone)]
struct QueuedJob {
    /// Its speed in each size in which it runs, the whole among them.
    speeds: BTreeMap<MigProfile, f64>,
    duration_seconds: f64,
}

impl SliceBacktest {
    /// Queues of these workloads on a device that can be cut so, under each of these promises.
    ///
    /// # Errors
    /// [`SlicesError`], where nothing was measured that could be replayed.
    pub fn new(
        speeds: &SliceSpeeds,
        device: &Geometry,
        bounds: Vec<SlowdownRatio>,
    ) -> Result<Self, SlicesError> {
        let whole = device.whole().profile;
        let is_measured = |profile: &MigProfile| speeds.values().any(|sizes| sizes.contains_key(profile));
        let sizes = device.sizes().iter().filter(|size| is_measured(&size.profile)).cloned().collect();
        let workloads: Vec<_> =
            speeds.values().filter(|sizes| sizes.contains_key(&whole) && sizes.len() > 1).cloned().collect();
        if workloads.is_empty() {
            return Err(SlicesError::NothingMeasured(whole));
        }
        Ok(Self { geometry: Geometry::try_new(sizes)?, workloads, bounds })
    }

    /// Replays so many seeds: of each mix every rule, on the same queues.
    pub fn run(&self, seeds: u64) -> Vec<RuleScore> {
        Mix::ALL.into_iter().flat_map(|mix| self.of_mix(mix, seeds)).collect()
    }

    fn of_mix(&self, mix: Mix, seeds: u64) -> Vec<RuleScore> {
        let workloads: Vec<_> = self.workloads.iter().filter(|speeds| self.is_in(mix, speeds)).collect();
        if workloads.is_empty() || seeds == 0 {
            return Vec::new();
        }
        let queues: Vec<Vec<QueuedJob>> = (0..seeds).map(|seed| queue(&workloads, seed)).collect();
        let alone: Vec<Played> =
            queues.iter().map(|jobs| play(&self.geometry, jobs, &Rule::OneAtATime)).collect();
        let score = |rule: &Rule, name: String| {
            let played: Vec<Played> = queues.iter().map(|jobs| play(&self.geometry, jobs, rule)).collect();
            mean_score((mix, workloads.len(), name), &alone, &played)
        };
        let mut scores = vec![score(&Rule::OneAtATime, "one at a time".to_owned())];
        let shapes = self.geometry.maximal_sets(&[]);
        let suits_all = |shape: &Vec<_>| workloads.iter().all(|speeds| rules::suits(shape, speeds));
        let shapes = shapes.into_iter().filter(|shape| shape.len() > 1 && suits_all(shape));
        let fixed: Vec<RuleScore> =
            shapes.map(|shape| score(&Rule::Static(shape.clone()), rules::name(&shape))).collect();
        scores.extend(fixed);
        // A device that is left whole is a shape too.
        let best = scores.iter().max_by(|a, b| a.throughput_ratio.total_cmp(&b.throughput_ratio)).cloned();
        scores.extend(best.map(|best| RuleScore { rule: "best static in hindsight".to_owned(), ..best }));
        scores.push(score(&Rule::Tightest, "tightest by memory".to_owned()));
        scores.extend(self.bounds.iter().map(|bound| {
            score(&Rule::Ours { bound: *bound }, format!("Pillion, promise {}", bound.value()))
        }));
        scores
    }

    fn is_in(&self, mix: Mix, speeds: &BTreeMap<MigProfile, f64>) -> bool {
        let sizes: Vec<MigProfile> = self.geometry.plain().map(|size| size.profile).collect();
        match mix {
            Mix::All => true,
            Mix::Small => sizes.last().is_some_and(|least| speeds.contains_key(least)),
            Mix::Heavy => {
                sizes.get(1).and_then(|part| speeds.get(part)).is_none_or(|speed| *speed < HEAVY_BELOW)
            }
        }
    }
}

/// Means over the seeds, beside one at a time on the same queues.
#[expect(clippy::cast_precision_loss, reason = "a few seeds")]
fn mean_score(
    (mix, workload_count, rule): (Mix, usize, String),
    alone: &[Played],
    played: &[Played],
) -> RuleScore {
    let mean = |of: fn(&Played, &Played) -> f64| {
        alone.iter().zip(played).map(|(alone, own)| of(alone, own)).sum::<f64>() / played.len() as f64
    };
    RuleScore {
        mix,
        workload_count,
        rule,
        throughput_ratio: mean(|alone, own| alone.makespan_seconds / own.makespan_seconds),
        turnaround_ratio: mean(|alone, own| own.turnaround_seconds / alone.turnaround_seconds),
        slowdown_ratio_p95: mean(|_, own| own.slowdown_ratio_p95),
        slowdown_ratio_most: played.iter().map(|own| own.slowdown_ratio_most).fold(1.0, f64::max),
    }
}

/// The jobs of one seed, all of which wait from the beginning.
fn queue(workloads: &[&BTreeMap<MigProfile, f64>], seed: u64) -> Vec<QueuedJob> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let drawn = (0..JOBS).filter_map(|_| {
        let speeds = (*workloads.choose(&mut rng)?).clone();
        Some(QueuedJob { speeds, duration_seconds: rng.random_range(DURATION_SECONDS) })
    });
    drawn.collect()
}
