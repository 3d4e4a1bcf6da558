//! What is kept for operators to read later, by kind.

use crate::fault::FailureKind;
use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// What happened: stable words that scripts may match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A released job did not start, and has its own request back.
    Undone,
    /// A decision for a job was given up before it was released.
    Dropped,
    /// A job of several nodes was let go at its turn: Slurm starts it.
    LetGo,
    /// A job that waited with the pin of an earlier release was put back.
    Restarted,
    /// A job started without what was decided for it.
    Missed,
    /// A node could not set up what was decided.
    ShareFailed,
    /// A job failed for want of device memory.
    OutOfMemory,
    /// A job will probably run out of the device memory that it has.
    MemoryGrowing,
    /// Of a job: it failed by a fault of its device. Of a node: a device has a fault.
    DeviceFault,
    /// A device is well again.
    DeviceWell,
    /// The driver named a job's own process, for no fault of the device.
    ProgramFault,
    /// A job is taken for the victim of a neighbour.
    Victim,
    /// An operator had a job leave its device.
    Evicted,
    /// A job was started again.
    Requeued,
    /// Slurm did not start a job again.
    RequeueRefused,
    /// A job's processes were ended through the MPS daemon, before a signal did it.
    ClientsEnded,
    /// An operator closed a node or a device.
    Drained,
    /// It is open again.
    Undrained,
    /// A job outside the pool waited there for shards.
    Stray,
    /// An invariant does not hold.
    Violation,
    /// A job broke a promise: its user owes runs alone.
    CreditLost,
    /// A tenant is not as it was known.
    ProfileExceeded,
    /// A run used more of its device than its profile says: the next ones are booked by that.
    UseExceeded,
    /// A tenant goes slower than it was promised, as surely as it was measured.
    PromiseBreaking,
    /// A guest is to be started again, alone: beside it a promise was being broken.
    SentBack,
    /// A job that was submitted as a guest is to be started again: somebody else needs its device.
    MadeRoom,
    /// A promise was being broken, and its guest stays all the same.
    NotSentBack,
    /// What an agent told was not believed.
    ReportDropped,
    /// A model is in use.
    ModelPromoted,
    /// A model was trained and is not used.
    ModelRejected,
    /// A model could not be read back.
    ModelUnreadable,
    /// A word of another release.
    #[serde(untagged)]
    Other(String),
}

spelt_as_serialized!(EventKind => "kind of event");

impl From<&str> for EventKind {
    fn from(word: &str) -> Self {
        word.parse().unwrap_or_else(|_| Self::Other(word.to_owned()))
    }
}

impl From<FailureKind> for EventKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::OutOfMemory => Self::OutOfMemory,
            FailureKind::DeviceFault => Self::DeviceFault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_one_of_another_release_stays_as_it_is() {
        assert_eq!(EventKind::from("share-failed"), EventKind::ShareFailed);
        assert_eq!(EventKind::RequeueRefused.to_string(), "requeue-refused");
        let other = EventKind::from("lease-lost");
        assert_eq!(
            (&other, other.to_string()),
            (&EventKind::Other("lease-lost".into()), "lease-lost".into())
        );
    }

    #[test]
    fn a_failure_is_told_by_its_own_word() {
        for kind in [FailureKind::OutOfMemory, FailureKind::DeviceFault] {
            assert_eq!(EventKind::from(kind).to_string(), kind.to_string());
        }
    }
}
