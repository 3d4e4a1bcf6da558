//! Jobs, nodes, members and decisions as the tests of several modules need them; core's own values come from the test kit.

use crate::agents::{AgentState, Agents};
use crate::context::{Context, Settings};
use crate::engine::Engine;
use crate::grpc::operator::OperatorServer;
use crate::scan::Scan;
use pillion_core::decision::{DecisionState, MemberState};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mark::Mark;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, GresType, JobStart, ManualClock, NodeName, Shards, SlurmJobId, UserId, WorkloadKey,
};
use pillion_fake_slurm::{FakeSettings, FakeSlurm};
use pillion_memory_store::MemoryStore;
use pillion_pairing::{Explanation, Reason, Role};
use pillion_slurm::{Ending, Job, JobState, Node, NodeAvailability, ReasonKind};
use pillion_store::postgres::PgStore;
use pillion_store::{Decision, JobRecord, Member, NewDecision, NewMember};
pub(crate) use pillion_test_kit::{NOW, at, device, hello, summary};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn start() -> JobStart {
    JobStart { job_id: SlurmJobId::plain(7), restart_count: 0 }
}

pub(crate) fn member(state: MemberState) -> Member {
    let explanation = Explanation {
        job_id: start().job_id,
        reason: Reason::Paired,
        text: "".into(),
        model: "".into(),
        candidates: [].into(),
    };
    Member {
        plan: NewMember {
            start: start(),
            uid: UserId(1000),
            workload: WorkloadKey::new("alice/w"),
            role: Role::Host,
            sharing: Sharing::by(Mechanism::Mps, None, None),
            shards: Shards::try_new(40).unwrap(),
            memory_bytes: None,
            slowdown_ratio_max: 1.25,
            estimate: None,
            solo_duration_seconds: None,
            explanation: Some(explanation),
        },
        state,
        prepared_at: None,
        released_at: None,
        started_at: None,
        ended_at: None,
        measured_speed_fraction: None,
        energy_joules: None,
    }
}

/// A pairing on n1's first device.
pub(crate) fn new_decision(members: Vec<NewMember>) -> NewDecision {
    NewDecision {
        node: NodeName::new("n1"),
        gres_types: GresType::new("g0").into(),
        device_model: "h100".into(),
        joins: None,
        gain: 0.5,
        trial: None,
        first_run: None,
        members,
    }
}

pub(crate) fn decision(member: &Member) -> Decision {
    Decision {
        id: DecisionId(1),
        group: DecisionId(1),
        state: DecisionState::Planned,
        created_at: at(NOW - 5),
        node: NodeName::new("n1"),
        gres_types: GresType::new("g1").into(),
        device_model: "h100".into(),
        gain: 0.5,
        trial: None,
        first_run: None,
        abandoned_reason: None,
        members: vec![member.clone()],
    }
}

/// Alice's job on n1 that completed, begun at 1000 and over at 2000.
pub(crate) fn record(start: JobStart) -> JobRecord {
    JobRecord {
        id: start.job_id,
        restart_count: start.restart_count,
        uid: UserId(1000),
        user: "alice".into(),
        account: String::new(),
        partition: "shared".into(),
        workload: WorkloadKey::new("alice/w"),
        slowdown_ratio_max: None,
        memory_bytes_declared: None,
        submitted_at: at(900),
        started_at: Some(at(1000)),
        ended_at: Some(at(2000)),
        ending: Some(Ending::Completed),
        node: Some(NodeName::new("n1")),
        node_count: Some(1),
        gres: "shard:g1:40".into(),
        alone: false,
        exit: None,
    }
}

pub(crate) fn job(state: JobState) -> Job {
    Job {
        id: start().job_id,
        restart_count: 0,
        inner_id: 7,
        state,
        reason: ReasonKind::BeginTime,
        uid: UserId(1000),
        user: "alice".into(),
        account: "a".into(),
        partition: "shared".into(),
        qos: "".into(),
        priority: 10,
        submitted_at: at(NOW - 100),
        eligible_at: Some(at(NOW + 500)),
        started_at: None,
        ended_at: None,
        time_limit_seconds: None,
        gres: "shard:100".into(),
        nodes: Vec::new(),
        required_nodes: Vec::new(),
        excluded_nodes: Vec::new(),
        features: "".into(),
        cpus: 1,
        memory_mib: 0,
        reservation: "".into(),
        has_dependency: false,
        array_throttle: None,
        exit: None,
        mark: Ok(Some(Mark { workload_digest: "w".into(), ..Mark::default() })),
    }
}

pub(crate) fn leased(mut job: Job, epoch: u64) -> Job {
    let mark = Mark { workload_digest: "w".into(), ..Mark::default() };
    job.mark = Ok(Some(mark.leased(at(epoch), job.restart_count)));
    job.gres = "shard:g1:40".into();
    job.required_nodes = vec![NodeName::new("n1")];
    job.nodes = job.required_nodes.clone();
    job
}

pub(crate) fn node(availability: NodeAvailability) -> Node {
    Node {
        name: NodeName::new("n1"),
        availability,
        state: String::new(),
        cpus: 8,
        cpus_allocated: 0,
        memory_mib: 1000,
        memory_mib_allocated: 0,
        features: Vec::new(),
        partitions: vec!["shared".into()],
        shards: BTreeMap::new(),
        gpus: BTreeMap::new(),
        address: "127.0.0.1".to_owned(),
        other_gres: Some(BTreeMap::new()),
        scratch_mib: 0,
        slurmd_started_at: None,
        reserved_from: None,
    }
}

pub(crate) fn scan(job: Option<Job>, availability: NodeAvailability) -> Scan {
    Scan::new(
        at(NOW),
        job.into_iter().map(Into::into).collect(),
        vec![node(availability)],
        &["shared".to_owned()],
        0,
    )
}

/// A scheduler's world at [`NOW`], with a Slurm that has nothing, a store that is empty and no agent.
pub(crate) fn context() -> Arc<Context> {
    context_of(Settings::default())
}

/// The same with other settings.
pub(crate) fn context_of(settings: Settings) -> Arc<Context> {
    Arc::new(Context::new(
        Arc::new(ManualClock::new(at(NOW))),
        Arc::new(FakeSlurm::new(FakeSettings::default(), Vec::new(), Vec::new(), at(NOW))),
        Arc::new(MemoryStore::new()),
        Arc::new(Agents::default()),
        settings,
    ))
}

/// What answers people there; it has no database for the pages.
pub(crate) fn operator(context: &Arc<Context>) -> OperatorServer {
    let engine = Arc::new(Engine::new(Arc::clone(context)));
    OperatorServer::new(
        Arc::clone(context),
        engine,
        Arc::new(PgStore::behind_socket(std::path::Path::new("/nowhere"))),
        String::new(),
    )
}

/// An agent that is there, with these devices, all well.
pub(crate) fn agent(devices: Vec<DeviceDescription>) -> AgentState {
    AgentState {
        devices,
        version: String::new(),
        is_connected: true,
        observes: false,
        last_seen_at: at(NOW),
        clock_skew_seconds: 0.0,
        conditions: BTreeMap::new(),
    }
}
