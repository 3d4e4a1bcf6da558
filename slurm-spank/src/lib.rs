//! The SPANK plugin: `--colocate` for `sbatch`, `salloc` and `srun`, and in slurmstepd the environment that the agent
//! answers, before the task's first instruction (row 7 in docs/architecture.md, "The way of one job").
//!
//! It is loaded into `sbatch`, `salloc`, `srun`, slurmd and slurmstepd and sees *every* job, so it **fails open**: for a
//! job that is not ours it returns at once; for ours it waits one deadline (200 ms) at most; every hook returns success
//! whatever happens, and a panic ends inside. The only thing that it ever refuses is a bad value of `--colocate`, at
//! submit. It starts no thread, links no Slurm library, and must not know the scheduler, Postgres or a device.
//!
//! Slurm loads a plugin only if major.minor of [`ffi::slurm::PLUGIN_VERSION`] are its own; nothing else in this file
//! differs from one Slurm to the next. So one build serves all: [`stamp::stamp`] (or `pillion-spank-stamp IN OUT 24.11`)
//! writes the version into a copy. A build with `PILLION_SLURM_VERSION=24.11` set has it from the start.

pub mod agent_client;
pub mod env;
pub mod ffi;
pub mod hooks;
pub mod inherited;
pub mod spank;
pub mod stamp;
pub mod version;
