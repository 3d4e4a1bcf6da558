//! Processes in instances: what each has, and what keeps them apart.

use super::*;
use crate::mechanism::mig::Instance;
use crate::simulated::Way;
use crate::{MpsPlace, MpsSettings};
use pillion_core::metric::Metric;
use pillion_core::mig::{Geometry, Slot as Place};

const ROOT: UserId = UserId(0);

fn machine(model: &str) -> Machine {
    let mut config = MachineConfig::plain("n1", model, 1);
    config.devices[0].mig = true;
    Machine::new(&config).unwrap()
}

fn make(machine: &mut Machine, place: &str) -> Instance {
    machine.make_instance(ROOT, 0, place.parse::<Place>().unwrap()).unwrap()
}

fn request(workload: &str, device: &str) -> AttachRequest {
    let environment = [("CUDA_VISIBLE_DEVICES".to_owned(), device.to_owned())].into();
    AttachRequest {
        workload: workload.to_owned(),
        memory_bytes: Some(1 << 30),
        environment,
        ..AttachRequest::default()
    }
}

fn name(instance: &Instance) -> &str {
    instance.compute[0].uuid.as_str()
}

fn speed(machine: &Machine, id: ClientId) -> f64 {
    machine.progress(id).unwrap().speed_fraction
}

#[test]
fn who_has_an_instance_meets_nobody_outside_of_it() {
    let mut machine = machine("h100");
    let slots: Vec<String> = (0..7).map(|start| format!("1g.10gb@{start}")).collect();
    let made: Vec<Instance> = slots.iter().map(|slot| make(&mut machine, slot)).collect();
    let first = machine.attach(&request("gemm-hog", name(&made[0])), 100, UserId(1000)).unwrap();
    let alone = speed(&machine, first);
    assert!(alone > 0.08 && alone < 0.2, "a seventh of the units: {alone}");
    for (pid, instance) in (101..).zip(&made[1..]) {
        machine.attach(&request("gemm-hog", name(instance)), pid, UserId(1000)).unwrap();
    }
    assert!((speed(&machine, first) - alone).abs() < 1e-9, "whoever else is on the device");
    let layout = machine.mig_layout(0).unwrap();
    assert!(layout.instances.iter().all(|instance| instance.pids.len() == 1), "{layout:?}");
    assert_eq!(machine.processes(0).unwrap().len(), 7);
    machine.attach(&request("gemm-hog", name(&made[0])), 110, UserId(1000)).unwrap();
    assert!(speed(&machine, first) < 0.6 * alone, "within it they share");
}

#[test]
fn an_instance_has_its_own_memory_and_no_more() {
    let mut machine = machine("a100-40");
    let (small, large) = (make(&mut machine, "1g.5gb@4"), make(&mut machine, "4g.20gb@0"));
    let wanting =
        |device: &str| AttachRequest { memory_bytes: Some(10 << 30), ..request("resnet50-train", device) };
    let refused = machine.attach(&wanting(name(&small)), 7, UserId(1000)).unwrap_err();
    let ClientError::OutOfMemory { total_bytes, .. } = refused else { panic!("{refused}") };
    assert_eq!(total_bytes, 4_864 << 20);
    let fits = machine.attach(&wanting(name(&large)), 8, UserId(1000)).unwrap();
    assert!(speed(&machine, fits) > 0.3);
}

#[test]
fn an_empty_ampere_with_mig_on_is_no_device_and_its_whole_instance_is_nearly_all_of_it() {
    let mut machine = machine("a100-40");
    let alone = request("resnet50-train", "0");
    assert!(matches!(machine.attach(&alone, 7, UserId(1000)), Err(ClientError::NoDevice { .. })));
    let geometry = Geometry::of_model("a100-40").unwrap();
    make(&mut machine, &format!("{}@0", geometry.whole().profile));
    let id = machine.attach(&alone, 7, UserId(1000)).unwrap();
    assert!(speed(&machine, id) > 0.9, "98 of 108 SMs: {}", speed(&machine, id));
}

#[test]
fn a_neighbours_instance_is_opened_by_whom_its_files_let() {
    let mut machine = machine("h100");
    let made = make(&mut machine, "1g.10gb@0");
    let asked = request("gemm-hog", name(&made));
    let id = machine.attach(&asked, 7, UserId(1001)).unwrap();
    machine.detach(id);
    machine.set_instance_way(ROOT, 0, made.gpu_instance_id, Way { uid: UserId(1000), mode: 0o400 }).unwrap();
    assert!(matches!(machine.attach(&asked, 7, UserId(1001)), Err(ClientError::NoDevice { .. })));
    machine.attach(&asked, 7, UserId(1000)).unwrap();
    let refused = machine.set_instance_way(UserId(1000), 0, made.gpu_instance_id, Way::OPEN);
    assert!(matches!(refused, Err(DeviceError::Refused { .. })));
}

#[test]
fn of_a_cut_device_no_utilization_is_told_and_a_destroy_waits_for_who_has_just_left() {
    let mut machine = machine("h100");
    let made = make(&mut machine, "7g.80gb@0");
    let id = machine.attach(&request("gemm-hog", "0"), 7, UserId(1000)).unwrap();
    machine.advance(Duration::from_secs(1));
    let mut mark = None;
    let reading = machine.read(0, &mut mark).unwrap();
    assert_eq!(reading.metrics.get(Metric::SmActiveFraction), None);
    assert_eq!(reading.metrics.get(Metric::GpuBusyFraction), None);
    assert!(reading.metrics.get(Metric::PowerWatts).is_some_and(|watts| watts > 300.0), "{reading:?}");
    let destroy = |machine: &mut Machine| machine.destroy_instance(ROOT, 0, made.gpu_instance_id);
    assert!(matches!(destroy(&mut machine), Err(DeviceError::Busy { .. })));
    machine.detach(id);
    assert!(matches!(destroy(&mut machine), Err(DeviceError::Busy { .. })));
    machine.advance(Duration::from_millis(310));
    machine.hold(0, 77, true).unwrap();
    assert!(matches!(destroy(&mut machine), Err(DeviceError::Busy { .. })));
    assert_eq!(machine.mig_holders(0).unwrap()[0].pid, 77);
    machine.hold(0, 77, false).unwrap();
    destroy(&mut machine).unwrap();
    machine.set_mig_mode(ROOT, 0, false).unwrap();
    assert!(machine.read(0, &mut mark).unwrap().metrics.get(Metric::SmActiveFraction).is_some());
}

/// Each training of MISO, alone in each size in which it was measured.
#[test]
fn where_a_workload_was_measured_in_a_size_it_goes_so_fast_there() {
    let published = include_str!("../../../../../tests/fixtures/miso/miso_mig_solo.csv");
    let places = [("2", "2g.10gb@0"), ("4", "4g.20gb@0"), ("7", "7g.40gb@0")];
    let mut count = 0;
    for line in published.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let (work, slices) = (format!("miso-{}-{}", fields[0], fields[1]), fields[3]);
        let told: f64 = fields[10].parse().unwrap();
        let (_, place) = places.iter().find(|(own, _)| *own == slices).expect("a size of the set");
        let mut machine = machine("a100-40");
        let made = make(&mut machine, place);
        let id = machine.attach(&request(&work, name(&made)), 7, UserId(1000)).unwrap();
        let own = speed(&machine, id);
        assert!((own - told).abs() < 1e-9, "{work} in {place}: {own}, measured {told}");
        count += 1;
    }
    assert_eq!(count, 92, "all of the set");
}

#[test]
fn where_it_was_not_measured_it_goes_by_its_demand() {
    let measured = workload::find("miso-bert-2", None).unwrap();
    let mut machine = machine("a100-40");
    let other = make(&mut machine, "1g.5gb@4");
    let id = machine.attach(&request("miso-mobilenet-64", name(&other)), 8, UserId(1000)).unwrap();
    let least = workload::find("miso-mobilenet-64", None).unwrap().slice_speeds[&2];
    assert!(speed(&machine, id) < least && measured.slice_speeds.len() == 3);
}

fn daemon(pipe: &str) -> MpsSettings {
    MpsSettings {
        pipe_directory: pipe.into(),
        log_directory: "/log".into(),
        multi_user: false,
        partitions: false,
        users: std::collections::BTreeSet::new(),
        cap_default: None,
        memory_limit_bytes_default: None,
    }
}

/// A client of the daemon at this pipe, of one instance.
fn client(workload: &str, instance: &Instance, pipe: &str, percentage: Option<&str>) -> AttachRequest {
    let mut request = request(workload, name(instance));
    request.environment.insert("CUDA_MPS_PIPE_DIRECTORY".to_owned(), pipe.to_owned());
    if let Some(percentage) = percentage {
        request.environment.insert("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_owned(), percentage.to_owned());
    }
    request
}

#[test]
fn clients_of_a_daemon_in_an_instance_share_that_and_meet_nobody_else() {
    let mut machine = machine("h100");
    let made = ["3g.40gb@4", "3g.40gb@0"].map(|slot| make(&mut machine, slot));
    let places = [0, 1].map(|at| MpsPlace::instance(0, made[at].compute[0].uuid.clone()));
    let nowhere = MpsPlace::instance(0, pillion_core::DeviceUuid::new("MIG-none"));
    assert!(matches!(machine.start_mps(ROOT, &nowhere, &daemon("/x")), Err(DeviceError::Refused { .. })));
    assert!(matches!(
        machine.start_mps(ROOT, &MpsPlace::device(0), &daemon("/x")),
        Err(DeviceError::Busy { .. })
    ));
    machine.start_mps(ROOT, &places[0], &daemon("/a")).unwrap();
    machine.start_mps(ROOT, &places[1], &daemon("/b")).unwrap();
    assert_eq!(machine.mps_instances(0).unwrap().len(), 2);
    let alice = UserId(1000);
    let half = client("gemm-hog", &made[0], "/a", Some("50"));
    let one = machine.attach(&half, 10, alice).unwrap();
    let capped = speed(&machine, one);
    let other = machine.attach(&half, 11, alice).unwrap();
    assert!((speed(&machine, other) - capped).abs() < 0.05, "kept apart by their caps");
    let beside = machine.attach(&client("gemm-hog", &made[1], "/b", None), 12, alice).unwrap();
    assert!(speed(&machine, beside) > 1.5 * capped, "in another instance, alone");
    let pids = |machine: &Machine, at: usize| machine.mps(&places[at]).unwrap().unwrap().client_pids;
    assert_eq!((pids(&machine, 0), pids(&machine, 1)), (vec![10, 11], vec![12]));
    // Another user waits, as at any daemon of one user at a time.
    let stranger = machine.attach(&client("gemm-hog", &made[0], "/a", None), 13, UserId(1001)).unwrap();
    assert_eq!(machine.progress(stranger).unwrap().phase, Phase::Waiting);
    machine.detach(stranger);
    // A fault in one ends nobody in the other.
    machine.fault_mps(ROOT, &places[1]).unwrap();
    assert_eq!(machine.progress(beside).unwrap().phase, Phase::Failed);
    assert_eq!(machine.progress(one).unwrap().phase, Phase::Running);
    let id = made[0].gpu_instance_id;
    let is_busy = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Busy { .. }));
    assert!(is_busy(machine.destroy_instance(ROOT, 0, id)) && is_busy(machine.stop_mps(ROOT, &places[0])));
    machine.detach(one);
    machine.detach(other);
    machine.advance(Duration::from_secs(1));
    assert!(is_busy(machine.destroy_instance(ROOT, 0, id)), "its daemon is there");
    machine.stop_mps(ROOT, &places[0]).unwrap();
    machine.destroy_instance(ROOT, 0, id).unwrap();
    assert_eq!(machine.mps(&places[0]).unwrap(), None);
}
