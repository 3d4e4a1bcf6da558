//! Which of the jobs that wait may have an instance of a device, and how fast each would be in which size. Must not choose.

use crate::fit::MemoryFit;
use crate::mig::{SliceJob, SliceKnowledge, bound_without_promise};
use crate::planner::admit::{self, Owner};
use crate::planner::classes::PlanContext;
use crate::planner::free_capacity::FreeCapacity;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex};
use crate::planner::selection;
use pillion_core::fault::RESTART_RUN_SECONDS_MAX;
use pillion_core::mig::Geometry;
use std::collections::BTreeSet;

/// Jobs that are offered instances of one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'o> {
    pub(super) device: DeviceIndex,
    /// In the order of the queue.
    pub(super) jobs: &'o [JobIndex],
    /// Those that start on it if it is not cut.
    pub(super) rights: &'o [JobIndex],
    /// Those that its node has no room for beside the others.
    pub(super) without: &'o BTreeSet<JobIndex>,
}

/// For each job of an offer, whether it may have an instance of the device at all. Who may not still waits for all of it.
pub(super) fn is_offered(
    context: &PlanContext<'_>,
    offer: &Offer<'_>,
    capacity: &FreeCapacity,
    has_waiting_claim: bool,
) -> Vec<bool> {
    // Whoever has a right comes first: others are his neighbours, or are not there.
    let tenants =
        context.devices[offer.device].tenants.iter().map(|tenant| Owner::of_tenant(tenant, context.policy));
    let rights = offer.rights.iter().map(|job| Owner::of_waiting(&context.jobs[*job], context.policy));
    let mut owners: Vec<Owner<'_>> = tenants.chain(rights).collect();
    let may_have = |job: &JobIndex| {
        let waiting = &context.jobs[*job];
        if waiting.solo_cap.is_some() || waiting.owes_runs > 0 || offer.without.contains(job) {
            return false;
        }
        if offer.rights.contains(job) {
            return true;
        }
        let owner = Owner::of_waiting(waiting, context.policy);
        let is_let = owners.iter().all(|other| admit::owners_may_be_neighbours(*other, owner).is_ok());
        let may_have = is_let
            && capacity.node_meets(context, offer.device, context.class_of[*job])
            && !(has_waiting_claim && outlives(context, offer, *job));
        if may_have {
            owners.push(owner);
        }
        may_have
    };
    offer.jobs.iter().map(may_have).collect()
}

/// Whether a job could hold the device longer than all who are there, or have a right to be.
fn outlives(context: &PlanContext<'_>, offer: &Offer<'_>, job: JobIndex) -> bool {
    if context.devices[offer.device].tenants.is_empty() {
        return offer.rights.iter().all(|host| selection::outlives_job(context, job, *host, offer.device));
    }
    selection::outlives_tenants(context, job, offer.device)
}

/// How fast jobs of a class are in each size of a device of this model, where that is known and they have room. A promise that is
/// looser than the bound for those whom nobody promised anything is held to that bound.
pub(super) fn in_sizes(
    context: &PlanContext<'_>,
    class: ClassIndex,
    model: &str,
    geometry: &Geometry,
) -> SliceJob {
    let job = context.classes[class];
    let learnt = context.view.slices.get(&job.workload, model);
    let profile = context.profile_on(class, model);
    let under_limits = profile.map(MemoryFit::from).unwrap_or_default();
    let known = SliceKnowledge {
        profile: admit::known(profile, context.policy).ok(),
        memory_bytes_declared: job.memory_bytes_declared,
        fit: under_limits.and(learnt.map(|learnt| learnt.fit).unwrap_or_default()),
        measured: learnt.map(|learnt| &learnt.measured),
        is_tried_smaller: job.may_run_out && learnt.is_none() && !is_in_an_instance(context, class, model),
    };
    let bound = bound_without_promise();
    let promise = if job.slowdown_ratio_max.value() < bound.value() { job.slowdown_ratio_max } else { bound };
    let mut own = SliceJob::new(Some(promise), job.submitted_at, &known, geometry);
    if known.profile.is_none() {
        own.speeds.clear();
    }
    own.duration_seconds = job.duration_seconds_expected.or(own.duration_seconds);
    if !runs_out_in_time(&own) {
        own.do_not_try();
    }
    own
}

/// Whether somebody of the same workload is in an instance of such a device: what comes of it is not known yet.
fn is_in_an_instance(context: &PlanContext<'_>, class: ClassIndex, model: &str) -> bool {
    let workload = Some(&context.classes[class].workload);
    let alike = context.devices.iter().filter(|device| device.model == model);
    let mut tenants = alike.flat_map(|device| &device.tenants);
    tenants.any(|tenant| tenant.workload.as_ref() == workload && tenant.sharing.mig_slot().is_some())
}

/// Whether it would be started again however late it ran out of memory in the size that it would be tried in.
fn runs_out_in_time(job: &SliceJob) -> bool {
    let speed = job.tried.and_then(|tried| job.speeds.get(&tried));
    let seconds = speed.zip(job.duration_seconds).map(|(speed, seconds)| seconds / speed.speed_fraction_low);
    seconds.is_some_and(|seconds| seconds <= RESTART_RUN_SECONDS_MAX)
}

/// Whether jobs of a class have room in some size, and would be slower than promised in each of those.
pub(super) fn is_too_slow(
    context: &PlanContext<'_>,
    class: ClassIndex,
    model: &str,
    geometry: &Geometry,
) -> bool {
    let job = context.classes[class];
    let may_be_asked = job.solo_cap.is_none() && job.owes_runs == 0;
    let own = in_sizes(context, class, model, geometry);
    may_be_asked && !own.speeds.is_empty() && own.speeds.keys().all(|size| own.may_have(*size).is_err())
}
