//! What each start did on one device, added up look by look. Pure: readings and names in, a summary out.
//!
//! An interval lies between two looks. Who was seen at either end was there during it: a start is *alone* in an interval
//! if it was seen at both ends and nobody else at any; it *shares* if anybody else was seen at either end. What a device
//! says of an interval counts for a start's profile only where it was alone.
//!
//! **Energy.** The meter is the device's. An interval's energy goes to those who were seen in it, in proportion to their
//! activity while alone (compute units active, from their own run) where that is known of all of them, else in equal
//! parts; if nobody was seen, in equal parts to the starts that hold the device. A process of nobody we know bears its
//! part like the others, and nobody is billed for it. So the parts sum to the meter whenever somebody holds the device.
//!
//! **Progress** is counted from the first number seen, from change to change, with the seconds between; a change over
//! both alone and shared time counts for neither, and a counter that falls starts anew.

use pillion_core::device::Reading;
use pillion_core::report::{ActivityMeans, JobSummary, ProgressPart};
use pillion_core::{Fraction, GresType, JobStart, UnixTime};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one start had on the device at a look; without a start, what belongs to nobody we know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sighting {
    /// Whose.
    pub start: Option<JobStart>,
    /// Memory of all its processes.
    pub memory_bytes: u64,
    /// How many there were.
    pub process_count: u32,
}

/// One look at one device.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// When.
    pub at: UnixTime,
    /// What the device did since the look before.
    pub reading: &'a Reading,
    /// Who was on it, one entry a start.
    pub sightings: &'a [Sighting],
    /// The counters of the starts that write one.
    pub progress: &'a BTreeMap<JobStart, f64>,
}

/// A mean in the making, over time: a look that a poke asked for, a moment after another, weighs as little as it saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }
    fn value(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
    fn fraction(self) -> Option<Fraction> {
        self.value().map(Fraction::clamped)
    }
}

/// [`ActivityMeans`] in the making.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Means {
    power: Mean,
    sm_active: Mean,
    sm_occupancy: Mean,
    stall: Mean,
    fp32_active: Mean,
    gpu_busy: Mean,
    memory_bandwidth: Mean,
    cache_bandwidth: Mean,
    pcie_tx: Mean,
    pcie_rx: Mean,
}

impl Means {
    fn add(&mut self, reading: &Reading, seconds: f64) {
        let Reading {
            energy_joules: _,
            power_watts,
            sm_active_fraction,
            sm_occupancy_fraction,
            stall_fraction,
            fp32_active_fraction,
            gpu_busy_fraction,
            memory_bandwidth_fraction,
            cache_bandwidth_fraction,
            pcie_tx_bytes_per_second,
            pcie_rx_bytes_per_second,
            ..
        } = *reading;
        self.power.add(power_watts, seconds);
        self.sm_active.add(sm_active_fraction.map(Fraction::value), seconds);
        self.sm_occupancy.add(sm_occupancy_fraction.map(Fraction::value), seconds);
        self.stall.add(stall_fraction.map(Fraction::value), seconds);
        self.fp32_active.add(fp32_active_fraction.map(Fraction::value), seconds);
        self.gpu_busy.add(gpu_busy_fraction.map(Fraction::value), seconds);
        self.memory_bandwidth.add(memory_bandwidth_fraction.map(Fraction::value), seconds);
        self.cache_bandwidth.add(cache_bandwidth_fraction.map(Fraction::value), seconds);
        self.pcie_tx.add(pcie_tx_bytes_per_second, seconds);
        self.pcie_rx.add(pcie_rx_bytes_per_second, seconds);
    }

    fn values(self) -> ActivityMeans {
        ActivityMeans {
            power_watts: self.power.value(),
            sm_active_fraction: self.sm_active.fraction(),
            sm_occupancy_fraction: self.sm_occupancy.fraction(),
            stall_fraction: self.stall.fraction(),
            fp32_active_fraction: self.fp32_active.fraction(),
            gpu_busy_fraction: self.gpu_busy.fraction(),
            memory_bandwidth_fraction: self.memory_bandwidth.fraction(),
            cache_bandwidth_fraction: self.cache_bandwidth.fraction(),
            pcie_tx_bytes_per_second: self.pcie_tx.value(),
            pcie_rx_bytes_per_second: self.pcie_rx.value(),
        }
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
            part.progress = Some(part.progress.unwrap_or(0.0) + now - last);
            part.seconds += solo + shared;
        }
    }
}

/// One start on this device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Run {
    started_at: UnixTime,
    shared_seconds: f64,
    memory_bytes_peak: u64,
    process_count_peak: u32,
    energy_joules: Option<f64>,
    counter: Counter,
    means: Means,
    solo_sample_count: u32,
    neighbours: BTreeSet<JobStart>,
}

impl Run {
    fn new(started_at: UnixTime) -> Self {
        Self {
            started_at,
            shared_seconds: 0.0,
            memory_bytes_peak: 0,
            process_count_peak: 0,
            energy_joules: None,
            counter: Counter::default(),
            means: Means::default(),
            solo_sample_count: 0,
            neighbours: BTreeSet::new(),
        }
    }
}

/// What was seen at the end of the interval before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Before {
    at: UnixTime,
    energy_joules: Option<f64>,
    present: BTreeSet<Option<JobStart>>,
}

/// All starts on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRuns {
    #[serde(with = "as_pairs")]
    runs: BTreeMap<JobStart, Run>,
    before: Option<Before>,
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

    /// Adds one look. An interval longer than `seconds_max` (the agent was away) counts for energy only: what happened
    /// in it was not seen.
    pub fn observe(&mut self, look: &Look<'_>, seconds_max: f64) {
        let present: BTreeSet<Option<JobStart>> = look.sightings.iter().map(|seen| seen.start).collect();
        for seen in look.sightings {
            if let Some(run) = seen.start.and_then(|start| self.runs.get_mut(&start)) {
                run.memory_bytes_peak = run.memory_bytes_peak.max(seen.memory_bytes);
                run.process_count_peak = run.process_count_peak.max(seen.process_count);
            }
        }
        let before = self.before.take();
        if let Some(before) = &before {
            self.add_energy(before, &present, look.reading);
        }
        match before.map(|before| (look.at.seconds_since(before.at), before)) {
            Some((seconds, before)) if seconds <= seconds_max => {
                self.add_interval(&before, &present, look, seconds);
            }
            _ => {
                for (start, run) in &mut self.runs {
                    run.counter.skip(look.progress.get(start).copied());
                }
            }
        }
        self.before = Some(Before { at: look.at, energy_joules: look.reading.energy_joules, present });
    }

    fn add_interval(
        &mut self,
        before: &Before,
        present: &BTreeSet<Option<JobStart>>,
        look: &Look<'_>,
        seconds: f64,
    ) {
        let seen: BTreeSet<Option<JobStart>> = before.present.union(present).copied().collect();
        for (start, run) in &mut self.runs {
            let is_others = |other: &&Option<JobStart>| **other != Some(*start);
            let others = seen.iter().any(|other| is_others(&other));
            let was_there = seen.contains(&Some(*start));
            let throughout = before.present.contains(&Some(*start)) && present.contains(&Some(*start));
            run.counter.add(look.progress.get(start).copied(), seconds, others);
            if was_there && others {
                run.shared_seconds += seconds;
                run.neighbours.extend(seen.iter().filter(is_others).filter_map(|other| *other));
            } else if throughout {
                run.means.add(look.reading, seconds);
                run.solo_sample_count += 1;
            }
        }
    }

    fn add_energy(&mut self, before: &Before, present: &BTreeSet<Option<JobStart>>, reading: &Reading) {
        let Some((now, then)) = reading.energy_joules.zip(before.energy_joules) else { return };
        // A meter that fell was reset with its driver: this interval is unknown.
        if now < then {
            return;
        }
        let mut bearers: BTreeSet<Option<JobStart>> = before.present.union(present).copied().collect();
        if bearers.is_empty() {
            bearers = self.runs.keys().map(|start| Some(*start)).collect();
        }
        let weights = self.weights(&bearers);
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        for (bearer, weight) in weights {
            if let Some(run) = bearer.and_then(|start| self.runs.get_mut(&start)) {
                *run.energy_joules.get_or_insert(0.0) += (now - then) * weight / total;
            }
        }
    }

    /// How an interval's energy is split: by activity while alone, where that is known of all.
    fn weights(&self, bearers: &BTreeSet<Option<JobStart>>) -> Vec<(Option<JobStart>, f64)> {
        let activity = |bearer: &Option<JobStart>| -> Option<f64> {
            let active = self.runs.get(&(*bearer)?)?.means.sm_active.value()?;
            (active > 0.0).then_some(active)
        };
        let known: Option<Vec<f64>> = bearers.iter().map(activity).collect();
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
            memory_bytes_peak: run.memory_bytes_peak,
            process_count_peak: run.process_count_peak,
            energy_joules: run.energy_joules,
            solo: run.counter.solo,
            shared: run.counter.shared,
            solo_means: (run.solo_sample_count > 0).then(|| run.means.values()),
            solo_sample_count: run.solo_sample_count,
            neighbours: run.neighbours.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests;
