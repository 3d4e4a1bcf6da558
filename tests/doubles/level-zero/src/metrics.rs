//! `zet*`: the metric sets and the streamer. Each tile has two sets; one is for queries only.

use crate::state::{Object, Refusal, State, Stream, TileId};
use crate::{call, faults, fill, give, model, put, take, write_text};
use level_zero_sys::*;
use pillion_device::simulated::Counters;

/// The sets of a tile: one that is sampled by events comes first, and has the same name.
const GROUPS: [(&str, u32); 3] = [
    ("ComputeBasic", ZET_METRIC_GROUP_SAMPLING_TYPE_FLAG_EVENT_BASED),
    ("MemoryProfile", ZET_METRIC_GROUP_SAMPLING_TYPE_FLAG_TIME_BASED),
    ("ComputeBasic", ZET_METRIC_GROUP_SAMPLING_TYPE_FLAG_TIME_BASED),
];
const STREAMED: u32 = 2;
const METRICS: [(&str, &str); 8] = [
    ("GpuTime", "ns"),
    ("XVE_ACTIVE", "percent"),
    ("XVE_STALL", "percent"),
    ("XVE_THREADS_OCCUPANCY_ALL", "percent"),
    ("GPU_MEMORY_BYTE_READ", "bytes"),
    ("GPU_MEMORY_BYTE_WRITE", "bytes"),
    ("L3_READ", "bytes"),
    ("L3_WRITE", "bytes"),
];
/// The hardware cannot sample faster.
const PERIOD_NANOSECONDS_MIN: u32 = 100_000;
/// Older reports are overwritten.
const PENDING_MAX: usize = 100_000;

/// One report, one number a metric.
pub(crate) type Report = [f64; 8];
const REPORT_BYTES: usize = 64;

fn ready(state: &State) -> Result<(), Refusal> {
    if state.has_core && state.has_metrics { Ok(()) } else { Err(Refusal(ZE_RESULT_ERROR_UNINITIALIZED)) }
}

/// The metrics that there are, by number.
fn present() -> Vec<usize> {
    let missing = faults::now().missing_metrics;
    (0..METRICS.len()).filter(|number| !missing.contains(METRICS[*number].0)).collect()
}

fn group(state: &State, handle: zet_metric_group_handle_t) -> Result<(TileId, u32), Refusal> {
    match state.object(handle.0)? {
        Object::Group(tile, number) => Ok((tile, number)),
        _ => Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricGroupGet(
    hDevice: ze_device_handle_t,
    pCount: *mut u32,
    phMetricGroups: *mut zet_metric_group_handle_t,
) -> ze_result_t {
    call("zetMetricGroupGet", |state| {
        ready(state)?;
        let tile = state.core_tile(hDevice.0)?;
        let handles: Vec<_> = (0..3)
            .map(|number| zet_metric_group_handle_t(state.handle(Object::Group(tile, number))))
            .collect();
        give(pCount, phMetricGroups, &handles).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricGroupGetProperties(
    hMetricGroup: zet_metric_group_handle_t,
    pProperties: *mut zet_metric_group_properties_t,
) -> ze_result_t {
    call("zetMetricGroupGetProperties", |state| {
        let (_, number) = group(state, hMetricGroup)?;
        let (name, sampling) = GROUPS[number as usize];
        fill!(pProperties: zet_metric_group_properties_t, |properties| {
            write_text(&mut properties.name, name);
            properties.samplingType = sampling;
            properties.metricCount = u32::try_from(present().len()).unwrap_or(0);
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricGet(
    hMetricGroup: zet_metric_group_handle_t,
    pCount: *mut u32,
    phMetrics: *mut zet_metric_handle_t,
) -> ze_result_t {
    call("zetMetricGet", |state| {
        let (tile, number) = group(state, hMetricGroup)?;
        let handle = |metric: usize| {
            let metric = u32::try_from(metric).unwrap_or(0);
            zet_metric_handle_t(state.handle(Object::Metric(tile, number, metric)))
        };
        let handles: Vec<_> = present().into_iter().map(handle).collect();
        give(pCount, phMetrics, &handles).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricGetProperties(
    hMetric: zet_metric_handle_t,
    pProperties: *mut zet_metric_properties_t,
) -> ze_result_t {
    call("zetMetricGetProperties", |state| {
        let Object::Metric(_, _, metric) = state.object(hMetric.0)? else {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        };
        let (name, unit) = METRICS[metric as usize];
        fill!(pProperties: zet_metric_properties_t, |properties| {
            write_text(&mut properties.name, name);
            write_text(&mut properties.resultUnits, unit);
            properties.resultType = kind(metric as usize);
        })
    })
}

/// Percents are floats, everything else is counted.
fn kind(metric: usize) -> u32 {
    if METRICS[metric].1 == "percent" { ZET_VALUE_TYPE_FLOAT32 } else { ZET_VALUE_TYPE_UINT64 }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetContextActivateMetricGroups(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    count: u32,
    phMetricGroups: *mut zet_metric_group_handle_t,
) -> ze_result_t {
    call("zetContextActivateMetricGroups", |state| {
        ready(state)?;
        let Object::Context(_) = state.object(hContext.0)? else {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        };
        let tile = state.core_tile(hDevice.0)?;
        if phMetricGroups.is_null() != (count == 0) || count > 1 {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_SIZE));
        }
        if count == 0 {
            state.active.remove(&tile);
            return Ok(());
        }
        let (of, number) = group(state, take(phMetricGroups.cast_const())?)?;
        if of != tile {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ARGUMENT));
        }
        state.active.insert(tile, number);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricStreamerOpen(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    hMetricGroup: zet_metric_group_handle_t,
    desc: *mut zet_metric_streamer_desc_t,
    _hNotificationEvent: ze_event_handle_t,
    phMetricStreamer: *mut zet_metric_streamer_handle_t,
) -> ze_result_t {
    call("zetMetricStreamerOpen", |state| {
        ready(state)?;
        let Object::Context(_) = state.object(hContext.0)? else {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        };
        let tile = state.core_tile(hDevice.0)?;
        let (of, number) = group(state, hMetricGroup)?;
        let wanted = take(desc.cast_const())?;
        let is_described = wanted.stype == zet_metric_streamer_desc_t::new().stype
            && wanted.notifyEveryNReports > 0
            && wanted.samplingPeriod >= PERIOD_NANOSECONDS_MIN;
        if !is_described || of != tile || number != STREAMED || state.active.get(&tile) != Some(&number) {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ARGUMENT));
        }
        // The counters serve one reader at a time.
        if state.streams.values().any(|stream| stream.tile == tile) {
            return Err(Refusal(ZE_RESULT_ERROR_NOT_AVAILABLE));
        }
        let last = state.counters(tile)?;
        let period_seconds = f64::from(wanted.samplingPeriod) * 1e-9;
        let number = state.next();
        state.streams.insert(number, Stream { tile, period_seconds, last, pending: Vec::new() });
        put(phMetricStreamer, zet_metric_streamer_handle_t(state.handle(Object::Stream(number))))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricStreamerClose(
    hMetricStreamer: zet_metric_streamer_handle_t,
) -> ze_result_t {
    call("zetMetricStreamerClose", |state| match state.object(hMetricStreamer.0)? {
        Object::Stream(number) if state.streams.remove(&number).is_some() => {
            state.forget(hMetricStreamer.0);
            Ok(())
        }
        _ => Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)),
    })
}

/// Reports since the last: the difference of the counters in equal parts.
fn reports(stream: &Stream, now: &Counters) -> Vec<Report> {
    let (now, last) = (&now.totals, &stream.last.totals);
    let seconds = now.seconds - last.seconds;
    let whole = model::count((seconds / stream.period_seconds).floor());
    #[expect(clippy::cast_precision_loss, reason = "few reports")]
    let parts = whole as f64;
    let (read, written) = model::memory_traffic((now.memory - last.memory) / parts);
    let percent = |now: f64, last: f64| (now - last) / seconds * 100.0;
    let cache = (now.cache - last.cache) / parts * model::CACHE_BYTES_PER_SECOND;
    #[expect(clippy::cast_precision_loss, reason = "bytes of a hundredth of a second")]
    let report = [
        seconds / parts * 1e9,
        percent(now.issue, last.issue),
        percent(now.stall, last.stall),
        percent(now.occupancy, last.occupancy),
        read as f64,
        written as f64,
        cache / 2.0,
        cache / 2.0,
    ];
    vec![report; usize::try_from(whole).unwrap_or(0).min(PENDING_MAX)]
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricStreamerReadData(
    hMetricStreamer: zet_metric_streamer_handle_t,
    maxReportCount: u32,
    pRawDataSize: *mut usize,
    pRawData: *mut u8,
) -> ze_result_t {
    call("zetMetricStreamerReadData", |state| {
        let Object::Stream(number) = state.object(hMetricStreamer.0)? else {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        };
        let tile = state.streams.get(&number).map(|stream| stream.tile);
        let now = state.counters(tile.ok_or(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE))?)?;
        let Some(stream) = state.streams.get_mut(&number) else {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_HANDLE));
        };
        let new = reports(stream, &now);
        if !new.is_empty() {
            stream.last = now;
            stream.pending.extend(new);
        }
        let room = take(pRawDataSize.cast_const())?;
        let wanted = stream.pending.len().min(maxReportCount as usize);
        if room == 0 {
            return put(pRawDataSize, wanted * REPORT_BYTES);
        }
        if pRawData.is_null() {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
        }
        let raw: Vec<u8> = stream
            .pending
            .drain(..wanted.min(room / REPORT_BYTES))
            .flatten()
            .flat_map(f64::to_le_bytes)
            .collect();
        // SAFETY: the caller vouches for `room` bytes, of which no more are written.
        unsafe { pRawData.copy_from_nonoverlapping(raw.as_ptr(), raw.len()) };
        put(pRawDataSize, raw.len())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn zetMetricGroupCalculateMetricValues(
    hMetricGroup: zet_metric_group_handle_t,
    type_: u32,
    rawDataSize: usize,
    pRawData: *const u8,
    pMetricValueCount: *mut u32,
    pMetricValues: *mut zet_typed_value_t,
) -> ze_result_t {
    call("zetMetricGroupCalculateMetricValues", |state| {
        group(state, hMetricGroup)?;
        if type_ != ZET_METRIC_GROUP_CALCULATION_TYPE_METRIC_VALUES {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_ENUMERATION));
        }
        if pRawData.is_null() {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_NULL_POINTER));
        }
        if rawDataSize == 0 || !rawDataSize.is_multiple_of(REPORT_BYTES) {
            return Err(Refusal(ZE_RESULT_ERROR_INVALID_SIZE));
        }
        // SAFETY: the caller vouches for `rawDataSize` bytes.
        let raw = unsafe { std::slice::from_raw_parts(pRawData, rawDataSize) };
        let metrics = present();
        let mut values = Vec::new();
        for report in raw.chunks_exact(REPORT_BYTES) {
            for metric in &metrics {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&report[metric * 8..metric * 8 + 8]);
                values.push(typed(*metric, f64::from_le_bytes(bytes)));
            }
        }
        give(pMetricValueCount, pMetricValues, &values).map(|_| ())
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a percentage")]
fn typed(metric: usize, number: f64) -> zet_typed_value_t {
    let value = match kind(metric) {
        ZET_VALUE_TYPE_FLOAT32 => zet_value_t { fp32: number as f32 },
        _ => zet_value_t { ui64: model::count(number) },
    };
    zet_typed_value_t { type_: kind(metric), value }
}
