//! Who may come to an interactive job, and who goes.

use super::*;
use crate::agents::Agents;
use crate::context::Settings;
use crate::testing::{NOW, at, decision, device, hello, member};
use pillion_core::device::{Reading, TenantUse};
use pillion_core::event::EventKind;
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples, Launch, Report, ReportBody};
use pillion_core::workload::of_session;
use pillion_core::{DecisionId, ManualClock, SlurmJobId, WorkloadKey};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::Role;
use pillion_store::{Durations, Event, NewMember, RequeueOutcome};
use std::time::Duration;

const GIB: u64 = 1 << 30;

fn start(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}

fn running(id: u32, role: Role, workload: WorkloadKey) -> Member {
    let own = member(MemberState::Running);
    let memory_bytes = Some(8 * GIB);
    let plan = NewMember { start: start(id), workload, role, memory_bytes, ..own.plan.clone() };
    Member { plan, started_at: Some(at(NOW)), ..own }
}

struct World {
    context: Arc<Context>,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    agents: Arc<Agents>,
    sessions: Sessions,
    reports: std::cell::Cell<u64>,
    _orders: tokio::sync::mpsc::Receiver<pillion_core::report::ToAgent>,
}

impl World {
    /// Job 7 runs on g1 of n1, interactive; five seconds are asked for.
    fn new() -> Self {
        let agents = Arc::new(Agents::default());
        let (_, orders) = agents.connect(&AgentHello { devices: vec![device(1)], ..hello("n1") }, at(NOW));
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let context = Arc::new(Context::new(
            Arc::clone(&clock) as _,
            Arc::new(FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW))),
            Arc::clone(&store) as _,
            Arc::clone(&agents),
            Settings { session_idle: Duration::from_secs(5), ..Settings::default() },
        ));
        let world = Self {
            sessions: Sessions::new(Arc::clone(&context)),
            context,
            store,
            clock,
            agents,
            reports: std::cell::Cell::new(0),
            _orders: orders,
        };
        world.set_guests(&[]);
        world
    }

    /// These run beside it.
    fn set_guests(&self, guests: &[u32]) {
        let host = decision(&running(7, Role::Host, of_session("alice", "5e")));
        let guests = guests.iter().map(|id| running(*id, Role::Joiner, WorkloadKey::new("alice/small")));
        let guests = guests.map(|guest| Decision { id: DecisionId(2), ..decision(&guest) });
        self.context.board_mut().active = Arc::new(std::iter::once(host).chain(guests).collect());
    }

    /// The agent says that a task of it began, under this decision.
    async fn launch(&self, decision_id: Option<DecisionId>) {
        self.reports.set(self.reports.get() + 1);
        let launch = Launch {
            at: at(NOW),
            start: start(7),
            step_id: 0,
            decision_id,
            gres_types: vec![GresType::new("g1")],
            profile_name: None,
        };
        let report = Report { sequence: self.reports.get(), body: ReportBody::Launch(launch) };
        self.context.store.ingest(&NodeName::new("n1"), "j", &report).await.unwrap();
    }

    /// So many seconds in which the device was so busy. Whether guests may come to it then.
    async fn look(&self, from: u64, seconds: u64, active: f64) -> bool {
        for second in from..from + seconds {
            let own = TenantUse {
                job_id: SlurmJobId::plain(7),
                restart_count: 0,
                memory_bytes: Some(GIB),
                process_count: 1,
                progress: None,
            };
            let sample = DeviceSample {
                gres_type: GresType::new("g1"),
                reading: Reading::from([(Metric::SmActiveFraction, active)]),
                tenants: vec![own],
            };
            let samples = DeviceSamples { recorded_at: at(NOW + second), samples: vec![sample] };
            self.agents.set_readings(&NodeName::new("n1"), &samples);
            self.clock.set(at(NOW + second));
            self.sessions.tick().await.unwrap();
        }
        self.context.board().idle_sessions.contains(&start(7))
    }

    async fn is_sent_away(&self, guest: u32) -> bool {
        let events = self.context.store.events(SlurmJobId::plain(guest)).await.unwrap();
        let open = self.context.store.open_requeues().await.unwrap();
        let is_told = events
            .iter()
            .any(|event| event.kind == EventKind::MadeRoom && event.detail.contains("uses it now"));
        let is_going = open.iter().any(|requeue| requeue.start == start(guest));
        assert_eq!(is_told, is_going);
        is_going
    }

    /// What the small workload uses alone.
    fn know(&self, active: f64) {
        let mut profile = WorkloadProfile::empty(WorkloadKey::new("alice/small"), "h100");
        profile.run_count = 1;
        profile.metrics.set(Metric::SmActiveFraction, active);
        self.store.know(&StoredProfile {
            profile,
            durations: Durations::default(),
            run_counts_at_cap: [0; 9],
            updated_at: at(NOW),
        });
    }
}

#[tokio::test]
async fn guests_may_come_once_it_was_idle_for_long_enough_as_a_client() {
    let world = World::new();
    assert!(!world.look(1, 8, 0.0).await, "no task of it has begun, by any agent's word");
    world.launch(Some(DecisionId(1))).await;
    assert!(world.look(9, 1, 0.0).await);
    assert!(!world.look(10, 1, 0.4).await, "it works");
    assert!(!world.look(11, 5, 0.0).await);
    assert!(world.look(16, 1, 0.0).await);
    world.context.board_mut().active = Arc::default();
    assert!(!world.look(17, 1, 0.0).await, "it is over");
}

#[tokio::test]
async fn a_task_without_the_share_is_joined_by_nobody() {
    let world = World::new();
    world.launch(Some(DecisionId(1))).await;
    assert!(world.look(1, 6, 0.0).await);
    world.launch(None).await;
    assert!(!world.look(7, 1, 0.0).await);
    world.set_guests(&[8]);
    world.know(0.3);
    world.look(8, 1, 0.3).await;
    assert!(world.is_sent_away(8).await, "somebody beside it would be in its way, whatever it does");
}

#[tokio::test]
async fn who_begins_to_work_has_his_guests_sent_away() {
    let world = World::new();
    world.launch(Some(DecisionId(1))).await;
    world.know(0.3);
    world.look(1, 6, 0.0).await;
    world.set_guests(&[8]);
    assert!(world.look(7, 10, 0.35).await && !world.is_sent_away(8).await, "as its guest does alone");
    world.look(17, 1, 0.9).await;
    assert!(!world.is_sent_away(8).await, "for a moment");
    assert!(!world.look(18, 1, 0.9).await);
    assert!(world.is_sent_away(8).await);
}

/// As it was: who could not be ended when he was asked stayed beside whoever worked for as long as both ran.
#[tokio::test]
async fn a_guest_that_stayed_is_asked_again() {
    let world = World::new();
    world.launch(Some(DecisionId(1))).await;
    world.know(0.3);
    world.look(1, 6, 0.0).await;
    world.set_guests(&[8]);
    world.look(7, 2, 0.9).await;
    assert!(world.is_sent_away(8).await);
    let event = Event {
        at: at(NOW + 9),
        kind: EventKind::RequeueRefused,
        job_id: Some(SlurmJobId::plain(8)),
        node: None,
        detail: "it is not started again: Slurm did not answer in time".to_owned(),
    };
    world.context.store.settle_requeue(start(8), RequeueOutcome::Refused, &event).await.unwrap();
    let is_asked = async || !world.context.store.open_requeues().await.unwrap().is_empty();
    world.look(9, 58, 0.9).await;
    assert!(!is_asked().await, "it is left in peace for a minute");
    world.look(67, 2, 0.9).await;
    assert!(is_asked().await);
}

#[tokio::test]
async fn of_guests_of_whom_nothing_is_known_nobody_can_tell() {
    let world = World::new();
    world.launch(Some(DecisionId(1))).await;
    world.look(1, 6, 0.0).await;
    world.set_guests(&[8]);
    assert!(!world.look(7, 20, 0.9).await && !world.is_sent_away(8).await);
}

#[tokio::test]
async fn where_guests_cannot_leave_without_harm_none_come() {
    let world = World::new();
    world.launch(Some(DecisionId(1))).await;
    world.context.board_mut().is_parting_unsafe = true;
    assert!(!world.look(1, 9, 0.0).await);
}
