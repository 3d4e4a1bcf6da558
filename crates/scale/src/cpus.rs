//! How many CPUs are enough, where runs of one count had different numbers of them.

use crate::history::Run;
use serde::Serialize;
use std::collections::BTreeMap;

/// Times that are no further apart than this are as good as each other: what runs of the same work differ by.
const AS_GOOD: f64 = 1.05;

/// Of one number of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnoughCpus {
    /// GPUs on all nodes.
    pub gpus: u32,
    /// The fewest CPUs, on all nodes, whose time is within 5 % of the best.
    pub cpus: u32,
    /// All numbers of CPUs that were tried, rising.
    pub tried: Vec<u32>,
}

/// For each count of GPUs on one layout of nodes whose runs had different numbers of CPUs, by rising counts.
pub fn enough_cpus(runs: &[Run]) -> Vec<EnoughCpus> {
    let mut counts: BTreeMap<(u32, Option<u32>), BTreeMap<u32, f64>> = BTreeMap::new();
    for run in runs {
        let Some(cpus) = run.cpus else { continue };
        let best = counts.entry((run.gpus, run.nodes)).or_default().entry(cpus).or_insert(run.seconds);
        *best = best.min(run.seconds);
    }
    let several = counts.into_iter().filter(|(_, tried)| tried.len() > 1);
    let enough = several.filter_map(|((gpus, _), tried)| {
        let best = tried.values().copied().fold(f64::INFINITY, f64::min);
        let cpus = tried.iter().find(|(_, seconds)| **seconds <= best * AS_GOOD).map(|(cpus, _)| *cpus)?;
        Some(EnoughCpus { gpus, cpus, tried: tried.into_keys().collect() })
    });
    enough.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_cpus_that_are_as_fast_are_enough() {
        let run =
            |gpus, cpus, seconds| Run { nodes: Some(1), gpus, cpus: Some(cpus), seconds, power_watts: None };
        // As the first paper found: nothing beyond 16.
        let runs = [run(1, 8, 150.0), run(1, 16, 102.0), run(1, 32, 100.0), run(2, 16, 60.0)];
        assert_eq!(enough_cpus(&runs), [EnoughCpus { gpus: 1, cpus: 16, tried: vec![8, 16, 32] }]);
    }
}
