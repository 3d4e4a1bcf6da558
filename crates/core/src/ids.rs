//! Identifiers as types, so that no signature takes a bare `u32` or `String`.

use crate::text::quoted;
use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A Slurm job as Slurm itself writes it: `33`, or `33_2` for task 2 of array 33.
///
/// An array task keeps this name when Slurm splits it from its array record and gives it a job id of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlurmJobId {
    /// The job id, or the array's job id.
    pub id: u32,
    /// The task of an array.
    pub task: Option<u32>,
}

impl SlurmJobId {
    /// A job that is no array task.
    pub const fn plain(id: u32) -> Self {
        Self { id, task: None }
    }
    /// Task `task` of the array `id`.
    pub const fn array_task(id: u32, task: u32) -> Self {
        Self { id, task: Some(task) }
    }
}

impl fmt::Display for SlurmJobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            None => write!(f, "{}", self.id),
            Some(task) => write!(f, "{}_{task}", self.id),
        }
    }
}

/// A job id that is neither `33` nor `33_2`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a Slurm job id; write 33, or 33_2 for an array task")]
pub struct InvalidJobId(pub String);

impl FromStr for SlurmJobId {
    type Err = InvalidJobId;
    fn from_str(text: &str) -> Result<Self, InvalidJobId> {
        let digits = |part: &str| -> Option<u32> {
            if part.bytes().all(|b| b.is_ascii_digit()) { part.parse().ok() } else { None }
        };
        let parsed = match text.split_once('_') {
            None => digits(text).map(Self::plain),
            Some((id, task)) => digits(id).zip(digits(task)).map(|(id, task)| Self::array_task(id, task)),
        };
        parsed.filter(|job| job.id > 0).ok_or_else(|| InvalidJobId(quoted(text)))
    }
}

impl Serialize for SlurmJobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SlurmJobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One start of one job: a requeued job has the same id and a higher restart count.
///
/// Both come from Slurm (never from the environment); a decision holds for exactly one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobStart {
    /// The job; an array's task has its own.
    pub job_id: SlurmJobId,
    /// How often Slurm restarted it before this start.
    pub restart_count: u32,
}

impl fmt::Display for JobStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.job_id, self.restart_count)
    }
}

/// A text that is not `33+0` or `33_2+0`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a start of a job; write 33+0, or 33_2+0 for an array task")]
pub struct InvalidJobStart(pub String);

impl FromStr for JobStart {
    type Err = InvalidJobStart;
    fn from_str(text: &str) -> Result<Self, InvalidJobStart> {
        let invalid = || InvalidJobStart(quoted(text));
        let (job, restarts) = text.split_once('+').ok_or_else(invalid)?;
        let digits = !restarts.is_empty() && restarts.bytes().all(|b| b.is_ascii_digit());
        let restart_count = restarts.parse().ok().filter(|_| digits).ok_or_else(invalid)?;
        Ok(Self { job_id: job.parse().map_err(|_| invalid())?, restart_count })
    }
}

/// Declares a string identifier. A queue has a hundred thousand of them, and nearly all are short: those stand in place, with nothing
/// on the heap.
macro_rules! string_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub CompactString);

        impl $name {
            /// From any text.
            pub fn new(text: impl Into<CompactString>) -> Self {
                Self(text.into())
            }
            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

string_ids! {
    /// A node as Slurm names it.
    NodeName;
    /// The GRES type that stands for one device of a node: `g1` in `gpu:g1` and `shard:g1`.
    GresType;
    /// What the vendor's library calls a device, unique in the world.
    DeviceUuid;
    /// What is profiled: user (or account) and profile name or digest of the script, as `alice/1f0c..` (see `mark`).
    WorkloadKey;
}

/// Declares a numeric identifier.
macro_rules! number_ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )*};
}

number_ids! {
    /// A decision, numbered by the store in the order of commits.
    DecisionId(u64);
    /// The version of the cluster view that a plan was made from; each commit makes the next one.
    Revision(u64);
    /// A Unix user.
    UserId(u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_reads_what_it_writes_and_nothing_else() {
        let start = JobStart { job_id: SlurmJobId::array_task(33, 2), restart_count: 1 };
        assert_eq!(start.to_string().parse(), Ok(start));
        for wrong in ["", "33", "33+", "+1", "33+-1", "33++1", "33+1x", "33_+1", "0+0", "33+99999999999"] {
            assert_eq!(wrong.parse::<JobStart>(), Err(InvalidJobStart(wrong.to_owned())));
        }
    }
    /// As it was found: a refusal that went to a terminal with what stood in the question.
    #[test]
    fn a_refusal_is_one_short_line_whatever_was_asked() {
        let refused = "33\n\u{1b}[2J".parse::<SlurmJobId>().unwrap_err().to_string();
        assert_eq!(refused, "'33\\n\\u{1b}[2J' is not a Slurm job id; write 33, or 33_2 for an array task");
        assert!("9".repeat(4_000).parse::<JobStart>().unwrap_err().to_string().len() < 200);
    }
}
