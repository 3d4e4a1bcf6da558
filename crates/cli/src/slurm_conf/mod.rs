//! `pillion slurm-conf`: what a site's existing Slurm files need for a pool, as texts from texts. Nothing is written.
//!
//! ```text
//! Files (slurm.conf with what it includes, gres.conf, plugstack.conf, job_submit.lua)
//!   ─► line (logical lines: comments, continuations, pairs)
//!   ─► settings, nodes, gres, files ─► Proposal { files, by_hand }
//! ```
//!
//! A proposal changes a line only where it knows what the line means; what it does not dare to change it says in `by_hand`.
//! Applied and made again it changes nothing.

mod files;
mod gres;
mod line;
mod nodes;
mod settings;
#[cfg(test)]
mod tests;

pub use files::{Files, SLURM_CONF};

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
}

impl Proposal {
    fn note(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.by_hand.contains(&sentence) {
            self.by_hand.push(sentence);
        }
    }
}

/// What the files need.
pub fn propose(files: &Files, pool: &Pool) -> Proposal {
    let mut proposal = Proposal { files: files.clone(), by_hand: Vec::new() };
    settings::propose(&mut proposal);
    nodes::propose(&mut proposal, pool);
    gres::propose(&mut proposal, pool);
    files::propose(&mut proposal, pool);
    proposal
}

/// The GRES of a node with so many devices: a type of its own and 100 shards each.
fn gres_of(count: usize) -> String {
    let gpus = (0..count).map(|index| format!("gpu:g{index}:1"));
    let shards = (0..count).map(|index| format!("shard:g{index}:100"));
    gpus.chain(shards).collect::<Vec<_>>().join(",")
}
