//! What every `Store` promises. A case gets an empty store.

use crate::accounts::{
    hours_and_runs_add_up_to_the_same,
    of_runs_that_were_said_to_run_out_of_memory_those_that_did_are_counted,
    what_runs_gained_is_told_by_the_size_of_their_instance, what_runs_used_and_gained_is_told_by_filter,
};
use crate::browse::who_holds_devices_and_what_came_of_it_is_told;
use crate::charges::what_was_used_beyond_profiles_is_the_mean_of_the_last_runs;
use crate::credit::credit_is_lost_once_a_start_and_atoned_by_runs_alone;
use crate::faults::{
    a_fault_of_a_device_is_told_once_and_when_it_is_over, a_job_is_requeued_once, a_run_is_judged_once,
    one_that_ran_out_of_memory_is_requeued_once_and_its_need_is_kept,
};
use crate::fixtures::{
    LESSON, account, at, commit, decision, ended_job, explanation, first_run, full_member, gres, job, launch,
    member, pair, plain, start, step,
};
use crate::learning::{
    a_pair_that_runs_again_and_again_leaves_others_theirs, bodies_of_old_models_are_not_kept,
    observations_come_in_the_order_of_changes, one_model_is_active_and_all_are_kept,
    one_of_two_candidates_is_promoted, starts_of_array_tasks_are_told_apart,
    tenants_tell_of_one_sharing_one_after_the_other, the_power_of_a_device_is_that_of_its_samples,
    what_a_sharing_does_not_tell_stays_unknown,
};
use crate::mig::{a_tenant_without_its_instance_cannot_be_read, each_tenant_has_its_own_instance};
use crate::names::{
    a_workload_has_one_name_and_that_of_its_profile_is_better,
    workloads_of_one_name_are_told_by_whose_they_are,
};
use crate::observed::{
    an_observed_start_is_kept_and_learnt_from_once, devices_that_were_never_used_are_counted,
};
use crate::operators::{
    a_drain_and_its_end_are_told, a_drain_is_kept_until_it_is_undone, a_guest_is_sent_back_once,
    an_eviction_waits_for_the_requeue_before_it, events_are_listed_by_filter,
};
use crate::reports::{
    a_report_is_stored_once, a_run_counts_once, a_run_is_profiled_when_its_end_is_known, a_run_is_told_once,
    a_run_knows_the_decision_it_ran_under, launches_and_events_read_as_recorded,
    old_history_goes_and_what_was_learnt_stays, old_samples_are_pruned,
};
use crate::scaling::{
    all_runs_are_read_page_after_page, completed_runs_are_listed_by_filter,
    runs_of_the_pool_are_listed_beside_observed_ones,
};
use crate::shadow::{
    a_shadow_decision_is_kept_and_closed_once, observed_starts_are_read_with_their_parts,
    shadow_decisions_are_added_up, speeds_that_were_foretold_of_two_are_told,
};
use crate::slices::what_runs_in_instances_taught_adds_up;
use crate::starts::a_start_is_as_slurm_told_of_it;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::report::{Report, ReportBody};
use pillion_core::share::Sharing;
use pillion_core::{DecisionId, Fraction, GresType, JobStart, NodeName, Revision, SlurmJobId, UserId};
use pillion_memory_store::MemoryStore;
use pillion_pairing::{Reason, Role};
use pillion_slurm::Ending;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::{
    Decision, DecisionFilter, EXPLANATIONS_MAX, Event, JobRecord, NewDecision, Store, StoreError,
};
use std::pin::Pin;
use std::sync::Arc;

pub(crate) type Case = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lists the cases, and runs each over a `MemoryStore`.
macro_rules! suite {
    ($($case:ident,)*) => {
        pub(crate) const CASES: &[(&str, Case)] = &[$((stringify!($case), |store| Box::pin($case(store))),)*];
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(std::sync::Arc::new(super::MemoryStore::new())).await;
            })*
        }
    };
}

suite! {
    a_start_is_as_slurm_told_of_it,
    what_was_used_beyond_profiles_is_the_mean_of_the_last_runs,
    an_observed_start_is_kept_and_learnt_from_once,
    a_shadow_decision_is_kept_and_closed_once,
    observed_starts_are_read_with_their_parts,
    credit_is_lost_once_a_start_and_atoned_by_runs_alone,
    a_job_reads_as_it_was_recorded,
    what_jobs_do_makes_no_plan_stale,
    a_plan_reads_as_it_was_committed,
    each_tenant_has_its_own_instance,
    what_runs_in_instances_taught_adds_up,
    a_stale_plan_is_refused_whole,
    a_job_is_active_in_one_decision_only,
    a_job_that_was_given_back_can_be_planned_again,
    one_of_two_plans_from_one_view_is_committed,
    a_member_moves_along_its_life_only,
    one_of_two_schedulers_makes_a_step,
    an_abandoned_decision_gives_back_what_was_not_released,
    a_decision_follows_its_members,
    what_was_prepared_and_measured_is_kept,
    what_was_never_stored_is_missing,
    an_explanation_is_kept_while_its_reason_lasts,
    explanations_are_bounded,
    a_report_is_stored_once,
    a_run_is_told_once,
    a_run_is_profiled_when_its_end_is_known,
    a_run_knows_the_decision_it_ran_under,
    a_run_counts_once,
    old_history_goes_and_what_was_learnt_stays,
    launches_and_events_read_as_recorded,
    old_samples_are_pruned,
    tenants_tell_of_one_sharing_one_after_the_other,
    what_a_sharing_does_not_tell_stays_unknown,
    observations_come_in_the_order_of_changes,
    a_pair_that_runs_again_and_again_leaves_others_theirs,
    starts_of_array_tasks_are_told_apart,
    one_model_is_active_and_all_are_kept,
    one_of_two_candidates_is_promoted,
    bodies_of_old_models_are_not_kept,
    the_power_of_a_device_is_that_of_its_samples,
    a_run_is_judged_once,
    a_job_is_requeued_once,
    one_that_ran_out_of_memory_is_requeued_once_and_its_need_is_kept,
    a_fault_of_a_device_is_told_once_and_when_it_is_over,
    a_workload_has_one_name_and_that_of_its_profile_is_better,
    workloads_of_one_name_are_told_by_whose_they_are,
    a_drain_is_kept_until_it_is_undone,
    an_eviction_waits_for_the_requeue_before_it,
    a_guest_is_sent_back_once,
    odd_texts_survive,
}

type PagesCase = fn(Arc<PgStore>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// What pages alone ask, which is asked of Postgres alone.
pub(crate) const PAGES: [(&str, PagesCase); 15] = [
    ("shadow decisions", |store| Box::pin(shadow_decisions_are_added_up(store))),
    ("foretold speeds", |store| Box::pin(speeds_that_were_foretold_of_two_are_told(store))),
    ("decisions", |store| Box::pin(decisions_are_listed_by_filter(store))),
    ("tenants and outcomes", |store| Box::pin(who_holds_devices_and_what_came_of_it_is_told(store))),
    ("accounts", |store| Box::pin(what_runs_used_and_gained_is_told_by_filter(store))),
    ("accounts by instance", |store| Box::pin(what_runs_gained_is_told_by_the_size_of_their_instance(store))),
    ("memory alarms", |store| {
        Box::pin(of_runs_that_were_said_to_run_out_of_memory_those_that_did_are_counted(store))
    }),
    ("hours", |store| Box::pin(hours_and_runs_add_up_to_the_same(store))),
    ("events", |store| Box::pin(events_are_listed_by_filter(store))),
    ("devices that were never used", |store| Box::pin(devices_that_were_never_used_are_counted(store))),
    ("drains", |store| Box::pin(a_drain_and_its_end_are_told(store))),
    ("scaling", |store| Box::pin(completed_runs_are_listed_by_filter(store))),
    ("scaling in the pool", |store| Box::pin(runs_of_the_pool_are_listed_beside_observed_ones(store))),
    ("scaling in pages", |store| Box::pin(all_runs_are_read_page_after_page(store))),
    ("instances", |store| Box::pin(a_tenant_without_its_instance_cannot_be_read(store))),
];

pub(crate) async fn revision(store: &dyn Store) -> u64 {
    store.revision().await.expect("revision").0
}

pub(crate) async fn the(store: &dyn Store, id: DecisionId) -> Decision {
    store.decision(id).await.expect("read").expect("it exists")
}

async fn states(store: &dyn Store, id: DecisionId) -> Vec<MemberState> {
    the(store, id).await.members.iter().map(|member| member.state).collect()
}

async fn a_job_reads_as_it_was_recorded(store: Arc<dyn Store>) {
    let full = JobRecord {
        id: SlurmJobId::array_task(33, 2),
        restart_count: 3,
        uid: UserId(u32::MAX - 1),
        slowdown_ratio_max: Some(1.15),
        memory_bytes_declared: Some(8 << 30),
        ending: Some(Ending::OutOfMemory),
        alone: true,
        node_count: Some(u32::MAX),
        exit: Some((139, 11)),
        ..ended_job(33)
    };
    let waiting = job(34);
    store.record_jobs(&[full.clone(), waiting.clone()], at(0)).await.expect("recorded");
    assert_eq!(store.job(full.id).await.expect("read"), Some(full));
    assert_eq!(store.job(waiting.id).await.expect("read"), Some(waiting));
    assert_eq!(store.job(plain(33)).await.expect("read"), None, "the array is not its task");
    let all = [
        Ending::Completed,
        Ending::Failed,
        Ending::Cancelled,
        Ending::Timeout,
        Ending::NodeFail,
        Ending::Preempted,
        Ending::Revoked,
    ];
    for ending in all {
        let ended = JobRecord { ending: Some(ending), ..ended_job(35) };
        store.record_jobs(std::slice::from_ref(&ended), at(0)).await.expect("recorded");
        assert_eq!(store.job(plain(35)).await.expect("read"), Some(ended));
    }
}

async fn what_jobs_do_makes_no_plan_stale(store: Arc<dyn Store>) {
    for job in [job(1), JobRecord { restart_count: 1, ..job(1) }, ended_job(1)] {
        store.record_jobs(&[job], at(0)).await.expect("recorded");
    }
    assert_eq!(store.job(plain(1)).await.expect("read"), Some(ended_job(1)));
    store.record_jobs(&[], at(0)).await.expect("nothing to record");
    store.record_jobs(&[job(2), ended_job(2)], at(0)).await.expect("one job twice: the last one counts");
    assert_eq!(store.job(plain(2)).await.expect("read"), Some(ended_job(2)));
    assert_eq!(revision(&*store).await, 0);
}

fn by_ccs(mut new: NewDecision) -> NewDecision {
    for member in &mut new.members {
        member.sharing = Sharing::Ccs { mode: 2 };
    }
    new
}

async fn a_plan_reads_as_it_was_committed(store: Arc<dyn Store>) {
    let ccs = by_ccs(pair(3, 4));
    let ids = commit(&*store, &[pair(1, 2), ccs.clone()]).await;
    assert!(ids[0] < ids[1], "numbered in the order of the plan");
    let trial = Some(Fraction::clamped(0.375));
    let first_run = Some(Box::new(first_run()));
    let joiner = NewDecision {
        joins: Some(ids[0]),
        trial,
        first_run: first_run.clone(),
        ..decision(vec![full_member(5)])
    };
    let third = commit(&*store, std::slice::from_ref(&joiner)).await[0];
    assert_eq!(revision(&*store).await, 2);

    let active = store.active_decisions().await.expect("read");
    assert_eq!(active.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[0], ids[1], third], "oldest first");
    let read = the(&*store, third).await;
    assert_eq!((read.group, read.state, read.created_at), (ids[0], DecisionState::Planned, at(1)));
    let before = the(&*store, ids[0]).await;
    assert_eq!((read.trial, before.trial), (trial, None));
    assert_eq!((&read.first_run, before.first_run), (&first_run, None));
    assert_eq!(active[2].first_run, first_run);
    assert_eq!((read.node, read.gres_types, read.gain), (joiner.node, joiner.gres_types, joiner.gain));
    assert_eq!(read.members[0].plan, full_member(5));
    assert_eq!(read.members[0].state, MemberState::Planned);
    let read = the(&*store, ids[1]).await;
    assert_eq!((read.group, read.sharing()), (ids[1], Sharing::Ccs { mode: 2 }));
    let plans: Vec<_> = read.members.into_iter().map(|member| member.plan).collect();
    assert_eq!(plans, ccs.members, "the host first");
    assert_eq!(store.decision(DecisionId(999)).await.expect("read"), None);
}

async fn a_stale_plan_is_refused_whole(store: Arc<dyn Store>) {
    let held = commit(&*store, &[pair(3, 4)]).await;
    let error = store.commit_plan(Revision(0), &[pair(1, 2)], at(1)).await.expect_err("stale");
    let StoreError::StaleView { parent, current } = error else { panic!("{error}") };
    assert_eq!((parent, current), (Revision(0), Revision(1)));
    let active = store.active_decisions().await.expect("read");
    assert_eq!(active.iter().map(|one| one.id).collect::<Vec<_>>(), held);
    store.commit_plan(Revision(0), &[], at(1)).await.expect_err("an empty plan can be stale too");
    assert_eq!(store.commit_plan(Revision(1), &[], at(1)).await.expect("empty"), []);
    assert_eq!(revision(&*store).await, 1, "an empty plan changes nothing");
}

async fn a_job_is_active_in_one_decision_only(store: Arc<dyn Store>) {
    let held = commit(&*store, &[pair(1, 2)]).await;
    let plans = [
        vec![pair(3, 4), pair(5, 2)],
        vec![pair(3, 4), pair(4, 5)],
        vec![decision(vec![member(6, Role::Host), member(6, Role::Joiner)])],
    ];
    for (plan, culprit) in plans.into_iter().zip([2, 4, 6]) {
        let error = store.commit_plan(Revision(1), &plan, at(1)).await.expect_err("P-1");
        assert!(matches!(error, StoreError::Conflict(id) if id == plain(culprit)), "{error}");
        assert!(!error.is_transient(), "the same plan would fail again");
    }
    let active = store.active_decisions().await.expect("read");
    assert_eq!(active.iter().map(|one| one.id).collect::<Vec<_>>(), held, "all or nothing");
    assert_eq!(revision(&*store).await, 1);
}

async fn a_job_that_was_given_back_can_be_planned_again(store: Arc<dyn Store>) {
    let first = commit(&*store, &[pair(1, 2)]).await[0];
    let undone = step(first, 2, MemberState::Planned, MemberState::Undone, 2);
    assert!(store.step_member(&undone).await.expect("step"));
    let second = commit(&*store, &[decision(vec![member(2, Role::Alone)])]).await[0];
    assert_ne!(first, second);
    let error = store.commit_plan(Revision(2), &[pair(1, 3)], at(1)).await.expect_err("P-1");
    assert!(matches!(error, StoreError::Conflict(id) if id == plain(1)), "{error}");
}

async fn one_of_two_plans_from_one_view_is_committed(store: Arc<dyn Store>) {
    let committing = |host| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit_plan(Revision(0), &[pair(host, host + 1)], at(1)).await })
    };
    let racers: Vec<_> = [1, 11, 21, 31].map(committing).into();
    let mut committed = 0;
    for racer in racers {
        match racer.await.expect("no panic") {
            Ok(ids) => committed += ids.len(),
            Err(StoreError::StaleView { current, .. }) => assert_eq!(current, Revision(1)),
            Err(error) => panic!("{error}: {}", pillion_core::report(&error)),
        }
    }
    assert_eq!(committed, 1);
    assert_eq!(store.active_decisions().await.expect("read").len(), 1);
}

async fn a_member_moves_along_its_life_only(store: Arc<dyn Store>) {
    use MemberState::{Ended, Planned, Released, Running};
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    let skip = store.step_member(&step(id, 1, Planned, Running, 2)).await.expect_err("a step left out");
    assert!(matches!(skip, StoreError::Illegal { id: named, .. } if named == id), "{skip}");
    assert!(!store.step_member(&step(id, 1, Released, Running, 2)).await.expect("not there yet"));
    for (from, to, seconds) in [(Planned, Released, 3), (Released, Running, 4), (Running, Ended, 5)] {
        assert!(store.step_member(&step(id, 1, from, to, seconds)).await.expect("step"));
    }
    assert_eq!(revision(&*store).await, 1, "no step makes a plan stale");
    let members = the(&*store, id).await.members;
    let times = (members[0].released_at, members[0].started_at, members[0].ended_at);
    assert_eq!(times, (Some(at(3)), Some(at(4)), Some(at(5))));
    assert_eq!(members[1].state, Planned, "the other did not move");
    let restarted = JobStart { restart_count: 1, ..start(2) };
    let other_start = pillion_store::MemberStep { start: restarted, ..step(id, 2, Planned, Released, 6) };
    assert!(!store.step_member(&other_start).await.expect("another start"), "a decision holds for one start");
    assert!(
        !store.step_member(&step(DecisionId(999), 1, Planned, Released, 6)).await.expect("no such decision")
    );
}

async fn one_of_two_schedulers_makes_a_step(store: Arc<dyn Store>) {
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    let releasing = |_| {
        let store = Arc::clone(&store);
        let step = step(id, 1, MemberState::Planned, MemberState::Released, 2);
        tokio::spawn(async move { store.step_member(&step).await })
    };
    let racers: Vec<_> = (0..4).map(releasing).collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.expect("no panic").expect("no error"));
    }
    assert_eq!(won, 1);
}

async fn an_abandoned_decision_gives_back_what_was_not_released(store: Arc<dyn Store>) {
    use MemberState::{Planned, Released, Undone};
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    assert!(store.abandon(id, "the agent is gone", at(9)).await.expect("step"));
    assert_eq!(states(&*store, id).await, [Undone, Undone]);
    let read = the(&*store, id).await;
    assert_eq!(
        (read.state, read.abandoned_reason.as_deref()),
        (DecisionState::Abandoned, Some("the agent is gone"))
    );
    assert_eq!(read.members[1].ended_at, Some(at(9)));
    assert!(!store.abandon(id, "again", at(10)).await.expect("it stood there"));
    assert_eq!(the(&*store, id).await.abandoned_reason.as_deref(), Some("the agent is gone"));
    assert_eq!(store.active_decisions().await.expect("read"), []);
    let released = commit(&*store, &[pair(2, 3)]).await[0];
    assert!(store.step_member(&step(released, 2, Planned, Released, 11)).await.expect("step"));
    assert!(!store.abandon(released, "too late", at(12)).await.expect("it is released"));
    assert_eq!(states(&*store, released).await, [Released, Planned]);
}

async fn a_decision_follows_its_members(store: Arc<dyn Store>) {
    use MemberState::{Ended, Planned, Released, Running, Undone};
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    let moved = async |job, from, to, expected: DecisionState| {
        assert!(store.step_member(&step(id, job, from, to, 2)).await.expect("step"));
        assert_eq!(the(&*store, id).await.state, expected, "{from} to {to}");
    };
    moved(1, Planned, Released, DecisionState::Released).await;
    moved(1, Released, Running, DecisionState::Released).await;
    moved(2, Planned, Undone, DecisionState::Released).await;
    moved(1, Running, Ended, DecisionState::Ended).await;
    assert_eq!(the(&*store, id).await.abandoned_reason, None);
    assert_eq!(store.active_decisions().await.expect("read"), []);
    let nobody = commit(&*store, &[pair(3, 4)]).await[0];
    for job in [3, 4] {
        assert!(store.step_member(&step(nobody, job, Planned, Undone, 2)).await.expect("step"));
    }
    let read = the(&*store, nobody).await;
    let reason = Some(pillion_store::NOBODY_RAN);
    assert_eq!((read.state, read.abandoned_reason.as_deref()), (DecisionState::Abandoned, reason));
}

async fn what_was_prepared_and_measured_is_kept(store: Arc<dyn Store>) {
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    store.member_prepared(id, start(1), at(3)).await.expect("prepared");
    store.member_prepared(id, start(1), at(4)).await.expect("prepared again by an agent that started again");
    store.record_outcome(id, start(2), Some(1.02), Some(250.5)).await.expect("measured");
    let members = the(&*store, id).await.members;
    assert_eq!((members[0].prepared_at, members[1].prepared_at), (Some(at(3)), None));
    assert_eq!((members[1].measured_speed_fraction, members[1].energy_joules), (Some(1.02), Some(250.5)));
    assert_eq!((members[0].measured_speed_fraction, members[0].energy_joules), (None, None));
    assert_eq!(revision(&*store).await, 1, "no plan depends on either");
}

async fn what_was_never_stored_is_missing(store: Arc<dyn Store>) {
    let id = commit(&*store, &[pair(1, 2)]).await[0];
    let unknown = DecisionId(999);
    let joiner = NewDecision { joins: Some(unknown), ..pair(3, 4) };
    let results = [
        store.commit_plan(Revision(1), &[pair(5, 6), joiner], at(2)).await.map(drop),
        store.member_prepared(unknown, start(1), at(2)).await,
        store.member_prepared(id, start(3), at(2)).await,
        store.record_outcome(unknown, start(1), None, None).await,
        store.profile_run(start(1), &gres(), &account(1), &LESSON, None).await,
    ];
    for (index, result) in results.into_iter().enumerate() {
        let error = result.expect_err("never stored");
        assert!(matches!(error, StoreError::Missing(_)) && !error.is_transient(), "{index}: {error}");
    }
    assert_eq!(store.active_decisions().await.expect("read").len(), 1, "nothing of the refused plan");
}

async fn an_explanation_is_kept_while_its_reason_lasts(store: Arc<dyn Store>) {
    let kept = async || -> Vec<(u64, String)> {
        let all = store.explanations(plain(1)).await.expect("read");
        all.into_iter().map(|(revision, _, one)| (revision.0, one.text.to_string())).collect()
    };
    let record = async |revision: u64, reason: Reason, text: &str| {
        let explanations = [explanation(1, reason, text), explanation(2, Reason::Held, "other job")];
        let seconds = u32::try_from(revision).expect("small");
        store.record_explanations(Revision(revision), &explanations, at(seconds)).await.expect("recorded");
    };
    record(0, Reason::NoDeviceFree, "a").await;
    record(0, Reason::NoDeviceFree, "b").await;
    record(0, Reason::BehindOthers, "c").await;
    assert_eq!(kept().await, [(0, "b".to_owned()), (0, "c".to_owned())]);
    let id = commit(&*store, &[pair(1, 3)]).await[0];
    store.abandon(id, "", at(1)).await.expect("abandoned");
    record(2, Reason::BehindOthers, "d").await;
    record(3, Reason::BehindOthers, "e").await;
    record(4, Reason::BehindOthers, "e").await;
    let texts = ["b", "c", "shares", "e"].map(str::to_owned);
    assert_eq!(
        kept().await,
        [0, 0, 0, 3].into_iter().zip(texts).collect::<Vec<_>>(),
        "a decision begins a new chapter"
    );
    let last = store.explanations(plain(1)).await.expect("read").pop().expect("some");
    let same_since = (at(3), explanation(1, Reason::BehindOthers, "e"));
    assert_eq!((last.1, last.2), same_since, "the same again changes nothing");
    assert_eq!(store.explanations(plain(2)).await.expect("read").len(), 1);
    assert_eq!(revision(&*store).await, 1, "no plan depends on explanations");
}

async fn explanations_are_bounded(store: Arc<dyn Store>) {
    let count = u32::try_from(EXPLANATIONS_MAX).expect("small") + 7;
    for number in 0..count {
        let reason = if number % 2 == 0 { Reason::NoDeviceFree } else { Reason::BehindOthers };
        let one = explanation(1, reason, &number.to_string());
        store.record_explanations(Revision(0), &[one], at(number)).await.expect("recorded");
    }
    let kept = store.explanations(plain(1)).await.expect("read");
    assert_eq!(kept.len(), EXPLANATIONS_MAX);
    assert_eq!((&*kept[0].2.text, kept[0].1), ("7", at(7)), "the oldest went");
}

async fn decisions_are_listed_by_filter(store: Arc<PgStore>) {
    let bobs = JobRecord { user: "bob".to_owned(), uid: UserId(1001), ..job(3) };
    store.record_jobs(&[job(1), job(2), bobs, job(4)], at(0)).await.expect("recorded");
    let mut ids = Vec::new();
    let alone = |id| decision(vec![member(id, Role::Alone)]);
    for (new, seconds) in [(pair(1, 2), 10), (alone(3), 20), (alone(4), 30)] {
        let parent = store.revision().await.expect("revision");
        ids.extend(store.commit_plan(parent, &[new], at(seconds)).await.expect("commit"));
    }
    let joiner = NewDecision { joins: Some(ids[1]), ..decision(vec![member(5, Role::Joiner)]) };
    ids.extend(commit(&*store, &[joiner]).await);
    store.abandon(ids[0], "", at(40)).await.expect("abandoned");

    let list = async |filter: DecisionFilter| -> Vec<usize> {
        let found = store.decisions(&filter).await.expect("listed");
        found.iter().map(|one| ids.iter().position(|id| *id == one.id).expect("one of ours")).collect()
    };
    let all = DecisionFilter { include_single: true, ..DecisionFilter::default() };
    assert_eq!(list(all.clone()).await, [3, 2, 1, 0], "newest first");
    assert_eq!(list(DecisionFilter::default()).await, [3, 1, 0], "a host that was joined is no single");
    assert_eq!(list(DecisionFilter { active_only: true, ..all.clone() }).await, [3, 2, 1]);
    assert_eq!(list(DecisionFilter { user: Some("bob".to_owned()), ..all.clone() }).await, [1]);
    assert_eq!(list(DecisionFilter { job_id: Some(plain(2)), ..all.clone() }).await, [0]);
    assert_eq!(list(DecisionFilter { since: Some(at(20)), ..all.clone() }).await, [2, 1]);
    assert_eq!(list(DecisionFilter { since: Some(at(10)), until: Some(at(20)), ..all.clone() }).await, [0]);
    assert_eq!(list(DecisionFilter { limit: 2, ..all.clone() }).await, [3, 2]);
    assert_eq!(list(DecisionFilter { user: Some("nobody".to_owned()), ..all }).await, [0; 0]);
}

async fn odd_texts_survive(store: Arc<dyn Store>) {
    let odd = format!("a\nb\t'\"\\ {{}} \u{1f3cd} {}", "x".repeat(60_000));
    let odd_job = JobRecord { gres: odd.clone(), account: "'; drop table job; --".to_owned(), ..job(1) };
    store.record_jobs(std::slice::from_ref(&odd_job), at(0)).await.expect("recorded");
    assert_eq!(store.job(plain(1)).await.expect("read"), Some(odd_job));
    let event =
        Event { at: at(1), kind: "undone".into(), job_id: Some(plain(1)), node: None, detail: odd.clone() };
    store.record_event(&event).await.expect("recorded");
    assert_eq!(store.events(plain(1)).await.expect("read"), [event]);
    let on_an_odd_node = Report { sequence: 1, body: ReportBody::Launch(launch(1)) };
    store.ingest(&NodeName::new(&odd[..200]), &odd[..100], &on_an_odd_node).await.expect("stored");
    let one = explanation(1, Reason::Held, &odd);
    store.record_explanations(Revision(0), std::slice::from_ref(&one), at(1)).await.expect("recorded");
    assert_eq!(store.explanations(plain(1)).await.expect("read")[0].2, one);
    let ids = commit(&*store, &[NewDecision { gres_types: GresType::new("g'1").into(), ..pair(1, 2) }]).await;
    store.abandon(ids[0], &odd, at(2)).await.expect("abandoned");
    assert_eq!(the(&*store, ids[0]).await.abandoned_reason, Some(odd));
}
