//! How a device is, as its agent sees it: what is wrong with it, since when, and what it can tell. Told to the scheduler at
//! every change, and shown to operators; while a fault lasts that closes the device, nobody new is put there.

use crate::clock::UnixTime;
use crate::ids::GresType;
use crate::metric::{Metric, MetricSource};
use crate::mig::Slot;
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What is wrong with a device, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Something that a newer agent knows.
    Other,
    /// A tenant took more of its memory than its share allows, and was ended.
    Overused,
    /// It stopped giving a metric.
    MetricLost,
    /// It serves one user at a time, though the site lets several share.
    OneUser,
    /// Caps on it are not reserved, though the site wants that.
    NoPartitions,
    /// It can only be time-sliced: what more takes is not there.
    NoMechanism,
    /// A process that belongs to no job is on it.
    Outsider,
    /// Its CCS mode could not be changed: its card is in use.
    ModeHeld,
    /// MIG is on there, or about to change, by somebody else's hand: what processes get are his instances, not the device.
    Divided,
    /// Its instances cannot be changed: its driver says that somebody uses one that is nobody's any more.
    Held,
    /// Its MPS daemon or server died; the clients are suspect.
    MpsDied,
    /// Its MPS server takes no new client until all have left.
    MpsFault,
    /// It does not answer.
    Unreadable,
    /// It went away.
    Gone,
}

spelt_as_serialized!(FaultKind => "fault");

impl FaultKind {
    /// Whether nobody new may be put on the device meanwhile.
    pub const fn closes_device(self) -> bool {
        match self {
            Self::Other
            | Self::Overused
            | Self::MetricLost
            | Self::OneUser
            | Self::NoPartitions
            | Self::NoMechanism => false,
            Self::Outsider
            | Self::ModeHeld
            | Self::Divided
            | Self::Held
            | Self::MpsDied
            | Self::MpsFault
            | Self::Unreadable
            | Self::Gone => true,
        }
    }

    /// Whether a user who can log in to the node can bring it about. We put nobody there meanwhile, and hold nobody back for it
    /// beyond his bound either.
    pub const fn is_at_users_will(self) -> bool {
        matches!(self, Self::Outsider)
    }

    /// Whether what the agent or the driver says of it may name jobs or processes of those on the device, who are not
    /// everybody's to know.
    pub const fn names_tenants(self) -> bool {
        match self {
            // Of what a newer agent says nobody here knows whom it names.
            Self::Other
            | Self::Overused
            | Self::NoPartitions
            | Self::Outsider
            | Self::ModeHeld
            | Self::Held
            | Self::MpsDied
            | Self::MpsFault => true,
            Self::MetricLost
            | Self::OneUser
            | Self::NoMechanism
            | Self::Divided
            | Self::Unreadable
            | Self::Gone => false,
        }
    }

    /// For a person.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Other => "something is wrong",
            Self::Overused => "a tenant took too much of its memory",
            Self::MetricLost => "it lost a metric",
            Self::OneUser => "its MPS serves one user at a time",
            Self::NoPartitions => "its tenants have no compute units of their own",
            Self::NoMechanism => "its tenants can only be time-sliced",
            Self::Outsider => "a process that belongs to no job is on it",
            Self::ModeHeld => "its CCS mode cannot be changed before its card is idle",
            Self::Divided => "MIG there is not the pool's to change",
            Self::Held => "its instances cannot be changed: a program holds one that is nobody's",
            Self::MpsDied => "its MPS daemon died",
            Self::MpsFault => "its MPS server reports a fault",
            Self::Unreadable => "it cannot be read",
            Self::Gone => "it is gone",
        }
    }
}

impl FaultKind {
    /// What is wrong, for a person: `it is gone: fell off the bus`.
    pub fn sentence(self, detail: &str) -> String {
        let phrase = self.phrase();
        if detail.is_empty() { phrase.to_owned() } else { format!("{phrase}: {detail}") }
    }
}

/// One thing that is wrong with a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceFault {
    /// What kind of fault it is.
    pub kind: FaultKind,
    /// In the driver's words; empty where the kind says all, or all that its reader may know.
    pub detail: String,
    /// When the agent first saw it.
    pub since: UnixTime,
}

impl DeviceFault {
    /// As everybody may read it: nothing by which to know who is on the device.
    #[must_use]
    pub fn for_everybody(&self) -> Self {
        let detail = if self.kind.names_tenants() { String::new() } else { self.detail.clone() };
        Self { kind: self.kind, detail, since: self.since }
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.sentence(&self.detail))
    }
}

/// How one device is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCondition {
    /// The device, by its GRES type.
    pub gres_type: GresType,
    /// What is wrong with it, the worst first; empty = it is well.
    pub faults: Vec<DeviceFault>,
    /// The metrics that it gives, and where each is read.
    pub sources: BTreeMap<Metric, MetricSource>,
    /// The instances of ours on it that stand empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances_empty: Vec<Slot>,
}

impl DeviceCondition {
    /// Why nobody new may be put there: its worst fault that closes it.
    pub fn closed_by(&self) -> Option<&DeviceFault> {
        self.faults.iter().find(|fault| fault.kind.closes_device())
    }

    /// Whether how it is cut cannot be changed now.
    pub fn is_shape_held(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_what_a_device_is_like_and_not_who_is_on_it() {
        let fault = |kind, detail: &str| DeviceFault {
            kind,
            detail: detail.to_owned(),
            since: UnixTime::from_epoch(1),
        };
        let overused =
            fault(FaultKind::Overused, "job 34 held more of it than its share allows, and was ended");
        assert_eq!(overused.for_everybody().to_string(), "a tenant took too much of its memory");
        let died = fault(FaultKind::MpsDied, "the MPS server died under its clients; clients 4711");
        assert_eq!(died.for_everybody().to_string(), "its MPS daemon died");
        let gone = fault(FaultKind::Gone, "fell off the bus");
        assert_eq!(gone.for_everybody().to_string(), "it is gone: fell off the bus");
    }
}
