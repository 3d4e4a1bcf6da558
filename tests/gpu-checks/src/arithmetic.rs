//! The rates of a load by its own count, of the most that the GPU can do: what GPM's fractions must come to. Pure.

use crate::cuda::Facts;
use crate::kernels::Workload;
use crate::values::{Pair, Tolerance};
use pillion_core::Fraction;
use pillion_core::device::Reading;
use pillion_core::metric::Metric;

/// Of the loop's rate: loops, addresses and the last wave of blocks are not in its count.
const TOLERANCE: f64 = 0.1;

/// What `workload` does at `speed` launches a second, beside what was read at that time; nothing where its count, or the
/// GPU's most, is not known.
pub fn beside(workload: Workload, speed: f64, facts: &Facts, reading: &Reading) -> Vec<Pair> {
    let operations_most = facts
        .operations_per_clock
        .zip(reading.metrics.get(Metric::SmClockHertz))
        .map(|(per, hertz)| per * hertz);
    let rates = [
        (
            "fp32_active_fraction, by the loop's arithmetic",
            reading.metrics.fraction(Metric::Fp32ActiveFraction),
            workload.operations().zip(operations_most),
        ),
        (
            "memory_bandwidth_fraction, by the loop's bytes",
            reading.metrics.fraction(Metric::MemoryBandwidthFraction),
            workload.bytes().zip(facts.memory_bytes_per_second_max),
        ),
    ];
    let pair = |(name, ours, rate): (&str, Option<Fraction>, Option<(f64, f64)>)| {
        let (each, most) = rate?;
        Some(Pair {
            name: name.to_owned(),
            ours: ours.map(Fraction::value),
            theirs: Some(each * speed / most),
            tolerance: Tolerance::Fraction(TOLERANCE),
        })
    };
    rates.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            device: "NVIDIA H100".to_owned(),
            multiprocessors: 132,
            operations_per_clock: Some(132.0 * 256.0),
            memory_bytes_per_second_max: Some(3.35e12),
        }
    }

    #[test]
    fn loops_are_held_against_the_most_that_the_gpu_does() {
        let reading = Reading::from([
            (Metric::SmClockHertz, 1.98e9),
            (Metric::Fp32ActiveFraction, 0.8),
            (Metric::MemoryBandwidthFraction, 0.9),
        ]);
        let pairs = beside(Workload::Compute, 1600.0, &facts(), &reading);
        assert_eq!(pairs.len(), 1, "it moves no bytes");
        let (theirs, expected) = (pairs[0].theirs.unwrap(), 8192.0 * 256.0 * 16_000.0 * 1600.0 / 66.9e12);
        assert!((theirs - expected).abs() < 0.001 && (theirs - 0.8024).abs() < 0.001, "{theirs}");
        let pairs = beside(Workload::Bandwidth, 5600.0, &facts(), &reading);
        assert!((pairs[0].theirs.unwrap() - 0.9115).abs() < 0.001, "{pairs:?}");
        assert_eq!(beside(Workload::Launch, 1e5, &facts(), &reading), []);
    }

    #[test]
    fn what_the_gpu_does_not_tell_is_not_compared() {
        let dark = Facts { operations_per_clock: None, memory_bytes_per_second_max: None, ..facts() };
        for workload in Workload::ALL {
            assert_eq!(beside(workload, 1.0, &dark, &Reading::default()), []);
        }
        let pairs = beside(Workload::Bandwidth, 5600.0, &facts(), &Reading::default());
        assert_eq!(
            (pairs[0].ours, pairs[0].theirs.is_some()),
            (None, true),
            "no GPM: only the other is there"
        );
    }
}
