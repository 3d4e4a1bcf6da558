//! Bad rows of who runs out of device memory: `bad_rows` for the reconciler `trend`.

use crate::bad_rows::World;
use crate::fixtures::{at, commit, decision, ended_job, member, node, plain, run, start};
use pillion_core::GresType;
use pillion_core::device::{Reading, TenantUse};
use pillion_core::mark::Mark;
use pillion_core::report::{DeviceSample, DeviceSamples};
use pillion_core::restart::RestartConsent;
use pillion_core::share::Sharing;
use pillion_fake_slurm::FakeJob;
use pillion_pairing::Role;
use pillion_scheduler::trend::Trend;
use pillion_store::prelude::*;
use pillion_store::{NewDecision, NewMember, RequeueCause};
use std::sync::Arc;

const LIMIT_MIB: u64 = 10_000;
const BYTES_A_MIB: u64 = 1 << 20;

/// Jobs that run on a device each, under a limit, and let themselves be started again before they run out of it.
async fn growing(world: &World, devices: &[&str]) -> Vec<u32> {
    let store = world.store.as_ref();
    let mut ids = Vec::new();
    for device in devices {
        let mark = Mark { workload_digest: "aa".into(), restart: RestartConsent::Early, ..Mark::default() };
        let admin_comment = mark.leased(at(0), 0).to_string();
        let gres = format!("shard:{device}:100");
        let required_nodes = vec![node()];
        let job = FakeJob { admin_comment, gres, required_nodes, ..FakeJob::default() };
        let id = world.slurm.submit(job).id;
        store.record_jobs(&[ended_job(id)], at(80)).await.expect("recorded");
        let sharing = Sharing::Mps { cap: None, memory_limit_bytes: Some(LIMIT_MIB * BYTES_A_MIB) };
        let plan = NewMember { sharing, ..member(id, Role::Host) };
        let alone = NewDecision { gres_types: GresType::new(*device).into(), ..decision(vec![plan]) };
        let decided = commit(store, &[alone]).await[0];
        run(store, decided, id).await;
        ids.push(id);
    }
    world.context.board_mut().active = Arc::new(store.active_decisions().await.expect("read"));
    ids
}

/// They hold so much more at each look, all alike.
async fn look(world: &World, trend: &Trend, second: u32, held: (&[u32], &[&str])) {
    world.scan(second).await;
    let of = |(id, device): (&u32, &&str)| {
        let memory_bytes = Some((8_500 + 2 * u64::from(second)) * BYTES_A_MIB);
        let tenant = TenantUse {
            job_id: plain(*id),
            restart_count: 0,
            memory_bytes,
            process_count: 1,
            progress: None,
        };
        DeviceSample { gres_type: GresType::new(*device), reading: Reading::default(), tenants: vec![tenant] }
    };
    let samples = held.0.iter().zip(held.1).map(of).collect();
    world.context.agents.set_readings(&node(), &DeviceSamples { recorded_at: at(second), samples });
    trend.tick().await.expect("one bad row is no reason to stop");
}

#[tokio::test]
async fn who_cannot_be_told_that_he_runs_out_of_memory_keeps_no_other_from_it() {
    let Some(world) = World::new().await else { return };
    let devices = ["g0", "g1", "g2"];
    let ids = growing(&world, &devices).await;
    world.refuse("event", &format!("job_id = '{}'", ids[0])).await;
    world.refuse("job_requeue", &format!("job_id = '{}'", ids[1])).await;
    let trend = Trend::new(world.world());
    for second in (1..=100).step_by(5) {
        look(&world, &trend, second, (&ids, &devices)).await;
    }
    assert_eq!(world.kinds(ids[2]).await, ["memory-growing"]);
    assert_eq!((world.kinds(ids[0]).await, world.kinds(ids[1]).await), (Vec::new(), Vec::new()));
    let intended = world.store.open_requeues().await.expect("read");
    let [only] = &intended[..] else { panic!("{intended:?}") };
    assert!(only.start == start(ids[2]) && matches!(only.cause, RequeueCause::Growing { .. }), "{only:?}");
    assert!(world.passed_over("trend") > 0);
}
