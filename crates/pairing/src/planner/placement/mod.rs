//! Step 4: hands out devices in the order of the queue: which job gets a free device, which comes with it, which joins, which waits. One
//! job is passed over only by one whose start delays nobody before it. Must not write texts.

pub(crate) mod shards;

use crate::mig::{SliceSpeed, Together};
use crate::plan::Reason;
use crate::planner::candidates::candidate_set::{CandidateKey, CandidateSet};
use crate::planner::candidates::{Evaluation, Evaluator};
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex, StartIndex};
use crate::planner::selection::{self, Cutoff, Partner, Question};
use crate::planner::tries::{Tries, TryKey};
use pillion_core::mig::Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use typed_index_collections::{TiSlice, TiVec};

/// How often those whose partner fell through are matched again at most.
const REPAIRS_MAX: usize = 2;

/// One device that gets jobs.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) device: DeviceIndex,
    /// Whether somebody runs there already.
    pub(crate) is_join: bool,
    /// The jobs that start; the host first.
    pub(crate) jobs: Vec<JobIndex>,
    /// What the sharing will be like; absent for a job alone.
    pub(crate) evaluation: Option<Rc<Evaluation>>,
    /// The instance of the device that the one job gets, or the two share; absent = it is not cut for them.
    pub(crate) instance: Option<Instance>,
}

/// A part of a device that one job has to itself, or two of one user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Instance {
    pub(crate) slot: Slot,
    /// How fast the first job would be in it alone, of its speed on the whole device.
    pub(crate) speed: SliceSpeed,
    /// How two are in it together; absent = it has one.
    pub(crate) together: Option<Together>,
    /// Whether it has less memory than the job held at most.
    pub(crate) is_tried: bool,
}

/// Everything that was decided in one go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    pub(crate) starts: TiVec<StartIndex, Start>,
    /// Who waits, and why.
    pub(crate) left: BTreeMap<JobIndex, Reason>,
    /// The sharings that were worth most of all that were considered.
    pub(crate) best: TiVec<ClassIndex, Vec<CandidateKey>>,
    /// What is free after it; absent before anything was handed out.
    pub(crate) capacity: Option<FreeCapacity>,
    /// Whether a job that Slurm is about to start alone finds no device free.
    pub(crate) has_waiting_claim: bool,
}

/// What was settled before anything is handed out.
#[derive(Clone, Copy)]
pub(crate) struct Rights<'p> {
    /// Jobs with a right to a device, and the device on which each is evaluated.
    pub(crate) devices: &'p BTreeMap<JobIndex, DeviceIndex>,
    /// Devices that may be joined.
    pub(crate) joinable: &'p [DeviceIndex],
    /// Whether a device that takes something now would suit the class.
    pub(crate) suits: &'p TiSlice<ClassIndex, bool>,
}

/// One round while devices are handed out.
pub(crate) struct Placing<'p> {
    evaluator: &'p Evaluator<'p, 'p>,
    context: &'p PlanContext<'p>,
    rights: Rights<'p>,
    /// What was free before.
    before: &'p FreeCapacity,
    capacity: FreeCapacity,
    partners: BTreeMap<JobIndex, Partner>,
    /// Which trials are started.
    tries: Tries,
    /// The start of each placed job.
    start_of: BTreeMap<JobIndex, StartIndex>,
    pub(crate) placement: Placement,
    /// The last job that may hold a device longer than its host.
    pub(crate) last_outliving: Option<JobIndex>,
}

impl<'p> Placing<'p> {
    pub(crate) fn new(
        evaluator: &'p Evaluator<'p, 'p>,
        before: &'p FreeCapacity,
        rights: Rights<'p>,
        partners: BTreeMap<JobIndex, Partner>,
        tries: Tries,
    ) -> Self {
        Self {
            evaluator,
            context: evaluator.context,
            rights,
            before,
            capacity: before.clone(),
            partners,
            tries,
            start_of: BTreeMap::new(),
            placement: Placement::default(),
            last_outliving: None,
        }
    }

    /// One job at its turn.
    pub(crate) fn place(&mut self, job: JobIndex) {
        let (context, class) = (self.context, self.context.class_of[job]);
        // 1. To the partner that was selected for it.
        let partner = self.partners.get(&job).copied();
        match partner {
            Some(Partner::Device(device)) if self.join(job, device) => return,
            Some(Partner::Job(host)) if self.accompany(job, host) => return,
            _ => {}
        }
        // 2. Else to a device of its own.
        let preferred = self.preferred_device(job, partner);
        if let Some(device) = self.capacity.find(context, class, preferred) {
            self.capacity.take(context, device, class);
            let start = Start { device, is_join: false, jobs: vec![job], evaluation: None, instance: None };
            let index = self.placement.starts.push_and_get_key(start);
            self.start_of.insert(job, index);
            // A joiner that came before and found no place comes along now.
            if let Some(Partner::Job(joiner)) = partner
                && self.placement.left.contains_key(&joiner)
                && self.accompany(joiner, job)
            {
                self.placement.left.remove(&joiner);
            }
            return;
        }
        // 3. Else it waits. What it lacks is not given to those behind it.
        let reason = self.why_left(job);
        if reason == Reason::NodeTooFull
            && let Some(device) = self.capacity.find_ignoring_node(context, class)
        {
            self.capacity.keep_node_of(context, device);
        }
        self.placement.left.insert(job, reason);
    }

    /// Where a job is to start: on its own device, or on that of its partner, where they gain more.
    fn preferred_device(&self, job: JobIndex, partner: Option<Partner>) -> Option<DeviceIndex> {
        let own = self.rights.devices.get(&job).copied();
        let Some(Partner::Job(other)) = partner else { return own };
        let others = self.rights.devices.get(&other).copied();
        let [here, there] = [own, others].map(|device| Some(self.beside(job, other, device?)?.weight));
        match (here, there) {
            (Some(here), Some(there)) if there > here => others,
            (None, Some(_)) => others,
            _ => own,
        }
    }

    /// How a joiner and a host would share a device that suits both.
    fn beside(&self, host: JobIndex, joiner: JobIndex, device: DeviceIndex) -> Option<Rc<Evaluation>> {
        let context = self.context;
        let (host, joiner) = (context.class_of[host], context.class_of[joiner]);
        if !context.matches(host, device) || !context.matches(joiner, device) {
            return None;
        }
        let evaluation = self.evaluator.pair(host, joiner, context.kind_of[device]);
        evaluation.is_admitted().then_some(evaluation)
    }

    /// Beside what runs already.
    fn join(&mut self, job: JobIndex, device: DeviceIndex) -> bool {
        let (context, class) = (self.context, self.context.class_of[job]);
        if !self.capacity.node_meets(context, device, class) {
            return false;
        }
        let found = self.evaluator.join(class, device);
        let key = self.evaluator.try_key_of_join(class, device);
        let Some(evaluation) = self.as_allowed(found, key) else { return false };
        let evaluation = Some(evaluation);
        self.capacity.take(context, device, class);
        let start = Start { device, is_join: true, jobs: vec![job], evaluation, instance: None };
        let index = self.placement.starts.push_and_get_key(start);
        self.start_of.insert(job, index);
        if selection::outlives_tenants(context, job, device) {
            self.last_outliving = self.last_outliving.max(Some(job));
        }
        true
    }

    /// Beside a job that has started alone in this round.
    fn accompany(&mut self, joiner: JobIndex, host: JobIndex) -> bool {
        let context = self.context;
        let Some(index) = self.start_of.get(&host).copied() else { return false };
        let start = &self.placement.starts[index];
        let (device, class) = (start.device, context.class_of[joiner]);
        if start.is_join || start.jobs.len() != 1 {
            return false;
        }
        let node_meets = self.capacity.node_meets(context, device, class);
        let Some(evaluation) = self.beside(host, joiner, device).filter(|_| node_meets) else {
            return false;
        };
        let key = self.evaluator.try_key_of_pair(context.class_of[host], class, context.kind_of[device]);
        let Some(evaluation) = self.as_allowed(evaluation, key) else { return false };
        self.capacity.take(context, device, class);
        self.start_of.insert(joiner, index);
        self.placement.starts[index].jobs.push(joiner);
        self.placement.starts[index].evaluation = Some(evaluation);
        // Two with a right to a device each may share one: the other becomes free.
        let rights = self.rights.devices;
        let both_have_rights = rights.contains_key(&joiner) && rights.contains_key(&host);
        if !both_have_rights && selection::outlives_job(context, joiner, host, device) {
            self.last_outliving = self.last_outliving.max(Some(joiner));
        }
        true
    }

    /// What a sharing is where no more than one of each kind is tried; `None` = it is not allowed then.
    fn as_allowed(&mut self, found: Rc<Evaluation>, key: Option<TryKey>) -> Option<Rc<Evaluation>> {
        if !found.is_limited() || key.is_some_and(|key| self.tries.start(key)) {
            return Some(found);
        }
        found.otherwise.clone()
    }

    /// Matches those left with those alone, where a partner fell through: its node lacked CPUs or memory when its turn came.
    pub(crate) fn repair(&mut self, candidates: &mut CandidateSet<'_, '_>, cutoff: Cutoff, allowance: f64) {
        for _ in 0..REPAIRS_MAX {
            if !self.placement.left.keys().any(|job| self.fell_through(*job)) {
                return;
            }
            let joiners: Vec<JobIndex> = self.placement.left.keys().copied().collect();
            let starts = &self.placement.starts;
            let alone = starts.iter().filter(|start| !start.is_join && start.jobs.len() == 1);
            let hosts: Vec<(JobIndex, DeviceIndex)> =
                alone.map(|start| (start.jobs[0], start.device)).collect();
            let joined: BTreeSet<DeviceIndex> =
                starts.iter().filter(|start| start.is_join).map(|start| start.device).collect();
            let joinable: Vec<DeviceIndex> =
                self.rights.joinable.iter().copied().filter(|device| !joined.contains(device)).collect();
            let question = Question {
                primaries: &[],
                hosts: &hosts,
                joinable: &joinable,
                joiners: &joiners,
                cutoff,
                capacity: &self.capacity,
                allowance: allowance - self.excess(),
                tries: &self.tries,
            };
            self.partners = selection::select(candidates, &question);
            for job in joiners {
                let is_placed = match self.partners.get(&job) {
                    Some(Partner::Device(device)) => self.join(job, *device),
                    Some(Partner::Job(host)) => self.accompany(job, *host),
                    None => false,
                };
                if is_placed {
                    self.placement.left.remove(&job);
                }
            }
        }
    }

    /// Whether a job that was left was to share with one that has a device: it could not because of the node.
    fn fell_through(&self, job: JobIndex) -> bool {
        match self.partners.get(&job) {
            Some(Partner::Device(_)) => true,
            Some(Partner::Job(other)) => self.start_of.contains_key(other),
            None => false,
        }
    }

    /// How many jobs with a right to a device needed none of their own.
    pub(crate) fn spared_count(&self) -> usize {
        let starts = self.rights.devices.keys().filter_map(|job| Some((job, self.start_of.get(job)?)));
        let starts = starts.map(|(job, start)| (job, &self.placement.starts[*start]));
        starts.filter(|(job, start)| start.is_join || start.jobs[0] != **job).count()
    }

    /// How many more promises are expected to break than the budget allows, in all sharings so far.
    pub(crate) fn excess(&self) -> f64 {
        let evaluations = self.placement.starts.iter().filter_map(|start| start.evaluation.as_ref());
        evaluations.map(|evaluation| evaluation.excess(self.context.policy)).sum()
    }

    /// What was handed out, with what is free now.
    pub(crate) fn settled(self) -> Placement {
        Placement { capacity: Some(self.capacity), ..self.placement }
    }

    fn why_left(&mut self, job: JobIndex) -> Reason {
        let (context, class) = (self.context, self.context.class_of[job]);
        let mut places = context.places.of_class(class);
        if places.clone().next().is_none() {
            if context.places.is_reserved(class) { Reason::NodeReserved } else { Reason::NodeDoesNotMatch }
        } else if !self.rights.suits[class] {
            Reason::Blocked
        } else if self.capacity.find_ignoring_node(context, class).is_some() {
            Reason::NodeTooFull
        } else if !self.placement.left.is_empty()
            || places
                .any(|place| context.places.open[place].iter().any(|device| self.before.is_free(*device)))
        {
            Reason::BehindOthers
        } else {
            Reason::NoDeviceFree
        }
    }
}
