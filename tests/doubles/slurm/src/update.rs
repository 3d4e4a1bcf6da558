//! `scontrol update` and `scontrol release` as Slurm 24.11.5 does them, field after field: what stands before the field
//! that is refused stays applied.

use super::request;
use super::world::{Record, World, refused};
use pillion_core::SlurmJobId;
use pillion_slurm::nodeset;
use pillion_slurm::{JobState, JobUpdate, ReasonKind, SlurmError};

impl World {
    /// Each job on its own; the first error is the call's.
    pub(super) fn update(&mut self, jobs: &[SlurmJobId], update: &JobUpdate) -> Result<(), SlurmError> {
        let mut first_error = None;
        for id in jobs {
            let result = self.update_one(*id, update);
            first_error = first_error.or(result.err());
        }
        first_error.map_or(Ok(()), Err)
    }

    fn update_one(&mut self, id: SlurmJobId, update: &JobUpdate) -> Result<(), SlurmError> {
        let record = self.known(id)?;
        self.pass_fence(record, update)?;
        if matches!(record.state, JobState::Ended(_)) || matches!(record.completing, Some((_, Some(_)))) {
            return Err(refused(&format!("Job has already finished for job {id}")));
        }
        self.split_off(id);
        if update.partition.is_some() {
            self.check_partition(id, update)?;
        }
        let JobUpdate { gres, required_nodes, partition, admin_comment, start_time } = update;
        if let Some(nodes) = required_nodes {
            let nodes = self.checked_nodes(id, nodes)?;
            self.with(id, |record| record.request.required_nodes.clone_from(&nodes));
        }
        if let Some(partition) = partition {
            self.with(id, |record| record.request.partition.clone_from(partition));
        }
        if let Some(gres) = gres {
            self.check_gres(id, gres)?;
            self.with(id, |record| record.request.gres.clone_from(gres));
        }
        if let Some(comment) = admin_comment {
            self.with(id, |record| record.request.admin_comment.clone_from(comment));
        }
        if let Some(time) = start_time {
            self.check_waits(id)?;
            let begin_at = if *time > self.now { *time } else { self.now };
            self.with(id, |record| record.begin_at = begin_at);
        }
        self.look_again(id);
        Ok(())
    }

    fn with(&mut self, id: SlurmJobId, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.records.get_mut(&id) {
            change(record);
        }
    }

    /// Whatever was changed, the job is judged anew: `BadConstraints` and its priority of 0 go, a hold stays.
    fn look_again(&mut self, id: SlurmJobId) {
        let set_aside = self.records.get(&id).is_some_and(is_set_aside);
        if set_aside {
            let priority = self.take_priority();
            self.with(id, |record| record.priority = priority);
        }
        self.with(id, |record| {
            if record.state == JobState::Pending && !matches!(record.reason, ReasonKind::Held(_)) {
                record.reason = ReasonKind::None;
            }
        });
        self.wake();
    }

    fn check_partition(&mut self, id: SlurmJobId, update: &JobUpdate) -> Result<(), SlurmError> {
        let names = update.partition.as_deref().unwrap_or_default();
        if !names.split(',').all(|name| self.partition_list.iter().any(|partition| partition.name == name)) {
            return Err(refused(&format!("Invalid partition name specified for job {id}")));
        }
        if self.known(id)?.request.partition != names {
            self.check_waits(id)?;
        }
        if self.partition_refusals > 0 {
            self.partition_refusals -= 1;
            let detail = format!("Resource temporarily unavailable for job {id}");
            return Err(SlurmError::Unavailable { program: "scontrol".to_owned(), detail });
        }
        Ok(())
    }

    fn checked_nodes(&self, id: SlurmJobId, nodes: &str) -> Result<Vec<pillion_core::NodeName>, SlurmError> {
        // Slurm says the same of any node list for a job that runs.
        let nodes =
            nodeset::expand(nodes).ok().filter(|_| self.records.get(&id).is_some_and(Record::takes_updates));
        nodes
            .filter(|names| names.iter().all(|name| self.nodes.iter().any(|(node, _)| node.name == *name)))
            .ok_or_else(|| refused(&format!("Invalid node name specified for job {id}")))
    }

    /// Slurm checks the names and nothing else: an unknown type or too large a count is found when it is scheduled.
    fn check_gres(&self, id: SlurmJobId, gres: &str) -> Result<(), SlurmError> {
        self.check_waits(id)?;
        let are_known = request::entries(gres).iter().all(|entry| {
            matches!(entry.name.as_str(), "gpu" | "shard")
                || self.nodes.iter().any(|(node, _)| node.other_gres.contains_key(&entry.name))
        });
        if !are_known || self.known(id)?.request.gres_per_job.is_some() {
            return Err(refused(&format!("Invalid generic resource (gres) specification for job {id}")));
        }
        Ok(())
    }

    fn check_waits(&self, id: SlurmJobId) -> Result<(), SlurmError> {
        if self.known(id)?.takes_updates() {
            Ok(())
        } else {
            Err(refused(&format!("Job is no longer pending execution for job {id}")))
        }
    }

    /// `scontrol release`: of any job that Slurm knows; one that runs only gets another priority.
    pub(super) fn charge_to(&mut self, id: SlurmJobId, account: &str, qos: &str) -> bool {
        let mut is_done = false;
        self.with(id, |record| {
            is_done = record.state == JobState::Pending;
            if is_done {
                (record.request.account, record.request.qos) = (account.to_owned(), qos.to_owned());
            }
        });
        is_done
    }

    pub(super) fn release_hold(&mut self, id: SlurmJobId) -> Result<(), SlurmError> {
        self.known(id)?;
        let priority = self.take_priority();
        self.with(id, |record| {
            record.priority = priority;
            record.request.held = false;
            record.reason = ReasonKind::None;
        });
        self.wake();
        Ok(())
    }
}

fn is_set_aside(record: &Record) -> bool {
    record.priority == 0 && record.reason == ReasonKind::Other("BadConstraints".to_owned())
}
