//! What counts as one workload where Pillion's own module has not seen the job: its user, its name, and its script as that module
//! takes it. Where that is not known, the command line by which it was submitted, without the numbers in it, as an observing
//! scheduler has it (`core::workload`).

use pillion_core::WorkloadKey;
use pillion_core::workload::{of_submit_line, without_numbers};
use rustc_hash::FxHashMap;
use std::hash::BuildHasher as _;

/// Workloads by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workloads {
    numbers: FxHashMap<WorkloadKey, u32>,
}

impl Workloads {
    pub(crate) fn number(&mut self, user: &str, name: &str, submit_line: &str) -> u32 {
        self.number_of(of_submit_line(user, name, submit_line))
    }
    /// `script`: the digest of its script.
    pub(crate) fn number_by_script(&mut self, user: &str, name: &str, script: u128) -> u32 {
        self.number_of(WorkloadKey::new(format!("{user}/{name}/script-{script:032x}")))
    }
    fn number_of(&mut self, key: WorkloadKey) -> u32 {
        let next = u32::try_from(self.numbers.len()).expect("a file has fewer workloads than 2^32");
        *self.numbers.entry(key).or_insert(next)
    }
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.numbers.len()).unwrap_or(u32::MAX)
    }
}

/// A digest of a command line without the numbers in it; for one file at a time.
pub(crate) fn command(submit_line: &str) -> u64 {
    rustc_hash::FxBuildHasher.hash_one(without_numbers(submit_line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_no_workloads_apart_and_everything_else_does() {
        let mut workloads = Workloads::default();
        let mut number = |user, name, line| workloads.number(user, name, line);
        let first = number("alice", "train", "sbatch  train.sh --seed 17");
        assert_eq!(number("alice", "train", "sbatch train.sh --seed 4 "), first);
        assert_ne!(number("bob", "train", "sbatch train.sh --seed 4"), first);
        assert_ne!(number("alice", "train2", "sbatch train.sh --seed 4"), first, "a name is the user's word");
        assert_ne!(number("alice", "train", "sbatch train.sh --lr 0.1"), first);
        assert_ne!(number("alicet", "rain", "sbatch train.sh --seed 4"), first);
        assert_eq!(workloads.count(), 5);
        let by_script = workloads.number_by_script("alice", "train", 7);
        assert_eq!(workloads.number_by_script("alice", "train", 7), by_script);
        for (user, name, script) in [("bob", "train", 7), ("alice", "train2", 7), ("alice", "train", 8)] {
            assert_ne!(workloads.number_by_script(user, name, script), by_script);
        }
        assert_eq!(workloads.count(), 9);
    }
}
