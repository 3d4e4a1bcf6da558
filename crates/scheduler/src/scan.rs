//! One scan of Slurm, and what follows from it for each job: pure. Every other module of the scheduler reads scans, none
//! asks Slurm for the queue by itself.

use pillion_core::mark::Mark;
use pillion_core::workload::{of_session, on_several};
use pillion_core::{JobStart, NodeName, SlurmJobId, UnixTime, WorkloadKey};
use pillion_slurm::{Job, JobState, Node, ReasonKind};
use pillion_store::JobRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Jobs by their ids. Those that are as they were a scan ago are the same values, so that two scans of a long queue need little
/// more memory than one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Jobs(BTreeMap<SlurmJobId, Arc<Job>>);

impl Jobs {
    /// One of them.
    pub fn get(&self, id: &SlurmJobId) -> Option<&Job> {
        self.0.get(id).map(Arc::as_ref)
    }
    /// Whether it is there.
    pub fn contains_key(&self, id: &SlurmJobId) -> bool {
        self.0.contains_key(id)
    }
    /// All of them, in the order of ids.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.0.values().map(Arc::as_ref)
    }
    /// Those that are not as in the scan before.
    pub fn changed_since<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a Job> {
        self.0
            .iter()
            .filter(move |(id, job)| {
                let old = before.and_then(|before| before.0.get(id));
                old.is_none_or(|old| !Arc::ptr_eq(old, job))
            })
            .map(|(_, job)| job.as_ref())
    }
    #[cfg(test)]
    pub(crate) fn insert(&mut self, job: Job) {
        self.0.insert(job.id, Arc::new(job));
    }
}

/// The pool as Slurm reported it at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scan {
    /// When it was taken.
    pub at: UnixTime,
    /// Jobs of the pool's partitions, ended ones included while Slurm knows them.
    pub jobs: Jobs,
    /// The pool's nodes.
    pub nodes: Vec<Node>,
    /// Lines of the queue that could not be read.
    pub dropped_line_count: u64,
    /// Where each node stands in `nodes`.
    places: BTreeMap<NodeName, usize>,
    /// How many tasks of each array hold resources.
    active_tasks: BTreeMap<u32, usize>,
}

impl Scan {
    /// A job, if this very start of it is the newest.
    pub fn job_of(&self, start: JobStart) -> Option<&Job> {
        self.jobs.get(&start.job_id).filter(|job| job.start() == start)
    }
    /// Whether a job was submitted as a guest.
    pub fn is_guest(&self, id: SlurmJobId) -> bool {
        self.jobs.get(&id).and_then(mark_of).is_some_and(|mark| mark.as_guest)
    }
    /// Whether a job did not ask for co-location.
    pub fn is_plain(&self, id: SlurmJobId) -> bool {
        self.jobs.get(&id).and_then(mark_of).is_some_and(|mark| mark.plain)
    }
    /// From Slurm's answers, keeping only the pool's nodes.
    pub fn new(
        at: UnixTime,
        jobs: Vec<Arc<Job>>,
        nodes: Vec<Node>,
        pool: &[String],
        dropped_line_count: u64,
    ) -> Self {
        let jobs = Jobs(jobs.into_iter().map(|job| (job.id, job)).collect());
        let nodes: Vec<Node> = nodes
            .into_iter()
            .filter(|node| node.partitions.iter().any(|partition| pool.contains(partition)))
            .collect();
        let places = nodes.iter().enumerate().map(|(place, node)| (node.name.clone(), place)).collect();
        let mut active_tasks = BTreeMap::new();
        for job in jobs.values().filter(|job| job.id.task.is_some()) {
            if matches!(job.state, JobState::Running | JobState::Suspended) {
                *active_tasks.entry(job.id.id).or_default() += 1;
            }
        }
        Self { at, jobs, nodes, dropped_line_count, places, active_tasks }
    }

    /// The node of that name, if it is in the pool.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.places.get(name).and_then(|place| self.nodes.get(*place))
    }

    /// How many tasks of this array hold resources.
    pub fn active_array_tasks(&self, array_id: u32) -> usize {
        self.active_tasks.get(&array_id).copied().unwrap_or(0)
    }
}

/// The mark of a job that is under management; `None` for everybody else's jobs and for marks that cannot be read.
pub fn mark_of(job: &Job) -> Option<&Mark> {
    job.mark.as_ref().ok().and_then(Option::as_ref)
}

/// How many CPUs of one node a job asks for or has: Slurm tells those of all its nodes.
pub fn cpus_of_one_node(job: &Job) -> u32 {
    job.cpus.div_ceil(u32::from(mark_of(job).map_or(1, Mark::node_count)))
}

/// Whether the job waits under our management: it may be renewed and released.
pub fn is_waiting(job: &Job) -> bool {
    job.state == JobState::Pending
        && mark_of(job).is_some_and(|mark| mark.lease_epoch.is_none() && !mark.alone)
}

/// Whether a job asks for features in a way that only Slurm understands (`a100|h100`, `[rack1*2]`): its user wrote them afterwards.
pub fn has_features_of_slurm(job: &Job) -> bool {
    job.features.contains(['|', '[', '(', '*', '!'])
}

/// Whether only Slurm can tell where the job may start: nobody plans it, and nobody holds it back.
pub fn is_for_slurm_alone(job: &Job) -> bool {
    has_features_of_slurm(job) || !job.reservation.is_empty()
}

/// What keeps a waiting job from starting now whatever the devices do; `None` = nothing.
pub fn held_reason(job: &Job, scan: &Scan) -> Option<String> {
    let own_begin = mark_of(job).map_or(0, |mark| mark.original_begin_epoch);
    if own_begin > scan.at.epoch() {
        return Some("its own --begin has not come".to_owned());
    }
    if job.has_dependency {
        return Some("it waits for another job".to_owned());
    }
    if job.priority == 0 {
        return Some("it is held".to_owned());
    }
    if !job.reservation.is_empty() {
        return Some("it asked for a reservation".to_owned());
    }
    // Who was put back is Slurm's already, which starts it any moment.
    if has_features_of_slurm(job) && is_waiting(job) {
        return Some("it asked for features that only Slurm can match, and is left to it".to_owned());
    }
    if let (Some(throttle), Some(_)) = (job.array_throttle, job.id.task)
        && scan.active_array_tasks(job.id.id) >= throttle as usize
    {
        return Some(format!("its array runs at most {throttle} at once"));
    }
    match &job.reason {
        ReasonKind::Held(word) | ReasonKind::Limit(word) => Some(format!("Slurm holds it back: {word}")),
        ReasonKind::Dependency => Some("it waits for another job".to_owned()),
        _ => None,
    }
}

/// The workload of a marked job: its user and the digest of what it runs, and on how many devices where there are several.
pub fn workload_of(job: &Job, mark: &Mark) -> WorkloadKey {
    if mark.session {
        return of_session(&job.user, &mark.workload_digest);
    }
    on_several(&WorkloadKey::new(format!("{}/{}", job.user, mark.workload_digest)), mark.device_count())
}

/// What stays known of a job whose mark is gone (other tools may overwrite it after the start).
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    workload: WorkloadKey,
    slowdown_ratio_max: Option<f64>,
    memory_bytes_declared: Option<u64>,
    alone: bool,
}

impl From<&JobRecord> for Kept {
    fn from(record: &JobRecord) -> Self {
        Self {
            workload: record.workload.clone(),
            slowdown_ratio_max: record.slowdown_ratio_max,
            memory_bytes_declared: record.memory_bytes_declared,
            alone: record.alone,
        }
    }
}

/// The row for a job. A job whose mark is gone keeps what `known` says.
pub fn record_of(job: &Job, known: Option<&Kept>) -> Option<JobRecord> {
    let kept = match (mark_of(job), known) {
        (Some(mark), _) => Kept {
            workload: workload_of(job, mark),
            slowdown_ratio_max: mark.slowdown_ratio_max,
            memory_bytes_declared: mark.memory_bytes(),
            alone: mark.alone,
        },
        (None, Some(known)) if job.state != JobState::Pending => known.clone(),
        (None, _) => return None,
    };
    let ending = if let JobState::Ended(ending) = job.state { Some(ending) } else { None };
    let is_pending = job.state == JobState::Pending;
    Some(JobRecord {
        id: job.id,
        restart_count: job.restart_count,
        uid: job.uid,
        user: job.user.to_string(),
        account: job.account.to_string(),
        partition: job.partition.to_string(),
        workload: kept.workload,
        slowdown_ratio_max: kept.slowdown_ratio_max,
        memory_bytes_declared: kept.memory_bytes_declared,
        submitted_at: job.submitted_at,
        started_at: job.started_at.filter(|_| !is_pending),
        ended_at: job.ended_at.filter(|_| ending.is_some()),
        ending,
        node: job.nodes.first().cloned(),
        node_count: u32::try_from(job.nodes.len()).ok().filter(|count| *count > 0),
        gres: job.gres.to_string(),
        alone: kept.alone,
        exit: job.exit.filter(|_| ending.is_some()),
    })
}
