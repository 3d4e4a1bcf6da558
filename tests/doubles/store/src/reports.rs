//! What agents report and what happened, in memory.

use super::MemoryStore;
use super::state::{Run, State};
use async_trait::async_trait;
use pillion_core::device::DeviceDescription;
use pillion_core::event::EventKind;
use pillion_core::metric::Metric;
use pillion_core::report::{Launch, Report, ReportBody};
use pillion_core::{DecisionId, GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_store::{Event, Events, History, Reports, StoreError};
use std::collections::BTreeSet;

/// How many rows of history there are, of every kind.
fn row_count(state: &State) -> usize {
    let explanations: usize = state.explanations.values().map(Vec::len).sum();
    state.decisions.len()
        + explanations
        + state.events.len()
        + state.launches.len()
        + state.runs.len()
        + state.starts.len()
        + state.jobs.len()
        + state.watched.row_count()
        + state.shadow.len()
}

#[async_trait]
impl Reports for MemoryStore {
    async fn ingest(&self, node: &NodeName, journal_id: &str, report: &Report) -> Result<bool, StoreError> {
        self.with("storing a report", |state| {
            let last = state.journals.entry((node.clone(), journal_id.to_owned())).or_default();
            if report.sequence <= *last {
                return false;
            }
            *last = report.sequence;
            match &report.body {
                ReportBody::Samples(taken) => {
                    let samples = taken.samples.iter().cloned();
                    state.samples.extend(samples.map(|sample| (taken.recorded_at, node.clone(), sample)));
                }
                ReportBody::JobSummary(summary) => {
                    // An agent that lost its journal may report a start again, under another journal: the first one counts.
                    let key = (summary.start, summary.gres_type.clone());
                    state.runs.entry(key).or_insert_with(|| Run {
                        node: node.clone(),
                        summary: (**summary).clone(),
                        account: None,
                        lesson: None,
                        is_passed: false,
                        is_judged: false,
                    });
                }
                ReportBody::ObservedRun(run) => state.add_observed_run(node, run),
                ReportBody::Launch(launch) => state.launches.push(launch.clone()),
            }
            true
        })
    }

    async fn last_sequence(&self, node: &NodeName, journal_id: &str) -> Result<u64, StoreError> {
        self.with("reading a journal's sequence", |state| {
            state.journals.get(&(node.clone(), journal_id.to_owned())).copied().unwrap_or(0)
        })
    }

    async fn record_devices(
        &self,
        node: &NodeName,
        devices: &[DeviceDescription],
        _at: UnixTime,
    ) -> Result<(), StoreError> {
        self.with("recording devices", |state| {
            for device in devices {
                state.devices.insert((node.clone(), device.gres_type.clone()), device.clone());
            }
        })
    }

    async fn launches(&self, start: JobStart) -> Result<Vec<Launch>, StoreError> {
        self.with("reading launches", |state| {
            state.launches.iter().filter(|launch| launch.start == start).cloned().collect()
        })
    }

    async fn power_watts_mean(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        from: UnixTime,
        until: UnixTime,
    ) -> Result<Option<f64>, StoreError> {
        self.with("reading a device's power", |state| {
            let here = state.samples.iter().filter(|(recorded_at, of_node, sample)| {
                of_node == node
                    && sample.gres_type == *gres_type
                    && *recorded_at >= from
                    && *recorded_at <= until
            });
            let (sum, count) = here
                .filter_map(|(.., sample)| sample.reading.metrics.get(Metric::PowerWatts))
                .fold((0.0, 0.0), |(sum, count), watts| (sum + watts, count + 1.0));
            (count > 0.0).then(|| sum / count)
        })
    }
}

#[async_trait]
impl Events for MemoryStore {
    async fn record_event(&self, event: &Event) -> Result<(), StoreError> {
        self.with("recording an event", |state| {
            state.record_event(event.clone());
        })
    }

    async fn events(&self, id: SlurmJobId) -> Result<Vec<Event>, StoreError> {
        self.with("reading events", |state| {
            state.events.iter().filter(|event| event.job_id == Some(id)).cloned().collect()
        })
    }

    async fn event_count(&self, kind: &EventKind) -> Result<u64, StoreError> {
        self.with("counting events", |state| {
            state.events.iter().filter(|event| event.kind == *kind).map(|_| 1).sum()
        })
    }
}

#[async_trait]
impl History for MemoryStore {
    async fn prune_history(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.with("pruning history", |state| {
            let rows = row_count(state);
            let stays: BTreeSet<DecisionId> = state
                .all_decisions()
                .filter(|decision| decision.state.is_active() || decision.created_at >= before)
                .map(|decision| decision.group)
                .collect();
            state.decisions.retain(|_, committed| stays.contains(&committed.decision.group));
            for kept in state.explanations.values_mut() {
                kept.retain(|(_, at, _)| *at >= before);
            }
            state.events.retain(|event| event.at >= before);
            state.launches.retain(|launch| launch.at >= before);
            state.runs.retain(|_, run| !run.is_done() || !run.is_judged || run.summary.ended_at >= before);
            state.jobs.retain(|_, job| job.ended_at.is_none_or(|at| at >= before));
            state.watched.forget(before);
            state.shadow.retain(|_, (_, closed)| closed.as_ref().is_none_or(|(at, _)| *at >= before));
            let jobs = &state.jobs;
            state.starts.retain(|start, ran| ran.started_at >= before || jobs.contains_key(&start.job_id));
            (rows - row_count(state)).try_into().unwrap_or(u64::MAX)
        })
    }

    async fn prune_samples(&self, before: UnixTime) -> Result<u64, StoreError> {
        self.with("pruning samples", |state| {
            let count = state.samples.len();
            state.samples.retain(|(recorded_at, ..)| *recorded_at >= before);
            (count - state.samples.len()).try_into().unwrap_or(u64::MAX)
        })
    }
}
