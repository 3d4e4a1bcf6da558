//! Two tenants of n1's g1, jobs 7 and 8, with an agent that is played.

use super::*;
use crate::agents::{Agents, StreamId};
use crate::context::Settings;
use crate::failure::endings::{State, ended_since};
use crate::failure::requeue::Requeuer;
use crate::scan::Scan;
use crate::testing::{NOW, at, decision, hello, job, leased, member, new_decision, node, start};
use pillion_core::decision::MemberState;
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{ManualClock, SlurmJobId, UserId};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_slurm::{Job, JobState, NodeAvailability};
use pillion_store::{MemberStep, RequeueCause};
use tokio::sync::mpsc::Receiver;

fn other() -> JobStart {
    JobStart { job_id: SlurmJobId::plain(8), restart_count: 0 }
}

fn beside(state: MemberState, mechanism: Mechanism) -> Vec<Decision> {
    let (mut own, mut next) = (member(MemberState::Running), member(state));
    next.plan.start = other();
    for tenant in [&mut own, &mut next] {
        tenant.plan.sharing = Sharing::by(mechanism, None, Some(2));
    }
    let mut shared = decision(&own);
    shared.members.push(next);
    vec![shared]
}

fn with(jobs: Vec<Job>) -> Scan {
    let jobs = jobs.into_iter().map(Into::into).collect();
    Scan::new(at(NOW), jobs, vec![node(NodeAvailability::Up)], &["shared".to_owned()], 0)
}

fn ending(restart_count: u32) -> Job {
    Job { ended_at: Some(at(NOW - 3)), restart_count, ..leased(job(JobState::Completing), NOW - 100) }
}

#[test]
fn only_who_shares_by_a_daemon_is_a_tenant() {
    let starts = |decisions: &[Decision]| tenants(decisions).into_keys().collect::<Vec<_>>();
    for state in [MemberState::Running, MemberState::Released] {
        assert_eq!(starts(&beside(state, Mechanism::Mps)), [start(), other()]);
    }
    assert_eq!(starts(&beside(MemberState::Running, Mechanism::TimeSliced)), []);
    assert_eq!(starts(&beside(MemberState::Running, Mechanism::Ccs)), []);
    for gone in [MemberState::Planned, MemberState::Ended, MemberState::Undone] {
        assert_eq!(starts(&beside(gone, Mechanism::Mps)), [], "nobody is harmed");
    }
}

#[test]
fn who_is_ended_is_told_of_once_and_never_another_job() {
    let shared = beside(MemberState::Running, Mechanism::Mps);
    let due = |state: &mut State, job: Job| -> Vec<JobStart> {
        state.look(&shared, &with(vec![job])).into_iter().map(|(start, ..)| start).collect()
    };
    let mut state = State::default();
    assert_eq!(due(&mut state, Job { state: JobState::Running, ..ending(0) }), []);
    assert_eq!(due(&mut state, ending(0)), [start()]);
    assert_eq!(due(&mut state, ending(1)), [start()], "it is requeued, and still ends");
    assert_eq!(due(&mut state, ending(2)), []);
    assert_eq!(due(&mut state, Job { uid: UserId(4711), ..ending(0) }), [], "its number is another's");
    state.told.insert(start(), (NodeName::new("n1"), RESULTS_MAX));
    assert_eq!(due(&mut state, ending(0)), []);
}

#[test]
fn who_is_no_member_any_more_is_told_of_while_slurm_ends_him() {
    let mut state = State::default();
    state.look(&beside(MemberState::Running, Mechanism::Mps), &with(vec![]));
    // Requeued by its user: the decision ends before the processes do.
    let due = state.look(&[], &with(vec![ending(1)]));
    assert_eq!(due, [(start(), NodeName::new("n1"), at(NOW - 3))]);
    assert_eq!(state.look(&[], &with(vec![])), []);
    assert!(state.tenants.is_empty());
}

#[test]
fn the_last_clients_end_two_seconds_before_sigkill() {
    let kill_wait = Duration::from_secs(30);
    let seconds = |since: u64| (delay_seconds(at(since), at(NOW), kill_wait) * 10.0).round() / 10.0;
    assert!((seconds(NOW) - 28.0).abs() < 1e-9 && (seconds(NOW - 3) - 25.0).abs() < 1e-9);
    assert!(seconds(NOW - 29).abs() < 1e-9 && seconds(NOW - 4000).abs() < 1e-9, "now");
    assert!((seconds(NOW + 4000) - 30.0).abs() < 1e-9, "a clock that was set back");
    let scan = with(vec![Job { ended_at: Some(at(NOW + 90)), ..ending(0) }]);
    let tenant = Tenant { node: NodeName::new("n1"), uid: UserId(1000) };
    assert_eq!(ended_since(start(), &tenant, &scan), Some(at(NOW)), "its limit's end is no end");
}

struct World {
    context: Arc<Context>,
    clock: Arc<ManualClock>,
    stream: StreamId,
    inbox: Receiver<ToAgent>,
}

impl World {
    /// The store's decision is the board's, and both tenants run.
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let slurm = FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW));
        let (store, agents) = (Arc::new(MemoryStore::new()), Arc::new(Agents::default()));
        let context = Context::new(clock.clone(), Arc::new(slurm), store, agents, Settings::default());
        let context = Arc::new(context);
        let plans = beside(MemberState::Running, Mechanism::Mps).remove(0).members;
        let plan = new_decision(plans.into_iter().map(|member| member.plan).collect());
        let revision = context.store.revision().await.unwrap();
        let id = context.store.commit_plan(revision, &[plan], at(NOW)).await.unwrap()[0];
        for start in [start(), other()] {
            use MemberState::{Planned, Released, Running};
            for (from, to) in [(Planned, Released), (Released, Running)] {
                let step = MemberStep { decision_id: id, start, from, to, at: at(NOW) };
                assert!(context.store.step_member(&step).await.unwrap());
            }
        }
        let (active, version) =
            (context.store.active_decisions().await.unwrap(), context.slurm.version().await);
        context.board_mut().active = Arc::new(active);
        context.board_mut().slurm_version = version.ok();
        let (stream, inbox) = context.agents.connect(&hello("n1"), at(NOW));
        Self { context, clock, stream, inbox }
    }

    fn show(&self, jobs: Vec<Job>) {
        self.context.board_mut().scan = Some(Arc::new(with(jobs)));
    }

    fn orders(&mut self) -> Vec<EndOrder> {
        std::iter::from_fn(|| self.inbox.try_recv().ok())
            .map(|message| match message {
                ToAgent::End { start: of, order } if of == start() => order,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    async fn hears(&self, node: &str, outcome: EndOutcome) {
        let result = EndResult { start: start(), outcome };
        self.context.endings.result(&self.context, &NodeName::new(node), &result).await.unwrap();
    }

    async fn details(&self) -> Vec<String> {
        let events = self.context.store.events(start().job_id).await.unwrap();
        events.into_iter().filter(|it| it.kind == EventKind::ClientsEnded).map(|it| it.detail).collect()
    }

    fn ready(&self, cause: RequeueCause) -> Ready {
        let active = Arc::clone(&self.context.board().active);
        let is_ordered =
            crate::failure::requeue::is_ordered(&Requeue { cause, ..requeue() }, &with(vec![]), &active);
        self.context.endings.ready(&self.context, &Requeue { cause, ..requeue() }, &active, is_ordered)
    }

    fn is_ready(&self) -> bool {
        self.ready(RequeueCause::Evicted) == Ready::Now
    }
}

fn requeue() -> Requeue {
    let (node, reason) = (NodeName::new("n1"), "evicted".to_owned());
    Requeue { cause: RequeueCause::Evicted, start: start(), node, decided_at: at(NOW - 10), reason }
}

const ENDED: EndOutcome = EndOutcome::Ended { client_count: 2 };

#[tokio::test]
async fn a_cancel_is_told_and_answered() {
    let mut world = World::new().await;
    let reconciler = Ending::new(Arc::clone(&world.context));
    world.show(vec![Job { state: JobState::Running, ..ending(0) }]);
    reconciler.tick().await.unwrap();
    world.hears("n1", ENDED).await;
    assert!(world.orders().is_empty() && world.details().await.is_empty(), "nobody was to be ended");
    world.show(vec![ending(0)]);
    reconciler.tick().await.unwrap();
    reconciler.tick().await.unwrap();
    assert_eq!(world.orders(), [EndOrder::End { delay_seconds: 25.0 }]);
    world.hears("evil", ENDED).await;
    assert!(world.details().await.is_empty(), "it runs on n1");
    for _ in 0..5 {
        world.hears("n1", ENDED).await;
    }
    let told = "2 processes of it left the GPU through the MPS daemon, ahead of Slurm's signal";
    assert_eq!(world.details().await, [told, told], "no more than there are rounds");
}

#[tokio::test]
async fn who_is_not_there_is_told_when_it_is() {
    let mut world = World::new().await;
    world.context.agents.disconnect(&world.stream);
    world.show(vec![ending(0)]);
    let reconciler = Ending::new(Arc::clone(&world.context));
    reconciler.tick().await.unwrap();
    (world.stream, world.inbox) = world.context.agents.connect(&hello("n1"), at(NOW));
    reconciler.tick().await.unwrap();
    assert_eq!(world.orders().len(), 1);
    world.context.endings.agent_came(&NodeName::new("n2"));
    reconciler.tick().await.unwrap();
    assert!(world.orders().is_empty());
    world.context.endings.agent_came(&NodeName::new("n1"));
    reconciler.tick().await.unwrap();
    assert_eq!(world.orders().len(), 1, "it has forgotten");
}

#[tokio::test]
async fn slurm_is_asked_when_the_tenant_stands_still_or_cannot() {
    for answer in [EndOutcome::Held, not_held(false)] {
        let mut world = World::new().await;
        assert!(!world.is_ready() && !world.is_ready());
        assert_eq!(world.orders(), [EndOrder::Hold], "asked once");
        world.hears("evil", answer.clone()).await;
        assert!(!world.is_ready());
        world.hears("n1", answer).await;
        assert!(world.is_ready());
        world.context.endings.answered(&world.context, start(), Answer::Taken);
        assert_eq!(world.orders(), [EndOrder::End { delay_seconds: 28.0 }]);
        world.hears("n1", ENDED).await;
        assert_eq!(world.details().await.len(), 1);
    }
}

fn not_held(outlasts_sigterm: bool) -> EndOutcome {
    EndOutcome::NotHeld { why: "no group".into(), outlasts_sigterm, is_of_it_alone: false }
}

/// One that was in a driver's call for too long.
fn not_in_time() -> EndOutcome {
    EndOutcome::NotHeld { why: "not in time".into(), outlasts_sigterm: false, is_of_it_alone: true }
}

fn never(why: &str, is_everybodys: bool) -> Ready {
    Ready::Never(Harm { why: why.to_owned(), is_everybodys })
}

/// Seen on real Slurm: SIGTERM killed a guest at work that no control group held, and his host died of it.
#[tokio::test]
async fn a_guest_that_goes_back_never_takes_along_those_for_whom_he_goes() {
    use RequeueCause::SentBack;
    for (answer, ready) in [
        (EndOutcome::Held, Ready::Now),
        (not_held(true), Ready::Now),
        (not_held(false), never("no group", true)),
        (not_in_time(), never("not in time", false)),
    ] {
        let world = World::new().await;
        assert_eq!(world.ready(SentBack), Ready::NotYet);
        world.clock.set(at(NOW + 60));
        assert_eq!(world.ready(SentBack), Ready::NotYet, "nobody knows what would follow");
        world.hears("n1", answer).await;
        assert_eq!(world.ready(SentBack), ready);
    }
    let away = World::new().await;
    away.context.agents.disconnect(&away.stream);
    assert_eq!(away.ready(SentBack), Ready::NotYet);
    let lost = World::new().await;
    assert_eq!(lost.ready(SentBack), Ready::NotYet);
    lost.hears("n1", EndOutcome::Held).await;
    lost.context.endings.answered(&lost.context, start(), Answer::Lost);
    assert_eq!(lost.ready(SentBack), Ready::NotYet, "it goes on, and is not held again");
}

#[tokio::test]
async fn an_agent_that_comes_anew_is_asked_anew() {
    let mut world = World::new().await;
    assert_eq!(world.ready(RequeueCause::SentBack), Ready::NotYet);
    assert_eq!(world.orders(), [EndOrder::Hold]);
    world.context.endings.agent_came(&NodeName::new("n1"));
    assert_eq!(world.ready(RequeueCause::SentBack), Ready::NotYet);
    assert_eq!(world.orders(), [EndOrder::Hold]);
}

/// A guest goes on by itself after ten seconds, and SIGTERM would find his clients at work.
#[tokio::test]
async fn a_hold_that_may_be_over_is_asked_for_again() {
    for (cause, at_last) in [(RequeueCause::Evicted, Ready::Now), (RequeueCause::SentBack, Ready::NotYet)] {
        for later in [at(NOW + 11), at(NOW - 60)] {
            let mut world = World::new().await;
            assert_eq!(world.ready(cause), Ready::NotYet);
            world.hears("n1", EndOutcome::Held).await;
            world.clock.set(later);
            assert_eq!(world.ready(cause), Ready::NotYet);
            assert_eq!(world.orders(), [EndOrder::Hold, EndOrder::Hold]);
            world.hears("n1", EndOutcome::Held).await;
            assert_eq!(world.ready(cause), Ready::Now);
        }
        let mut world = World::new().await;
        for round in 1..=u64::from(HOLDS_MAX) {
            assert_eq!(world.ready(cause), Ready::NotYet);
            world.hears("n1", EndOutcome::Held).await;
            world.clock.set(at(NOW + 11 * round));
        }
        assert_eq!(world.ready(cause), at_last, "nobody stands still again and again");
        assert_eq!(world.orders(), [EndOrder::Hold; HOLDS_MAX as usize]);
        // Its agent was started anew meanwhile, and has let everybody go.
        let mut world = World::new().await;
        assert_eq!(world.ready(cause), Ready::NotYet);
        world.hears("n1", EndOutcome::Held).await;
        world.context.endings.agent_came(&NodeName::new("n2"));
        assert_eq!(world.ready(cause), Ready::Now);
        world.context.endings.agent_came(&NodeName::new("n1"));
        assert_eq!(world.ready(cause), Ready::NotYet);
        assert_eq!(world.orders(), [EndOrder::Hold, EndOrder::Hold]);
    }
}

/// It stays, is told so, and nothing more is begun that may end so.
#[tokio::test]
async fn a_guest_that_cannot_leave_without_harm_stays_and_is_the_last_that_was_tried() {
    spared(not_held(false), true).await;
}

/// It was in a driver's call: of others that says nothing, and a site does not go without trials for it.
#[tokio::test]
async fn a_guest_that_did_not_stand_still_in_time_stays_and_others_are_tried() {
    spared(not_in_time(), false).await;
}

async fn spared(answer: EndOutcome, is_last: bool) {
    let mut world = World::new().await;
    let sent_back = Requeue { cause: RequeueCause::SentBack, ..requeue() };
    let event =
        Event { at: at(NOW), kind: EventKind::SentBack, job_id: None, node: None, detail: String::new() };
    world.context.store.intend_requeue(&sent_back, &event).await.unwrap();
    let requeuer = Requeuer::new(Arc::clone(&world.context));
    world.show(vec![Job { state: JobState::Running, ..ending(0) }]);
    requeuer.tick().await.unwrap();
    world.hears("n1", answer).await;
    requeuer.tick().await.unwrap();
    assert!(world.context.store.open_requeues().await.unwrap().is_empty());
    let events = world.context.store.events(start().job_id).await.unwrap();
    let told = events.iter().find(|event| event.kind == EventKind::RequeueRefused).unwrap();
    assert!(told.detail.contains("could take its neighbours along"), "{}", told.detail);
    assert_eq!(world.orders(), [EndOrder::Hold, EndOrder::LetGo]);
    assert_eq!(world.context.board().is_parting_unsafe, is_last);
}

#[tokio::test]
async fn whom_slurm_refuses_is_let_go_and_may_be_held_again_but_not_where_its_answer_was_lost() {
    let mut world = World::new().await;
    for (answer, is_held_again) in [(Answer::Refused, true), (Answer::Lost, false)] {
        assert!(!world.is_ready());
        world.hears("n1", EndOutcome::Held).await;
        world.context.endings.answered(&world.context, start(), answer);
        assert_eq!(world.orders(), [EndOrder::Hold, EndOrder::LetGo]);
        if !is_held_again {
            assert!(world.is_ready(), "it is not stopped again and again");
        }
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_or_is_away_keeps_nobody_waiting() {
    let world = World::new().await;
    assert!(!world.is_ready());
    world.clock.set(at(NOW + 2));
    assert!(!world.is_ready());
    world.clock.set(at(NOW + 3));
    assert!(world.is_ready());
    world.clock.set(at(NOW - 60));
    assert!(world.is_ready(), "its clock was set back");
    let away = World::new().await;
    away.context.agents.disconnect(&away.stream);
    assert!(away.is_ready());
    let alone = World::new().await;
    alone.context.board_mut().active = Arc::new(vec![decision(&member(MemberState::Running))]);
    assert!(alone.is_ready(), "it has its GPU to itself");
}

/// Its user cancels it while it stands still: nobody asks for a requeue any more, and it is ended like any other.
#[tokio::test]
async fn who_is_cancelled_while_it_stands_still_does_not_stand_on() {
    let mut world = World::new().await;
    let event =
        Event { at: at(NOW), kind: EventKind::Evicted, job_id: None, node: None, detail: String::new() };
    world.context.store.intend_requeue(&requeue(), &event).await.unwrap();
    let requeuer = Requeuer::new(Arc::clone(&world.context));
    world.show(vec![Job { state: JobState::Running, ..ending(0) }]);
    requeuer.tick().await.unwrap();
    assert_eq!(world.orders(), [EndOrder::Hold]);
    world.hears("n1", EndOutcome::Held).await;
    world.show(vec![ending(0)]);
    requeuer.tick().await.unwrap();
    Ending::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert_eq!(world.orders(), [EndOrder::End { delay_seconds: 25.0 }]);
    // And one that ends by itself is let go at once.
    let mut world = World::new().await;
    world.context.store.intend_requeue(&requeue(), &event).await.unwrap();
    let requeuer = Requeuer::new(Arc::clone(&world.context));
    world.show(vec![Job { state: JobState::Running, ..ending(0) }]);
    requeuer.tick().await.unwrap();
    world.show(vec![Job { state: JobState::Ended(pillion_slurm::Ending::Completed), ..ending(0) }]);
    requeuer.tick().await.unwrap();
    assert_eq!(world.orders(), [EndOrder::Hold, EndOrder::LetGo]);
}

#[tokio::test]
async fn a_victim_that_is_over_is_not_held() {
    let mut world = World::new().await;
    let victim = Requeue { cause: RequeueCause::Victim, ..requeue() };
    let failed =
        Job { ended_at: Some(at(NOW)), state: JobState::Ended(pillion_slurm::Ending::Failed), ..ending(0) };
    world.show(vec![failed]);
    let event =
        Event { at: at(NOW), kind: EventKind::Evicted, job_id: None, node: None, detail: String::new() };
    world.context.store.intend_requeue(&victim, &event).await.unwrap();
    Requeuer::new(Arc::clone(&world.context)).tick().await.unwrap();
    assert!(world.orders().is_empty());
}
