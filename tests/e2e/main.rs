//! End-to-end tests on real Slurm, one module a topic. They run inside a testbed: `tests/run slurm`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod between;
mod changes;
mod characterize;
mod cheats;
mod faults;
mod fence;
mod first_runs;
mod gangs;
mod guides;
mod harness;
mod hooks;
mod hostile;
mod identity;
mod install;
mod instance_deaths;
mod instances;
mod instances_shared;
mod jobs;
mod killed;
mod learning;
mod leases;
mod memcheck;
mod memory;
mod methods;
mod metrics;
mod module;
mod mps_faults;
mod observe;
mod operators;
mod options;
mod outage;
mod outsider;
mod pace;
mod pairs;
mod queue_order;
mod restart;
mod rides;
mod scale;
mod scheduler_death;
mod storm;
mod trials;
mod undo;
mod walls;
mod whole;
