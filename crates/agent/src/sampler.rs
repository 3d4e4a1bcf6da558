//! Takes a sample of all devices once a second: who is on them, what they do, how far the jobs are. Gives samples and, when a start
//! is over, its summary. Row 8 of the way of a job.
//!
//! A start is over when its tasks have gone and none of its processes was on a device at two samples. Knows nothing of
//! shares, of the journal or of the scheduler; asks no driver itself, but is handed what one said.

use crate::accumulator::{DeviceRuns, Sample, Sighting};
use crate::outsider::Outsider;
use crate::overuse::Holding;
use crate::procfs::{ProcFs, ProcessId};
use crate::progress::ProgressFiles;
use crate::signs::{DeviceSigns, OwnProcess};
use crate::stderr_tail::StderrTails;
use crate::tracker::{Registration, TrackedStart, Tracker};
use pillion_core::device::{DeviceDescription, DeviceNotice, DeviceProcess, NoticeKind, TenantUse};
use pillion_core::fault::FaultSigns;
use pillion_core::metric::Metric;
use pillion_core::report::{DeviceSample, DeviceSamples, JobSummary, ReportBody};
use pillion_core::{GresType, JobStart, UnixTime};
use pillion_device::{DeviceError, DeviceState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tracing::warn;

/// How often a device on which nothing happens is told of.
const QUIET_SECONDS: f64 = 10.0;
/// An interval longer than this many periods was not seen.
const GAP_PERIODS: f64 = 5.0;
/// How many samples must find nothing of a start before it is over.
const EMPTY_SAMPLES: u32 = 2;
/// For how long after its begin the standard error of a start is looked for: tasks must have become the user's program.
const STDERR_SECONDS: f64 = 10.0;

/// What the backend said, device by device.
pub type DeviceStates = Vec<(u32, Result<DeviceState, DeviceError>)>;

/// What a sample gave.
#[derive(Debug, Default)]
pub struct Sampled {
    /// To be told.
    pub reports: Vec<ReportBody>,
    /// Starts that are over.
    pub ended: Vec<JobStart>,
    /// How many starts were seen on which device.
    pub tenants: BTreeMap<GresType, u64>,
    /// What each start holds of the memory of each device.
    pub holdings: Vec<Holding>,
    /// Who is on each device that answered and is no job's.
    pub outsiders: BTreeMap<u32, Vec<Outsider>>,
}

/// What outlives the agent's process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SamplerState {
    /// The machine's boot that the tasks belong to.
    boot_id: String,
    starts: Vec<TrackedStart>,
    runs: BTreeMap<GresType, DeviceRuns>,
    #[serde(rename = "looked_at")]
    sampled_at: UnixTime,
}

impl SamplerState {
    /// The starts that had tasks here.
    pub fn starts(&self) -> impl Iterator<Item = &TrackedStart> {
        self.starts.iter()
    }

    /// Those of them that have one still.
    pub fn with_tasks(&self, proc: &ProcFs) -> BTreeSet<JobStart> {
        let of_this_boot = self.starts.iter().filter(|_| self.boot_id == proc.boot_id());
        of_this_boot.filter(|tracked| tracked.has_task(proc)).map(|tracked| tracked.start).collect()
    }
}

/// A process on a device, and whose it is.
type Attributed<'a> = (&'a DeviceProcess, Option<JobStart>);

/// How a start looks as if it were over.
#[derive(Debug, Clone, Copy)]
struct Fading {
    since: UnixTime,
    sample_count: u32,
}

#[derive(Debug)]
pub struct Sampler {
    devices: Vec<DeviceDescription>,
    proc: ProcFs,
    attribution: Attribution,
    gap_seconds: f64,
    tracker: Tracker,
    runs: BTreeMap<GresType, DeviceRuns>,
    signs: BTreeMap<GresType, DeviceSigns>,
    stderr: StderrTails,
    fading: BTreeMap<JobStart, Fading>,
    /// Starts that have an instance, and its memory.
    instance_bytes: BTreeMap<JobStart, u64>,
    reported_at: BTreeMap<GresType, UnixTime>,
    busy: BTreeSet<GresType>,
    failing: BTreeSet<u32>,
    sampled_at: UnixTime,
    boot_id: String,
}

/// What a sampler takes samples with.
#[derive(Debug)]
pub struct SamplerTools {
    /// The node's devices.
    pub devices: Vec<DeviceDescription>,
    /// Where processes are looked up.
    pub proc: ProcFs,
    /// How it is known whose a process is.
    pub attribution: Attribution,
    /// The time between samples.
    pub period_seconds: f64,
}

/// How it is known whose a process is, and what is read of a job besides.
#[derive(Debug)]
pub enum Attribution {
    /// The plugin tells of each task that begins. Its counter is read, which stands here, and the end of its standard error.
    Told(ProgressFiles),
    /// Slurm's own processes and control groups are looked at. Nothing of a job is opened.
    Observed,
}

impl Sampler {
    /// Goes on where an earlier agent stopped. Tasks of an earlier boot are gone, whatever has their pids now.
    pub fn new(tools: SamplerTools, state: SamplerState) -> Self {
        let SamplerTools { devices, proc, attribution, period_seconds } = tools;
        let SamplerState { boot_id: boot_id_before, mut starts, runs, sampled_at } = state;
        let boot_id = proc.boot_id();
        if boot_id != boot_id_before {
            for tracked in &mut starts {
                tracked.roots.clear();
            }
        }
        Self {
            devices,
            stderr: StderrTails::new(proc.clone()),
            signs: BTreeMap::new(),
            proc,
            attribution,
            gap_seconds: GAP_PERIODS * period_seconds,
            tracker: Tracker::restore(starts),
            runs,
            fading: BTreeMap::new(),
            instance_bytes: BTreeMap::new(),
            reported_at: BTreeMap::new(),
            busy: BTreeSet::new(),
            failing: BTreeSet::new(),
            sampled_at,
            boot_id,
        }
    }

    /// The node has one more.
    pub fn take_up(&mut self, device: DeviceDescription) {
        self.devices.push(device);
    }

    /// What is to outlive the agent.
    pub fn state(&self) -> SamplerState {
        SamplerState {
            boot_id: self.boot_id.clone(),
            starts: self.tracker.starts().cloned().collect(),
            runs: self.runs.clone(),
            sampled_at: self.sampled_at,
        }
    }

    /// Whether this start has tasks here, or had a moment ago.
    pub fn is_tracked(&self, start: JobStart) -> bool {
        self.tracker.contains(start)
    }

    /// Whether this start had tasks here, and they have gone: it is over, if a look or two confirms it.
    pub fn is_over(&self, start: JobStart) -> bool {
        let mut tracked = self.tracker.starts().filter(|tracked| tracked.start == start);
        tracked.any(|tracked| !tracked.has_task(&self.proc))
    }

    /// The starts whose tasks run here with this device.
    pub fn on_device(&self, gres_type: &GresType) -> Vec<JobStart> {
        let tracked = self.tracker.starts().filter(|tracked| tracked.gres_types.contains(gres_type));
        tracked.map(|tracked| tracked.start).filter(|start| !self.is_over(*start)).collect()
    }

    /// The tasks of this start, as far as they are known to run.
    pub fn tasks(&self, start: JobStart) -> Vec<ProcessId> {
        let own = self.tracker.starts().filter(|tracked| tracked.start == start);
        own.flat_map(|tracked| tracked.roots.iter().copied()).collect()
    }

    /// Whose process this is.
    pub fn start_of(&mut self, pid: u32) -> Option<JobStart> {
        self.tracker.attribute(&self.proc, pid)
    }

    /// How many starts are tracked.
    pub fn start_count(&self) -> usize {
        self.tracker.starts().count()
    }

    /// Whether nobody is tracked.
    pub fn is_idle(&self) -> bool {
        self.start_count() == 0
    }

    /// A start has an instance with so much memory: what it can have, and what it runs out of.
    pub fn has_instance(&mut self, start: JobStart, bytes: u64) {
        self.instance_bytes.insert(start, bytes);
    }

    /// A task is about to begin.
    pub fn register(&mut self, registration: Registration) {
        for gres_type in &registration.gres_types {
            self.runs.entry(gres_type.clone()).or_default().begin(registration.start, registration.at);
        }
        self.fading.remove(&registration.start);
        self.tracker.register(&self.proc, registration);
    }

    /// A driver told something unasked.
    pub fn noticed(&mut self, at: UnixTime, notice: &DeviceNotice) {
        if let (NoticeKind::Xid { code, pid }, Some(gres_type)) = (notice.kind, self.gres_type(notice.index))
        {
            self.signs.entry(gres_type).or_default().xid(at, code, pid);
        }
    }

    /// Takes one sample.
    pub fn sample(&mut self, at: UnixTime, states: DeviceStates) -> Sampled {
        self.open_stderr(at);
        let progress = self.read_progress();
        let mut device_samples = Vec::new();
        let mut on_devices = BTreeSet::new();
        let mut on_device = BTreeMap::new();
        let (mut holdings, mut outsiders) = (Vec::new(), BTreeMap::new());
        for (index, state) in states {
            let Some(state) = self.understood(index, state) else { continue };
            let Some(gres_type) = self.gres_type(index) else { continue };
            let attributed = self.attributed(at, &state.processes);
            self.keep_signs(
                at,
                index,
                &gres_type,
                (state.reading.metrics.bytes(Metric::MemoryBytesUsed), &attributed),
            );
            holdings.extend(self.holdings(index, &gres_type, &attributed));
            outsiders.insert(index, self.outsiders(&attributed));
            let sightings = self.sightings(&attributed);
            on_devices.extend(sightings.iter().filter_map(|seen| seen.start));
            let tenant_count = sightings.iter().filter(|seen| seen.start.is_some()).count() as u64;
            on_device.insert(gres_type.clone(), tenant_count);
            for start in sightings.iter().filter_map(|seen| seen.start) {
                // A process on a device that Slurm did not name at the handoff: seen, so counted.
                self.runs.entry(gres_type.clone()).or_default().begin(start, at);
            }
            let sample = Sample { at, reading: &state.reading, sightings: &sightings, progress: &progress };
            self.runs.entry(gres_type.clone()).or_default().observe(&sample, self.gap_seconds);
            if self.is_worth_telling(&gres_type, at, &state, &sightings) {
                let tenants = tenants(&sightings, &progress);
                device_samples.push(DeviceSample { gres_type, reading: state.reading, tenants });
            }
        }
        let mut sampled =
            Sampled { tenants: on_device, holdings, outsiders, ..self.endings(at, &on_devices) };
        if !device_samples.is_empty() {
            sampled
                .reports
                .push(ReportBody::Samples(DeviceSamples { recorded_at: at, samples: device_samples }));
        }
        self.sampled_at = at;
        // Not before: whoever ended since the devices named their processes is still known by what it was.
        self.tracker.forget_dead(&self.proc);
        sampled
    }

    fn open_stderr(&self, at: UnixTime) {
        if matches!(self.attribution, Attribution::Observed) {
            return;
        }
        for tracked in
            self.tracker.starts().filter(|tracked| at.seconds_since(tracked.started_at) <= STDERR_SECONDS)
        {
            for root in &tracked.roots {
                self.stderr.open(tracked.start, tracked.uid, *root);
            }
        }
    }

    /// Whose the processes on a device are: looked up once a sample, since each costs files of `/proc`.
    fn attributed<'a>(&mut self, at: UnixTime, processes: &'a [DeviceProcess]) -> Vec<Attributed<'a>> {
        let (tracker, proc) = (&mut self.tracker, &self.proc);
        let attribute = |process: &'a DeviceProcess| {
            let start = match self.attribution {
                Attribution::Told(_) => tracker.attribute(proc, process.pid),
                Attribution::Observed => tracker.find(proc, process.pid, at),
            };
            (process, start)
        };
        processes.iter().map(attribute).collect()
    }

    fn keep_signs(
        &mut self,
        at: UnixTime,
        index: u32,
        gres_type: &GresType,
        (bytes_used, processes): (Option<u64>, &[Attributed<'_>]),
    ) {
        let device = self.devices.iter().find(|device| device.index == index);
        let bytes = device.map_or(0, |device| device.memory_bytes);
        let mut own = Vec::new();
        for (process, start) in processes {
            let DeviceProcess { pid, memory_bytes, .. } = **process;
            own.extend(start.map(|start| OwnProcess { start, pid, memory_bytes }));
        }
        let signs = self.signs.entry(gres_type.clone()).or_default();
        signs.sample(at, bytes, bytes_used, own);
    }

    fn read_progress(&self) -> BTreeMap<JobStart, f64> {
        let Attribution::Told(files) = &self.attribution else { return BTreeMap::new() };
        self.tracker
            .starts()
            .filter_map(|tracked| Some((tracked.start, files.read(tracked.start, tracked.uid)?)))
            .collect()
    }

    fn gres_type(&self, index: u32) -> Option<GresType> {
        self.devices.iter().find(|device| device.index == index).map(|device| device.gres_type.clone())
    }

    /// What the device said; a device that fails is warned of once, until it answers again.
    fn understood(&mut self, index: u32, state: Result<DeviceState, DeviceError>) -> Option<DeviceState> {
        match state {
            Ok(state) => {
                self.failing.remove(&index);
                Some(state)
            }
            Err(error) => {
                if self.failing.insert(index) {
                    warn!(device = index, error = %pillion_core::report(&error), "device cannot be read");
                }
                None
            }
        }
    }

    /// Who is on a device, one entry a start.
    fn sightings(&self, processes: &[Attributed<'_>]) -> Vec<Sighting> {
        let mut of_starts: BTreeMap<Option<JobStart>, Sighting> = BTreeMap::new();
        for &(process, start) in processes {
            // It is nobody's neighbour: who has a client of it there is alone.
            if start.is_none() && self.proc.is_mps_server(process.pid) {
                continue;
            }
            let none =
                Sighting { memory_bytes: Some(0), process_memory_bytes: Some(0), start, process_count: 0 };
            let seen = of_starts.entry(start).or_insert(none);
            let of_one = process.memory_bytes;
            seen.memory_bytes = seen.memory_bytes.zip(of_one).map(|(all, one)| all.saturating_add(one));
            seen.process_memory_bytes =
                seen.process_memory_bytes.zip(of_one).map(|(most, one)| most.max(one));
            seen.process_count += 1;
        }
        of_starts.into_values().collect()
    }

    /// Who is on a device and is no job's.
    fn outsiders(&self, processes: &[Attributed<'_>]) -> Vec<Outsider> {
        let nobodys = processes.iter().filter(|(_, start)| start.is_none());
        nobodys.filter_map(|(process, _)| Outsider::find(&self.proc, process)).collect()
    }

    /// What each start holds of a device.
    fn holdings(
        &self,
        index: u32,
        gres_type: &GresType,
        processes: &[Attributed<'_>],
    ) -> impl Iterator<Item = Holding> {
        let mut of_starts: BTreeMap<JobStart, Holding> = BTreeMap::new();
        for (process, start) in processes {
            let Some(start) = *start else { continue };
            let holding = of_starts.entry(start).or_insert_with(|| Holding {
                index,
                gres_type: gres_type.clone(),
                start,
                memory_bytes: 0,
                processes: Vec::new(),
            });
            holding.memory_bytes = holding.memory_bytes.saturating_add(process.memory_bytes.unwrap_or(0));
            holding.processes.extend(self.proc.identify(process.pid));
        }
        of_starts.into_values()
    }

    /// A busy device is told of at every sample, and once more when it falls quiet; a quiet one now and then.
    fn is_worth_telling(
        &mut self,
        gres_type: &GresType,
        at: UnixTime,
        state: &DeviceState,
        sightings: &[Sighting],
    ) -> bool {
        let moves = |metric| state.reading.metrics.get(metric).is_some_and(|part| part > 0.0);
        let is_busy =
            !sightings.is_empty() || moves(Metric::SmActiveFraction) || moves(Metric::GpuBusyFraction);
        let was_busy =
            if is_busy { !self.busy.insert(gres_type.clone()) } else { self.busy.remove(gres_type) };
        let is_due = self
            .reported_at
            .get(gres_type)
            .is_none_or(|reported_at| at.seconds_since(*reported_at) >= QUIET_SECONDS);
        let tell = is_busy || was_busy || is_due;
        if tell {
            self.reported_at.insert(gres_type.clone(), at);
        }
        tell
    }

    /// When whatever is found gone `at` this time has gone: over a time in which nobody looked, at its beginning.
    pub fn gone_since(&self, at: UnixTime) -> UnixTime {
        let unseen = at.seconds_since(self.sampled_at) > self.gap_seconds && self.sampled_at.epoch() > 0;
        if unseen { self.sampled_at } else { at }
    }

    /// Finds the starts that are over and tells them.
    fn endings(&mut self, at: UnixTime, on_devices: &BTreeSet<JobStart>) -> Sampled {
        if matches!(self.attribution, Attribution::Observed) {
            self.tracker.find_steps(&self.proc);
        }
        let gone: BTreeSet<JobStart> = self
            .tracker
            .without_tasks(&self.proc)
            .into_iter()
            .filter(|start| !on_devices.contains(start))
            .collect();
        self.fading.retain(|start, _| gone.contains(start));
        let since = self.gone_since(at);
        let mut sampled = Sampled::default();
        for start in gone {
            let fading = self.fading.entry(start).or_insert(Fading { since, sample_count: 0 });
            fading.sample_count += 1;
            if fading.sample_count >= EMPTY_SAMPLES {
                let ended_at = fading.since;
                sampled.reports.extend(self.finish(start, ended_at));
                sampled.ended.push(start);
            }
        }
        sampled
    }

    fn finish(&mut self, start: JobStart, ended_at: UnixTime) -> Vec<ReportBody> {
        self.fading.remove(&start);
        self.tracker.forget(start);
        let is_observed = match &self.attribution {
            Attribution::Told(files) => {
                files.remove(start);
                false
            }
            Attribution::Observed => true,
        };
        let (signs, stderr) = (&self.signs, self.stderr.close(start));
        let instance_bytes = self.instance_bytes.remove(&start);
        let summaries = self.runs.iter_mut().filter_map(|(gres_type, runs)| {
            let summary = runs.end(start, ended_at, gres_type)?;
            let (from, until) = (summary.started_at, ended_at);
            let signs = signs.get(gres_type).map(|signs| match instance_bytes {
                Some(bytes) => signs.of_instance((start, bytes), from, until),
                None => signs.of(start, from, until),
            });
            let signs = FaultSigns { stderr, ..signs.unwrap_or_default() };
            Some(JobSummary { signs: Some(signs), ..summary })
        });
        let report = if is_observed { ReportBody::ObservedRun } else { ReportBody::JobSummary };
        summaries.map(|summary| report(Box::new(summary))).collect()
    }
}

fn tenants(sightings: &[Sighting], progress: &BTreeMap<JobStart, f64>) -> Vec<TenantUse> {
    sightings
        .iter()
        .filter_map(|seen| {
            let start = seen.start?;
            Some(TenantUse {
                job_id: start.job_id,
                restart_count: start.restart_count,
                memory_bytes: seen.memory_bytes,
                process_count: seen.process_count,
                progress: progress.get(&start).copied(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
