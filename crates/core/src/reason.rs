//! Why a job is paired, alone or waiting: the rules and outcomes of a plan, with every sentence that people are told of them.

use crate::word::spelt_as_serialized;
use serde::{Deserialize, Serialize};

/// Rules and outcomes, by name: stable words that scripts may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Shares now with a partner that starts with it.
    Paired,
    /// Joins a running host.
    Joined,
    /// Shares a device though the bounds do not admit it, and is taken apart if a promise breaks.
    Trial,
    /// Starts in an instance of the device that nobody else meets.
    OwnInstance,
    /// Starts in an instance of the device that it shares with another job of its user.
    SharedInstance,
    /// In an instance of its own, with less memory than it held at most: once, and its user lets it be started again with more.
    SmallerInstance,
    /// Starts alone, and others may join.
    AloneJoinable,
    /// Starts alone: its workload is not known yet on this device model, and is measured.
    UnknownWorkload,
    /// Starts alone: its workload is not known yet on this device model; others may join once it was measured.
    FirstRun,
    /// The first run of its workload is still being measured, or is not steady: nobody may join it yet.
    FirstRunUnsettled,
    /// The first run of its workload writes no progress counter: nobody could look after its promise.
    FirstRunUncounted,
    /// Starts alone: its workload was measured on this device model, but for a moment only.
    MeasuredTooBriefly,
    /// Starts alone: its user owes runs alone, because a job of his was not as it was known, or broke a promise.
    OwesRuns,
    /// Starts alone, perhaps under a cap, because its user has it measured so.
    MeasuredAlone,
    /// Starts alone on several devices, which nobody shares with it.
    SeveralDevices,
    /// Starts with whole devices, which nobody shares: it did not ask for co-location.
    NotColocated,
    /// Starts alone, or with the whole device: it is interactive, and nothing is foretold of it.
    Interactive,
    /// The interactive job there uses the device, did a moment ago, or nobody can tell.
    SessionActive,
    /// Beside an interactive job there is room for guests alone.
    GuestsOnly,
    /// Its devices on several nodes are free, and Slurm starts it.
    LetGo,
    /// Its memory need is not known, so it cannot share.
    MemoryUnknown,
    /// Does not fit beside the partner.
    MemoryDoesNotFit,
    /// It was seen with most of the device's memory, which its framework may have taken because it was there.
    MemoryLooksPreallocated,
    /// Somebody's promise would probably be broken.
    PromiseAtRisk,
    /// Sharing would gain too little.
    GainTooSmall,
    /// Another pairing gains more.
    BetterPlanElsewhere,
    /// It would be admitted by itself, but of all that share too many would be expected to run slower than promised.
    BeyondBudget,
    /// The policy on users forbids it.
    UserPolicy,
    /// The site or one of the users wants a wall between users, and there is none on this device.
    NeedsWall,
    /// The site lets no guest be beside one of the two, and the other is one.
    NoGuests,
    /// In every instance in which it has room it would be slower than promised.
    SliceTooSlow,
    /// How the device is cut cannot be changed now, and it would have no room in what stands.
    ShapeHeld,
    /// One more copy of its workload joins only when as many as run there were measured together, and kept their promises.
    CopiesUnmeasured,
    /// It is not among the combinations that may be chosen.
    NotAllowed,
    /// The device cannot be shared.
    NotShareable,
    /// It would end after its host while others wait for a whole device.
    OutlivesHost,
    /// It was seen with more than one process on the device at once, and no limit can be set for each of them: how much each takes is
    /// not known, the device sets none, or they are more than it serves.
    SeveralProcesses,
    /// No shards are left beside the partner.
    NoShardsLeft,
    /// Not enough CPUs or host memory on the node.
    NodeTooFull,
    /// Features, exclusions or the GPU type asked for do not match, or the node is too small.
    NodeDoesNotMatch,
    /// Where it matches others have the node, by a reservation, before the job's time limit is over.
    NodeReserved,
    /// No device is free for it now.
    NoDeviceFree,
    /// Two like it and its partner are being tried, and it may join the partner as soon as that is known.
    AwaitsVerdict,
    /// A job before it in the queue comes first.
    BehindOthers,
    /// It cannot start now: begin time, dependency, throttle, limit, hold.
    Held,
    /// The node or device takes nothing now.
    Blocked,
}

spelt_as_serialized!(Reason => "reason");

impl Reason {
    /// What it says of a job that starts alone because of it, or of the partner that it kept away.
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownWorkload => "the workload has not been measured on this device model yet",
            Self::FirstRun => "it is the workload's first run on this device model, and is measured first",
            Self::FirstRunUnsettled => "the first run of a workload is still being measured there",
            Self::FirstRunUncounted => {
                "the first run of a workload is there, and without a progress counter nobody can look after its promise"
            }
            Self::MeasuredTooBriefly => "the workload was measured on this device model for too short a time",
            Self::OwesRuns => {
                "its user owes runs alone: a job of his did far more than it was let in for, or broke a promise"
            }
            Self::MeasuredAlone => "its user has it measured so",
            Self::SeveralDevices => "a job of several GPUs has each of them whole",
            Self::NotColocated => "it did not ask for co-location",
            Self::Interactive => "it is interactive, and what it will do is not known",
            Self::SessionActive => "an interactive job uses the device, or did a moment ago",
            Self::GuestsOnly => {
                "beside an interactive job there is room for small guests alone (--colocate=guest)"
            }
            Self::LetGo => "Slurm starts a job of several nodes by itself",
            Self::MemoryUnknown => "its device memory is not known; memory= would tell",
            Self::MemoryDoesNotFit => "the device memory does not suffice for both",
            Self::MemoryLooksPreallocated => {
                "it held most of the device memory, as frameworks do that take it beforehand; what it needs shows in a run alone \
                 within memory=SIZE (docs/frameworks.md)"
            }
            Self::PromiseAtRisk => "somebody would probably be slowed more than promised",
            Self::GainTooSmall => "sharing would gain too little",
            Self::BetterPlanElsewhere => "another pairing gains more",
            Self::BeyondBudget => "more promises would be at risk than the site's budget allows",
            Self::UserPolicy => "the site does not let these users share",
            Self::NeedsWall => "a wall between users is wanted, and the device has none",
            Self::NoGuests => "the site lets no guests be beside one of the two",
            Self::SliceTooSlow => "in an instance of the device it would be slower than promised",
            Self::ShapeHeld => "the device's instances cannot be changed now",
            Self::CopiesUnmeasured => {
                "as many copies of the workload as run there were not measured together yet, and one more joins when they were"
            }
            Self::NotAllowed => "the two are not among the combinations that may be chosen",
            Self::NotShareable => "the device is not shared",
            Self::OutlivesHost => "it could run longer than its host while others wait for a whole device",
            Self::SeveralProcesses => {
                "it runs several processes on the device, and nothing could hold each of them to its part of the memory"
            }
            Self::NoShardsLeft => "no share of the device is left",
            Self::NodeTooFull => "the node has too few CPUs or too little memory left",
            Self::NodeDoesNotMatch => "the node does not match what the job asked for",
            Self::NodeReserved => "the node is reserved for others before the job's time limit is over",
            Self::Blocked => "the device takes nothing now",
            Self::Paired
            | Self::Joined
            | Self::Trial
            | Self::OwnInstance
            | Self::SharedInstance
            | Self::SmallerInstance
            | Self::AloneJoinable
            | Self::NoDeviceFree
            | Self::AwaitsVerdict
            | Self::BehindOthers
            | Self::Held => "it was not its turn",
        }
    }

    /// The same as a clause about a partner that was considered.
    pub const fn of_partner(self) -> &'static str {
        match self {
            Self::Paired => "is paired already",
            Self::Joined => "has joined another",
            Self::Trial => "is tried with another",
            Self::OwnInstance | Self::SmallerInstance => "starts in an instance of its own",
            Self::SharedInstance => "shares an instance with another job of its user",
            Self::AloneJoinable => "starts alone",
            Self::UnknownWorkload => "one of the two was never measured on this device model",
            Self::SeveralDevices | Self::LetGo => "it runs on several GPUs",
            Self::NotColocated => "it did not ask for co-location",
            Self::Interactive => "one of the two is interactive",
            Self::SessionActive => "it is interactive, and uses its device or did a moment ago",
            Self::GuestsOnly => "it is interactive, and joined by small guests alone (--colocate=guest)",
            Self::MemoryUnknown => "one of the two has no known memory need",
            Self::MemoryDoesNotFit => "their memory does not fit together",
            Self::MemoryLooksPreallocated => {
                "the memory of one of the two looks preallocated: write memory=SIZE with what it needs"
            }
            Self::PromiseAtRisk => "a promise would probably be broken",
            Self::GainTooSmall => "sharing would gain too little",
            Self::BetterPlanElsewhere => "another pairing gains more",
            Self::BeyondBudget => "more promises would be at risk than the site's budget allows",
            Self::UserPolicy => "the site does not let these users share",
            Self::NeedsWall => "a wall between users is wanted, and the device has none",
            Self::NoGuests => "the site lets no guests be beside one of the two",
            Self::SliceTooSlow => "in an instance one of the two would be slower than promised",
            Self::ShapeHeld => "its instances cannot be changed now",
            Self::CopiesUnmeasured => {
                "as many copies of it as run there were not yet measured together to keep their promises"
            }
            Self::NotAllowed => "is not among the combinations that may be chosen",
            Self::NotShareable => "the device cannot be shared",
            Self::OutlivesHost => "it would end after its host while others wait for a whole device",
            Self::FirstRun => "its first run on this device model is measured first",
            Self::FirstRunUnsettled => "its first run is still being measured, or is not steady yet",
            Self::FirstRunUncounted => {
                "its first run writes no progress counter, by which its promise could be followed"
            }
            Self::MeasuredTooBriefly => "one of the two was measured for too short a time",
            Self::OwesRuns => "the user of one of the two owes runs alone",
            Self::MeasuredAlone => "its user has it measured alone",
            Self::SeveralProcesses => {
                "one of the two runs several processes, and nothing could hold each of them to its part of the memory"
            }
            Self::NoShardsLeft => "no shards are left beside it",
            Self::NodeTooFull => "not enough CPUs or memory on its node",
            Self::NodeDoesNotMatch => "features, exclusions, GPU type or size of the node do not match",
            Self::NodeReserved => "its node is reserved before the time limit of the job is over",
            Self::NoDeviceFree => "no device is free",
            Self::AwaitsVerdict => "two like them are being tried",
            Self::BehindOthers => "a job before it in the queue comes first",
            Self::Held => "it cannot start now",
            Self::Blocked => "its node or device takes nothing now",
        }
    }

    /// What a job is told that it keeps waiting.
    pub const fn of_waiting(self) -> &'static str {
        match self {
            Self::NodeDoesNotMatch => {
                "waits: no device of the pool matches its partition, features, exclusions, GPU type, CPUs, memory and cap"
            }
            Self::NodeReserved => {
                "waits: the nodes that match are reserved for others before its time limit would be over; with a shorter --time it may start before"
            }
            Self::Blocked => "waits: the devices that match take nothing now",
            Self::NodeTooFull => {
                "waits: the nodes with a free device have too few CPUs or too little memory left"
            }
            Self::AwaitsVerdict => {
                "waits a moment: jobs like it and its best partner are being tried together, and it may join if that goes well"
            }
            Self::SliceTooSlow => {
                "waits: no device is wholly free, and in an instance of one it would be slower than promised"
            }
            Self::ShapeHeld => {
                "waits: the instances of the devices that match cannot be changed now, and none that stands suits it"
            }
            Self::BehindOthers => "waits: jobs before it in the queue come first",
            Self::Paired
            | Self::Joined
            | Self::Trial
            | Self::OwnInstance
            | Self::SharedInstance
            | Self::SmallerInstance
            | Self::AloneJoinable
            | Self::UnknownWorkload
            | Self::FirstRun
            | Self::FirstRunUnsettled
            | Self::FirstRunUncounted
            | Self::MeasuredTooBriefly
            | Self::OwesRuns
            | Self::MeasuredAlone
            | Self::SeveralDevices
            | Self::NotColocated
            | Self::Interactive
            | Self::SessionActive
            | Self::GuestsOnly
            | Self::LetGo
            | Self::MemoryUnknown
            | Self::MemoryDoesNotFit
            | Self::MemoryLooksPreallocated
            | Self::PromiseAtRisk
            | Self::GainTooSmall
            | Self::BetterPlanElsewhere
            | Self::BeyondBudget
            | Self::UserPolicy
            | Self::NeedsWall
            | Self::NoGuests
            | Self::CopiesUnmeasured
            | Self::NotAllowed
            | Self::NotShareable
            | Self::OutlivesHost
            | Self::SeveralProcesses
            | Self::NoShardsLeft
            | Self::NoDeviceFree
            | Self::Held => "waits: no device is wholly free",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_word_that_json_has() {
        assert_eq!(Reason::PromiseAtRisk.to_string(), "promise-at-risk");
        assert_eq!("measured-alone".parse(), Ok(Reason::MeasuredAlone));
    }

    #[test]
    fn the_rule_on_processes_says_what_it_goes_by() {
        let text = "one of the two runs several processes, and nothing could hold each of them to its part of the memory";
        assert_eq!(Reason::SeveralProcesses.of_partner(), text);
    }
}
