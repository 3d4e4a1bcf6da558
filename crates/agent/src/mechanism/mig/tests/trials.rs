//! Whatever happens, in whatever order, while the agent dies at any edge of any call.

use super::together::together;
use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Happening {
    Comes(usize),
    /// One comes who may share what he gets, or joins who does.
    Shares(usize, bool),
    Leaves(usize),
    /// A process of the tenant begins, or ends.
    Runs(usize, bool),
    Settles,
    /// The next destroys are refused so often.
    Busy(u32),
    Monitor(bool),
    Admin(usize),
    AdminLeaves,
    /// The agent dies after so many edges.
    Dies(u32),
    Reboots,
}

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => any::<usize>().prop_map(Happening::Comes),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, is_strange)| Happening::Shares(which, is_strange)),
        4 => any::<usize>().prop_map(Happening::Leaves),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(who, is_there)| Happening::Runs(who, is_there)),
        4 => Just(Happening::Settles),
        2 => (1..4_u32).prop_map(Happening::Busy),
        1 => any::<bool>().prop_map(Happening::Monitor),
        1 => any::<usize>().prop_map(Happening::Admin),
        1 => Just(Happening::AdminLeaves),
        4 => (0..12_u32).prop_map(Happening::Dies),
        1 => Just(Happening::Reboots),
    ]
}

fn happen(world: &mut World, job: u32, happening: &Happening) {
    let model = world.double.model;
    match *happening {
        Happening::Comes(which) => {
            let taken: BTreeSet<Slot> =
                world.shares.iter().filter_map(|share| share.sharing.mig_slot()).collect();
            let taken: Vec<Slot> = taken.into_iter().collect();
            let places = world.double.table().additions(&taken);
            if !places.is_empty() {
                let _ = world.come(&share(model, job, places[which % places.len()]));
            }
        }
        Happening::Shares(which, is_strange) => {
            let shared = world.shares.iter().filter(|share| share.mechanism().has_daemon());
            let shared: Vec<(Slot, u32)> =
                shared.filter_map(|share| Some((share.sharing.mig_slot()?, share.uid.0))).collect();
            let taken: Vec<Slot> = world.shares.iter().filter_map(|share| share.sharing.mig_slot()).collect();
            let taken: BTreeSet<Slot> = taken.into_iter().collect();
            let free = world.double.table().additions(&taken.into_iter().collect::<Vec<_>>());
            let free = free.into_iter().map(|slot| (slot, 1000 + job));
            let places: Vec<(Slot, u32)> = shared.into_iter().chain(free).collect();
            if let Some((slot, uid)) = places.get(which % places.len().max(1)).copied() {
                let uid = if is_strange { 1 } else { uid };
                let _ = world.come(&together(model, job, uid, slot));
            }
        }
        Happening::Leaves(who) if !world.shares.is_empty() => {
            let gone = world.shares.remove(who % world.shares.len());
            let slot = gone.sharing.mig_slot();
            if !world.shares.iter().any(|share| share.sharing.mig_slot() == slot) {
                world.double.at(slot.unwrap()).unwrap().pids.clear();
            }
        }
        Happening::Runs(who, is_there) if !world.shares.is_empty() => {
            let own = world.shares[who % world.shares.len()].sharing.mig_slot().unwrap();
            world.double.at(own).unwrap().pids = if is_there { vec![7] } else { Vec::new() };
        }
        Happening::Settles => world.settle(),
        Happening::Busy(count) => world.double.busy_count = count,
        Happening::Monitor(is_there) => world.double.holder = is_there.then(monitor),
        Happening::Admin(which) => {
            let places = world.double.table().additions(&world.double.slots());
            if !places.is_empty() {
                world.double.make_foreign(places[which % places.len()]);
            }
        }
        Happening::AdminLeaves => world.double.destroy_foreign(),
        Happening::Dies(after) => world.double.dies_after = Some(after),
        Happening::Reboots => {
            world.double.reboot();
            world.shares.clear();
            world.boot += 1;
            world.start();
        }
        Happening::Leaves(_) | Happening::Runs(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nobody_loses_his_instance_and_in_the_end_all_is_whole(
        is_hopper in any::<bool>(),
        happenings in proptest::collection::vec(happenings(), 1..60),
    ) {
        let mut world = World::new(if is_hopper { HOPPER } else { AMPERE });
        for (job, happening) in (1..).zip(&happenings) {
            happen(&mut world, job, happening);
            world.check();
        }
        world.heal_and_empty();
    }
}
