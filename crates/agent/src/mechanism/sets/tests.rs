//! Devices that one daemon serves together, over simulated ones, which have no second daemon.

use crate::mechanism::{Mechanisms, MpsPolicy};
use crate::share::tests::share;
use crate::share::{SharePaths, environment};
use pillion_core::device::{DeviceDescription, Mechanism};
use pillion_core::share::Share;
use pillion_core::{GresType, Shards, UserId};
use pillion_device::simulated::{AttachRequest, ClientId, InProcess, Machine, MachineConfig};
use pillion_device::{Backend as _, MpsControl, MpsPlace};
use std::sync::{Arc, Mutex};

const ALICE: UserId = UserId(1000);

/// A node of three devices and what carries its mechanisms.
struct Scene {
    directory: tempfile::TempDir,
    machine: Arc<Mutex<Machine>>,
    driver: InProcess,
    devices: Vec<DeviceDescription>,
    mechanisms: Mechanisms,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::new(&MachineConfig::plain("n1", "h200", 3)).unwrap();
        let machine = Arc::new(Mutex::new(machine));
        let mut driver = InProcess::new(Arc::clone(&machine));
        let devices = driver.devices().unwrap();
        let mechanisms = Mechanisms::new(directory.path(), MpsPolicy::default(), &devices, &[]);
        let mut scene = Self { directory, machine, driver, devices, mechanisms };
        scene.settle(&[]);
        scene
    }

    /// Another agent takes over, which knows of these shares.
    fn restart(&mut self, shares: &[Share]) {
        self.mechanisms = Mechanisms::new(self.directory.path(), MpsPolicy::default(), &self.devices, shares);
    }

    fn settle(&mut self, shares: &[Share]) {
        self.mechanisms.settle(&mut self.driver, &self.devices, shares);
    }

    fn devices_of(&self, share: &Share) -> Vec<DeviceDescription> {
        let find =
            |own: &GresType| self.devices.iter().find(|device| device.gres_type == *own).unwrap().clone();
        share.gres_types.iter().map(find).collect()
    }

    fn prepare(&mut self, share: &Share, others: &[Share]) -> Result<(), String> {
        let devices = self.devices_of(share);
        let prepared = self.mechanisms.prepare(&mut self.driver, &devices, others.iter(), share);
        prepared.map(drop).map_err(|error| pillion_core::report(&error))
    }

    fn leaves(&mut self, share: &Share, remaining: &[Share]) {
        self.mechanisms.left(&share.gres_types, Mechanism::Mps, remaining.iter());
    }

    fn sets(&mut self) -> Vec<MpsPlace> {
        MpsControl::sets(&mut self.driver).unwrap()
    }

    /// Whether the device has a daemon of its own.
    fn has_own_daemon(&mut self, index: u32) -> bool {
        MpsControl::status(&mut self.driver, &MpsPlace::device(index)).unwrap().is_some()
    }

    /// A process of a tenant on the device that it sees under this number.
    fn client(&self, share: &Share, number: &str) -> ClientId {
        let paths = SharePaths {
            progress: None,
            mps_pipe_directory: (self.mechanisms.mps_pipe_finder())(share),
            mps_partition: None,
            instance: None,
        };
        let mut set: std::collections::BTreeMap<String, String> =
            environment(share, &self.devices_of(share), &paths).into_iter().collect();
        set.insert("CUDA_VISIBLE_DEVICES".to_owned(), number.to_owned());
        let request = AttachRequest {
            workload: "gemm-hog".to_owned(),
            memory_bytes: Some(1 << 30),
            environment: set,
            ..AttachRequest::default()
        };
        self.machine.lock().unwrap().attach(&request, 7, ALICE).unwrap()
    }
}

fn of(job: u32, devices: &str) -> Share {
    let free = share(job, Mechanism::Mps);
    let sharing = free.sharing.limited_to(Some(8 << 30));
    Share { gres_types: devices.parse().unwrap(), shards: Shards::try_new(50).unwrap(), sharing, ..free }
}

fn both() -> MpsPlace {
    MpsPlace::set(0, vec![1])
}

#[test]
fn a_daemon_of_several_comes_with_the_first_tenant_and_goes_with_the_last() {
    let mut scene = Scene::new();
    let (first, second) = (of(1, "g0,g1"), of(2, "g0,g1"));
    scene.prepare(&first, &[]).unwrap();
    scene.prepare(&first, &[]).expect("it is set up");
    scene.prepare(&second, std::slice::from_ref(&first)).unwrap();
    assert_eq!(scene.sets(), [both()]);
    let pipe = (scene.mechanisms.mps_pipe_finder())(&second);
    assert!(pipe.ends_with("mps/g0+g1/pipe") && pipe.is_dir(), "{}", pipe.display());
    let clients = [scene.client(&first, "0,1"), scene.client(&second, "1,0")];
    let tenants = [0, 1].map(|index| scene.machine.lock().unwrap().tenants(index).unwrap());
    for of_device in &tenants {
        assert!(of_device.iter().all(|tenant| tenant.memory_bytes_max == Some(8 << 30)), "{tenants:?}");
        assert_eq!(of_device.len(), 1, "{tenants:?}");
    }
    scene.leaves(&first, std::slice::from_ref(&second));
    scene.settle(std::slice::from_ref(&second));
    scene.leaves(&second, &[]);
    scene.settle(&[]);
    assert_eq!(scene.sets(), [both()], "it has clients still");
    for client in clients {
        scene.machine.lock().unwrap().detach(client);
    }
    scene.settle(&[]);
    assert_eq!(scene.sets(), []);
}

#[test]
fn who_joins_a_set_has_just_its_devices() {
    let mut scene = Scene::new();
    let host = of(1, "g0,g1");
    scene.prepare(&host, &[]).unwrap();
    for (devices, of_device) in [("g0", "g0"), ("g1", "g1"), ("g1,g2", "g1"), ("g1,g0", "g1")] {
        let refused = scene.prepare(&of(2, devices), std::slice::from_ref(&host)).unwrap_err();
        let expected = format!(
            "start 1+0 shares device {of_device} as one of g0,g1, and who joins there has just these; {devices} is possible when it \
             has ended"
        );
        assert_eq!(refused, expected);
    }
    let other = Share { uid: UserId(1001), ..of(2, "g0,g1") };
    let refused = scene.prepare(&other, std::slice::from_ref(&host)).unwrap_err();
    assert!(refused.contains("serves another user"), "{refused}");
    assert_eq!(scene.sets(), [both()], "nothing has changed for who is there");
    let alone = of(3, "g2");
    scene.prepare(&alone, &[]).unwrap();
    let refused = scene.prepare(&of(4, "g2,g1"), &[host, alone]).unwrap_err();
    assert!(refused.starts_with("start 3+0 shares device g2 as one of g2,"), "{refused}");
}

#[test]
fn what_an_earlier_tenancy_left_of_another_daemon_goes_first() {
    let mut scene = Scene::new();
    let (one, set) = (of(1, "g1"), of(2, "g0,g1"));
    scene.prepare(&one, &[]).unwrap();
    let client = scene.client(&one, "0");
    scene.leaves(&one, &[]);
    let refused = scene.prepare(&set, &[]).unwrap_err();
    assert!(refused.contains("clients") && scene.has_own_daemon(1), "{refused}");
    scene.machine.lock().unwrap().detach(client);
    scene.prepare(&set, &[]).unwrap();
    assert!(!scene.has_own_daemon(1));
    scene.leaves(&set, &[]);
    let overlapping = of(3, "g1,g2");
    scene.prepare(&overlapping, &[]).unwrap();
    assert_eq!(scene.sets(), [MpsPlace::set(1, vec![2])]);
    scene.leaves(&overlapping, &[]);
    scene.prepare(&one, &[]).unwrap();
    assert!(scene.has_own_daemon(1) && scene.sets().is_empty());
    // Nobody's are ended, and who is there stays.
    for _ in 0..3 {
        scene.settle(std::slice::from_ref(&one));
    }
    assert!(scene.has_own_daemon(1));
}

#[test]
fn the_next_agent_ends_the_daemon_of_a_set_that_nobody_holds_a_share_of() {
    let mut scene = Scene::new();
    let host = of(1, "g0,g1");
    scene.prepare(&host, &[]).unwrap();
    scene.restart(std::slice::from_ref(&host));
    for _ in 0..3 {
        scene.settle(std::slice::from_ref(&host));
    }
    assert_eq!(scene.sets(), [both()], "its tenant is there");
    scene.restart(&[]);
    scene.settle(&[]);
    assert_eq!(scene.sets(), []);
}

#[test]
fn a_tenant_of_several_sees_them_all_with_a_limit_of_each() {
    let scene = Scene::new();
    let tenant = of(1, "g2,g0");
    let paths = SharePaths {
        progress: None,
        mps_pipe_directory: "/run/pillion/mps/g2+g0/pipe".into(),
        mps_partition: None,
        instance: None,
    };
    let set = environment(&tenant, &scene.devices_of(&tenant), &paths);
    let text: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let uuids = [2, 0].map(|index: usize| scene.devices[index].uuid.to_string());
    let expected = [
        format!("CUDA_VISIBLE_DEVICES={}", uuids.join(",")),
        "CUDA_MPS_PIPE_DIRECTORY=/run/pillion/mps/g2+g0/pipe".to_owned(),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M,1=8192M".to_owned(),
    ];
    assert_eq!(text[..3], expected);
}
