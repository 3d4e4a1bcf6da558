//! A site's accounting, replayed.

use super::plan::{UsersArg, parse_mechanism, parse_promise};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use pillion_core::device::Mechanism;
use pillion_core::{Fraction, SlowdownRatio};
use pillion_replay::{Order, PoolSize};
use std::path::PathBuf;

const INPUT: &str = "What happened";
const SITE: &str = "Where";
const SETTING: &str = "With Pillion";
const WORTH: &str = "What it is worth";

/// By what jobs are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// By when they became eligible
    Submit,
    /// By Slurm's priority
    Priority,
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Submit => Self::Submit,
            OrderArg::Priority => Self::Priority,
        }
    }
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ReplayArgs {
    /// What else.
    #[command(subcommand)]
    pub action: Option<ReplayAction>,
    /// What the command of --print-sacct wrote; of every file here '-' is what comes in
    #[arg(value_name = "SACCT", required_unless_present_any = ["print_sacct", "print_queries"], help_heading = INPUT)]
    pub sacct: Option<PathBuf>,
    /// Prints the sacct command that writes what is read here, and ends
    #[arg(long, conflicts_with = "sacct", help_heading = INPUT)]
    pub print_sacct: bool,
    /// What 'sacct -e' printed here: fields that it does not name are left out
    #[arg(long, value_name = "FILE", requires = "print_sacct", help_heading = INPUT)]
    pub fields: Option<PathBuf>,
    /// From this time on, as sacct takes it
    #[arg(short = 'S', long, value_name = "TIME", default_value = "now-31days", requires = "print_sacct", value_parser = parse_word, help_heading = INPUT)]
    pub start: String,
    /// Until this time, as sacct takes it
    #[arg(short = 'E', long, value_name = "TIME", default_value = "now", requires = "print_sacct", value_parser = parse_word, help_heading = INPUT)]
    pub end: String,
    /// How jobs used their GPUs (CSV): docs/evaluate.md names the columns
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub telemetry: Option<PathBuf>,
    /// Instead: the address of the site's Prometheus, which is asked (read only) what dcgm-exporter and jobstats' exporter told it
    #[arg(long, value_name = "URL", conflicts_with = "telemetry", help_heading = INPUT)]
    pub prometheus: Option<String>,
    /// Prints what --prometheus asks, and ends
    #[arg(long, conflicts_with_all = ["sacct", "print_sacct"], help_heading = INPUT)]
    pub print_queries: bool,
    /// What jobs ran: what 'sacct --batch-script -j JOBS' printed, or a folder of scripts named by job numbers (17.sh)
    #[arg(long, value_name = "FILE|DIR", help_heading = INPUT)]
    pub scripts: Option<PathBuf>,
    /// What 'scontrol show nodes' printed
    #[arg(long, value_name = "FILE", conflicts_with = "shape", help_heading = SITE)]
    pub nodes: Option<PathBuf>,
    /// Instead: nodes by number, GPUs, type, CPUs and memory (16x4:a100:64:512); more than once for several kinds
    #[arg(long, value_name = "COUNTxGPUS[:TYPE[:CPUS[:GIB]]]", help_heading = SITE)]
    pub shape: Vec<String>,
    /// The memory of a type of GPU in GiB (a100=80), where neither the type nor jobstats tells it; more than once for several
    #[arg(long, value_name = "TYPE=GIB", help_heading = SITE)]
    pub gpu_memory: Vec<String>,
    /// By what jobs are served [default: as is nearer to the real waits]
    #[arg(long, value_enum, help_heading = SITE)]
    pub order: Option<OrderArg>,
    /// Sizes of the pool: a part of the nodes with GPUs (25%) or a number of them (8) [default: 25%,50%; from 10,000 jobs 50%]
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = parse_pool, help_heading = SETTING)]
    pub pool: Vec<PoolSize>,
    /// Shares of the users whose jobs share [default: 25%,50%; from 10,000 jobs 50%]
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',', value_parser = parse_share, help_heading = SETTING)]
    pub adoption: Vec<Fraction>,
    /// Who may share with whom
    #[arg(long, value_enum, default_value = "same-user", help_heading = SETTING)]
    pub users: UsersArg,
    /// The promise: shared time over solo time, at most, 1 to 10 [default: 1.25]
    #[arg(long, value_name = "R", value_parser = parse_promise, help_heading = SETTING)]
    pub max_slowdown: Option<SlowdownRatio>,
    /// How many jobs may share a device
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=4), help_heading = SETTING)]
    pub max_tenants: u32,
    /// How GPUs are shared: mps, ccs or none
    #[arg(long, default_value = "mps", value_parser = parse_mechanism, help_heading = SETTING)]
    pub mechanism: Mechanism,
    /// How often each setting is drawn [default: 5; from 10,000 jobs 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(3..=100), help_heading = SETTING)]
    pub seeds: Option<u64>,
    /// Seconds between two plans at least [default: 10; from 10,000 jobs 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = SETTING)]
    pub plan_seconds: Option<u32>,
    /// What a GPU draws at rest, in watts
    #[arg(long, value_name = "WATTS", value_parser = parse_amount, help_heading = WORTH)]
    pub idle_watts: Option<f64>,
    /// What a GPU-hour costs, in whatever you count in
    #[arg(long, value_name = "AMOUNT", value_parser = parse_amount, help_heading = WORTH)]
    pub price: Option<f64>,
    /// Grams of carbon dioxide a kilowatt-hour: a number, or a file of 'seconds since 1970,grams'
    #[arg(long, value_name = "GRAMS|FILE", help_heading = WORTH)]
    pub carbon: Option<String>,
    /// Also writes the report as one page that can be printed and sent
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What else can be done with a file of sacct.
#[derive(Debug, Subcommand)]
pub enum ReplayAction {
    /// Writes the files anew without people and names: equal names stay equal within them, and mean nothing outside
    Anonymise(AnonymiseArgs),
}

#[derive(Debug, ClapArgs)]
pub struct AnonymiseArgs {
    /// What the command of --print-sacct wrote; of every file here '-' is what comes in
    #[arg(value_name = "SACCT")]
    pub sacct: PathBuf,
    /// What 'scontrol show nodes' printed
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// The folder for sacct.txt and nodes.txt, which must not be there yet
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
}

fn parse_pool(text: &str) -> Result<PoolSize, String> {
    let wrong = || "a part of the nodes (25%) or a number of them (8) is expected".to_owned();
    if text.ends_with('%') {
        return parse_share(text).map(PoolSize::Part).map_err(|_| wrong());
    }
    text.parse().ok().filter(|count| *count > 0).map(PoolSize::Nodes).ok_or_else(wrong)
}

fn parse_share(text: &str) -> Result<Fraction, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
    let share =
        percent.filter(|percent| *percent > 0.0).and_then(|percent| Fraction::try_new(percent / 100.0).ok());
    share.ok_or_else(|| "a share above 0% and up to 100% is expected; write 25%".to_owned())
}

pub(super) fn parse_amount(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|amount: &f64| (0.0..=1e6).contains(amount));
    amount.ok_or_else(|| "a number from 0 to 1000000 is expected; write 55".to_owned())
}

/// A time for sacct goes into a line for a shell: it holds nothing that a shell would obey.
fn parse_word(text: &str) -> Result<String, String> {
    let is_plain =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+:/.".contains(&byte));
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err("a time as sacct takes it is expected; write 2026-11-01 or now-31days".to_owned())
    }
}
