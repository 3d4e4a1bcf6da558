//! What each start did on one device, added up sample by sample. Pure: readings and names in, a summary out.
//!
//! An interval lies between two samples. Who was seen at either end was there during it: a start is *alone* in an interval
//! if it was seen at both ends and nobody else at any; it *shares* if anybody else was seen at either end. What a device
//! says of an interval counts for a start's profile only where it was alone.
//!
//! **An exporter says what was.** It collects when it likes, every 30 s as a rule, and repeats itself until then. So its values count for
//! a profile only where the same ones have been on the device for all of the time that they are means of: of the first minute of a job they
//! tell what was there before it, and after a neighbour has gone what both did.
//!
//! **Energy.** The meter is the device's. An interval's energy goes to those who were seen in it, in proportion to their
//! activity while alone (compute units active, from their own run) where that is known of all of them, else in equal
//! parts; if nobody was seen, in equal parts to the starts that hold the device. A process of nobody we know bears its
//! part like the others, and nobody is billed for it. So the parts sum to the meter whenever somebody holds the device.
//! Meters count on while nobody reads them: what one shows after samples without it goes to all who were seen since its last
//! number. Numbers of different sources are never differenced: they may lag, and stand otherwise. Each source has a meter of
//! its own, which leaves out what was billed by the others meanwhile.
//!
//! **Progress** is counted from the first number seen, from change to change, with the seconds between; a change over
//! both alone and shared time counts for neither, and a counter that falls starts anew.

use pillion_core::device::Reading;
use pillion_core::metric::{Measured, Metric, MetricSource, Metrics};
use pillion_core::report::{ActivityMeans, JobSummary, ProgressPart};
use pillion_core::{GresType, JobStart, UnixTime};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// After so many samples without its number, about an hour, a source's meter is forgotten: too many have come and gone.
const SAMPLES_WITHOUT_METER_MAX: u32 = 3600;

/// What one start had on the device at a sample; without a start, what belongs to nobody we know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sighting {
    pub start: Option<JobStart>,
    /// Memory of all its processes; absent where that of any of them cannot be read: a part of it would be taken for all.
    pub memory_bytes: Option<u64>,
    /// How many there were.
    pub process_count: u32,
    /// Memory of the one of them that had most; absent as `memory_bytes` is.
    pub process_memory_bytes: Option<u64>,
}

/// One sample of one device.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    pub at: UnixTime,
    /// What the device did since the sample before.
    pub reading: &'a Reading,
    /// Who was on it, one entry a start.
    pub sightings: &'a [Sighting],
    /// The counters of the starts that write one.
    pub progress: &'a BTreeMap<JobStart, f64>,
}

/// A mean in the making, over time: a sample that a poke asked for, a moment after another, weighs as little as it saw.
///
/// It never mixes sources: a better one that appears starts it anew, a worse one is ignored, and of equal ones the first
/// stays. A source that is not known is worse than any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    seconds: f64,
    source: Option<MetricSource>,
}

impl Mean {
    fn add(&mut self, metric: Metric, value: f64, source: Option<MetricSource>, seconds: f64) {
        let quality = |source: Option<MetricSource>| source.map(|source| source.quality(metric));
        if self.seconds > 0.0 && self.source != source {
            if quality(source) <= quality(self.source) {
                return;
            }
            *self = Self::default();
        }
        self.source = source;
        self.sum += value * seconds;
        self.seconds += seconds;
    }
    fn value(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// [`ActivityMeans`] in the making.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Means(BTreeMap<Metric, Mean>);

impl Means {
    /// `alone_seconds`: for how long it has been alone by the end of this interval.
    fn add(&mut self, reading: &Reading, seconds: f64, alone_seconds: f64) {
        for (metric, Measured { value, source }) in reading.metrics.iter() {
            if metric.mean_word().is_some() && reading.reach_seconds(source) <= alone_seconds {
                self.0.entry(metric).or_default().add(metric, value, source, seconds);
            }
        }
    }

    fn value(&self, metric: Metric) -> Option<f64> {
        self.0.get(&metric).and_then(|mean| mean.value())
    }

    fn values(&self) -> ActivityMeans {
        let mut means = Metrics::default();
        for (metric, mean) in &self.0 {
            if let Some(value) = mean.value() {
                means.put(*metric, Measured { value, source: mean.source });
            }
        }
        ActivityMeans(means)
    }
}

/// A counter as it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Counter {
    last: Option<f64>,
    /// Seconds since the last change.
    waiting_solo_seconds: f64,
    waiting_shared_seconds: f64,
    solo: ProgressPart,
    shared: ProgressPart,
}

impl Counter {
    /// Starts anew from here: what lies before was not seen.
    fn skip(&mut self, now: Option<f64>) {
        self.last = now.or(self.last);
        (self.waiting_solo_seconds, self.waiting_shared_seconds) = (0.0, 0.0);
    }

    fn add(&mut self, now: Option<f64>, seconds: f64, is_shared: bool) {
        let Some(last) = self.last else {
            self.last = now;
            return;
        };
        *(if is_shared { &mut self.waiting_shared_seconds } else { &mut self.waiting_solo_seconds }) +=
            seconds;
        let Some(now) = now.filter(|now| (*now - last).abs() > 0.0) else { return };
        self.last = Some(now);
        let (solo, shared) = (self.waiting_solo_seconds, self.waiting_shared_seconds);
        (self.waiting_solo_seconds, self.waiting_shared_seconds) = (0.0, 0.0);
        let part = match (solo > 0.0, shared > 0.0) {
            (true, false) => &mut self.solo,
            (false, true) => &mut self.shared,
            _ => return,
        };
        if now > last {
            let sum = part.progress.unwrap_or(0.0) + now - last;
            // A sum that is none is of no use; all else that is known of the run is.
            part.progress = Some(sum).filter(|sum| sum.is_finite());
            part.seconds += solo + shared;
        }
    }
}

/// One start on this device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Run {
    started_at: UnixTime,
    shared_seconds: f64,
    /// Its part of the device's time in them; an older agent did not count it, and such a run stays without.
    #[serde(default)]
    shared_device_seconds: Option<f64>,
    /// Of the samples at which it could be read.
    memory_bytes_peak: Option<u64>,
    process_count_peak: u32,
    /// Absent in what an older agent left.
    #[serde(default)]
    process_memory_bytes_peak: Option<u64>,
    energy_joules: Option<f64>,
    counter: Counter,
    /// An older agent wrote its means down under another name: they begin again.
    #[serde(default)]
    activity: Means,
    solo_sample_count: u32,
    neighbours: BTreeSet<JobStart>,
}

impl Run {
    fn new(started_at: UnixTime) -> Self {
        Self {
            started_at,
            shared_seconds: 0.0,
            shared_device_seconds: Some(0.0),
            memory_bytes_peak: None,
            process_count_peak: 0,
            process_memory_bytes_peak: None,
            energy_joules: None,
            counter: Counter::default(),
            activity: Means::default(),
            solo_sample_count: 0,
            neighbours: BTreeSet::new(),
        }
    }
}

/// What was seen at the end of the interval before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Before {
    at: UnixTime,
    present: BTreeSet<Option<JobStart>>,
    /// The first sample in a row at which they were, and nobody else. An older agent did not write it down: since ever.
    #[serde(default)]
    since: UnixTime,
}

/// One source's energy counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Meter {
    source: Option<MetricSource>,
    /// Its last number that was billed up to.
    energy_joules: f64,
    /// What other meters had billed since.
    billed_by_others_joules: f64,
    /// Who was seen since.
    present: BTreeSet<Option<JobStart>>,
    /// How many samples there were since.
    #[serde(rename = "look_count")]
    sample_count: u32,
}

impl Meter {
    fn new(source: Option<MetricSource>, energy_joules: f64, present: BTreeSet<Option<JobStart>>) -> Self {
        Self { source, energy_joules, billed_by_others_joules: 0.0, present, sample_count: 0 }
    }
}

/// All starts on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRuns {
    #[serde(with = "as_pairs")]
    runs: BTreeMap<JobStart, Run>,
    before: Option<Before>,
    /// One a source that has shown energy. An older agent wrote its number down elsewhere: they begin again.
    #[serde(default)]
    meters: Vec<Meter>,
}

/// JSON has no maps with keys other than text.
mod as_pairs {
    use super::{BTreeMap, JobStart, Run};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(runs: &BTreeMap<JobStart, Run>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(runs.iter())
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<JobStart, Run>, D::Error> {
        Vec::<(JobStart, Run)>::deserialize(from).map(|pairs| pairs.into_iter().collect())
    }
}

impl DeviceRuns {
    /// A start holds the device from now on; one that does already goes on.
    pub fn begin(&mut self, start: JobStart, at: UnixTime) {
        self.runs.entry(start).or_insert_with(|| Run::new(at));
    }

    /// Adds one sample. An interval longer than `seconds_max` (the agent was away) counts for energy only: what happened
    /// in it was not seen.
    pub fn observe(&mut self, sample: &Sample<'_>, seconds_max: f64) {
        let present: BTreeSet<Option<JobStart>> = sample.sightings.iter().map(|seen| seen.start).collect();
        for seen in sample.sightings {
            if let Some(run) = seen.start.and_then(|start| self.runs.get_mut(&start)) {
                run.memory_bytes_peak = run.memory_bytes_peak.max(seen.memory_bytes);
                run.process_count_peak = run.process_count_peak.max(seen.process_count);
                run.process_memory_bytes_peak = run.process_memory_bytes_peak.max(seen.process_memory_bytes);
            }
        }
        self.add_energy(&present, sample.reading);
        let before = self.before.take();
        // Who was there while nobody looked is not known.
        let seen = before.as_ref().filter(|before| sample.at.seconds_since(before.at) <= seconds_max);
        let stays = seen.filter(|before| before.present == present);
        let since = stays.map_or(sample.at, |before| before.since);
        match seen {
            Some(before) => self.add_interval(before, &present, sample),
            None => {
                for (start, run) in &mut self.runs {
                    run.counter.skip(sample.progress.get(start).copied());
                }
            }
        }
        self.before = Some(Before { at: sample.at, present, since });
    }

    fn add_interval(&mut self, before: &Before, present: &BTreeSet<Option<JobStart>>, sample: &Sample<'_>) {
        let seconds = sample.at.seconds_since(before.at);
        // All who shared in this interval, so that their parts of it are no more than the whole of it.
        let crowds = [&before.present, present].into_iter().filter(|end| end.len() > 1);
        let tenant_count = crowds.flatten().collect::<BTreeSet<_>>().len();
        for (start, run) in &mut self.runs {
            let own = Some(*start);
            // Together at either end. Who is gone when the next one is seen has made room for it: Slurm gives a whole
            // device on within a second.
            let ends = [&before.present, present];
            let together = ends.into_iter().filter(|end| end.contains(&own) && end.len() > 1);
            let beside: BTreeSet<Option<JobStart>> =
                together.flatten().copied().filter(|other| *other != own).collect();
            let throughout = before.present.contains(&own) && present.contains(&own);
            run.counter.add(sample.progress.get(start).copied(), seconds, !beside.is_empty());
            if !beside.is_empty() {
                run.shared_seconds += seconds;
                #[expect(clippy::cast_precision_loss, reason = "a handful of tenants")]
                let part = seconds / tenant_count as f64;
                run.shared_device_seconds = run.shared_device_seconds.map(|sum| sum + part);
                run.neighbours.extend(beside.into_iter().flatten());
            } else if throughout {
                run.activity.add(sample.reading, seconds, sample.at.seconds_since(before.since));
                run.solo_sample_count += 1;
            }
        }
    }

    fn add_energy(&mut self, present: &BTreeSet<Option<JobStart>>, reading: &Reading) {
        for meter in &mut self.meters {
            meter.present.extend(present);
            meter.sample_count += 1;
        }
        self.meters.retain(|meter| meter.sample_count <= SAMPLES_WITHOUT_METER_MAX);
        let Some(Measured { value: now, source }) = reading.metrics.measured(Metric::EnergyJoules) else {
            return;
        };
        let Some(place) = self.meters.iter().position(|meter| meter.source == source) else {
            self.meters.push(Meter::new(source, now, present.clone()));
            return;
        };
        let meter = &self.meters[place];
        let joules = now - meter.energy_joules - meter.billed_by_others_joules;
        // A meter that fell was reset with its driver: this interval is unknown. One that lags has not come yet to where
        // another one was billed up to.
        let has_fallen = now < meter.energy_joules;
        if joules < 0.0 && !has_fallen {
            return;
        }
        let after = Meter::new(source, now, present.clone());
        let before = std::mem::replace(&mut self.meters[place], after);
        if !has_fallen {
            self.bill(joules, before.present);
            for other in self.meters.iter_mut().filter(|meter| meter.source != source) {
                other.billed_by_others_joules += joules;
            }
        }
    }

    /// Splits the energy among those who were seen, or else those who hold the device.
    fn bill(&mut self, joules: f64, seen: BTreeSet<Option<JobStart>>) {
        let mut bearers = seen;
        if bearers.is_empty() {
            bearers = self.runs.keys().map(|start| Some(*start)).collect();
        }
        let weights = self.weights(&bearers);
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        for (bearer, weight) in weights {
            if let Some(run) = bearer.and_then(|start| self.runs.get_mut(&start)) {
                *run.energy_joules.get_or_insert(0.0) += joules * weight / total;
            }
        }
    }

    /// How an interval's energy is split: by activity while alone, where that is known of all.
    fn weights(&self, bearers: &BTreeSet<Option<JobStart>>) -> Vec<(Option<JobStart>, f64)> {
        let known: Option<Vec<f64>> = bearers
            .iter()
            .map(|bearer| -> Option<f64> {
                let active = self.runs.get(&(*bearer)?)?.activity.value(Metric::SmActiveFraction)?;
                (active > 0.0).then_some(active)
            })
            .collect();
        match known {
            Some(known) => bearers.iter().copied().zip(known).collect(),
            None => bearers.iter().map(|bearer| (*bearer, 1.0)).collect(),
        }
    }

    /// Ends a start's run on this device and tells it.
    pub fn end(&mut self, start: JobStart, ended_at: UnixTime, gres_type: &GresType) -> Option<JobSummary> {
        let run = self.runs.remove(&start)?;
        Some(JobSummary {
            start,
            gres_type: gres_type.clone(),
            started_at: run.started_at,
            ended_at,
            shared_seconds: run.shared_seconds,
            shared_device_seconds: run.shared_device_seconds,
            memory_bytes_peak: run.memory_bytes_peak,
            process_count_peak: run.process_count_peak,
            process_memory_bytes_peak: run.process_memory_bytes_peak,
            energy_joules: run.energy_joules,
            solo: run.counter.solo,
            shared: run.counter.shared,
            solo_means: (run.solo_sample_count > 0).then(|| run.activity.values()),
            solo_sample_count: run.solo_sample_count,
            neighbours: run.neighbours.into_iter().collect(),
            signs: None,
        })
    }
}

#[cfg(test)]
mod tests;
