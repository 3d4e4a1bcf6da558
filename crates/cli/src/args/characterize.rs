//! What a user has measured.

use clap::Args as ClapArgs;
use pillion_core::CapStep;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub struct CharacterizeArgs {
    /// Parts of the GPU: 0.1, 0.2, .. 0.9
    #[arg(
        long,
        value_name = "CAP,..",
        value_delimiter = ',',
        default_value = "0.2,0.4,0.6,0.8",
        conflicts_with = "gpus"
    )]
    pub caps: Vec<CapStep>,
    /// Instead of caps: how it scales over these numbers of GPUs, as ordinary jobs one after the other, without Pillion
    #[arg(long, value_name = "COUNT,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub gpus: Vec<u32>,
    /// With each of these numbers of CPUs a GPU
    #[arg(
        long, value_name = "COUNT,..", value_delimiter = ',', requires = "gpus",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub cpus: Vec<u32>,
    /// Runs under each cap, and without one, or with each number of GPUs
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub runs: u8,
    /// One more option for sbatch, such as --sbatch=--time=30; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    /// Submit what is due, say how it stands, and end; the same command goes on later
    #[arg(long)]
    pub no_wait: bool,
    /// Measure anew what was measured before
    #[arg(long)]
    pub again: bool,
    /// The batch script, as for sbatch
    #[arg(value_name = "SCRIPT")]
    pub script: PathBuf,
    /// Its arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}
