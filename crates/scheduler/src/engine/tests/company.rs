//! Two jobs of one user in one instance: one decision, the host before its guest, and in Slurm's books no more than the instance is.

use super::instances::{World, geometry};
use crate::credit::shared_devices;
use crate::engine::Engine;
use crate::release::Release;
use crate::testing::{NOW, at};
use pillion_core::decision::MemberState;
use pillion_core::mig::Slot;
use pillion_core::share::Share;
use pillion_core::{Clock as _, UserId};
use std::collections::BTreeMap;
use std::sync::Arc;

#[tokio::test]
async fn two_of_one_user_are_released_into_one_instance_by_one_decision() {
    let mut world = World::of_two_users();
    world.scan().await;
    Engine::new(Arc::clone(&world.context)).tick().await.expect("a plan");
    let decisions = world.context.store.active_decisions().await.expect("read");
    let mut users: BTreeMap<Slot, Vec<UserId>> = BTreeMap::new();
    for decision in &decisions {
        for member in &decision.members {
            users.entry(member.plan.sharing.mig_slot().expect("in one")).or_default().push(member.plan.uid);
        }
    }
    assert_eq!((decisions.len(), users.len()), (2, 2), "{users:?}");
    assert!(users.values().all(|of| of.len() == 2 && of[0] == of[1]), "{users:?}");

    // Its agent is asked for each, the hosts first, and has them ready at once.
    let release = Release::new(Arc::clone(&world.context));
    let mut shares: Vec<Share> = Vec::new();
    for second in 1..12 {
        release.tick().await.expect("asked, or released");
        for share in world.prepared() {
            let store = &world.context.store;
            store.member_prepared(share.decision_id, share.start, at(NOW + second)).await.expect("kept");
            shares.push(share);
        }
        world.clock.set(at(NOW + second));
        world.slurm.tick(at(NOW + second));
        world.scan().await;
    }
    assert_eq!(shares.len(), 4, "{shares:?}");
    let mut booked: BTreeMap<Slot, u32> = BTreeMap::new();
    for share in &shares {
        assert!(share.mechanism().has_daemon() && share.mechanism().has_instances());
        *booked.entry(share.sharing.mig_slot().unwrap()).or_default() += u32::from(share.shards.count());
    }
    assert!(
        booked.iter().all(|(slot, sum)| *sum == u32::from(geometry().shards(slot.profile).count())),
        "{booked:?}"
    );
    let gres = |share: &Share| world.slurm.job(share.start.job_id).expect("it runs").gres.to_string();
    for share in &shares {
        assert_eq!(gres(share), format!("shard:g0:{}", share.shards));
    }

    // They run together, as they were planned to; and nobody holds them to a pair's promises on a device of their own.
    let board = world.context.board();
    assert!(board.stopped.is_empty(), "{:?}", board.stopped);
    assert_eq!(shared_devices(&board.active).len(), 0);
    let members = board.active.iter().flat_map(|decision| &decision.members);
    assert_eq!(members.filter(|member| member.state == MemberState::Running).count(), 4);
    assert!(world.clock.now() > at(NOW));
}
