//! Private Slurm clusters for the tests and for the demo: real `slurmctld`, `slurmd`, `munged`, real users, our daemons.
//!
//! ```text
//!   tests/run, deploy/demo (bash)            find a Slurm, build
//!        │ pillion-testbed enter -- CMD
//!        ▼
//!   testbed    one namespace a run: own mounts, processes, network, users; when CMD ends, the kernel ends all of it
//!        │
//!        ▼
//!   cluster    one a test, several side by side: slurm.conf, ports, keys and state under one folder
//!   daemons    the programs of Pillion on such a cluster; the only file that knows their configuration
//!   storm      what a storm draws and how it is judged; pure, and carried out by tests/storm
//!   peers      a queue, and what came of it one way and another; pure, and carried out by tests/benchmarks
//! ```
//!
//! It starts programs and asserts on what Slurm and jobs report; it must not know how Pillion decides.

pub mod cluster;
pub mod convert;
pub mod daemons;
pub mod demo;
mod doubles;
pub mod error;
pub mod guide;
pub mod host;
pub mod machine;
pub mod monitoring;
mod observing;
pub mod peers;
pub mod process;
pub mod services;
pub mod storm;
pub mod testbed;
pub mod unchanged;
pub mod wait;

pub use cluster::Cluster;
pub use cluster::spec::ClusterSpec;
pub use error::HarnessError;
