//! The pool at one glance, a page at a time: pure. A caller is sent no more than the rows that he asked for, and what a
//! device does only where he may see everybody on it: else it would tell him of a neighbour.

use super::auth::Caller;
use super::listing::{self, Shown};
use crate::agents::{AgentState, Readings};
use crate::device_status::{self, Amiss, Occupation, Spot};
use crate::scan::{Scan, mark_of};
use pillion_api as api;
use pillion_core::decision::MemberState;
use pillion_core::{GresType, NodeName, SlurmJobId, UnixTime};
use pillion_slurm::JobState;
use pillion_store::{Decision, Drain, Member};
use std::collections::{BTreeMap, BTreeSet};

/// The most rows of one page.
const ROWS_MAX: u32 = 1_000;
/// A reading that is older than this says nothing of now.
const READING_AGE_SECONDS_MAX: f64 = 10.0;

/// What a page is made from.
pub(super) struct Sources<'a> {
    pub(super) scan: Option<&'a Scan>,
    pub(super) agents: &'a BTreeMap<NodeName, AgentState>,
    pub(super) decisions: &'a [Decision],
    pub(super) drains: &'a [Drain],
    pub(super) amiss: &'a Amiss,
}

/// One device, and who is on it.
pub(super) struct Row<'a> {
    spot: Spot<'a>,
    tenants: Vec<(&'a Decision, &'a Member)>,
}

impl Row<'_> {
    /// Which device it is.
    pub(super) const fn place(&self) -> (&NodeName, &GresType) {
        self.spot.place()
    }
}

/// All devices, in the order of nodes and of a node's own indexes.
pub(super) fn rows<'a>(sources: &Sources<'a>) -> Vec<Row<'a>> {
    let mut tenants: BTreeMap<(&NodeName, &GresType), Vec<(&Decision, &Member)>> = BTreeMap::new();
    for decision in sources.decisions {
        let there = decision.members.iter().filter(|member| is_there(member));
        let there = there.map(|member| (decision, member));
        for place in decision.places() {
            tenants.entry(place).or_default().extend(there.clone());
        }
    }
    let spots = device_status::spots(&device_status::Sources {
        agents: sources.agents,
        scan: sources.scan,
        drains: sources.drains,
        amiss: sources.amiss,
        tenant_counts: tenants.iter().map(|(place, there)| (*place, to_u32(there.len()))).collect(),
    });
    let rows = spots
        .into_iter()
        .map(|spot| Row { tenants: tenants.remove(&spot.place()).unwrap_or_default(), spot });
    rows.collect()
}

fn is_there(member: &Member) -> bool {
    matches!(member.state, MemberState::Released | MemberState::Running)
}

/// A part of a list: from `offset` on, at most `limit`.
pub(super) fn page<T>(all: &[T], offset: u32, limit: u32) -> &[T] {
    let first = to_usize(offset).min(all.len());
    let last = first.saturating_add(to_usize(limit.min(ROWS_MAX))).min(all.len());
    &all[first..last]
}

/// On the wire a number of rows; more than it can say is the greatest that it can.
pub(super) fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub(super) fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The decisions on these devices, whose users are to be named.
pub(super) fn decisions_on(rows: &[Row<'_>]) -> Vec<Decision> {
    let mut seen = BTreeSet::new();
    let all = rows.iter().flat_map(|row| &row.tenants).map(|(decision, _)| *decision);
    all.filter(|decision| seen.insert(decision.id)).cloned().collect()
}

/// How many devices there are in each state.
pub(super) fn counts(rows: &[Row<'_>]) -> api::TopCounts {
    api::TopCounts {
        devices: to_u32(rows.len()),
        shared: count(rows, |spot| spot.occupation() == Occupation::Shared),
        single: count(rows, |spot| spot.occupation() == Occupation::Alone),
        idle: count(rows, |spot| spot.occupation() == Occupation::Idle),
        closed: count(rows, |spot| spot.closed.is_some()),
    }
}

fn count(rows: &[Row<'_>], is_counted: impl Fn(&Spot<'_>) -> bool) -> u32 {
    to_u32(rows.iter().filter(|row| is_counted(&row.spot)).count())
}

/// One row a device.
pub(super) fn devices(
    rows: &[Row<'_>],
    readings: &Readings,
    users: &BTreeMap<SlurmJobId, String>,
    shown: Shown,
    now: UnixTime,
) -> Vec<api::TopDevice> {
    rows.iter().map(|row| device(row, readings, users, shown, now)).collect()
}

fn device(
    Row { spot, tenants }: &Row<'_>,
    readings: &Readings,
    users: &BTreeMap<SlurmJobId, String>,
    shown: Shown,
    now: UnixTime,
) -> api::TopDevice {
    let caller = shown.caller;
    let is_own = tenants.iter().all(|(_, member)| caller.may_see(member.plan.uid));
    // Of a job that Slurm placed by itself nobody knows here whose it is.
    let is_visible = caller.is_operator || (!tenants.is_empty() && is_own);
    let reading = readings.get(&(spot.node.clone(), spot.device.gres_type.clone()));
    let fresh = reading.filter(|(at, _)| now.seconds_since(*at) <= READING_AGE_SECONDS_MAX);
    let reading = fresh.map(|(_, reading)| reading).filter(|_| is_visible);
    api::TopDevice {
        node: spot.node.to_string(),
        gres_type: spot.device.gres_type.to_string(),
        device_model: spot.device.model.clone(),
        mechanism: spot.device.mechanism.to_string(),
        memory_bytes: spot.device.memory_bytes,
        shards_used: spot.shards_used,
        closed: spot.closed.map(|why| if caller.is_operator { why.to_string() } else { why.for_everybody() }),
        tenants: tenants
            .iter()
            .filter(|(_, member)| shown.may_know_of(member.plan.uid))
            .map(|(_, member)| tenant(member, users, caller))
            .collect(),
        activity: reading.map(listing::activity),
    }
}

/// That somebody is there; who it is only where the caller may know.
fn tenant(member: &Member, users: &BTreeMap<SlurmJobId, String>, caller: Caller) -> api::Member {
    if caller.may_see(member.plan.uid) {
        listing::member(member, users, caller)
    } else {
        api::Member { state: member.state.to_string(), ..api::Member::default() }
    }
}

/// Jobs of ours that run where Slurm put them, as far as the caller may know of them: no decision tells on which device.
pub(super) fn unplaced_count(scan: Option<&Scan>, decisions: &[Decision], shown: Shown) -> u32 {
    let placed: BTreeSet<SlurmJobId> = decisions
        .iter()
        .flat_map(|decision| &decision.members)
        .filter(|member| is_there(member))
        .map(|member| member.plan.start.job_id)
        .collect();
    let jobs = scan.into_iter().flat_map(|scan| scan.jobs.values());
    let jobs = jobs.filter(|job| job.state == JobState::Running && mark_of(job).is_some());
    to_u32(jobs.filter(|job| !placed.contains(&job.id) && shown.may_know_of(job.uid)).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_status::NOTHING_AMISS;
    use crate::testing::{self, NOW, at, decision, job, member, scan};
    use pillion_core::UserId;
    use pillion_core::device::{DeviceDescription, Reading};
    use pillion_core::metric::Metric;
    use pillion_slurm::NodeAvailability;
    use pillion_store::DrainPlace;

    const OPERATOR: Caller = Caller { uid: None, is_operator: true };
    const ALICE: Caller = Caller { uid: Some(UserId(1000)), is_operator: false };

    fn agents(is_connected: bool) -> BTreeMap<NodeName, AgentState> {
        let device = |index: u32| DeviceDescription {
            model: "h100".into(),
            memory_bytes: 80,
            ..pillion_test_kit::device(index)
        };
        let agent = AgentState { is_connected, ..testing::agent((0..4).map(device).collect()) };
        [(NodeName::new("n1"), agent)].into()
    }

    /// Alice's job on g1, beside Bob's.
    fn pair() -> Vec<Decision> {
        let host = member(MemberState::Running);
        let mut guest = member(MemberState::Released);
        guest.plan.start.job_id = SlurmJobId::plain(987_654);
        guest.plan.uid = UserId(1001);
        let mut shared = decision(&host);
        shared.members.push(guest);
        vec![shared]
    }

    fn readings() -> Readings {
        let reading = Reading::from([(Metric::SmActiveFraction, 0.75), (Metric::MemoryBytesUsed, 60.0)]);
        [((NodeName::new("n1"), GresType::new("g1")), (at(NOW - 3), reading))].into()
    }

    fn rows(decisions: &[Decision], caller: Caller, now: u64) -> Vec<api::TopDevice> {
        rows_shown(decisions, Shown { caller, hides_jobs: false }, now)
    }

    fn rows_shown(decisions: &[Decision], shown: Shown, now: u64) -> Vec<api::TopDevice> {
        let agents = agents(true);
        let sources = Sources { scan: None, agents: &agents, decisions, drains: &[], amiss: &NOTHING_AMISS };
        let users =
            [(SlurmJobId::plain(7), "alice".to_owned()), (SlurmJobId::plain(987_654), "bob".to_owned())];
        devices(&super::rows(&sources), &readings(), &users.into(), shown, at(now))
    }

    fn closed_by(row: &Row<'_>) -> Option<String> {
        row.spot.closed.map(|why| why.to_string())
    }

    #[test]
    fn an_operator_sees_who_is_where_and_what_the_device_does() {
        let row = rows(&pair(), OPERATOR, NOW).remove(1);
        let users: Vec<Option<&str>> = row.tenants.iter().map(|tenant| tenant.user.as_deref()).collect();
        assert_eq!((row.gres_type.as_str(), users), ("g1", vec![Some("alice"), Some("bob")]));
        let activity = row.activity.unwrap();
        assert_eq!((activity.sm_active_fraction, activity.memory_bytes_used), (Some(0.75), Some(60)));
        assert_eq!(rows(&pair(), OPERATOR, NOW + 8)[1].activity, None, "that was before");
    }

    #[test]
    fn a_user_is_told_nothing_by_which_to_know_a_neighbour() {
        let shown = rows(&pair(), ALICE, NOW);
        let text = format!("{shown:?}");
        assert!(!text.contains("bob") && !text.contains("987654"), "{text}");
        assert_eq!((shown[1].tenants[0].user.as_deref(), shown[1].activity), (Some("alice"), None));
        let mut alone = pair();
        alone[0].members.pop();
        assert!(rows(&alone, ALICE, NOW)[1].activity.is_some(), "it is her own");
        assert_eq!(rows(&[], ALICE, NOW)[1].activity, None, "Slurm may have put anybody there");
    }

    #[test]
    fn where_slurm_keeps_jobs_private_a_user_sees_no_tenant_but_himself() {
        let shown = |caller| rows_shown(&pair(), Shown { caller, hides_jobs: true }, NOW).remove(1).tenants;
        assert_eq!((shown(ALICE).len(), shown(OPERATOR).len()), (1, 2));
        assert_eq!(shown(ALICE)[0].user.as_deref(), Some("alice"));
    }

    #[test]
    fn devices_are_counted_by_what_is_on_them() {
        let mut scan = scan(Some(job(JobState::Running)), NodeAvailability::Up);
        scan.nodes[0].shards = [("g1", (100, 80)), ("g2", (100, 100)), ("g3", (100, 0))]
            .map(|(name, shards)| (GresType::new(name), shards))
            .into();
        let place = DrainPlace { node: NodeName::new("n1"), gres_type: Some(GresType::new("g3")) };
        let drains = [Drain { place, by: "root".into(), reason: "fan".into(), since: at(NOW) }];
        let (agents, decisions) = (agents(true), pair());
        let sources = Sources {
            scan: Some(&scan),
            agents: &agents,
            decisions: &decisions,
            drains: &drains,
            amiss: &NOTHING_AMISS,
        };
        let rows = super::rows(&sources);
        let api::TopCounts { devices, shared, single, idle, closed } = counts(&rows);
        assert_eq!((devices, shared, single, idle, closed), (4, 1, 1, 2, 1));
        assert_eq!(closed_by(&rows[3]).as_deref(), Some("drained by root: fan"));
        let unplaced = |decisions: &[Decision], caller, hides_jobs| {
            unplaced_count(Some(&scan), decisions, Shown { caller, hides_jobs })
        };
        assert_eq!((unplaced(&decisions, OPERATOR, true), unplaced(&[], OPERATOR, true)), (0, 1));
        let other = Caller { uid: Some(UserId(4243)), is_operator: false };
        assert_eq!((unplaced(&[], other, false), unplaced(&[], other, true)), (1, 0), "PrivateData=jobs");
        assert_eq!(decisions_on(&rows).len(), 1);
    }

    #[test]
    fn a_device_without_its_agent_is_closed() {
        let agents = agents(false);
        let sources =
            Sources { scan: None, agents: &agents, decisions: &[], drains: &[], amiss: &NOTHING_AMISS };
        assert_eq!(closed_by(&super::rows(&sources)[0]).as_deref(), Some("its agent is not responding"));
    }

    #[test]
    fn a_page_is_no_more_than_was_asked_for() {
        let all: Vec<u32> = (0..5000).collect();
        assert_eq!(page(&all, 10, 3), [10, 11, 12]);
        assert_eq!(page(&all, 4999, 3), [4999]);
        assert!(page(&all, 5000, 3).is_empty() && page(&all, u32::MAX, u32::MAX).is_empty());
        assert_eq!(page(&all, 0, u32::MAX).len(), 1000);
    }
}
