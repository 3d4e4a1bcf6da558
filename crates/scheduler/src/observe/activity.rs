//! How busy each device of an observed node was, minute by minute, from what its agent samples: a busy device is told of once a second,
//! a quiet one every ten. Pure.
//!
//! What counts as busy is the part of the compute units that worked, where the device tells it, else the part of the time in which any
//! kernel ran. A minute of which neither is known is nobody's minute.

use pillion_core::metric::Metric;
use pillion_core::report::DeviceSamples;
use pillion_core::{GresType, NodeName, UnixTime};
use pillion_store::{HeldDevice, IDLE_LEVEL_USUAL, IDLE_LEVELS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So much is one minute's mean.
const MINUTE_SECONDS: f64 = 60.0;
/// What a sample stands for at most: between two of a quiet device.
const SAMPLE_SECONDS_MAX: f64 = 15.0;
/// After such a gap nobody can say that the device was quiet meanwhile.
const GAP_SECONDS_MAX: f64 = 180.0;
/// Minutes that wait to be counted; beyond them the oldest go.
const MINUTES_MAX: usize = 100_000;
/// Devices that are followed at once.
const DEVICES_MAX: usize = 100_000;

/// A minute of one device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Minute {
    pub(crate) node: NodeName,
    pub(crate) gres_type: GresType,
    pub(crate) from: UnixTime,
    pub(crate) until: UnixTime,
    /// The part of it that was seen.
    pub(crate) seconds: f64,
    /// Its mean.
    pub(crate) busy_fraction: f64,
    /// Whose processes were on it, by Slurm's inner numbers.
    pub(crate) numbers: BTreeSet<u32>,
}

/// A minute that is not over.
#[derive(Debug, Clone)]
struct Open {
    from: UnixTime,
    last: UnixTime,
    seconds: f64,
    busy_seconds: f64,
    numbers: BTreeSet<u32>,
}

impl Open {
    fn new(at: UnixTime) -> Self {
        Self { from: at, last: at, seconds: 0.0, busy_seconds: 0.0, numbers: BTreeSet::new() }
    }
}

/// All devices of observed nodes.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    open: BTreeMap<(NodeName, GresType), Open>,
    minutes: VecDeque<Minute>,
}

impl Activity {
    /// One sample of a node's devices. `skew_seconds`: its clock less ours.
    pub(crate) fn sampled(&mut self, node: &NodeName, skew_seconds: f64, samples: &DeviceSamples) {
        let at = UnixTime::from_seconds(samples.recorded_at.seconds() - skew_seconds);
        for sample in &samples.samples {
            let metrics = &sample.reading.metrics;
            let busy = metrics.get(Metric::SmActiveFraction).or_else(|| metrics.get(Metric::GpuBusyFraction));
            let key = (node.clone(), sample.gres_type.clone());
            let Some(busy) = busy else {
                self.open.remove(&key);
                continue;
            };
            if self.open.len() >= DEVICES_MAX && !self.open.contains_key(&key) {
                continue;
            }
            let open = self.open.entry(key.clone()).or_insert_with(|| Open::new(at));
            let seconds = at.seconds() - open.last.seconds();
            if seconds < 0.0 {
                // A report that comes late, or a clock that was set back: what is older than what is known counts for nothing.
                continue;
            }
            if seconds > SAMPLE_SECONDS_MAX {
                *open = Open::new(at);
            } else {
                open.seconds += seconds;
                open.busy_seconds += seconds * busy.clamp(0.0, 1.0);
                open.last = at;
            }
            let numbers = sample.tenants.iter().filter(|tenant| tenant.job_id.task.is_none());
            open.numbers.extend(numbers.map(|tenant| tenant.job_id.id));
            if open.seconds >= MINUTE_SECONDS {
                let closed = std::mem::replace(open, Open::new(at));
                self.close(key, closed);
            }
        }
    }

    fn close(&mut self, (node, gres_type): (NodeName, GresType), open: Open) {
        let Open { from, last: until, seconds, busy_seconds, numbers } = open;
        let busy_fraction = busy_seconds / seconds;
        self.minutes.push_back(Minute { node, gres_type, from, until, seconds, busy_fraction, numbers });
        if self.minutes.len() > MINUTES_MAX {
            self.minutes.pop_front();
        }
    }

    /// The minutes that are over and were not counted yet.
    pub(crate) fn take(&mut self) -> Vec<Minute> {
        self.minutes.drain(..).collect()
    }
}

/// Counts a minute for a device that a start held throughout.
pub(crate) fn count(held: &mut HeldDevice, number: u32, minute: &Minute) {
    let is_gap = held.seen_at.is_none_or(|at| minute.from.seconds_since(at) > GAP_SECONDS_MAX);
    if is_gap {
        held.seen_since = Some(minute.from);
    }
    held.seen_at = Some(minute.until);
    for (level, busy_at) in IDLE_LEVELS.iter().zip(&mut held.busy_at) {
        if minute.busy_fraction >= *level {
            *busy_at = Some(minute.until);
        }
    }
    held.seen_seconds += minute.seconds;
    if minute.busy_fraction < IDLE_LEVELS[IDLE_LEVEL_USUAL] {
        held.idle_seconds += minute.seconds;
    }
    if minute.numbers.contains(&number) {
        held.process_at = Some(minute.until);
    }
}

/// Since when a device is below one of [`IDLE_LEVELS`], as far as it was seen; `None`: it is not, or nobody looks.
pub(crate) fn idle_since(held: &HeldDevice, level: usize, now: UnixTime) -> Option<UnixTime> {
    let (since, seen_at) = (held.seen_since?, held.seen_at?);
    if now.seconds_since(seen_at) > GAP_SECONDS_MAX {
        return None;
    }
    let busy_at = held.busy_at.get(level).copied().flatten();
    Some(busy_at.map_or(since, |busy_at| if busy_at > since { busy_at } else { since }))
        .filter(|since| *since < seen_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use pillion_core::SlurmJobId;
    use pillion_core::device::{Reading, TenantUse};
    use pillion_core::report::DeviceSample;

    fn sampled(activity: &mut Activity, second: u64, busy: &[(Metric, f64)], job: Option<u32>) {
        let tenants = job.map(|job| TenantUse {
            job_id: SlurmJobId::plain(job),
            restart_count: 0,
            memory_bytes: None,
            process_count: 1,
            progress: None,
        });
        let mut reading = Reading::default();
        for (metric, value) in busy {
            reading.metrics.set_known(*metric, Some(*value));
        }
        let sample =
            DeviceSample { gres_type: GresType::new("g0"), reading, tenants: tenants.into_iter().collect() };
        let samples = DeviceSamples { recorded_at: at(1000 + second), samples: vec![sample] };
        activity.sampled(&NodeName::new("n1"), 0.0, &samples);
    }

    #[test]
    fn a_minute_is_the_mean_of_what_was_seen_however_often_that_was() {
        let mut activity = Activity::default();
        let (active, busy) = (Metric::SmActiveFraction, Metric::GpuBusyFraction);
        // Ten seconds of work, told of each second, then quiet, told of every ten.
        for second in 0..=10 {
            sampled(&mut activity, second, &[(active, 0.6), (busy, 1.0)], Some(7));
        }
        for second in (20..=60).step_by(10) {
            sampled(&mut activity, second, &[(active, 0.0), (busy, 1.0)], None);
        }
        let minutes = activity.take();
        let [minute] = &minutes[..] else { panic!("{minutes:?}") };
        assert!((minute.busy_fraction - 0.1).abs() < 1e-9, "{minute:?}");
        assert_eq!((minute.from, minute.until, minute.numbers.len()), (at(1000), at(1060), 1));
        assert_eq!(activity.take(), []);
    }

    #[test]
    fn of_what_was_not_seen_nothing_is_said() {
        let mut activity = Activity::default();
        for second in [0, 10, 20, 60, 70, 80, 90, 100, 110, 120] {
            sampled(&mut activity, second, &[(Metric::GpuBusyFraction, 0.0)], None);
        }
        let minutes = activity.take();
        assert_eq!(
            minutes.iter().map(|minute| minute.from).collect::<Vec<_>>(),
            [at(1060)],
            "anew after the gap"
        );
        // A device that does not tell how busy it is, and one whose report comes late.
        for second in [200, 260, 320] {
            sampled(&mut activity, second, &[(Metric::PowerWatts, 100.0)], None);
        }
        sampled(&mut activity, 400, &[(Metric::GpuBusyFraction, 0.0)], None);
        sampled(&mut activity, 300, &[(Metric::GpuBusyFraction, 1.0)], None);
        assert_eq!(activity.take(), []);
    }

    fn minute(begins: u64, busy_fraction: f64, numbers: &[u32]) -> Minute {
        Minute {
            node: NodeName::new("n1"),
            gres_type: GresType::new("g0"),
            from: at(begins),
            until: at(begins + 60),
            seconds: 60.0,
            busy_fraction,
            numbers: numbers.iter().copied().collect(),
        }
    }

    #[test]
    fn a_device_is_idle_since_it_last_did_more_by_the_level_that_is_asked_for() {
        let mut held = HeldDevice::new(NodeName::new("n1"), GresType::new("g0"));
        for (begins, busy, numbers) in
            [(1000, 0.5, &[7][..]), (1060, 0.07, &[8]), (1120, 0.02, &[]), (1180, 0.0, &[])]
        {
            count(&mut held, 7, &minute(begins, busy, numbers));
        }
        let since = |level| idle_since(&held, level, at(1250));
        assert_eq!([0, 1, 2, 3].map(since), [Some(at(1180)), Some(at(1120)), Some(at(1060)), Some(at(1060))]);
        assert_eq!((held.process_at, held.seen_seconds, held.idle_seconds), (Some(at(1060)), 240.0, 120.0));
        assert_eq!(idle_since(&held, 1, at(2000)), None, "its agent went away");
        // It comes back: what happened meanwhile nobody knows.
        count(&mut held, 7, &minute(3000, 0.0, &[]));
        assert_eq!(idle_since(&held, 1, at(3070)), Some(at(3000)));
        count(&mut held, 7, &minute(3060, 0.9, &[]));
        assert_eq!(idle_since(&held, 1, at(3130)), None, "it works");
    }
}
