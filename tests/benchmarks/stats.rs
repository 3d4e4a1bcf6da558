//! Samples, their quantiles, and how sure their ratios are; printed as Markdown. And the order in which they are taken.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use std::fmt::Write as _;
use std::time::Duration;

/// How often a pair of sample sets is drawn again for an interval.
const DRAWS: usize = 2000;
/// So that a table of the same samples is the same table.
const SEED: u64 = 20;

/// What one variant took, in seconds.
pub(crate) struct Variant {
    name: String,
    seconds: Vec<f64>,
}

impl Variant {
    /// A variant without samples.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), seconds: Vec::new() }
    }
    /// Adds a sample.
    pub(crate) fn push(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }
}

/// In which order and at which moment things are measured. A fixed order gives each variant the trail of the one before it,
/// and slurmctld looks around once a second: jobs that follow each other at a steady pace all meet it at the same phase.
pub(crate) struct Chance(SmallRng);

impl Chance {
    /// The same every time.
    pub(crate) fn new() -> Self {
        Self(SmallRng::seed_from_u64(SEED))
    }
    /// The numbers below `count`, shuffled.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut self.0);
        order
    }
    /// Lets some part of a second pass.
    pub(crate) fn pause(&mut self) {
        std::thread::sleep(Duration::from_secs_f64(self.0.random_range(0.0..1.0)));
    }
}

/// The quantile of some samples, by linear interpolation; NaN for none.
pub(crate) fn quantile(samples: &mut [f64], fraction: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let Some(last) = samples.len().checked_sub(1) else { return f64::NAN };
    #[expect(clippy::cast_precision_loss, reason = "there are thousands of samples, not 2^52")]
    let place = fraction * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= place <= last")]
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    samples[below] + (samples[above] - samples[below]) * place.fract()
}

/// `other` over `base` at one quantile, with the middle 95 % of what other draws of the same samples would have given.
fn ratio(base: &[f64], other: &[f64], fraction: f64) -> (f64, f64, f64) {
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut draw = |samples: &[f64]| {
        let mut drawn: Vec<f64> =
            (0..samples.len()).map(|_| samples[rng.random_range(0..samples.len())]).collect();
        quantile(&mut drawn, fraction)
    };
    let mut ratios: Vec<f64> = (0..DRAWS).map(|_| draw(other) / draw(base)).collect();
    let seen = quantile(&mut other.to_vec(), fraction) / quantile(&mut base.to_vec(), fraction);
    (seen, quantile(&mut ratios, 0.025), quantile(&mut ratios, 0.975))
}

/// A table of figures that stand beside each other and are not compared.
pub(crate) fn figures(variants: &[Variant]) -> String {
    let mut text = String::from("| what | n | p50 ms | p99 ms |\n|---|---:|---:|---:|\n");
    for variant in variants {
        let milliseconds = |fraction| quantile(&mut variant.seconds.clone(), fraction) * 1e3;
        let (p50, p99, count) = (milliseconds(0.5), milliseconds(0.99), variant.seconds.len());
        let _ = writeln!(text, "| {} | {count} | {p50:.2} | {p99:.2} |", variant.name);
    }
    text
}

/// A table of the variants against the first of them.
pub(crate) fn table(variants: &[Variant]) -> String {
    let mut text = String::from(
        "| variant | n | p50 ms | p99 ms | p50, ratio (95 %) | p99, ratio (95 %) |\n|---|---:|---:|---:|---|---|\n",
    );
    let Some((base, others)) = variants.split_first() else { return text };
    for (number, variant) in variants.iter().enumerate() {
        let milliseconds = |fraction| quantile(&mut variant.seconds.clone(), fraction) * 1e3;
        let against = |fraction| {
            let (seen, low, high) = ratio(&base.seconds, &variant.seconds, fraction);
            format!("{seen:.3} ({low:.3} to {high:.3})")
        };
        let ratios = if number == 0 || others.is_empty() {
            "1 | 1".to_owned()
        } else {
            format!("{} | {}", against(0.5), against(0.99))
        };
        let (p50, p99) = (milliseconds(0.5), milliseconds(0.99));
        let count = variant.seconds.len();
        let _ = writeln!(text, "| {} | {count} | {p50:.2} | {p99:.2} | {ratios} |", variant.name);
    }
    text
}
