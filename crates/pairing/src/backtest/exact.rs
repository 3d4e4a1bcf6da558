//! The exact plan of largest weight for jobs of few workloads, whatever the planner's own matching can do: the oracle must
//! be an upper bound.

use std::collections::BTreeMap;

const WEIGHT_SCALE: f64 = 1e9;

/// Of `counts` jobs of each workload, how many pairs of which two workloads give the greatest sum of `weights`. Weights of 0
/// or less are never taken. Cubic in the number of jobs.
#[expect(clippy::cast_possible_truncation, reason = "a weight is at most 1")]
pub(super) fn matched(
    counts: &BTreeMap<usize, usize>,
    weights: &BTreeMap<[usize; 2], f64>,
) -> BTreeMap<[usize; 2], usize> {
    let jobs: Vec<usize> =
        counts.iter().flat_map(|(workload, count)| std::iter::repeat_n(*workload, *count)).collect();
    let mut matrix = vec![0_i64; jobs.len() * jobs.len()];
    for (row, a) in jobs.iter().enumerate() {
        for (column, b) in jobs.iter().enumerate().filter(|(column, _)| *column != row) {
            let weight = weights.get(&[*a.min(b), *a.max(b)]).copied().unwrap_or(0.0);
            matrix[row * jobs.len() + column] = (weight.max(0.0) * WEIGHT_SCALE) as i64;
        }
    }
    let mut pairs = BTreeMap::new();
    for (a, mate) in integer_blossom::max_weight_matching(&matrix, jobs.len()).into_iter().enumerate() {
        if let Some(b) = mate.filter(|b| a < *b && matrix[a * jobs.len() + *b] > 0) {
            *pairs.entry([jobs[a].min(jobs[b]), jobs[a].max(jobs[b])]).or_insert(0) += 1;
        }
    }
    pairs
}
