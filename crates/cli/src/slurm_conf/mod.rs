//! `pillion slurm-conf`: what a site's existing Slurm files need for a pool, as texts from texts. Nothing is written.
//!
//! ```text
//! Files (slurm.conf with what it includes, gres.conf, plugstack.conf, job_submit.lua)
//!   ─► line (logical lines: comments, continuations, pairs)
//!   ─► settings, nodes, gres, taken_whole ─► Proposal { files, by_hand }
//! ```
//!
//! A proposal changes a line only where it knows what the line means; what it does not dare to change it says in `by_hand`.
//! Applied and made again it changes nothing.

mod files;
mod gres;
mod hosts;
mod line;
mod nodes;
mod proposal;
mod settings;
mod taken_whole;
#[cfg(test)]
mod tests;

pub use files::{Files, SLURM_CONF};
pub use hosts::Served;
pub use proposal::{Pool, Proposal};

/// What the files need.
pub fn propose(files: &Files, pool: &Pool) -> Proposal {
    let mut proposal = Proposal { files: files.clone(), ..Proposal::default() };
    settings::propose(&mut proposal);
    nodes::propose(&mut proposal, pool);
    gres::propose(&mut proposal, pool);
    taken_whole::propose(&mut proposal, pool);
    proposal
}

/// What the files of a host need that is no controller: the plugin's line.
pub fn propose_plugin(files: &Files) -> Proposal {
    let mut proposal = Proposal { files: files.clone(), ..Proposal::default() };
    taken_whole::plugstack(&mut proposal);
    proposal
}
