//! What the agent makes of a refusal that does not pass: from the tenant's leaving to what the scheduler is told, over the library as an
//! agent loads it, with its clock; and with one that is played, of the refusals that the cycles meet. Six seconds at most, and whoever
//! is in the way by name.

use super::node::{Node, Program};
use pillion_agent::config::BackendKind;
use pillion_agent::health::Health;
use pillion_agent::inventory::{self, Site};
use pillion_agent::mechanism::mig::announce::Announcer;
use pillion_agent::mechanism::mig::record::{Made, OfDevice, Ours, Record, Tenant, path};
use pillion_agent::mechanism::mig::{Mig, MigPolicy, PATIENCE};
use pillion_core::device::{DeviceDescription, Reading};
use pillion_core::health::{DeviceCondition, DeviceFault, FaultKind};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::share::{Share, Sharing};
use pillion_core::{Clock as _, DecisionId, JobStart, SlurmJobId, SystemClock, UnixTime, UserId};
use pillion_device::mechanism::mig::Instance;
use pillion_device::nvidia::Nvidia;
use pillion_device::{Backend as _, DeviceState, MigControl as _};
use serde_json::json;
use std::time::Duration;

/// From one look of the agent to the next.
const LOOK: Duration = Duration::from_secs(1);
/// How long a refusal may last until it is told.
const HELD_WITHIN_SECONDS: f64 = 6.0;
const START: JobStart = JobStart { job_id: SlurmJobId::plain(33), restart_count: 0 };

/// Who keeps an instance from being given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InTheWay {
    /// A program of the tenant, that outlives its job.
    LeftOver,
    /// What has the device open, and is on no list of the driver's.
    Monitor,
}

/// An agent's part that cuts, with the device that it cuts.
struct Agent {
    nvidia: Nvidia,
    mig: Mig,
    health: Health,
    device: DeviceDescription,
    _disk: tempfile::TempDir,
}

impl Agent {
    fn start(node: &Node) -> Self {
        let mut agent = Self::that_knows(node, OfDevice::default());
        agent.look(&[]);
        agent
    }

    /// One that begins where another has stopped: so much of the device is ours.
    fn that_knows(node: &Node, of_device: OfDevice) -> Self {
        let disk = tempfile::tempdir().unwrap();
        let policy = MigPolicy { is_enabled: true, may_toggle: true };
        let path = path(disk.path());
        let mut nvidia = node.cutter();
        let mut record = Record::open(path.clone(), "boot", Duration::from_secs(6)).unwrap();
        record.put(&nvidia.devices().unwrap()[0].uuid, of_device).unwrap();
        let instances = Announcer { policy, record: path, boot_id: "boot".to_owned() };
        let backend = BackendKind::Nvidia;
        let site = Site { backend, gres_type: Box::new(|_| None), instances };
        let device = inventory::ask(&mut nvidia, &site).unwrap().remove(0);
        let mut mig = Mig::with(policy, Some(record), PATIENCE);
        mig.begin(&mut nvidia, std::slice::from_ref(&device));
        let mut health = Health::new(std::slice::from_ref(&device));
        let idle = DeviceState { reading: Reading::default(), processes: Vec::new() };
        health.sampled(SystemClock.now(), Ok(&vec![(device.index, Ok(idle))]));
        Self { nvidia, mig, health, device, _disk: disk }
    }

    /// What is told of the device after a look.
    fn look(&mut self, shares: &[Share]) -> DeviceCondition {
        self.look_at(SystemClock.now(), shares)
    }

    fn look_at(&mut self, now: UnixTime, shares: &[Share]) -> DeviceCondition {
        let Self { nvidia, mig, health, device, _disk } = self;
        mig.settle(nvidia, std::slice::from_ref(device), (shares, &|_| false), now);
        let (fault, empty) = (mig.fault(&device.gres_type), mig.instances_empty(&device.gres_type));
        health.cut(device.index, fault, empty);
        health.conditions().remove(0)
    }

    fn share(&self, slot: Slot) -> Share {
        Share {
            decision_id: DecisionId(7),
            start: START,
            uid: UserId(1001),
            gres_types: self.device.gres_type.clone().into(),
            sharing: Sharing::Mig { profile: slot.profile, start: slot.start },
            shards: self.device.geometry.as_ref().unwrap().shards(slot.profile),
            memory_bytes: None,
            is_session: false,
            is_plain: false,
        }
    }
}

/// What is told first of the only instance of a device, which was this user's and is not given up, and in which second after the first look;
/// nothing if nothing is in time.
pub(super) fn told(node: &Node, instance: &Instance, owner: UserId) -> Option<(u32, DeviceFault)> {
    let Instance { slot, gpu_instance_id, compute, .. } = instance.clone();
    let made = Made { uuid: compute[0].uuid.clone(), gpu_instance_id };
    let tenant = Some(Tenant { start: START, uid: owner });
    let ours = Ours { slot, made: Some(made), is_leaving: false, tenant };
    // As if MIG had been turned on for it: in one that is all of the device it would rest otherwise, whoever has it open.
    let mut agent = Agent::that_knows(node, OfDevice { is_mode_ours: true, ours: vec![ours] });
    let begun = SystemClock.now().seconds();
    (0..).take_while(|second| f64::from(*second) < HELD_WITHIN_SECONDS).find_map(|second| {
        let told = agent.look_at(UnixTime::from_seconds(begun + f64::from(second)), &[]);
        told.faults.into_iter().next().map(|fault| (second, fault))
    })
}

#[test]
fn mig_that_is_refused_is_told_as_held_within_six_seconds_with_who_is_in_the_way() {
    std::thread::scope(|scope| {
        for model in ["h100", "a100-40"] {
            for in_the_way in [InTheWay::LeftOver, InTheWay::Monitor] {
                scope.spawn(move || held(model, in_the_way));
            }
        }
    });
}

fn held(model: &str, in_the_way: InTheWay) {
    let mut node = Node::start(model);
    let mut agent = Agent::start(&node);
    let smallest = Geometry::of_model(model).unwrap().plain().last().unwrap().profile;
    let slot = Slot { profile: smallest, start: 3 };
    let share = agent.share(slot);
    let device = agent.device.clone();
    agent.mig.prepare(&mut agent.nvidia, &device, &[], &share).unwrap();
    assert_eq!(agent.look(std::slice::from_ref(&share)).faults, []);
    let id = agent.nvidia.layout(0).unwrap().instances[0].gpu_instance_id;
    let program = match in_the_way {
        InTheWay::LeftOver => Program::with(&node.capability(id, Some(0))),
        InTheWay::Monitor => {
            node.set("destroy_stuck", json!([{ "index": 0, "start": slot.start }]));
            Program::with(&node.device_file())
        }
    };
    let left_at = SystemClock.now();
    let mut due = Duration::ZERO;
    let told = loop {
        let condition = agent.look(&[]);
        if !condition.faults.is_empty() {
            break condition;
        }
        // However long a look takes, the next one is due when it would be.
        due += LOOK;
        let elapsed = Duration::from_secs_f64(SystemClock.now().seconds_since(left_at));
        std::thread::sleep(due.saturating_sub(elapsed));
    };
    let seconds = SystemClock.now().seconds_since(left_at);
    assert!((4.5..HELD_WITHIN_SECONDS).contains(&seconds), "{model}, {in_the_way:?}: after {seconds} s");
    let [fault] = told.faults.as_slice() else { panic!("{told:?}") };
    assert_eq!(fault.kind, FaultKind::Held);
    let named = format!("{slot} is not given up; held by sleep (process {}, ", program.pid());
    assert!(fault.detail.starts_with(&named), "{model}, {in_the_way:?}: {fault}");
    // Nobody is in it any more: whoever comes may have it as it stands.
    let expected: &[Slot] = if in_the_way == InTheWay::Monitor { &[slot] } else { &[] };
    assert_eq!(told.instances_empty, expected, "{model}, {in_the_way:?}");
    println!("{:14} {:36} read held after {seconds:.2} s on {model}: {}", "mig", "refusal", fault.detail);
    drop(program);
    node.set("destroy_stuck", json!([]));
    let over = agent.look(&[]);
    assert_eq!((over.faults, over.instances_empty), (vec![], vec![]), "{model}, {in_the_way:?}");
}
