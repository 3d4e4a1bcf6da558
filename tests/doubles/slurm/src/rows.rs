//! The fake's answers: jobs, nodes and partitions as Slurm would print them.

use super::request::Booking;
use super::settings::FakeJob;
use super::world::{Record, World};
use pillion_core::SlurmJobId;
use pillion_core::mark::{InvalidMark, Mark};
use pillion_slurm::parse::state::node_availability;
use pillion_slurm::{Exclusive, HeldDevices, Job, JobState, NAMED_JOBS_MAX, Node, Partition, ReasonKind};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// The marks of all texts that were ever asked for: they are few, and a simulation asks for each of them hundreds of times.
#[derive(Debug, Default)]
pub(super) struct ReadMarks(RefCell<HashMap<String, Result<Option<Mark>, InvalidMark>>>);

impl ReadMarks {
    fn read(&self, text: &str) -> Result<Option<Mark>, InvalidMark> {
        if let Some(known) = self.0.borrow().get(text) {
            return known.clone();
        }
        let mark = Mark::parse(text);
        self.0.borrow_mut().insert(text.to_owned(), mark.clone());
        mark
    }
}

impl World {
    pub(super) fn jobs(&self, partitions: &[String]) -> Vec<Job> {
        let wanted = self.records.values().filter(|record| {
            partitions.is_empty() || partitions.iter().any(|name| record.request.asks_for(name))
        });
        wanted.map(|record| self.row(record)).collect()
    }

    pub(super) fn job(&self, id: SlurmJobId) -> Option<Job> {
        self.records.get(&id).map(|record| self.row(record))
    }

    pub(super) fn open_jobs(&self) -> Vec<Job> {
        let open = self.records.values().filter(|record| !matches!(record.state, JobState::Ended(_)));
        open.map(|record| self.row(record)).collect()
    }

    pub(super) fn state(&self, id: SlurmJobId) -> Option<JobState> {
        self.records.get(&id).map(|record| record.state.clone())
    }

    pub(super) fn names(&self, jobs: &[SlurmJobId]) -> BTreeMap<SlurmJobId, String> {
        let named = jobs.iter().take(NAMED_JOBS_MAX).filter_map(|id| {
            let name = &self.records.get(id)?.request.name;
            Some((*id, if name.is_empty() { "wrap".to_owned() } else { name.clone() }))
        });
        named.collect()
    }

    pub(super) fn node_counts(&self, jobs: &[SlurmJobId]) -> BTreeMap<SlurmJobId, u32> {
        let known = jobs.iter().take(NAMED_JOBS_MAX).filter_map(|id| self.records.get(id));
        known.map(|record| (record.id, record.request.node_count.into())).collect()
    }

    /// The job with this inner number.
    pub(super) fn inner(&self, number: u32) -> Option<&Record> {
        self.records.values().find(|record| record.inner_id == number)
    }

    /// The whole devices of these jobs while they run: `g2` is Slurm's index 2.
    pub(super) fn held_devices(&self, jobs: &[u32]) -> BTreeMap<u32, HeldDevices> {
        let held = jobs.iter().take(NAMED_JOBS_MAX).filter_map(|number| {
            let bookings = self.inner(*number)?.bookings.iter();
            let of_nodes: HeldDevices = bookings
                .filter_map(|booking| {
                    let names = booking.gpus.iter();
                    let indexes = names.filter_map(|device| device.as_str().strip_prefix('g')?.parse().ok());
                    Some((booking.node.clone()?, indexes.collect()))
                })
                .collect();
            (!of_nodes.is_empty()).then_some((*number, of_nodes))
        });
        held.collect()
    }

    fn row(&self, record: &Record) -> Job {
        let request = &record.request;
        let waits = record.state == JobState::Pending;
        let unknown_yet = waits && (request.held_now(record.priority) || request.dependency.is_some());
        let ended_at =
            if record.state == JobState::Running { self.limit_at(record) } else { record.ended_at };
        Job {
            id: record.id,
            restart_count: record.restart_count,
            inner_id: record.inner_id,
            state: record.state.clone(),
            reason: if waits { record.reason.clone() } else { ReasonKind::None },
            uid: request.uid,
            time_limit_seconds: self.time_limit_seconds(request),
            user: request.user.as_str().into(),
            account: request.account.as_str().into(),
            partition: request.partition.as_str().into(),
            qos: request.qos.as_str().into(),
            priority: record.priority,
            submitted_at: record.submitted_at,
            eligible_at: Some(record.begin_at).filter(|_| !unknown_yet),
            started_at: record.started_at.filter(|_| !waits),
            ended_at: ended_at.filter(|_| !waits),
            gres: match &request.gres_per_job {
                Some(per_job) if request.gres.is_empty() => per_job.as_str().into(),
                Some(per_job) => format!("{},{per_job}", request.gres).into(),
                None => request.gres.as_str().into(),
            },
            nodes: record.bookings.iter().filter_map(|booking| booking.node.clone()).collect(),
            required_nodes: request.required_nodes.clone(),
            excluded_nodes: request.excluded_nodes.clone(),
            features: request.features.as_str().into(),
            cpus: request.cpus * u32::from(request.node_count),
            memory_mib: request.memory_mib,
            reservation: request.reservation.as_str().into(),
            has_dependency: request.dependency.is_some_and(|id| !self.is_over(id)),
            array_throttle: request.array.as_ref().and_then(|array| array.throttle),
            exit: matches!(record.state, JobState::Ended(_)).then_some(record.exit),
            mark: self.marks.read(&request.admin_comment),
        }
    }

    pub(super) fn node_rows(&self) -> Vec<Node> {
        self.nodes
            .iter()
            .map(|(node, flag)| {
                let used = self.booked_on(&node.name);
                let base = if used == Booking::default() { "IDLE" } else { "MIXED" };
                let is_reserved = self.reservations.iter().any(|one| {
                    one.nodes.contains(&node.name) && one.starts_at <= self.now && self.now < one.ends_at
                });
                let state = match flag.as_deref().or(is_reserved.then_some("RESERVED")) {
                    Some("DOWN") => "DOWN".to_owned(),
                    Some(flag) => format!("{base}+{flag}"),
                    None => base.to_owned(),
                };
                let partitions =
                    self.partition_list.iter().filter(|partition| partition.nodes.contains(&node.name));
                let shards = node.devices.iter().filter(|(_, total)| **total > 0).map(|(device, total)| {
                    (device.clone(), (*total, used.shards.get(device).copied().unwrap_or(0)))
                });
                let gpus = node.devices.keys().map(|d| (d.clone(), (1, u32::from(used.gpus.contains(d)))));
                Node {
                    name: node.name.clone(),
                    address: "127.0.0.1".to_owned(),
                    availability: node_availability(&state),
                    state,
                    cpus: node.cpus,
                    cpus_allocated: used.cpus,
                    memory_mib: node.memory_mib,
                    memory_mib_allocated: used.memory_mib,
                    features: node.features.clone(),
                    partitions: partitions.map(|partition| partition.name.clone()).collect(),
                    shards: shards.collect(),
                    gpus: gpus.collect(),
                    other_gres: None,
                    scratch_mib: 0,
                    slurmd_started_at: Some(self.booted_at),
                    reserved_from: None,
                }
            })
            .collect()
    }

    pub(super) fn partition_rows(&self) -> Vec<Partition> {
        self.partition_list
            .iter()
            .enumerate()
            .map(|(index, partition)| Partition {
                name: partition.name.clone(),
                is_default: index == 0,
                is_up: true,
                nodes: partition.nodes.clone(),
                time_limit_seconds_max: partition.time_limit_seconds_max,
                billing_weights: "GRES/shard=1".to_owned(),
                preempt_mode: "REQUEUE".to_owned(),
                exclusive: Exclusive::No,
                over_subscribe: "NO".to_owned(),
                default_memory_mib: None,
                job_defaults: String::new(),
            })
            .collect()
    }
}

impl FakeJob {
    /// Held by its user or an admin, not by a request that cannot be met.
    fn held_now(&self, priority: u64) -> bool {
        self.held && priority == 0
    }
}
