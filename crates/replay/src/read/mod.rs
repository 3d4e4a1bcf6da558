//! sacct's rows to jobs, one at a time: a file of a million jobs is never there as a whole. Everything in it is foreign: a row is
//! bounded in length, believed whole or not at all, and what is dropped is counted by cause. Must not know where the text comes
//! from.

mod fields;
mod jobstats;
mod prometheus;
mod row;
mod scripts;
mod telemetry;
#[cfg(test)]
mod tests;
mod tres;

pub use fields::{DELIMITER, Field, NoSuchField, SacctCommand};
pub(crate) use jobstats::repacked;
pub use jobstats::{NotASummary, Summary, summary};
pub use prometheus::{Joined, NoAnswer, POINTS_MAX, Question, stretches};
pub use row::{Fault, NoHeader};
pub(crate) use row::{Header, Row};
pub use scripts::Scripts;
pub use telemetry::{COLUMNS as TELEMETRY_COLUMNS, Telemetry};

use crate::jobs::{Accounting, Job, KeyKind, Usage, UsageSource, WorkloadText};
use crate::key::{Workloads, command};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::io::{BufRead, Read as _};

/// No row is longer: command lines and names have bounds.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
/// More GPUs, nodes and CPUs than any job has: what is beyond is no amount.
const COUNT_MAX: u64 = 1 << 24;

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file broke off.
    #[error("cannot be read further")]
    Io(#[from] std::io::Error),
    /// It is none of sacct's.
    #[error(transparent)]
    Header(#[from] NoHeader),
    /// A column of telemetry is missing.
    #[error(
        "the column {0} is missing; needed are job_id, gpu_index, sm_active_fraction, memory_bandwidth_fraction, \
             memory_bytes_peak and power_watts_mean, the cells of which may be empty"
    )]
    Telemetry(&'static str),
    /// No script in what should hold them.
    #[error(
        "it holds no script; give what 'sacct --batch-script -j JOBS' prints, or a folder of files that are named by job numbers"
    )]
    Scripts,
    /// Nothing in it can be replayed.
    #[error("no job in it can be replayed{0}")]
    Nothing(String),
}

/// Why a sound record is no part of the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetAside {
    /// It had no GPU.
    NoGpu,
    /// It never started.
    NeverStarted,
    /// It has not ended.
    StillRuns,
    /// It ran for less than a second.
    NoTime,
    /// The same start stands in the file before: two that overlap were put together.
    Twice,
}

impl SetAside {
    /// For a person, behind a number of jobs.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoGpu => "without a GPU",
            Self::NeverStarted => "that never started",
            Self::StillRuns => "that had not ended",
            Self::NoTime => "that ran for less than a second",
            Self::Twice => "that stood in the file before",
        }
    }
}

/// What became of the rows.
#[derive(Debug, Clone, Default)]
pub struct ReadTally {
    /// Rows behind the first line.
    pub rows: u64,
    /// Rows that were dropped, by cause.
    pub dropped: BTreeMap<Fault, u64>,
    /// Jobs that are sound and no part of the replay, by cause.
    pub set_aside: BTreeMap<SetAside, u64>,
    /// Summaries of jobstats that cannot be unpacked: their jobs stay, and nothing is known of how they used a GPU.
    pub summaries_unread: u64,
    /// Rows of telemetry that were dropped.
    pub telemetry_rows_dropped: u64,
    /// Scripts that were dropped.
    pub scripts_dropped: u64,
    /// What is missing or was dropped of other sources, in words behind a number of them.
    pub besides: Vec<(String, u64)>,
}

/// What is known of jobs besides their rows.
#[derive(Debug, Clone, Default)]
pub struct Besides {
    /// How they used their GPUs.
    pub telemetry: Telemetry,
    /// What they ran.
    pub scripts: Scripts,
}

/// Reads a file of sacct.
///
/// # Errors
/// [`ReadError`].
pub fn read(mut from: impl BufRead, besides: &Besides) -> Result<(Accounting, ReadTally), ReadError> {
    let mut line = Vec::new();
    if next_line(&mut from, &mut line)? != Line::Whole {
        return Err(NoHeader::NotThere.into());
    }
    let header = Header::read(std::str::from_utf8(&line).map_err(|_| NoHeader::NotThere)?)?;
    let mut reader = Reader::new(&header, besides);
    loop {
        match next_line(&mut from, &mut line)? {
            Line::End => break,
            Line::TooLong => reader.drop_row(Fault::TooLong),
            Line::Whole => {
                let taken = match std::str::from_utf8(&line) {
                    Ok("") => continue,
                    Ok(text) => reader.take(text),
                    Err(_) => Err(Fault::NotText),
                };
                match taken {
                    Ok(()) => reader.tally.rows += 1,
                    Err(fault) => reader.drop_row(fault),
                }
            }
        }
    }
    reader.finish()
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole,
    TooLong,
    End,
}

/// The next line without its end; one that is too long is passed over.
pub(crate) fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Line> {
    line.clear();
    let most = ROW_BYTES_MAX as u64 + 2;
    if from.by_ref().take(most).read_until(b'\n', line)? == 0 {
        return Ok(Line::End);
    }
    let is_whole = line.pop_if(|byte| *byte == b'\n').is_some() || line.len() <= ROW_BYTES_MAX;
    line.pop_if(|byte| *byte == b'\r');
    if is_whole {
        return Ok(Line::Whole);
    }
    let mut rest = Vec::new();
    loop {
        rest.clear();
        let count = from.by_ref().take(most).read_until(b'\n', &mut rest)?;
        if count == 0 || rest.last() == Some(&b'\n') {
            return Ok(Line::TooLong);
        }
    }
}

/// The job whose steps may follow.
struct Current {
    id: u32,
    /// Absent where the job is no part of the replay: its steps are passed over with it.
    job: Option<Job>,
}

struct Reader<'r> {
    header: &'r Header,
    besides: &'r Besides,
    accounting: Accounting,
    workloads: Workloads,
    tally: ReadTally,
    current: Option<Current>,
    /// Starts that were read: job and second.
    starts: FxHashSet<(u32, u64)>,
}

impl<'r> Reader<'r> {
    fn new(header: &'r Header, besides: &'r Besides) -> Self {
        let has_submit_lines = header.has(Field::SubmitLine);
        let tally = ReadTally {
            telemetry_rows_dropped: besides.telemetry.rows_dropped,
            scripts_dropped: besides.scripts.dropped,
            ..ReadTally::default()
        };
        let accounting = Accounting { has_submit_lines, ..Accounting::default() };
        let (workloads, starts) = (Workloads::default(), FxHashSet::default());
        Self { header, besides, accounting, workloads, tally, current: None, starts }
    }

    fn drop_row(&mut self, fault: Fault) {
        self.tally.rows += 1;
        *self.tally.dropped.entry(fault).or_default() += 1;
    }

    fn take(&mut self, line: &str) -> Result<(), Fault> {
        let row = Row::split(self.header, line)?;
        let id = row.id()?;
        if !id.is_step {
            self.keep_current();
            // Of a row that is dropped the steps are passed over with it: it is one bad row, and not many.
            self.current = Some(Current { id: id.job, job: None });
            let read = self.job(&row, id.job)?;
            let job = match read {
                Ok(job) => Some(job),
                Err(why) => {
                    *self.tally.set_aside.entry(why).or_default() += 1;
                    None
                }
            };
            self.current = Some(Current { id: id.job, job });
            return Ok(());
        }
        let current = self.current.as_mut().filter(|current| current.id == id.job).ok_or(Fault::LostStep)?;
        if let Some(job) = &mut current.job {
            add_step(&row, job)?;
        }
        Ok(())
    }

    /// The job of a row, or why it is no part of the replay.
    fn job(&mut self, row: &Row<'_>, id: u32) -> Result<Result<Job, SetAside>, Fault> {
        let [submitted, eligible] = [row.time(Field::Submit)?, row.time(Field::Eligible)?];
        let [started, ended] = [row.time(Field::Start)?, row.time(Field::End)?];
        let (given, asked) = (row.amounts(Field::AllocTres)?, row.amounts(Field::ReqTres)?);
        let gpus = given.gpus.unwrap_or(0);
        if gpus == 0 && asked.gpus.unwrap_or(0) == 0 {
            return Ok(Err(SetAside::NoGpu));
        }
        let (Some(started_at), true) = (started, gpus > 0) else { return Ok(Err(SetAside::NeverStarted)) };
        let Some(ended_at) = ended.filter(|_| !row.still_runs()) else {
            return Ok(Err(SetAside::StillRuns));
        };
        let eligible_at = eligible.or(submitted).ok_or(Fault::Time)?;
        if ended_at < started_at {
            return Err(Fault::TimeOrder);
        }
        if ended_at == started_at {
            return Ok(Err(SetAside::NoTime));
        }
        if !self.starts.insert((id, started_at)) {
            return Ok(Err(SetAside::Twice));
        }
        let nodes = row.number(Field::NNodes).or(given.nodes).unwrap_or(1).max(1);
        let cpus = given.cpus.unwrap_or(0);
        if [gpus, nodes, cpus].into_iter().any(|count| count > COUNT_MAX) {
            return Err(Fault::Resources);
        }
        let small = |count: u64| u32::try_from(count).expect("held below 2^24");
        let usage = self.usage_of_comment(row);
        let (workload, key) = self.workload(row);
        let names = &mut self.accounting;
        if workload as usize == names.workloads.len() {
            names.workloads.push(WorkloadText {
                user: names.users.number(row.text(Field::User)),
                name: row.text(Field::JobName).into(),
                command: command(row.text(Field::SubmitLine)),
            });
        }
        Ok(Ok(Job {
            id,
            user: names.users.number(row.text(Field::User)),
            account: names.accounts.number(row.text(Field::Account)),
            partition: names.partitions.number(row.text(Field::Partition)),
            workload,
            key,
            node: names.nodes.number(&row.first_node()),
            gpu_type: asked.gpu_type.map(|name| names.gpu_types.number(name)),
            gpu_type_given: given.gpu_type.map(|name| names.gpu_types.number(name)),
            // A job that was requeued or held is eligible again and again; it never starts before it is.
            eligible_at: eligible_at.min(started_at),
            started_at,
            ended_at,
            limit_seconds: row.limit_seconds(),
            priority: row.number(Field::Priority),
            nodes: small(nodes),
            gpus: small(gpus),
            cpus: small(cpus),
            memory_mib: given.memory_bytes.unwrap_or(0) >> 20,
            ended: row.ended(),
            usage,
        }))
    }

    /// Its workload, and what that is told by.
    fn workload(&mut self, row: &Row<'_>) -> (u32, KeyKind) {
        let [user, name, line] =
            [Field::User, Field::JobName, Field::SubmitLine].map(|field| row.text(field));
        // A task of an array is known by its array; without that field only other jobs are known.
        let number = if self.header.has(Field::JobId) { Field::JobId } else { Field::JobIdRaw };
        if let Some(script) = self.besides.scripts.digest_of(row.text(number)) {
            return (self.workloads.number_by_script(user, name, script), KeyKind::Script);
        }
        let key = if line.is_empty() { KeyKind::Name } else { KeyKind::SubmitLine };
        (self.workloads.number(user, name, line), key)
    }

    fn usage_of_comment(&mut self, row: &Row<'_>) -> Usage {
        match summary(row.text(Field::AdminComment)) {
            Ok(Some(Summary { busy_fraction, memory_bytes_peak, memory_bytes_total, gpu_count }))
                if gpu_count > 0 =>
            {
                Usage {
                    source: UsageSource::Jobstats,
                    busy_fraction: busy_fraction.map(narrow),
                    memory_bytes_peak,
                    memory_bytes_device: memory_bytes_total,
                    ..Usage::default()
                }
            }
            Ok(_) => Usage::default(),
            Err(NotASummary) => {
                self.tally.summaries_unread += 1;
                Usage::default()
            }
        }
    }

    fn keep_current(&mut self) {
        let Some(Current { job: Some(mut job), .. }) = self.current.take() else { return };
        job.usage = self.besides.telemetry.over(job.id, job.usage);
        self.accounting.jobs.push(job);
    }

    fn finish(mut self) -> Result<(Accounting, ReadTally), ReadError> {
        self.keep_current();
        self.accounting.workload_count = self.workloads.count();
        if self.accounting.jobs.is_empty() {
            return Err(ReadError::Nothing(why_nothing(&self.tally)));
        }
        Ok((self.accounting, self.tally))
    }
}

impl Accounting {
    /// Believes this rather than what was known of how jobs used their GPUs.
    pub fn learn(&mut self, telemetry: &Telemetry) {
        for job in &mut self.jobs {
            job.usage = telemetry.over(job.id, job.usage);
        }
    }
}

/// `: of 12 rows 12 are dropped, with a time that ..`.
fn why_nothing(tally: &ReadTally) -> String {
    if let Some((fault, count)) = tally.dropped.iter().max_by_key(|(_, count)| **count) {
        return format!(": of {} rows {count} are dropped, {}", tally.rows, fault.text());
    }
    match tally.set_aside.iter().max_by_key(|(_, count)| **count) {
        Some((why, count)) => format!(": {count} are jobs {}", why.text()),
        None => ": it has no rows".to_owned(),
    }
}

/// What Slurm sampled of a step. Of busy time the greatest sample of any task: its mean is one over tasks and not over time, so
/// that a job is rather taken for heavier than it is.
fn add_step(row: &Row<'_>, job: &mut Job) -> Result<(), Fault> {
    let used =
        [Field::TresUsageInAve, Field::TresUsageInMax, Field::TresUsageInTot].map(|field| row.used(field));
    let [average, most, total] = used;
    let (average, most, total) = (average?, most?, total?);
    if job.usage.source > UsageSource::Slurm {
        return Ok(());
    }
    let percent = [average.gpu_use_percent, most.gpu_use_percent].into_iter().flatten().reduce(f64::max);
    let memory = [most.gpu_memory_bytes, total.gpu_memory_bytes].into_iter().flatten().max();
    // Tasks of several GPUs together have the memory of all of them.
    let memory = if job.gpus > 1 { most.gpu_memory_bytes } else { memory };
    if percent.is_none() && memory.is_none() {
        return Ok(());
    }
    let usage = &mut job.usage;
    usage.source = UsageSource::Slurm;
    let busy = percent.map(|percent| narrow((percent / 100.0).min(1.0)));
    usage.busy_fraction = [usage.busy_fraction, busy].into_iter().flatten().reduce(f32::max);
    usage.memory_bytes_peak = usage.memory_bytes_peak.max(memory);
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "a fraction, of which seven digits are enough")]
fn narrow(fraction: f64) -> f32 {
    fraction as f32
}
