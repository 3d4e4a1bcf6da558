//! End-to-end tests on real Slurm, one module a topic. They run inside a testbed: `tests/run slurm`.

mod harness;
mod pairs;
mod whole;
