//! What a view is made from.

use super::charged::Charged;
use super::trial_history::{Combination, TrialHistory, Watched};
use crate::agents::AgentState;
use crate::device_status::Amiss;
use crate::first_runs::seen::FirstRunSeen;
use crate::job_rules::ByJob;
use crate::pace::settings::PaceSettings;
use crate::room_asked::RoomAsked;
use crate::scan::Scan;
use pillion_core::invariant::Violation;
use pillion_core::{GresType, JobStart, NodeName, Revision, SlurmJobId, UnixTime, UserId};
use pillion_pairing::{CopyBook, Policy};
use pillion_store::{Decision, Drain, Member, StoredProfile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the book of trials is made from.
#[derive(Debug, Clone, Copy)]
pub struct TrialSources<'a> {
    /// By partition whether the watch takes apart.
    pub pace: &'a PaceSettings,
    /// How fast those go that the watch has judged.
    pub speeds: &'a BTreeMap<(NodeName, GresType), BTreeMap<JobStart, f64>>,
    /// A guest was seen that could not go back without harm: nobody is tried.
    pub is_parting_unsafe: bool,
    /// What came of sharings before.
    pub history: &'a TrialHistory,
}

/// Everything that a view is made from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The store's revision, read before everything else.
    pub revision: Revision,
    /// The last scan.
    pub scan: &'a Scan,
    /// Planned and released decisions.
    pub decisions: &'a [Decision],
    /// Agents by node.
    pub agents: &'a BTreeMap<NodeName, AgentState>,
    /// Nodes on which releases stopped, and why.
    pub stopped: &'a BTreeMap<NodeName, Violation>,
    /// What operators drained.
    pub drains: &'a [Drain],
    /// Jobs whose last plan was dropped, or that were restarted, a moment ago: not before the time given.
    pub cooling: &'a BTreeMap<SlurmJobId, UnixTime>,
    /// What is known of workloads.
    pub profiles: &'a [StoredProfile],
    /// The site's policy.
    pub policy: &'a Policy,
    /// What it says of single jobs.
    pub by_job: ByJob<'a>,
    /// Runs alone that users owe.
    pub owed: &'a BTreeMap<UserId, u32>,
    /// What jobs are booked with beyond their profiles.
    pub charged: &'a Charged,
    /// Devices whose tenants are not as they were planned.
    pub amiss: &'a Amiss,
    /// First runs, as far as they were measured.
    pub first_runs: &'a BTreeMap<JobStart, Arc<FirstRunSeen>>,
    /// Interactive jobs that leave their devices idle.
    pub idle_sessions: &'a BTreeSet<JobStart>,
    /// How many devices of one user's jobs may be held by them alone before his next such job comes after everybody else's.
    pub alone_devices_max: u32,
    /// Guests that were asked to make room.
    pub room_asked: &'a BTreeMap<JobStart, RoomAsked>,
    /// Jobs that may not be started again.
    pub steadfast: &'a BTreeSet<JobStart>,
    /// Whether the site lets jobs be started again that ran out of device memory, where their users do.
    pub restarts_by_consent: bool,
    /// What the watch saw of two, also of those that are apart again.
    pub watched: &'a BTreeMap<Combination, Watched>,
    /// What was measured of copies of one workload; empty where the site lets no more than four share.
    pub copies: &'a CopyBook,
    /// What trials are made from; absent = the site wants none.
    pub trials: Option<TrialSources<'a>>,
    /// Extra names by device model under which users may ask for it.
    pub gpu_types: &'a BTreeMap<String, Vec<String>>,
}

/// Everybody who has a place by a decision, or is to have it.
pub(super) fn active_members(decisions: &[Decision]) -> impl Iterator<Item = (&Decision, &Member)> {
    decisions
        .iter()
        .flat_map(|decision| decision.members.iter().map(move |member| (decision, member)))
        .filter(|(_, member)| member.state.is_active())
}
