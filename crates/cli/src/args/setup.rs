//! `pillion setup` as people type it.

use crate::setup::Role;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// What a node's devices are read by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// NVIDIA's driver
    Nvidia,
    /// Intel's driver, through Level Zero
    Intel,
    /// Simulated GPUs
    Simulated,
}

impl BackendArg {
    /// As the configuration has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Intel => "intel",
            Self::Simulated => "simulated",
        }
    }
}

/// Options of `setup`.
#[derive(Debug, ClapArgs)]
pub struct SetupArgs {
    /// What this host is
    pub role: Role,
    /// Of a controller: the pool's nodes, as Slurm names them: n[1-2]
    #[arg(long, value_name = "HOSTLIST")]
    pub nodes: Option<String>,
    /// Of a controller: the pool's partition [default: the first of pool.partitions, else shared]
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Of a controller: the device files of a node, in the order of their indexes [default: /dev/nvidia0 .., as many as slurm.conf names]
    #[arg(long, value_name = "LIST")]
    pub devices: Option<String>,
    /// Of a node without /etc/pillion/pillion.toml: by what its GPUs are read
    #[arg(long)]
    pub backend: Option<BackendArg>,
    /// Where slurm.conf is.
    #[arg(
        help = "Where slurm.conf is [default: the directory of SLURM_CONF, else /etc/slurm]",
        long,
        value_name = "DIR"
    )]
    pub directory: Option<PathBuf>,
    /// Do what is shown, not only show it
    #[arg(long)]
    pub yes: bool,
    /// Take back what setup did here, if nobody has changed it since
    #[arg(long)]
    pub undo: bool,
}
