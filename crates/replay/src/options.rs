//! What is to be replayed.

use crate::pool::truth::SpeedsByBusy;
use pillion_core::Fraction;
use pillion_core::device::Mechanism;
use pillion_pairing::{Effort, Policy, UserPolicy};

/// How much of a site's nodes with GPUs the pool has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolSize {
    /// A part of the nodes of each kind.
    Part(Fraction),
    /// So many nodes, of each kind in proportion.
    Nodes(u32),
}

/// By what jobs are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By when they became eligible.
    Submit,
    /// By the priority that Slurm wrote down, then by age.
    Priority,
}

/// Grams of carbon dioxide a kilowatt-hour: one number, or one each hour.
#[derive(Debug, Clone, PartialEq)]
pub struct Carbon {
    /// Seconds since 1970 and grams from then on; of one number a single row.
    pub rows: Vec<(u64, f64)>,
}

/// A carbon file that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {0} is not 'seconds since 1970,grams a kilowatt-hour', as 1764000000,320")]
pub struct CarbonError(usize);

/// More is emitted by no way of making power.
const GRAMS_MAX: f64 = 5000.0;

impl Carbon {
    /// One number for all the time.
    pub fn constant(grams: f64) -> Option<Self> {
        (0.0..=GRAMS_MAX).contains(&grams).then(|| Self { rows: vec![(0, grams)] })
    }

    /// Rows of a file; a first line of words is passed over.
    ///
    /// # Errors
    /// [`CarbonError`] for the first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, CarbonError> {
        let mut rows = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let row = line.split_once(',').and_then(|(time, grams)| {
                let grams = grams.trim().parse().ok().filter(|grams| (0.0..=GRAMS_MAX).contains(grams))?;
                Some((time.trim().parse().ok()?, grams))
            });
            match row {
                Some(row) => rows.push(row),
                None if at == 0 && !line.starts_with(|letter: char| letter.is_ascii_digit()) => {}
                None if line.trim().is_empty() => {}
                None => return Err(CarbonError(at + 1)),
            }
        }
        rows.sort_by_key(|(time, _)| *time);
        if rows.is_empty() { Err(CarbonError(1)) } else { Ok(Self { rows }) }
    }

    /// The mean over a stretch of time; what stands before the first row is as the first.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
    pub(crate) fn mean(&self, from: u64, until: u64) -> f64 {
        let (mut sum, mut seconds) = (0.0, 0.0);
        for (at, (time, grams)) in self.rows.iter().enumerate() {
            let begins = if at == 0 { 0 } else { *time };
            let ends = self.rows.get(at + 1).map_or(u64::MAX, |(next, _)| *next);
            let part = until.min(ends).saturating_sub(from.max(begins)) as f64;
            sum += grams * part;
            seconds += part;
        }
        if seconds > 0.0 { sum / seconds } else { self.rows[0].1 }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sizes of the pool.
    pub pools: Vec<PoolSize>,
    /// Shares of the users whose jobs share.
    pub adoptions: Vec<Fraction>,
    /// The site's policy.
    pub policy: Policy,
    /// How devices are shared.
    pub mechanism: Mechanism,
    /// How often each is drawn, at least [`SEEDS_MIN`].
    pub seeds: u64,
    /// Between two plans at least so much time passes.
    pub plan_seconds: f64,
    /// How much each of them evaluates.
    pub effort: Effort,
    /// How fast jobs ran beside each other elsewhere: what comes of a pair is drawn from that.
    pub speeds: SpeedsByBusy,
    /// By what jobs are served; absent: as history says better.
    pub order: Option<Order>,
    /// What a GPU at rest draws.
    pub idle_watts: Option<f64>,
    /// What a GPU-hour costs, in whatever the site counts in.
    pub price_per_gpu_hour: Option<f64>,
    /// What a kilowatt-hour emits.
    pub carbon: Option<Carbon>,
}

/// With fewer nobody knows how far apart they are.
pub const SEEDS_MIN: u64 = 3;
/// From so many jobs on fewer settings are replayed unless they are asked for.
pub const MANY_JOBS: usize = 10_000;

impl Options {
    /// What is replayed where nothing else is asked for: of many jobs less, so that it ends in a minute.
    pub fn usual(job_count: usize) -> Self {
        let part = |value| PoolSize::Part(Fraction::clamped(value));
        let is_many = job_count >= MANY_JOBS;
        let (pools, adoptions) = if is_many {
            (vec![part(0.5)], vec![0.5])
        } else {
            (vec![part(0.25), part(0.5)], vec![0.25, 0.5])
        };
        Self {
            pools,
            adoptions: adoptions.into_iter().map(Fraction::clamped).collect(),
            policy: Policy { users: UserPolicy::SameUser, solo_seconds_min: 30.0, ..Policy::default() },
            mechanism: Mechanism::Mps,
            seeds: if is_many { SEEDS_MIN } else { 5 },
            plan_seconds: if is_many { 60.0 } else { 10.0 },
            effort: if is_many { Effort::Screened } else { Effort::OfPlan },
            speeds: SpeedsByBusy::published(),
            order: None,
            idle_watts: None,
            price_per_gpu_hour: None,
            carbon: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carbon_is_a_mean_over_the_time_replayed() {
        let hourly = Carbon::parse("time,grams\n1000,100\n2000,300\n").unwrap();
        assert!((hourly.mean(1000, 3000) - 200.0).abs() < 1e-9);
        assert!((hourly.mean(500, 1500) - 100.0).abs() < 1e-9, "before the first row it is as in it");
        assert!((Carbon::constant(50.0).unwrap().mean(5, 5) - 50.0).abs() < 1e-9);
        for wrong in ["", "time,grams\n", "1000,100\n2000,x\n", "1000,-1\n", "1,1e9"] {
            assert!(Carbon::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Carbon::constant(f64::NAN).is_none() && Carbon::constant(-1.0).is_none());
    }
}
