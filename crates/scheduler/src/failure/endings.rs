//! What is known of tenants that are being ended, and of whom Slurm is ending. Pure: who is told what stands in [`super::ending`].

use crate::scan::Scan;
use pillion_core::decision::MemberState;
use pillion_core::report::END_DELAY_SECONDS_MAX;
use pillion_core::{JobStart, NodeName, UnixTime, UserId};
use pillion_slurm::{Job, JobState, KILL_WAIT_DEFAULT};
use pillion_store::Decision;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The last clients end so long before SIGKILL, in seconds: a daemon takes a part of one, and so may the way to it.
const MARGIN_SECONDS: f64 = 2.0;

/// A start that shares its device by MPS with another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tenant {
    pub(super) node: NodeName,
    pub(super) uid: UserId,
}

/// How far one is that we end ourselves.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Hold {
    Asked {
        node: NodeName,
        at: UnixTime,
        /// How often by now.
        count: u32,
    },
    Answered {
        node: NodeName,
        at: UnixTime,
        count: u32,
        /// `None`: its end takes nobody along.
        harm: Option<Harm>,
    },
    /// Slurm was asked. It is not held again, whatever came of that.
    Over { node: NodeName },
}

impl Hold {
    pub(super) const fn node(&self) -> &NodeName {
        match self {
            Self::Asked { node, .. } | Self::Answered { node, .. } | Self::Over { node } => node,
        }
    }
}

/// Why the end of a start that is not held may take its neighbours along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Harm {
    pub(super) why: String,
    /// So it would be with every guest there; else it was this one that could not be held.
    pub(super) is_everybodys: bool,
}

/// What Slurm said when it was asked to requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Taken,
    Refused,
    /// It may have been taken.
    Lost,
}

/// Whether Slurm may be asked now to end a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ready {
    Now,
    /// Its agent was asked, or is away.
    NotYet,
    Never(Harm),
}

/// What is known of starts that are being ended, until a restart.
#[derive(Debug, Default)]
pub struct Endings(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) holds: BTreeMap<JobStart, Hold>,
    /// Whoever shared at the last look, and those whom Slurm is ending.
    pub(super) tenants: BTreeMap<JobStart, Tenant>,
    /// Whose agent was told that Slurm ends them, and how many more answers are taken for one.
    pub(super) told: BTreeMap<JobStart, (NodeName, u32)>,
    pub(super) kill_wait: Option<(Duration, UnixTime)>,
}

/// Those of the starts on each device, or in each instance of one, that are or may be beside another there, and share by a daemon.
pub(super) fn tenants(decisions: &[Decision]) -> BTreeMap<JobStart, Tenant> {
    let mut devices: BTreeMap<_, Vec<(JobStart, Tenant, bool)>> = BTreeMap::new();
    for decision in decisions {
        let there = decision.members.iter();
        let there = there.filter(|it| matches!(it.state, MemberState::Released | MemberState::Running));
        for member in there {
            let tenant = Tenant { node: decision.node.clone(), uid: member.plan.uid };
            let sharing = member.plan.sharing;
            let has_daemon = sharing.mechanism().has_daemon();
            for (node, gres_type) in decision.places() {
                let place = (node, gres_type, sharing.mig_slot());
                devices.entry(place).or_default().push((member.plan.start, tenant.clone(), has_daemon));
            }
        }
    }
    let shared = devices.into_values().filter(|here| here.len() > 1).flatten();
    shared.filter(|(_, _, has_daemon)| *has_daemon).map(|(start, tenant, _)| (start, tenant)).collect()
}

/// Since when Slurm is ending this start, if it is. Where it is to be started again it is counted as another already.
pub(super) fn ended_since(start: JobStart, tenant: &Tenant, scan: &Scan) -> Option<UnixTime> {
    let job = scan.jobs.get(&start.job_id).filter(|job| job.uid == tenant.uid)?;
    let is_it = [start.restart_count, start.restart_count.saturating_add(1)].contains(&job.restart_count);
    let is_ending = is_it && job.state == JobState::Completing;
    // What is ahead of the scan is its time limit's end.
    is_ending.then(|| job.ended_at.filter(|ended_at| *ended_at <= scan.at).unwrap_or(scan.at))
}

/// How long clients that catch SIGTERM, which came at `since`, may go on.
pub(super) fn delay_seconds(since: UnixTime, now: UnixTime, kill_wait: Duration) -> f64 {
    let left = since.seconds() + kill_wait.as_secs_f64() - MARGIN_SECONDS - now.seconds();
    left.clamp(0.0, END_DELAY_SECONDS_MAX.min(kill_wait.as_secs_f64()))
}

impl State {
    /// Takes up what is there now: whoever has begun to be ended and was not told of.
    pub(super) fn look(
        &mut self,
        decisions: &[Decision],
        scan: &Scan,
    ) -> Vec<(JobStart, NodeName, UnixTime)> {
        let before = std::mem::replace(&mut self.tenants, tenants(decisions));
        let ending = before.into_iter().filter(|(start, tenant)| ended_since(*start, tenant, scan).is_some());
        self.tenants.extend(ending);
        self.holds.retain(|start, _| {
            scan.jobs.get(&start.job_id).is_some_and(|job| job.restart_count == start.restart_count)
        });
        let tenants = &self.tenants;
        self.told.retain(|start, _| {
            tenants.contains_key(start) || scan.jobs.get(&start.job_id).is_some_and(is_ending_now)
        });
        let untold = self.tenants.iter().filter(|(start, _)| !self.told.contains_key(start));
        untold
            .filter_map(|(start, tenant)| {
                Some((*start, tenant.node.clone(), ended_since(*start, tenant, scan)?))
            })
            .collect()
    }

    pub(super) fn kill_wait(&self) -> Duration {
        self.kill_wait.map_or(KILL_WAIT_DEFAULT, |(kill_wait, _)| kill_wait)
    }
}

fn is_ending_now(job: &Job) -> bool {
    job.state == JobState::Completing
}

impl Endings {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
