//! Steps 3 and 4, until they settle: who has a right to a device, who may share with whom, and whether that is fair
//! (docs/principles.md#order-of-service).
//!
//! The first jobs of the queue have a right to a device each (the *primaries*). They are matched with each other, with
//! running hosts and with jobs behind them. Where two of them share, a device is spared, and the next in the queue has
//! a right to it: the matching is repeated with one more primary, a few times at most.
//!
//! Nobody is held back for a partner who may come: a job waits only while no device is free for it. A device that stands
//! idle gains nothing, and a job that starts alone can be joined by whoever comes; a snapshot does not show who will.

use crate::plan::{CANDIDATES_MAX, Reason};
use crate::planner::admit;
use crate::planner::candidates::candidate_set::CandidateSet;
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex};
use crate::planner::placement::{Placement, Placing, Rights};
use crate::planner::selection::{self, Cutoff, Question};
use crate::planner::tries::Tries;
use crate::planner::verdicts;
use std::collections::BTreeMap;
use typed_index_collections::TiVec;

/// How often the matching is repeated at most: for few classes of jobs, and for many.
const ROUNDS_MAX: (usize, usize) = (6, 4);
/// How far a plan may be beyond its budget of broken promises.
const EXCESS_TOLERANCE: f64 = 1e-6;
/// By how much more than it was beyond the budget a plan is tightened.
const EXCESS_RATIO: f64 = 1.2;
/// How often a plan in which no job may outlive its host is tightened at most.
const CAUTIOUS_MAX: usize = 4;

/// Selects and places until no device is spared that somebody has a right to, nobody is passed over, and the budget is kept.
pub(crate) fn settle(candidates: &mut CandidateSet<'_, '_>) -> Placement {
    let context = candidates.evaluator.context;
    let (capacity, claim_waits) = FreeCapacity::new(context);
    let startable: Vec<JobIndex> =
        context.jobs.keys().filter(|job| context.jobs[*job].held.is_none()).collect();
    let round = Round::new(context, &capacity, &startable);
    // 1. Optimistic at first: nobody is left waiting, so no job has to end before its host.
    let free_count = capacity.free_count();
    let mut limits = RoundLimits {
        right_count: free_count,
        cutoff: if claim_waits { Cutoff::Everybody } else { Cutoff::Nobody },
        allowance: 0.0,
    };
    let mut accepted = None;
    for _ in 0..if context.is_thorough { ROUNDS_MAX.0 } else { ROUNDS_MAX.1 } {
        let attempt = round.attempt(candidates, limits);
        // 2. Somebody holds a device longer than one before it can wait: from the first who waits on, all have to end.
        if attempt.passes_unfairly(claim_waits) {
            limits.cutoff = attempt.first_left.map_or(Cutoff::Everybody, Cutoff::Behind);
            continue;
        }
        // 3. Beyond the budget, because of jobs that were placed otherwise than selected.
        if attempt.excess > EXCESS_TOLERANCE {
            limits.allowance -= EXCESS_RATIO * attempt.excess;
            continue;
        }
        // 4. Devices were spared: as many more jobs have a right to one.
        let wanted = free_count + attempt.spared;
        let is_settled = wanted <= limits.right_count || limits.right_count >= startable.len();
        accepted = Some(attempt);
        if is_settled {
            break;
        }
        limits.right_count = wanted;
    }
    let attempt = accepted.unwrap_or_else(|| round.cautious(candidates, limits));
    let mut placement = attempt.placement;
    if let Some(trials) = &context.trials {
        verdicts::hold(candidates.evaluator, trials, &mut placement);
    }
    let held = context.jobs.keys().filter(|job| context.jobs[*job].held.is_some());
    placement.left.extend(held.map(|job| (job, Reason::Held)));
    placement.best = candidates.best(CANDIDATES_MAX);
    placement.has_waiting_claim = claim_waits;
    placement
}

/// What one round may do.
#[derive(Debug, Clone, Copy)]
struct RoundLimits {
    /// How many jobs have a right to a device.
    right_count: usize,
    cutoff: Cutoff,
    /// See [`Question`]. Below 0 where sharings that eased the budget fell through.
    allowance: f64,
}

/// What all rounds have in common.
struct Round<'r> {
    context: &'r PlanContext<'r>,
    capacity: &'r FreeCapacity,
    startable: &'r [JobIndex],
    joinable: Vec<DeviceIndex>,
    may_share: bool,
    /// Whether a device that takes something now would suit the class.
    suits: TiVec<ClassIndex, bool>,
}

/// What one round came to.
struct Attempt {
    placement: Placement,
    /// The first job that could start and was left, where a device of the pool would suit it.
    first_left: Option<JobIndex>,
    /// The last job that may hold a device longer than its host.
    last_outliving: Option<JobIndex>,
    /// Primaries that needed no device of their own.
    spared: usize,
    /// How many more promises are expected to break than the budget allows.
    excess: f64,
}

impl Attempt {
    fn passes_unfairly(&self, claim_waits: bool) -> bool {
        self.last_outliving
            .is_some_and(|outliving| claim_waits || self.first_left.is_some_and(|left| outliving > left))
    }
}

impl<'r> Round<'r> {
    fn new(context: &'r PlanContext<'r>, capacity: &'r FreeCapacity, startable: &'r [JobIndex]) -> Self {
        let may_share = context.policy.pair_when_idle || startable.len() > capacity.free_count();
        let joinable = context.devices.keys().filter(|device| {
            may_share
                && context.open_node(*device).is_some()
                && admit::may_be_joined(&context.devices[*device], context.policy).is_ok()
        });
        let suits = context
            .classes
            .keys()
            .map(|class| context.places.of_class(class).any(|place| !context.places.open[place].is_empty()));
        Self { context, capacity, startable, joinable: joinable.collect(), may_share, suits: suits.collect() }
    }

    /// Where no round was fair, no job may outlive its host: that passes nobody over. Within the budget, if need be without
    /// new sharings.
    fn cautious(&self, candidates: &mut CandidateSet<'_, '_>, mut limits: RoundLimits) -> Attempt {
        limits.cutoff = Cutoff::Everybody;
        for _ in 0..CAUTIOUS_MAX {
            let attempt = self.attempt(candidates, limits);
            if attempt.excess <= EXCESS_TOLERANCE {
                return attempt;
            }
            limits.allowance -= EXCESS_RATIO * attempt.excess;
        }
        let (joinable, suits) = (self.joinable.clone(), self.suits.clone());
        Round { may_share: false, joinable, suits, ..*self }.attempt(candidates, limits)
    }

    /// One selection and one placement.
    fn attempt(&self, candidates: &mut CandidateSet<'_, '_>, limits: RoundLimits) -> Attempt {
        let RoundLimits { right_count, cutoff, allowance } = limits;
        let (primaries, capacity) = self.primaries(right_count);
        let devices: BTreeMap<JobIndex, DeviceIndex> = primaries.iter().copied().collect();
        let joiners: Vec<JobIndex> =
            self.startable.iter().copied().filter(|job| !devices.contains_key(job)).collect();
        let tries = Tries::new(self.context);
        let partners = if self.may_share {
            let question = Question {
                primaries: &primaries,
                hosts: &[],
                joinable: &self.joinable,
                joiners: &joiners,
                cutoff,
                capacity: &capacity,
                allowance,
                tries: &tries,
            };
            selection::select(candidates, &question)
        } else {
            BTreeMap::new()
        };
        let rights = Rights { devices: &devices, joinable: &self.joinable, suits: &self.suits };
        let mut placing = Placing::new(candidates.evaluator, self.capacity, rights, partners, tries);
        for job in self.startable {
            placing.place(*job);
        }
        if self.may_share {
            placing.repair(candidates, cutoff, allowance);
        }
        let mut left = placing.placement.left.keys().copied();
        Attempt {
            first_left: left.find(|job| self.suits[self.context.class_of[*job]]),
            last_outliving: placing.last_outliving,
            spared: placing.spared_count(),
            excess: placing.excess(),
            placement: placing.settled(),
        }
    }

    /// The first jobs that can have a device, each with one; beyond the free devices, with one that may be spared.
    fn primaries(&self, right_count: usize) -> (Vec<(JobIndex, DeviceIndex)>, FreeCapacity) {
        let (context, mut capacity, mut untouched) =
            (self.context, self.capacity.clone(), self.capacity.clone());
        let mut primaries = Vec::new();
        for job in self.startable {
            let class = context.class_of[*job];
            if primaries.len() >= right_count {
                break;
            }
            if let Some(device) = capacity.find(context, class, None) {
                capacity.take(context, device, class);
                primaries.push((*job, device));
            } else if let Some(device) = capacity.find_ignoring_node(context, class) {
                capacity.keep_node_of(context, device);
            } else if let Some(device) = untouched.find(context, class, None) {
                primaries.push((*job, device));
            }
        }
        (primaries, capacity)
    }
}
