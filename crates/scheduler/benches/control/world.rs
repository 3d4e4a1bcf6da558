//! The jobs and devices of the double, kept small: 100,000 jobs in some megabytes. Pure but for what it tells the nodes.

use crate::options::Options;
use pillion_core::mark::Mark;
use pillion_core::{JobStart, SlurmJobId};
use pillion_slurm::{JobUpdate, SlurmError};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::mpsc;

/// How long an ended job is listed (`MinJobAge`).
const LISTED_SECONDS: u32 = 300;
/// A job ends no sooner after its start: its node has told of it by then.
const RUN_SECONDS_MIN: u32 = 3;
/// Of jobs that Slurm may start by itself, how many it tries in a pass.
const TRIES_MAX: usize = 500;
const SHARDS: u8 = 100;

/// What a node sees.
#[derive(Debug)]
pub(crate) enum Told {
    Began(JobStart, u8),
    Ended { start: JobStart, device: u8, seconds: u32 },
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Running { since: u32 },
    Ended { since: u32, at: u32 },
}

/// A part of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) node: u16,
    pub(crate) device: u8,
    pub(crate) shards: u8,
}

/// A job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) submitted: u32,
    pub(crate) begin: u32,
    pub(crate) state: State,
    pub(crate) lease: Option<u32>,
    pub(crate) undone: Option<u32>,
    pub(crate) is_alone: bool,
    pub(crate) place: Option<Place>,
}

/// What has happened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) starts: u64,
    /// Jobs that Slurm started by itself, because nobody had renewed or released them.
    pub(crate) alone: u64,
    pub(crate) ends: u64,
    pub(crate) renewals: u64,
    pub(crate) undos: u64,
    pub(crate) refused: u64,
}

/// All of it.
pub(crate) struct World {
    pub(crate) nodes: u16,
    pub(crate) devices_per_node: u8,
    pub(crate) users: u32,
    pub(crate) workloads: u32,
    pub(crate) rows: BTreeMap<u32, Row>,
    pub(crate) counts: Counts,
    bound_seconds: u32,
    next_id: u32,
    waiting: BTreeSet<(u32, u32)>,
    running: Vec<u32>,
    ended: VecDeque<u32>,
    shards_used: Vec<u8>,
    told: Vec<mpsc::UnboundedSender<Told>>,
    chance: SmallRng,
}

fn fenced(reason: &str) -> SlurmError {
    SlurmError::Fenced { reason: reason.to_owned() }
}

impl World {
    pub(crate) fn new(options: &Options, now: u32, told: Vec<mpsc::UnboundedSender<Told>>) -> Self {
        let mut world = Self {
            nodes: options.nodes,
            devices_per_node: options.devices,
            users: options.users,
            workloads: options.workloads,
            rows: BTreeMap::new(),
            counts: Counts::default(),
            bound_seconds: options.bound_seconds,
            next_id: 1,
            waiting: BTreeSet::new(),
            running: Vec::new(),
            ended: VecDeque::new(),
            shards_used: vec![0; usize::from(options.nodes) * usize::from(options.devices)],
            told,
            chance: SmallRng::seed_from_u64(14),
        };
        // Held back by a scheduler before this one: each has between a third and all of the bound left.
        let bound = options.bound_seconds;
        for _ in 0..options.jobs {
            let left = world.chance.random_range(bound / 3..=bound);
            let waited = world.chance.random_range(0..36_000);
            world.submit(now.saturating_sub(waited), now + left);
        }
        world
    }

    fn submit(&mut self, submitted: u32, begin: u32) {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.insert((begin, id));
        let row = Row {
            submitted,
            begin,
            state: State::Waiting,
            lease: None,
            undone: None,
            is_alone: false,
            place: None,
        };
        self.rows.insert(id, row);
    }

    /// Which user's a job is, and which of his workloads it runs.
    pub(crate) fn whose(&self, id: u32) -> (u32, u32) {
        (id % self.users, id / self.users % (self.workloads / self.users).max(1))
    }

    fn device_index(&self, place: Place) -> usize {
        usize::from(place.node) * usize::from(self.devices_per_node) + usize::from(place.device)
    }

    pub(crate) fn shards_used(&self, node: u16, device: u8) -> u8 {
        self.shards_used[self.device_index(Place { node, device, shards: 0 })]
    }

    /// Devices on which somebody runs.
    pub(crate) fn devices_taken(&self) -> usize {
        self.shards_used.iter().filter(|used| **used > 0).count()
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// An update as slurmctld makes it, behind the fence of `pillion.lua`.
    pub(crate) fn update(&mut self, job: SlurmJobId, update: &JobUpdate, now: u32) -> Result<(), SlurmError> {
        let answer = self.change(job.id, update, now);
        self.counts.refused += u64::from(answer.is_err());
        answer
    }

    fn change(&mut self, id: u32, update: &JobUpdate, now: u32) -> Result<(), SlurmError> {
        let new = update.admin_comment.as_deref().and_then(|text| Mark::parse(text).ok().flatten());
        let new = new.ok_or_else(|| fenced("there is no mark"))?;
        let row = *self.rows.get(&id).ok_or_else(|| fenced("there is no such job"))?;
        let lease = new.lease_epoch.and_then(|epoch| u32::try_from(epoch).ok());
        let undone = new.undone_lease_epoch.and_then(|epoch| u32::try_from(epoch).ok());
        let Some(begin) = update.start_time else { return Err(fenced("nothing was asked")) };
        if row.state != State::Waiting {
            return Err(fenced("the job does not wait"));
        }
        if new.alone && undone != Some(row.lease.unwrap_or(0)) {
            return Err(fenced("the job carries another lease"));
        }
        if !new.alone && (row.lease.is_some() || row.is_alone) {
            return Err(fenced("the job has a lease"));
        }
        match (new.alone, lease) {
            (true, _) => self.counts.undos += 1,
            (false, None) => self.counts.renewals += 1,
            (false, Some(_)) => {}
        }
        let place = match (&update.gres, &update.required_nodes) {
            (Some(gres), Some(node)) => self.place(gres, node),
            _ => row.place,
        };
        let begin = u32::try_from(begin.epoch()).unwrap_or(u32::MAX).max(now);
        self.waiting.remove(&(row.begin, id));
        self.waiting.insert((begin, id));
        self.rows.insert(id, Row { begin, lease, undone, is_alone: new.alone, place, ..row });
        Ok(())
    }

    /// `shard:g3:40` on `n0017`; no place for `shard:100` on any.
    fn place(&self, gres: &str, node: &str) -> Option<Place> {
        let (device, shards) = gres.strip_prefix("shard:g")?.split_once(':')?;
        let node: u16 = node.strip_prefix('n')?.parse().ok()?;
        let place = Place { node: node - 1, device: device.parse().ok()?, shards: shards.parse().ok()? };
        (place.node < self.nodes && place.device < self.devices_per_node).then_some(place)
    }

    /// Starts whoever may begin and has his place, and forgets who ended long ago.
    pub(crate) fn pass(&mut self, now: u32) {
        let due: Vec<u32> =
            self.waiting.iter().take_while(|(begin, _)| *begin <= now).map(|(_, id)| *id).collect();
        let mut tries = 0;
        for id in due {
            let Some(row) = self.rows.get(&id).copied() else { continue };
            if let Some(place) = row.place {
                if self.shards_used[self.device_index(place)] + place.shards <= SHARDS {
                    self.start(id, row, place, now);
                }
            } else if tries < TRIES_MAX {
                tries += 1;
                if let Some(free) = self.shards_used.iter().position(|used| *used == 0) {
                    let per_node = usize::from(self.devices_per_node);
                    let node = u16::try_from(free / per_node).unwrap_or(0);
                    let device = u8::try_from(free % per_node).unwrap_or(0);
                    self.counts.alone += 1;
                    self.start(id, row, Place { node, device, shards: SHARDS }, now);
                }
            }
        }
        while let Some(id) = self.ended.front().copied() {
            match self.rows.get(&id).map(|row| row.state) {
                Some(State::Ended { at, .. }) if at + LISTED_SECONDS > now => break,
                _ => {
                    self.ended.pop_front();
                    self.rows.remove(&id);
                }
            }
        }
    }

    fn start(&mut self, id: u32, row: Row, place: Place, now: u32) {
        let index = self.device_index(place);
        self.shards_used[index] += place.shards;
        self.waiting.remove(&(row.begin, id));
        self.running.push(id);
        self.rows.insert(id, Row { state: State::Running { since: now }, place: Some(place), ..row });
        self.counts.starts += 1;
        self.tell(place, Told::Began(start_of(id), place.device));
    }

    /// Ends some job and lets another one come. `false`: the one that was drawn has not run long enough.
    pub(crate) fn replace_one(&mut self, now: u32) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let drawn = self.chance.random_range(0..self.running.len());
        let id = self.running[drawn];
        let Some(row) = self.rows.get(&id).copied() else { return false };
        let (State::Running { since }, Some(place)) = (row.state, row.place) else { return false };
        if since + RUN_SECONDS_MIN > now {
            return false;
        }
        self.running.swap_remove(drawn);
        let index = self.device_index(place);
        self.shards_used[index] -= place.shards;
        self.rows.insert(id, Row { state: State::Ended { since, at: now }, ..row });
        self.ended.push_back(id);
        self.counts.ends += 1;
        let (start, device) = (start_of(id), place.device);
        self.tell(place, Told::Ended { start, device, seconds: now - since });
        self.submit(now, now + self.bound_seconds);
        true
    }

    fn tell(&self, place: Place, told: Told) {
        // A node that does not listen any more has ended with the measurement.
        let _ = self.told[usize::from(place.node)].send(told);
    }
}

fn start_of(id: u32) -> JobStart {
    JobStart { job_id: SlurmJobId::plain(id), restart_count: 0 }
}
