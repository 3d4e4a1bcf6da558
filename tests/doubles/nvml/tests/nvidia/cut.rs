//! Devices are cut and made whole again as their driver lets them be, and every refusal of it is told as what it is.

use crate::support::{Node, eventually};
use crate::support_cut::{Program, capability, files, node_with_mig as node};
use crate::{WORKLOAD, kinds};
use pillion_core::UserId;
use pillion_core::device::{Mechanism, NoticeKind};
use pillion_core::mig::{Difference, Slot, resolve};
use pillion_device::mechanism::mig::{Access, Instance, Layout, MigMode};
use pillion_device::nvidia::{MigFiles, Nvidia, NvidiaSettings};
use pillion_device::{Backend as _, DeviceError, MigControl as _};
use serde_json::json;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

fn cutter(node: &Node) -> Nvidia {
    with_deadline(node, Duration::from_secs(20))
}

fn with_deadline(node: &Node, deadline: Duration) -> Nvidia {
    let mig_files = MigFiles { devices: files(node).join("dev"), drivers: files(node).join("driver") };
    let settings =
        NvidiaSettings { library: Some(node.library()), deadline, mig_files, ..NvidiaSettings::default() };
    Nvidia::new(settings, None)
}

fn slot(text: &str) -> Slot {
    text.parse().unwrap()
}

fn slots(layout: &Layout) -> Vec<String> {
    layout.instances.iter().map(|instance| instance.slot.to_string()).collect()
}

fn busy<T: std::fmt::Debug>(answer: Result<T, DeviceError>) {
    let error = answer.unwrap_err();
    assert!(matches!(error, DeviceError::Busy { .. }), "{error}");
}

/// What a refusal says.
fn refused<T: std::fmt::Debug>(answer: Result<T, DeviceError>) -> String {
    let error = answer.unwrap_err();
    assert!(matches!(error, DeviceError::Refused { .. }), "{error}");
    error.to_string()
}

/// The owner and the mode of a file of a capability; of the first device, whose driver counts from 3 on.
fn access(node: &Node, gpu_instance: u32, compute_instance: Option<u32>) -> (u32, u32) {
    let found = std::fs::metadata(capability(node, gpu_instance, compute_instance)).unwrap();
    (found.uid(), found.permissions().mode() & 0o7777)
}

#[test]
fn what_a_device_can_be_cut_into_is_the_drivers_to_say() {
    for model in ["h100", "a100-40", "h200"] {
        let node = node(model, 1);
        let told = cutter(&node).geometry(0).unwrap();
        assert_eq!(resolve(Some(told), model).1, [], "two tables, each made by itself");
    }
    let mut node = Node::start("a100-40", 1);
    node.set("models", json!(["a30"]));
    node.set("mig", json!([0]));
    let told = cutter(&node).geometry(0).unwrap();
    let media = "2g.12gb+me".parse().unwrap();
    assert_eq!(resolve(Some(told.clone()), "a30").1, [Difference::Unlisted(media)]);
    assert_eq!(told.maximal_sets(&[]).len(), 4);
    node.set("not_root", json!(true));
    refused(cutter(&node).geometry(0));
}

#[test]
fn what_may_be_cut_is_whoever_cuts_its_to_say_and_what_that_takes_is_told() {
    let node = node("h100", 1);
    let mut nvidia = cutter(&node);
    let described = nvidia.devices().unwrap().remove(0);
    assert_eq!((described.mechanism, described.instances), (Mechanism::Mps, Some(vec![])));
    assert_eq!(described.geometry, None);
    assert_eq!(kinds(&mut nvidia), [(0, NoticeKind::Divided)], "by whom, this backend cannot know");
    for (model, needs_reset) in [("h100", false), ("a100-40", true)] {
        let node = Node::start(model, 1);
        let mut off = cutter(&node);
        assert_eq!(off.needs_reset(0).unwrap(), needs_reset, "{model}");
        assert_eq!(off.layout(0).unwrap().mode, MigMode::Off);
        assert!(matches!(off.geometry(0), Err(DeviceError::Unsupported { .. })), "it says so once MIG is on");
    }
}

#[test]
fn instances_are_made_where_they_are_to_lie_and_outlive_who_made_them() {
    let node = node("h100", 2);
    let mut nvidia = cutter(&node);
    assert_eq!(nvidia.layout(1).unwrap(), Layout { mode: MigMode::On, instances: vec![] });
    let made: Vec<Instance> =
        ["4g.40gb@0", "2g.20gb@4", "1g.10gb+me@6"].map(|it| nvidia.make(1, slot(it)).unwrap()).into();
    assert!(made.iter().all(|it| it.compute.len() == 1 && it.compute[0].id == 0 && it.pids.is_empty()));
    assert!(made.iter().all(|it| it.compute[0].uuid.as_str().starts_with("MIG-")));
    drop(nvidia);
    let mut later = cutter(&node);
    assert_eq!(later.layout(1).unwrap().instances, made);
    assert_eq!(later.layout(0).unwrap().instances, [], "each device is cut by itself");
    busy(later.make(1, slot("1g.10gb@0")));
    assert!(refused(later.make(1, slot("2g.20gb@1"))).contains("may not start at memory slice 1"));
    assert!(refused(later.make(1, slot("1g.5gb@0"))).contains("it has no 1g.5gb"));
    for instance in &made {
        later.destroy(1, instance.gpu_instance_id).unwrap();
        later.destroy(1, instance.gpu_instance_id).expect("it is not there");
    }
    assert_eq!(later.layout(1).unwrap().instances, []);
    assert!(matches!(later.layout(7), Err(DeviceError::NoSuchDevice { index: 7 })));
}

#[test]
fn what_is_half_made_is_taken_back() {
    let mut node = node("a100-40", 1);
    let mut nvidia = cutter(&node);
    node.set("not_permitted", json!(["nvmlGpuInstanceCreateComputeInstance"]));
    refused(nvidia.make(0, slot("3g.20gb@4")));
    assert_eq!(nvidia.layout(0).unwrap().instances, []);
    node.set("not_permitted", json!(["nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceDestroy"]));
    refused(nvidia.make(0, slot("3g.20gb@4")));
    let left = nvidia.layout(0).unwrap().instances;
    assert_eq!((left.len(), left[0].compute.len()), (1, 0), "it is shown as what it is");
    node.set("not_permitted", json!([]));
    nvidia.destroy(0, left[0].gpu_instance_id).unwrap();
    assert_eq!(nvidia.layout(0).unwrap().instances, []);
}

#[test]
fn without_mig_or_without_root_nothing_is_cut() {
    let mut node = node("h100", 1);
    let mut nvidia = cutter(&node);
    let made = nvidia.make(0, slot("1g.10gb@0")).unwrap();
    node.set("not_root", json!(true));
    assert!(refused(nvidia.make(0, slot("1g.10gb@1"))).contains("root"));
    refused(nvidia.destroy(0, made.gpu_instance_id));
    node.set("not_root", json!(false));
    node.set("boots", json!(1));
    assert_eq!(nvidia.layout(0).unwrap(), Layout { mode: MigMode::Off, instances: vec![] }, "of a Hopper");
    assert!(refused(nvidia.make(0, slot("1g.10gb@0"))).contains("MIG is off"));
    refused(nvidia.give(0, &[(made.clone(), Access::Root)]));
    nvidia.destroy(0, made.gpu_instance_id).expect("it is not there");
    let volta = Node::start("v100", 1);
    assert!(matches!(cutter(&volta).layout(0), Err(DeviceError::Unsupported { index: 0, .. })));
    assert!(matches!(cutter(&volta).geometry(0), Err(DeviceError::Unsupported { index: 0, .. })));
    assert!(matches!(cutter(&volta).set_mode(0, true), Err(DeviceError::Unsupported { index: 0, .. })));
}

#[test]
fn a_reset_takes_the_instances_and_an_ampere_keeps_its_mode_over_a_boot() {
    let mut node = node("a100-40", 1);
    let mut nvidia = cutter(&node);
    nvidia.make(0, slot("7g.40gb@0")).unwrap();
    node.set("resets", json!([0]));
    assert_eq!(nvidia.layout(0).unwrap(), Layout { mode: MigMode::On, instances: vec![] });
    nvidia.make(0, slot("7g.40gb@0")).unwrap();
    node.set("boots", json!(1));
    assert_eq!(nvidia.layout(0).unwrap(), Layout { mode: MigMode::On, instances: vec![] });
}

#[test]
fn the_mode_changes_where_that_takes_no_reset_and_nobody_is_there() {
    let mut node = node("h100", 2);
    node.set("mig", json!([]));
    let mut nvidia = cutter(&node);
    nvidia.set_mode(0, false).expect("it is off");
    let load = node.load(0, WORKLOAD, &[]);
    busy(nvidia.set_mode(0, true));
    drop(load);
    eventually("the load is gone", || nvidia.processes(0).unwrap().is_empty().then_some(()));
    let reader = Program::with(&files(&node).join("dev/nvidia0"));
    busy(nvidia.set_mode(0, true));
    assert_eq!(nvidia.layout(0).unwrap().mode, MigMode::Off, "it does not wait to be turned on");
    assert_eq!(nvidia.holders(0).unwrap()[0].pid, reader.pid());
    drop(reader);
    nvidia.set_mode(0, true).unwrap();
    nvidia.set_mode(0, true).expect("it is on");
    assert_eq!(nvidia.layout(0).unwrap().mode, MigMode::On);
    assert_eq!(nvidia.layout(1).unwrap().mode, MigMode::Off, "the other one is as it was");
    let made = nvidia.make(0, slot("3g.40gb@0")).unwrap();
    busy(nvidia.set_mode(0, false));
    assert_eq!(nvidia.layout(0).unwrap().instances, std::slice::from_ref(&made));
    nvidia.destroy(0, made.gpu_instance_id).unwrap();
    nvidia.set_mode(0, false).unwrap();
    assert_eq!(nvidia.layout(0).unwrap().mode, MigMode::Off);
    node.set("not_root", json!(true));
    refused(nvidia.set_mode(0, true));
}

#[test]
fn an_ampere_is_not_even_asked_to_change_its_mode() {
    let mut node = node("a100-40", 2);
    node.set("mig", json!([1]));
    let mut nvidia = cutter(&node);
    for (index, is_on) in [(0, true), (1, false)] {
        let error = nvidia.set_mode(index, is_on).unwrap_err();
        assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
        let mode = if is_on { MigMode::Off } else { MigMode::On };
        assert_eq!(nvidia.layout(index).unwrap().mode, mode, "nothing waits for a reset");
        nvidia.set_mode(index, !is_on).expect("as it is");
    }
}

#[test]
fn the_way_into_an_instance_is_its_tenants_alone() {
    let mut node = node("h100", 1);
    let mut nvidia = cutter(&node);
    let made = nvidia.make(0, slot("2g.20gb@4")).unwrap();
    let id = made.gpu_instance_id;
    let both = |node: &Node| [access(node, id, None), access(node, id, Some(0))];
    assert_eq!(both(&node), [(0, 0o400); 2], "nobody's yet");
    nvidia.give(0, &[(made.clone(), Access::User(UserId(1001)))]).unwrap();
    assert_eq!(both(&node), [(1001, 0o400); 2]);
    nvidia.give(0, &[(made.clone(), Access::Root)]).unwrap();
    assert_eq!(both(&node), [(0, 0o400); 2]);
    nvidia.give(0, &[(made.clone(), Access::User(UserId(1001)))]).unwrap();
    nvidia.destroy(0, id).unwrap();
    assert_eq!(both(&node), [(0, 0o400); 2], "the files outlive the instance, not its tenant's right");
    let of_before = [(made, Access::User(UserId(1001)))];
    assert!(refused(nvidia.give(0, &of_before)).contains("2g.20gb@4 is not there any more"));
    let all = nvidia.make(0, slot("7g.80gb@0")).unwrap();
    let whole = all.gpu_instance_id;
    assert_eq!(
        access(&node, whole, Some(0)),
        (0, 0o444),
        "an empty device is for whoever Slurm starts there"
    );
    nvidia.give(0, &[(all.clone(), Access::User(UserId(1001)))]).unwrap();
    assert_eq!(access(&node, whole, None), (1001, 0o400));
    nvidia.give(0, &[(all.clone(), Access::Everybody)]).unwrap();
    assert_eq!(access(&node, whole, None), (0, 0o444));
    nvidia.give(0, &[(all, Access::Root)]).unwrap();
    assert_eq!(access(&node, whole, None), (0, 0o400));
    nvidia.destroy(0, whole).unwrap();
    drop(nvidia);
    node.set("capability_files", json!("modified"));
    let mut nvidia = cutter(&node);
    let made = nvidia.make(0, slot("2g.20gb@4")).unwrap();
    let of_one = [(made.clone(), Access::User(UserId(7)))];
    assert!(refused(nvidia.give(0, &of_one)).contains("NVreg_ModifyDeviceFiles=0"));
    nvidia.give(0, &[(made, Access::Everybody)]).expect("as the driver does by itself");
}

#[test]
fn files_that_nobody_made_are_named() {
    let mut node = node("h100", 1);
    node.set("capability_files", json!("absent"));
    let mut nvidia = cutter(&node);
    let made = nvidia.make(0, slot("1g.10gb@0")).unwrap();
    let error = nvidia.give(0, &[(made.clone(), Access::User(UserId(7)))]).unwrap_err();
    let path = capability(&node, made.gpu_instance_id, None);
    assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()) && !path.exists(), "{error}");
    nvidia.destroy(0, made.gpu_instance_id).unwrap();
}

#[test]
fn an_instance_with_somebody_in_it_stays_as_it_was_and_goes_a_while_after_he_has() {
    let mut node = node("h100", 1);
    node.set("destroy_busy_ms", json!(500));
    let mut nvidia = cutter(&node);
    let made = nvidia.make(0, slot("1g.10gb@2")).unwrap();
    let id = made.gpu_instance_id;
    nvidia.give(0, &[(made.clone(), Access::User(UserId(1001)))]).unwrap();
    let tenant = Program::with(&capability(&node, id, Some(0)));
    assert_eq!(nvidia.layout(0).unwrap().instances[0].pids, [tenant.pid()]);
    busy(nvidia.destroy(0, id));
    assert_eq!(access(&node, id, Some(0)), (1001, 0o400), "it is still his");
    assert_eq!(nvidia.layout(0).unwrap().instances[0].compute, made.compute);
    let holders = nvidia.holders(0).unwrap();
    assert_eq!((holders.len(), holders[0].pid, holders[0].program.as_str()), (1, tenant.pid(), "sleep"));
    assert_eq!(holders[0].file, capability(&node, id, Some(0)).to_str().unwrap());
    drop(tenant);
    busy(nvidia.destroy(0, id));
    eventually("the driver lets go of it", || nvidia.destroy(0, id).ok());
    assert_eq!(slots(&nvidia.layout(0).unwrap()), Vec::<String>::new());
    assert_eq!(access(&node, id, Some(0)), (0, 0o400));
}

#[test]
fn one_that_is_stuck_is_told_with_who_has_the_device_open() {
    let mut node = node("h100", 1);
    let mut nvidia = cutter(&node);
    for it in ["3g.40gb@0", "3g.40gb@4"] {
        nvidia.make(0, slot(it)).unwrap();
    }
    node.set("destroy_stuck", json!([{ "index": 0, "start": 4 }]));
    let reader = Program::with(&files(&node).join("dev/nvidia0"));
    busy(nvidia.destroy(0, 2));
    let holders = nvidia.holders(0).unwrap();
    assert_eq!(holders.iter().map(|it| it.pid).collect::<Vec<_>>(), [reader.pid()]);
    nvidia.destroy(0, 1).expect("its neighbour goes");
    assert_eq!(slots(&nvidia.layout(0).unwrap()), ["3g.40gb@4"]);
    node.set("destroy_stuck", json!([]));
    nvidia.destroy(0, 2).unwrap();
}

#[test]
fn instances_of_others_are_shown_and_leave_no_room_for_ours() {
    let mut node = node("h100", 1);
    node.set("mig_instances", json!([{ "index": 0, "profile": "2g.20gb", "start": 2 }]));
    let mut nvidia = cutter(&node);
    busy(nvidia.make(0, slot("4g.40gb@0")));
    nvidia.make(0, slot("3g.40gb@4")).unwrap();
    let layout = nvidia.layout(0).unwrap();
    assert_eq!(slots(&layout), ["2g.20gb@2", "3g.40gb@4"]);
    assert_eq!(layout.instances[0].compute.len(), 1);
    nvidia.destroy(0, layout.instances[0].gpu_instance_id).unwrap();
    assert_eq!(slots(&nvidia.layout(0).unwrap()), ["3g.40gb@4"], "root can; whether he may is not for here");
}

#[test]
fn a_driver_that_hangs_is_given_up_and_asked_again_once_it_answers() {
    let mut node = node("h100", 2);
    let mut nvidia = with_deadline(&node, Duration::from_millis(300));
    eventually("a first answer", || nvidia.layout(0).ok());
    node.set("hung", json!([0]));
    assert!(matches!(nvidia.make(0, slot("1g.10gb@0")), Err(DeviceError::NoAnswer { .. })));
    assert!(matches!(nvidia.layout(0), Err(DeviceError::NoAnswer { .. })));
    eventually("its neighbour answers", || nvidia.make(1, slot("1g.10gb@0")).ok());
    assert!(nvidia.holders(0).is_ok(), "the kernel is asked for these");
    node.set("hung", json!([]));
    let layout = eventually("it answers again", || nvidia.layout(0).ok());
    assert_eq!(slots(&layout), ["1g.10gb@0"], "what was asked for is done, late");
}

#[test]
fn a_driver_that_went_away_comes_back() {
    let mut node = node("h100", 1);
    let mut nvidia = cutter(&node);
    nvidia.layout(0).unwrap();
    node.set("lost", json!([0]));
    assert!(matches!(nvidia.layout(0), Err(DeviceError::Gone { index: 0, .. })));
    node.set("lost", json!([]));
    eventually("it is there again", || nvidia.layout(0).ok());
}
