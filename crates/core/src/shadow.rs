//! What came of decisions that are only recorded (`mode = "shadow"`), in words: nobody was put anywhere by one of them.

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// How a decision that was only recorded was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowOutcome {
    /// All whom it was about ran to their ends, and it was held against that.
    Scored,
    /// The job was cancelled before Slurm started it, or Slurm forgot it.
    NeverRan,
    /// Somebody beside whom it was to run never ran.
    PartnerNeverRan,
    /// The job is not observed any more: its partition was taken out of the configuration, or it ran on nodes that are not observed.
    NotObserved,
}

impl ShadowOutcome {
    /// All of them, in the order of this list.
    pub const ALL: [Self; 4] = [Self::Scored, Self::NeverRan, Self::PartnerNeverRan, Self::NotObserved];

    /// What it says of a decision.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Scored => "held against what ran",
            Self::NeverRan => "the job never ran",
            Self::PartnerNeverRan => "the job beside it never ran",
            Self::NotObserved => "not observed to the end",
        }
    }
}

/// Whether the device memory would have sufficed: the greatest that each was seen with, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowFit {
    /// Nine tenths of the device's memory or less.
    Fits,
    /// More than that, and not more than there is.
    Near,
    /// More than there is.
    Short,
    /// Of one of them nobody knows.
    Unknown,
}

impl ShadowFit {
    /// All of them, in the order of this list.
    pub const ALL: [Self; 4] = [Self::Fits, Self::Near, Self::Short, Self::Unknown];
    /// More than this part of a device's memory is near its end.
    pub const NEAR_FRACTION: f64 = 0.9;

    /// What it says of those who would have shared.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Fits => "their memory fits",
            Self::Near => "their memory fits, but for less than a tenth",
            Self::Short => "their memory does not fit",
            Self::Unknown => "the memory of one of them is not known",
        }
    }
}

spelt_as_serialized!(ShadowOutcome => "outcome", ShadowFit => "fit");
