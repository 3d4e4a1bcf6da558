//! The order of service (DESIGN D7): who gets a free device, who rides along, who joins, who waits. Jobs come in the
//! order given; one is passed over only by one whose start delays nobody before it. Must not write texts.
//!
//! The first jobs of the queue have a right to a device each (the *primaries*). They are matched with each other, with
//! running hosts and with jobs behind them. Where two of them share, a device is spared, and the next in the queue has
//! a right to it: the matching is repeated with one more primary, a few times at most.

use crate::graph::{self, Mate, Question};
use crate::plan::Reason;
use crate::session::{Session, Verdict};
use crate::view::AloneClaim;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often the matching is repeated at most.
const ROUNDS_MAX: usize = 6;

/// One device that gets jobs.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) device: usize,
    /// Whether somebody runs there already.
    pub(crate) is_join: bool,
    /// The jobs that start, by their place in the queue; the host first.
    pub(crate) jobs: Vec<usize>,
    /// What the sharing will be like; absent for a job alone.
    pub(crate) verdict: Option<Rc<Verdict>>,
}

/// Everything that was decided in one go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    pub(crate) starts: Vec<Start>,
    /// Who waits, and why.
    pub(crate) left: BTreeMap<usize, Reason>,
}

/// What is free, as it is handed out.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    free: Vec<bool>,
    cpus: Vec<u32>,
    memory_mib: Vec<u64>,
    /// Nodes kept for an earlier job that lacks CPUs or memory there.
    kept: Vec<bool>,
}

impl Floor {
    /// What is wholly free now, less what Slurm is about to give to jobs alone; and whether such a job has to wait.
    fn new(session: &Session<'_>) -> (Self, bool) {
        let view = session.view;
        let is_free = |device: usize| {
            let free = view.devices[device].tenants.is_empty() && view.devices[device].shards_free >= 100;
            free && session.open_node(device).is_some()
        };
        let mut floor = Self {
            free: (0..view.devices.len()).map(is_free).collect(),
            cpus: view.nodes.iter().map(|node| node.cpus_free).collect(),
            memory_mib: view.nodes.iter().map(|node| node.memory_mib_free).collect(),
            kept: vec![false; view.nodes.len()],
        };
        // Those that can run in fewer places first; from the end, where ours come last.
        let mut claims: Vec<&AloneClaim> = view.alone_claims.iter().collect();
        claims.sort_by_key(|claim| {
            if claim.required_nodes.is_empty() { usize::MAX } else { claim.required_nodes.len() }
        });
        let mut one_waits = false;
        for claim in claims {
            let fits = |device: &usize| {
                let node = &view.devices[*device].node;
                floor.free[*device]
                    && (claim.required_nodes.is_empty() || claim.required_nodes.contains(node))
            };
            match (0..view.devices.len()).rev().find(fits) {
                Some(device) => floor.free[device] = false,
                None => one_waits = true,
            }
        }
        (floor, one_waits)
    }

    /// Whether the device's node has the CPUs and the memory for one more job, and is not kept for an earlier one.
    pub(crate) fn has_room(&self, session: &Session<'_>, device: usize, job: usize) -> bool {
        let wanted = &session.view.waiting[job];
        session.open_node(device).is_some_and(|(node, _)| {
            !self.kept[node] && self.cpus[node] >= wanted.cpus && self.memory_mib[node] >= wanted.memory_mib
        })
    }

    fn take(&mut self, session: &Session<'_>, device: usize, job: usize) {
        let wanted = &session.view.waiting[job];
        self.free[device] = false;
        if let Some((node, _)) = session.open_node(device) {
            self.cpus[node] = self.cpus[node].saturating_sub(wanted.cpus);
            self.memory_mib[node] = self.memory_mib[node].saturating_sub(wanted.memory_mib);
        }
    }

    /// A free device for this job: the one preferred, else the first where its workload may share, else the first.
    fn find(&self, session: &Session<'_>, job: usize, preferred: Option<usize>) -> Option<usize> {
        let class = session.class_of[job];
        let fits = |device: &usize| {
            self.free[*device] && session.matches(class, *device) && self.has_room(session, *device, job)
        };
        preferred.filter(fits).or_else(|| {
            let rank = |device: &usize| session.sharer(class, session.kind_of[*device]).is_err();
            (0..self.free.len()).filter(fits).min_by_key(rank)
        })
    }

    /// A free device that would do if its node had CPUs and memory enough.
    fn find_but_for_room(&self, session: &Session<'_>, job: usize) -> Option<usize> {
        let class = session.class_of[job];
        (0..self.free.len()).find(|device| {
            let is_kept = session.node_of[*device].is_none_or(|node| self.kept[node]);
            self.free[*device] && !is_kept && session.matches(class, *device)
        })
    }

    fn keep_node_of(&mut self, session: &Session<'_>, device: usize) {
        if let Some(node) = session.node_of[device] {
            self.kept[node] = true;
        }
    }

    fn free_count(&self) -> usize {
        self.free.iter().filter(|free| **free).count()
    }
}

/// Serves the queue.
pub(crate) fn serve(session: &Session<'_>) -> Service {
    let (floor, claim_waits) = Floor::new(session);
    let waiting = &session.view.waiting;
    let startable: Vec<usize> = (0..waiting.len()).filter(|job| waiting[*job].held.is_none()).collect();
    let devices_free = floor.free_count();
    let may_share = session.policy.pair_when_idle || startable.len() > devices_free;
    let joinable: Vec<usize> = (0..session.view.devices.len())
        .filter(|_| may_share)
        .filter(|device| is_joinable(session, *device))
        .collect();
    let round = Round { session, floor: &floor, startable: &startable, joinable: &joinable, may_share };
    // Optimistic at first: nobody is left waiting, so nobody has to end before his host.
    let mut cutoff = if claim_waits { None } else { Some(usize::MAX) };
    let mut right_count = devices_free;
    let mut accepted = None;
    for _ in 0..ROUNDS_MAX {
        let attempt = round.attempt(right_count, cutoff);
        if attempt.passes_unfairly(claim_waits) {
            cutoff = attempt.first_left;
            continue;
        }
        let wanted = devices_free + attempt.spared;
        let is_settled = wanted <= right_count || right_count >= startable.len();
        accepted = Some(attempt);
        if is_settled {
            break;
        }
        right_count = wanted;
    }
    // Where no round was fair, nobody may outlive his host: that passes nobody over.
    let attempt = accepted.unwrap_or_else(|| round.attempt(right_count, None));
    let mut service = attempt.service;
    let held = (0..waiting.len()).filter(|job| waiting[*job].held.is_some());
    service.left.extend(held.map(|job| (job, Reason::Held)));
    service
}

fn is_joinable(session: &Session<'_>, device: usize) -> bool {
    session.open_node(device).is_some()
        && crate::admit::may_be_joined(&session.view.devices[device], session.policy).is_ok()
}

/// What all rounds have in common.
struct Round<'r> {
    session: &'r Session<'r>,
    floor: &'r Floor,
    startable: &'r [usize],
    joinable: &'r [usize],
    may_share: bool,
}

/// What one round came to.
struct Attempt {
    service: Service,
    /// The first job that could start and was left, where a device of the pool would suit it.
    first_left: Option<usize>,
    /// The last job that may hold a device longer than its host.
    last_outliving: Option<usize>,
    /// Primaries that needed no device of their own.
    spared: usize,
}

impl Attempt {
    fn passes_unfairly(&self, claim_waits: bool) -> bool {
        let passed = |outliving: usize| claim_waits || self.first_left.is_some_and(|left| outliving > left);
        self.last_outliving.is_some_and(passed)
    }
}

/// The state of one round while jobs are served.
struct Commit<'c> {
    round: &'c Round<'c>,
    floor: Floor,
    mates: BTreeMap<usize, Mate>,
    /// The start of each served job.
    start_of: BTreeMap<usize, usize>,
    starts: Vec<Start>,
    left: BTreeMap<usize, Reason>,
    last_outliving: Option<usize>,
}

impl Round<'_> {
    fn attempt(&self, right_count: usize, cutoff: Option<usize>) -> Attempt {
        let session = self.session;
        let (primaries, floor) = self.primaries(right_count);
        let slots: BTreeMap<usize, usize> = primaries.iter().copied().collect();
        let riders: Vec<usize> =
            self.startable.iter().copied().filter(|job| !slots.contains_key(job)).collect();
        let mates = if self.may_share {
            // Without a cutoff nobody is exempt, not even the first job.
            let question = Question {
                primaries: &primaries,
                joinable: self.joinable,
                riders: &riders,
                cutoff,
                floor: &floor,
            };
            graph::mates(session, &question)
        } else {
            BTreeMap::new()
        };
        let mut commit = Commit {
            round: self,
            floor: self.floor.clone(),
            mates,
            start_of: BTreeMap::new(),
            starts: Vec::new(),
            left: BTreeMap::new(),
            last_outliving: None,
        };
        for job in self.startable {
            commit.serve(*job, slots.get(job).copied(), &slots);
        }
        let suits = |job: &&usize| {
            (0..session.view.devices.len()).any(|device| {
                session.open_node(device).is_some() && session.matches(session.class_of[**job], device)
            })
        };
        let first_left = commit.left.keys().find(suits).copied();
        let took = |job: &&usize| {
            commit
                .start_of
                .get(job)
                .is_none_or(|start| commit.starts[*start].is_join || commit.starts[*start].jobs[0] != **job)
        };
        let spared = slots.keys().filter(took).filter(|job| commit.start_of.contains_key(job)).count();
        let last_outliving = commit.last_outliving;
        Attempt {
            service: Service { starts: commit.starts, left: commit.left },
            first_left,
            last_outliving,
            spared,
        }
    }

    /// The first jobs that can have a device, each with one; beyond the free devices, with one that may be spared.
    fn primaries(&self, right_count: usize) -> (Vec<(usize, usize)>, Floor) {
        let (session, mut floor) = (self.session, self.floor.clone());
        let mut primaries = Vec::new();
        for job in self.startable {
            if primaries.len() >= right_count {
                break;
            }
            if let Some(device) = floor.find(session, *job, None) {
                floor.take(session, device, *job);
                primaries.push((*job, device));
            } else if let Some(device) = floor.find_but_for_room(session, *job) {
                floor.keep_node_of(session, device);
            } else if let Some(device) = self.floor.find(session, *job, None) {
                primaries.push((*job, device));
            }
        }
        (primaries, floor)
    }
}

impl Commit<'_> {
    /// Serves one job at its turn: to its mate, else to a device, else it waits.
    fn serve(&mut self, job: usize, slot: Option<usize>, slots: &BTreeMap<usize, usize>) {
        let session = self.round.session;
        let mate = self.mates.get(&job).copied();
        match mate {
            Some(Mate::Device(device)) if self.join(job, device) => return,
            Some(Mate::Job(host)) if self.ride(job, host, slots) => return,
            _ => {}
        }
        if let Some(device) = self.floor.find(session, job, slot) {
            self.floor.take(session, device, job);
            self.start_of.insert(job, self.starts.len());
            self.starts.push(Start { device, is_join: false, jobs: vec![job], verdict: None });
            // A guest that came before and found no place rides along now.
            if let Some(Mate::Job(guest)) =
                mate.filter(|mate| matches!(mate, Mate::Job(guest) if self.left.contains_key(guest)))
                && self.ride(guest, job, slots)
            {
                self.left.remove(&guest);
            }
            return;
        }
        let reason = self.why_left(job);
        if reason == Reason::NodeTooFull
            && let Some(device) = self.floor.find_but_for_room(session, job)
        {
            self.floor.keep_node_of(session, device);
        }
        self.left.insert(job, reason);
    }

    fn join(&mut self, job: usize, device: usize) -> bool {
        let session = self.round.session;
        if !self.floor.has_room(session, device, job) {
            return false;
        }
        let verdict = Some(session.join(session.class_of[job], device));
        self.floor.take(session, device, job);
        self.start_of.insert(job, self.starts.len());
        self.starts.push(Start { device, is_join: true, jobs: vec![job], verdict });
        if graph::outlives_tenants(session, job, device) {
            self.last_outliving = self.last_outliving.max(Some(job));
        }
        true
    }

    /// Beside a job that has started alone in this round.
    fn ride(&mut self, guest: usize, host: usize, slots: &BTreeMap<usize, usize>) -> bool {
        let session = self.round.session;
        let Some(start) = self.start_of.get(&host).copied() else { return false };
        let device = self.starts[start].device;
        let verdict = session.pair(session.class_of[host], session.class_of[guest], session.kind_of[device]);
        let fits =
            session.matches(session.class_of[guest], device) && self.floor.has_room(session, device, guest);
        if self.starts[start].is_join || self.starts[start].jobs.len() != 1 || !fits || !verdict.is_admitted()
        {
            return false;
        }
        self.floor.take(session, device, guest);
        self.start_of.insert(guest, start);
        self.starts[start].jobs.push(guest);
        self.starts[start].verdict = Some(verdict);
        // Two with a right to a device each may share one: the other becomes free.
        let both_have_rights = slots.contains_key(&guest) && slots.contains_key(&host);
        if !both_have_rights && graph::outlives_job(session, guest, host) {
            self.last_outliving = self.last_outliving.max(Some(guest));
        }
        true
    }

    fn why_left(&self, job: usize) -> Reason {
        let session = self.round.session;
        let class = session.class_of[job];
        let matching = || (0..session.view.devices.len()).filter(|device| session.matches(class, *device));
        if matching().next().is_none() {
            Reason::NodeDoesNotMatch
        } else if !matching().any(|device| session.open_node(device).is_some()) {
            Reason::Blocked
        } else if self.floor.find_but_for_room(session, job).is_some() {
            Reason::NodeTooFull
        } else if matching().any(|device| self.round.floor.free[device]) || !self.left.is_empty() {
            Reason::BehindOthers
        } else {
            Reason::NoDeviceFree
        }
    }
}
