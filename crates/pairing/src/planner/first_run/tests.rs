use super::*;
use crate::model::Contention;
use crate::plan::{Plan, Role};
use crate::planner::plan;
use crate::testing::{GIB, device, device_with, job, profile, tenant, view};
use crate::view::{ClusterView, Tenant};
use pillion_core::device::Mechanism::{self, Ccs, Mps, TimeSliced};
use pillion_core::profile::WorkloadProfile;
use pillion_core::{CapStep, WorkloadKey};

fn host_policy() -> Policy {
    Policy { first_runs: FirstRuns::Host, ..Policy::default() }
}

/// Of a job that uses a tenth of the units, after six minutes.
fn seen() -> FirstRun {
    FirstRun {
        profile: WorkloadProfile {
            run_count: 0,
            throughput_per_second: Some(10.0),
            ..profile("new", 0.1, 0.05, 8)
        },
        measured_seconds: 360.0,
        sample_count: 180,
        activity_error_fraction: Some(0.02),
        drift_fraction: Some(0.03),
        has_memory_settled: true,
        memory_bytes_declared: None,
    }
}

fn running(first: FirstRun) -> Tenant {
    Tenant {
        workload: Some(WorkloadKey::new("new")),
        memory_bytes: None,
        first_run: Some(Box::new(first)),
        ..tenant(50, "new", 7200)
    }
}

/// One device, on which a first run stands, and a known job that waits and ends before it.
fn beside(first: FirstRun) -> ClusterView {
    view(vec![device_with("g0", Mps, running(first))], vec![job(1, "light")])
}

fn planned(view: &ClusterView) -> Plan {
    plan(view, &Contention, &host_policy())
}

fn alone_on(mechanism: Mechanism, policy: &Policy) -> Plan {
    plan(&view(vec![device("g0", mechanism)], vec![job(1, "never-seen")]), &Contention, policy)
}

#[test]
fn a_workload_that_nobody_has_seen_leaves_room_where_the_site_says_so() {
    for mechanism in [Mps, TimeSliced] {
        let plan = alone_on(mechanism, &host_policy());
        let member = &plan.pairings[0].members[0];
        assert_eq!((member.role, member.shards.count()), (Role::Host, SHARDS), "{mechanism}");
        assert_eq!(member.explanation.reason, Reason::FirstRun);
        assert!(
            member.explanation.text.contains("once its first minutes were measured"),
            "{:?}",
            member.explanation
        );
        // Nothing is known of what it needs: a limit could end it.
        assert_eq!(
            (member.sharing.cap(), member.sharing.memory_limit_bytes(), member.memory_bytes),
            (None, None, None)
        );
        assert_eq!(plan.pairings[0].mechanism(), mechanism);
    }
}

#[test]
fn without_a_word_of_the_site_a_first_run_has_the_whole_device() {
    let plan = alone_on(Mps, &Policy::default());
    let member = &plan.pairings[0].members[0];
    assert_eq!(
        (member.role, member.shards, member.explanation.reason),
        (Role::Alone, Shards::ALL, Reason::UnknownWorkload)
    );
}

#[test]
fn where_a_card_has_modes_it_is_measured_on_all_of_it() {
    let plan = alone_on(Ccs, &host_policy());
    assert_eq!(plan.pairings[0].members[0].role, Role::Alone);
}

#[test]
fn whose_user_owes_runs_or_has_it_measured_hosts_nobody() {
    let owing = WaitingJob { owes_runs: 1, ..job(1, "never-seen") };
    let measured = WaitingJob { solo_cap: CapStep::from_tenths(10), ..job(1, "never-seen") };
    for waiting in [owing, measured] {
        let plan = planned(&view(vec![device("g0", Mps)], vec![waiting]));
        assert_eq!(plan.pairings[0].members[0].shards, Shards::ALL);
    }
}

#[test]
fn once_it_is_measured_and_steady_a_known_job_joins_it() {
    let plan = planned(&beside(seen()));
    let member = &plan.pairings[0].members[0];
    assert_eq!((member.role, member.explanation.reason), (Role::Joiner, Reason::Joined));
    let text = &member.explanation.text;
    assert!(text.starts_with("joins the first run of a workload, measured alone for 6 minutes"), "{text}");
}

#[test]
fn before_that_nobody_joins_and_is_told_why() {
    let short = FirstRun { measured_seconds: 299.0, ..seen() };
    let few = FirstRun { sample_count: SAMPLES_MIN - 1, ..seen() };
    let noisy = FirstRun { activity_error_fraction: Some(0.11), ..seen() };
    let blind = FirstRun { activity_error_fraction: None, ..seen() };
    let drifting = FirstRun { drift_fraction: Some(0.16), ..seen() };
    let growing = FirstRun { has_memory_settled: false, ..seen() };
    for first in [short, few, noisy, blind, drifting, growing] {
        let plan = planned(&beside(first.clone()));
        assert!(plan.pairings.is_empty(), "{first:?}");
        let excluded = plan.left_waiting[0].candidates[0].excluded_by;
        assert_eq!(excluded, Some(Reason::FirstRunUnsettled), "{first:?}");
    }
}

#[test]
fn where_the_site_takes_its_word_back_nobody_joins_any_more() {
    let plan = plan(&beside(seen()), &Contention, &Policy::default());
    assert!(plan.pairings.is_empty());
}

#[test]
fn no_first_run_joins_another() {
    let plan = planned(&view(vec![device_with("g0", Mps, running(seen()))], vec![job(1, "new")]));
    assert!(plan.pairings.is_empty(), "what is known so far is of the one that runs alone");
}

#[test]
fn several_processes_are_joined_by_nobody() {
    let several = FirstRun { profile: WorkloadProfile { process_count_peak: 2, ..seen().profile }, ..seen() };
    assert_eq!(may_be_joined(&several, &host_policy()), Err(Reason::SeveralProcesses));
}

#[test]
fn whose_speed_nobody_can_read_is_joined_by_nobody_and_told_why() {
    let mute = |measured_seconds| FirstRun {
        profile: WorkloadProfile { throughput_per_second: None, ..seen().profile },
        measured_seconds,
        ..seen()
    };
    assert_eq!(may_be_joined(&mute(360.0), &host_policy()), Err(Reason::FirstRunUncounted));
    assert_eq!(
        may_be_joined(&mute(200.0), &host_policy()),
        Err(Reason::FirstRunUnsettled),
        "it may yet begin"
    );
}

#[test]
fn memory_has_a_margin_that_minutes_deserve() {
    assert_eq!(memory_need(&seen()), Ok(12 * GIB), "half as much again as was seen");
    let declared = |gib: u64| FirstRun { memory_bytes_declared: Some(gib * GIB), ..seen() };
    assert_eq!(memory_need(&declared(60)), Ok(60 * GIB));
    assert!(
        memory_need(&declared(1)).is_ok_and(|need| need > 8 * GIB),
        "what was seen counts, whatever is declared"
    );
    let blind = FirstRun { profile: WorkloadProfile { memory_bytes_peak: None, ..seen().profile }, ..seen() };
    assert_eq!(may_be_joined(&blind, &host_policy()), Err(Reason::MemoryUnknown));
    // 76 of 80 GiB may be given out: 70 and the guest's 8 are too much.
    assert!(planned(&beside(declared(70))).pairings.is_empty());
    assert_eq!(planned(&beside(declared(60))).pairings.len(), 1);
}

#[test]
fn minutes_are_doubted_more_than_runs() {
    let estimate = |first: FirstRun| planned(&beside(first)).pairings[0].members[0].estimate.clone().unwrap();
    let (sure, unsure) = (
        estimate(FirstRun { activity_error_fraction: Some(0.0), ..seen() }),
        estimate(FirstRun { activity_error_fraction: Some(0.1), ..seen() }),
    );
    assert!((sure.speed_fraction - unsure.speed_fraction).abs() < 1e-12);
    assert!(unsure.speed_fraction_low < sure.speed_fraction_low);
    assert!(unsure.speed_fraction_deviation > sure.speed_fraction_deviation);
}
