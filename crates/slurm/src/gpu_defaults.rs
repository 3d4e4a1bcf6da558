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

    /// What holds in each partition that gives anything, of these by name, `JobDefaults`, and whether each has a default of its own for
    /// memory: its own word, else the cluster's; of memory not that where the partition has
    /// a word of its own on memory by node or CPU (as slurmctld does, read in `job_test.c`).
    #[must_use]
    pub fn by_partition<'a>(
        partitions: impl Iterator<Item = (&'a str, &'a str, bool)>,
        of_cluster: &str,
    ) -> BTreeMap<String, Self> {
        let of_cluster = Self::parse(of_cluster);
        let mut by_partition = BTreeMap::new();
        for (name, job_defaults, has_default_memory) in partitions {
            let own = Self::parse(job_defaults);
            let of_all = of_cluster.memory_mib.filter(|_| !has_default_memory);
            let all = Self { cpus: own.cpus.or(of_cluster.cpus), memory_mib: own.memory_mib.or(of_all) };
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

    fn all(own: &str, has_memory: bool, of_cluster: &str) -> BTreeMap<String, GpuDefaults> {
        GpuDefaults::by_partition([("shared", own, has_memory)].into_iter(), of_cluster)
    }

    #[test]
    fn a_partitions_own_word_comes_before_the_clusters() {
        let of = |own: &str, memory: bool, of_cluster: &str| {
            let found = all(own, memory, of_cluster).remove("shared")?;
            Some((found.cpus, found.memory_mib))
        };
        let none = false;
        assert_eq!(of("(null)", none, "(null)"), None);
        assert_eq!(of("DefCpuPerGPU=8,DefMemPerGPU=16000", none, "(null)"), Some((Some(8), Some(16_000))));
        assert_eq!(of("DefCpuPerGPU=8", none, "DefCpuPerGPU=4,DefMemPerGPU=5"), Some((Some(8), Some(5))));
        assert_eq!(of("(null)", true, "DefCpuPerGPU=4,DefMemPerGPU=5"), Some((Some(4), None)));
        assert_eq!(of("DefMemPerGPU=6", true, "DefMemPerGPU=5"), Some((None, Some(6))));
        for odd in ["DefCpuPerGPU=x", "DefCpuPerGPU=0", "DefCpuPerGPU", "Other=8", "DefCpuPerGPU=99999999999"]
        {
            assert_eq!(of(odd, none, ""), None, "{odd}");
        }
    }
}
