//! How long a decision takes with 1,000 jobs waiting: the pure plan, and the scheduler's whole tick over a real Postgres.

use crate::stats::{Variant, figures};
use anyhow::{Context as _, ensure};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::mark::Mark;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::WorkloadProfile;
use pillion_core::report::AgentHello;
use pillion_core::share::Sharing;
use pillion_core::{
    DecisionId, DeviceUuid, GresType, JobStart, NodeName, Revision, Shards, SlowdownRatio, SlurmJobId,
    SystemClock, UnixTime, UserId, WorkloadKey,
};
use pillion_fake_slurm::{FakeJob, FakeNode, FakePartition, FakeSettings, FakeSlurm};
use pillion_pairing::model::Contention;
use pillion_pairing::view::{DeviceView, NodeView, Tenant, WaitingJob};
use pillion_pairing::{ClusterView, Policy, ProfileBook, UserPolicy, plan};
use pillion_scheduler::agents::Agents;
use pillion_scheduler::context::{Context, Settings};
use pillion_scheduler::engine::Engine;
use pillion_scheduler::watch::Watch;
use pillion_store::Store;
use pillion_store::postgres::PgStore;
use pillion_store::prelude::*;
use pillion_store::private_postgres::{Owner, PrivatePostgres};
use pillion_tests::testbed;
use pillion_tests::wait::now;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const JOBS: u32 = 1000;
const NODES: u32 = 16;
const DEVICES_PER_NODE: u32 = 4;
const USERS: u32 = 20;
const WORKLOADS: u32 = 25;
const MODEL: &str = "h100";
const GIB: u64 = 1 << 30;
const PLANS: usize = 50;
const TICKS: usize = 20;
fn at() -> UnixTime {
    UnixTime::from_epoch(1_700_000_000)
}

/// Runs the topic.
pub(crate) fn run() -> anyhow::Result<()> {
    println!("{JOBS} jobs of {USERS} users wait for {} devices.\n", NODES * DEVICES_PER_NODE);
    plans()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(ticks())
}

/// A workload between light and heavy.
fn profile(number: u32) -> WorkloadProfile {
    let weight = f64::from(number % WORKLOADS) / f64::from(WORKLOADS);
    WorkloadProfile {
        metrics: Metrics::from([
            (Metric::SmActiveFraction, weight),
            (Metric::GpuBusyFraction, 0.3 + weight),
            (Metric::MemoryBandwidthFraction, 0.9 - weight),
            (Metric::CacheBandwidthFraction, 0.5 * weight),
            (Metric::PowerWatts, 150.0 + 400.0 * weight),
        ]),
        run_count: 3,
        duration_seconds: Some(1800.0),
        memory_bytes_peak: Some(8 * GIB),
        process_count_peak: 1,
        process_memory_bytes_peak: None,
        ..WorkloadProfile::empty(workload(number), MODEL)
    }
}

fn workload(number: u32) -> WorkloadKey {
    WorkloadKey::new(format!("workload-{}", number % WORKLOADS))
}

fn job(number: u32) -> anyhow::Result<WaitingJob> {
    Ok(WaitingJob {
        start: JobStart { job_id: SlurmJobId::plain(number + 1), restart_count: 0 },
        uid: UserId(2000 + number % USERS),
        account: "physics".into(),
        partition: "shared".into(),
        workload: workload(number / USERS),
        submitted_at: at(),
        starts_alone_at: at() + Duration::from_mins(10),
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25)?,
        memory_bytes_declared: None,
        may_run_out: false,
        solo_cap: None,
        owes_runs: 0,
        use_beyond_fraction: 0.0,
        isolation: pillion_core::isolation::Isolation::Shared,
        gpu_type: None,
        device_count: 1,
        node_count: 1,
        fallback: None,
        rules: None,
        as_guest: false,
        is_plain: false,
        cpus: 4,
        memory_mib: 4096,
        features: Vec::new(),
        excluded_nodes: Vec::new(),
        time_limit_seconds: Some(3600),
        duration_seconds_expected: None,
        held: None,
    })
}

/// What stands on every device.
#[derive(Clone, Copy)]
enum Devices {
    Free,
    Joinable,
    Full,
}

fn device(node: &NodeName, number: u32, devices: Devices) -> anyhow::Result<DeviceView> {
    let shards = match devices {
        Devices::Free => 0,
        Devices::Joinable => 40,
        Devices::Full => 100,
    };
    let tenant = Tenant {
        job_id: SlurmJobId::plain(JOBS + 1 + number),
        uid: UserId(2000 + number % USERS),
        account: "physics".into(),
        workload: Some(workload(number)),
        group: Some(DecisionId(u64::from(number) + 1)),
        is_running: true,
        sharing: Sharing::by(Mechanism::Mps, None, None),
        shards: Shards::try_new(shards.max(1))?,
        slowdown_ratio_max: SlowdownRatio::try_promise(1.25)?,
        memory_bytes: Some(8 * GIB),
        time_limit_at: Some(at() + Duration::from_hours(2)),
        expected_end_at: None,
        isolation: pillion_core::isolation::Isolation::Shared,
        first_run: None,
        rules: None,
        guest: None,
        session: None,
        set: None,
    };
    Ok(DeviceView {
        node: node.clone(),
        gres_type: GresType::new(format!("g{}", number % DEVICES_PER_NODE)),
        model: MODEL.to_owned(),
        gpu_types: vec![MODEL.to_owned()],
        memory_bytes: 80 * GIB,
        mechanism: Mechanism::Mps,
        shards_free: 100 - u32::from(shards),
        tenants: if shards == 0 { Vec::new() } else { vec![tenant] },
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: std::collections::BTreeMap::new(),
        blocked: None,
    })
}

fn node_name(number: u32) -> NodeName {
    NodeName::new(format!("n{}", number + 1))
}

fn view(devices: Devices) -> anyhow::Result<ClusterView> {
    let node = |number| NodeView {
        name: node_name(number),
        blocked: None,
        cpus: 64,
        memory_mib: 512 * 1024,
        cpus_free: 64,
        memory_mib_free: 512 * 1024,
        features: Vec::new(),
        partitions: vec!["shared".to_owned()],
        open_seconds: None,
    };
    let all = (0..NODES * DEVICES_PER_NODE)
        .map(|number| device(&node_name(number / DEVICES_PER_NODE), number, devices));
    Ok(ClusterView {
        revision: Revision(1),
        taken_at: at(),
        nodes: (0..NODES).map(node).collect(),
        devices: all.collect::<anyhow::Result<_>>()?,
        waiting: (0..JOBS).map(job).collect::<anyhow::Result<_>>()?,
        alone_claims: Vec::new(),
        copies: pillion_pairing::CopyBook::default(),
        slices: pillion_pairing::mig::SliceBook::default(),
        profiles: ProfileBook::from((0..WORKLOADS).map(profile).collect::<Vec<_>>()),
        trials: pillion_pairing::TrialBook::default(),
    })
}

/// The pure decision, every workload known.
fn plans() -> anyhow::Result<()> {
    let mut variants = Vec::new();
    for (users, who) in [(UserPolicy::SameUser, "same-user"), (UserPolicy::Any, "any")] {
        let policy = Policy { users, ..Policy::default() };
        for (devices, what) in [
            (Devices::Free, "all free"),
            (Devices::Joinable, "a joinable job on each"),
            (Devices::Full, "all full"),
        ] {
            let view = view(devices)?;
            let pairings = plan(&view, &Contention, &policy).pairings.len();
            ensure!(
                (pairings == 0) == matches!(devices, Devices::Full),
                "{pairings} pairings with devices {what}"
            );
            let mut variant = Variant::new(&format!("policy {who}, devices {what}: {pairings} decisions"));
            for _ in 0..PLANS {
                let begun = now();
                std::hint::black_box(plan(std::hint::black_box(&view), &Contention, &policy));
                variant.push(begun.elapsed().as_secs_f64());
            }
            variants.push(variant);
        }
    }
    println!("### pairing::plan\n\n{}", figures(&variants));
    Ok(())
}

/// A queue in a double of Slurm, whose answers cost nothing: what is measured is ours and Postgres'.
fn slurm(now: UnixTime) -> FakeSlurm {
    let names: Vec<String> = (0..NODES).map(|number| node_name(number).to_string()).collect();
    let nodes = names.iter().map(|name| FakeNode::pool(name, DEVICES_PER_NODE)).collect();
    let partition = FakePartition::new("shared", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let slurm = FakeSlurm::new(FakeSettings::default(), nodes, vec![partition], now);
    for number in 0..JOBS {
        let mark = Mark {
            workload_digest: format!("{:016x}", number % WORKLOADS).into(),
            original_partition: "gpu".into(),
            original_field: "node".into(),
            original_gres: "gpu:1".into(),
            ..Mark::default()
        };
        slurm.submit(FakeJob {
            uid: UserId(2000 + number % USERS),
            user: format!("user{}", number % USERS),
            begin: Some(now + Duration::from_mins(10)),
            admin_comment: mark.to_string(),
            ..FakeJob::default()
        });
    }
    slurm
}

fn hello(node: NodeName, at: UnixTime) -> AgentHello {
    let device = |index: u32| DeviceDescription {
        uuid: DeviceUuid::new(format!("{node}-{index}")),
        model: MODEL.to_owned(),
        memory_bytes: 80 * GIB,
        ..pillion_test_kit::device(index)
    };
    AgentHello {
        agent_version: "bench".to_owned(),
        journal_id: format!("journal-{node}"),
        devices: (0..DEVICES_PER_NODE).map(device).collect(),
        sent_at: at,
        node,
        ..pillion_test_kit::hello("n1")
    }
}

/// Scan, plan and commit as the scheduler does them.
async fn ticks() -> anyhow::Result<()> {
    let identity = testbed::identity_of("slurm")?;
    let owner = Owner { uid: identity.uid, gid: identity.gid };
    let directory = Path::new(testbed::TESTBED_DIR).join("bench-postgres");
    let postgres =
        PrivatePostgres::start_as(&directory, None, owner).await.context("cannot start a Postgres")?;
    let store = Arc::new(PgStore::connect(postgres.url()).await?);
    let at = pillion_core::Clock::now(&SystemClock);
    let agents = Arc::new(Agents::default());
    let mut streams = Vec::new();
    for number in 0..NODES {
        let hello = hello(node_name(number), at);
        store.record_devices(&hello.node, &hello.devices, at).await?;
        streams.push(agents.connect(&hello, at));
    }
    let seam = Arc::clone(&store) as Arc<dyn Store>;
    let context =
        Arc::new(Context::new(Arc::new(SystemClock), Arc::new(slurm(at)), seam, agents, Settings::default()));
    let (watch, engine) = (Watch::new(Arc::clone(&context)), Engine::new(Arc::clone(&context)));
    let mut variants = [
        Variant::new("first look: 1,000 new jobs written down"),
        Variant::new("first plan: 64 decisions committed, all others explained"),
        Variant::new("look, nothing new"),
        Variant::new("plan, nothing to commit: view, plan, explanations"),
    ];
    for round in 0..=TICKS {
        let offset = if round == 0 { 0 } else { 2 };
        let begun = now();
        watch.tick().await?;
        variants[offset].push(begun.elapsed().as_secs_f64());
        let begun = now();
        engine.tick().await?;
        variants[offset + 1].push(begun.elapsed().as_secs_f64());
    }
    let decisions = store.active_decisions().await?.len();
    ensure!(
        decisions == 64,
        "{decisions} decisions were committed; a first run alone on each device would be 64"
    );
    println!("### The scheduler's ticks over Postgres, no workload known yet\n\n{}", figures(&variants));
    drop(streams);
    store.close().await;
    postgres.stop().await;
    Ok(())
}
