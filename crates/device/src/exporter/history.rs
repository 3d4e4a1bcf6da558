//! What an exporter's pages say over time: how old their values are, the rates of what they count, and which metrics were
//! lost. A state machine over pages and times; knows no exporter and no network.
//!
//! A page has no time on it as a rule, and an exporter collects less often than it is asked (dcgm-exporter every 30 s), so
//! that most pages repeat the one before. A page that says anything new of a device was collected anew; since the energy
//! counter of a device moves at any time, only a device of which nothing new is said for long is not measured any more.
//! Then its values are given up, all at once. What a new page leaves out is gone at once: only whole pages are held.

use super::page::{Page, Seen};
use pillion_core::DeviceUuid;
use pillion_core::device::{NoticeKind, Reading};
use pillion_core::metric::{Metric, MetricSource};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A metric of a device that this exporter stopped giving, or gives again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterNotice {
    /// The device, as the exporter names it.
    pub device: DeviceUuid,
    /// [`NoticeKind::MetricLost`] or [`NoticeKind::MetricBack`].
    pub kind: NoticeKind,
    /// Why, for a person.
    pub detail: String,
}

/// What is known of one device.
#[derive(Debug)]
struct History {
    /// The last page's words; none if it did not mention the device.
    seen: Option<Seen>,
    /// When a page first said this.
    since: Instant,
    /// When one first said what was before: since then the exporter has measured. None: nobody knows since when.
    since_before: Option<Instant>,
    /// Of what is counted, since the page before this one.
    rates: BTreeMap<Metric, f64>,
    given: BTreeSet<Metric>,
    lost: BTreeSet<Metric>,
}

impl History {
    fn new(since: Instant) -> Self {
        let (given, lost) = (BTreeSet::new(), BTreeSet::new());
        Self { seen: None, since, since_before: None, rates: BTreeMap::new(), given, lost }
    }

    fn take(&mut self, seen: Option<Seen>, now: Instant) {
        if self.seen == seen {
            return;
        }
        self.rates = match (&self.seen, &seen) {
            (Some(before), Some(after)) => rates(before, after, now.saturating_duration_since(self.since)),
            _ => BTreeMap::new(),
        };
        self.since_before = self.seen.is_some().then_some(self.since);
        self.seen = seen;
        self.since = now;
    }

    /// For how long back the values are means that hold now. `keep_for`: what was said first may be as old as that.
    fn reach(&self, now: Instant, keep_for: Duration) -> Duration {
        let begun = self.since_before.map(|since| now.saturating_duration_since(since));
        begun.unwrap_or_else(|| now.saturating_duration_since(self.since) + keep_for)
    }
}

/// Bytes a second of what was counted between two pages; nothing for a counter that began anew. `elapsed` is by our
/// clock, and counts where the exporter does not say when it measured.
fn rates(before: &Seen, after: &Seen, elapsed: Duration) -> BTreeMap<Metric, f64> {
    let seconds = match (before.stamp_millis, after.stamp_millis) {
        (Some(then), Some(now)) => seconds(now.saturating_sub(then)),
        _ => elapsed.as_secs_f64(),
    };
    let counted = after.totals.iter().filter_map(|(metric, now)| {
        let bytes = now - before.totals.get(metric)?;
        (seconds > 0.0 && bytes >= 0.0).then(|| (*metric, bytes / seconds))
    });
    counted.collect()
}

#[expect(clippy::cast_precision_loss, reason = "a time between two pages is far below 2^53 ms")]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// All devices that an exporter ever mentioned.
#[derive(Debug)]
pub(super) struct Histories {
    source: MetricSource,
    keep_for: Duration,
    devices: BTreeMap<DeviceUuid, History>,
    notices: Vec<ExporterNotice>,
}

impl Histories {
    pub(super) fn new(source: MetricSource, keep_for: Duration) -> Self {
        Self { source, keep_for, devices: BTreeMap::new(), notices: Vec::new() }
    }

    /// A page was read.
    pub(super) fn take(&mut self, mut page: Page, now: Instant) {
        for (uuid, history) in &mut self.devices {
            history.take(page.remove(uuid), now);
        }
        for (uuid, seen) in page {
            let mut history = History::new(now);
            history.take(Some(seen), now);
            self.devices.insert(uuid, history);
        }
    }

    /// What holds now, of each device of which anything does.
    pub(super) fn readings(&mut self, now: Instant) -> BTreeMap<DeviceUuid, Reading> {
        let mut readings = BTreeMap::new();
        for (uuid, history) in &mut self.devices {
            let age = now.saturating_duration_since(history.since);
            let seen = history.seen.as_ref().filter(|_| age <= self.keep_for);
            let mut reading = seen.map(|seen| seen.reading(&history.rates, self.source)).unwrap_or_default();
            reading.set_reach(self.source, history.reach(now, self.keep_for).as_secs_f64());
            let why = match &history.seen {
                None => "the exporter does not mention the device any more".to_owned(),
                Some(_) if age > self.keep_for => {
                    format!("the exporter said nothing new of the device for {} s", age.as_secs())
                }
                Some(_) => {
                    "the exporter left it out: profiling is paused, or another profiler runs".to_owned()
                }
            };
            let known: BTreeSet<Metric> = reading.metrics.known().collect();
            self.notices.extend(changes(uuid, history, &known, &why));
            if !known.is_empty() {
                readings.insert(uuid.clone(), reading);
            }
        }
        readings
    }

    /// What was lost and came back since the last call.
    pub(super) fn notices(&mut self) -> Vec<ExporterNotice> {
        std::mem::take(&mut self.notices)
    }
}

fn changes(
    device: &DeviceUuid,
    history: &mut History,
    known: &BTreeSet<Metric>,
    why: &str,
) -> Vec<ExporterNotice> {
    let notice =
        |kind, detail: &str| ExporterNotice { device: device.clone(), kind, detail: detail.to_owned() };
    let lost: Vec<Metric> = history.given.difference(known).copied().collect();
    let back: Vec<Metric> = history.lost.intersection(known).copied().collect();
    let newly_lost = lost.into_iter().filter(|metric| history.lost.insert(*metric));
    let mut notices: Vec<ExporterNotice> =
        newly_lost.map(|metric| notice(NoticeKind::MetricLost(metric), why)).collect();
    for metric in back {
        history.lost.remove(&metric);
        notices.push(notice(NoticeKind::MetricBack(metric), "the exporter gives it again"));
    }
    history.given.extend(known);
    notices
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
