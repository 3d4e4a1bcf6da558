//! Wide jobs that share: those of one width on a set of as many devices, each with a part of every one of them. A gang is as fast as the
//! slowest of its ranks, so each device has to keep what is promised; what is known of a workload of that width is the most that any of its
//! devices did, so that one device tells of all. A set is planned as one device is, by the same steps and rules, from a snapshot in which it
//! is one: whoever shares a set has just this.
//!
//! Who was given devices of his own keeps a start: where the plan of the sets would have it wait, nothing of it is used. Guests, jobs
//! whose workload is not known at that width and all who may not share have their devices to themselves as ever, and nothing is tried.

use super::floor::Claimed;
use super::words;
use super::{charged, demands, started, starts, uses_of, uses_of_let_go, with};
use crate::plan::{Explanation, LetGo, Pairing, Plan, Role};
use crate::planner::admit;
use crate::policy::{JobRules, Policy};
use crate::view::{AloneClaim, ClusterView, DeviceView, Tenant, WaitingJob};
use pillion_core::{GresType, GresTypes, JobStart, NodeName, SlurmJobId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many share a set at most.
const TENANTS_MAX: u32 = 2;

/// What the sets are planned on.
pub(super) struct Ground<'g> {
    pub(super) view: &'g ClusterView,
    pub(super) policy: &'g Policy,
    /// Jobs of several nodes that are let go.
    pub(super) let_go: &'g [LetGo],
    /// By device of the view: why it takes nobody.
    pub(super) closed: &'g [Option<&'static str>],
    pub(super) claimed: &'g Claimed<'g>,
}

/// Plans the wide jobs of each width once more.
pub(super) fn share(
    ground: &Ground<'_>,
    mut plan: Plan,
    plan_narrow: &mut impl FnMut(&ClusterView) -> Plan,
) -> Plan {
    let widths: BTreeSet<u8> =
        ground.view.waiting.iter().filter(|job| is_of_sets(job)).map(|job| job.device_count).collect();
    for width in widths {
        let sets = Sets::of(ground, &plan, width);
        let Some(view) = sets.view(ground, &plan) else { continue };
        let found = plan_narrow(&view);
        if sets.keep_their_start(&found) {
            plan = sets.merged(ground, plan, found);
        }
    }
    plan
}

/// Whether a job has several devices of one node, and could share them.
fn is_of_sets(job: &WaitingJob) -> bool {
    job.device_count > 1 && job.node_count == 1 && !job.is_plain && !job.as_guest && job.held.is_none()
}

/// The sets of one width and who may be on them.
struct Sets<'g> {
    /// Each as one device.
    devices: Vec<DeviceView>,
    /// In the order of the queue.
    jobs: Vec<&'g WaitingJob>,
    /// Those of them that were given a set of their own.
    starting: BTreeSet<JobStart>,
}

impl<'g> Sets<'g> {
    fn of(ground: &Ground<'g>, plan: &Plan, width: u8) -> Self {
        let Ground { view, policy, .. } = *ground;
        let of_width = |job: &&WaitingJob| is_of_sets(job) && job.device_count == width;
        let own: BTreeMap<JobStart, DeviceView> = plan
            .pairings
            .iter()
            .filter(|pairing| pairing.gres_types.count() == usize::from(width))
            .filter_map(|pairing| Some((pairing.members.first()?.start, ground.free_set(pairing)?)))
            .collect();
        let joinable = ground.running_sets(width);
        let given = starts(&plan.pairings);
        let mut sets = Self { devices: joinable, jobs: Vec::new(), starting: BTreeSet::new() };
        for job in view.waiting.iter().filter(of_width) {
            let own = own.get(&job.start);
            let places = sets.devices.iter().chain(own);
            let may_share = |device: &DeviceView| {
                let profile = view.profiles.get(&job.workload, &device.model);
                admit::may_share(&as_narrow(job, policy), profile, device, policy).is_ok()
            };
            // One that has another start already is of another width.
            if (own.is_none() && given.contains(&job.start.job_id)) || !places.into_iter().any(may_share) {
                continue;
            }
            sets.jobs.push(job);
            if let Some(own) = own {
                sets.devices.push(own.clone());
                sets.starting.insert(job.start);
            }
        }
        sets
    }

    /// The snapshot in which each set is a device; `None`: there is nobody, or nothing that could be shared.
    fn view(&self, ground: &Ground<'_>, plan: &Plan) -> Option<ClusterView> {
        let Ground { view, policy, let_go, claimed, .. } = *ground;
        let last = self.jobs.last()?;
        if self.devices.is_empty() {
            return None;
        }
        let waiting = self.jobs.iter().map(|job| as_narrow(job, policy)).collect();
        let others = plan.pairings.iter().filter(|pairing| !self.is_own(pairing));
        let others: Vec<Pairing> = others.cloned().collect();
        let used = demands(view, uses_of(&others).chain(uses_of_let_go(let_go)));
        let sets = charged(with(view, waiting, |_| None), used.into_iter().chain(claimed.all()));
        // Whoever waits before them for whole devices is passed over by nobody who stays longer than those who are there.
        let started = starts(&plan.pairings);
        let waits = |job: &&WaitingJob| {
            job.held.is_none()
                && !started.contains(&job.start.job_id)
                && !self.jobs.iter().any(|own| own.start == job.start)
        };
        let before = view.waiting.iter().take_while(|job| job.start != last.start).filter(waits);
        let waiting_for_whole = before.map(|job| job.start.job_id);
        let claims = view.alone_claims.iter().map(|claim| claim.job_id);
        let alone_claims = waiting_for_whole.chain(claims).take(1).map(elsewhere).collect();
        Some(ClusterView {
            devices: self.devices.clone(),
            alone_claims,
            trials: crate::TrialBook::default(),
            ..sets
        })
    }

    fn is_own(&self, pairing: &Pairing) -> bool {
        pairing.members.iter().any(|member| self.starting.contains(&member.start))
    }

    /// Whether all who were given a set start here as well.
    fn keep_their_start(&self, found: &Plan) -> bool {
        let started = starts(&found.pairings);
        self.starting.iter().all(|start| started.contains(&start.job_id))
    }

    /// The plan with what was found for them.
    fn merged(&self, ground: &Ground<'_>, mut plan: Plan, found: Plan) -> Plan {
        plan.pairings.retain(|pairing| !self.is_own(pairing));
        let started = starts(&found.pairings);
        plan.left_waiting.retain(|left| !started.contains(&left.job_id));
        plan.pairings.extend(found.pairings.into_iter().filter_map(|pairing| self.widened(ground, pairing)));
        for left in found.left_waiting {
            let known = plan.left_waiting.iter_mut().find(|known| known.job_id == left.job_id);
            if let (Some(known), Some(first)) = (known, left.candidates.first()) {
                let why = first.excluded_by.map(|why| words::alone(&known.text, why.text()));
                known.text = why.map_or_else(|| Arc::clone(&known.text), Arc::from);
                known.candidates = left.candidates;
            }
        }
        plan
    }

    /// The same on all devices of the set.
    fn widened(&self, ground: &Ground<'_>, pairing: Pairing) -> Option<Pairing> {
        // Written by `as_one`.
        let gres_types: GresTypes = pairing.gres_types.first().as_str().parse().ok()?;
        let count = gres_types.count();
        if let ([member], None) = (pairing.members.as_slice(), pairing.joins)
            && member.role == Role::Alone
        {
            let job = self.jobs.iter().find(|job| job.start == member.start)?;
            let places = ground.places(&pairing.node, &gres_types)?;
            return Some(started(job, ground.view, &places, &member.explanation.model));
        }
        let node = pairing.node.clone();
        let members = pairing.members.into_iter().map(|member| {
            let text = words::shares(&node, count, &member.explanation.text).into();
            let explanation = Explanation { text, ..member.explanation };
            crate::plan::Member { explanation, ..member }
        });
        #[expect(clippy::cast_precision_loss, reason = "a node has a few devices")]
        let gain = pairing.gain * count as f64;
        Some(Pairing { members: members.collect(), gres_types, gain, ..pairing })
    }
}

impl Ground<'_> {
    /// The places of these devices in the view.
    fn places(&self, node: &NodeName, gres_types: &GresTypes) -> Option<Vec<usize>> {
        let at = |own: &GresType| {
            self.view.devices.iter().position(|device| device.node == *node && device.gres_type == *own)
        };
        gres_types.iter().map(at).collect()
    }

    fn devices(&self, places: &[usize]) -> Vec<&DeviceView> {
        places.iter().map(|place| &self.view.devices[*place]).collect()
    }

    /// The devices that a job was given whole.
    fn free_set(&self, pairing: &Pairing) -> Option<DeviceView> {
        let is_whole =
            pairing.joins.is_none() && matches!(pairing.members.as_slice(), [one] if one.role == Role::Alone);
        let places = self.places(&pairing.node, &pairing.gres_types).filter(|_| is_whole)?;
        as_one(&self.devices(&places), &pairing.gres_types, self.policy)
    }

    /// Those on which jobs of so many devices run.
    fn running_sets(&self, width: u8) -> Vec<DeviceView> {
        let all = self.view.devices.iter().filter_map(|device| {
            let set = device.tenants.first()?.set.as_ref()?;
            let is_its = set.count() == usize::from(width) && *set.first() == device.gres_type;
            is_its.then_some((&device.node, set))
        });
        let joinable = all.filter_map(|(node, set)| {
            let places = self.places(node, set)?;
            let devices = self.devices(&places);
            // A node whose CPUs somebody waits for takes nobody.
            let is_kept = places.iter().any(|place| self.closed[*place] == Some(words::KEPT));
            let jobs = |device: &DeviceView| device.tenants.iter().map(|own| own.job_id).collect::<Vec<_>>();
            let are_one = devices.iter().all(|device| {
                let is_whole = device.tenants.iter().all(|tenant| tenant.set.as_ref() == Some(set));
                is_whole && jobs(device) == jobs(devices[0])
            });
            let set = as_one(&devices, set, self.policy).filter(|_| are_one)?;
            let blocked = set.blocked.or_else(|| is_kept.then(|| words::KEPT.to_owned()));
            Some(DeviceView { blocked, ..set })
        });
        joinable.collect()
    }
}

/// A set as one device: with as much as there is of each; `None` where they are not alike, or cannot be shared as one.
fn as_one(devices: &[&DeviceView], gres_types: &GresTypes, policy: &Policy) -> Option<DeviceView> {
    let first = *devices.first()?;
    let are_alike = devices.iter().all(|own| own.model == first.model && own.mechanism == first.mechanism);
    if !are_alike || !first.mechanism.takes_several() {
        return None;
    }
    let least = |of: fn(&DeviceView) -> u64| devices.iter().map(|own| of(own)).min().unwrap_or(0);
    let shards_free = devices.iter().map(|own| own.shards_free).min().unwrap_or(0);
    let is_named = |name: &&String| devices.iter().all(|own| own.gpu_types.contains(name));
    let tenants = first.tenants.iter().map(|tenant| Tenant {
        set: None,
        rules: Some(limited(tenant.rules(policy))),
        ..tenant.clone()
    });
    Some(DeviceView {
        node: first.node.clone(),
        gres_type: GresType::new(gres_types.to_string()),
        model: first.model.clone(),
        gpu_types: first.gpu_types.iter().filter(is_named).cloned().collect(),
        memory_bytes: least(|own| own.memory_bytes),
        mechanism: first.mechanism,
        shards_free,
        tenants: tenants.collect(),
        blocked: devices.iter().find_map(|own| own.blocked.clone()),
        geometry: None,
        is_shape_held: false,
        instances_empty: Vec::new(),
        alone_until: None,
        links: BTreeMap::new(),
    })
}

/// A wide job as one that wants one device, which is a set.
fn as_narrow(job: &WaitingJob, policy: &Policy) -> WaitingJob {
    let rules = Some(limited(job.rules(policy)));
    WaitingJob { device_count: 1, fallback: None, rules, ..job.clone() }
}

/// What the site says of a job, and no more than is done with sets.
fn limited(rules: JobRules) -> JobRules {
    JobRules { tenants_max: rules.tenants_max.min(TENANTS_MAX), trials: false, ..rules }
}

/// Somebody who waits for devices that are not among the sets.
fn elsewhere(job_id: SlurmJobId) -> AloneClaim {
    AloneClaim {
        job_id,
        required_nodes: vec![NodeName::new("")],
        gres_types: None,
        node_count: 1,
        cpus: 0,
        memory_mib: 0,
        waits: None,
    }
}

#[cfg(test)]
mod tests;
