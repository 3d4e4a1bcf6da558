//! A thousand times a device is cut, given to users, used and made whole again, over the library as an agent loads it. What is drawn
//! stands with the seed (`SEED=.. tests/run hardware mig` draws others), and nothing may be left: no instance, no file that is a
//! user's, no program, no open file of ours. Refusals are injected, and each is answered at once and with whom it is due to; where nothing
//! else is on the device, an agent whose instance it was tells that it is held, and by whom, before six seconds of its clock are over.

mod held;
mod node;

use node::{Node, Program, destroy_in_the_end};
use pillion_core::UserId;
use pillion_core::health::FaultKind;
use pillion_core::mig::{Geometry, Slot};
use pillion_device::mechanism::mig::{Access, Instance, MigMode};
use pillion_device::nvidia::Nvidia;
use pillion_device::{DeviceError, MigControl as _};
use pillion_tests::wait::{Look, now, wait_for};
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::time::Duration;

/// Of all models together.
const CYCLES: usize = 1_000;
const SEED: u64 = 18;
/// How long a process that begins may be a copy of this one, on a machine that has other things to do.
const COPY_LIFE_MAX: Duration = Duration::from_secs(5);
/// A refusal is an answer, not a wait: an agent retries for five seconds and has one more to say who it was.
const AT_ONCE: Duration = Duration::from_secs(1);

/// One device under test, with what cuts it.
struct Bench {
    node: Node,
    nvidia: Nvidia,
    geometry: Geometry,
    /// Whether its mode changes without a reset.
    is_resetless: bool,
    rng: ChaCha8Rng,
    seen: Seen,
}

/// What has happened in all cycles: a test that meets nothing shows nothing.
#[derive(Debug, Default)]
struct Seen {
    instances: usize,
    tenants: usize,
    restarts: usize,
    half_made: usize,
    refusals: usize,
    /// Those that an agent told of.
    held: usize,
    slowest_refusal: Duration,
}

/// An instance that was made, with who is in it.
struct Cut {
    instance: Instance,
    owner: UserId,
    tenants: Vec<Program>,
}

#[test]
fn mig_leaves_nothing_behind_and_names_who_is_in_the_way() {
    let seed = std::env::var("SEED").ok().map_or(SEED, |text| text.parse().unwrap());
    println!("SEED={seed}");
    let models = [("h100", true), ("a100-40", false)];
    std::thread::scope(|scope| {
        for (model, is_resetless) in models {
            scope.spawn(move || {
                let mut bench = Bench::start(model, is_resetless, seed);
                for cycle in 0..CYCLES / models.len() {
                    bench.cycle(&format!("{model}, cycle {cycle}, seed {seed}"));
                }
                bench.seen.check(model);
            });
        }
    });
}

impl Seen {
    fn check(&self, model: &str) {
        let Self { instances, tenants, restarts, half_made, refusals, held, slowest_refusal } = self;
        println!(
            "{:14} {:36} read {instances} instances of {model}, {tenants} tenants, {restarts} agents, {half_made} half made, \
             {refusals} refusals, {held} of them told as held, the slowest after {slowest_refusal:?}",
            "mig", "cycles"
        );
        assert!(
            [instances, tenants, restarts, half_made, refusals, held].iter().all(|count| **count > 20),
            "{self:?}"
        );
    }
}

impl Bench {
    fn start(model: &str, is_resetless: bool, seed: u64) -> Self {
        let node = Node::start(model);
        let mut nvidia = node.cutter();
        let geometry = nvidia.geometry(0).unwrap();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bench = Self { node, nvidia, geometry, is_resetless, rng, seen: Seen::default() };
        bench.rest_whole();
        bench
    }

    /// From a whole device to a whole device.
    fn cycle(&mut self, title: &str) {
        self.leave_rest();
        self.node.set("destroy_busy_ms", json!([0, 0, 3].choose(&mut self.rng)));
        let sets = self.geometry.sets(&[]);
        let slots = sets.choose(&mut self.rng).unwrap().clone();
        let mut cuts: Vec<Cut> = slots.iter().map(|slot| self.cut(*slot)).collect();
        self.expect_layout(&cuts, title);
        if self.rng.random_bool(0.2) {
            // The agent is killed and started again: what it made is there.
            self.nvidia = self.node.cutter();
            self.seen.restarts += 1;
            self.expect_layout(&cuts, title);
        }
        self.expect_no_room(&slots);
        cuts.shuffle(&mut self.rng);
        let stuck = self.rng.random_bool(0.1).then(|| cuts.len() - 1);
        for (place, cut) in cuts.into_iter().enumerate() {
            self.fuse(cut, stuck == Some(place), title);
        }
        self.rest_whole();
        self.expect_nothing_left(title);
    }

    /// Makes an instance and lets a user's programs in.
    fn cut(&mut self, slot: Slot) -> Cut {
        if self.rng.random_bool(0.1) {
            self.node.set("not_permitted", json!(["nvmlGpuInstanceCreateComputeInstance"]));
            let error = self.nvidia.make(0, slot).unwrap_err();
            assert!(matches!(error, DeviceError::Refused { .. }), "{error}");
            self.node.set("not_permitted", json!([]));
            self.seen.half_made += 1;
        }
        let instance = self.nvidia.make(0, slot).unwrap();
        let owner = UserId(self.rng.random_range(1001..1004));
        self.nvidia.give(0, &[(instance.clone(), Access::User(owner))]).unwrap();
        let way = self.node.capability(instance.gpu_instance_id, Some(instance.compute[0].id));
        let count = [0, 0, 0, 1, 1, 2].choose(&mut self.rng).copied().unwrap_or_default();
        let tenants: Vec<Program> = (0..count).map(|_| Program::with(&way)).collect();
        self.seen.instances += 1;
        self.seen.tenants += tenants.len();
        Cut { instance, owner, tenants }
    }

    /// What the driver shows is what was made, each with its own tenants and nobody else's.
    fn expect_layout(&mut self, cuts: &[Cut], title: &str) {
        let mut expected: Vec<Instance> = cuts
            .iter()
            .map(|cut| {
                let mut pids: Vec<u32> = cut.tenants.iter().map(Program::pid).collect();
                pids.sort_unstable();
                Instance { pids, ..cut.instance.clone() }
            })
            .collect();
        expected.sort_by_key(|instance| instance.slot.start);
        // A process that another thread begins is a copy of this one, with all its files, until it is its own program.
        wait_for(title, COPY_LIFE_MAX, || {
            let layout = self.nvidia.layout(0).unwrap();
            assert_eq!(layout.mode, MigMode::On, "{title}");
            let is_it = layout.instances == expected;
            let seen = || format!("{:?}, and not {expected:?}", layout.instances);
            Ok(if is_it { Look::Ready(()) } else { Look::NotYet(seen()) })
        })
        .unwrap();
    }

    /// Where one lies no other is made, and what is refused changes nothing.
    fn expect_no_room(&mut self, slots: &[Slot]) {
        let taken = slots.choose(&mut self.rng).unwrap();
        let error = self.nvidia.make(0, *taken).unwrap_err();
        assert!(matches!(error, DeviceError::Busy { .. }), "{taken}: {error}");
    }

    /// Ends the tenants of an instance and takes it away.
    fn fuse(&mut self, cut: Cut, is_stuck: bool, title: &str) {
        let Cut { instance, owner, tenants } = cut;
        let id = instance.gpu_instance_id;
        if let Some(tenant) = tenants.first() {
            self.expect_refusal(&instance, owner, tenant.pid(), title);
        }
        drop(tenants);
        if is_stuck {
            self.node.set("destroy_stuck", json!([{ "index": 0, "start": instance.slot.start }]));
            // Such as what reads meters: the driver lists it nowhere.
            let whose = [self.node.device_file(), self.node.capability(id, None)];
            let reader = Program::with(whose.choose(&mut self.rng).unwrap());
            self.expect_refusal(&instance, owner, reader.pid(), title);
            self.node.set("destroy_stuck", json!([]));
        }
        destroy_in_the_end(&mut self.nvidia, id);
    }

    /// One refusal: told at once as one that may pass, with who has it open, and the instance is left as it was. Whether it passes is for
    /// the agent to wait for: what holds it at the end of its wait is what is named here.
    fn expect_refusal(&mut self, instance: &Instance, owner: UserId, holder: u32, title: &str) {
        let begun = now();
        let error = self.nvidia.destroy(0, instance.gpu_instance_id).unwrap_err();
        let holders = self.nvidia.holders(0).unwrap();
        let took = begun.elapsed();
        assert!(
            matches!(error, DeviceError::Busy { index: 0, .. }) && error.is_transient(),
            "{title}: {error}"
        );
        let named = holders.iter().find(|it| it.pid == holder);
        assert_eq!(named.map(|it| it.program.as_str()), Some("sleep"), "{title}: {holders:?}");
        assert!(took < AT_ONCE, "{title}: {took:?}");
        if self.nvidia.layout(0).unwrap().instances.len() == 1 {
            self.expect_held(instance, owner, holder, title);
        }
        let there = self.nvidia.layout(0).unwrap().instances;
        assert!(there.iter().any(|it| it.gpu_instance_id == instance.gpu_instance_id), "{title}");
        let own = self.node.capability(instance.gpu_instance_id, None);
        let access = self.node.accesses().into_iter().find(|(path, _, _)| *path == own);
        assert_eq!(access, Some((own, owner.0, 0o400)), "{title}: it is still his");
        self.seen.refusals += 1;
        self.seen.slowest_refusal = self.seen.slowest_refusal.max(took);
    }

    /// To an agent it may pass by itself at first, and then it is told of.
    fn expect_held(&mut self, instance: &Instance, owner: UserId, holder: u32, title: &str) {
        let (second, fault) =
            held::told(&self.node, instance, owner).unwrap_or_else(|| panic!("{title}: nothing is told"));
        assert!(second > 0, "{title}: at once: {fault}");
        assert_eq!(fault.kind, FaultKind::Held, "{title}: {fault}");
        let what = format!("{} is not given up; held by ", instance.slot);
        let whom = format!("sleep (process {holder}, ");
        assert!(fault.detail.starts_with(&what) && fault.detail.contains(&whom), "{title}: {fault}");
        self.seen.held += 1;
    }

    /// An empty device is one that CUDA sees whole: an instance of all of it, or no MIG at all.
    fn rest_whole(&mut self) {
        if self.is_resetless && self.rng.random_bool(0.5) {
            self.nvidia.set_mode(0, false).unwrap();
        } else {
            let whole = Slot { profile: self.geometry.whole().profile, start: 0 };
            self.nvidia.make(0, whole).unwrap();
        }
    }

    fn leave_rest(&mut self) {
        if self.nvidia.layout(0).unwrap().mode == MigMode::Off {
            self.nvidia.set_mode(0, true).unwrap();
        }
        for instance in self.nvidia.layout(0).unwrap().instances {
            self.nvidia.destroy(0, instance.gpu_instance_id).unwrap();
        }
    }

    fn expect_nothing_left(&mut self, title: &str) {
        let instances = self.nvidia.layout(0).unwrap().instances;
        let whole = self.geometry.whole().profile;
        assert!(
            instances.iter().all(|it| it.slot.profile == whole && it.pids.is_empty()),
            "{title}: {instances:?}"
        );
        let mut ways: Vec<_> =
            instances.iter().map(|it| self.node.capability(it.gpu_instance_id, None)).collect();
        ways.extend(instances.iter().map(|it| self.node.capability(it.gpu_instance_id, Some(0))));
        for (path, uid, mode) in self.node.accesses() {
            let expected = if ways.contains(&path) { 0o444 } else { 0o400 };
            assert_eq!((uid, mode), (0, expected), "{title}: {}", path.display());
        }
        assert_eq!(self.nvidia.holders(0).unwrap(), [], "{title}");
        let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open: Vec<_> = own
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|path| path.starts_with(self.node.path().join("files")))
            .collect();
        assert!(open.is_empty(), "{title}: {open:?}");
    }
}
