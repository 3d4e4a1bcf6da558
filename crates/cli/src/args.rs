//! The command line as people type it.

use crate::client::Address;
use crate::output::Format;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use pillion_core::device::Mechanism;
use pillion_core::{SlowdownRatio, SlurmJobId};
use std::path::PathBuf;

/// Puts a second job on a GPU only where it will not slow the first. This is the window into it.
#[derive(Debug, Parser)]
#[command(name = "pillion", version, propagate_version = true, infer_subcommands = false)]
pub struct Args {
    /// For every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
pub struct Global {
    /// Where the scheduler listens
    #[arg(
        help = "Where the scheduler listens: unix:/path/to/socket or http://host:port",
        long,
        global = true,
        env = "PILLION_SCHEDULER",
        default_value = "unix:/run/pillion/scheduler.sock",
        value_name = "ADDR"
    )]
    pub scheduler: Address,
    /// The configuration file [default: /etc/pillion/pillion.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, global = true, conflicts_with = "parsable2")]
    pub json: bool,
    /// Print cells separated by '|', without one at the end
    #[arg(short = 'P', long, global = true)]
    pub parsable2: bool,
    /// Print no column names
    #[arg(short = 'n', long, global = true)]
    pub noheader: bool,
    /// Only these columns, in this order: jobid,user,reason
    #[arg(
        short = 'o',
        long = "format",
        global = true,
        value_name = "COLUMN,..",
        value_delimiter = ',',
        conflicts_with = "json"
    )]
    pub columns: Vec<String>,
}

impl Global {
    /// How to print.
    pub const fn format(&self) -> Format {
        match (self.json, self.parsable2) {
            (true, _) => Format::Json,
            (_, true) => Format::Parsable,
            _ => Format::Table,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Jobs that wait for a decision: why, and until when
    Queue(QueueArgs),
    /// Which jobs share which device, now or in the past
    Pairs(PairsArgs),
    /// Everything that is known about one job: what was decided, why, and what came of it
    Explain(ExplainArgs),
    /// What is remembered of workloads alone on a device
    Profile(ProfileArgs),
    /// What would be decided, without doing it: on the live queue, a saved snapshot, or CSV files
    Plan(PlanArgs),
    /// Saves the input of the engine, to be replayed with 'plan --view'
    Snapshot(SnapshotArgs),
    /// Looks at Slurm, the nodes' set-up and the scheduler, and says what is missing and how to mend it
    Doctor(DoctorArgs),
    /// Gives back released jobs that did not start; needs Slurm only
    Rescue(RescueArgs),
    /// Tells the scheduler to look at the queue now; for a hook: 2 seconds at most, never fails
    Poke,
    /// How the scheduler and its agents are
    Status,
}

/// `pillion queue`.
#[derive(Debug, ClapArgs)]
pub struct QueueArgs {
    /// Only this user's jobs
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
}

/// `pillion pairs`.
#[derive(Debug, ClapArgs)]
pub struct PairsArgs {
    /// Only what runs or is planned now (the default without -S and -E)
    #[arg(long, conflicts_with_all = ["start", "end"])]
    pub active: bool,
    /// From this time on: 2026-11-21, 2026-11-21T14:05:00, 14:05, today, now-2hours
    #[arg(short = 'S', long, value_name = "TIME")]
    pub start: Option<String>,
    /// Until this time
    #[arg(short = 'E', long, value_name = "TIME")]
    pub end: Option<String>,
    /// Only pairings with a job of this user
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
    /// Jobs that run alone, too
    #[arg(short, long)]
    pub all: bool,
    /// At most so many decisions, newest first
    #[arg(long, default_value_t = 1000)]
    pub limit: u32,
}

/// `pillion explain`.
#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// The job.
    #[arg(help = "The job: 33, or 33_2 for an array task")]
    pub job: SlurmJobId,
}

/// `pillion profile`.
#[derive(Debug, ClapArgs)]
pub struct ProfileArgs {
    /// Only this workload
    #[arg(default_value = "", hide_default_value = true)]
    pub workload: String,
    /// Only this user's workloads
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// GPU-hours saved
    Throughput,
    /// Energy saved
    Energy,
    /// Work per joule
    ThroughputPerWatt,
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// `pillion plan`.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["live", "view", "solo"]))]
pub struct PlanArgs {
    /// On the live queue, as the scheduler sees it
    #[arg(long)]
    pub live: bool,
    /// On a snapshot made by 'pillion snapshot save'
    #[arg(long, value_name = "FILE")]
    pub view: Option<PathBuf>,
    /// On files: how each workload runs alone (CSV)
    #[arg(long, value_name = "SOLO.csv", requires = "queue")]
    pub solo: Option<PathBuf>,
    /// The jobs that wait (CSV)
    #[arg(long, value_name = "QUEUE.csv", requires = "solo")]
    pub queue: Option<PathBuf>,
    /// The jobs that run and may be joined (CSV)
    #[arg(long, value_name = "RUNNING.csv", requires = "solo")]
    pub running: Option<PathBuf>,
    /// The device model that the jobs are to run on
    #[arg(long, value_name = "MODEL", requires = "solo")]
    pub device: Option<String>,
    /// How the device is shared: mps, ccs or none
    #[arg(long, requires = "solo")]
    pub mechanism: Option<Mechanism>,
    /// The device's memory in bytes
    #[arg(long, value_name = "BYTES", requires = "solo")]
    pub device_memory: Option<u64>,
    /// The promise: shared time over solo time, at most
    #[arg(long, value_name = "RATIO", value_parser = parse_promise)]
    pub max_slowdown: Option<SlowdownRatio>,
    /// What counts
    #[arg(long, value_enum)]
    pub objective: Option<ObjectiveArg>,
    /// Whether caps may be set
    #[arg(long, value_enum)]
    pub caps: Option<Switch>,
    /// How many jobs may share a device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4))]
    pub max_tenants: Option<u32>,
}

fn parse_promise(text: &str) -> Result<SlowdownRatio, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is not a number; write 1.25"))?;
    SlowdownRatio::try_promise(value).map_err(|error| error.to_string())
}

/// `pillion snapshot`.
#[derive(Debug, ClapArgs)]
pub struct SnapshotArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: SnapshotAction,
}

/// What to do with a snapshot.
#[derive(Debug, Subcommand)]
pub enum SnapshotAction {
    /// Writes the live view to a file
    Save {
        /// Where to; an existing file is replaced whole
        file: PathBuf,
    },
}

/// `pillion doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Only what is not well
    #[arg(short, long)]
    pub quiet: bool,
    /// Where the SPANK plugin is looked for besides plugstack.conf's own paths
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Option<PathBuf>,
}

/// `pillion rescue`.
#[derive(Debug, ClapArgs)]
pub struct RescueArgs {
    /// Undo releases older than so many seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub older_than: u32,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn plan_wants_exactly_one_input() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        assert!(parse("pillion plan --live").is_ok());
        assert!(parse("pillion plan --view a.json --max-slowdown 1.2").is_ok());
        assert!(parse("pillion plan --solo a.csv --queue b.csv --mechanism mps").is_ok());
        for wrong in
            ["pillion plan", "pillion plan --live --view a.json", "pillion plan --live --max-slowdown 0.9"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
