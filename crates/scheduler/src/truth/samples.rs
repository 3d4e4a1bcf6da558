//! Samples of devices: those of the node that reports, dated when they can have been taken, with values that a device can have.

use super::doubt::Doubt;
use super::reporter::Reporter;
use pillion_core::metric::Metric;
use pillion_core::report::{DeviceSample, DeviceSamples};
use std::time::Duration;

/// The most power that a device can draw.
pub(super) const POWER_WATTS_MAX: f64 = 2_000.0;
/// How far in the future a sample may be dated: clocks are never quite alike.
const AHEAD_SECONDS_MAX: f64 = 60.0;

/// What of a report of samples counts, and why the rest does not. `kept`: how long samples are kept at all.
pub(crate) fn cleaned(
    reported: DeviceSamples,
    by: Reporter<'_>,
    kept: Duration,
) -> (Option<DeviceSamples>, Vec<Doubt>) {
    let age = by.now.seconds() - by.seconds(reported.recorded_at);
    if age < -AHEAD_SECONDS_MAX || age > kept.as_secs_f64() {
        return (None, vec![Doubt::Times]);
    }
    let mut doubts = Vec::new();
    let mut samples = Vec::with_capacity(reported.samples.len().min(by.devices.len()));
    for mut sample in reported.samples {
        match by.devices.get(&sample.gres_type) {
            None => doubts.push(Doubt::OtherDevice),
            Some(memory_bytes) => {
                doubts.extend(clean(&mut sample, *memory_bytes));
                samples.push(sample);
            }
        }
    }
    (Some(DeviceSamples { recorded_at: reported.recorded_at, samples }), doubts)
}

/// Takes out what the device cannot have measured.
fn clean(sample: &mut DeviceSample, memory_bytes: u64) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let reading = &mut sample.reading;
    if reading.metrics.get(Metric::PowerWatts).is_some_and(|watts| watts > POWER_WATTS_MAX) {
        reading.metrics.remove(Metric::PowerWatts);
        doubts.push(Doubt::Reading);
    }
    if memory_bytes > 0
        && reading.metrics.bytes(Metric::MemoryBytesUsed).is_some_and(|used| used > memory_bytes)
    {
        reading.metrics.remove(Metric::MemoryBytesUsed);
        doubts.push(Doubt::Memory);
    }
    doubts
}
