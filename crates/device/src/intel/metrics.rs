//! The metric streamer: hardware counters of the metric set `ComputeBasic`, in short bursts that a site asks for.
//!
//! The counters are of the whole tile and serve one reader at a time, and reading them costs the tile's programs
//! something: so it is off by default, and never on for longer than a burst. A burst begins and ends at a sample; each sample
//! in between takes what came since the one before. Nothing waits.

use super::calls::{Answer, Calls, Failure};
use super::convert::text;
use super::session::{Session, Tile, Way};
use level_zero_sys::*;
use pillion_core::metric::{Metric, MetricSource, Metrics};
use pillion_core::{Fraction, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

const GROUP: &str = "ComputeBasic";
/// One report in 10 ms: a hundred a second is enough for means, and little to carry.
const REPORT_NANOSECONDS: u32 = 10_000_000;

/// When the metric streamer runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// How long at a time.
    pub burst: Duration,
    /// From the beginning of one to that of the next.
    pub period: Duration,
}

/// Where in a report each metric stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Columns {
    count: usize,
    gpu_time: Option<usize>,
    active: Option<usize>,
    stall: Option<usize>,
    occupancy: Option<usize>,
    memory: Vec<usize>,
    cache: Vec<usize>,
}

impl Columns {
    /// From the names and units of all metrics of a set, in their order. Cache traffic counts only where it is in bytes:
    /// on some devices it is a number of messages.
    fn find(metrics: &[(String, String)]) -> Self {
        let at = |wanted: &str| metrics.iter().position(|(name, _)| name == wanted);
        let bytes = |names: [&str; 2]| {
            let found = names.map(at);
            let found: Vec<usize> = found
                .into_iter()
                .flatten()
                .filter(|position| metrics[*position].1.eq_ignore_ascii_case("bytes"))
                .collect();
            if found.len() == 2 { found } else { Vec::new() }
        };
        let mut cache = bytes(["L3_BYTE_READ", "L3_BYTE_WRITE"]);
        if cache.is_empty() {
            cache = bytes(["L3_READ", "L3_WRITE"]);
        }
        Self {
            count: metrics.len(),
            gpu_time: at("GpuTime"),
            active: at("XVE_ACTIVE"),
            stall: at("XVE_STALL"),
            occupancy: at("XVE_THREADS_OCCUPANCY_ALL"),
            memory: bytes(["GPU_MEMORY_BYTE_READ", "GPU_MEMORY_BYTE_WRITE"]),
            cache,
        }
    }
}

/// What the reports between two samples say together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Means {
    active: Option<Fraction>,
    stall: Option<Fraction>,
    occupancy: Option<Fraction>,
    memory_bytes_per_second: Option<f64>,
    cache_bytes_per_second: Option<f64>,
}

/// Means over all reports, each by its own time (nanoseconds); `None` without any.
fn means(columns: &Columns, values: &[f64]) -> Option<Means> {
    let time = columns.gpu_time?;
    let reports: Vec<&[f64]> = values
        .chunks_exact(columns.count.max(1))
        .filter(|report| report[time].is_finite() && report[time] > 0.0)
        .collect();
    let nanoseconds: f64 = reports.iter().map(|report| report[time]).sum();
    if reports.is_empty() {
        return None;
    }
    let percent = |column: Option<usize>| {
        let column = column?;
        let sum: f64 = reports.iter().map(|report| report[column] * report[time]).sum();
        sum.is_finite().then(|| Fraction::clamped(sum / nanoseconds / 100.0))
    };
    let rate = |columns: &[usize]| {
        let bytes: f64 = reports.iter().map(|report| columns.iter().map(|at| report[*at]).sum::<f64>()).sum();
        (!columns.is_empty() && bytes.is_finite()).then(|| bytes / nanoseconds * 1e9)
    };
    Some(Means {
        active: percent(columns.active),
        stall: percent(columns.stall),
        occupancy: percent(columns.occupancy),
        memory_bytes_per_second: rate(&columns.memory),
        cache_bytes_per_second: rate(&columns.cache),
    })
}

/// The greatest rates of a tile, where they are known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Greatest {
    pub(super) memory_bytes_per_second: Option<f64>,
    pub(super) cache_bytes_per_second: Option<f64>,
}

/// A rate as a fraction of the greatest, where both are known.
fn part(rate: Option<f64>, greatest: Option<f64>) -> Option<Fraction> {
    let greatest = greatest.filter(|greatest| *greatest > 0.0)?;
    Some(Fraction::clamped(rate? / greatest))
}

/// Adds what the streamer gave; what sysman counted over the whole interval stands.
pub(super) fn fill(metrics: &mut Metrics, means: &Means, greatest: Greatest) {
    let mut streamed = Metrics::default();
    for (metric, value) in [
        (Metric::SmActiveFraction, means.active),
        (Metric::StallFraction, means.stall),
        (Metric::SmOccupancyFraction, means.occupancy),
        (Metric::CacheBandwidthFraction, part(means.cache_bytes_per_second, greatest.cache_bytes_per_second)),
        (
            Metric::MemoryBandwidthFraction,
            part(means.memory_bytes_per_second, greatest.memory_bytes_per_second),
        ),
    ] {
        streamed.set_known(metric, value);
    }
    metrics.fill(&streamed.from_source(MetricSource::MetricStreamer));
}

/// A stream that is open.
#[derive(Debug)]
struct Running {
    stream: zet_metric_streamer_handle_t,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    group: zet_metric_group_handle_t,
    columns: Columns,
    began_at: UnixTime,
}

/// The bursts of all tiles.
#[derive(Debug, Default)]
pub(super) struct Streams {
    contexts: BTreeMap<ze_driver_handle_t, ze_context_handle_t>,
    running: BTreeMap<u32, Running>,
    began_at: BTreeMap<u32, UnixTime>,
}

impl Streams {
    /// What came since the sample before, if a burst is on; begins and ends bursts as they are due. A burst that fails is
    /// over; the next is tried when it is due.
    pub(super) fn sample(
        &mut self,
        session: &Session,
        tile: &Tile,
        bursts: Bursts,
        now: UnixTime,
    ) -> Answer<Option<Means>> {
        let Some(running) = self.running.get(&tile.index) else {
            let is_due = self.began_at.get(&tile.index).is_none_or(|began_at| {
                // A clock that was set back makes it due as well.
                *began_at > now || now.seconds_since(*began_at) >= bursts.period.as_secs_f64()
            });
            if is_due {
                self.began_at.insert(tile.index, now);
                let running = self.begin(session, tile, now)?;
                self.running.insert(tile.index, running);
            }
            return Ok(None);
        };
        let answer = take(&session.calls, running);
        let began_at = running.began_at;
        let is_over = began_at > now || now.seconds_since(began_at) >= bursts.burst.as_secs_f64();
        if is_over || answer.is_err() {
            self.end(&session.calls, tile.index);
        }
        answer
    }

    fn begin(&mut self, session: &Session, tile: &Tile, now: UnixTime) -> Answer<Running> {
        let calls = &session.calls;
        let (driver, device) = core_device(session, tile)?;
        let (group, columns) = compute_basic(calls, device)?;
        let context = match self.contexts.get(&driver) {
            Some(context) => *context,
            None => calls.create_context(driver)?,
        };
        self.contexts.insert(driver, context);
        calls.activate(context, device, Some(group))?;
        match calls.open_stream(context, device, group, REPORT_NANOSECONDS) {
            Ok(stream) => Ok(Running { stream, context, device, group, columns, began_at: now }),
            Err(failure) => {
                // The failure to tell is that of the stream.
                let _ = calls.activate(context, device, None);
                Err(failure)
            }
        }
    }

    /// Ends the burst of a tile, if one is on.
    pub(super) fn end(&mut self, calls: &Calls, index: u32) {
        if let Some(Running { stream, context, device, .. }) = self.running.remove(&index) {
            let closed = calls.close_stream(stream).and_then(|()| calls.activate(context, device, None));
            if let Err(failure) = closed {
                tracing::debug!(device = index, ?failure, "a metric stream was not closed in order");
            }
        }
    }

    /// Ends everything, before the library goes.
    pub(super) fn end_all(&mut self, calls: &Calls) {
        let indexes: Vec<u32> = self.running.keys().copied().collect();
        for index in indexes {
            self.end(calls, index);
        }
        for (_, context) in std::mem::take(&mut self.contexts) {
            if let Err(failure) = calls.destroy_context(context) {
                tracing::debug!(?failure, "a context was not destroyed");
            }
        }
    }
}

fn take(calls: &Calls, running: &Running) -> Answer<Option<Means>> {
    let raw = calls.read_stream(running.stream)?;
    if raw.is_empty() {
        return Ok(None);
    }
    Ok(means(&running.columns, &calls.values(running.group, &raw)?))
}

/// The tile as the core of Level Zero knows it, and its driver. In the modern way it is another object than sysman's,
/// found by the card's UUID.
fn core_device(session: &Session, tile: &Tile) -> Answer<(ze_driver_handle_t, ze_device_handle_t)> {
    let (calls, card) = (&session.calls, session.card(tile));
    if session.way == Way::Modern {
        calls.init_core()?;
    }
    let none = Failure { call: "zeDeviceGet", result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE };
    for driver in calls.core_drivers()? {
        for device in calls.core_devices(driver)? {
            if calls.core_properties(device)?.uuid != card.uuid {
                continue;
            }
            if card.tile_count == 1 {
                return Ok((driver, device));
            }
            let tiles = calls.sub_devices(device)?;
            return tiles.get(tile.number as usize).map(|tile| (driver, *tile)).ok_or(none);
        }
    }
    Err(none)
}

/// The set of metrics, and where in its reports each stands.
fn compute_basic(calls: &Calls, device: ze_device_handle_t) -> Answer<(zet_metric_group_handle_t, Columns)> {
    for group in calls.metric_groups(device)? {
        let properties = calls.group_properties(group)?;
        let is_timed = properties.samplingType & ZET_METRIC_GROUP_SAMPLING_TYPE_FLAG_TIME_BASED != 0;
        if !is_timed || text(&properties.name) != GROUP {
            continue;
        }
        let mut metrics = Vec::new();
        for metric in calls.metrics(group)? {
            let properties = calls.metric_properties(metric)?;
            metrics.push((text(&properties.name), text(&properties.resultUnits)));
        }
        return Ok((group, Columns::find(&metrics)));
    }
    Err(Failure { call: "zetMetricGroupGet", result: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(metrics: &[(&str, &str)]) -> Columns {
        let metrics: Vec<(String, String)> =
            metrics.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect();
        Columns::find(&metrics)
    }

    fn all() -> Columns {
        columns(&[
            ("GpuTime", "ns"),
            ("XVE_ACTIVE", "percent"),
            ("XVE_STALL", "percent"),
            ("XVE_THREADS_OCCUPANCY_ALL", "percent"),
            ("GPU_MEMORY_BYTE_READ", "bytes"),
            ("GPU_MEMORY_BYTE_WRITE", "bytes"),
            ("L3_READ", "bytes"),
            ("L3_WRITE", "bytes"),
        ])
    }

    #[test]
    fn cache_traffic_counts_only_in_bytes() {
        assert_eq!(all().cache, [6, 7]);
        assert_eq!(columns(&[("L3_READ", "messages"), ("L3_WRITE", "messages")]).cache, [0_usize; 0]);
        assert_eq!(columns(&[("L3_BYTE_READ", "bytes"), ("L3_BYTE_WRITE", "Bytes")]).cache, [0, 1]);
        assert_eq!(columns(&[("L3_READ", "bytes")]).cache, [0_usize; 0], "half of it is nothing");
    }

    #[test]
    fn percents_are_means_over_time_and_bytes_a_rate() {
        // 10 ms and 30 ms: 80 % and 40 % active are 50 %.
        let values = [1e7, 80.0, 10.0, 60.0, 1e6, 1e6, 4e6, 0.0, 3e7, 40.0, 50.0, 20.0, 5e6, 1e6, 0.0, 0.0];
        let means = means(&all(), &values).unwrap();
        let near = |fraction: Option<Fraction>, value: f64| (fraction.unwrap().value() - value).abs() < 1e-12;
        assert!(near(means.active, 0.5), "{means:?}");
        assert!(near(means.stall, 0.4), "{means:?}");
        assert!(near(means.occupancy, 0.3), "{means:?}");
        assert!((means.memory_bytes_per_second.unwrap() - 2e8).abs() < 1.0, "{means:?}");
        assert!((means.cache_bytes_per_second.unwrap() - 1e8).abs() < 1.0, "{means:?}");
    }

    #[test]
    fn no_report_and_no_time_give_nothing() {
        assert_eq!(means(&all(), &[]), None);
        assert_eq!(means(&all(), &[0.0; 8]), None, "a report of no time");
        assert_eq!(means(&all(), &[1e7, 80.0]), None, "half a report");
        assert_eq!(means(&Columns::default(), &[1.0]), None, "nothing is known of the reports");
        let mut values = [1e7; 8];
        values[1] = f64::NAN;
        let means = means(&all(), &values).unwrap();
        assert!(means.active.is_none() && means.stall.is_some(), "{means:?}");
    }

    #[test]
    fn what_sysman_counted_stands_and_a_rate_needs_its_greatest() {
        let means = Means {
            active: Some(Fraction::clamped(0.5)),
            stall: Some(Fraction::clamped(0.2)),
            occupancy: Some(Fraction::clamped(0.1)),
            memory_bytes_per_second: Some(3e11),
            cache_bytes_per_second: Some(1e12),
        };
        let counted = Metrics::from([(Metric::MemoryBandwidthFraction, 1.0)]);
        let mut counted = counted.from_source(MetricSource::Sysman);
        fill(&mut counted, &means, Greatest::default());
        assert_eq!(counted.fraction(Metric::MemoryBandwidthFraction), Some(Fraction::ONE));
        assert_eq!(counted.fraction(Metric::CacheBandwidthFraction), None);
        assert_eq!(counted.fraction(Metric::SmActiveFraction), means.active);
        assert_eq!(counted.fraction(Metric::StallFraction), means.stall);
        assert_eq!(counted.fraction(Metric::SmOccupancyFraction), means.occupancy);
        let source = |metric| counted.source(metric);
        assert_eq!(source(Metric::SmActiveFraction), Some(MetricSource::MetricStreamer));
        assert_eq!(source(Metric::MemoryBandwidthFraction), Some(MetricSource::Sysman));
        let mut bare = Metrics::default();
        let greatest = Greatest { memory_bytes_per_second: Some(6e11), cache_bytes_per_second: Some(4e12) };
        fill(&mut bare, &means, greatest);
        assert_eq!(bare.fraction(Metric::MemoryBandwidthFraction), Some(Fraction::clamped(0.5)));
        assert_eq!(bare.fraction(Metric::CacheBandwidthFraction), Some(Fraction::clamped(0.25)));
    }
}
