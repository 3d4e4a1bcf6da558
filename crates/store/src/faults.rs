//! What is kept of failures: the judgement on a run, requeues, faults of devices. Pure.

use super::{Event, StoreError};
use async_trait::async_trait;
use pillion_core::event::EventKind;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};

/// What was found out about one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// For operators and the job's user.
    pub events: Vec<Event>,
    /// The job is to be requeued.
    pub requeue: Option<Requeue>,
}

/// Why a job is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueCause {
    /// It died with a tenant beside it.
    Victim,
    /// It runs beside others, and an operator wants it to run alone.
    Evicted,
    /// It runs beside others, it came last, and a promise is being broken there.
    SentBack,
    /// It was submitted as a guest: somebody else waits for its device, or is slowed there.
    MadeRoom,
    /// It ran out of device memory for certain, and its user lets it be started again.
    OutOfMemory {
        /// What its next start is to have at least.
        memory_bytes: u64,
    },
    /// It will all but certainly run out of device memory, and its user lets it be ended before it does.
    Growing {
        /// What its next start is to have at least.
        memory_bytes: u64,
    },
}

impl RequeueCause {
    /// As it was stored; `None`: it is none of them.
    pub fn read(word: &str, memory_bytes: Option<u64>) -> Option<Self> {
        let with_more = |memory_bytes| [Self::OutOfMemory { memory_bytes }, Self::Growing { memory_bytes }];
        let all = [Self::Victim, Self::Evicted, Self::SentBack, Self::MadeRoom].into_iter();
        all.chain(memory_bytes.into_iter().flat_map(with_more)).find(|cause| cause.as_str() == word)
    }

    /// Whether it may be intended where another requeue of the same job was, and what became of that (`None`: nothing yet). An
    /// eviction may where that is settled. A victim, who is started again once, where that was no victim's and came to nothing.
    /// Who is to be sent back may where an operator wanted it and Slurm refused: he is sent back once, and so is only asked once.
    /// One that ran out of memory, or was ended before it did, was started again beside others, where both may still happen. It is
    /// given more once: after it ran out also where to end it before came to nothing, and either where another cause did. A guest makes
    /// room as often as somebody needs it, and what happens to it between is judged as if it had not.
    pub const fn may_follow(self, old: Self, outcome: Option<RequeueOutcome>) -> bool {
        let is_refused = matches!(outcome, Some(RequeueOutcome::Refused));
        let made_room = matches!(old, Self::MadeRoom) && outcome.is_some();
        let was_given_more =
            matches!(old, Self::OutOfMemory { .. } | Self::Growing { .. }) && outcome.is_some();
        match self {
            Self::Evicted | Self::MadeRoom => outcome.is_some(),
            Self::Victim => {
                made_room
                    || was_given_more
                    || (!matches!(old, Self::Victim) && !matches!(outcome, Some(RequeueOutcome::Requeued)))
            }
            Self::SentBack => made_room || was_given_more || (matches!(old, Self::Evicted) && is_refused),
            Self::OutOfMemory { .. } => made_room || (!matches!(old, Self::OutOfMemory { .. }) && is_refused),
            Self::Growing { .. } => made_room || (old.memory_bytes().is_none() && is_refused),
        }
    }

    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Victim => "victim",
            Self::Evicted => "evicted",
            Self::SentBack => "sent-back",
            Self::MadeRoom => "made-room",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::Growing { .. } => "memory-growing",
        }
    }

    /// What the next start is to have at least of device memory, where it is started again for that.
    pub const fn memory_bytes(self) -> Option<u64> {
        match self {
            Self::OutOfMemory { memory_bytes } | Self::Growing { memory_bytes } => Some(memory_bytes),
            Self::Victim | Self::Evicted | Self::SentBack | Self::MadeRoom => None,
        }
    }

    /// Whether the job runs until it is requeued.
    pub const fn ends_the_job(self) -> bool {
        match self {
            Self::Evicted | Self::SentBack | Self::MadeRoom | Self::Growing { .. } => true,
            Self::Victim | Self::OutOfMemory { .. } => false,
        }
    }
}

/// A job that is to be started again: alone, but for one that ran out of memory or was about to, which is only given more.
#[derive(Debug, Clone, PartialEq)]
pub struct Requeue {
    pub cause: RequeueCause,
    /// The start that died, or is to be ended.
    pub start: JobStart,
    pub node: NodeName,
    /// When that was decided.
    pub decided_at: UnixTime,
    /// The same in one sentence.
    pub reason: String,
}

/// What became of a requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueOutcome {
    /// The job waits or runs again.
    Requeued,
    /// Slurm did not do it, or it was not asked to in time.
    Refused,
}

/// One fault of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultOf {
    pub gres_type: GresType,
    pub fault: DeviceFault,
}

/// What a report of conditions changes, each with the event that reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FaultChanges {
    pub begun: Vec<(FaultOf, Event)>,
    /// Without an event where the same fault was only dated anew, by an agent that started again.
    pub cleared: Vec<(FaultOf, Option<Event>)>,
}

/// How long a driver's sentence may be; it is part of what identifies a fault.
const DETAIL_CHARS_MAX: usize = 400;
/// Times nearer to each other than this are one: stores keep microseconds.
const SAME_SECONDS: f64 = 1e-3;

/// Compares the faults that last, by what is stored of a node, with what its agent says of some of its devices.
pub fn changes(
    open: &[FaultOf],
    node: &NodeName,
    conditions: &[DeviceCondition],
    at: UnixTime,
) -> FaultChanges {
    let reported: Vec<FaultOf> = conditions.iter().flat_map(faults_of).collect();
    let begun = reported.iter().filter(|fault| !open.iter().any(|known| is_same(known, fault)));
    // Of a device that the report does not speak of nothing has changed.
    let cleared = open
        .iter()
        .filter(|known| conditions.iter().any(|one| one.gres_type == known.gres_type))
        .filter(|known| !reported.iter().any(|fault| is_same(known, fault)));
    FaultChanges {
        begun: begun
            .map(|of| {
                let detail = of.fault.to_string();
                (of.clone(), event(EventKind::DeviceFault, (node, of), of.fault.since, &detail))
            })
            .collect(),
        cleared: cleared
            .map(|of| {
                let is_over = !reported.iter().any(|fault| is_alike(of, fault));
                let detail = format!("no longer so: {}", of.fault);
                (of.clone(), is_over.then(|| event(EventKind::DeviceWell, (node, of), at, &detail)))
            })
            .collect(),
    }
}

fn event(kind: EventKind, (node, of): (&NodeName, &FaultOf), at: UnixTime, detail: &str) -> Event {
    Event { at, kind, job_id: None, node: Some(node.clone()), detail: format!("{}: {detail}", of.gres_type) }
}

fn faults_of(condition: &DeviceCondition) -> impl Iterator<Item = FaultOf> {
    condition.faults.iter().map(|fault| {
        // No control characters, and none that Postgres cannot keep: drivers say what they like.
        let plain = fault.detail.chars().filter(|char| !char.is_control());
        let fault = DeviceFault { detail: plain.take(DETAIL_CHARS_MAX).collect(), ..fault.clone() };
        FaultOf { gres_type: condition.gres_type.clone(), fault }
    })
}

fn is_alike(a: &FaultOf, b: &FaultOf) -> bool {
    a.gres_type == b.gres_type && a.fault.kind == b.fault.kind && a.fault.detail == b.fault.detail
}

fn is_same(a: &FaultOf, b: &FaultOf) -> bool {
    is_alike(a, b) && (a.fault.since.seconds() - b.fault.since.seconds()).abs() < SAME_SECONDS
}

/// What failed, and what is started again for it.
#[async_trait]
pub trait Faults: Send + Sync {
    /// In one transaction: marks a run as judged and keeps what was found. `Ok(false)`: it was judged before, and nothing is
    /// kept. A job is requeued at most once: where that was decided before, it is not decided again.
    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError>;
    /// Requeues that were decided and that nothing became of yet, oldest first.
    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError>;
    /// The newest requeue that was intended of a job, whatever became of it.
    async fn last_requeue(&self, job_id: SlurmJobId) -> Result<Option<Requeue>, StoreError>;
    /// What became of a requeue, with its event. `Ok(false)`: that was known already, and nothing is kept.
    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError>;
    /// In one transaction: intends a requeue and keeps its event. `Ok(false)`, and nothing is kept: it may not follow the one
    /// that was intended of the job before ([`RequeueCause::may_follow`]).
    async fn intend_requeue(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError>;
    /// How these devices of a node are: a fault that begins and one that is over make an event each.
    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError>;
    /// Faults of a device that began at or after `since`, oldest first.
    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError>;
}
