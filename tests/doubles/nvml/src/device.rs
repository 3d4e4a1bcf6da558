//! What a device is, and what its plain meters show.

use crate::library::{Gpu, Library, call_device, code};
use crate::mig::put_uuid;
use crate::model::Generation;
use crate::pointer::{Outcome, check_sized_version, get, put, put_text};
use nvml_wrapper_sys::bindings::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_COUNT as CLOCK_COUNT, nvmlClockType_enum_NVML_CLOCK_SM as CLOCK_SM,
    nvmlClockType_t, nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT as DEFAULT,
    nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS as EXCLUSIVE_PROCESS, nvmlComputeMode_t,
    nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES as PCIE_RX,
    nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES as PCIE_TX, nvmlPcieUtilCounter_t,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
    nvmlReturn_t, nvmlUtilization_t, nvmlValue_t,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT as VALUE_TYPE_UNSIGNED_INT,
};
use pillion_device::DeviceError;
use pillion_device::mps::ComputeMode;
use pillion_device::simulated::Totals;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::time::Duration;

/// What the driver keeps of each device's memory.
const RESERVED_BYTES: u64 = 629_145_600;
/// The shortest window of `nvmlDeviceGetUtilizationRates`: "between 1 second and 1/6 second".
const WINDOW_SECONDS: f64 = 1.0 / 6.0;
/// The window of `nvmlDeviceGetPcieThroughput`: "over a 20ms interval".
const PCIE_WINDOW: Duration = Duration::from_millis(20);

/// A meter's whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no meter here goes below 0")]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn small(value: f64) -> Outcome<c_uint> {
    c_uint::try_from(whole(value)).map_err(|_| INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetName", device, |library, place| {
        put_text(name, length, library.gpus[place].model.product)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    put_uuid(device, uuid, length).unwrap_or_else(|| {
        call_device("nvmlDeviceGetUUID", device, |library, place| {
            put_text(uuid, length, library.gpus[place].description.uuid.as_str())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetIndex", device, |library, place| put(index, library.index(place)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMinorNumber", device, |library, place| put(minor, library.minor_number(place)))
}

/// The bus of the first device; the others follow, each on one of its own.
const FIRST_BUS: u32 = 0x3b;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, info: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    call_device("nvmlDeviceGetPciInfo_v3", device, |library, place| {
        let bus = FIRST_BUS + library.index(place);
        let info = get(info)?;
        (info.domain, info.bus, info.device) = (0, bus, 0);
        (info.pciDeviceId, info.pciSubSystemId) = (0x2330_10de, 0x16c1_10de);
        put_text((&raw mut info.busIdLegacy).cast(), 16, &format!("0000:{bus:02X}:00.0"))?;
        put_text((&raw mut info.busId).cast(), 32, &format!("00000000:{bus:02X}:00.0"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    call_device("nvmlDeviceGetMemoryInfo_v2", device, |library, place| {
        let memory = get(memory)?;
        check_sized_version::<nvmlMemory_v2_t>(memory.version, 2)?;
        let usable = library.gpus[place].description.memory_bytes;
        memory.used = library.counters(place)?.memory_bytes_used;
        memory.reserved = RESERVED_BYTES;
        memory.total = usable + RESERVED_BYTES;
        memory.free = usable - memory.used;
        Ok(())
    })
}

/// Since the driver was loaded; Volta and later, which all of these are.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: nvmlDevice_t,
    energy: *mut c_ulonglong,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetTotalEnergyConsumption", device, |library, place| {
        put(energy, whole(library.counters(place)?.totals.energy_joules * 1000.0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint) -> nvmlReturn_t {
    call_device("nvmlDeviceGetPowerUsage", device, |library, place| {
        put(power, small(library.counters(place)?.power_watts * 1000.0)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetFieldValues", device, |library, place| {
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(INVALID_ARGUMENT)?;
        for number in 0..count {
            let value = get(values.wrapping_add(number))?;
            let answer = field(library, place, value.fieldId);
            value.nvmlReturn = answer.err().unwrap_or(SUCCESS);
            value.valueType = VALUE_TYPE_UNSIGNED_INT;
            value.value = nvmlValue_t { uiVal: answer.unwrap_or(0) };
        }
        Ok(())
    })
}

/// Power at this moment is told apart from its mean from Ampere on.
fn field(library: &mut Library, place: usize, id: c_uint) -> Outcome<c_uint> {
    let is_there = id == NVML_FI_DEV_POWER_INSTANT
        && library.gpus[place].model.generation > Generation::Volta
        && library.control.supports(&format!("field:{id}"));
    if !is_there {
        return Err(NOT_SUPPORTED);
    }
    small(library.counters(place)?.power_watts * 1000.0)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    utilization: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetUtilizationRates", device, |library, place| {
        if library.mig(place)?.is_on() {
            return Err(NOT_SUPPORTED);
        }
        let now = library.counters(place)?.totals;
        let before = turned(&mut library.gpus[place], now);
        let seconds = now.seconds - before.seconds;
        let share = |after: f64, before: f64| if seconds > 0.0 { (after - before) / seconds } else { 0.0 };
        put(
            utilization,
            nvmlUtilization_t {
                gpu: small(100.0 * share(now.busy, before.busy))?,
                // The simulated devices know how much of the bandwidth is used, not for how much of the time any is.
                memory: small(100.0 * share(now.memory, before.memory))?,
            },
        )
    })
}

/// The beginning of the utilisation window, which moves on once it is long enough.
fn turned(gpu: &mut Gpu, now: Totals) -> Totals {
    let (begin, turn) = gpu.window;
    if now.seconds - turn.seconds >= WINDOW_SECONDS {
        gpu.window = (turn, now);
        return turn;
    }
    begin
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(
    device: nvmlDevice_t,
    kind: nvmlClockType_t,
    clock: *mut c_uint,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetClockInfo", device, |library, place| match kind {
        CLOCK_SM => put(clock, library.gpus[place].model.sm_megahertz),
        CLOCK_COUNT.. => Err(INVALID_ARGUMENT),
        _ => Err(NOT_SUPPORTED),
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: nvmlDevice_t,
    reasons: *mut c_ulonglong,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetCurrentClocksThrottleReasons", device, |library, _| {
        put(reasons, library.control.throttle_reasons)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPcieThroughput(
    device: nvmlDevice_t,
    counter: nvmlPcieUtilCounter_t,
    rate: *mut c_uint,
) -> nvmlReturn_t {
    call_device("nvmlDeviceGetPcieThroughput", device, |library, place| {
        let bytes = |totals: &Totals| match counter {
            PCIE_TX => Ok(totals.pcie_tx_bytes),
            PCIE_RX => Ok(totals.pcie_rx_bytes),
            _ => Err(INVALID_ARGUMENT),
        };
        let before = library.counters(place)?.totals;
        let bytes_before = bytes(&before)?;
        std::thread::sleep(PCIE_WINDOW);
        let after = library.counters(place)?.totals;
        put(rate, small((bytes(&after)? - bytes_before) / (after.seconds - before.seconds) / 1000.0)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t) -> nvmlReturn_t {
    call_device("nvmlDeviceGetComputeMode", device, |library, place| {
        let index = library.index(place);
        let now = library.link.compute_mode(index).map_err(|error| code(&error))?;
        put(
            mode,
            match now {
                ComputeMode::Default => DEFAULT,
                ComputeMode::ExclusiveProcess => EXCLUSIVE_PROCESS,
            },
        )
    })
}

/// "Requires root/admin permissions". `EXCLUSIVE_THREAD` is gone, the simulated devices know no `PROHIBITED`, and numbers
/// beyond the last are no modes. The driver keeps the mode: it outlasts whoever set it, and holds for every process.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t) -> nvmlReturn_t {
    call_device("nvmlDeviceSetComputeMode", device, |library, place| {
        let wanted = match mode {
            DEFAULT => ComputeMode::Default,
            EXCLUSIVE_PROCESS => ComputeMode::ExclusiveProcess,
            1..EXCLUSIVE_PROCESS => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_ARGUMENT),
        };
        if library.control.not_root {
            return Err(NO_PERMISSION);
        }
        let index = library.index(place);
        library.link.set_compute_mode(index, wanted).map_err(|error| match error {
            DeviceError::Refused { .. } => NO_PERMISSION,
            DeviceError::Unsupported { .. } => NOT_SUPPORTED,
            other => code(&other),
        })
    })
}
