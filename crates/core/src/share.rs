//! What one tenant gets on one device: the decision as the agent carries it out.

use crate::device::Mechanism;
use crate::gres_types::GresTypes;
use crate::ids::{DecisionId, JobStart, UserId};
use crate::mig::{MigProfile, Slot};
use crate::units::{Fraction, Shards};
use serde::{Deserialize, Serialize};

/// How one tenant shares its device, with what that way is told of it. In JSON, rows and messages these are the columns of
/// [`SharingColumns`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "SharingColumns", into = "SharingColumns")]
pub enum Sharing {
    /// One context after the other; also how a job has a device alone that nobody can join.
    #[default]
    TimeSliced,
    /// As a client of the device's MPS daemon.
    Mps {
        /// The most compute units that it may use; absent = no cap.
        cap: Option<Fraction>,
        /// The most device memory that each of its processes may pin; absent = no limit.
        memory_limit_bytes: Option<u64>,
    },
    /// On equal parts of a card.
    Ccs {
        /// How many parts, equal for all tenants: 1, 2 or 4.
        mode: u8,
    },
    /// In an instance of its own.
    Mig {
        /// The size of the instance, as the device's driver names it.
        profile: MigProfile,
        /// The memory slice at which it starts.
        start: u8,
    },
    /// In an instance with others of its user, as a client of that instance's MPS daemon.
    MigMps {
        /// The size of the instance, as the device's driver names it.
        profile: MigProfile,
        /// The memory slice at which it starts.
        start: u8,
        /// The most of the instance's compute units that it may use; absent = no cap.
        cap: Option<Fraction>,
        /// The most device memory that each of its processes may pin; absent = no limit but the instance's.
        memory_limit_bytes: Option<u64>,
    },
}

impl Sharing {
    /// Which way that is.
    pub const fn mechanism(self) -> Mechanism {
        match self {
            Self::TimeSliced => Mechanism::TimeSliced,
            Self::Mps { .. } => Mechanism::Mps,
            Self::Ccs { .. } => Mechanism::Ccs,
            Self::Mig { .. } => Mechanism::Mig,
            Self::MigMps { .. } => Mechanism::MigMps,
        }
    }
    /// A tenant of a device that is shared by `mechanism`, under this cap where it has caps and in this mode where it has
    /// modes: whole unless one is given. Without an instance a device that has them is not shared.
    pub fn by(mechanism: Mechanism, cap: Option<Fraction>, mode: Option<u8>) -> Self {
        match mechanism {
            Mechanism::TimeSliced | Mechanism::Mig | Mechanism::MigMps => Self::TimeSliced,
            Mechanism::Mps => Self::Mps { cap, memory_limit_bytes: None },
            Mechanism::Ccs => Self::Ccs { mode: mode.unwrap_or(1) },
        }
    }
    /// The same with a memory limit for each process, where the mechanism can set one.
    #[must_use]
    pub const fn limited_to(self, memory_limit_bytes: Option<u64>) -> Self {
        match self {
            Self::Mps { cap, .. } => Self::Mps { cap, memory_limit_bytes },
            Self::MigMps { profile, start, cap, .. } => {
                Self::MigMps { profile, start, cap, memory_limit_bytes }
            }
            Self::TimeSliced | Self::Ccs { .. } | Self::Mig { .. } => self,
        }
    }
    /// The fraction of compute units that MPS leaves it; absent without a cap.
    pub const fn cap(self) -> Option<Fraction> {
        match self {
            Self::Mps { cap, .. } | Self::MigMps { cap, .. } => cap,
            Self::TimeSliced | Self::Ccs { .. } | Self::Mig { .. } => None,
        }
    }
    /// The memory limit of each of its processes.
    pub const fn memory_limit_bytes(self) -> Option<u64> {
        match self {
            Self::Mps { memory_limit_bytes, .. } | Self::MigMps { memory_limit_bytes, .. } => {
                memory_limit_bytes
            }
            Self::TimeSliced | Self::Ccs { .. } | Self::Mig { .. } => None,
        }
    }
    /// The most device memory that all processes of a tenant together may take that was let in with `admitted_bytes`; absent = no
    /// limit. Where each is limited to a part of what all have, that is more than the limit of one.
    pub fn memory_bytes_max(self, admitted_bytes: Option<u64>) -> Option<u64> {
        self.memory_limit_bytes().map(|each| each.max(admitted_bytes.unwrap_or(0)))
    }
    /// The card's mode.
    pub const fn ccs_mode(self) -> Option<u8> {
        match self {
            Self::Ccs { mode } => Some(mode),
            Self::TimeSliced | Self::Mps { .. } | Self::Mig { .. } | Self::MigMps { .. } => None,
        }
    }
    /// Its instance, which may be that of others of its user as well.
    pub const fn mig_slot(self) -> Option<Slot> {
        match self {
            Self::Mig { profile, start } | Self::MigMps { profile, start, .. } => {
                Some(Slot { profile, start })
            }
            Self::TimeSliced | Self::Mps { .. } | Self::Ccs { .. } => None,
        }
    }
    /// Whether its tenants run one after the other.
    pub const fn is_time_sliced(self) -> bool {
        match self {
            Self::TimeSliced => true,
            Self::Mps { .. } | Self::Mig { .. } | Self::MigMps { .. } => false,
            Self::Ccs { mode } => mode < 2,
        }
    }
    /// The part that it can use at most of the compute units on which it meets others, 0..=1: in an instance of its own it meets
    /// nobody, in one that it shares those count.
    pub fn compute_part(self) -> f64 {
        match self {
            Self::TimeSliced | Self::Mig { .. } => 1.0,
            Self::Mps { cap, .. } | Self::MigMps { cap, .. } => cap.map_or(1.0, Fraction::value),
            Self::Ccs { mode } => 1.0 / f64::from(mode.max(1)),
        }
    }
    /// Whether it was held to a part of the device while it ran, whatever its neighbours did, without having asked for it.
    pub const fn is_of_a_part(self) -> bool {
        match self {
            Self::Ccs { mode } => mode > 1,
            Self::Mig { .. } | Self::MigMps { .. } => true,
            Self::TimeSliced | Self::Mps { .. } => false,
        }
    }
}

/// A [`Sharing`] as rows, messages and JSON have it, where what another mechanism would be told is absent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SharingColumns {
    /// Absent in what an earlier release wrote of a tenant: it follows from the rest.
    pub mechanism: Option<Mechanism>,
    /// What [`Sharing::cap`] says.
    pub cap_fraction: Option<Fraction>,
    /// What [`Sharing::ccs_mode`] says.
    pub ccs_mode: Option<u8>,
    /// What [`Sharing::memory_limit_bytes`] says.
    pub memory_limit_bytes: Option<u64>,
    /// What [`Sharing::mig_slot`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_slot: Option<Slot>,
}

/// Columns that no sharing has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSharing {
    /// A card's mode that there is not.
    #[error("ccs_mode is {0}; allowed are 1, 2 and 4")]
    Mode(u32),
    /// No mode given.
    #[error("a ccs share needs a mode; allowed are 1, 2 and 4")]
    NoMode,
    /// No instance given.
    #[error("a share of an instance needs its place, as 3g.40gb@4")]
    NoSlot,
}

impl TryFrom<SharingColumns> for Sharing {
    type Error = InvalidSharing;
    fn try_from(columns: SharingColumns) -> Result<Self, InvalidSharing> {
        let SharingColumns { mechanism, cap_fraction, ccs_mode, memory_limit_bytes, mig_slot } = columns;
        let implied = match (ccs_mode, cap_fraction, memory_limit_bytes) {
            // Of an instance of one's own neither is written.
            (_, None, None) if mig_slot.is_some() => Mechanism::Mig,
            _ if mig_slot.is_some() => Mechanism::MigMps,
            (Some(_), ..) => Mechanism::Ccs,
            (None, None, None) => Mechanism::TimeSliced,
            (None, ..) => Mechanism::Mps,
        };
        match mechanism.unwrap_or(implied) {
            Mechanism::TimeSliced => Ok(Self::TimeSliced),
            Mechanism::Mps => Ok(Self::Mps { cap: cap_fraction, memory_limit_bytes }),
            Mechanism::Ccs => match ccs_mode.ok_or(InvalidSharing::NoMode)? {
                mode @ (1 | 2 | 4) => Ok(Self::Ccs { mode }),
                other => Err(InvalidSharing::Mode(other.into())),
            },
            Mechanism::Mig => {
                let Slot { profile, start } = mig_slot.ok_or(InvalidSharing::NoSlot)?;
                Ok(Self::Mig { profile, start })
            }
            Mechanism::MigMps => {
                let Slot { profile, start } = mig_slot.ok_or(InvalidSharing::NoSlot)?;
                Ok(Self::MigMps { profile, start, cap: cap_fraction, memory_limit_bytes })
            }
        }
    }
}

impl From<Sharing> for SharingColumns {
    fn from(sharing: Sharing) -> Self {
        Self {
            mechanism: Some(sharing.mechanism()),
            cap_fraction: sharing.cap(),
            ccs_mode: sharing.ccs_mode(),
            memory_limit_bytes: sharing.memory_limit_bytes(),
            mig_slot: sharing.mig_slot(),
        }
    }
}

/// One tenant's share, complete: the agent has nothing left to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The decision that it carries out.
    pub decision_id: DecisionId,
    /// The start that it holds for, and no other.
    pub start: JobStart,
    /// Whose job it is.
    pub uid: UserId,
    /// Its devices, by Slurm's GRES types on this node: one, several of which it has all, or a set that it shares as one.
    #[serde(rename = "gres_type")]
    pub gres_types: GresTypes,
    /// How it shares the device.
    #[serde(flatten)]
    pub sharing: Sharing,
    /// What Slurm booked for it of each.
    pub shards: Shards,
    /// What all its processes together may take of the device's memory, where each is limited to a part of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Somebody sits in front of it. Where it has no script (`salloc`, `srun`) its first step begins it, and it goes on between its steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_session: bool,
    /// Its user did not ask for co-location: it has all of its devices, its environment stays as it is, and it waits for nobody of us.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_plain: bool,
}

impl Share {
    /// What Slurm booked for it of all its devices.
    pub fn shards_booked(&self) -> u32 {
        self.gres_types.iter().map(|_| u32::from(self.shards.count())).sum()
    }
    /// The most device memory that all its processes together may take; absent = no limit.
    pub fn memory_bytes_max(&self) -> Option<u64> {
        self.sharing.memory_bytes_max(self.memory_bytes)
    }
    /// Its devices as they are set up: a set that is shared as one together, all others each by itself.
    pub fn device_groups(&self) -> Vec<GresTypes> {
        if self.mechanism().takes_several() {
            return vec![self.gres_types.clone()];
        }
        self.gres_types.iter().cloned().map(GresTypes::from).collect()
    }
    /// Which way the device is shared; turns for a job that has it alone and cannot be joined.
    pub const fn mechanism(&self) -> Mechanism {
        self.sharing.mechanism()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sharing, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sharing_is_written_as_columns_and_read_back() {
        let limited = Sharing::by(Mechanism::Mps, Some(Fraction::clamped(0.5)), None).limited_to(Some(7));
        let text = r#"{"mechanism":"mps","cap_fraction":0.5,"ccs_mode":null,"memory_limit_bytes":7}"#;
        assert_eq!((serde_json::to_string(&limited).unwrap().as_str(), read(text)), (text, Ok(limited)));
        let walled = Sharing::Mig { profile: "3g.40gb".parse().unwrap(), start: 4 };
        let together = Sharing::MigMps {
            profile: "3g.40gb".parse().unwrap(),
            start: 4,
            cap: Some(Fraction::clamped(0.5)),
            memory_limit_bytes: Some(1 << 34),
        };
        for mechanism in Mechanism::ALL {
            let sharing = match mechanism {
                Mechanism::Mig => walled,
                Mechanism::MigMps => together,
                Mechanism::Mps | Mechanism::Ccs | Mechanism::TimeSliced => {
                    Sharing::by(mechanism, None, Some(2))
                }
            };
            assert_eq!(sharing.mechanism(), mechanism);
            assert_eq!(read(&serde_json::to_string(&sharing).unwrap()), Ok(sharing));
        }
        assert!(serde_json::to_string(&walled).unwrap().contains(r#""mig_slot":"3g.40gb@4""#));
        assert!(!text.contains("mig_slot"), "who has no instance says nothing of one");
    }

    #[test]
    fn what_an_earlier_release_wrote_without_a_mechanism_is_read() {
        assert_eq!(read(r#"{"ccs_mode":4}"#), Ok(Sharing::Ccs { mode: 4 }));
        assert_eq!(read(r#"{"cap_fraction":null}"#), Ok(Sharing::TimeSliced));
        let capped = Sharing::by(Mechanism::Mps, Some(Fraction::clamped(0.5)), None);
        assert_eq!(read(r#"{"cap_fraction":0.5,"ccs_mode":null}"#), Ok(capped));
    }

    #[test]
    fn a_card_without_a_mode_or_in_one_that_there_is_not_is_refused() {
        assert!(read(r#"{"mechanism":"ccs"}"#).unwrap_err().contains("needs a mode"));
        assert!(read(r#"{"mechanism":"ccs","ccs_mode":3}"#).unwrap_err().contains("ccs_mode is 3"));
    }

    #[test]
    fn an_instance_that_there_cannot_be_is_refused() {
        for mechanism in ["mig", "mig-mps"] {
            let text = format!(r#"{{"mechanism":"{mechanism}","cap_fraction":0.5}}"#);
            assert!(read(&text).unwrap_err().contains("needs its place"), "{mechanism}");
        }
        for slot in ["3g.40gb", "3g.40gb@", "3g.40gb@16", "3g.40gb@04", "@4", "3g.40gb@4@4"] {
            let text = format!(r#"{{"mechanism":"mig","mig_slot":"{slot}"}}"#);
            assert!(read(&text).unwrap_err().contains("instance"), "{slot}");
        }
        // The columns alone say which.
        let slot = Slot { profile: "1g.5gb".parse().unwrap(), start: 6 };
        assert_eq!(read(r#"{"mig_slot":"1g.5gb@6"}"#).map(Sharing::mig_slot), Ok(Some(slot)));
    }
}
