//! GPU performance monitoring: samples of a device's integrals, and what two of them say.

use crate::library::{Library, call, call_device};
use crate::model::Generation;
use crate::pointer::{Outcome, check_version, get, put};
use nvml_wrapper_sys::bindings::{
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_SUPPORT_VERSION, nvmlDevice_t, nvmlGpmMetric_t__bindgen_ty_1,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL as ANY_TENSOR,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL as DRAM_BANDWIDTH,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_FP32_UTIL as FP32,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL as GRAPHICS,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC as NVLINK_RX,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC as NVLINK_TX,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC as PCIE_RX,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC as PCIE_TX,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY as SM_OCCUPANCY,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL as SM, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_READY as NOT_READY,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
    nvmlReturn_t,
};
use pillion_device::simulated::Totals;
use std::ffi::{CStr, c_uint};
use std::ptr;
use std::time::{Duration, Instant};

/// "The interval between two `nvmlGpmSampleGet()` calls should be greater than 100ms."
const PAUSE: Duration = Duration::from_millis(100);

fn check_support(library: &Library, place: usize) -> Outcome {
    let is_there = library.gpus[place].model.generation >= Generation::Hopper;
    if is_there && !library.mig(place)?.is_on() { Ok(()) } else { Err(NOT_SUPPORTED) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(
    device: nvmlDevice_t,
    support: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    call_device("nvmlGpmQueryDeviceSupport", device, |library, place| {
        let support = get(support)?;
        check_version(support.version, NVML_GPM_SUPPORT_VERSION)?;
        support.isSupportedDevice = c_uint::from(check_support(library, place).is_ok());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    call(|library| {
        let handle = library.new_handle();
        put(sample, ptr::without_provenance_mut(handle))?;
        library.samples.insert(handle, None);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    call(|library| library.samples.remove(&sample.addr()).map(drop).ok_or(INVALID_ARGUMENT))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    call_device("nvmlGpmSampleGet", device, |library, place| {
        check_support(library, place)?;
        if !library.samples.contains_key(&sample.addr()) {
            return Err(INVALID_ARGUMENT);
        }
        let gpu = &mut library.gpus[place];
        #[expect(clippy::disallowed_methods, reason = "a library reads the machine's clock")]
        let now = Instant::now();
        if gpu.sampled_at.is_some_and(|before| now - before < PAUSE) {
            return Err(NOT_READY);
        }
        gpu.sampled_at = Some(now);
        let taken = (library.index(place), library.counters(place)?.totals);
        library.samples.insert(sample.addr(), Some(taken));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    call(|library| {
        let request = get(request)?;
        check_version(request.version, NVML_GPM_METRICS_GET_VERSION)?;
        let taken = |sample: nvmlGpmSample_t| {
            library.samples.get(&sample.addr()).copied().flatten().ok_or(INVALID_ARGUMENT)
        };
        let ((first_device, first), (second_device, second)) =
            (taken(request.sample1)?, taken(request.sample2)?);
        let count = usize::try_from(request.numMetrics).map_err(|_| INVALID_ARGUMENT)?;
        let metrics = request.metrics.get_mut(..count).filter(|metrics| !metrics.is_empty());
        let metrics = metrics.ok_or(INVALID_ARGUMENT)?;
        if first_device != second_device || second.seconds <= first.seconds {
            return Err(INVALID_ARGUMENT);
        }
        for metric in metrics {
            let value = value(library, metric.metricId, &first, &second);
            metric.nvmlReturn = value.err().unwrap_or(SUCCESS);
            metric.value = value.unwrap_or(0.0);
            let (short, unit) = names(metric.metricId);
            metric.metricInfo = nvmlGpmMetric_t__bindgen_ty_1 {
                shortName: short.as_ptr().cast_mut(),
                longName: short.as_ptr().cast_mut(),
                unit: unit.as_ptr().cast_mut(),
            };
        }
        Ok(())
    })
}

/// One metric over the time between two samples: percents, or MiB/s.
fn value(library: &Library, id: c_uint, first: &Totals, second: &Totals) -> Outcome<f64> {
    if !library.control.supports(&format!("gpm:{id}")) {
        return Err(NOT_SUPPORTED);
    }
    let seconds = second.seconds - first.seconds;
    let over = |part: fn(&Totals) -> f64| (part(second) - part(first)) / seconds;
    let mebibytes = |rate: f64| rate / 1024.0 / 1024.0;
    let of_nvlink =
        |pick: fn((f64, f64)) -> f64| library.control.nvlink_mebibytes.map(pick).ok_or(NOT_SUPPORTED);
    match id {
        GRAPHICS => Ok(100.0 * over(|totals| totals.busy)),
        // An SM counts as active with a warp assigned to it, which may wait.
        SM => Ok(100.0 * over(|totals| totals.issue + totals.stall)),
        SM_OCCUPANCY => Ok(100.0 * over(|totals| totals.occupancy)),
        ANY_TENSOR => library.control.tensor_percent.ok_or(NOT_SUPPORTED),
        DRAM_BANDWIDTH => Ok(100.0 * over(|totals| totals.memory)),
        FP32 => Ok(100.0 * over(|totals| totals.fp32)),
        PCIE_TX => Ok(mebibytes(over(|totals| totals.pcie_tx_bytes))),
        PCIE_RX => Ok(mebibytes(over(|totals| totals.pcie_rx_bytes))),
        NVLINK_TX => of_nvlink(|(tx, _)| tx),
        NVLINK_RX => of_nvlink(|(_, rx)| rx),
        _ => Err(NOT_SUPPORTED),
    }
}

fn names(id: c_uint) -> (&'static CStr, &'static CStr) {
    match id {
        PCIE_TX | PCIE_RX | NVLINK_TX | NVLINK_RX => (c"throughput", c"MiB/s"),
        _ => (c"utilization", c"%"),
    }
}
