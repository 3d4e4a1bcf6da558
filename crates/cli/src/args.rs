//! The command line as people type it.

mod act;
mod canary;
mod characterize;
mod idle;
mod plan;
mod replay;
mod rightsize;
mod scale;
mod setup;
mod shadow;

pub use act::{DrainArgs, EventsArgs, EvictArgs, TopArgs, UndrainArgs};
pub use canary::CanaryArgs;
pub use characterize::CharacterizeArgs;
pub use idle::IdleArgs;
pub use plan::{BacktestArgs, FirstRunsArg, ObjectiveArg, ObserveArg, PlanArgs, Switch, UsersArg};
pub use replay::{AnonymiseArgs, OrderArg, ReplayAction, ReplayArgs};
pub use rightsize::RightsizeArgs;
pub use scale::{BudgetArg, MeasureArg, ScaleArgs};
pub use setup::{BackendArg, SetupArgs};
pub use shadow::{ShadowAction, ShadowArgs, ShadowReportArgs};

use crate::address::Address;
use crate::output::Format;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use pillion_core::SlurmJobId;
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
        help = "Where the scheduler listens: unix:/path/to/socket or https://host:port",
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
    /// What your job waits for; or how fast it ran, and what made it slow
    Why(JobArgs),
    /// What your job used and cost on one screen, and what to do next time
    Report(JobArgs),
    /// Everything that is known about one job: what was decided, why, and what came of it
    Explain(JobArgs),
    /// What sharing gained: GPU-hours, kilowatt-hours, promises kept
    Acct(AcctArgs),
    /// What is remembered of workloads alone on a device
    Profile(ProfileArgs),
    /// Runs a batch script alone under several caps, as ordinary jobs, and says how fast it is under each
    Characterize(CharacterizeArgs),
    /// Runs your own scripts on one node of the pool, each alone and then two at a time, as ordinary jobs, and holds what was foretold against what was measured
    Canary(CanaryArgs),
    /// Which models were learnt, which one is in use, and the backtests that decided it
    Model(ModelArgs),
    /// What would be decided, without doing it: on the live queue, a saved snapshot, or CSV files
    Plan(PlanArgs),
    /// Replays random queues against measured pairs and compares policies
    Backtest(BacktestArgs),
    /// What last month would have looked like with Pillion, from what sacct printed; needs nothing installed, changes nothing
    Replay(Box<ReplayArgs>),
    /// How many GPUs a training is worth: break-even, deadline and budget, from runs at different counts; of files it needs nothing installed
    Scale(ScaleArgs),
    /// Saves the input of the engine, to be replayed with 'plan --view'
    Snapshot(SnapshotArgs),
    /// Looks at Slurm, the nodes' set-up and the scheduler, and says what is missing and how to mend it
    Doctor(DoctorArgs),
    /// Prints what Slurm's files need for a pool, as a diff; writes nothing
    SlurmConf(SlurmConfArgs),
    /// Shows what this host needs beside the packages, and does it with --yes; --undo takes it back
    Setup(SetupArgs),
    /// Checks, shows and prints the configuration file
    Config(ConfigArgs),
    /// Makes the secret that scheduler and agents share where they do not prove by MUNGE who they are
    Keygen(KeygenArgs),
    /// Gives back released jobs that did not start; needs Slurm only
    Rescue(RescueArgs),
    /// Tells the scheduler to look at the queue now; for a hook: 2 seconds at most, never fails
    Poke,
    /// Every device of the nodes: how it is, since when, and where its metrics come from
    Nodes,
    /// How the scheduler and its agents are
    Status,
    /// Keeps new jobs away from nodes or GPUs; what runs there goes on. For operators
    Drain(DrainArgs),
    /// Lets jobs onto drained nodes or GPUs again. For operators
    Undrain(UndrainArgs),
    /// Ends a job that shares a GPU and starts it again, alone. For operators
    Evict(EvictArgs),
    /// The rules that are in force: each value, where it comes from, and what it means
    Policy,
    /// GPUs that jobs hold and do not use: whose, since when, and a text for a mail
    Idle(IdleArgs),
    /// Workloads that would have done with a smaller GPU, less memory or fewer GPUs, and a text for a mail
    Rightsize(RightsizeArgs),
    /// What would have been done in observed partitions (mode = "shadow"), and what came of the jobs
    Shadow(ShadowArgs),
    /// What happened to nodes and jobs: faults, victims, evictions, drains
    Events(EventsArgs),
    /// The pool, live: who is on which GPU, what it does, and who waits
    Top(TopArgs),
}

#[derive(Debug, ClapArgs)]
pub struct KeygenArgs {
    /// Put a new key in front of the one that is there, which is taken for a day more
    #[arg(long)]
    pub rotate: bool,
    /// Where [default: what the configuration names, else /etc/pillion/auth.key]
    pub file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct QueueArgs {
    /// Only this user's jobs
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
}

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
    /// Only pairings with this workload, by its name or its key
    #[arg(short = 'W', long, default_value = "", hide_default_value = true)]
    pub workload: String,
    /// Jobs that run alone, too
    #[arg(short, long)]
    pub all: bool,
    /// At most so many decisions, newest first
    #[arg(long, default_value_t = 1000)]
    pub limit: u32,
}

/// `pillion why`, `report` and `explain`.
#[derive(Debug, ClapArgs)]
pub struct JobArgs {
    #[arg(help = "The job: 33, or 33_2 for an array task")]
    pub job: SlurmJobId,
}

/// What runs are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupArg {
    /// The user
    User,
    /// The account
    Account,
    /// The partition
    Partition,
    /// The workload
    Workload,
    /// The node
    Node,
    /// The size of the MIG instance that they had to themselves
    Instance,
    /// The day on which they ended
    Day,
}

impl GroupArg {
    /// As the scheduler takes it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Account => "account",
            Self::Partition => "partition",
            Self::Workload => "workload",
            Self::Node => "node",
            Self::Instance => "instance",
            Self::Day => "day",
        }
    }
}

#[derive(Debug, ClapArgs)]
pub struct AcctArgs {
    /// Runs that ended from this time on [default: today]
    #[arg(short = 'S', long, value_name = "TIME")]
    pub start: Option<String>,
    /// Until this time [default: now]
    #[arg(short = 'E', long, value_name = "TIME")]
    pub end: Option<String>,
    /// Only this user's
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
    /// Only this account's
    #[arg(short = 'A', long, default_value = "", hide_default_value = true)]
    pub account: String,
    /// Only in this partition
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub partition: String,
    /// Only of this workload, by its name or its key
    #[arg(short = 'W', long, default_value = "", hide_default_value = true)]
    pub workload: String,
    /// Only on these nodes: n1,n[3-5]
    #[arg(short = 'w', long, value_name = "NODES", default_value = "", hide_default_value = true)]
    pub nodes: String,
    /// One row for each
    #[arg(short, long, value_enum)]
    pub by: Option<GroupArg>,
}

#[derive(Debug, ClapArgs)]
pub struct ProfileArgs {
    /// Only this workload, by its name or its key
    #[arg(default_value = "", hide_default_value = true)]
    pub workload: String,
    /// Only this user's workloads
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub user: String,
}

#[derive(Debug, ClapArgs)]
pub struct ModelArgs {
    /// At most so many, newest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

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

#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Only what is not well
    #[arg(short, long)]
    pub quiet: bool,
    /// Where the SPANK plugin is looked for besides plugstack.conf's own paths
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct SlurmConfArgs {
    /// The pool's nodes, as Slurm names them: n[1-2]
    #[arg(long, value_name = "HOSTLIST")]
    pub nodes: String,
    /// The pool's partition [default: the first of pool.partitions, else shared]
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// The device files of a node, in the order of their indexes [default: /dev/nvidia0 .., as many as slurm.conf names]
    #[arg(long, value_name = "LIST")]
    pub devices: Option<String>,
    /// Where slurm.conf is.
    #[arg(
        help = "Where slurm.conf is [default: the directory of SLURM_CONF, else /etc/slurm]",
        long,
        value_name = "DIR"
    )]
    pub directory: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct ConfigArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Reads the file as each program does, and says what is wrong: file, line, key and what is allowed
    Check {
        /// The file [default: that of --config, else /etc/pillion/pillion.toml]
        file: Option<PathBuf>,
    },
    /// What is in force, and whether the file, the environment or a default says so
    Show {
        /// The file [default: that of --config, else /etc/pillion/pillion.toml]
        file: Option<PathBuf>,
    },
    /// Shows what is to be changed in a file of an earlier release, as a difference that patch takes; changes nothing
    Migrate {
        /// The file [default: that of --config, else /etc/pillion/pillion.toml]
        file: Option<PathBuf>,
    },
    /// Prints a commented file with every setting and its default
    Example,
}

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
mod tests;
