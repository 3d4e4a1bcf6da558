//! What is kept of a site's accounting: a million jobs in a few hundred megabytes, so names are numbers here.

use rustc_hash::FxHashMap;

/// Texts, each once and numbered in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Names {
    numbers: FxHashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Names {
    /// The number of a text, which is new where it has none.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("a file has fewer names than 2^32");
        self.numbers.insert(text.into(), number);
        self.texts.push(text.into());
        number
    }
    /// The number of a text that is there.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }
    /// The text of a number that was given out; empty for any other.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Who said how a job used its GPU; the later one is believed rather.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum UsageSource {
    /// Nobody.
    #[default]
    Nobody,
    /// Slurm itself: of busy time the greatest sample of a task, not a mean over time.
    Slurm,
    /// The summary of jobstats.
    Jobstats,
    /// A file of the site's own.
    Telemetry,
}

/// How a job used each of its GPUs, as far as anybody says.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Who said so.
    pub source: UsageSource,
    /// The part of the time in which a kernel ran, 0..=1.
    pub busy_fraction: Option<f32>,
    /// Compute units in use, 0..=1.
    pub sm_active_fraction: Option<f32>,
    /// Memory bandwidth of the greatest possible, 0..=1.
    pub memory_bandwidth_fraction: Option<f32>,
    /// The greatest device memory in use on any GPU.
    pub memory_bytes_peak: Option<u64>,
    /// The device memory that its GPUs have.
    pub memory_bytes_device: Option<u64>,
    /// Mean power of a GPU.
    pub power_watts: Option<f32>,
}

impl Usage {
    /// The part of a GPU that it used: busy time, else compute units.
    pub fn use_fraction(&self) -> Option<f32> {
        self.busy_fraction.or(self.sm_active_fraction)
    }
    /// Whether it says enough for a profile: some use, and the memory. Nothing seen is not a need of nothing.
    pub fn is_profile(&self) -> bool {
        self.use_fraction().is_some() && self.memory_bytes_peak.is_some_and(|bytes| bytes > 0)
    }
}

/// What told a job's workload from others of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// Its name and its script.
    Script,
    /// Its name and the command line by which it was submitted.
    SubmitLine,
    /// Its name alone.
    Name,
}

impl KeyKind {
    /// For a person, behind "by".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Script => "job name and script",
            Self::SubmitLine => "job name and command line without its numbers",
            Self::Name => "job name alone",
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself and well.
    Completed,
    /// At its time limit.
    TimeLimit,
    /// In any other way.
    Otherwise,
}

/// One run of one job that had GPUs. Times are seconds since 1970.
#[derive(Debug, Clone)]
pub struct Job {
    /// Slurm's number; a requeued job has several runs.
    pub id: u32,
    /// Its user, account and partition, by their numbers.
    pub user: u32,
    /// See `user`.
    pub account: u32,
    /// See `user`.
    pub partition: u32,
    /// Its workload, by number.
    pub workload: u32,
    /// What that was told by.
    pub key: KeyKind,
    /// The first node that it ran on, by number.
    pub node: u32,
    /// The type of GPU that it asked for, by number.
    pub gpu_type: Option<u32>,
    /// The type of GPU that it was given, where Slurm wrote that down.
    pub gpu_type_given: Option<u32>,
    /// From when it could have started.
    pub eligible_at: u64,
    /// When it started.
    pub started_at: u64,
    /// When it ended.
    pub ended_at: u64,
    /// Its time limit.
    pub limit_seconds: Option<u64>,
    /// Slurm's priority for it.
    pub priority: Option<u32>,
    /// How many nodes it had.
    pub nodes: u32,
    /// GPUs on all of its nodes.
    pub gpus: u32,
    /// CPUs on all of its nodes.
    pub cpus: u32,
    /// Host memory on all of its nodes in MiB.
    pub memory_mib: u64,
    /// How it ended.
    pub ended: Ended,
    /// How it used its GPUs.
    pub usage: Usage,
}

impl Job {
    /// How long it ran.
    pub fn seconds(&self) -> u64 {
        self.ended_at - self.started_at
    }
    /// How long it waited.
    pub fn waited_seconds(&self) -> u64 {
        self.started_at.saturating_sub(self.eligible_at)
    }
    /// What it held.
    #[expect(clippy::cast_precision_loss, reason = "a run is far shorter than 2^53 seconds")]
    pub fn gpu_hours(&self) -> f64 {
        self.seconds() as f64 / 3600.0 * f64::from(self.gpus)
    }
}

/// What one workload goes by, as its first job said.
#[derive(Debug, Clone)]
pub struct WorkloadText {
    /// Its user, by number.
    pub user: u32,
    /// What its user calls its jobs.
    pub name: Box<str>,
    /// A digest of its command line without the numbers in it.
    pub command: u64,
}

/// A site's accounting, as far as it is replayed.
#[derive(Debug, Clone, Default)]
pub struct Accounting {
    /// Runs in the order of the file.
    pub jobs: Vec<Job>,
    /// Users by number.
    pub users: Names,
    /// Accounts by number.
    pub accounts: Names,
    /// Partitions by number.
    pub partitions: Names,
    /// Nodes by number.
    pub nodes: Names,
    /// GPU types by number.
    pub gpu_types: Names,
    /// How many workloads there are.
    pub workload_count: u32,
    /// Workloads by number.
    pub workloads: Vec<WorkloadText>,
    /// Whether command lines told workloads of one name apart.
    pub has_submit_lines: bool,
}

impl Accounting {
    /// From the first start to the last end; there is at least one job.
    pub fn span(&self) -> (u64, u64) {
        let starts = self.jobs.iter().map(|job| job.started_at);
        let ends = self.jobs.iter().map(|job| job.ended_at);
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_saw_is_no_need_of_nothing() {
        let of =
            |memory_bytes_peak| Usage { busy_fraction: Some(0.4), memory_bytes_peak, ..Usage::default() };
        assert!(of(Some(1)).is_profile());
        assert!(!of(Some(0)).is_profile() && !of(None).is_profile());
    }
}
