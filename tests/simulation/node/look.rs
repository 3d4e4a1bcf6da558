//! A look of the agent's sampler: what each device says, who is on it, and how far the jobs are.

use super::{Node, Running};
use pillion_agent::accumulator::{Sample, Sighting};
use pillion_core::device::TenantUse;
use pillion_core::report::{DeviceSamples, ReportBody};
use pillion_core::{GresType, JobStart, UnixTime};
use pillion_device::Backend;
use std::collections::BTreeMap;

/// How often a quiet device is told of.
const QUIET_SECONDS: f64 = 10.0;

impl Node {
    /// One look of the agent's sampler.
    pub(crate) fn look(&mut self, now: UnixTime) {
        let now = self.clock(now);
        // A clock that was set back: it looks again.
        self.looked_at = self.looked_at.filter(|before| *before <= now);
        if !self.is_agent_alive || self.looked_at.is_some_and(|before| now.seconds_since(before) < 1.0) {
            return;
        }
        self.looked_at = Some(now);
        self.instances.rest();
        let states = self.backend.read_all().expect("the devices are there");
        let mut samples = Vec::new();
        for (index, state) in states {
            let state = state.expect("no device is lost here");
            let gres_type = self.devices[index as usize].gres_type.clone();
            let is_here = |run: &&Running| run.gres_type == gres_type && !self.is_at_rest(run);
            let here: Vec<JobStart> = self.running.iter().filter(is_here).map(|run| run.start).collect();
            let memory_bytes = self.memory_of(index, &here);
            let sighting = |start: &JobStart| Sighting {
                start: Some(*start),
                memory_bytes: memory_bytes.get(start).copied(),
                process_count: 1,
                process_memory_bytes: memory_bytes.get(start).copied(),
            };
            let sightings: Vec<Sighting> = here.iter().map(sighting).collect();
            let progress = self.counters(&here);
            let look =
                Sample { at: now, reading: &state.reading, sightings: &sightings, progress: &progress };
            self.runs.entry(gres_type.clone()).or_default().observe(&look, 5.0);
            if self.is_worth_telling(&gres_type, !here.is_empty(), now) {
                let reading = state.reading;
                let tenants = here.iter().map(|start| tenant_use(*start, &memory_bytes, &progress)).collect();
                samples.push(pillion_core::report::DeviceSample { gres_type, reading, tenants });
            }
        }
        if !samples.is_empty() {
            self.report(ReportBody::Samples(DeviceSamples { recorded_at: now, samples }));
        }
    }

    /// A device is told of while somebody is on it, once more when they have left, and now and then.
    fn is_worth_telling(&mut self, gres_type: &GresType, is_busy: bool, now: UnixTime) -> bool {
        let told = self.told_at.get(gres_type);
        let is_due = told.is_none_or(|(at, was_busy)| *was_busy || now.seconds_since(*at) >= QUIET_SECONDS);
        if is_busy || is_due {
            self.told_at.insert(gres_type.clone(), (now, is_busy));
        }
        is_busy || is_due
    }

    /// The memory that each of these holds of a device, by the driver's list of processes.
    fn memory_of(&self, index: u32, starts: &[JobStart]) -> BTreeMap<JobStart, u64> {
        let processes = self.lock().processes(index).expect("the device is there");
        let of = |run: &Running| {
            let own = processes.iter().find(|process| process.pid == run.pid)?;
            Some((run.start, own.memory_bytes?))
        };
        self.running.iter().filter(|run| starts.contains(&run.start)).filter_map(of).collect()
    }

    /// How far each of these says that it is.
    fn counters(&self, starts: &[JobStart]) -> BTreeMap<JobStart, f64> {
        let machine = self.lock();
        let here = self.running.iter().filter(|run| starts.contains(&run.start));
        here.filter_map(|run| Some((run.start, machine.progress(run.client)?.done_seconds))).collect()
    }
}

fn tenant_use(
    start: JobStart,
    memory_bytes: &BTreeMap<JobStart, u64>,
    progress: &BTreeMap<JobStart, f64>,
) -> TenantUse {
    TenantUse {
        job_id: start.job_id,
        restart_count: start.restart_count,
        memory_bytes: memory_bytes.get(&start).copied(),
        process_count: 1,
        progress: progress.get(&start).copied(),
    }
}
