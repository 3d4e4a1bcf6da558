//! The fake's scheduler: one pass in order of tier, priority and age; a job starts iff its request fits.
//!
//! Backfill in a nutshell: a job that waits for resources has a node planned for it, from when the first job there will
//! have to end, and no later job starts on that node that would end after that, even on a device that is free.

use super::request::{self, Booking};
use super::settings::FakeNode;
use super::world::{Record, World};
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use pillion_slurm::parse::state::node_availability;
use pillion_slurm::{JobState, NodeAvailability, ReasonKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Nodes planned for a job that waits, and from when.
type Planned = BTreeMap<NodeName, UnixTime>;

/// What a pass finds for one job.
enum Verdict {
    Start(Vec<Booking>),
    Wait(ReasonKind),
    /// No node could ever run it: Slurm sets its priority to 0.
    Impossible,
}

impl World {
    pub(super) fn schedule(&mut self) {
        let mut order: Vec<(Reverse<u32>, Reverse<u64>, SlurmJobId)> = self
            .records
            .values()
            .filter(|record| record.state == JobState::Pending)
            .map(|record| (Reverse(self.tier(record)), Reverse(record.priority), record.id))
            .collect();
        order.sort_unstable();
        let mut somebody_waits = false;
        let mut planned = Planned::new();
        for (_, _, id) in order {
            let Some(record) = self.records.get(&id) else { continue };
            let verdict = self.judge(record, somebody_waits, &planned);
            if self.settings.waiting_jobs_block && matches!(verdict, Verdict::Wait(ReasonKind::Resources(_)))
            {
                self.plan_node(record, &mut planned);
            }
            match verdict {
                Verdict::Start(bookings) => self.start(id, bookings),
                Verdict::Impossible => self.set_aside(id),
                Verdict::Wait(reason) => {
                    somebody_waits |= matches!(reason, ReasonKind::Resources(_));
                    if let Some(record) = self.records.get_mut(&id) {
                        record.reason = reason;
                    }
                }
            }
        }
    }

    fn tier(&self, record: &Record) -> u32 {
        let asked = self.partition_list.iter().filter(|partition| record.request.asks_for(&partition.name));
        asked.map(|partition| partition.tier).max().unwrap_or(0)
    }

    /// Plans the first node that could run the job for the time when the first job there will have to end.
    fn plan_node(&self, record: &Record, planned: &mut Planned) {
        let mut nodes = self.nodes.iter();
        let found = nodes.find(|(node, flag)| is_up(flag.as_deref()) && self.could_ever_run(record, node));
        let Some((node, _)) = found else { return };
        let running = self.records.values().filter(|other| {
            let is_there = other.bookings.iter().any(|booking| booking.node.as_ref() == Some(&node.name));
            other.state == JobState::Running && is_there
        });
        let ends = running.filter_map(|other| self.limit_at(other));
        let first_end = ends.min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        planned.entry(node.name.clone()).or_insert_with(|| first_end.unwrap_or(self.now));
    }

    /// Whether the job would be off a planned node in time.
    fn keeps_the_plan(&self, record: &Record, node: &FakeNode, planned: &Planned) -> bool {
        let limit = self.time_limit_seconds(&record.request);
        let ends_at = limit.map(|seconds| self.now + Duration::from_secs(seconds));
        planned.get(&node.name).is_none_or(|from| ends_at.is_some_and(|end| end <= *from))
    }

    /// Whether the job, started now, would be on a node while it is reserved: it has no part in any reservation.
    fn meets_a_reservation(&self, record: &Record, node: &FakeNode) -> bool {
        let limit = self.time_limit_seconds(&record.request).map(Duration::from_secs);
        self.reservations.iter().any(|one| {
            let is_before = limit.is_some_and(|limit| self.now + limit <= one.starts_at);
            one.nodes.contains(&node.name) && !is_before && one.ends_at > self.now
        })
    }

    fn judge(&self, record: &Record, somebody_waits: bool, planned: &Planned) -> Verdict {
        if let Some(reason) = self.reason_not_to_look(record) {
            return Verdict::Wait(reason);
        }
        let candidates: Vec<&(FakeNode, Option<String>)> =
            self.nodes.iter().filter(|(node, _)| self.could_ever_run(record, node)).collect();
        let node_count = usize::from(record.request.node_count);
        if candidates.len() < node_count {
            return Verdict::Impossible;
        }
        let open = candidates.iter().filter(|(node, flag)| {
            is_up(flag.as_deref())
                && self.keeps_the_plan(record, node, planned)
                && !self.meets_a_reservation(record, node)
        });
        let bookings: Vec<Booking> =
            open.filter_map(|(node, _)| self.fit(record, node)).take(node_count).collect();
        if bookings.len() == node_count {
            return Verdict::Start(bookings);
        }
        let pinned = !record.request.required_nodes.is_empty();
        let why = match (pinned, somebody_waits) {
            (true, _) => "ReqNodeNotAvail, May be reserved for other job",
            (false, true) => "Priority",
            (false, false) => "Resources",
        };
        Verdict::Wait(ReasonKind::Resources(why.to_owned()))
    }

    /// What keeps a job from being looked at, in Slurm's words.
    fn reason_not_to_look(&self, record: &Record) -> Option<ReasonKind> {
        let request = &record.request;
        if record.priority == 0 {
            return Some(record.reason.clone());
        }
        if request.dependency.is_some_and(|id| !self.is_over(id)) {
            return Some(ReasonKind::Dependency);
        }
        if !request.reservation.is_empty() {
            return Some(ReasonKind::Other("Reservation".to_owned()));
        }
        let booked = self.records.values().filter(|other| !other.bookings.is_empty());
        if let Some(throttle) = request.array.as_ref().and_then(|array| array.throttle) {
            let running = booked.clone().filter(|other| other.id.id == record.id.id).count();
            if running >= throttle as usize {
                return Some(ReasonKind::Limit("JobArrayTaskLimit".to_owned()));
            }
        }
        if record.begin_at > self.now {
            return Some(ReasonKind::BeginTime);
        }
        let of_user = booked.filter(|other| other.request.uid == request.uid).count();
        self.user_jobs_max
            .filter(|most| of_user >= *most as usize)
            .map(|_| ReasonKind::Limit("QOSMaxJobsPerUserLimit".to_owned()))
    }

    /// Whether this node, idle and up, would run it.
    fn could_ever_run(&self, record: &Record, node: &FakeNode) -> bool {
        let job = &record.request;
        let mut asked = self.partition_list.iter().filter(|partition| job.asks_for(&partition.name));
        asked.any(|partition| partition.nodes.contains(&node.name))
            && (job.required_nodes.is_empty() || job.required_nodes.contains(&node.name))
            && !job.excluded_nodes.contains(&node.name)
            && request::features_match(&job.features, &node.features)
            && job.cpus <= node.cpus
            && job.memory_mib <= node.memory_mib
            && request::possible(&all_gres(record), node)
    }

    fn fit(&self, record: &Record, node: &FakeNode) -> Option<Booking> {
        let used = self.booked_on(&node.name);
        let (cpus, memory_mib) = (record.request.cpus, record.request.memory_mib);
        if used.cpus + cpus > node.cpus || used.memory_mib + memory_mib > node.memory_mib {
            return None;
        }
        let booking = request::book(&all_gres(record), node, &used)?;
        Some(Booking { node: Some(node.name.clone()), cpus, memory_mib, ..booking })
    }

    fn start(&mut self, id: SlurmJobId, bookings: Vec<Booking>) {
        self.split_off(id);
        let now = self.now;
        let Some(record) = self.records.get_mut(&id) else { return };
        record.state = JobState::Running;
        record.reason = ReasonKind::None;
        record.started_at = Some(now);
        record.ended_at = None;
        record.run_ends_at = record.request.run_seconds.map(|seconds| now + Duration::from_secs_f64(seconds));
        record.bookings = bookings;
    }

    fn set_aside(&mut self, id: SlurmJobId) {
        if let Some(record) = self.records.get_mut(&id) {
            record.priority = 0;
            record.reason = ReasonKind::Other("BadConstraints".to_owned());
        }
    }

    /// An array task gets a job id of its own when it starts or is updated.
    pub(super) fn split_off(&mut self, id: SlurmJobId) {
        let record = self.records.get(&id);
        if record.is_some_and(|record| record.id.task.is_some() && record.inner_id == record.id.id) {
            let inner_id = self.take_id();
            if let Some(record) = self.records.get_mut(&id) {
                record.inner_id = inner_id;
            }
        }
    }
}

fn is_up(flag: Option<&str>) -> bool {
    let state = flag.map_or_else(|| "IDLE".to_owned(), |flag| format!("IDLE+{flag}"));
    node_availability(&state) == NodeAvailability::Up
}

fn all_gres(record: &Record) -> String {
    let request = &record.request;
    [Some(request.gres.as_str()), request.gres_per_job.as_deref()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(",")
}
