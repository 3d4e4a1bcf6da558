//! The double refuses what the real library refuses: called as a C program would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "calls a C library")]

/// Calls a function of the library.
macro_rules! call {
    ($library:expr, $function:ident($($argument:expr),*)) => {
        // SAFETY: the arguments are those of nvml.h's declaration, and what they point to lives on this stack.
        unsafe { ($library.$function.as_ref().unwrap())($($argument),*) }
    };
}

mod mig;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/cut.rs"]
mod support_cut;

use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlGpmMetricsGet_t, nvmlGpmSample_t,
    nvmlGpmSupport_t, nvmlMemory_v2_t, nvmlProcessInfo_t,
    nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as VERSION_MISMATCH,
    nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED as DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST as GPU_IS_LOST,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND, nvmlReturn_enum_NVML_ERROR_NOT_READY as NOT_READY,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT,
    nvmlReturn_enum_NVML_ERROR_UNINITIALIZED as UNINITIALIZED, nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN,
    nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
};
use serde_json::json;
use std::ptr::{null_mut, without_provenance_mut};
use support::{Node, eventually};

fn load(node: &Node) -> NvmlLib {
    // SAFETY: loading the double runs no code of its own.
    unsafe { NvmlLib::new(node.library()) }.unwrap()
}

fn initialised(node: &Node) -> NvmlLib {
    let library = load(node);
    assert_eq!(call!(library, nvmlInit_v2()), SUCCESS);
    library
}

fn device(library: &NvmlLib, index: u32) -> nvmlDevice_t {
    let mut device = null_mut();
    assert_eq!(call!(library, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)), SUCCESS);
    device
}

#[test]
fn nothing_works_before_init_nor_after_the_last_shutdown() {
    let node = Node::start("h100", 1);
    let library = load(&node);
    let mut count = 0;
    assert_eq!(call!(library, nvmlDeviceGetCount_v2(&raw mut count)), UNINITIALIZED);
    assert_eq!(call!(library, nvmlShutdown()), UNINITIALIZED);
    assert_eq!(call!(library, nvmlInit_v2()), SUCCESS);
    assert_eq!(call!(library, nvmlInitWithFlags(0)), SUCCESS);
    let handle = device(&library, 0);
    assert_eq!(call!(library, nvmlShutdown()), SUCCESS);
    assert_eq!(call!(library, nvmlDeviceGetCount_v2(&raw mut count)), SUCCESS);
    assert_eq!(count, 1);
    assert_eq!(call!(library, nvmlShutdown()), SUCCESS);
    let mut power = 0;
    assert_eq!(call!(library, nvmlDeviceGetPowerUsage(handle, &raw mut power)), UNINITIALIZED);
    let mut sample: nvmlGpmSample_t = null_mut();
    assert_eq!(call!(library, nvmlGpmSampleAlloc(&raw mut sample)), UNINITIALIZED);
    assert_eq!(call!(library, nvmlEventSetWait_v2(null_mut(), null_mut(), 0)), UNINITIALIZED);
}

#[test]
fn without_its_driver_it_does_not_come_up() {
    let mut node = Node::start("h100", 1);
    node.driver = None;
    assert_eq!(call!(load(&node), nvmlInit_v2()), DRIVER_NOT_LOADED);
}

#[test]
fn a_control_file_that_cannot_be_understood_is_an_error() {
    let mut node = Node::start("h100", 1);
    let library = initialised(&node);
    node.set("no_such_fault", json!(1));
    let mut count = 0;
    assert_eq!(call!(library, nvmlDeviceGetCount_v2(&raw mut count)), UNKNOWN);
}

#[test]
fn handles_are_checked() {
    let mut node = Node::start("h100", 2);
    let library = initialised(&node);
    let (mut power, mut handle) = (0, null_mut());
    for wrong in
        [null_mut(), without_provenance_mut(8), without_provenance_mut(device(&library, 1).addr() + 1)]
    {
        assert_eq!(call!(library, nvmlDeviceGetPowerUsage(wrong, &raw mut power)), INVALID_ARGUMENT);
    }
    assert_eq!(call!(library, nvmlDeviceGetPowerUsage(device(&library, 0), null_mut())), INVALID_ARGUMENT);
    assert_eq!(call!(library, nvmlDeviceGetHandleByIndex_v2(2, &raw mut handle)), INVALID_ARGUMENT);
    let by_uuid = |name: &str| {
        let name = std::ffi::CString::new(name).unwrap();
        let mut handle = null_mut();
        let code = call!(library, nvmlDeviceGetHandleByUUID(name.as_ptr(), &raw mut handle));
        (code, handle)
    };
    assert_eq!(by_uuid("GPU-0").0, NOT_FOUND);
    assert_eq!(by_uuid(node.descriptions()[1].uuid.as_str()), (SUCCESS, device(&library, 1)));
    let mut index = 9;
    assert_eq!(call!(library, nvmlDeviceGetIndex(device(&library, 1), &raw mut index)), SUCCESS);
    assert_eq!(index, 1);
    let lost = device(&library, 1);
    node.set("lost", json!([1]));
    assert_eq!(call!(library, nvmlDeviceGetPowerUsage(lost, &raw mut power)), GPU_IS_LOST);
    assert_eq!(call!(library, nvmlDeviceGetHandleByIndex_v2(1, &raw mut handle)), GPU_IS_LOST);
    assert_eq!(by_uuid(node.descriptions()[1].uuid.as_str()).0, GPU_IS_LOST);
}

#[test]
fn structures_carry_their_version() {
    let node = Node::start("h100", 1);
    let library = initialised(&node);
    let handle = device(&library, 0);
    let size = u32::try_from(size_of::<nvmlMemory_v2_t>()).unwrap();
    for (version, code) in [
        (0, VERSION_MISMATCH),
        (2, VERSION_MISMATCH),
        (size, VERSION_MISMATCH),
        (size | 1 << 24, VERSION_MISMATCH),
        (size | 2 << 24, SUCCESS),
    ] {
        let mut memory = nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        assert_eq!(call!(library, nvmlDeviceGetMemoryInfo_v2(handle, &raw mut memory)), code, "{version:#x}");
        assert_eq!(memory.total, memory.reserved + memory.free + memory.used);
    }
    let mut support = nvmlGpmSupport_t { version: 2, isSupportedDevice: 0 };
    assert_eq!(call!(library, nvmlGpmQueryDeviceSupport(handle, &raw mut support)), VERSION_MISMATCH);
}

#[test]
fn buffers_have_a_length() {
    let node = Node::start("v100", 1);
    let library = initialised(&node);
    let handle = device(&library, 0);
    let mut name = [1; 64];
    let product = "Tesla V100-SXM2-32GB";
    let length = u32::try_from(product.len()).unwrap();
    assert_eq!(call!(library, nvmlDeviceGetName(handle, name.as_mut_ptr(), length)), INSUFFICIENT_SIZE);
    assert_eq!(call!(library, nvmlDeviceGetName(handle, name.as_mut_ptr(), length + 1)), SUCCESS);
    let told: Vec<u8> = name[..product.len()].iter().map(|letter| letter.cast_unsigned()).collect();
    assert_eq!((told, name[product.len()]), (product.as_bytes().to_vec(), 0));
    assert_eq!(call!(library, nvmlDeviceGetUUID(handle, name.as_mut_ptr(), 40)), INSUFFICIENT_SIZE);
    assert_eq!(call!(library, nvmlSystemGetDriverVersion(name.as_mut_ptr(), 3)), INSUFFICIENT_SIZE);
}

#[test]
fn lists_say_how_long_they_are() {
    let node = Node::start("h100", 1);
    let library = initialised(&node);
    let handle = device(&library, 0);
    let mut count = 5;
    let list = |count: &mut u32, infos: *mut nvmlProcessInfo_t| {
        call!(library, nvmlDeviceGetComputeRunningProcesses_v3(handle, &raw mut *count, infos))
    };
    assert_eq!((list(&mut count, null_mut()), count), (SUCCESS, 0), "an empty list needs no room");
    let _load = node.load(0, "bert-finetune", &[]);
    let nobody = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut infos = [nobody; 2];
    count = 0;
    assert_eq!((list(&mut count, infos.as_mut_ptr()), count), (INSUFFICIENT_SIZE, 1));
    count = 2;
    assert_eq!((list(&mut count, infos.as_mut_ptr()), count), (SUCCESS, 1));
    assert_eq!((infos[0].pid, infos[0].gpuInstanceId), (std::process::id(), u32::MAX));
}

#[test]
fn process_utilisation_is_told_while_it_is_new() {
    let mut node = Node::start("h100", 1);
    let library = initialised(&node);
    let handle = device(&library, 0);
    let mut count = 0;
    let ask = |count: &mut u32, samples, since| {
        call!(library, nvmlDeviceGetProcessUtilization(handle, samples, &raw mut *count, since))
    };
    assert_eq!(ask(&mut count, null_mut(), 0), NOT_FOUND, "nobody is there");
    let _load = node.load(0, "bert-finetune", &[]);
    assert_eq!((ask(&mut count, null_mut(), 0), count), (INSUFFICIENT_SIZE, 1));
    let mut sample = nvml::nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    assert_eq!(ask(&mut count, &raw mut sample, 0), SUCCESS);
    assert_eq!(sample.pid, std::process::id());
    // An hour from now: whatever the machine's clock does meanwhile.
    assert_eq!(ask(&mut count, &raw mut sample, sample.timeStamp + 3_600_000_000), NOT_FOUND);
    node.set("mig", json!([0]));
    assert_eq!(ask(&mut count, &raw mut sample, 0), NOT_SUPPORTED);
    let mut rates = nvml::nvmlUtilization_t { gpu: 0, memory: 0 };
    assert_eq!(call!(library, nvmlDeviceGetUtilizationRates(handle, &raw mut rates)), NOT_SUPPORTED);
}

fn sample(library: &NvmlLib) -> nvmlGpmSample_t {
    let mut sample = null_mut();
    assert_eq!(call!(library, nvmlGpmSampleAlloc(&raw mut sample)), SUCCESS);
    sample
}

fn request(metric: u32, sample1: nvmlGpmSample_t, sample2: nvmlGpmSample_t) -> Box<nvmlGpmMetricsGet_t> {
    // SAFETY: zeros are a valid value of this structure of numbers and pointers.
    let mut request: Box<nvmlGpmMetricsGet_t> = Box::new(unsafe { std::mem::zeroed() });
    (request.version, request.numMetrics) = (nvml::NVML_GPM_METRICS_GET_VERSION, 1);
    (request.sample1, request.sample2) = (sample1, sample2);
    request.metrics[0].metricId = metric;
    request
}

#[test]
fn gpm_samples_are_of_one_device_in_order_and_apart() {
    let node = Node::start("h100", 2);
    let library = initialised(&node);
    let (first, second, other) = (sample(&library), sample(&library), sample(&library));
    let take = |index, sample| call!(library, nvmlGpmSampleGet(device(&library, index), sample));
    let metrics = |request: &mut nvmlGpmMetricsGet_t| call!(library, nvmlGpmMetricsGet(&raw mut *request));
    assert_eq!(take(0, null_mut()), INVALID_ARGUMENT);
    assert_eq!(take(0, first), SUCCESS);
    assert_eq!(metrics(&mut request(2, first, second)), INVALID_ARGUMENT, "nothing is in the second yet");
    // A machine under load may let more than the pause go by between two calls.
    eventually("a sample comes too soon", || (take(0, first) == NOT_READY).then_some(()));
    eventually("a second sample may be taken", || (take(0, second) == SUCCESS).then_some(()));
    assert_eq!(take(1, other), SUCCESS, "another device has its own time");
    assert_eq!(metrics(&mut request(2, second, first)), INVALID_ARGUMENT);
    assert_eq!(metrics(&mut request(2, first, other)), INVALID_ARGUMENT);
    let mut wrong = request(2, first, second);
    wrong.version = 2;
    assert_eq!(metrics(&mut wrong), VERSION_MISMATCH);
    let mut empty = request(2, first, second);
    empty.numMetrics = 0;
    assert_eq!(metrics(&mut empty), INVALID_ARGUMENT);
    let mut known = request(2, first, second);
    assert_eq!((metrics(&mut known), known.metrics[0].nvmlReturn), (SUCCESS, SUCCESS));
    let mut unknown = request(99, first, second);
    assert_eq!((metrics(&mut unknown), unknown.metrics[0].nvmlReturn), (SUCCESS, NOT_SUPPORTED));
    assert_eq!(call!(library, nvmlGpmSampleFree(first)), SUCCESS);
    assert_eq!(call!(library, nvmlGpmSampleFree(first)), INVALID_ARGUMENT);
    assert_eq!(metrics(&mut request(2, first, second)), INVALID_ARGUMENT);
}

#[test]
fn gpm_is_of_hopper() {
    for (model, is_there) in [("v100", false), ("a100-40", false), ("h100", true), ("h200", true)] {
        let node = Node::start(model, 1);
        let library = initialised(&node);
        let handle = device(&library, 0);
        let mut support = nvmlGpmSupport_t { version: 1, isSupportedDevice: 7 };
        assert_eq!(call!(library, nvmlGpmQueryDeviceSupport(handle, &raw mut support)), SUCCESS);
        assert_eq!(support.isSupportedDevice, u32::from(is_there), "{model}");
        let expected = if is_there { SUCCESS } else { NOT_SUPPORTED };
        assert_eq!(call!(library, nvmlGpmSampleGet(handle, sample(&library))), expected, "{model}");
    }
}

#[test]
fn an_event_set_waits_and_ends() {
    let mut node = Node::start("h100", 1);
    let library = initialised(&node);
    let mut set: nvmlEventSet_t = null_mut();
    // SAFETY: zeros are a valid value of this structure of numbers and pointers.
    let mut data: nvmlEventData_t = unsafe { std::mem::zeroed() };
    assert_eq!(call!(library, nvmlEventSetCreate(&raw mut set)), SUCCESS);
    assert_eq!(call!(library, nvmlEventSetWait_v2(set, &raw mut data, 3)), TIMEOUT);
    let register = |types| call!(library, nvmlDeviceRegisterEvents(device(&library, 0), types, set));
    assert_eq!(register(1), NOT_SUPPORTED);
    assert_eq!(register(u64::from(nvml::nvmlEventTypeXidCriticalError)), SUCCESS);
    node.set("xid", json!([{ "index": 0, "code": 48 }]));
    assert_eq!(call!(library, nvmlEventSetWait_v2(set, &raw mut data, 3)), SUCCESS);
    assert_eq!((data.eventData, data.device), (48, device(&library, 0)));
    assert_eq!(call!(library, nvmlEventSetWait_v2(set, &raw mut data, 0)), TIMEOUT);
    assert_eq!(call!(library, nvmlEventSetFree(set)), SUCCESS);
    assert_eq!(call!(library, nvmlEventSetWait_v2(set, &raw mut data, 0)), INVALID_ARGUMENT);
}

#[test]
fn instances_are_those_of_a_device_with_mig_on() {
    let mut node = Node::start("a100-40", 2);
    node.set("mig", json!([1]));
    node.set("mig_instances", json!([{ "index": 1, "profile": "3g.20gb", "start": 4 }]));
    let library = initialised(&node);
    let (whole, cut_up) = (device(&library, 0), device(&library, 1));
    let (mut count, mut id, mut instance) = (9, 9, null_mut());
    let by_index = |device, index, instance: &mut nvmlDevice_t| {
        call!(library, nvmlDeviceGetMigDeviceHandleByIndex(device, index, &raw mut *instance))
    };
    assert_eq!(call!(library, nvmlDeviceGetMaxMigDeviceCount(whole, &raw mut count)), SUCCESS);
    assert_eq!((count, by_index(whole, 0, &mut instance)), (0, NOT_SUPPORTED));
    assert_eq!(call!(library, nvmlDeviceGetMaxMigDeviceCount(cut_up, &raw mut count)), SUCCESS);
    assert_eq!((count, by_index(cut_up, 1, &mut instance)), (7, NOT_FOUND));
    assert_eq!(by_index(cut_up, 7, &mut instance), INVALID_ARGUMENT);
    assert_eq!(by_index(cut_up, 0, &mut instance), SUCCESS);
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceId(cut_up, &raw mut id)), NOT_SUPPORTED, "a whole GPU");
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceId(null_mut(), &raw mut id)), INVALID_ARGUMENT);
    assert_eq!(call!(library, nvmlDeviceGetGpuInstanceId(instance, &raw mut id)), SUCCESS);
    assert_eq!(call!(library, nvmlDeviceGetPowerUsage(instance, &raw mut count)), INVALID_ARGUMENT);
    let mut name = [0; 96];
    assert_eq!(call!(library, nvmlDeviceGetUUID(instance, name.as_mut_ptr(), 20)), INSUFFICIENT_SIZE);
    let (mut part, mut no_part) = (null_mut(), null_mut());
    let by_id = |device, id, part| call!(library, nvmlDeviceGetGpuInstanceById(device, id, part));
    assert_eq!((id, by_id(cut_up, 2, &raw mut part)), (2, SUCCESS), "the second place of its size");
    assert_eq!(by_id(cut_up, 1, &raw mut no_part), NOT_FOUND);
    assert_eq!(by_id(whole, 2, &raw mut no_part), NOT_SUPPORTED);
    // SAFETY: zeros are a valid value of this structure of numbers and a pointer.
    let mut info: nvml::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
    assert_eq!(call!(library, nvmlGpuInstanceGetInfo(null_mut(), &raw mut info)), INVALID_ARGUMENT);
    assert_eq!(call!(library, nvmlGpuInstanceGetInfo(part, &raw mut info)), SUCCESS);
    assert_eq!((info.device, info.id, info.placement.start, info.placement.size), (cut_up, 2, 4, 4));
    node.set("not_root", json!(true));
    assert_eq!(by_id(cut_up, 2, &raw mut no_part), nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
    for impossible in [
        json!([{ "index": 1, "profile": "3g.20gb", "start": 2 }]),
        json!([{ "index": 1, "profile": "3g.40gb", "start": 0 }]),
        json!([{ "index": 1, "profile": "4g.20gb", "start": 0 }, { "index": 1, "profile": "1g.5gb", "start": 3 }]),
    ] {
        node.set("mig_instances", impossible);
        assert_eq!(by_index(cut_up, 0, &mut instance), UNKNOWN);
    }
}

#[test]
fn clocks_and_pcie_counters_are_those_that_exist() {
    let node = Node::start("h100", 1);
    let library = initialised(&node);
    let handle = device(&library, 0);
    let mut value = 0;
    assert_eq!(call!(library, nvmlDeviceGetClockInfo(handle, 2, &raw mut value)), NOT_SUPPORTED);
    assert_eq!(call!(library, nvmlDeviceGetClockInfo(handle, 4, &raw mut value)), INVALID_ARGUMENT);
    assert_eq!(call!(library, nvmlDeviceGetPcieThroughput(handle, 2, &raw mut value)), INVALID_ARGUMENT);
    assert_eq!(call!(library, nvmlDeviceGetFieldValues(handle, 0, null_mut())), INVALID_ARGUMENT);
}

#[test]
fn the_way_between_two_devices_is_asked_of_two() {
    let mut node = Node::start("h100", 2);
    let library = initialised(&node);
    let [one, other] = [0, 1].map(|index| device(&library, index));
    let (mut level, mut status) = (0, 0);
    let nowhere = without_provenance_mut(0x10);
    for pair in [(one, one), (one, nowhere), (nowhere, one)] {
        assert_eq!(
            call!(library, nvmlDeviceGetTopologyCommonAncestor(pair.0, pair.1, &raw mut level)),
            INVALID_ARGUMENT
        );
        assert_eq!(
            call!(library, nvmlDeviceGetP2PStatus(pair.0, pair.1, 2, &raw mut status)),
            INVALID_ARGUMENT
        );
    }
    assert_eq!(call!(library, nvmlDeviceGetP2PStatus(one, other, 5, &raw mut status)), INVALID_ARGUMENT);
    // This machine says nothing of its bus.
    assert_eq!(
        call!(library, nvmlDeviceGetTopologyCommonAncestor(one, other, &raw mut level)),
        NOT_SUPPORTED
    );
    assert_eq!(call!(library, nvmlDeviceGetP2PStatus(one, other, 2, &raw mut status)), SUCCESS);
    assert_eq!(status, nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED);
    node.set("lost", json!([1]));
    assert_eq!(call!(library, nvmlDeviceGetP2PStatus(one, other, 2, &raw mut status)), GPU_IS_LOST);
}
