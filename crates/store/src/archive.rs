//! What was learnt, as text that outlives a database and a release: profiles, names of workloads, and who shared a device with whom.
//! One JSON value a line, a header first and a line with the counts last, so that half a file is known for one. Pure: knows no file
//! and no database (docs/decisions/0038-export-and-roles.md).

use crate::{Durations, StoredProfile};
use pillion_core::device::COPIES_MAX;
use pillion_core::metric::Metrics;
use pillion_core::name::NameSource;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{JobStart, UnixTime, WorkloadKey, WorkloadName};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read as _, Write};

/// The version of the format that is written, and the last one that can be read.
pub const FORMAT: u32 = 1;
/// The longest line.
const LINE_LENGTH_MAX: u64 = 64 * 1024;
/// The most records of one kind: far above what `database.history_kept_days` leaves of a busy site.
const RECORDS_MAX: u64 = 2_000_000;
/// The longest name of a workload, a device model or a family.
const TEXT_LENGTH_MAX: usize = 256;

/// Everything that was learnt, in the order of its changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Archive {
    pub profiles: Vec<StoredProfile>,
    pub names: Vec<NameRecord>,
    pub observations: Vec<ObservationRecord>,
}

/// How a workload is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameRecord {
    pub workload: WorkloadKey,
    pub uid: u32,
    pub name: WorkloadName,
    pub source: NameSource,
    pub named_at: UnixTime,
}

/// Tenants that shared a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationRecord {
    pub device_model: String,
    /// `mps`, `ccs`, `none`: as the table has it.
    pub mechanism: String,
    pub ccs_mode: Option<u8>,
    pub power_watts: Option<f64>,
    pub fits: bool,
    pub recorded_at: UnixTime,
    /// Two to four, in the order of their starts; up to sixteen copies of one workload.
    pub tenants: Vec<TenantRecord>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {
    pub start: JobStart,
    pub workload: WorkloadKey,
    pub cap_fraction: Option<f64>,
    pub speed_fraction: Option<f64>,
    pub speed_fraction_deviation: Option<f64>,
    pub is_self_reported: bool,
}

/// Why a file cannot be read; nothing of it was used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The disk.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// Something else.
    #[error("it does not begin as an export of pillion-scheduler does")]
    Foreign,
    /// Of a later release.
    #[error(
        "it was written in format {0}, and this program reads formats up to {FORMAT}; import it with a later release"
    )]
    Newer(u32),
    /// A line that is none of ours.
    #[error("line {number}: {why}")]
    Line {
        /// From 1.
        number: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Cut off, or put together of several.
    #[error("it is not whole: its end is missing, or counts other lines than there are")]
    Incomplete,
}

/// How many records of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    profiles: u64,
    names: u64,
    observations: u64,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Profile(Box<ProfileRecord>),
    Name(NameRecord),
    Observation(ObservationRecord),
    End(Counts),
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    pillion_export: u32,
    /// For people.
    #[serde(default)]
    written_at: UnixTime,
}

/// A profile with all of its metrics and where they come from, which what people are shown leaves out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileRecord {
    workload: WorkloadKey,
    device_model: String,
    family: Option<String>,
    run_count: u32,
    duration_seconds: Option<f64>,
    duration_variation_fraction: Option<f64>,
    duration_run_count: u32,
    duration_deviation_squares: f64,
    throughput_per_second: Option<f64>,
    throughput_per_second_at_cap: [Option<f64>; 9],
    run_counts_at_cap: [u32; 9],
    metrics: Metrics,
    memory_bytes_peak: Option<u64>,
    memory_bytes_completed: Option<u64>,
    memory_bytes_ran_out: Option<u64>,
    process_count_peak: u32,
    /// Absent in what was written by a release of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process_memory_bytes_peak: Option<u64>,
    energy_joules: Option<f64>,
    updated_at: UnixTime,
}

impl From<&StoredProfile> for ProfileRecord {
    fn from(stored: &StoredProfile) -> Self {
        let StoredProfile { profile, durations, run_counts_at_cap, updated_at } = stored.clone();
        Self {
            workload: profile.workload,
            device_model: profile.device_model,
            family: profile.family,
            run_count: profile.run_count,
            duration_seconds: profile.duration_seconds,
            duration_variation_fraction: profile.duration_variation_fraction,
            duration_run_count: durations.run_count,
            duration_deviation_squares: durations.deviation_squares,
            throughput_per_second: profile.throughput_per_second,
            throughput_per_second_at_cap: profile.throughput_per_second_at_cap,
            run_counts_at_cap,
            metrics: profile.metrics,
            memory_bytes_peak: profile.memory_bytes_peak,
            memory_bytes_completed: profile.memory_bytes_completed,
            memory_bytes_ran_out: profile.memory_bytes_ran_out,
            process_count_peak: profile.process_count_peak,
            process_memory_bytes_peak: profile.process_memory_bytes_peak,
            energy_joules: profile.energy_joules,
            updated_at,
        }
    }
}

impl From<ProfileRecord> for StoredProfile {
    fn from(record: ProfileRecord) -> Self {
        Self {
            profile: WorkloadProfile {
                workload: record.workload,
                device_model: record.device_model,
                family: record.family,
                run_count: record.run_count,
                duration_seconds: record.duration_seconds,
                duration_variation_fraction: record.duration_variation_fraction,
                throughput_per_second: record.throughput_per_second,
                throughput_per_second_at_cap: record.throughput_per_second_at_cap,
                metrics: record.metrics,
                memory_bytes_peak: record.memory_bytes_peak,
                memory_bytes_completed: record.memory_bytes_completed,
                memory_bytes_ran_out: record.memory_bytes_ran_out,
                process_count_peak: record.process_count_peak,
                process_memory_bytes_peak: record.process_memory_bytes_peak,
                energy_joules: record.energy_joules,
            },
            durations: Durations {
                run_count: record.duration_run_count,
                deviation_squares: record.duration_deviation_squares,
            },
            run_counts_at_cap: record.run_counts_at_cap,
            updated_at: record.updated_at,
        }
    }
}

impl Archive {
    fn counts(&self) -> Counts {
        let count = |length: usize| length as u64;
        Counts {
            profiles: count(self.profiles.len()),
            names: count(self.names.len()),
            observations: count(self.observations.len()),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, mut to: impl Write, written_at: UnixTime) -> io::Result<()> {
        line(&mut to, &Header { pillion_export: FORMAT, written_at })?;
        for profile in &self.profiles {
            line(&mut to, &Line::Profile(Box::new(profile.into())))?;
        }
        for name in &self.names {
            line(&mut to, &Line::Name(name.clone()))?;
        }
        for observation in &self.observations {
            line(&mut to, &Line::Observation(observation.clone()))?;
        }
        line(&mut to, &Line::End(self.counts()))?;
        to.flush()
    }

    /// Reads a whole file, or nothing of it.
    ///
    /// # Errors
    /// [`ArchiveError`], whose sentence says what is wrong with it.
    pub fn read(mut from: impl BufRead) -> Result<Self, ArchiveError> {
        let first = next_line(&mut from, 1)?.ok_or(ArchiveError::Foreign)?;
        let header: Header = serde_json::from_str(&first).map_err(|_| ArchiveError::Foreign)?;
        if header.pillion_export > FORMAT {
            return Err(ArchiveError::Newer(header.pillion_export));
        }
        let mut read = Self::default();
        for number in 2.. {
            let text = next_line(&mut from, number)?.ok_or(ArchiveError::Incomplete)?;
            let wrong = |why: String| ArchiveError::Line { number, why };
            let parsed = serde_json::from_str(&text).map_err(|error| wrong(format!("{error}")))?;
            if let Line::End(counts) = parsed {
                let is_last = next_line(&mut from, number + 1)?.is_none();
                return if is_last && counts == read.counts() {
                    Ok(read)
                } else {
                    Err(ArchiveError::Incomplete)
                };
            }
            if number > RECORDS_MAX {
                return Err(wrong(format!("more than {RECORDS_MAX} lines")));
            }
            read.add(parsed).map_err(|why| wrong(why.to_owned()))?;
        }
        Err(ArchiveError::Incomplete)
    }

    fn add(&mut self, line: Line) -> Result<(), &'static str> {
        match line {
            Line::Profile(record) => {
                check_profile(&record)?;
                self.profiles.push((*record).into());
            }
            Line::Name(record) => {
                are_texts(&[record.workload.as_str()])?;
                // As it was made safe once: a terminal shows it.
                if WorkloadName::safe(record.name.as_str()).as_ref() != Some(&record.name) {
                    return Err("a name that cannot be printed anywhere");
                }
                self.names.push(record);
            }
            Line::Observation(record) => {
                check_observation(&record)?;
                self.observations.push(record);
            }
            Line::End(_) => {}
        }
        Ok(())
    }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// One line without its end; `None` at the end of the file.
fn next_line(from: &mut impl BufRead, number: u64) -> Result<Option<String>, ArchiveError> {
    let mut bytes = Vec::new();
    from.by_ref().take(LINE_LENGTH_MAX + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let wrong = |why: &str| ArchiveError::Line { number, why: why.to_owned() };
    if bytes.pop() != Some(b'\n') {
        let is_long = bytes.len() as u64 >= LINE_LENGTH_MAX;
        return Err(if is_long { wrong("it is too long") } else { ArchiveError::Incomplete });
    }
    String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is no text"))
}

fn are_texts(texts: &[&str]) -> Result<(), &'static str> {
    let is_text = |text: &&str| {
        !text.is_empty() && text.len() <= TEXT_LENGTH_MAX && !text.chars().any(char::is_control)
    };
    if texts.iter().all(is_text) { Ok(()) } else { Err("a name that is empty, too long or unprintable") }
}

/// JSON has neither infinities nor what is no number.
fn are_amounts(values: &[Option<f64>]) -> Result<(), &'static str> {
    if values.iter().flatten().all(|value| *value >= 0.0) { Ok(()) } else { Err("an amount below nothing") }
}

fn check_profile(record: &ProfileRecord) -> Result<(), &'static str> {
    are_texts(&[record.workload.as_str(), &record.device_model, record.family.as_deref().unwrap_or("-")])?;
    are_amounts(&record.throughput_per_second_at_cap)?;
    are_amounts(&[
        record.duration_seconds,
        record.duration_variation_fraction,
        Some(record.duration_deviation_squares),
        record.throughput_per_second,
        record.energy_joules,
    ])
}

fn check_observation(record: &ObservationRecord) -> Result<(), &'static str> {
    are_texts(&[&record.device_model])?;
    are_amounts(&[record.power_watts])?;
    if !(2..=COPIES_MAX as usize).contains(&record.tenants.len()) {
        return Err("an observation of fewer than two or more than sixteen tenants");
    }
    for tenant in &record.tenants {
        are_texts(&[tenant.workload.as_str()])?;
        are_amounts(&[tenant.cap_fraction, tenant.speed_fraction, tenant.speed_fraction_deviation])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
