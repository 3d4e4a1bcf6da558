use super::*;
use crate::model::Contention;
use crate::plan::{Plan, Role};
use crate::planner::plan;
use crate::policy::GuestRule;
use crate::testing::{GIB, device, device_with, job, tenant, view};
use crate::view::{ClusterView, Tenant};
use pillion_core::device::Mechanism::{self, Ccs, Mps, TimeSliced};
use pillion_core::share::Sharing;
use pillion_core::workload::of_session;
use pillion_core::{UserId, WorkloadKey};

fn notebook() -> WorkloadKey {
    of_session("alice", "1f0c9a0000000000")
}

fn waiting(id: u32) -> WaitingJob {
    WaitingJob { workload: notebook(), memory_bytes_declared: Some(20 * GIB), ..job(id, "any") }
}

fn guest(id: u32, workload: &str) -> WaitingJob {
    WaitingJob { as_guest: true, ..job(id, workload) }
}

fn running(is_idle: bool) -> Tenant {
    Tenant {
        workload: Some(notebook()),
        sharing: Sharing::by(Mps, None, None),
        shards: Shards::try_new(SHARDS).unwrap(),
        memory_bytes: Some(20 * GIB),
        session: Some(Box::new(Session::new(notebook(), "h100", is_idle))),
        ..tenant(50, "any", 7200)
    }
}

/// One device, on which a notebook is, and a job that waits.
fn beside(host: Tenant, job: WaitingJob) -> ClusterView {
    view(vec![device_with("g0", Mps, host)], vec![job])
}

fn planned(view: &ClusterView) -> Plan {
    plan(view, &Contention, &Policy::default())
}

/// Why the one job that waits does not come to the device.
fn kept_by(view: &ClusterView) -> Option<Reason> {
    let plan = planned(view);
    plan.left_waiting.first().map(|left| left.candidates[0].excluded_by.expect("it does not come"))
}

fn alone_on(mechanism: Mechanism, job: WaitingJob, policy: &Policy) -> (Role, u8, Reason) {
    let plan = plan(&view(vec![device("g0", mechanism)], vec![job]), &Contention, policy);
    let member = &plan.pairings[0].members[0];
    (member.role, member.shards.count(), member.explanation.reason)
}

#[test]
fn an_interactive_job_starts_alone_and_leaves_room_for_guests() {
    let plan = planned(&view(vec![device("g0", Mps)], vec![waiting(1)]));
    let member = &plan.pairings[0].members[0];
    assert_eq!((member.role, member.shards.count()), (Role::Host, SHARDS));
    assert_eq!((member.memory_bytes, member.sharing.memory_limit_bytes()), (Some(20 * GIB), Some(20 * GIB)));
    assert_eq!((member.sharing.cap(), member.sharing.mechanism()), (None, Mps));
    assert!(member.explanation.text.contains("guests may join while it leaves the device idle"));
}

#[test]
fn where_nobody_could_be_its_neighbour_it_has_all_of_the_device() {
    let whole = (Role::Alone, 100, Reason::Interactive);
    for mechanism in [Ccs, TimeSliced] {
        assert_eq!(alone_on(mechanism, waiting(1), &Policy::default()), whole, "{mechanism}");
    }
    assert_eq!(alone_on(Mps, waiting(1), &Policy { tenants_max: 1, ..Policy::default() }), whole);
    let undeclared = WaitingJob { memory_bytes_declared: None, ..waiting(1) };
    assert_eq!(alone_on(Mps, undeclared, &Policy::default()), whole);
}

/// Whatever was learnt under its key.
#[test]
fn it_starts_with_nobody_and_joins_nobody() {
    let mut view =
        view(vec![device("g0", Mps), device("g1", Mps)], vec![waiting(1), guest(2, "light"), waiting(3)]);
    let mut profiles = crate::testing::known_profiles();
    profiles.push(crate::testing::profile(notebook().as_str(), 0.1, 0.05, 8));
    view.profiles = crate::view::ProfileBook::from(profiles);
    let plan = planned(&view);
    assert!(plan.pairings.iter().all(|pairing| pairing.members.len() == 1), "{plan:?}");
    let host =
        device_with("g0", Mps, Tenant { shards: Shards::try_new(30).unwrap(), ..tenant(9, "light", 7200) });
    let plan = planned(&crate::testing::view(vec![host], vec![waiting(1)]));
    assert!(plan.pairings.is_empty());
}

#[test]
fn a_small_guest_joins_it_while_it_is_idle() {
    let plan = planned(&beside(running(true), guest(1, "half")));
    let member = &plan.pairings[0].members[0];
    assert_eq!((member.role, plan.pairings[0].joins.is_some()), (Role::Joiner, true));
    assert!(member.shards.count() <= 100 - SHARDS);
    assert_eq!(member.sharing.memory_limit_bytes(), member.memory_bytes, "it is held to what it needs");
    assert!(member.explanation.text.contains("joins an interactive job"), "{}", member.explanation.text);
}

#[test]
fn nobody_else_joins_it() {
    assert_eq!(kept_by(&beside(running(true), job(1, "light"))), Some(Reason::GuestsOnly));
    assert_eq!(
        kept_by(&beside(running(true), guest(1, "heavy"))),
        Some(Reason::GuestsOnly),
        "it would fill it"
    );
    assert_eq!(kept_by(&beside(running(false), guest(1, "light"))), Some(Reason::SessionActive));
    let full = Tenant { memory_bytes: Some(79 * GIB), ..running(true) };
    assert_eq!(kept_by(&beside(full, guest(1, "light"))), Some(Reason::MemoryDoesNotFit));
    let others = Tenant { uid: UserId(1001), ..running(true) };
    assert_eq!(kept_by(&beside(others, guest(1, "light"))), Some(Reason::UserPolicy));
    assert!(planned(&beside(running(true), guest(1, "never-seen"))).pairings.is_empty());
    let policy = Policy { guests: GuestRule::Never, ..Policy::default() };
    assert!(plan(&beside(running(true), guest(1, "light")), &Contention, &policy).pairings.is_empty());
}

#[test]
fn guests_beside_it_are_small_together() {
    let policy = Policy { tenants_max: 3, ..Policy::default() };
    for (second, comes) in [("light", true), ("half", false)] {
        let there = Tenant {
            group: running(true).group,
            shards: Shards::try_new(20).unwrap(),
            ..tenant(51, "half", 7200)
        };
        let mut device = device_with("g0", Mps, running(true));
        device.tenants.push(there);
        device.shards_free = 20;
        let plan = plan(&view(vec![device], vec![guest(1, second)]), &Contention, &policy);
        assert_eq!(plan.pairings.len(), usize::from(comes), "{second}");
    }
}
