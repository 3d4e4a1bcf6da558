//! Requeues and faults of devices, in memory.

use super::MemoryStore;
use async_trait::async_trait;
use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_store::{Event, Judgement, Requeue, RequeueOutcome, StoreError};

#[async_trait]
impl pillion_store::Faults for MemoryStore {
    async fn judge_run(
        &self,
        start: JobStart,
        gres_type: &GresType,
        judgement: &Judgement,
    ) -> Result<bool, StoreError> {
        self.call("judging a run", |state| {
            let run = state.runs.get_mut(&(start, gres_type.clone()));
            let run = run.ok_or_else(|| StoreError::Missing(format!("the run of {start} on {gres_type}")))?;
            if std::mem::replace(&mut run.is_judged, true) {
                return Ok(false);
            }
            state.events.extend(judgement.events.iter().cloned());
            if let Some(requeue) = &judgement.requeue {
                state.faults.intend(requeue);
            }
            Ok(true)
        })
    }

    async fn open_requeues(&self) -> Result<Vec<Requeue>, StoreError> {
        self.with("reading requeues", |state| state.faults.open_requeues())
    }

    async fn last_requeue(&self, job_id: SlurmJobId) -> Result<Option<Requeue>, StoreError> {
        self.with("reading a requeue", |state| state.faults.last_requeue(job_id))
    }

    async fn settle_requeue(
        &self,
        start: JobStart,
        outcome: RequeueOutcome,
        event: &Event,
    ) -> Result<bool, StoreError> {
        self.with("settling a requeue", |state| {
            let is_new = state.faults.settle(start, outcome);
            if is_new {
                state.events.push(event.clone());
            }
            is_new
        })
    }

    async fn intend_requeue(&self, requeue: &Requeue, event: &Event) -> Result<bool, StoreError> {
        self.with("intending a requeue", |state| {
            let is_new = state.faults.intend(requeue);
            if is_new {
                state.events.push(event.clone());
            }
            is_new
        })
    }

    async fn record_conditions(
        &self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Result<(), StoreError> {
        self.with("recording conditions", |state| {
            state.events.extend(state.faults.record_conditions(node, conditions, at));
        })
    }

    async fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Result<Vec<DeviceFault>, StoreError> {
        self.with("reading faults of a device", |state| state.faults.device_faults(node, gres_type, since))
    }
}
