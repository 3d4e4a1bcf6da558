//! The double refuses of MIG what the real library refuses: called as a C program would.

use crate::support::Node;
use crate::support_cut::{Program, capability, files, node_with_mig};
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlComputeInstance_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstancePlacement_t,
    nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES as INSUFFICIENT_RESOURCES,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
    nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED as RESET_REQUIRED, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
};
use serde_json::json;
use std::ptr::null_mut;

/// The library, come up, and the first device.
fn opened(node: &Node) -> (NvmlLib, nvmlDevice_t) {
    let library = crate::initialised(node);
    let device = crate::device(&library, 0);
    (library, device)
}

fn create(
    library: &NvmlLib,
    device: nvmlDevice_t,
    profile: u32,
    (start, size): (u32, u32),
) -> Result<nvmlGpuInstance_t, u32> {
    let (place, mut made) = (nvmlGpuInstancePlacement_t { start, size }, null_mut());
    let create = library.nvmlDeviceCreateGpuInstanceWithPlacement.as_ref().unwrap();
    // SAFETY: as nvml.h declares it; what is pointed to lives on this stack.
    match unsafe { create(device, profile, &raw const place, &raw mut made) } {
        SUCCESS => Ok(made),
        error => Err(error),
    }
}

fn create_compute(
    library: &NvmlLib,
    instance: nvmlGpuInstance_t,
    size: u32,
) -> Result<nvmlComputeInstance_t, u32> {
    let mut made = null_mut();
    match call!(library, nvmlGpuInstanceCreateComputeInstance(instance, size, &raw mut made)) {
        SUCCESS => Ok(made),
        error => Err(error),
    }
}

fn mode(library: &NvmlLib, device: nvmlDevice_t) -> (u32, u32) {
    let (mut current, mut pending) = (9, 9);
    assert_eq!(call!(library, nvmlDeviceGetMigMode(device, &raw mut current, &raw mut pending)), SUCCESS);
    (current, pending)
}

/// What the call says, and what it says of the change.
fn set_mode(library: &NvmlLib, device: nvmlDevice_t, mode: u32) -> (u32, u32) {
    let mut activation = 99;
    (call!(library, nvmlDeviceSetMigMode(device, mode, &raw mut activation)), activation)
}

#[test]
fn a_place_is_taken_once_and_only_by_what_may_lie_there() {
    let node = node_with_mig("a100-40", 1);
    let (library, device) = opened(&node);
    create(&library, device, 9, (4, 4)).unwrap();
    for (profile, place, error) in [
        (9, (4, 4), INSUFFICIENT_RESOURCES),
        (14, (4, 2), INSUFFICIENT_RESOURCES),
        (0, (0, 8), INSUFFICIENT_RESOURCES),
        (14, (1, 2), INVALID_ARGUMENT),
        (14, (0, 1), INVALID_ARGUMENT),
        (14, (6, 2), INVALID_ARGUMENT),
        (2, (0, 2), INVALID_ARGUMENT),
    ] {
        assert_eq!(create(&library, device, profile, place).unwrap_err(), error, "{profile} at {place:?}");
    }
    create(&library, device, 20, (0, 1)).unwrap();
    assert_eq!(
        create(&library, device, 20, (1, 1)).unwrap_err(),
        INSUFFICIENT_RESOURCES,
        "engines are there once"
    );
    create(&library, device, 15, (2, 2)).unwrap();
    create(&library, device, 19, (1, 1)).unwrap();
    let mut count = 0;
    let mut places = [nvmlGpuInstancePlacement_t { start: 9, size: 9 }; 8];
    let mut list = |profile, count: &mut u32| {
        let to = places.as_mut_ptr();
        call!(library, nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile, to, &raw mut *count))
    };
    assert_eq!((list(9, &mut count), count), (SUCCESS, 2), "whatever lies there");
    assert_eq!(list(2, &mut count), NOT_SUPPORTED);
    assert_eq!((places[1].start, places[1].size, places[2].start), (4, 4, 9));
}

#[test]
fn sizes_are_asked_for_by_numbers_until_there_are_no_more() {
    let mut node = node_with_mig("h100", 1);
    let (library, device) = opened(&node);
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut info: nvml::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    let version = u32::try_from(size_of::<nvml::nvmlGpuInstanceProfileInfo_v2_t>()).unwrap() | 2 << 24;
    let ask = |number, info: &mut nvml::nvmlGpuInstanceProfileInfo_v2_t| {
        call!(library, nvmlDeviceGetGpuInstanceProfileInfoV(device, number, &raw mut *info))
    };
    assert_eq!(ask(0, &mut info), INVALID_ARGUMENT, "its version is not set");
    info.version = version;
    assert_eq!((ask(4, &mut info), info.id, info.sliceCount), (SUCCESS, 0, 7), "the number is not the id");
    assert_eq!((ask(9, &mut info), info.id, info.instanceCount), (SUCCESS, 15, 4));
    assert_eq!((ask(5, &mut info), ask(17, &mut info)), (NOT_SUPPORTED, INVALID_ARGUMENT));
    node.set("mig", json!([]));
    assert_eq!(ask(4, &mut info), NOT_SUPPORTED, "MIG is off");
}

#[test]
fn a_gpu_instance_goes_after_what_is_in_it_and_its_handle_with_it() {
    let node = node_with_mig("h100", 1);
    let (library, device) = opened(&node);
    let instance = create(&library, device, 9, (0, 4)).unwrap();
    let destroy = |instance| call!(library, nvmlGpuInstanceDestroy(instance));
    let destroy_compute = |compute| call!(library, nvmlComputeInstanceDestroy(compute));
    assert_eq!(create_compute(&library, instance, 3).unwrap_err(), NOT_SUPPORTED, "four slices of three");
    assert_eq!(create_compute(&library, instance, 8).unwrap_err(), INVALID_ARGUMENT);
    let parts =
        [create_compute(&library, instance, 0).unwrap(), create_compute(&library, instance, 1).unwrap()];
    assert_eq!(create_compute(&library, instance, 0).unwrap_err(), INSUFFICIENT_RESOURCES);
    let mut mig_devices = [null_mut(); 2];
    for (index, to) in (0..).zip(&mut mig_devices) {
        assert_eq!(call!(library, nvmlDeviceGetMigDeviceHandleByIndex(device, index, &raw mut *to)), SUCCESS);
    }
    assert_eq!(destroy(instance), IN_USE);
    assert_eq!(destroy_compute(parts[0]), SUCCESS);
    assert_eq!(destroy_compute(parts[0]), INVALID_ARGUMENT, "it is gone");
    assert_eq!(destroy(instance), IN_USE, "there is another");
    assert_eq!((destroy_compute(parts[1]), destroy(instance)), (SUCCESS, SUCCESS));
    assert_eq!(destroy(instance), INVALID_ARGUMENT);
    let mut id = 0;
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceId(mig_devices[0], &raw mut id)), INVALID_ARGUMENT);
    let again = create(&library, device, 9, (0, 4)).unwrap();
    assert_eq!(destroy(instance), INVALID_ARGUMENT, "another has its number, not its handle");
    assert_eq!(create_compute(&library, instance, 2).unwrap_err(), INVALID_ARGUMENT);
    let mut found = null_mut();
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceById(device, 1, &raw mut found)), SUCCESS);
    assert_eq!(found, again);
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceById(device, 2, &raw mut found)), NOT_FOUND);
}

#[test]
fn somebody_inside_is_in_the_way_by_the_file_that_he_has_open() {
    let mut node = node_with_mig("h100", 1);
    let (library, device) = opened(&node);
    let instance = create(&library, device, 14, (2, 2)).unwrap();
    let compute = create_compute(&library, instance, 1).unwrap();
    let destroy_compute = || call!(library, nvmlComputeInstanceDestroy(compute));
    let inside = Program::with(&capability(&node, 4, Some(0)));
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut infos: [nvml::nvmlProcessInfo_t; 2] = unsafe { std::mem::zeroed() };
    let mut count = 2;
    let list = infos.as_mut_ptr();
    assert_eq!(
        call!(library, nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, list)),
        SUCCESS
    );
    assert_eq!(
        (count, infos[0].pid, infos[0].gpuInstanceId, infos[0].computeInstanceId),
        (1, inside.pid(), 4, 0)
    );
    assert_eq!(destroy_compute(), IN_USE);
    drop(inside);
    node.set("destroy_busy_ms", json!(3_600_000));
    assert_eq!(destroy_compute(), IN_USE, "he was there within this hour");
    node.set("destroy_busy_ms", json!(0));
    assert_eq!(destroy_compute(), SUCCESS);
    let holder = Program::with(&capability(&node, 4, None));
    assert_eq!(call!(library, nvmlGpuInstanceDestroy(instance)), IN_USE);
    drop(holder);
    node.set("destroy_stuck", json!([{ "index": 0, "start": 2 }]));
    assert_eq!(call!(library, nvmlGpuInstanceDestroy(instance)), IN_USE);
    node.set("destroy_stuck", json!([]));
    assert_eq!(call!(library, nvmlGpuInstanceDestroy(instance)), SUCCESS);
}

#[test]
fn a_change_of_mode_that_is_refused_waits_for_the_next_occasion() {
    let mut node = node_with_mig("h100", 1);
    node.set("mig", json!([]));
    let (library, device) = opened(&node);
    assert_eq!(set_mode(&library, device, 2).0, INVALID_ARGUMENT);
    let reader = Program::with(&files(&node).join("dev/nvidia0"));
    assert_eq!((set_mode(&library, device, 1), mode(&library, device)), ((SUCCESS, IN_USE), (0, 1)));
    assert_eq!((set_mode(&library, device, 0), mode(&library, device)), ((SUCCESS, SUCCESS), (0, 0)));
    drop(reader);
    assert_eq!((set_mode(&library, device, 1), mode(&library, device)), ((SUCCESS, SUCCESS), (1, 1)));
    let instance = create(&library, device, 19, (0, 1)).unwrap();
    assert_eq!((set_mode(&library, device, 0), mode(&library, device)), ((SUCCESS, IN_USE), (1, 0)));
    assert_eq!(call!(library, nvmlGpuInstanceDestroy(instance)), SUCCESS);
    node.set("boots", json!(1));
    assert_eq!(mode(&library, device), (0, 0));
    let mut node = node_with_mig("a100-40", 1);
    node.set("mig", json!([]));
    let (library, device) = opened(&node);
    assert_eq!((set_mode(&library, device, 1), mode(&library, device)), ((SUCCESS, RESET_REQUIRED), (0, 1)));
    assert_eq!(create(&library, device, 19, (0, 1)).unwrap_err(), NOT_SUPPORTED);
    node.set("resets", json!([0]));
    assert_eq!(mode(&library, device), (1, 1));
    create(&library, device, 19, (0, 1)).unwrap();
    node.set("boots", json!(1));
    assert_eq!(mode(&library, device), (1, 1), "it keeps its mode, and nothing else");
    create(&library, device, 19, (0, 1)).unwrap();
}

#[test]
fn root_alone_cuts_and_asks_for_what_is_cut() {
    let mut node = node_with_mig("h100", 1);
    let (library, device) = opened(&node);
    let instance = create(&library, device, 19, (0, 1)).unwrap();
    let compute = create_compute(&library, instance, 0).unwrap();
    node.set("not_root", json!(true));
    assert_eq!(create(&library, device, 19, (1, 1)).unwrap_err(), NO_PERMISSION);
    assert_eq!(create_compute(&library, instance, 0).unwrap_err(), NO_PERMISSION);
    assert_eq!(call!(library, nvmlComputeInstanceDestroy(compute)), NO_PERMISSION);
    assert_eq!(set_mode(&library, device, 0).0, NO_PERMISSION);
    let (mut count, mut found, mut part) = (0, null_mut(), null_mut());
    assert_eq!(
        call!(library, nvmlDeviceGetGpuInstances(device, 19, &raw mut found, &raw mut count)),
        NO_PERMISSION
    );
    assert_eq!(
        call!(library, nvmlGpuInstanceGetComputeInstances(instance, 0, &raw mut part, &raw mut count)),
        NO_PERMISSION
    );
    node.set("not_root", json!(false));
    assert_eq!(
        call!(library, nvmlGpuInstanceGetComputeInstances(instance, 0, &raw mut part, &raw mut count)),
        SUCCESS
    );
    assert_eq!((part, count), (compute, 1));
    assert_eq!(call!(library, nvmlComputeInstanceDestroy(part)), SUCCESS);
    assert_eq!(call!(library, nvmlGpuInstanceDestroy(instance)), SUCCESS);
}
