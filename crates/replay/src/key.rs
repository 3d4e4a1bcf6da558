//! What counts as one workload where Pillion's own module has not seen the job: its user, its name, and its script as that module
//! takes it. Where that is not known, the command line by which it was submitted, without the numbers in it (`train.sh --seed 17` and
//! `--seed 18` are one).

use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};

/// Workloads by number, told apart by 128 bits of their digest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workloads {
    numbers: FxHashMap<u128, u32>,
}

impl Workloads {
    pub(crate) fn number(&mut self, user: &str, name: &str, submit_line: &str) -> u32 {
        self.number_of(digest(user, name, submit_line))
    }
    /// `script`: the digest of its script.
    pub(crate) fn number_by_script(&mut self, user: &str, name: &str, script: u128) -> u32 {
        self.number_of(digest_of([b"script", user.as_bytes(), name.as_bytes(), &script.to_be_bytes()]))
    }
    fn number_of(&mut self, digest: u128) -> u32 {
        let next = u32::try_from(self.numbers.len()).expect("a file has fewer workloads than 2^32");
        *self.numbers.entry(digest).or_insert(next)
    }
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.numbers.len()).unwrap_or(u32::MAX)
    }
}

fn digest(user: &str, name: &str, submit_line: &str) -> u128 {
    digest_of([user.as_bytes(), name.as_bytes(), &without_numbers(submit_line)])
}

fn digest_of<const PARTS: usize>(parts: [&[u8]; PARTS]) -> u128 {
    let mut hash = Sha256::new();
    // A byte that is in no text keeps the parts apart.
    for part in parts {
        hash.update(part);
        hash.update([0xff]);
    }
    let bytes: [u8; 32] = hash.finalize().into();
    u128::from_be_bytes(bytes[..16].try_into().expect("16 of 32"))
}

/// Each run of digits as one `0`, each run of white space as one blank.
pub(crate) fn without_numbers(line: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    for byte in line.trim().bytes() {
        let byte = match byte {
            b'0'..=b'9' => b'0',
            _ if byte.is_ascii_whitespace() => b' ',
            other => other,
        };
        if !(matches!(byte, b'0' | b' ') && text.last() == Some(&byte)) {
            text.push(byte);
        }
    }
    text
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
