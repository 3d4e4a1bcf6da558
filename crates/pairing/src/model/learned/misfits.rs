//! Who did not fit on a device together: remembered by combination, and expected of workloads that often did not.

use super::fact::Combination;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many tries the expectation of a workload counts for that was never tried.
const EXPECTED_TRIES: f64 = 2.0;
/// Tries and misfits that are assumed of a device on which nothing was tried.
const ASSUMED: (f64, f64) = (50.0, 0.25);
/// A combination that did not fit is not tried again unless it fitted at another time.
const PROBABILITY_AFTER_MISFIT: f64 = 0.95;

/// Tries and misfits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Tries {
    pub(super) count: f64,
    pub(super) misfits: f64,
}

impl Tries {
    pub(super) fn add(&mut self, fits: bool, count: f64) {
        self.count += count;
        self.misfits += if fits { 0.0 } else { count };
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.misfits += other.misfits;
    }
}

/// What is known of fitting: of a workload and of all, each combination once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Misfits {
    of_workload: BTreeMap<u32, Tries>,
    combinations: Vec<(Combination, Tries)>,
    all: Tries,
}

impl Misfits {
    pub(super) fn of(tried: &[(Combination, bool, f64)]) -> Self {
        let mut misfits = Self::default();
        let mut combinations: BTreeMap<&Combination, Tries> = BTreeMap::new();
        for (combination, fits, count) in tried {
            combinations.entry(combination).or_default().add(*fits, *count);
        }
        // A combination that is run again and again tells no more of its workloads beside others, and of the device.
        for (combination, tries) in combinations.iter().filter(|(_, tries)| tries.count > 0.0) {
            let once = Tries { count: 1.0, misfits: tries.misfits / tries.count };
            misfits.all.join(once);
            for workload in std::iter::once(&combination.0).chain(&combination.1) {
                misfits.of_workload.entry(*workload).or_default().join(once);
            }
        }
        let kept = combinations.into_iter().filter(|(_, tries)| tries.misfits > 0.0);
        misfits.combinations = kept.map(|(combination, tries)| (combination.clone(), tries)).collect();
        misfits
    }

    /// How probably these do not fit together. Workloads that are not known have no number.
    pub(super) fn probability(&self, workloads: &[Option<u32>]) -> f64 {
        let rate = (self.all.misfits + ASSUMED.1) / (self.all.count + ASSUMED.0);
        let mut known: Vec<u32> = workloads.iter().flatten().copied().collect();
        if known.len() == workloads.len() && !known.is_empty() {
            known.sort_unstable();
            let combination = (known[0], known[1..].to_vec());
            let tried = self.combinations.binary_search_by(|(other, _)| other.cmp(&combination)).ok();
            if let Some((_, tries)) = tried.map(|at| &self.combinations[at]) {
                return PROBABILITY_AFTER_MISFIT * tries.misfits / tries.count;
            }
        }
        1.0 - workloads.iter().map(|workload| 1.0 - self.blame(*workload, rate)).product::<f64>()
    }

    /// How probably one does not fit beside others. It takes two not to fit: each is blamed for half.
    fn blame(&self, workload: Option<u32>, rate: f64) -> f64 {
        let tries =
            workload.and_then(|workload| self.of_workload.get(&workload)).copied().unwrap_or_default();
        (tries.misfits + EXPECTED_TRIES * rate) / (tries.count + EXPECTED_TRIES) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_fit_is_not_tried_again_and_its_workloads_are_suspect() {
        let tried = [((1, vec![2]), false, 1.0), ((1, vec![3]), true, 1.0), ((3, vec![4]), true, 8.0)];
        let misfits = Misfits::of(&tried);
        assert!((misfits.probability(&[Some(2), Some(1)]) - PROBABILITY_AFTER_MISFIT).abs() < 1e-12);
        assert!(misfits.probability(&[Some(2), Some(4)]) > misfits.probability(&[Some(3), Some(4)]));
        assert!(misfits.probability(&[None, None]) < 0.05);
    }

    #[test]
    fn one_combination_that_never_fits_makes_no_others_suspect_however_often_it_is_tried() {
        let of = |count| {
            Misfits::of(&[((1, vec![2]), false, count), ((1, vec![3]), true, 1.0), ((3, vec![4]), true, 1.0)])
        };
        let [once, often] = [of(1.0), of(500.0)];
        for others in [[Some(1), Some(4)], [Some(3), Some(4)], [None, None]] {
            assert_eq!(
                once.probability(&others).to_bits(),
                often.probability(&others).to_bits(),
                "{others:?}"
            );
        }
        // Nor does one that always fits vouch for all.
        let fits = |count| Misfits::of(&[((1, vec![2]), true, count), ((3, vec![4]), false, 1.0)]);
        let [once, often] = [fits(1.0), fits(500.0)];
        assert_eq!(once.probability(&[None, None]).to_bits(), often.probability(&[None, None]).to_bits());
    }

    #[test]
    fn a_combination_that_fitted_since_is_trusted_in_part() {
        let misfits = Misfits::of(&[((1, vec![2]), false, 1.0), ((1, vec![2]), true, 3.0)]);
        assert!((misfits.probability(&[Some(1), Some(2)]) - 0.2375).abs() < 1e-12);
    }
}
