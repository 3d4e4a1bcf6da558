//! End-to-end tests on real Slurm, one module a topic. They run inside a testbed: `tests/run slurm`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod demo;
mod harness;
mod pairs;
mod rides;
mod storm;
mod whole;
