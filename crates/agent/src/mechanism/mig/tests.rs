//! Instances come and go over a device that refuses, under an agent that dies: what must hold whatever happens, and what is said.

use super::double::{Double, Killed};
use super::record::{Record, path};
use super::*;
use crate::mechanism::admit;
use crate::mechanism::mps::{Served, settings};
use crate::share::tests::share as plain_share;
use pillion_core::device::Mechanism;
use pillion_core::share::Sharing;
use pillion_core::{Shards, UserId};
use pillion_device::mechanism::mig::{Access, Holder};
use pillion_device::{MigControl as _, MpsControl as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const AMPERE: &str = "a100-40";
const HOPPER: &str = "h100";

fn slot(text: &str) -> Slot {
    text.parse().unwrap()
}

/// A share of this instance, whose booked shards are its size's.
fn share(model: &str, job: u32, slot: Slot) -> Share {
    let sharing = Sharing::Mig { profile: slot.profile, start: slot.start };
    let shards = Geometry::of_model(model).unwrap().shards(slot.profile);
    Share { sharing, shards, uid: UserId(1000 + job), ..plain_share(job, Mechanism::TimeSliced) }
}

/// A node: its device, the agent's disk, and the agent, which is another after each death.
struct World {
    disk: tempfile::TempDir,
    double: Double,
    boot: u32,
    now: f64,
    mig: Option<Mig>,
    shares: Vec<Share>,
}

impl World {
    fn new(model: &'static str) -> Self {
        // In memory where there is such a place: each act goes through to the disk.
        let disk = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut world =
            Self { disk, double: Double::new(model), boot: 0, now: 1000.0, mig: None, shares: Vec::new() };
        world.start();
        world
    }

    /// The agent starts, from what is on disk.
    fn start(&mut self) {
        // A program that another test starts at this moment has the lock, too, until it is that program.
        self.mig = None;
        let policy = MigPolicy { is_enabled: true, may_toggle: true };
        let record = Record::open(path(self.disk.path()), &self.boot.to_string(), LOCK_PATIENCE).unwrap();
        let mut mig = Mig::with(policy, Some(record), Duration::ZERO);
        let device = self.device();
        mig.begin(&mut self.double, &[device]);
        self.mig = Some(mig);
    }

    fn device(&mut self) -> DeviceDescription {
        let geometry = Some(self.double.table().clone());
        DeviceDescription { geometry, ..self.double.devices().unwrap().remove(0) }
    }

    fn at(&self) -> UnixTime {
        UnixTime::from_seconds(self.now)
    }

    /// Does it, unless the agent dies of it; then another one starts.
    fn alive<T>(
        &mut self,
        act: impl FnOnce(&mut Mig, &mut Double, &DeviceDescription, &[Share]) -> T,
    ) -> Option<T> {
        let device = self.device();
        let Self { double, mig, shares, .. } = self;
        let mig = mig.as_mut().unwrap();
        match catch_unwind(AssertUnwindSafe(|| act(mig, double, &device, shares))) {
            Ok(done) => Some(done),
            Err(thrown) if thrown.is::<Killed>() => {
                self.start();
                None
            }
            Err(other) => resume_unwind(other),
        }
    }

    /// One comes; he has a share where he was told so.
    fn come(&mut self, share: &Share) -> Result<DeviceUuid, String> {
        let prepared = self.alive(|mig, double, device, shares| {
            admit(device, shares.iter(), share, true)?;
            let others: Vec<&Share> = shares.iter().collect();
            let name = mig.prepare(double, device, &others, share)?;
            if share.mechanism().has_daemon() {
                let served = Served::instance(device, share.sharing.mig_slot().unwrap(), name.clone());
                let settings = settings(Path::new("/run"), &served, false, &[share]);
                double.prepare(&served.place, &settings)?;
            }
            Ok(name)
        });
        let prepared = prepared.ok_or("the agent died")?.map_err(|error: MechanismError| error.to_string());
        if prepared.is_ok() {
            self.shares.push(share.clone());
        }
        prepared
    }

    fn settle(&mut self) {
        let at = self.at();
        self.now += 1.0;
        self.alive(|mig, double, device, shares| {
            mig.settle(double, std::slice::from_ref(device), (shares, &|_| false), at);
        });
    }

    fn fault(&mut self) -> Option<(FaultKind, String)> {
        let device = self.device();
        let mig = self.mig.as_ref().unwrap();
        assert!(mig.is_managed(&device));
        mig.fault(&device.gres_type).map(|fault| (fault.kind, fault.detail.clone()))
    }

    fn written(&mut self) -> record::OfDevice {
        let device = self.device();
        self.mig.as_ref().unwrap().record.as_ref().unwrap().device(&device.uuid)
    }

    /// Whether Slurm can start anybody there alone: one CUDA device with all of it, that he may open.
    fn is_whole(&self) -> bool {
        let whole = step::whole(self.double.table());
        match (self.double.mode, self.double.instances.as_slice()) {
            (MigMode::Off, []) => true,
            (MigMode::On, [only]) => {
                let way = self.double.ways.get(&only.gpu_instance_id);
                only.slot == whole && only.compute.len() == 1 && way == Some(&Access::Everybody)
            }
            _ => false,
        }
    }

    /// What holds at any moment.
    fn check(&mut self) {
        assert_eq!(self.double.wrongs, [""; 0]);
        assert_eq!(self.double.table().check(&self.double.slots()), Ok(()), "disjoint");
        let shards: u32 = self
            .double
            .slots()
            .iter()
            .map(|slot| u32::from(self.double.table().shards(slot.profile).count()))
            .sum();
        assert!(shards <= 100, "{:?}", self.double.slots());
        let device = self.device();
        for share in self.shares.clone() {
            let slot = share.sharing.mig_slot().unwrap();
            let name = self.mig.as_ref().unwrap().instance_of(&device, &share);
            let found = self.double.at(slot).unwrap_or_else(|| panic!("{slot} went before its tenant"));
            assert_eq!(found.compute.first().map(|compute| &compute.uuid), name.as_ref());
            let id = found.gpu_instance_id;
            assert_eq!(self.double.ways[&id], Access::User(share.uid), "{slot}");
            let inside = self.shares.iter().filter(|other| other.sharing.mig_slot() == Some(slot));
            let (mut booked, mut count) = (0, 0);
            for other in inside {
                assert_eq!(other.uid, share.uid, "two users in {slot}");
                (booked, count) = (booked + u32::from(other.shards.count()), count + 1);
            }
            assert!(
                booked <= u32::from(self.double.table().shards(slot.profile).count()),
                "{slot}: {booked}"
            );
            assert!(
                count == 1 || self.double.daemons.contains(name.as_ref().unwrap()),
                "{slot} has its daemon"
            );
        }
    }

    /// Nothing is in the way any more and everybody leaves.
    fn heal_and_empty(&mut self) {
        (self.double.holder, self.double.busy_count, self.double.dies_after) = (None, 0, None);
        self.double.destroy_foreign();
        self.shares.clear();
        for instance in &mut self.double.instances {
            instance.pids.clear();
        }
        for _ in 0..3 {
            self.settle();
        }
        self.check();
        assert!(self.is_whole(), "{:?} {:?}", self.double.mode, self.double.instances);
        assert!(self.double.daemons.is_empty(), "{:?}", self.double.daemons);
        let layout = self.double.layout(3).unwrap();
        let written = self.written();
        assert_eq!(written.ours.len(), layout.instances.len(), "{written:?}");
        assert!(written.ours.iter().all(|ours| ours.find(&layout).is_some() && ours.tenant.is_none()));
    }
}

#[test]
fn an_empty_device_is_whole_before_and_after_its_tenants() {
    for model in [AMPERE, HOPPER] {
        let mut world = World::new(model);
        world.settle();
        assert!(world.is_whole(), "an Ampere rests in one instance");
        let small = step::whole(world.double.table());
        let all: Vec<Slot> = world
            .double
            .table()
            .additions(&[])
            .into_iter()
            .filter(|slot| slot.profile < small.profile && slot.profile.compute_slices() == 1)
            .collect();
        assert_eq!(all.len(), 7);
        for (job, slot) in (1..).zip(&all) {
            let name = world.come(&share(model, job, *slot)).unwrap();
            assert!(name.as_str().starts_with("MIG-"));
            world.check();
        }
        world.settle();
        world.check();
        for _ in 0..7 {
            world.shares.pop();
            world.settle();
            world.check();
        }
        assert!(world.is_whole(), "{model}: {:?}", world.double.instances);
        assert_eq!(world.double.mode == MigMode::Off, model == HOPPER);
        world.heal_and_empty();
    }
}

/// Three come, one goes, another comes in his place, all go: with the agent dead after each edge of each of its calls once.
#[test]
fn wherever_the_agent_dies_the_next_one_goes_on() {
    for model in [AMPERE, HOPPER] {
        let sizes = if model == HOPPER {
            ["3g.40gb@4", "2g.20gb@0", "1g.10gb@2"]
        } else {
            ["3g.20gb@4", "2g.10gb@0", "1g.5gb@2"]
        };
        let mut death_count = 0;
        for dies_after in 0.. {
            let mut world = World::new(model);
            world.double.dies_after = Some(dies_after);
            for (job, size) in (1..).zip(sizes) {
                let share = share(model, job, slot(size));
                // The scheduler asks again where it was not answered.
                if world.come(&share).is_err() {
                    world.settle();
                    world.come(&share).unwrap();
                }
                world.check();
            }
            world.shares.remove(1);
            world.settle();
            // One that died of it has not closed all ways yet.
            world.settle();
            world.check();
            let again = share(model, 4, slot(sizes[1]));
            if world.come(&again).is_err() {
                world.come(&again).unwrap();
            }
            world.settle();
            world.check();
            world.shares.clear();
            world.settle();
            world.settle();
            assert!(world.is_whole(), "{model}, dead after {dies_after}: {:?}", world.double.instances);
            let has_died = world.double.dies_after.is_none();
            world.heal_and_empty();
            if !has_died {
                break;
            }
            death_count += 1;
        }
        assert!(death_count > 30, "{death_count} edges");
    }
}

fn monitor() -> Holder {
    Holder {
        pid: 77,
        uid: UserId(0),
        program: "nv-hostengine".into(),
        file: "/dev/nvidia3".into(),
        gpu_instance_ids: BTreeSet::new(),
    }
}

#[test]
fn what_stands_empty_on_a_held_device_can_be_given_away_where_nobody_has_it_open() {
    let mut world = World::new(HOPPER);
    let places = ["1g.10gb@0", "1g.10gb@1"].map(slot);
    for (job, slot) in (1..).zip(places) {
        world.come(&share(HOPPER, job, slot)).unwrap();
    }
    let ids = places.map(|place| world.double.at(place).unwrap().gpu_instance_id);
    world.double.holder = Some(monitor());
    world.shares.remove(0);
    let empty = |world: &World| world.mig.as_ref().unwrap().instances_empty(&GresType::new("g3")).to_vec();
    for _ in 0..5 {
        world.settle();
        assert_eq!(empty(&world), [], "it may pass by itself");
    }
    world.settle();
    assert_eq!(empty(&world), [places[0]]);
    // A program of the one who had it still has a way in, though it computes nothing.
    let left_over = Holder { uid: UserId(1001), gpu_instance_ids: [ids[0]].into(), pid: 78, ..monitor() };
    world.double.holder = Some(left_over.clone());
    world.settle();
    assert_eq!(empty(&world), []);
    let refused = world.come(&share(HOPPER, 3, places[0])).unwrap_err();
    assert_eq!(
        refused,
        "device g3 cannot be cut so: process 78 of another user has a file of 1g.10gb@0 open"
    );
    world.double.holder = Some(Holder { gpu_instance_ids: [ids[1]].into(), ..left_over });
    world.settle();
    assert_eq!(empty(&world), [places[0]], "it is in another one");
    let names = world.double.at(places[0]).unwrap().compute.clone();
    assert_eq!(world.come(&share(HOPPER, 3, places[0])).as_ref(), Ok(&names[0].uuid));
    world.check();
    world.settle();
    assert_eq!((world.fault(), empty(&world)), (None, vec![]), "nothing is to go any more");
    world.heal_and_empty();
}

#[test]
fn what_is_refused_for_seconds_is_held_and_names_who_holds_it() {
    let mut world = World::new(HOPPER);
    let tenants = ["1g.10gb@0", "1g.10gb@1"].map(slot);
    for (job, slot) in (1..).zip(tenants) {
        world.come(&share(HOPPER, job, slot)).unwrap();
    }
    world.double.holder = Some(monitor());
    world.shares.remove(0);
    for _ in 0..5 {
        world.settle();
        assert_eq!(world.fault(), None, "it may pass by itself");
        assert_eq!(world.double.holders_count, 0, "and nobody looks for who holds it");
        world.check();
    }
    world.settle();
    let (kind, detail) = world.fault().unwrap();
    assert_eq!(kind, FaultKind::Held);
    assert_eq!(detail, "1g.10gb@0 is not given up; held by nv-hostengine (process 77, /dev/nvidia3)");
    let held = world.double.at(tenants[0]).unwrap().gpu_instance_id;
    assert_eq!(world.double.ways[&held], Access::User(UserId(1001)), "one that stays is whose it was");
    world.check();
    world.double.holder = None;
    world.settle();
    assert_eq!(world.fault(), None);
    assert_eq!(world.double.slots(), [tenants[1]], "who is there stays");
    world.heal_and_empty();
}

#[test]
fn where_mig_cannot_be_turned_off_the_device_rests_in_one_instance() {
    let mut world = World::new(HOPPER);
    world.come(&share(HOPPER, 1, slot("3g.40gb@0"))).unwrap();
    world.shares.clear();
    // Lets instances go, and not the mode.
    world.settle();
    assert_eq!(world.double.mode, MigMode::Off);
    world.come(&share(HOPPER, 2, slot("3g.40gb@0"))).unwrap();
    let device = world.device();
    let own = world.double.at(slot("3g.40gb@0")).unwrap().gpu_instance_id;
    world.double.destroy(3, own).unwrap();
    world.double.holder = Some(monitor());
    world.shares.clear();
    world.settle();
    assert!(world.is_whole() && world.double.mode == MigMode::On, "{:?}", world.double.instances);
    assert_eq!(world.fault(), None, "there is nothing wrong with it");
    world.settle();
    assert!(world.is_whole(), "and it stays so");
    // One who shares it by MPS needs it off.
    let refused = world
        .alive(|mig, double, device, _| mig.make_whole(double, device, Rest::Off, Instant::now()))
        .unwrap();
    assert!(refused.unwrap_err().to_string().contains("held by nv-hostengine (process 77"));
    assert!(world.is_whole(), "as it was, and open to everybody: {:?}", world.double.ways);
    world.settle();
    assert!(world.is_whole(), "{:?}", world.double.instances);
    world.double.holder = None;
    world.mig.as_mut().unwrap().make_whole(&mut world.double, &device, Rest::Off, Instant::now()).unwrap();
    assert_eq!(world.double.mode, MigMode::Off);
    world.heal_and_empty();
}

#[test]
fn what_somebody_else_made_is_not_touched_and_closes_the_device() {
    for model in [AMPERE, HOPPER] {
        let mut world = World::new(model);
        world.double.mode = MigMode::On;
        let smallest = Slot { start: 3, ..*world.double.table().additions(&[]).last().unwrap() };
        assert!(world.double.make_foreign(smallest));
        world.settle();
        let (kind, detail) = world.fault().unwrap();
        assert_eq!((kind, detail), (FaultKind::Divided, format!("somebody else has cut it: {smallest}")));
        let refused = world.come(&share(model, 1, Slot { start: 0, ..smallest })).unwrap_err();
        assert!(refused.contains("somebody else has cut it"), "{refused}");
        assert_eq!(world.double.slots(), [smallest]);
        world.double.destroy_foreign();
        world.settle();
        assert_eq!(world.fault(), None);
        assert!(world.is_whole());
        // By its UUID alone one of his is told from one of ours at the same place.
        let whole = step::whole(world.double.table());
        world.double.instances.clear();
        assert!(world.double.make_foreign(whole));
        world.settle();
        assert_eq!(world.fault().unwrap().0, FaultKind::Divided);
        world.heal_and_empty();
    }
}

#[test]
fn who_was_in_an_instance_before_it_was_closed_keeps_its_tenant_out() {
    let mut world = World::new(AMPERE);
    let place = slot("1g.5gb@0");
    world.come(&share(AMPERE, 1, place)).unwrap();
    world.double.at(place).unwrap().pids = vec![99];
    world.come(&share(AMPERE, 1, place)).unwrap();
    world.shares.clear();
    let refused = world.come(&share(AMPERE, 2, place)).unwrap_err();
    assert_eq!(refused, "device g3 cannot be cut so: somebody is in 1g.5gb@0 still");
    world.heal_and_empty();
}

#[test]
fn who_may_come_and_who_may_not_is_said_in_a_sentence() {
    let mut world = World::new(HOPPER);
    let device = world.device();
    let tenant = share(HOPPER, 1, slot("3g.40gb@0"));
    let says = |device: &DeviceDescription, others: &[Share], share: &Share| {
        admit(device, others.iter(), share, true).unwrap_err().to_string()
    };
    let uncut = DeviceDescription { geometry: None, ..device.clone() };
    assert_eq!(
        says(&uncut, &[], &tenant),
        "device g3 cannot be cut so: it is not offered for that on this node ([agent.mig])"
    );
    let other_size = Share { shards: Shards::try_new(50).unwrap(), ..tenant.clone() };
    assert_eq!(
        says(&device, &[], &other_size),
        "an instance of 3g.40gb is 42 shards of its device, and 50 are booked"
    );
    let beside = share(HOPPER, 2, slot("1g.10gb@3"));
    assert_eq!(
        says(&device, std::slice::from_ref(&tenant), &beside),
        "device g3 cannot be cut so: 3g.40gb at 0 and 1g.10gb at 3 take the same memory slice"
    );
    let mps = plain_share(3, Mechanism::Mps);
    assert_eq!(
        says(&device, std::slice::from_ref(&mps), &tenant),
        "start 3+0 holds device g3 by mps; mig is possible when it has ended"
    );
    assert_eq!(
        says(&device, std::slice::from_ref(&tenant), &mps),
        "start 1+0 holds device g3 by mig; mps is possible when it has ended"
    );
}

#[test]
fn an_epilog_without_an_agent_leaves_the_device_whole_or_says_why_not() {
    for model in [AMPERE, HOPPER] {
        let mut world = World::new(model);
        for (job, start) in [(1, 0), (2, 1)] {
            let smallest = *world.double.table().additions(&[]).last().unwrap();
            world.come(&share(model, job, Slot { start, ..smallest })).unwrap();
        }
        let device = world.device();
        let clear = |world: &mut World, stay: &[Share]| {
            world.mig = None;
            let record = Record::open(path(world.disk.path()), "0", LOCK_PATIENCE).unwrap();
            orphans::clear(&mut world.double, record, std::slice::from_ref(&device), stay)
        };
        let stay = world.shares.split_off(1);
        assert_eq!(clear(&mut world, &stay), []);
        assert_eq!(world.double.slots(), [stay[0].sharing.mig_slot().unwrap()], "who is there stays");
        world.double.holder = Some(monitor());
        let left = clear(&mut world, &[]);
        assert!(
            left[0].is_empty
                && left[0].why.starts_with("device g3 (GPU-3) is not whole: ")
                && left[0].why.contains("nv-hostengine"),
            "{left:?}"
        );
        world.double.holder = None;
        assert_eq!(clear(&mut world, &[]), []);
        assert!(world.is_whole());
        world.start();
        world.heal_and_empty();
    }
}

mod together;
mod trials;
