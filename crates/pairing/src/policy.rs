//! What the site wants.

use crate::allow::AllowList;
use crate::trials::TrialPolicy;
use pillion_core::SlowdownRatio;
use pillion_core::isolation::Isolation;
use serde::{Deserialize, Serialize};

/// Who may share a device with whom (docs/principles.md#who-may-share).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum UserPolicy {
    /// Jobs of one user only.
    #[default]
    SameUser,
    /// Jobs of one account.
    SameAccount,
    /// Jobs of whomever.
    Any,
}

impl UserPolicy {
    /// Whether it lets two together, of whom each is a user and an account. A user is always one with himself.
    pub fn lets<U: PartialEq>(self, [a, b]: [(U, &str); 2]) -> bool {
        match self {
            Self::SameUser => a.0 == b.0,
            Self::SameAccount => a.0 == b.0 || (!a.1.is_empty() && a.1 == b.1),
            Self::Any => true,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_same_user(&self) -> bool {
        *self == Self::SameUser
    }
}

/// What becomes of a workload's first run, of which nothing is known (docs/principles.md#first-run-alone).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum FirstRuns {
    /// It has its device to itself until it ends.
    #[default]
    Alone,
    /// Once it was measured for long enough and is steady, known jobs may join it.
    Host,
}

/// By what it is known when a job is over (docs/principles.md#order-of-service).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum EndsBy {
    /// By the runs of its workload, where two or more are known, else by its time limit.
    #[default]
    Runs,
    /// By its time limit.
    Limits,
}

impl EndsBy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_runs(&self) -> bool {
        *self == Self::Runs
    }
}

/// What a plan maximises among the pairings that keep every promise (docs/principles.md#promise-before-gain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Objective {
    /// GPU-hours saved against a device for each job.
    #[default]
    Throughput,
    /// Energy saved against the same work done alone; where power is not known, GPU-hours.
    Energy,
    /// Work per joule.
    ThroughputPerWatt,
}

/// A word of the configuration that is not one of those allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not {what}; allowed are {allowed}")]
pub struct UnknownWord {
    /// What was written.
    pub word: String,
    /// What it should have been.
    pub what: &'static str,
    /// What may be written.
    pub allowed: &'static str,
}

impl TryFrom<String> for UserPolicy {
    type Error = UnknownWord;
    fn try_from(word: String) -> Result<Self, UnknownWord> {
        match word.as_str() {
            "same-user" => Ok(Self::SameUser),
            "same-account" => Ok(Self::SameAccount),
            "any" => Ok(Self::Any),
            _ => Err(UnknownWord {
                word,
                what: "a policy on users",
                allowed: "same-user, same-account and any",
            }),
        }
    }
}

impl TryFrom<String> for FirstRuns {
    type Error = UnknownWord;
    fn try_from(word: String) -> Result<Self, UnknownWord> {
        match word.as_str() {
            "alone" => Ok(Self::Alone),
            "host" => Ok(Self::Host),
            _ => Err(UnknownWord { word, what: "a policy on first runs", allowed: "alone and host" }),
        }
    }
}

impl TryFrom<String> for EndsBy {
    type Error = UnknownWord;
    fn try_from(word: String) -> Result<Self, UnknownWord> {
        match word.as_str() {
            "runs" => Ok(Self::Runs),
            "limits" => Ok(Self::Limits),
            _ => Err(UnknownWord { word, what: "a way to know ends", allowed: "runs and limits" }),
        }
    }
}

impl TryFrom<String> for Objective {
    type Error = UnknownWord;
    fn try_from(word: String) -> Result<Self, UnknownWord> {
        match word.as_str() {
            "throughput" => Ok(Self::Throughput),
            "energy" => Ok(Self::Energy),
            "throughput-per-watt" => Ok(Self::ThroughputPerWatt),
            _ => {
                let allowed = "throughput, energy and throughput-per-watt";
                Err(UnknownWord { word, what: "an objective", allowed })
            }
        }
    }
}

/// The site's policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Policy {
    /// Who may share with whom.
    pub users: UserPolicy,
    /// Whose progress counters take two apart: those of one user, of one account, or everybody's. Trials are of such two alone.
    #[serde(skip_serializing_if = "UserPolicy::is_same_user")]
    pub watch_believes: UserPolicy,
    /// What stands between tenants of different users; a job may ask for more.
    #[serde(skip_serializing_if = "Isolation::is_shared")]
    pub isolation: Isolation,
    /// Whether two jobs of one user may have one MIG instance together, by an MPS daemon of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_instances: bool,
    /// Whether jobs of several GPUs share them with others of as many, by one MPS daemon for the set.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_wide: bool,
    /// What a plan maximises within its promises.
    pub objective: Objective,
    /// The promise to jobs that name none.
    pub slowdown_ratio_max: SlowdownRatio,
    /// Device memory kept free on a shared device, of its whole memory.
    pub memory_margin_fraction: f64,
    /// The least gain (sum of speed fractions less one) for which two jobs share.
    pub gain_min: f64,
    /// How many tenants a device may have.
    pub tenants_max: u32,
    /// Whether caps may be set.
    pub caps: bool,
    /// Solo runs that a workload needs before it is paired.
    pub solo_runs_min: u32,
    /// Seconds that these runs must have taken together; 0 here, where measurements come from files, whatever a site's
    /// configuration says.
    pub solo_seconds_min: f64,
    /// What becomes of a workload's first run.
    pub first_runs: FirstRuns,
    /// Seconds that a first run is measured alone before anybody may join it.
    pub first_run_seconds_min: f64,
    /// By what it is known when a job is over.
    #[serde(skip_serializing_if = "EndsBy::is_runs")]
    pub ends_by: EndsBy,
    /// Of the jobs that share, how many may be expected to run slower than promised, 0..=1: a bound on the whole plan,
    /// besides the one on each job.
    pub broken_budget_fraction: f64,
    /// The only combinations that may share; absent = all. From a file of its own, never from the configuration.
    #[serde(skip)]
    pub allowed: Option<AllowList>,
    /// Whether jobs share where a device is free for each of them: GPU-hours and energy count, and every promise is kept
    /// either way. `false` = share only when devices are short.
    pub pair_when_idle: bool,
    /// Whether sharings outside the bounds are tried, and how; absent = they are not. Only where the watch takes a pair apart
    /// that breaks its promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<TrialPolicy>,
    /// Whether guests may be beside others.
    #[serde(skip_serializing_if = "GuestRule::lets_guests")]
    pub guests: GuestRule,
}

impl GuestRule {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn lets_guests(&self) -> bool {
        *self == Self::Beside
    }
}

/// Whether jobs that were submitted as guests may be beside a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestRule {
    /// Within its promise, as anybody.
    #[default]
    Beside,
    /// Not at all.
    Never,
}

/// What the site says of one job, where it does not say the same of all (docs/decisions/0036-policy-by-job.md). Of jobs on one device
/// the stricter rule counts: what one of them forbids is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRules {
    /// Which part of the policy says so: the number of the override in the site's file, from 1; absent = none matches it.
    pub from_override: Option<u32>,
    /// Who may share with it.
    pub users: UserPolicy,
    /// What stands between it and jobs of other users.
    pub isolation: Isolation,
    /// How many tenants its device may have.
    pub tenants_max: u32,
    /// Whether it may have a cap.
    pub caps: bool,
    /// What becomes of it where it is its workload's first run.
    pub first_runs: FirstRuns,
    /// Whether it goes back where a promise breaks after it has joined: nobody else joins a first run.
    pub is_parted: bool,
    /// Whether it is tried with another.
    pub trials: bool,
    /// Whether guests may be beside it.
    pub guests: GuestRule,
}

impl Policy {
    /// What holds for jobs of which nothing else is said.
    pub fn of_jobs(&self) -> JobRules {
        JobRules {
            from_override: None,
            users: self.users,
            isolation: self.isolation,
            tenants_max: self.tenants_max,
            caps: self.caps,
            first_runs: self.first_runs,
            // First runs are joined only where whoever joins goes back; see `first_runs`.
            is_parted: true,
            trials: self.trials.is_some(),
            guests: self.guests,
        }
    }

    /// How many broken promises so many that share may be expected to cost.
    #[expect(clippy::cast_precision_loss, reason = "a few tenants")]
    pub(crate) fn broken_budget(&self, tenants: usize) -> f64 {
        self.broken_budget_fraction * tenants as f64
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            users: UserPolicy::SameUser,
            watch_believes: UserPolicy::SameUser,
            isolation: Isolation::Shared,
            share_instances: false,
            share_wide: false,
            objective: Objective::Throughput,
            slowdown_ratio_max: SlowdownRatio::try_promise(1.25).expect("1.25 is a promise"),
            memory_margin_fraction: 0.05,
            gain_min: 0.1,
            tenants_max: 2,
            caps: true,
            solo_runs_min: 1,
            solo_seconds_min: 0.0,
            first_runs: FirstRuns::Alone,
            first_run_seconds_min: 300.0,
            ends_by: EndsBy::Runs,
            broken_budget_fraction: 0.02,
            allowed: None,
            pair_when_idle: true,
            trials: None,
            guests: GuestRule::Beside,
        }
    }
}
