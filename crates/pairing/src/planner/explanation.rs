//! From what was served to the plan: shares, limits, and for each job the partners that were considered, the rule that
//! excluded each, and one sentence for people. The sentence never names another user's job or workload.

mod booking;
mod instance;
mod words;

use crate::plan::{CANDIDATES_MAX, Candidate, Explanation, Member, Pairing, Plan, Reason, Role};
use crate::planner::admit;
use crate::planner::candidates::Trial;
use crate::planner::candidates::candidate_set::CandidateKey;
use crate::planner::candidates::{CCS_MODE_SHARED, Evaluator};
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex, PlaceIndex};
use crate::planner::placement::{Placement, Start};
use crate::planner::selection;
use pillion_core::share;
use pillion_core::workload::is_session;
use pillion_core::{CapStep, Fraction, Shards};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use typed_index_collections::TiVec;
use words::{member_text, with_rules};

/// Partners kept for a job that goes on waiting: it is planned again soon.
const CANDIDATES_WAITING_MAX: usize = 4;
/// Kinds of partners evaluated for an explanation, besides those of most weight; fewer where there are very many.
const SHOWN_MAX: (usize, usize) = (64, 8);

/// How many reasons why devices are closed an explanation names.
const CLOSED_REASONS_MAX: usize = 3;

/// Where a job could have shared.
#[derive(Clone, Copy, PartialEq)]
enum Partner {
    Waiting { job: JobIndex, device: DeviceIndex },
    Running { device: DeviceIndex },
}

/// What is the same for all explanations of one plan.
struct Explainer<'s, 'a> {
    evaluator: &'s Evaluator<'s, 'a>,
    context: &'s PlanContext<'a>,
    /// Devices on which somebody runs whom we know, one of those that are alike.
    running: Vec<DeviceIndex>,
    /// The first two waiting jobs of each class.
    firsts: BTreeMap<ClassIndex, (JobIndex, Option<JobIndex>)>,
    /// Classes of jobs that wait.
    classes: Vec<ClassIndex>,
    /// Where jobs start that have a device of their own, one of each class.
    hosts: BTreeMap<ClassIndex, (JobIndex, DeviceIndex)>,
    /// Of each class, how many jobs that could share do not.
    unshared: BTreeMap<ClassIndex, usize>,
    /// Devices that somebody joins.
    joined: BTreeSet<DeviceIndex>,
    /// What was worth most of all that was considered for the choice.
    best: TiVec<ClassIndex, Vec<CandidateKey>>,
    /// The candidates of each class, best first, where they start, or where others do.
    ranked: RefCell<Ranked>,
    is_brief: bool,
}

type Ranked = HashMap<(ClassIndex, Option<Where>), Rc<Vec<(Partner, Candidate)>>>;
/// A place, and whether the device takes something now.
type Where = (PlaceIndex, bool);

/// Writes the plan. `is_brief`: no partners that were considered are named, and nobody who is left waiting.
pub(crate) fn explain(evaluator: &Evaluator<'_, '_>, placement: &Placement, is_brief: bool) -> Plan {
    let context = evaluator.context;
    let explainer = Explainer::new(evaluator, placement, is_brief);
    let pairings = placement.starts.iter().map(|start| explainer.pairing(start)).collect();
    let mut by_class: BTreeMap<(ClassIndex, Reason), Explanation> = BTreeMap::new();
    let left_waiting = placement.left.iter().filter(|_| !is_brief).map(|(job, reason)| {
        // Jobs of one class get the same answer; only the first is worked out.
        let shared = by_class
            .entry((context.class_of[*job], *reason))
            .or_insert_with(|| explainer.of_waiting(*job, *reason));
        let own = context.jobs[*job].held_text().filter(|_| *reason == Reason::Held);
        let text = own.map_or_else(|| Arc::clone(&shared.text), Arc::from);
        Explanation { job_id: context.jobs[*job].start.job_id, text, ..shared.clone() }
    });
    let parent_revision = context.view.revision;
    Plan { left_waiting: left_waiting.collect(), pairings, ..Plan::empty(parent_revision) }
}

impl<'s, 'a> Explainer<'s, 'a> {
    fn new(evaluator: &'s Evaluator<'s, 'a>, placement: &Placement, is_brief: bool) -> Self {
        let context = evaluator.context;
        let devices = context.devices;
        let shown_max = if context.is_thorough { SHOWN_MAX.0 } else { SHOWN_MAX.1 };
        let running = devices.keys().filter(|device| {
            let is_first = context.is_thorough || context.alike[*device] == *device;
            is_first && devices[*device].tenants.iter().any(|tenant| tenant.workload.is_some())
        });
        let mut firsts: BTreeMap<ClassIndex, (JobIndex, Option<JobIndex>)> = BTreeMap::new();
        for job in context.jobs.keys() {
            if context.jobs[job].held.is_none() {
                let first = firsts.entry(context.class_of[job]).or_insert((job, None));
                if first.0 != job && first.1.is_none() {
                    first.1 = Some(job);
                }
            }
        }
        let mut hosts = BTreeMap::new();
        let shares = |start: &&Start| start.instance.is_none();
        for start in placement.starts.iter().filter(|start| !start.is_join).filter(shares) {
            hosts.entry(context.class_of[start.jobs[0]]).or_insert((start.jobs[0], start.device));
        }
        let left = placement.left.iter().filter(|(_, reason)| **reason != Reason::Held).map(|(job, _)| *job);
        let alone = placement.starts.iter().filter(shares).filter(|start| start.evaluation.is_none());
        let mut unshared = BTreeMap::new();
        for job in alone.flat_map(|start| start.jobs.iter().copied()).chain(left) {
            *unshared.entry(context.class_of[job]).or_default() += 1;
        }
        let joins = placement.starts.iter().filter(|start| start.is_join);
        let running_max = if context.is_thorough { usize::MAX } else { shown_max };
        Self {
            evaluator,
            context,
            running: running.take(running_max).collect(),
            classes: firsts.keys().take(shown_max).copied().collect(),
            firsts,
            hosts,
            unshared,
            joined: joins.map(|start| start.device).collect(),
            best: placement.best.clone(),
            ranked: RefCell::default(),
            is_brief,
        }
    }

    fn pairing(&self, start: &Start) -> Pairing {
        let device = &self.context.devices[start.device];
        let tenants_before = if start.is_join { device.tenants.len() } else { 0 };
        let shares = self.shares(start);
        let members =
            (0..start.jobs.len()).map(|index| self.member(start, index, tenants_before + index, &shares));
        Pairing {
            node: device.node.clone(),
            gres_types: device.gres_type.clone().into(),
            device_model: device.model.clone(),
            joins: device.tenants.first().filter(|_| start.is_join).and_then(|host| host.group),
            members: members.collect(),
            gain: instance::gain(start, &shares),
            trial: trial_of(start).map(|trial| Fraction::clamped(trial.keep_probability)),
        }
    }

    fn member(&self, start: &Start, index: usize, position: usize, shares: &[Shards]) -> Member {
        let context = self.context;
        if let Some(instance) = start.instance {
            return self.member_in_instance(start, instance, index, shares[index]);
        }
        let (job, device) = (start.jobs[index], &context.devices[start.device]);
        let (class, kind) = (context.class_of[job], context.kind_of[start.device]);
        let role = match (&start.evaluation, position) {
            (Some(_), 0) => Role::Host,
            (Some(_), _) => Role::Joiner,
            (None, _) if shares[index] == Shards::ALL => Role::Alone,
            (None, _) => Role::Host,
        };
        let waiting = &context.jobs[job];
        let known = context.sharer(class, kind).ok().map(|(_, memory)| memory);
        let memory_bytes = known.or(waiting.memory_bytes_declared.filter(|_| is_session(&waiting.workload)));
        let of_each = memory_bytes.map(|all| admit::limit_of_each(all, context.profile(class, kind)));
        let (cap, mode) = match &start.evaluation {
            Some(evaluation) => (evaluation.caps[position], evaluation.ccs_mode),
            None => (waiting.solo_cap.and_then(CapStep::cap_fraction), None),
        };
        let mode = mode.unwrap_or(CCS_MODE_SHARED);
        let alone = admit::limit_alone(
            waiting.memory_bytes_declared,
            context.profile(class, kind),
            device.memory_bytes,
        );
        let alone = alone.filter(|_| device.mechanism.can_cap());
        let sharing = match (role, cap, alone) {
            (Role::Alone, None, None) => share::Sharing::TimeSliced,
            (Role::Alone, ..) => share::Sharing::by(device.mechanism, cap, Some(mode)).limited_to(alone),
            (Role::Host | Role::Joiner, ..) => {
                share::Sharing::by(device.mechanism, cap, Some(mode)).limited_to(of_each.or(alone))
            }
        };
        Member {
            start: waiting.start,
            workload: waiting.workload.clone(),
            role,
            sharing,
            shards: shares[index],
            memory_bytes,
            estimate: start.evaluation.as_ref().map(|evaluation| evaluation.estimates[position].clone()),
            explanation: self.of_member(job, start, role),
        }
    }

    fn of_member(&self, job: JobIndex, start: &Start, role: Role) -> Explanation {
        let context = self.context;
        let chosen = match (start.is_join, start.jobs.iter().find(|other| **other != job)) {
            (true, _) => Some(Partner::Running { device: start.device }),
            (false, Some(other)) => Some(Partner::Waiting { job: *other, device: start.device }),
            (false, None) => None,
        };
        let candidates = self.candidates(job, Some(start.device), chosen, CANDIDATES_MAX);
        let (class, kind) = (context.class_of[job], context.kind_of[start.device]);
        let reason = match (chosen, role) {
            (Some(_), _) if trial_of(start).is_some() => Reason::Trial,
            (Some(Partner::Running { .. }), _) => Reason::Joined,
            (Some(Partner::Waiting { .. }), _) => Reason::Paired,
            (None, Role::Alone) => self.evaluator.may_host(class, kind).err().unwrap_or(Reason::NotShareable),
            (None, _) => match self.evaluator.may_host(class, kind) {
                Ok(()) => Reason::AloneJoinable,
                Err(Reason::Interactive) => Reason::Interactive,
                Err(_) => Reason::FirstRun,
            },
        };
        let text = if let Some(cap) = context.jobs[job].solo_cap.and_then(CapStep::cap_fraction) {
            words::measured_text(cap)
        } else if (reason, role) == (Reason::Interactive, Role::Host) {
            words::SESSION_TEXT.to_owned()
        } else {
            let tenants = &context.devices[start.device].tenants;
            let host = tenants.iter().find_map(words::host_text).filter(|_| start.is_join);
            member_text(reason, start.evaluation.as_deref(), candidates.first(), host)
        };
        self.explanation(job, reason, text, candidates)
    }

    fn of_waiting(&self, job: JobIndex, reason: Reason) -> Explanation {
        let candidates = self.candidates(job, None, None, CANDIDATES_WAITING_MAX);
        let mut text = reason.of_waiting().to_owned();
        if reason == Reason::Blocked {
            text = format!("{text}{}", self.closed_text(self.context.class_of[job]));
        }
        if let Some(why) = candidates.first().and_then(|candidate| candidate.excluded_by) {
            text = format!("{text}; beside others: {}", why.text());
        }
        self.explanation(job, reason, text, candidates)
    }

    fn explanation(
        &self,
        job: JobIndex,
        reason: Reason,
        text: String,
        candidates: Vec<Candidate>,
    ) -> Explanation {
        let job_id = self.context.jobs[job].start.job_id;
        let text = with_rules(text, self.context.jobs[job].rules);
        let model = self.context.model.name().into();
        Explanation { job_id, reason, text: text.into(), model, candidates: candidates.into() }
    }

    /// The partners of a job, best first: the chosen one, those that could be chosen, those that were excluded.
    fn candidates(
        &self,
        job: JobIndex,
        device: Option<DeviceIndex>,
        chosen: Option<Partner>,
        count_max: usize,
    ) -> Vec<Candidate> {
        if self.is_brief {
            return Vec::new();
        }
        let class = self.context.class_of[job];
        let mut found: Vec<Candidate> =
            chosen.and_then(|partner| self.candidate(job, class, partner, true)).into_iter().collect();
        let ranked = self.ranked(job, device);
        let others = ranked.iter().filter(|(partner, _)| {
            let is_itself = matches!(partner, Partner::Waiting { job: other, .. } if *other == job);
            !is_itself && chosen.is_none_or(|chosen| !self.is_alike(chosen, *partner))
        });
        let others_max = count_max.saturating_sub(found.len());
        found.extend(others.take(others_max).map(|(_, candidate)| candidate.clone()));
        if chosen.is_some() {
            // Others of its class may share with nobody; this one does.
            for other in found.iter_mut().filter(|other| other.excluded_by == Some(Reason::BeyondBudget)) {
                other.excluded_by = Some(Reason::BetterPlanElsewhere);
            }
        }
        found
    }

    /// The partners of a class, best first. Worked out for the first job of it that asks.
    fn ranked(&self, job: JobIndex, device: Option<DeviceIndex>) -> Rc<Vec<(Partner, Candidate)>> {
        let (context, class) = (self.context, self.context.class_of[job]);
        let place =
            device.map(|device| (context.places.of_device[device], context.open_node(device).is_some()));
        if let Some(known) = self.ranked.borrow().get(&(class, place)) {
            return Rc::clone(known);
        }
        let mut found: Vec<(Partner, Candidate)> = Vec::new();
        for partner in self.partners(class, device) {
            found.extend(self.candidate(job, class, partner, false).map(|candidate| (partner, candidate)));
        }
        found.sort_by(|(_, a), (_, b)| best_first(a, b));
        // Two of them may be passed over: the job itself, and who is like the chosen one.
        found.truncate(CANDIDATES_MAX + 2);
        let ranked = Rc::new(found);
        self.ranked.borrow_mut().insert((class, place), Rc::clone(&ranked));
        ranked
    }

    /// Whom a class could share with, each once: what was worth most, and some of all that there are.
    fn partners(&self, class: ClassIndex, device: Option<DeviceIndex>) -> Vec<Partner> {
        let (mut classes, mut running) = (Vec::new(), Vec::new());
        for key in self.best.get(class).into_iter().flatten() {
            match *key {
                CandidateKey::Pair { lower, higher, .. } => {
                    classes.push(if lower == class { higher } else { lower });
                }
                CandidateKey::Join { device, .. } => running.push(device),
            }
        }
        running.extend(&self.running);
        match device {
            Some(_) => classes.extend(&self.classes),
            None => classes.extend(self.hosts.keys().take(self.classes.len().max(1))),
        }
        let (mut seen_classes, mut seen_devices) = (BTreeSet::new(), BTreeSet::new());
        classes.retain(|class| seen_classes.insert(*class));
        running.retain(|device| seen_devices.insert(*device));
        let mut partners: Vec<Partner> =
            running.into_iter().map(|device| Partner::Running { device }).collect();
        for other in classes {
            match device {
                Some(device) => {
                    let (first, second) = self.firsts.get(&other).copied().unzip();
                    let jobs = first.into_iter().chain(second.flatten().filter(|_| other == class));
                    partners.extend(jobs.map(|job| Partner::Waiting { job, device }));
                }
                None => partners.extend(
                    self.hosts
                        .get(&other)
                        .map(|(job, device)| Partner::Waiting { job: *job, device: *device }),
                ),
            }
        }
        partners
    }

    /// Why the devices that match this class are closed: `: drained by alice: fan noise`.
    fn closed_text(&self, class: ClassIndex) -> String {
        let context = self.context;
        let mut reasons: Vec<&str> = Vec::new();
        for device in context.devices.keys().filter(|device| context.matches(class, *device)) {
            if let Some(why) = context.closed_by(device).filter(|why| !reasons.contains(why)) {
                if reasons.len() == CLOSED_REASONS_MAX {
                    return format!(": {}; and for other reasons", reasons.join("; "));
                }
                reasons.push(why);
            }
        }
        if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
    }

    fn is_alike(&self, a: Partner, b: Partner) -> bool {
        match (a, b) {
            (Partner::Waiting { job: a, .. }, Partner::Waiting { job: b, .. }) => {
                self.context.class_of[a] == self.context.class_of[b]
            }
            _ => a == b,
        }
    }

    fn candidate(
        &self,
        job: JobIndex,
        class: ClassIndex,
        partner: Partner,
        chosen: bool,
    ) -> Option<Candidate> {
        let context = self.context;
        let (evaluation, own, other, job_id, workload, is_running, outlives) = match partner {
            Partner::Waiting { job: other, device } => {
                let host = &context.jobs[other];
                let evaluation =
                    self.evaluator.shown_pair(class, context.class_of[other], context.kind_of[device]);
                (
                    evaluation,
                    0,
                    1,
                    host.start.job_id,
                    host.workload.clone(),
                    false,
                    selection::outlives_job(context, job.max(other), job.min(other), device),
                )
            }
            Partner::Running { device } => {
                let tenant =
                    context.devices[device].tenants.iter().find(|tenant| tenant.workload.is_some())?;
                let evaluation = self.evaluator.shown_join(class, device);
                let position = evaluation.caps.len().saturating_sub(1);
                let outlives = selection::outlives_tenants(context, job, device);
                (evaluation, position, 0, tenant.job_id, tenant.workload.clone()?, true, outlives)
            }
        };
        let device = match partner {
            Partner::Waiting { device, .. } | Partner::Running { device } => device,
        };
        let place = if context.open_node(device).is_none() {
            Some(Reason::Blocked)
        } else if !context.matches(class, device) {
            Some(Reason::NodeDoesNotMatch)
        } else {
            None
        };
        let passed_over = if outlives {
            Reason::OutlivesHost
        } else if evaluation.excess(context.policy) > 0.0 && self.is_left(class, partner) {
            Reason::BeyondBudget
        } else {
            Reason::BetterPlanElsewhere
        };
        let excluded_by = if chosen { None } else { place.or(evaluation.excluded_by).or(Some(passed_over)) };
        let cap_fractions = [own, other].map(|index| evaluation.caps.get(index).copied().flatten());
        Some(Candidate {
            partner: job_id,
            workload,
            is_running,
            cap_fractions: cap_fractions.into(),
            own: evaluation.estimates.get(own).cloned(),
            other: evaluation.estimates.get(other).cloned(),
            gain: (!evaluation.estimates.is_empty()).then_some(evaluation.gain),
            excluded_by,
            chosen,
        })
    }

    /// Whether one of a class and a partner are both left without anybody to share with.
    fn is_left(&self, class: ClassIndex, partner: Partner) -> bool {
        let unshared = |class: ClassIndex| self.unshared.get(&class).copied().unwrap_or(0);
        match partner {
            Partner::Waiting { job, .. } => {
                let other = self.context.class_of[job];
                unshared(class) > usize::from(other == class) && unshared(other) > 0
            }
            Partner::Running { device } => unshared(class) > 0 && !self.joined.contains(&device),
        }
    }
}

/// The trial that a start is.
fn trial_of(start: &Start) -> Option<Trial> {
    start.evaluation.as_ref().and_then(|evaluation| evaluation.trial)
}

/// Those that could have been chosen before those that a rule forbids, then by gain, then by job.
fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    let [(is_forbidden, gain), (is_other_forbidden, other_gain)] = [a, b].map(|candidate| {
        let is_forbidden = candidate
            .excluded_by
            .is_some_and(|why| !matches!(why, Reason::BetterPlanElsewhere | Reason::BeyondBudget));
        (is_forbidden, candidate.gain.unwrap_or(-1.0))
    });
    is_forbidden.cmp(&is_other_forbidden).then(other_gain.total_cmp(&gain)).then(a.partner.cmp(&b.partner))
}
