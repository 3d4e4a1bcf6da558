//! What is wanted, and what is proposed.

use super::files::Files;
use std::collections::BTreeSet;

/// The pool that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its nodes, a hostlist: `n[1-2]`.
    pub nodes: String,
    /// The same, one by one.
    pub names: BTreeSet<String>,
    pub partition: String,
    /// Device files in the order of their indexes; empty: `/dev/nvidia0` and so on, as many as slurm.conf names.
    pub devices: Vec<String>,
}

/// What is proposed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proposal {
    /// The files as they should be.
    pub files: Files,
    /// What has to be done by hand, a sentence each.
    pub by_hand: Vec<String>,
    /// The same, of what has to be done before any of this is of use, or without harm.
    pub must_first: Vec<String>,
}

impl Proposal {
    pub(super) fn note(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.by_hand.contains(&sentence) {
            self.by_hand.push(sentence);
        }
    }
    /// The same, of what has to be done before the files are changed.
    pub(super) fn first(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.must_first.contains(&sentence) {
            self.must_first.push(sentence);
        }
    }
}
