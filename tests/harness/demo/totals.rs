//! What all of it cost, against running each job exclusively. Pure.

use super::answers::{Decided, Told};
use super::cast::Part;
use pillion_core::SlurmJobId;
use std::collections::BTreeMap;

/// One job of the demo from its end.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) job: SlurmJobId,
    pub(super) part: Part,
    pub(super) told: Told,
    pub(super) decided: Decided,
    /// How long the same workload took in its first run, exclusively.
    pub(super) solo_seconds: f64,
    /// The energy of its first run.
    pub(super) solo_joules: f64,
}

impl Run {
    /// How much longer it took than alone.
    pub(super) fn slowdown_ratio(&self) -> f64 {
        self.told.seconds() / self.solo_seconds
    }
}

/// Sums over jobs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Totals {
    /// Seconds in which a device was held, each device once however many jobs were on it.
    pub(super) gpu_seconds: f64,
    pub(super) gpu_seconds_exclusive: f64,
    /// Of the devices while somebody held them.
    pub(super) energy_joules: f64,
    pub(super) energy_joules_exclusive: f64,
}

/// Adds up jobs.
pub(super) fn totals<'r>(runs: impl IntoIterator<Item = &'r Run>) -> Totals {
    let mut held: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    let mut sums = Totals::default();
    for run in runs {
        let device = (run.decided.node.as_str(), run.decided.device.as_str());
        held.entry(device).or_default().push((run.told.began, run.told.ended));
        sums.gpu_seconds_exclusive += run.solo_seconds;
        sums.energy_joules += run.decided.energy_joules.unwrap_or_default();
        sums.energy_joules_exclusive += run.solo_joules;
    }
    sums.gpu_seconds = held.into_values().map(covered).sum();
    sums
}

/// The length of all stretches together, what lies in several counted once.
fn covered(mut stretches: Vec<(f64, f64)>) -> f64 {
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let mut until = f64::NEG_INFINITY;
    for (begin, end) in stretches {
        sum += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_time_counts_once() {
        assert!((covered(vec![(4.0, 6.0), (0.0, 2.0), (1.0, 3.0)]) - 5.0).abs() < 1e-9);
        assert!((covered(vec![(0.0, 9.0), (1.0, 3.0)]) - 9.0).abs() < 1e-9);
        assert!(covered(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn a_pair_saves_what_it_shares() {
        let run = |began: f64, ended: f64| Run {
            job: SlurmJobId::plain(1),
            part: super::super::cast::CAST[0],
            told: Told { began, ended, environment: BTreeMap::new() },
            decided: Decided {
                node: "n1".into(),
                device: "g0".into(),
                energy_joules: Some(3.0),
                ..Decided::default()
            },
            solo_seconds: 8.0,
            solo_joules: 5.0,
        };
        let sums = totals(&[run(0.0, 9.0), run(0.5, 10.0)]);
        let expected = Totals {
            gpu_seconds: 10.0,
            gpu_seconds_exclusive: 16.0,
            energy_joules: 6.0,
            energy_joules_exclusive: 10.0,
        };
        assert_eq!(sums, expected);
    }
}
