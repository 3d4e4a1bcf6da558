//! The order of service (docs/principles.md#order-of-service): who gets a free device, who rides along, who joins, who
//! waits. Jobs come in the order given; one is passed over only by one whose start delays nobody before it. Must not
//! write texts.
//!
//! The first jobs of the queue have a right to a device each (the *primaries*). They are matched with each other, with
//! running hosts and with jobs behind them. Where two of them share, a device is spared, and the next in the queue has
//! a right to it: the matching is repeated with one more primary, a few times at most. Where a mate found no room on its
//! node after all, those left are matched once more with what is left.
//!
//! Nobody is held back for a partner who may come: a job waits only while no device is free for it. A device that stands
//! idle gains nothing, and a job that starts alone can be joined by whoever comes; a snapshot does not show who will.

use crate::floor::Floor;
use crate::graph::{self, Mate, Question};
use crate::plan::{CANDIDATES_MAX, Reason};
use crate::prospects::{Prospects, Sharing};
use crate::session::{Session, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How often the matching is repeated at most: for few classes of jobs, and for many.
const ROUNDS_MAX: (usize, usize) = (6, 4);
/// How far a plan may be beyond its budget of broken promises.
const EXCESS_TOLERANCE: f64 = 1e-6;
/// By how much more than it was beyond the budget a plan is tightened.
const EXCESS_RATIO: f64 = 1.2;
/// How often a plan in which nobody may outlive his host is tightened at most.
const CAUTIOUS_MAX: usize = 4;
/// How often those whose mate fell through are matched again at most.
const REPAIRS_MAX: usize = 2;

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
    /// By class, the sharings that were worth most of all that were looked at.
    pub(crate) best: Vec<Vec<Sharing>>,
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
    let suits = |class: usize| {
        let places = &session.places;
        (0..places.count()).any(|place| places.matches(class, place) && !places.open[place].is_empty())
    };
    let round = Round {
        session,
        floor: &floor,
        startable: &startable,
        joinable: &joinable,
        may_share,
        suits: (0..session.classes.len()).map(suits).collect(),
    };
    let mut prospects = Prospects::new(session);
    // Optimistic at first: nobody is left waiting, so nobody has to end before his host.
    let mut tries = Tries {
        right_count: devices_free,
        cutoff: if claim_waits { None } else { Some(usize::MAX) },
        allowance: 0.0,
    };
    let mut accepted = None;
    for _ in 0..if session.is_thorough { ROUNDS_MAX.0 } else { ROUNDS_MAX.1 } {
        let attempt = round.attempt(&mut prospects, tries);
        if attempt.passes_unfairly(claim_waits) {
            tries.cutoff = attempt.first_left;
            continue;
        }
        if attempt.excess > EXCESS_TOLERANCE {
            tries.allowance -= EXCESS_RATIO * attempt.excess;
            continue;
        }
        let wanted = devices_free + attempt.spared;
        let is_settled = wanted <= tries.right_count || tries.right_count >= startable.len();
        accepted = Some(attempt);
        if is_settled {
            break;
        }
        tries.right_count = wanted;
    }
    let attempt = accepted.unwrap_or_else(|| round.cautious(&mut prospects, tries));
    let mut service = attempt.service;
    let held = (0..waiting.len()).filter(|job| waiting[*job].held.is_some());
    service.left.extend(held.map(|job| (job, Reason::Held)));
    service.best = prospects.best(CANDIDATES_MAX);
    service
}

fn is_joinable(session: &Session<'_>, device: usize) -> bool {
    session.open_node(device).is_some()
        && crate::admit::may_be_joined(&session.view.devices[device], session.policy).is_ok()
}

/// What one round tries.
#[derive(Debug, Clone, Copy)]
struct Tries {
    /// How many jobs have a right to a device.
    right_count: usize,
    /// See [`Question`].
    cutoff: Option<usize>,
    /// See [`Question`]. Below 0 where sharings that eased the budget fell through.
    allowance: f64,
}

/// What all rounds have in common.
struct Round<'r> {
    session: &'r Session<'r>,
    floor: &'r Floor,
    startable: &'r [usize],
    joinable: &'r [usize],
    may_share: bool,
    /// By class: whether a device that takes something now would suit it.
    suits: Vec<bool>,
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
    /// How many more promises are expected to break than the budget allows.
    excess: f64,
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
    /// The device on which each primary is looked at.
    slots: &'c BTreeMap<usize, usize>,
    /// The start of each served job.
    start_of: BTreeMap<usize, usize>,
    starts: Vec<Start>,
    left: BTreeMap<usize, Reason>,
    last_outliving: Option<usize>,
}

impl Round<'_> {
    /// Where no round was fair, nobody may outlive his host: that passes nobody over. Within the budget, if need be without
    /// new sharings.
    fn cautious(&self, prospects: &mut Prospects<'_, '_>, mut tries: Tries) -> Attempt {
        tries.cutoff = None;
        for _ in 0..CAUTIOUS_MAX {
            let attempt = self.attempt(prospects, tries);
            if attempt.excess <= EXCESS_TOLERANCE {
                return attempt;
            }
            tries.allowance -= EXCESS_RATIO * attempt.excess;
        }
        Round { may_share: false, suits: self.suits.clone(), ..*self }.attempt(prospects, tries)
    }

    fn attempt(&self, prospects: &mut Prospects<'_, '_>, tries: Tries) -> Attempt {
        let Tries { right_count, cutoff, allowance } = tries;
        let session = self.session;
        let (primaries, floor) = self.primaries(right_count);
        let slots: BTreeMap<usize, usize> = primaries.iter().copied().collect();
        let riders: Vec<usize> =
            self.startable.iter().copied().filter(|job| !slots.contains_key(job)).collect();
        let mates = if self.may_share {
            // Without a cutoff nobody is exempt, not even the first job.
            let question = Question {
                primaries: &primaries,
                hosts: &[],
                joinable: self.joinable,
                riders: &riders,
                cutoff,
                floor: &floor,
                allowance,
            };
            graph::mates(prospects, &question)
        } else {
            BTreeMap::new()
        };
        let mut commit = Commit {
            round: self,
            floor: self.floor.clone(),
            mates,
            slots: &slots,
            start_of: BTreeMap::new(),
            starts: Vec::new(),
            left: BTreeMap::new(),
            last_outliving: None,
        };
        for job in self.startable {
            commit.serve(*job);
        }
        if self.may_share {
            commit.repair(prospects, cutoff, allowance);
        }
        let suits = |job: &&usize| self.suits[session.class_of[**job]];
        let first_left = commit.left.keys().find(suits).copied();
        let took = |job: &&usize| {
            commit
                .start_of
                .get(job)
                .is_none_or(|start| commit.starts[*start].is_join || commit.starts[*start].jobs[0] != **job)
        };
        let spared = slots.keys().filter(took).filter(|job| commit.start_of.contains_key(job)).count();
        let (last_outliving, excess) = (commit.last_outliving, commit.excess());
        Attempt {
            service: Service { starts: commit.starts, left: commit.left, best: Vec::new() },
            first_left,
            last_outliving,
            spared,
            excess,
        }
    }

    /// The first jobs that can have a device, each with one; beyond the free devices, with one that may be spared.
    fn primaries(&self, right_count: usize) -> (Vec<(usize, usize)>, Floor) {
        let (session, mut floor, mut untouched) = (self.session, self.floor.clone(), self.floor.clone());
        let mut primaries = Vec::new();
        for job in self.startable {
            let class = session.class_of[*job];
            if primaries.len() >= right_count {
                break;
            }
            if let Some(device) = floor.find(session, class, None) {
                floor.take(session, device, class);
                primaries.push((*job, device));
            } else if let Some(device) = floor.find_but_for_room(session, class) {
                floor.keep_node_of(session, device);
            } else if let Some(device) = untouched.find(session, class, None) {
                primaries.push((*job, device));
            }
        }
        (primaries, floor)
    }
}

impl Commit<'_> {
    /// Serves one job at its turn: to its mate, else to a device, else it waits.
    fn serve(&mut self, job: usize) {
        let session = self.round.session;
        let class = session.class_of[job];
        let mate = self.mates.get(&job).copied();
        match mate {
            Some(Mate::Device(device)) if self.join(job, device) => return,
            Some(Mate::Job(host)) if self.ride(job, host) => return,
            _ => {}
        }
        let slot = self.slot(job, mate);
        if let Some(device) = self.floor.find(session, class, slot) {
            self.floor.take(session, device, class);
            self.start_of.insert(job, self.starts.len());
            self.starts.push(Start { device, is_join: false, jobs: vec![job], verdict: None });
            // A guest that came before and found no place rides along now.
            if let Some(Mate::Job(guest)) =
                mate.filter(|mate| matches!(mate, Mate::Job(guest) if self.left.contains_key(guest)))
                && self.ride(guest, job)
            {
                self.left.remove(&guest);
            }
            return;
        }
        let reason = self.why_left(job);
        if reason == Reason::NodeTooFull
            && let Some(device) = self.floor.find_but_for_room(session, class)
        {
            self.floor.keep_node_of(session, device);
        }
        self.left.insert(job, reason);
    }

    /// Where a job is to start: on its own device, or on that of its mate, where they gain more.
    fn slot(&self, job: usize, mate: Option<Mate>) -> Option<usize> {
        let own = self.slots.get(&job).copied();
        let Some(Mate::Job(other)) = mate else { return own };
        let gain = |device: Option<&usize>| {
            let device = *device?;
            let weight = self.beside(job, other, device)?.weight;
            Some((weight, device))
        };
        match (gain(own.as_ref()), gain(self.slots.get(&other))) {
            (Some((here, _)), Some((there, device))) if there > here => Some(device),
            (None, Some((_, device))) => Some(device),
            _ => own,
        }
    }

    /// How a guest and a host would share a device that suits both.
    fn beside(&self, host: usize, guest: usize, device: usize) -> Option<Rc<Verdict>> {
        let session = self.round.session;
        let (host, guest) = (session.class_of[host], session.class_of[guest]);
        if !session.matches(host, device) || !session.matches(guest, device) {
            return None;
        }
        let verdict = session.pair(host, guest, session.kind_of[device]);
        verdict.is_admitted().then_some(verdict)
    }

    fn join(&mut self, job: usize, device: usize) -> bool {
        let session = self.round.session;
        let class = session.class_of[job];
        if !self.floor.has_room(session, device, class) {
            return false;
        }
        let verdict = Some(session.join(class, device));
        self.floor.take(session, device, class);
        self.start_of.insert(job, self.starts.len());
        self.starts.push(Start { device, is_join: true, jobs: vec![job], verdict });
        if graph::outlives_tenants(session, job, device) {
            self.last_outliving = self.last_outliving.max(Some(job));
        }
        true
    }

    /// Beside a job that has started alone in this round.
    fn ride(&mut self, guest: usize, host: usize) -> bool {
        let session = self.round.session;
        let Some(start) = self.start_of.get(&host).copied() else { return false };
        let device = self.starts[start].device;
        if self.starts[start].is_join || self.starts[start].jobs.len() != 1 {
            return false;
        }
        let class = session.class_of[guest];
        let Some(verdict) =
            self.beside(host, guest, device).filter(|_| self.floor.has_room(session, device, class))
        else {
            return false;
        };
        self.floor.take(session, device, class);
        self.start_of.insert(guest, start);
        self.starts[start].jobs.push(guest);
        self.starts[start].verdict = Some(verdict);
        // Two with a right to a device each may share one: the other becomes free.
        let both_have_rights = self.slots.contains_key(&guest) && self.slots.contains_key(&host);
        if !both_have_rights && graph::outlives_job(session, guest, host) {
            self.last_outliving = self.last_outliving.max(Some(guest));
        }
        true
    }

    /// Matches those left with the seats left, where a mate fell through: its node had no room when its turn came.
    fn repair(&mut self, prospects: &mut Prospects<'_, '_>, cutoff: Option<usize>, allowance: f64) {
        for _ in 0..REPAIRS_MAX {
            let fell_through = |job: &usize| match self.mates.get(job) {
                Some(Mate::Device(_)) => true,
                Some(Mate::Job(other)) => self.start_of.contains_key(other),
                None => false,
            };
            if !self.left.keys().any(fell_through) {
                return;
            }
            let riders: Vec<usize> = self.left.keys().copied().collect();
            let alone = self.starts.iter().filter(|start| !start.is_join && start.jobs.len() == 1);
            let hosts: Vec<(usize, usize)> = alone.map(|start| (start.jobs[0], start.device)).collect();
            let joined: BTreeSet<usize> =
                self.starts.iter().filter(|start| start.is_join).map(|start| start.device).collect();
            let joinable: Vec<usize> =
                self.round.joinable.iter().copied().filter(|device| !joined.contains(device)).collect();
            let question = Question {
                primaries: &[],
                hosts: &hosts,
                joinable: &joinable,
                riders: &riders,
                cutoff,
                floor: &self.floor,
                allowance: allowance - self.excess(),
            };
            self.mates = graph::mates(prospects, &question);
            for job in riders {
                let is_served = match self.mates.get(&job) {
                    Some(Mate::Device(device)) => self.join(job, *device),
                    Some(Mate::Job(host)) => self.ride(job, *host),
                    None => false,
                };
                if is_served {
                    self.left.remove(&job);
                }
            }
        }
    }

    /// How many more promises are expected to break than the budget allows, in all sharings so far.
    fn excess(&self) -> f64 {
        let budget = self.round.session.policy.broken_budget_fraction;
        #[expect(clippy::cast_precision_loss, reason = "a few tenants")]
        let excess = |verdict: &Rc<Verdict>| verdict.risk - budget * verdict.caps.len() as f64;
        self.starts.iter().filter_map(|start| start.verdict.as_ref()).map(excess).sum()
    }

    fn why_left(&mut self, job: usize) -> Reason {
        let session = self.round.session;
        let class = session.class_of[job];
        let mut places = (0..session.places.count()).filter(|place| session.places.matches(class, *place));
        let was_free =
            |place: usize| session.places.open[place].iter().any(|device| self.round.floor.is_free(*device));
        if places.clone().next().is_none() {
            Reason::NodeDoesNotMatch
        } else if !self.round.suits[class] {
            Reason::Blocked
        } else if self.floor.find_but_for_room(session, class).is_some() {
            Reason::NodeTooFull
        } else if !self.left.is_empty() || places.any(was_free) {
            Reason::BehindOthers
        } else {
            Reason::NoDeviceFree
        }
    }
}
