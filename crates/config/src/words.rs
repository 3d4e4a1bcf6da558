//! The words that a policy is written in.

use serde::{Deserialize, Serialize};

/// Who may share a device with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Users {
    /// Jobs of one user only.
    SameUser,
    /// Jobs of one account.
    SameAccount,
    /// Jobs of whomever.
    Any,
}

/// What stands between tenants of different users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// What the mechanism gives.
    Shared,
    /// A wall.
    Hard,
}

/// What a plan maximises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// GPU-hours saved against a device for each job.
    Throughput,
    /// Energy saved against the same work done alone.
    Energy,
    /// Work per joule.
    ThroughputPerWatt,
}

/// What is done where a promise is being broken, from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Watch {
    /// Nothing: nobody looks.
    Off,
    /// It is told, and nobody joins that device any more.
    Advise,
    /// The guest is started again besides, alone.
    Act,
}

/// What becomes of a workload's first run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstRuns {
    /// It has its device to itself.
    Alone,
    /// Others may join it once it was measured.
    Host,
}

/// Whether pairs are tried that the bounds do not admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trials {
    /// No.
    Off,
    /// Where the watch takes them apart again.
    On,
}

/// Whether guests may be beside other jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guests {
    /// Within their promises.
    Beside,
    /// No.
    Never,
}

/// What becomes of a job that ran out of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OomRequeue {
    /// It is started again where its user said so.
    Ask,
    /// It is not started again, whatever its user said.
    Never,
}

/// By what it is known when a job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndsBy {
    /// By the runs of its workload, else by its time limit.
    Runs,
    /// By its time limit.
    Limits,
}

/// By what shards are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardsBy {
    /// What the workload uses alone.
    Profile,
    /// That, and what its runs were seen to use beyond it.
    Use,
}
