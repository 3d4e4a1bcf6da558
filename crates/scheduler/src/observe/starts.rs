//! The starts of observed partitions, as the last scans of Slurm tell them. Pure.
//!
//! ```text
//!  scan ─► follow ─► a start is new ─► its devices and its workload are asked for ─► it is written down
//!                 └► it is over, or Slurm has forgotten it
//! ```

use super::activity::{Minute, count};
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId, UnixTime, WorkloadKey};
use pillion_slurm::{HeldDevices, Job, JobState, Node};
use pillion_store::{HeldDevice, ObservedJob};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often a start is written down whose devices alone have changed.
const WRITTEN_SECONDS: f64 = 60.0;

/// A start, and what is still to be found out of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) job: ObservedJob,
    /// Slurm was asked which devices it holds.
    pub(crate) has_devices: bool,
    /// The last scan had it.
    is_listed: bool,
    /// It is otherwise than it was written down, and when that was.
    is_changed: bool,
    written_at: Option<UnixTime>,
}

impl Known {
    /// Whether it is known what it runs; until then it is not written down.
    fn has_workload(&self) -> bool {
        !self.job.workload.as_str().is_empty()
    }
}

/// All starts that run, or are over and still known to Slurm.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Starts {
    known: BTreeMap<JobStart, Known>,
}

/// The nodes that are observed: those of observed partitions that stand in no pool, with what Slurm says of each.
pub(crate) fn observed_nodes(
    nodes: Vec<Node>,
    observed: &[String],
    pool: &[String],
) -> BTreeMap<NodeName, Node> {
    let is_in = |node: &Node, names: &[String]| node.partitions.iter().any(|name| names.contains(name));
    let ours = nodes.into_iter().filter(|node| is_in(node, observed) && !is_in(node, pool));
    ours.map(|node| (node.name.clone(), node)).collect()
}

/// Whether a job asked for whole GPUs, by whichever option.
fn asks_for_gpus(job: &Job) -> bool {
    job.gres.split(',').any(|entry| entry == "gpu" || entry.starts_with("gpu:"))
}

impl Starts {
    /// What an earlier scheduler has written down and not seen the end of.
    pub(crate) fn restored(jobs: Vec<ObservedJob>) -> Self {
        let known = jobs.into_iter().map(|job| {
            let known = Known {
                has_devices: !job.devices.is_empty(),
                is_listed: true,
                is_changed: false,
                written_at: None,
                job,
            };
            (known.job.start, known)
        });
        Self { known: known.collect() }
    }

    /// Takes up a scan. `is_whole`: every line of it could be read; else who is not in it may still be there.
    pub(crate) fn follow(
        &mut self,
        at: UnixTime,
        jobs: &[Arc<Job>],
        nodes: &BTreeMap<NodeName, Node>,
        is_whole: bool,
    ) {
        for known in self.known.values_mut() {
            known.is_listed = !is_whole;
        }
        for job in jobs {
            // One that is followed already is followed to its end, whatever becomes of its nodes.
            let is_ours = self.known.contains_key(&job.start())
                || !job.nodes.is_empty() && job.nodes.iter().all(|node| nodes.contains_key(node));
            if let Some(started_at) = job.started_at
                && is_ours
                && job.state != JobState::Pending
                && asks_for_gpus(job)
            {
                self.listed(job, started_at);
            }
        }
        self.close_missing(at);
    }

    fn listed(&mut self, job: &Job, started_at: UnixTime) {
        let ending = if let JobState::Ended(ending) = job.state { Some(ending) } else { None };
        let is_over = ending.is_some();
        let (ended_at, exit) = (job.ended_at.filter(|_| is_over), job.exit.filter(|_| is_over));
        let known = self.known.entry(job.start()).or_insert_with(|| Known {
            job: first_seen(job, started_at),
            // Of one that is over Slurm tells it no more.
            has_devices: is_over,
            is_listed: true,
            is_changed: true,
            written_at: None,
        });
        known.is_listed = true;
        let before = (known.job.ended_at, known.job.ending, known.job.exit, known.job.started_at);
        (known.job.ended_at, known.job.ending, known.job.exit) = (ended_at, ending, exit);
        known.job.started_at = started_at;
        let after = (known.job.ended_at, known.job.ending, known.job.exit, known.job.started_at);
        known.is_changed |= before != after;
    }

    /// Who is not listed any more is over: its job was started again, or Slurm has forgotten it. When that was is told by the next
    /// start, else by the last look at its devices.
    fn close_missing(&mut self, at: UnixTime) {
        let begins: BTreeMap<JobStart, UnixTime> =
            self.known.values().map(|known| (known.job.start, known.job.started_at)).collect();
        for known in self.known.values_mut().filter(|known| !known.is_listed && known.job.ended_at.is_none())
        {
            let next = JobStart { restart_count: known.job.start.restart_count + 1, ..known.job.start };
            let seen_at = known.job.devices.iter().filter_map(|held| held.seen_at);
            let seen_at = seen_at.max_by(|a, b| a.seconds().total_cmp(&b.seconds()));
            known.job.ended_at = Some(begins.get(&next).copied().or(seen_at).unwrap_or(at));
            known.is_changed = true;
        }
        // What nobody can find out any more is let go, and what is written down is in the store.
        self.known.retain(|_, known| known.is_listed || (known.has_workload() && known.is_changed));
    }

    /// Those whose devices are to be asked for: Slurm's inner numbers.
    pub(crate) fn without_devices(&self, most: usize) -> Vec<u32> {
        let open = self.known.values().filter(|known| !known.has_devices && known.job.ended_at.is_none());
        open.map(|known| known.job.inner_id).take(most).collect()
    }

    /// What Slurm said of those that were asked for. Only of nodes that the job runs on.
    pub(crate) fn hold(&mut self, asked: &[u32], mut held: BTreeMap<u32, HeldDevices>) {
        for known in self.known.values_mut().filter(|known| asked.contains(&known.job.inner_id)) {
            if known.has_devices || known.job.ended_at.is_some() {
                continue;
            }
            known.has_devices = true;
            let devices = held.remove(&known.job.inner_id).unwrap_or_default();
            let devices = devices.into_iter().filter(|(node, _)| known.job.nodes.contains(node));
            known.job.devices = devices
                .flat_map(|(node, indexes)| indexes.into_iter().map(move |index| held_device(&node, index)))
                .collect();
            known.is_changed = true;
        }
    }

    /// One start each of those whose workload is not known; tasks of an array share theirs.
    pub(crate) fn without_workload(&self, most: usize) -> Vec<ObservedJob> {
        let mut arrays = BTreeSet::new();
        let unknown = self.known.values().filter(|known| !known.has_workload());
        let one_each = unknown.filter(|known| arrays.insert(known.job.start.job_id.id));
        one_each.map(|known| known.job.clone()).take(most).collect()
    }

    /// The job, and all tasks of its array, run this.
    pub(crate) fn run(&mut self, job: SlurmJobId, workload: &WorkloadKey) {
        let own = self.known.values_mut().filter(|known| known.job.start.job_id.id == job.id);
        for known in own.filter(|known| !known.has_workload()) {
            known.job.workload = workload.clone();
            known.is_changed = true;
        }
    }

    /// Counts minutes of devices for the starts that held them throughout.
    pub(crate) fn count(&mut self, minutes: &[Minute]) {
        let mut of_devices: BTreeMap<(NodeName, GresType), Vec<&Minute>> = BTreeMap::new();
        for minute in minutes {
            let device = (minute.node.clone(), minute.gres_type.clone());
            of_devices.entry(device).or_default().push(minute);
        }
        for known in self.known.values_mut() {
            let ObservedJob { inner_id, started_at, ended_at, devices, .. } = &mut known.job;
            for held in devices {
                let minutes = of_devices.get(&(held.node.clone(), held.gres_type.clone()));
                let own = minutes.into_iter().flatten().filter(|it| {
                    it.from >= *started_at && ended_at.is_none_or(|ended_at| it.until <= ended_at)
                });
                for minute in own {
                    count(held, *inner_id, minute);
                    known.is_changed = true;
                }
            }
        }
    }

    /// What is to be written down now, at most so many.
    pub(crate) fn unwritten(&self, at: UnixTime, most: usize) -> Vec<ObservedJob> {
        let is_due = |known: &&Known| {
            let is_late =
                known.written_at.is_none_or(|written_at| at.seconds_since(written_at) >= WRITTEN_SECONDS);
            known.has_workload() && known.is_changed && (is_late || known.job.ended_at.is_some())
        };
        self.known.values().filter(is_due).map(|known| known.job.clone()).take(most).collect()
    }

    /// These were written down as they are.
    pub(crate) fn written(&mut self, at: UnixTime, jobs: &[ObservedJob]) {
        for job in jobs {
            if let Some(known) = self.known.get_mut(&job.start) {
                known.is_changed = known.job != *job;
                known.written_at = Some(at);
            }
        }
        self.known.retain(|_, known| known.is_listed || known.is_changed);
    }

    /// All of them.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &ObservedJob> {
        self.known.values().map(|known| &known.job)
    }
}

fn held_device(node: &NodeName, index: u32) -> HeldDevice {
    HeldDevice::new(node.clone(), GresType::new(format!("g{index}")))
}

fn first_seen(job: &Job, started_at: UnixTime) -> ObservedJob {
    ObservedJob {
        start: job.start(),
        inner_id: job.inner_id,
        uid: job.uid,
        user: job.user.to_string(),
        account: job.account.to_string(),
        partition: job.partition.to_string(),
        workload: WorkloadKey::new(""),
        submitted_at: job.submitted_at,
        started_at,
        ended_at: None,
        ending: None,
        exit: None,
        nodes: job.nodes.clone(),
        gres: job.gres.to_string(),
        devices: Vec::new(),
    }
}
