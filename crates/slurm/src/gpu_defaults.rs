//! What a site gives by GPU to jobs that ask for no CPUs or memory (`JobDefaults=DefCpuPerGPU=8,DefMemPerGPU=16000`): Slurm gives it to
//! jobs of GPUs, and shards are none.

use crate::nodeset::number;
use crate::parse::or_empty;
use crate::types::Partition;
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

    /// What holds in each partition that gives anything: its own word, else the cluster's; of memory not that where the partition has
    /// a word of its own on memory by node or CPU (as slurmctld does, read in `job_test.c`).
    #[must_use]
    pub fn by_partition(partitions: &[Partition], of_cluster: &str) -> BTreeMap<String, Self> {
        let of_cluster = Self::parse(of_cluster);
        let mut by_partition = BTreeMap::new();
        for partition in partitions {
            let own = Self::parse(&partition.job_defaults);
            let of_all = of_cluster.memory_mib.filter(|_| !partition.has_default_memory);
            let all = Self { cpus: own.cpus.or(of_cluster.cpus), memory_mib: own.memory_mib.or(of_all) };
            if all != Self::default() {
                by_partition.insert(partition.name.clone(), all);
            }
        }
        by_partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::scontrol::partitions;

    const PARTITIONS: &str = include_str!("../../../tests/fixtures/slurm-24.11/scontrol-partition.txt");

    fn all(own: &str, memory: &str, of_cluster: &str) -> BTreeMap<String, GpuDefaults> {
        let first = PARTITIONS.lines().next().unwrap();
        let text = first
            .replace("JobDefaults=(null)", &format!("JobDefaults={own}"))
            .replace("DefMemPerNode=UNLIMITED", memory);
        let (read, dropped) = partitions(&text);
        assert_eq!((read.len(), dropped), (1, 0));
        GpuDefaults::by_partition(&read, of_cluster)
    }

    #[test]
    fn a_partitions_own_word_comes_before_the_clusters() {
        let of = |own: &str, memory: &str, of_cluster: &str| {
            let found = all(own, memory, of_cluster).remove("shared")?;
            Some((found.cpus, found.memory_mib))
        };
        let none = "DefMemPerNode=UNLIMITED";
        assert_eq!(of("(null)", none, "(null)"), None);
        assert_eq!(of("DefCpuPerGPU=8,DefMemPerGPU=16000", none, "(null)"), Some((Some(8), Some(16_000))));
        assert_eq!(of("DefCpuPerGPU=8", none, "DefCpuPerGPU=4,DefMemPerGPU=5"), Some((Some(8), Some(5))));
        for memory in ["DefMemPerNode=4000", "DefMemPerCPU=500"] {
            assert_eq!(of("(null)", memory, "DefCpuPerGPU=4,DefMemPerGPU=5"), Some((Some(4), None)));
            assert_eq!(of("DefMemPerGPU=6", memory, "DefMemPerGPU=5"), Some((None, Some(6))));
        }
        for odd in ["DefCpuPerGPU=x", "DefCpuPerGPU=0", "DefCpuPerGPU", "Other=8", "DefCpuPerGPU=99999999999"]
        {
            assert_eq!(of(odd, none, ""), None, "{odd}");
        }
    }
}
