//! How large the site is, and how long it is watched.

use clap::Parser;

/// Measures the scheduler's reconcilers over a real Postgres, beside a double of Slurm and of the agents.
#[derive(Debug, Clone, Parser)]
#[command(name = "tests/bench control")]
pub(crate) struct Options {
    /// Jobs that wait
    #[arg(long, default_value_t = 100_000)]
    pub(crate) jobs: u32,
    /// Nodes of the pool
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// Devices of a node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) devices: u8,
    /// Jobs that end, and as many that come, in a second
    #[arg(long, default_value_t = 20)]
    pub(crate) churn: u32,
    /// Seconds of churn that are measured
    #[arg(long, default_value_t = 120)]
    pub(crate) seconds: u64,
    /// Seconds that the devices may take to fill before that
    #[arg(long, default_value_t = 300)]
    pub(crate) fill_seconds: u64,
    /// Users
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) users: u32,
    /// Workloads, all of them measured before
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workloads: u32,
    /// How long slurmctld takes for an update
    #[arg(long, default_value_t = 0.17)]
    pub(crate) update_milliseconds: f64,
    /// The longest that Slurm holds a job back without the scheduler
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(6..))]
    pub(crate) bound_seconds: u32,
    /// Given by cargo
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}
