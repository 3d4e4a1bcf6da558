//! What a site gives by GPU to jobs that ask for no CPUs or memory (`DefCpuPerGPU`, `DefMemPerGPU`, which scontrol prints as `JobDefaults`): Slurm gives it to
//! jobs of GPUs, and shards are none.

use crate::nodeset::number;
use crate::parse::or_empty;
use std::collections::BTreeMap;

/// What a job of a partition gets by GPU where it asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuDefaults {
    /// `DefCpuPerGPU`.
    pub cpus: Option<u32>,
    /// `DefMemPerGPU`, in MiB.
    pub memory_mib: Option<u64>,
}

impl GpuDefaults {
    /// Reads what `scontrol` prints as `JobDefaults`; of words that this version does not know, nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut defaults = Self::default();
        for (key, value) in or_empty(text).split(',').filter_map(|item| item.split_once('=')) {
            let amount = number(value).filter(|amount| *amount > 0);
            match key.to_ascii_lowercase().as_str() {
                "defcpupergpu" => defaults.cpus = amount.and_then(|amount| u32::try_from(amount).ok()),
                "defmempergpu" => defaults.memory_mib = amount,
                _ => {}
            }
        }
        defaults
    }

    /// What holds in each partition that gives anything, of these by name and `JobDefaults`: its own word, else the cluster's, of memory too
    /// where the partition has a default by CPU (seen).
    #[must_use]
    pub fn by_partition<'a>(
        partitions: impl Iterator<Item = (&'a str, &'a str)>,
        of_cluster: &str,
    ) -> BTreeMap<String, Self> {
        let of_cluster = Self::parse(of_cluster);
        let mut by_partition = BTreeMap::new();
        for (name, job_defaults) in partitions {
            let own = Self::parse(job_defaults);
            let all = Self {
                cpus: own.cpus.or(of_cluster.cpus),
                memory_mib: own.memory_mib.or(of_cluster.memory_mib),
            };
            if all != Self::default() {
                by_partition.insert(name.to_owned(), all);
            }
        }
        by_partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partitions_own_word_comes_before_the_clusters() {
        let of = |own: &str, of_cluster: &str| {
            let found = GpuDefaults::by_partition([("shared", own)].into_iter(), of_cluster);
            found.get("shared").map(|found| (found.cpus, found.memory_mib))
        };
        assert_eq!(of("(null)", "(null)"), None);
        assert_eq!(of("DefCpuPerGPU=8,DefMemPerGPU=16000", "(null)"), Some((Some(8), Some(16_000))));
        assert_eq!(of("DefCpuPerGPU=8", "DefCpuPerGPU=4,DefMemPerGPU=5"), Some((Some(8), Some(5))));
        assert_eq!(of("DefMemPerGPU=6", "DefMemPerGPU=5"), Some((None, Some(6))));
        for odd in ["DefCpuPerGPU=x", "DefCpuPerGPU=0", "DefCpuPerGPU", "Other=8", "DefCpuPerGPU=99999999999"]
        {
            assert_eq!(of(odd, ""), None, "{odd}");
        }
    }
}
