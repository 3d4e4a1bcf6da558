//! How jobs used their GPUs, from a file of the site's own: one row a job and GPU.
//! `job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean`; what is empty is not known.

use super::ReadError;
use crate::jobs::{Usage, UsageSource};
use rustc_hash::FxHashMap;
use std::io::Read;

/// The columns, all of which are needed.
pub const COLUMNS: [&str; 6] = [
    "job_id",
    "gpu_index",
    "sm_active_fraction",
    "memory_bandwidth_fraction",
    "memory_bytes_peak",
    "power_watts_mean",
];
/// No GPU has more, and none draws more.
const MEMORY_BYTES_MAX: f64 = 1e15;
const POWER_WATTS_MAX: f64 = 1e5;

/// What was read, by Slurm's job number.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    of_job: FxHashMap<u32, Sums>,
    /// Rows that were dropped: one number in them is none, or out of its range.
    pub rows_dropped: u64,
}

/// What a GPU of a job was seen to do at one moment, or in the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) busy: Option<f64>,
    pub(super) sm_active: Option<f64>,
    pub(super) bandwidth: Option<f64>,
    pub(super) power: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    busy: (f64, u32),
    sm_active: (f64, u32),
    bandwidth: (f64, u32),
    power: (f64, u32),
    memory_bytes_peak: Option<u64>,
}

impl Telemetry {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError::Telemetry`] where a column is missing, [`ReadError::Io`].
    pub fn read(reader: impl Read) -> Result<Self, ReadError> {
        let mut csv = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(reader);
        let header = csv.byte_headers().map_err(of_csv)?.clone();
        let mut places = [0; COLUMNS.len()];
        for (place, name) in places.iter_mut().zip(COLUMNS) {
            *place = header
                .iter()
                .position(|column| column == name.as_bytes())
                .ok_or(ReadError::Telemetry(name))?;
        }
        let mut telemetry = Self::default();
        let mut record = csv::ByteRecord::new();
        loop {
            match csv.read_byte_record(&mut record) {
                Ok(false) => return Ok(telemetry),
                Ok(true) if telemetry.take(&record, places).is_some() => {}
                Ok(true) => telemetry.rows_dropped += 1,
                Err(error) => return Err(of_csv(error)),
            }
        }
    }

    fn take(&mut self, record: &csv::ByteRecord, places: [usize; COLUMNS.len()]) -> Option<()> {
        let mut cells = [""; COLUMNS.len()];
        for (cell, place) in cells.iter_mut().zip(places) {
            *cell = std::str::from_utf8(record.get(place)?).ok()?;
        }
        let [job, index, sm_active, bandwidth, memory, power] = cells;
        let job: u32 = job.parse().ok().filter(|job| *job > 0)?;
        let _: u32 = index.parse().ok()?;
        let [sm_active, bandwidth] = [within(sm_active, 1.0).ok()?, within(bandwidth, 1.0).ok()?];
        let [memory, power] = [within(memory, MEMORY_BYTES_MAX).ok()?, within(power, POWER_WATTS_MAX).ok()?];
        self.add(job, Sample { busy: None, sm_active, bandwidth, power, memory_bytes: memory });
        Some(())
    }

    /// Adds what was seen; everything in it lies in its range.
    pub(super) fn add(&mut self, job: u32, sample: Sample) {
        let Sample { busy, sm_active, bandwidth, power, memory_bytes } = sample;
        let sums = self.of_job.entry(job).or_default();
        for (sum, value) in [
            (&mut sums.busy, busy),
            (&mut sums.sm_active, sm_active),
            (&mut sums.bandwidth, bandwidth),
            (&mut sums.power, power),
        ] {
            if let Some(value) = value {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
        sums.memory_bytes_peak = sums.memory_bytes_peak.max(memory_bytes.map(whole));
    }

    /// How many jobs it tells of.
    pub fn len(&self) -> usize {
        self.of_job.len()
    }
    /// Whether it tells of none.
    pub fn is_empty(&self) -> bool {
        self.of_job.is_empty()
    }

    /// What it says of a job, over what was known before.
    pub(super) fn over(&self, job: u32, before: Usage) -> Usage {
        let Some(sums) = self.of_job.get(&job) else { return before };
        Usage {
            source: UsageSource::Telemetry,
            busy_fraction: mean(sums.busy).or(before.busy_fraction),
            sm_active_fraction: mean(sums.sm_active).or(before.sm_active_fraction),
            memory_bandwidth_fraction: mean(sums.bandwidth).or(before.memory_bandwidth_fraction),
            memory_bytes_peak: sums.memory_bytes_peak.or(before.memory_bytes_peak),
            power_watts: mean(sums.power).or(before.power_watts),
            ..before
        }
    }
}

/// A cell that is neither empty nor a number in its range.
struct NoNumber;

/// `None`: the cell is empty.
fn within(text: &str, most: f64) -> Result<Option<f64>, NoNumber> {
    if text.is_empty() {
        return Ok(None);
    }
    let value = text.parse().ok().filter(|value: &f64| (0.0..=most).contains(value));
    value.map(Some).ok_or(NoNumber)
}

#[expect(clippy::cast_possible_truncation, reason = "a mean of what was held in its range")]
fn mean((sum, count): (f64, u32)) -> Option<f32> {
    (count > 0).then(|| (sum / f64::from(count)) as f32)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held in its range before")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

fn of_csv(error: csv::Error) -> ReadError {
    ReadError::Io(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_a_job_are_put_together_and_bad_rows_counted() {
        let text = "job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean,note\n\
                    7,0,0.2,,1e9,100,x\n7,1,0.4,0.5,3e9,,\n8,0,1.2,,,,\n9,x,0.2,,,,\n-1,0,0.1,,,,\n10,0,nan,,,,\n11\n12,0,,,,,\n";
        let read = Telemetry::read(text.as_bytes()).unwrap();
        assert_eq!((read.len(), read.rows_dropped), (2, 5));
        let used = read.over(7, Usage::default());
        assert!((used.sm_active_fraction.unwrap() - 0.3).abs() < 1e-6 && used.power_watts == Some(100.0));
        assert_eq!((used.memory_bytes_peak, used.source), (Some(3_000_000_000), UsageSource::Telemetry));
        assert_eq!(read.over(99, Usage::default()), Usage::default());
        let error = Telemetry::read("job_id,gpu_index\n".as_bytes()).unwrap_err().to_string();
        assert!(error.contains("sm_active_fraction"), "{error}");
    }
}
