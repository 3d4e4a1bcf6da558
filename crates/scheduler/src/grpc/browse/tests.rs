use super::*;
use crate::agents::Agents;
use crate::device_status::NOTHING_AMISS;
use crate::testing::scan;
use pillion_core::UserId;
use pillion_core::decision::MemberState;
use pillion_core::device::{DeviceDescription, Mechanism, Reading};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::metric::Metric;
use pillion_core::report::{AgentHello, DeviceSample, DeviceSamples};
use pillion_core::share::Sharing;
use pillion_core::{DeviceUuid, Shards, SlurmJobId, WorkloadKey};
use pillion_pairing::Role;
use pillion_slurm::NodeAvailability;
use pillion_store::{Drain, DrainPlace};

const ALICE: Caller = Caller { uid: Some(UserId(1000)), is_operator: false };
const NOBODY: Caller = Caller { uid: None, is_operator: false };
const OPERATOR: Caller = Caller { uid: None, is_operator: true };

fn tenant(id: u32, uid: u32, user: &str) -> Tenant {
    Tenant {
        decision_id: DecisionId(5),
        node: NodeName::new("n1"),
        gres_types: GresType::new("g0").into(),
        job_id: SlurmJobId::plain(id),
        uid: UserId(uid),
        user: Some(user.to_owned()),
        workload: WorkloadKey::new(format!("{user}/w")),
        role: Role::Host,
        state: MemberState::Running,
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::ALL,
        speed_fraction: Some(0.9),
        started_at: None,
    }
}

#[test]
fn of_others_a_tenant_tells_that_he_is_there_and_no_more() {
    let own = tenant_row(&tenant(7, 1000, "alice"), ALICE);
    assert_eq!(
        (own.job_id.as_deref(), own.workload.as_deref(), own.decision_id),
        (Some("7"), Some("alice/w"), Some(5))
    );
    for caller in [ALICE, NOBODY] {
        let other = tenant_row(&tenant(987_654, 1001, "bob"), caller);
        let text = format!("{other:?}");
        assert!(!text.contains("bob") && !text.contains("987654") && other.decision_id.is_none(), "{text}");
        assert_eq!(other.role, "host");
    }
    assert_eq!(tenant_row(&tenant(8, 1001, "bob"), OPERATOR).user.as_deref(), Some("bob"));
}

#[test]
fn who_is_nobody_sees_no_decision_and_no_outcome() {
    let asked = api::PairsRequest::default();
    assert_eq!(decision_filter(asked.clone(), NOBODY).unwrap(), None);
    assert_eq!(heat_filter(api::HeatmapRequest::default(), NOBODY), None);
    let own = decision_filter(asked.clone(), ALICE).unwrap().unwrap();
    assert_eq!(own.uid, Some(UserId(1000)));
    assert_eq!(decision_filter(asked, OPERATOR).unwrap().unwrap().uid, None);
    let wrong = api::PairsRequest { nodes: "n[1-".to_owned(), ..api::PairsRequest::default() };
    assert_eq!(decision_filter(wrong, OPERATOR).unwrap_err().code(), tonic::Code::InvalidArgument);
}

/// As it was tried: a question of 240 kB, well within its limit, would have been 15.7 GB of names.
#[test]
fn a_hostlist_that_would_fill_the_memory_is_refused_in_a_sentence() {
    let nodes = format!("[1-65536]{}", "a".repeat(240_000));
    let refused = decision_filter(api::PairsRequest { nodes, ..api::PairsRequest::default() }, ALICE);
    let refused = refused.expect_err("too much");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert_eq!(refused.message(), "the hostlist has a name of more than 255 letters");
}

fn device() -> DeviceDescription {
    DeviceDescription { uuid: DeviceUuid::new("GPU-0"), memory_bytes: 1, ..pillion_test_kit::device(0) }
}

fn hello() -> AgentHello {
    AgentHello { devices: vec![device()], sent_at: UnixTime::from_epoch(1), ..crate::testing::hello("n1") }
}

fn held(tenant_count: u32) -> Occupancy {
    Occupancy { node: NodeName::new("n1"), gres_type: GresType::new("g0"), tenant_count }
}

fn drain() -> Drain {
    Drain {
        place: DrainPlace { node: NodeName::new("n1"), gres_type: None },
        by: "root".to_owned(),
        reason: "fan noise".to_owned(),
        since: UnixTime::from_epoch(1),
    }
}

#[test]
fn what_a_device_does_is_told_to_whom_all_on_it_belong() {
    let (agents, node) = (Agents::default(), NodeName::new("n1"));
    let (_stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(1));
    let reading = Reading::from([(Metric::PowerWatts, 300.0)]);
    let sample = DeviceSample { gres_type: GresType::new("g0"), reading, tenants: Vec::new() };
    let samples = DeviceSamples { recorded_at: UnixTime::from_epoch(2), samples: vec![sample] };
    agents.set_readings(&node, &samples);
    let (all, drains, occupancy) = (agents.all(), [drain()], [held(2)]);
    let spots = device_status::spots(&device_status::Sources {
        agents: &all,
        scan: None,
        drains: &drains,
        amiss: &NOTHING_AMISS,
        tenant_counts: tenant_counts(&occupancy),
    });
    let readings = || agents.readings([(&node, &device().gres_type)].into_iter());
    let shown = |tenants: &[Tenant], caller| {
        let there = There { readings: readings(), tenants: tenants.to_vec() };
        let row = node_row(&spots, None, &there, Shown { caller, hides_jobs: false });
        row.devices[0].clone()
    };
    let (own, other) = (tenant(7, 1000, "alice"), tenant(8, 1001, "bob"));
    assert!(shown(std::slice::from_ref(&own), ALICE).activity.is_some());
    let beside = shown(&[own.clone(), other.clone()], ALICE);
    assert!(beside.activity.is_none(), "{beside:?}");
    assert!(shown(&[own, other], OPERATOR).activity.is_some());
    assert!(shown(&[], ALICE).activity.is_none(), "somebody may be there whom Slurm put there");
    assert_eq!(
        (beside.state.as_str(), beside.drained.as_deref()),
        ("closed", Some("drained by root: fan noise"))
    );
}

#[test]
fn what_is_wrong_somewhere_tells_a_user_of_nobody_else() {
    let agents = Agents::default();
    let (stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(1));
    let detail = "job 4711 held more of it than its share allows, and was ended".to_owned();
    let fault = DeviceFault { kind: FaultKind::Overused, detail, since: UnixTime::from_epoch(1) };
    let condition = DeviceCondition {
        gres_type: GresType::new("g0"),
        faults: vec![fault],
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    };
    agents.set_conditions(&stream, &[condition]);
    let all = agents.all();
    let spots = device_status::spots(&device_status::Sources {
        agents: &all,
        scan: None,
        drains: &[],
        amiss: &NOTHING_AMISS,
        tenant_counts: BTreeMap::new(),
    });
    let there = There { readings: Readings::new(), tenants: Vec::new() };
    let holds = Violation::WholeGpuInPool { node: NodeName::new("n1"), job_id: SlurmJobId::plain(4711) };
    for (caller, is_named) in [(ALICE, false), (NOBODY, false), (OPERATOR, true)] {
        let row = node_row(&spots, Some(&holds), &there, Shown { caller, hides_jobs: false });
        let (stopped, fault) = (row.stopped.expect("stopped"), &row.devices[0].faults[0]);
        assert_eq!((stopped.contains("4711"), fault.detail.contains("4711")), (is_named, is_named));
        assert!(stopped.contains("P-4") && fault.kind == "overused", "{stopped}");
    }
}

/// That a device is busy everybody sees, as `sinfo` shows it; who is on it, what he holds and since when nobody else does.
#[test]
fn where_slurm_keeps_jobs_private_neither_tenants_nor_counts_tell_of_others() {
    let agents = Agents::default();
    let (_stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(1));
    let (all, occupancy) = (agents.all(), [held(2)]);
    let spots = device_status::spots(&device_status::Sources {
        agents: &all,
        scan: None,
        drains: &[],
        amiss: &NOTHING_AMISS,
        tenant_counts: tenant_counts(&occupancy),
    });
    let tenants = vec![tenant(7, 1000, "alice"), tenant(8, 1001, "bob")];
    let there = There { readings: Readings::new(), tenants };
    let jobs = [7, 8, 9].map(|id| pillion_slurm::Job {
        id: SlurmJobId::plain(id),
        uid: UserId(if id == 7 { 1000 } else { 1001 }),
        ..crate::testing::job(pillion_slurm::JobState::Pending)
    });
    let scan = Scan::new(
        UnixTime::from_epoch(1),
        jobs.map(Into::into).into(),
        Vec::new(),
        &["shared".to_owned()],
        0,
    );
    let told = |caller, hides_jobs| {
        let shown = Shown { caller, hides_jobs };
        let device = node_row(&spots, None, &there, shown).devices.remove(0);
        (device.state, device.tenants.len(), waiting_count(Some(&scan), shown))
    };
    let shared = || "shared".to_owned();
    assert_eq!(told(ALICE, true), (shared(), 1, 1));
    assert_eq!(told(NOBODY, true), (shared(), 0, 0));
    assert_eq!((told(OPERATOR, true), told(ALICE, false)), ((shared(), 2, 3), (shared(), 2, 3)));
}

#[test]
fn a_device_is_what_is_worst_about_it() {
    let agents = Agents::default();
    let (stream, _inbox) = agents.connect(&hello(), UnixTime::from_epoch(1));
    let told = |count: u32, scan: Option<&Scan>, drains: &[Drain]| {
        let (agents, occupancy) = (agents.all(), [held(count)]);
        let tenant_counts = tenant_counts(&occupancy);
        let spots = device_status::spots(&device_status::Sources {
            agents: &agents,
            scan,
            drains,
            amiss: &NOTHING_AMISS,
            tenant_counts,
        });
        let counts = state_counts(&spots);
        assert_eq!((counts.len(), counts[0].count), (1, 1));
        counts[0].state.clone()
    };
    let state = |count: u32| told(count, None, &[]);
    assert_eq!([state(0), state(1), state(2)], ["idle", "alone", "shared"]);
    let mut by_slurm = scan(None, NodeAvailability::Up);
    by_slurm.nodes[0].shards = [(GresType::new("g0"), (100, 100))].into();
    assert_eq!(told(0, Some(&by_slurm), &[]), "alone");
    assert_eq!(told(0, None, &[drain()]), "closed");
    let fault = DeviceFault { kind: FaultKind::Gone, detail: String::new(), since: UnixTime::from_epoch(1) };
    let condition = DeviceCondition {
        gres_type: GresType::new("g0"),
        faults: vec![fault],
        sources: BTreeMap::new(),
        instances_empty: Vec::new(),
    };
    agents.set_conditions(&stream, &[condition]);
    assert_eq!(state(2), "closed");
    agents.disconnect(&stream);
    assert_eq!(state(2), "not-responding");
}
