//! Tenants of one user in one instance: who may come in, and what becomes of its MPS daemon.

use super::*;

/// A share of this instance beside others of its user, with half of what it is.
pub(super) fn together(model: &str, job: u32, uid: u32, slot: Slot) -> Share {
    let Slot { profile, start } = slot;
    let half = Geometry::of_model(model).unwrap().shards(profile).count() / 2;
    let sharing = Sharing::MigMps { profile, start, cap: None, memory_limit_bytes: None };
    let shards = Shards::try_new(half).unwrap();
    Share { sharing, shards, uid: UserId(uid), ..plain_share(job, Mechanism::TimeSliced) }
}

#[test]
fn tenants_of_one_user_share_an_instance_and_nobody_else_comes_in() {
    let mut world = World::new(HOPPER);
    let (place, other) = (slot("3g.40gb@4"), slot("3g.40gb@0"));
    let name = world.come(&together(HOPPER, 1, 1000, place)).unwrap();
    assert_eq!(world.double.daemons, BTreeSet::from([name.clone()]));
    world.double.at(place).unwrap().pids = vec![7];
    assert_eq!(world.come(&together(HOPPER, 2, 1000, place)), Ok(name.clone()), "beside who runs there");
    world.check();
    let stranger = world.come(&together(HOPPER, 3, 1001, place)).unwrap_err();
    assert!(stranger.contains("users never share one"), "{stranger}");
    let third = world.come(&together(HOPPER, 4, 1000, place)).unwrap_err();
    assert!(third.contains("42 shards") && third.contains("63 booked"), "{third}");
    let alone = world.come(&share(HOPPER, 5, place)).unwrap_err();
    assert!(alone.contains("holds device"), "{alone}");
    world.come(&share(HOPPER, 6, other)).unwrap();
    assert_eq!(world.double.daemons.len(), 1, "who has one to himself has no daemon");
    // The first leaves; who came second stays, and the agent dies meanwhile.
    world.shares.remove(0);
    world.settle();
    world.start();
    world.settle();
    world.check();
    assert_eq!(world.written().at(place).unwrap().tenant.unwrap().start.job_id.id, 2);
    assert_eq!(world.double.daemons, BTreeSet::from([name.clone()]));
    // The last one leaves: while a process of his is there neither goes, and then the daemon goes first.
    world.shares.remove(0);
    world.settle();
    assert!(world.double.at(place).is_some() && world.double.daemons.contains(&name));
    world.double.at(place).unwrap().pids.clear();
    world.settle();
    assert!(world.double.at(place).is_none() && world.double.daemons.is_empty());
    world.heal_and_empty();
}

#[test]
fn a_daemon_whose_instance_went_without_us_is_ended() {
    let mut world = World::new(HOPPER);
    let place = slot("2g.20gb@0");
    let name = world.come(&together(HOPPER, 1, 1000, place)).unwrap();
    world.double.instances.clear();
    world.settle();
    assert!(!world.double.daemons.contains(&name));
    world.heal_and_empty();
}
