//! Plans that nobody carries out: on the live queue, on files, on queues that are drawn.

use clap::{Args as ClapArgs, ValueEnum};
use pillion_core::device::{Mechanism, UnknownMechanism};
use pillion_core::isolation::Isolation;
use pillion_core::{Fraction, SlowdownRatio};
use pillion_pairing::backtest::WARM_OBSERVATIONS;
use pillion_pairing::{Objective, Policy, TrialPolicy, UserPolicy};
use std::path::PathBuf;

const FILES: &str = "On files";
const POLICY: &str = "Policy";
const WEEK: &str = "A week";

/// What pairings are chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// GPU-hours saved
    Throughput,
    /// Energy saved
    Energy,
    /// Work per joule
    ThroughputPerWatt,
}

/// Who may be on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsersArg {
    /// Jobs of one user
    SameUser,
    /// Jobs of one account
    SameAccount,
    /// Anybody's jobs
    Any,
}

impl From<UsersArg> for UserPolicy {
    fn from(users: UsersArg) -> Self {
        match users {
            UsersArg::SameUser => Self::SameUser,
            UsersArg::SameAccount => Self::SameAccount,
            UsersArg::Any => Self::Any,
        }
    }
}

/// What stands between jobs of different users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// Nothing
    Shared,
    /// A wall
    Hard,
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

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
    #[arg(long, value_name = "SOLO.csv", requires = "queue", help_heading = FILES)]
    pub solo: Option<PathBuf>,
    /// The jobs that wait (CSV); a job is its row, from 0
    #[arg(long, value_name = "QUEUE.csv", requires = "solo", help_heading = FILES)]
    pub queue: Option<PathBuf>,
    /// What was measured of workloads together (CSV); the model learns from it
    #[arg(long, value_name = "PAIRS.csv", requires = "solo", help_heading = FILES)]
    pub history: Option<PathBuf>,
    /// The jobs that run and may be joined (CSV)
    #[arg(long, value_name = "RUNNING.csv", requires = "solo", help_heading = FILES)]
    pub running: Option<PathBuf>,
    /// The only combinations of workloads and caps that may be chosen (CSV)
    #[arg(long, value_name = "ALLOW.csv", requires = "solo", help_heading = FILES)]
    pub allow: Option<PathBuf>,
    /// The device model that the jobs are to run on [default: the one that all of PAIRS.csv names]
    #[arg(long, value_name = "MODEL", requires = "solo", help_heading = FILES)]
    pub device: Option<String>,
    /// How the device is shared: mps, ccs or none [default: mps]
    #[arg(long, requires = "solo", value_parser = parse_mechanism, help_heading = FILES)]
    pub mechanism: Option<Mechanism>,
    /// The device's memory in bytes: 85899345920, 8e10 [default: everything fits]
    #[arg(long, value_name = "BYTES", requires = "solo", value_parser = parse_bytes, help_heading = FILES)]
    pub device_memory: Option<u64>,
    /// Also print every way of sharing that was considered, with the rule that excluded it
    #[arg(long, requires = "solo", conflicts_with_all = ["parsable2", "columns"], help_heading = FILES)]
    pub candidates: bool,
    /// Print what each device would be cut into (MIG), with who has which part of it; one that nobody told how to cut is taken to
    /// be cut as its model can be
    #[arg(long, conflicts_with = "candidates")]
    pub mig: bool,
    /// On files, with --mig: how many devices are free [default: 1]
    #[arg(long, value_name = "N", requires_all = ["mig", "solo"], value_parser = clap::value_parser!(u32).range(0..=10_000), help_heading = FILES)]
    pub devices: Option<u32>,
    /// The promise: shared time over solo time, at most, 1 to 10 [default: 1.25]
    #[arg(long, value_name = "R", value_parser = parse_promise, help_heading = POLICY)]
    pub max_slowdown: Option<SlowdownRatio>,
    /// Who may be on one device: same-user, same-account or any [default: same-user]
    #[arg(long, value_enum, help_heading = POLICY)]
    pub users: Option<UsersArg>,
    /// What stands between jobs of different users: shared (nothing) or hard (a wall) [default: shared]
    #[arg(long, value_enum, help_heading = POLICY)]
    pub isolation: Option<IsolationArg>,
    /// How many of the jobs that share may be expected to break their promise, 0 to 1 [default: 0.02]
    #[arg(long, value_name = "F", value_parser = parse_budget, help_heading = POLICY)]
    pub broken_budget: Option<Fraction>,
    /// What counts [default: throughput]
    #[arg(long, value_enum, help_heading = POLICY)]
    pub objective: Option<ObjectiveArg>,
    /// Whether caps may be set [default: on]
    #[arg(long, value_enum, help_heading = POLICY)]
    pub caps: Option<Switch>,
    /// How many jobs may share a device, 1 to 16, of which more than 4 are copies of one workload [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16), help_heading = POLICY)]
    pub max_tenants: Option<u32>,
    /// Whether pairs outside the bounds are tried, where both jobs count their progress [default: off]
    #[arg(long, value_enum, help_heading = POLICY)]
    pub trials: Option<Switch>,
}

impl PlanArgs {
    /// Whether another policy than the site's is asked for.
    pub const fn has_policy(&self) -> bool {
        self.max_slowdown.is_some()
            || self.objective.is_some()
            || self.caps.is_some()
            || self.max_tenants.is_some()
            || self.broken_budget.is_some()
            || self.trials.is_some()
            || self.users.is_some()
            || self.isolation.is_some()
    }

    /// The default policy with what the options change.
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        if let Some(ratio) = self.max_slowdown {
            policy.slowdown_ratio_max = ratio;
        }
        if let Some(objective) = self.objective {
            policy.objective = match objective {
                ObjectiveArg::Throughput => Objective::Throughput,
                ObjectiveArg::Energy => Objective::Energy,
                ObjectiveArg::ThroughputPerWatt => Objective::ThroughputPerWatt,
            };
        }
        if let Some(caps) = self.caps {
            policy.caps = caps == Switch::On;
        }
        if let Some(tenants) = self.max_tenants {
            policy.tenants_max = tenants;
        }
        if let Some(budget) = self.broken_budget {
            policy.broken_budget_fraction = budget.value();
        }
        if self.trials == Some(Switch::On) {
            policy.trials = Some(TrialPolicy::default());
        }
        if let Some(users) = self.users {
            policy.users = users.into();
        }
        if let Some(isolation) = self.isolation {
            policy.isolation = match isolation {
                IsolationArg::Shared => Isolation::Shared,
                IsolationArg::Hard => Isolation::Hard,
            };
        }
        policy
    }
}

/// Which pairings were observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObserveArg {
    /// By chance
    Random,
    /// Those that an optimist would let share
    Chosen,
}

impl BacktestArgs {
    /// How pairs are tried, where that is to be replayed.
    pub fn trial_policy(&self) -> Option<TrialPolicy> {
        let usual = TrialPolicy::default();
        self.trials.then(|| TrialPolicy {
            trial_seconds: self.trial_seconds.map_or(usual.trial_seconds, f64::from),
            restart_seconds: self.restart_seconds.map_or(usual.restart_seconds, f64::from),
        })
    }
}

#[derive(Debug, ClapArgs)]
pub struct BacktestArgs {
    /// How each workload runs alone (CSV)
    #[arg(long, value_name = "SOLO.csv", required_unless_present = "mig")]
    pub solo: Option<PathBuf>,
    /// What was measured of workloads together (CSV)
    #[arg(long, value_name = "PAIRS.csv", required_unless_present = "mig")]
    pub pairs: Option<PathBuf>,
    /// Replays how a device is cut into MIG instances, by speeds that were measured in them (CSV), instead of pairs: queues of
    /// 60 jobs on one device [--device: a100-40]
    #[arg(long, value_name = "SLICES.csv",
          conflicts_with_all = ["solo", "pairs", "queues", "observed", "observe", "trials", "week", "plot", "mechanism"])]
    pub mig: Option<PathBuf>,
    /// What was measured of three and more together (CSV): says how far they are foretold by what is known of fewer, instead of
    /// replaying pairs
    #[arg(long, value_name = "GROUPS.csv",
          conflicts_with_all = ["mig", "queues", "observed", "observe", "trials", "week", "plot"])]
    pub groups: Option<PathBuf>,
    /// Jobs in each queue
    #[arg(long, value_name = "JOBS,..", value_delimiter = ',', default_value = "8,32,200",
          value_parser = clap::value_parser!(u32).range(2..=2000))]
    pub queues: Vec<u32>,
    /// How many times the families are split and the queues drawn
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// How many pairings of new workloads were observed when warm
    #[arg(long, value_name = "PAIRINGS,..", value_delimiter = ',', default_values_t = WARM_OBSERVATIONS,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub observed: Vec<usize>,
    /// The promise: shared time over solo time, at most [default: 1.25; of --mig: 2.5, 1.67 and 1.25]
    #[arg(long, value_name = "RATIO", value_parser = parse_promise)]
    pub max_slowdown: Option<SlowdownRatio>,
    /// Which pairings were observed then: by chance, or those that an optimist would let share
    #[arg(long, value_enum, default_value_t = ObserveArg::Random)]
    pub observe: ObserveArg,
    /// Also replay the planner with trials: pairs outside the bounds are tried and taken apart where they break
    #[arg(long)]
    pub trials: bool,
    /// How long two are tried before their speeds are known [default: 60]
    #[arg(long, value_name = "N", requires = "trials", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub trial_seconds: Option<u32>,
    /// What it takes whoever goes back to start again [default: 60]
    #[arg(long, value_name = "N", requires = "trials", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub restart_seconds: Option<u32>,
    /// The device model whose pairs are replayed [default: the one that all pairs are of]
    #[arg(long, value_name = "MODEL")]
    pub device: Option<String>,
    /// How the device is shared where PAIRS.csv does not say: mps, ccs or none
    #[arg(long, default_value = "mps", value_parser = parse_mechanism)]
    pub mechanism: Mechanism,
    /// Draws the gain of all pairs, the calibration and the learning curve into this folder (SVG); of a week the share of
    /// the oracle and the regret
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// A fresh installation over a simulated week of recurring jobs, instead of single queues
    #[arg(long, conflicts_with_all = ["queues", "observed", "observe"], help_heading = WEEK)]
    pub week: bool,
    /// Jobs in each of the four rounds of a day
    #[arg(long, value_name = "N", default_value_t = 40, requires = "week", help_heading = WEEK,
          value_parser = clap::value_parser!(u32).range(2..=2000))]
    pub jobs: u32,
    /// Of the jobs, how many run what ran in an earlier round; the others run something new
    #[arg(long, value_name = "FRACTION", default_value = "0.75", requires = "week", help_heading = WEEK,
          value_parser = parse_recur)]
    pub recur: Fraction,
    /// What becomes of the first run of something new
    #[arg(long, value_enum, default_value = "alone", requires = "week", help_heading = WEEK)]
    pub first_runs: FirstRunsArg,
    /// Pairs that are seen to break a promise after a minute are taken apart, and the guest begins anew
    #[arg(long, requires = "week", help_heading = WEEK)]
    pub watch: bool,
    /// Whether something new is known as a later version of what it is a version of
    #[arg(long, value_enum, default_value = "off", requires = "week", help_heading = WEEK)]
    pub versions: Switch,
}

/// What becomes of a workload's first run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirstRunsArg {
    /// It has its device to itself
    Alone,
    /// Others join it after its first minutes
    Host,
}

/// What a number of bytes may be at most: 2^53, from where not every number can be written.
const BYTES_MAX: f64 = 9_007_199_254_740_992.0;

pub(super) fn parse_promise(text: &str) -> Result<SlowdownRatio, String> {
    let promise = text.parse().ok().and_then(|value: f64| SlowdownRatio::try_promise(value).ok());
    promise.ok_or_else(|| "a ratio from 1 to 10 is expected; write 1.25".to_owned())
}

fn parse_budget(text: &str) -> Result<Fraction, String> {
    let budget = text.parse().ok().and_then(|value: f64| Fraction::try_new(value).ok());
    budget.ok_or_else(|| "a fraction from 0 to 1 is expected; write 0.02".to_owned())
}

fn parse_recur(text: &str) -> Result<Fraction, String> {
    let recur = text.parse().ok().and_then(|value: f64| Fraction::try_new(value).ok());
    recur.ok_or_else(|| "a fraction from 0 to 1 is expected; write 0.75".to_owned())
}

/// How two share a device: not in instances of their own.
pub(super) fn parse_mechanism(text: &str) -> Result<Mechanism, String> {
    let mechanism: Mechanism = text.parse().map_err(|unknown: UnknownMechanism| unknown.to_string())?;
    if mechanism.has_instances() {
        return Err("pairs share by mps, ccs and none; by mig each has an instance of its own".to_owned());
    }
    Ok(mechanism)
}

/// Bytes, also as other programs write them: `8e10`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^53")]
fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().filter(|value: &f64| (1.0..=BYTES_MAX).contains(value));
    let expected = "a number of bytes is expected, 1 or more and without a unit; write 85899345920 or 8e10";
    bytes.map(|bytes| bytes as u64).ok_or_else(|| expected.to_owned())
}
