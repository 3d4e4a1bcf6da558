//! The state of the fake: jobs, time, and what happens by itself.

use super::disk::Saved;
use super::request::Booking;
use super::rows::ReadMarks;
use super::settings::{FakeCall, FakeJob, FakeNode, FakePartition, FakeSettings};
use pillion_core::{NodeName, SlurmJobId, UnixTime};
use pillion_slurm::{Ending, JobState, ReasonKind, Reservation, SlurmError};
use std::collections::BTreeMap;

/// The priority that the first job gets; each later one gets one less, as `priority/basic` does.
const PRIORITY_FIRST: u64 = 4_294_901_759;

/// One job, or one task of an array.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: SlurmJobId,
    pub(super) inner_id: u32,
    /// What it asks for now; updates change it.
    pub(super) request: FakeJob,
    pub(super) state: JobState,
    pub(super) reason: ReasonKind,
    pub(super) priority: u64,
    pub(super) submitted_at: UnixTime,
    /// Its begin time.
    pub(super) begin_at: UnixTime,
    pub(super) started_at: Option<UnixTime>,
    pub(super) ended_at: Option<UnixTime>,
    /// When its program ends of itself.
    pub(super) run_ends_at: Option<UnixTime>,
    pub(super) restart_count: u32,
    /// What it holds of each of its nodes.
    pub(super) bookings: Vec<Booking>,
    /// When it has cleaned up, and how it then is over; `None`: it goes back to the queue.
    pub(super) completing: Option<(UnixTime, Option<Ending>)>,
    pub(super) exit: (u32, u32),
}

impl Record {
    /// Waiting, or cleaning up on its way back to the queue: Slurm takes updates of both.
    pub(super) fn takes_updates(&self) -> bool {
        self.state == JobState::Pending || matches!(self.completing, Some((_, None)))
    }
}

/// The whole cluster.
#[derive(Debug)]
pub(super) struct World {
    pub(super) settings: FakeSettings,
    pub(super) now: UnixTime,
    pub(super) nodes: Vec<(FakeNode, Option<String>)>,
    pub(super) partition_list: Vec<FakePartition>,
    pub(super) records: BTreeMap<SlurmJobId, Record>,
    pub(super) journal: Vec<FakeCall>,
    pub(super) partition_refusals: u32,
    pub(super) lost_answers: u32,
    pub(super) user_jobs_max: Option<u32>,
    pub(super) reservations: Vec<Reservation>,
    /// When the scheduler looks next, if something changed.
    pass_at: Option<UnixTime>,
    last_pass_at: UnixTime,
    down: bool,
    is_accounting_down: bool,
    pub(super) next_id: u32,
    pub(super) next_priority: u64,
    pub(super) saved: Option<Saved>,
    pub(super) booted_at: UnixTime,
    pub(super) marks: ReadMarks,
}

impl World {
    pub(super) fn new(
        settings: FakeSettings,
        nodes: Vec<FakeNode>,
        partition_list: Vec<FakePartition>,
        now: UnixTime,
    ) -> Self {
        Self {
            settings,
            now,
            nodes: nodes.into_iter().map(|node| (node, None)).collect(),
            partition_list,
            records: BTreeMap::new(),
            journal: Vec::new(),
            partition_refusals: 0,
            lost_answers: 0,
            user_jobs_max: None,
            reservations: Vec::new(),
            pass_at: None,
            last_pass_at: now,
            down: false,
            is_accounting_down: false,
            next_id: 1,
            next_priority: PRIORITY_FIRST,
            saved: None,
            booted_at: now,
            marks: ReadMarks::default(),
        }
    }

    pub(super) fn up(&self, program: &str) -> Result<(), SlurmError> {
        let is_down = self.down || self.is_accounting_down && program == "sacct";
        if is_down { Err(SlurmError::Timeout { program: program.to_owned(), seconds: 10 }) } else { Ok(()) }
    }

    pub(super) fn journal<T>(
        &mut self,
        call: impl FnOnce(UnixTime, bool) -> FakeCall,
        answer: Result<T, SlurmError>,
    ) -> Result<T, SlurmError> {
        self.journal.push(call(self.now, answer.is_ok()));
        answer
    }

    pub(super) fn take_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn take_priority(&mut self) -> u64 {
        self.next_priority -= 1;
        self.next_priority + 1
    }

    /// Something changed: the scheduler looks a moment later.
    pub(super) fn wake(&mut self) {
        self.pass_at.get_or_insert(self.now + self.settings.scheduling_delay);
    }

    pub(super) fn submit(&mut self, job: &FakeJob) -> SlurmJobId {
        let (id, priority) = (self.take_id(), self.take_priority());
        let ids = match &job.array {
            None => vec![SlurmJobId::plain(id)],
            Some(array) => array.tasks.iter().map(|task| SlurmJobId::array_task(id, *task)).collect(),
        };
        for id in ids {
            let begin_at = job.begin.filter(|begin| *begin > self.now).unwrap_or(self.now);
            let record = Record {
                inner_id: id.id,
                state: JobState::Pending,
                reason: if job.held { ReasonKind::Held("JobHeldUser".to_owned()) } else { ReasonKind::None },
                priority: if job.held { 0 } else { priority },
                submitted_at: self.now,
                begin_at,
                started_at: None,
                ended_at: None,
                run_ends_at: None,
                restart_count: 0,
                bookings: Vec::new(),
                completing: None,
                exit: (0, 0),
                request: job.clone(),
                id,
            };
            self.records.insert(id, record);
        }
        self.wake();
        SlurmJobId::plain(id)
    }

    /// Moves time; what is due happens in order.
    pub(super) fn advance(&mut self, to: UnixTime) {
        while !self.down
            && let Some(at) = self.next_event().filter(|at| *at <= to)
        {
            if at > self.now {
                self.now = at;
            }
            self.fire(at);
        }
        if to > self.now {
            self.now = to;
        }
    }

    fn next_event(&self) -> Option<UnixTime> {
        let of_jobs = self.records.values().filter_map(|record| self.next_event_of(record));
        // When a reservation is over its nodes are everybody's again.
        let ends = self.reservations.iter().map(|one| one.ends_at).filter(|end| *end > self.last_pass_at);
        of_jobs.chain(ends).chain(self.pass_at).min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }

    fn next_event_of(&self, record: &Record) -> Option<UnixTime> {
        match record.state {
            JobState::Pending => Some(record.begin_at).filter(|begin| *begin > self.last_pass_at),
            JobState::Running => {
                let limit_at = self.limit_at(record);
                record
                    .run_ends_at
                    .into_iter()
                    .chain(limit_at)
                    .min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
            }
            JobState::Completing => record.completing.map(|(until, _)| until),
            JobState::Ended(_) => record.ended_at.map(|ended| ended + self.settings.min_job_age),
            JobState::Suspended | JobState::Other(_) => None,
        }
    }

    pub(super) fn time_limit_seconds(&self, request: &FakeJob) -> Option<u64> {
        let of_partition = self.partition_list.iter().find(|partition| partition.name == request.partition);
        request
            .time_limit_seconds
            .or_else(|| of_partition.and_then(|partition| partition.time_limit_seconds_max))
    }

    pub(super) fn limit_at(&self, record: &Record) -> Option<UnixTime> {
        let seconds = self.time_limit_seconds(&record.request)?;
        record.started_at.map(|started| started + std::time::Duration::from_secs(seconds))
    }

    /// All that is due at `at`, then the scheduler if it was woken or a begin time has come.
    fn fire(&mut self, at: UnixTime) {
        let due: Vec<SlurmJobId> = self
            .records
            .values()
            .filter(|record| self.next_event_of(record).is_some_and(|event| event <= at))
            .map(|record| record.id)
            .collect();
        let mut begins =
            self.reservations.iter().any(|one| one.ends_at <= at && one.ends_at > self.last_pass_at);
        for id in due {
            let Some(record) = self.records.get(&id) else { continue };
            match record.state {
                JobState::Pending => begins = true,
                JobState::Running => {
                    let ending = if record.run_ends_at.is_some_and(|end| end <= at) {
                        Ending::Completed
                    } else {
                        Ending::Timeout
                    };
                    self.complete(id, at, Some(ending));
                }
                JobState::Completing => self.cleaned_up(id),
                _ => {
                    self.records.remove(&id);
                }
            }
        }
        if begins || self.pass_at.is_some_and(|pass| pass <= at) {
            self.pass_at = None;
            self.last_pass_at = if at > self.last_pass_at { at } else { self.last_pass_at };
            self.schedule();
        }
    }

    /// The job's program is over; its GRES stays booked until it has cleaned up. `None`: it goes back to the queue.
    pub(super) fn complete(&mut self, id: SlurmJobId, at: UnixTime, ending: Option<Ending>) {
        let until = at + self.settings.completing;
        let Some(record) = self.records.get_mut(&id) else { return };
        record.state = JobState::Completing;
        record.ended_at = Some(at);
        record.exit = match ending {
            Some(Ending::Completed) | None => (0, 0),
            Some(Ending::Failed) => (1, 0),
            Some(Ending::NodeFail) => (0, 1),
            Some(_) => (0, 15),
        };
        record.completing = Some((until, ending));
    }

    fn cleaned_up(&mut self, id: SlurmJobId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        record.bookings.clear();
        if let Some((_, ending)) = record.completing.take() {
            match ending {
                Some(ending) => record.state = JobState::Ended(ending),
                None => back_to_queue(record),
            }
        }
        self.wake();
    }

    pub(super) fn finish(&mut self, id: SlurmJobId, ending: Ending) -> bool {
        let runs = self.records.get(&id).is_some_and(|record| record.state == JobState::Running);
        if runs {
            self.complete(id, self.now, Some(ending));
        }
        runs
    }

    pub(super) fn cancel(&mut self, id: SlurmJobId) -> bool {
        let now = self.now;
        let Some(record) = self.records.get_mut(&id) else { return false };
        match record.state {
            JobState::Pending => {
                record.state = JobState::Ended(Ending::Cancelled);
                record.ended_at = Some(now);
                record.started_at = Some(now);
            }
            JobState::Completing => {
                record.completing = record.completing.map(|(at, _)| (at, Some(Ending::Cancelled)));
            }
            JobState::Ended(_) => return false,
            _ => self.complete(id, now, Some(Ending::Cancelled)),
        }
        self.wake();
        true
    }

    pub(super) fn forbid_requeue(&mut self, id: SlurmJobId) -> bool {
        let record = self.records.get_mut(&id);
        record.is_some_and(|record| std::mem::replace(&mut record.request.requeue, false))
    }

    pub(super) fn hold(&mut self, id: SlurmJobId) -> bool {
        let Some(record) = self.records.get_mut(&id).filter(|record| record.state == JobState::Pending)
        else {
            return false;
        };
        record.priority = 0;
        record.reason = ReasonKind::Held("JobHeldAdmin".to_owned());
        true
    }

    /// Requeues; the shards and the pin of the job stay as they are. The restart count rises at once, while the job
    /// still cleans up.
    pub(super) fn requeue(&mut self, id: SlurmJobId) -> Result<(), SlurmError> {
        let begin_at = self.now + self.settings.requeue_delay;
        let record = self.known(id)?;
        if record.takes_updates() {
            return Err(refused(&format!("Job is pending execution for job {id}")));
        }
        if !record.request.requeue {
            return Err(refused(&format!("Requested operation is presently disabled for job {id}")));
        }
        let (was_over, now) = (matches!(record.state, JobState::Ended(_)), self.now);
        let priority = self.take_priority();
        if !was_over {
            self.complete(id, now, None);
        }
        if let Some(record) = self.records.get_mut(&id) {
            record.restart_count += 1;
            // The requeue counts as the submission from now on.
            record.submitted_at = UnixTime::from_epoch(now.epoch());
            record.begin_at = begin_at;
            record.priority = priority;
            if was_over {
                back_to_queue(record);
            }
        }
        self.wake();
        Ok(())
    }

    /// Whether it runs, or is none that is known; of one that waits, or that somebody has ended, `scontrol requeue Incomplete` does nothing
    /// and says nothing.
    pub(super) fn runs_still(&self, id: SlurmJobId) -> bool {
        let record = self.records.get(&id);
        record.is_none_or(|record| {
            matches!(record.state, JobState::Running | JobState::Suspended | JobState::Other(_))
        })
    }

    /// Preempted: requeued, or over where that is not allowed.
    pub(super) fn preempt(&mut self, id: SlurmJobId) -> bool {
        let runs = self.records.get(&id).is_some_and(|record| record.state == JobState::Running);
        if runs && self.requeue(id).is_err() {
            self.complete(id, self.now, Some(Ending::Preempted));
        }
        runs
    }

    pub(super) fn known(&self, id: SlurmJobId) -> Result<&Record, SlurmError> {
        self.records.get(&id).ok_or_else(|| match id.task {
            None => refused(&format!("Invalid job id specified for job {id}")),
            Some(_) => refused(&format!("{id}: Invalid job id specified")),
        })
    }

    /// Ended, or forgotten.
    pub(super) fn is_over(&self, id: SlurmJobId) -> bool {
        let records = self.records.values();
        let mut own =
            records.filter(|record| record.id == id || (id.task.is_none() && record.id.id == id.id));
        own.all(|record| matches!(record.state, JobState::Ended(_)))
    }

    pub(super) fn set_node_flag(&mut self, name: &NodeName, flag: Option<&str>) {
        for (node, flags) in self.nodes.iter_mut().filter(|(node, _)| node.name == *name) {
            tracing::debug!(node = %node.name, ?flag, "node flag");
            *flags = flag.map(str::to_owned);
        }
        self.wake();
    }

    pub(super) fn fail_node(&mut self, name: &NodeName) {
        self.set_node_flag(name, Some("DOWN"));
        let there = self
            .records
            .values()
            .filter(|record| record.bookings.iter().any(|booking| booking.node.as_ref() == Some(name)));
        let ids: Vec<SlurmJobId> = there.map(|record| record.id).collect();
        for id in ids {
            let runs = self.records.get(&id).is_some_and(|record| record.completing.is_none());
            if runs && self.requeue(id).is_err() {
                self.complete(id, self.now, Some(Ending::NodeFail));
            }
            // Nobody is left there to clean up.
            self.cleaned_up(id);
        }
    }

    pub(super) fn set_down(&mut self, down: bool) {
        self.down = down;
        self.wake();
    }

    pub(super) const fn set_accounting_down(&mut self, down: bool) {
        self.is_accounting_down = down;
    }

    pub(super) fn set_user_jobs_max(&mut self, jobs_max: Option<u32>) {
        self.user_jobs_max = jobs_max;
        self.wake();
    }

    pub(super) fn set_reservations(&mut self, reservations: Vec<Reservation>) {
        self.reservations = reservations;
        self.wake();
    }

    pub(super) fn booked_on(&self, name: &NodeName) -> Booking {
        let mut sum = Booking::default();
        let bookings = self.records.values().flat_map(|record| &record.bookings);
        for booking in bookings.filter(|booking| booking.node.as_ref() == Some(name)) {
            sum.add(booking);
        }
        sum
    }

    pub(super) fn overbooked(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (node, _) in &self.nodes {
            let used = self.booked_on(&node.name);
            let mut holders: BTreeMap<_, u32> = BTreeMap::new();
            used.gpus.iter().for_each(|device| *holders.entry(device).or_insert(0) += 1);
            for (device, total) in &node.devices {
                let shards = used.shards.get(device).copied().unwrap_or(0);
                let whole = holders.get(device).copied().unwrap_or(0);
                if shards > *total || whole > 1 || (whole == 1 && shards > 0) {
                    found.push(format!("{} {device}: {shards} of {total} shards, {whole} whole", node.name));
                }
            }
            if used.cpus > node.cpus || used.memory_mib > node.memory_mib {
                found.push(format!("{}: {} CPUs, {} MiB", node.name, used.cpus, used.memory_mib));
            }
        }
        found
    }
}

fn back_to_queue(record: &mut Record) {
    record.state = JobState::Pending;
    record.reason = ReasonKind::None;
    record.started_at = None;
    record.ended_at = None;
    record.run_ends_at = None;
}

/// An error as scontrol reports it.
pub(super) fn refused(detail: &str) -> SlurmError {
    SlurmError::Failed { program: "scontrol".to_owned(), status: 1, detail: detail.to_owned() }
}
