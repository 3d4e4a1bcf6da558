//! What is remembered of requeues and of faults of devices.

use pillion_core::health::{DeviceCondition, DeviceFault};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime};
use pillion_store::changes::{FaultOf, of_faults};
use pillion_store::{Event, Requeue, RequeueCause, RequeueOutcome};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
struct StoredFault {
    node: NodeName,
    of: FaultOf,
    is_over: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    requeues: BTreeMap<SlurmJobId, (Requeue, Option<RequeueOutcome>)>,
    device_faults: Vec<StoredFault>,
}

impl Faults {
    /// In the place of the job's last one, where it may follow that. `false`: nothing is intended anew.
    pub(crate) fn intend(&mut self, requeue: &Requeue) -> bool {
        let before = self.requeues.get(&requeue.start.job_id);
        let is_new = before.is_none_or(|(old, outcome)| requeue.cause.may_follow(old.cause, *outcome));
        if is_new {
            self.requeues.insert(requeue.start.job_id, (requeue.clone(), None));
        }
        is_new
    }

    pub(crate) fn open_requeues(&self) -> Vec<Requeue> {
        let open = self.requeues.values().filter(|(_, outcome)| outcome.is_none());
        let mut open: Vec<Requeue> = open.map(|(requeue, _)| requeue.clone()).collect();
        open.sort_by(|a, b| a.decided_at.seconds().total_cmp(&b.decided_at.seconds()));
        open
    }

    pub(crate) fn last_requeue(&self, job_id: SlurmJobId) -> Option<Requeue> {
        self.requeues.get(&job_id).map(|(requeue, _)| requeue.clone())
    }

    /// What was last intended for this start.
    pub(crate) fn requeue_of(&self, start: JobStart) -> Option<RequeueCause> {
        let (requeue, _) = self.requeues.get(&start.job_id)?;
        (requeue.start == start).then_some(requeue.cause)
    }

    pub(crate) fn settle(&mut self, start: JobStart, outcome: RequeueOutcome) -> bool {
        let open = self.requeues.get_mut(&start.job_id);
        let open = open.filter(|(requeue, outcome)| requeue.start == start && outcome.is_none());
        open.is_some_and(|(_, settled)| settled.replace(outcome).is_none())
    }

    /// Gives the events that this makes.
    pub(crate) fn record_conditions(
        &mut self,
        node: &NodeName,
        conditions: &[DeviceCondition],
        at: UnixTime,
    ) -> Vec<Event> {
        let stored = self.device_faults.iter();
        let here = stored.filter(|stored| stored.node == *node && !stored.is_over);
        let open: Vec<FaultOf> = here.map(|stored| stored.of.clone()).collect();
        let changes = of_faults(&open, node, conditions, at);
        let mut events = Vec::new();
        for (of, event) in changes.begun {
            if !self.device_faults.iter().any(|stored| stored.node == *node && stored.of == of) {
                self.device_faults.push(StoredFault { node: node.clone(), of, is_over: false });
                events.push(event);
            }
        }
        for (of, event) in changes.cleared {
            let same = self.device_faults.iter_mut().filter(|stored| stored.node == *node && stored.of == of);
            same.for_each(|stored| stored.is_over = true);
            events.extend(event);
        }
        events
    }

    pub(crate) fn device_faults(
        &self,
        node: &NodeName,
        gres_type: &GresType,
        since: UnixTime,
    ) -> Vec<DeviceFault> {
        let mut faults: Vec<DeviceFault> = self
            .device_faults
            .iter()
            .filter(|stored| stored.node == *node && stored.of.gres_type == *gres_type)
            .map(|stored| stored.of.fault.clone())
            .filter(|fault| fault.since >= since)
            .collect();
        faults.sort_by(|a, b| a.since.seconds().total_cmp(&b.since.seconds()));
        faults
    }
}
