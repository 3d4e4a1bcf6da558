//! Where a start stands in truth, by what Slurm says and what agents measured. Pure.

use crate::observe::is_settled;
use crate::observe::seen::Observed;
use pillion_core::{GresType, JobStart, NodeName, UnixTime};
use pillion_slurm::{Job, JobState};
use pillion_store::{ObservedJob, ObservedRun};
use std::collections::BTreeMap;

/// A device by its node and its place there.
pub(crate) type Place = (NodeName, GresType);

/// A start that ran, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ran {
    pub(crate) started_at: UnixTime,
    /// `None`: it still runs.
    pub(crate) ended_at: Option<UnixTime>,
    /// The device that it holds; `None`: several, or Slurm does not say it clearly.
    pub(crate) place: Option<Place>,
    pub(crate) memory_bytes_peak: Option<u64>,
    /// Nothing more is to come of it.
    pub(crate) is_settled: bool,
}

impl Ran {
    pub(crate) fn new(job: &ObservedJob, runs: &[ObservedRun], now: UnixTime) -> Self {
        let place = match &job.devices[..] {
            [held] => Some((held.node.clone(), held.gres_type.clone())),
            _ => None,
        };
        Self {
            started_at: job.started_at,
            ended_at: job.ended_at,
            place,
            memory_bytes_peak: runs.iter().filter_map(|run| run.summary.memory_bytes_peak).max(),
            is_settled: is_settled(job, runs, now),
        }
    }

    /// How long it ran, once it is over.
    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(self.ended_at?.seconds_since(self.started_at).max(0.0))
    }
}

/// Where one start stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Standing {
    /// It waits, or it is not known yet whether it does.
    Waits,
    /// It runs, or did.
    Ran(Ran),
    /// It never ran where anybody looks: cancelled before it started, started elsewhere, or forgotten.
    Gone,
}

impl Standing {
    /// What is known of its run, if it had one.
    pub(crate) fn ran(&self) -> Option<&Ran> {
        match self {
            Self::Ran(ran) => Some(ran),
            Self::Waits | Self::Gone => None,
        }
    }
    /// Whether it runs now.
    pub(crate) fn runs(&self) -> bool {
        self.ran().is_some_and(|ran| ran.ended_at.is_none())
    }
}

/// Everything that is known of starts at one moment: Slurm's last answer goes before what was written down.
#[derive(Debug, Default)]
pub(crate) struct Standings<'a> {
    queue: BTreeMap<JobStart, &'a Job>,
    is_whole: bool,
    ran: BTreeMap<JobStart, Ran>,
}

impl<'a> Standings<'a> {
    /// `stored`: what was written down of starts that somebody wants to know of.
    pub(crate) fn new(
        observed: &'a Observed,
        stored: &[(ObservedJob, Vec<ObservedRun>)],
        now: UnixTime,
    ) -> Self {
        let mut ran: BTreeMap<JobStart, Ran> =
            stored.iter().map(|(job, runs)| (job.start, Ran::new(job, runs, now))).collect();
        for job in &observed.jobs {
            let new = Ran::new(job, &[], now);
            ran.entry(job.start)
                .and_modify(|known| {
                    (known.started_at, known.ended_at) = (new.started_at, new.ended_at);
                    known.place.clone_from(&new.place);
                    // A part that was reported counts once Slurm says that it is over.
                    known.is_settled &= new.ended_at.is_some();
                })
                .or_insert(new);
        }
        let queue = observed.queue.iter().map(|job| (job.start(), job.as_ref())).collect();
        Self { queue, is_whole: observed.is_whole, ran }
    }

    pub(crate) fn of(&self, start: JobStart) -> Standing {
        if let Some(ran) = self.ran.get(&start) {
            return Standing::Ran(ran.clone());
        }
        match self.queue.get(&start).map(|job| &job.state) {
            // One that runs is observed from the next look on, unless its nodes are not.
            Some(JobState::Pending | JobState::Running | JobState::Suspended | JobState::Other(_)) => {
                Standing::Waits
            }
            Some(JobState::Completing | JobState::Ended(_)) => Standing::Gone,
            None if self.is_whole => Standing::Gone,
            None => Standing::Waits,
        }
    }

    /// As Slurm has it now.
    pub(crate) fn job(&self, start: JobStart) -> Option<&'a Job> {
        self.queue.get(&start).copied()
    }
}
