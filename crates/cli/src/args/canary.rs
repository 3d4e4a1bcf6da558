//! What a site measures before it trusts.

use clap::Args as ClapArgs;
use pillion_core::SlowdownRatio;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub struct CanaryArgs {
    /// The node of the pool [default: the only one]
    #[arg(short = 'w', long, value_name = "NODE")]
    pub node: Option<String>,
    /// Runs of each script alone, before any pair
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub runs: u8,
    /// So many pairs, drawn by --seed [default: every script beside every one, itself too]
    #[arg(long, value_name = "COUNT", value_parser = pair_count)]
    pub pairs: Option<usize>,
    /// By which pairs are drawn: the same seed draws the same
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// The promise of each in a pair: at most so many times its time alone; a wide one admits nearly every pair
    #[arg(long, value_name = "RATIO", default_value = "10", value_parser = promise)]
    pub max_slowdown: SlowdownRatio,
    /// One more option for sbatch, such as --sbatch=--time=30; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Submit what is due, say how it stands, and end; the same command goes on later
    #[arg(long)]
    pub no_wait: bool,
    /// Measure anew what was measured before
    #[arg(long)]
    pub again: bool,
    /// The site's own batch scripts, as for sbatch, each with its time limit
    #[arg(value_name = "SCRIPT", required = true, num_args = 1..=64)]
    pub scripts: Vec<PathBuf>,
}

fn pair_count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "write a number of pairs, 1 or more".to_owned())
}

fn promise(text: &str) -> Result<SlowdownRatio, String> {
    let value = text.parse().ok().and_then(|value| SlowdownRatio::try_promise(value).ok());
    value.ok_or_else(|| "write a number from 1 to 10, such as 1.25".to_owned())
}
