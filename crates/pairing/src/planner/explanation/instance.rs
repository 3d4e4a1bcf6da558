//! A job that starts in an instance of its own, and two of one user that share one.

use super::{Explainer, words};
use crate::plan::{CANDIDATES_MAX, Member, Reason, Role};
use crate::planner::admit;
use crate::planner::placement::{Instance, Start, shards};
use pillion_core::mig::{Geometry, Slot};
use pillion_core::{Shards, share};

/// What is gained: in an instance, how much faster they are than the part of the device that they take.
pub(super) fn gain(start: &Start, shares: &[Shards]) -> f64 {
    let part: f64 = shares.iter().map(|part| f64::from(part.count()) / 100.0).sum();
    match start.instance {
        Some(own) => own.together.map_or(own.speed.speed_fraction, |both| both.speed_sum()) - part,
        None => start.evaluation.as_ref().map_or(0.0, |evaluation| evaluation.gain),
    }
}

impl Explainer<'_, '_> {
    /// What is booked for an instance: all that it is, of two in it to each by what it uses.
    pub(super) fn shares_of_instance(
        &self,
        start: &Start,
        own: Instance,
        geometry: &Geometry,
    ) -> Vec<Shards> {
        let all = geometry.shards(own.slot.profile);
        let (Some(both), [host, guest]) = (own.together, start.jobs.as_slice()) else { return vec![all] };
        let kind = self.context.kind_of[start.device];
        let uses = [(0, *host), (1, *guest)].map(|(index, job)| {
            self.use_expected(self.context.class_of[job], kind) * both.speeds[index].speed_fraction
        });
        shards::of_pair_in(all, uses).to_vec()
    }

    /// A job that has an instance to itself: as much memory as that has, and as fast as was measured there or is foretold.
    pub(super) fn member_in_instance(
        &self,
        start: &Start,
        instance: Instance,
        index: usize,
        shards: Shards,
    ) -> Member {
        let (job, device) = (start.jobs[index], &self.context.devices[start.device]);
        let waiting = &self.context.jobs[job];
        let Slot { profile, start: first } = instance.slot;
        let size = device.geometry.as_ref().and_then(|geometry| geometry.size(profile));
        let candidates = self.candidates(job, Some(start.device), None, CANDIDATES_MAX);
        if let Some(both) = instance.together {
            let (cap, admitted) = (both.caps[index], both.memory_bytes[index]);
            let kind = self.context.kind_of[start.device];
            let limit =
                admit::limit_of_each(admitted, self.context.profile(self.context.class_of[job], kind));
            let text =
                words::shared_instance_text(instance.slot, both.speeds[index], waiting.slowdown_ratio_max);
            return Member {
                start: waiting.start,
                workload: waiting.workload.clone(),
                role: if index == 0 { Role::Host } else { Role::Joiner },
                sharing: share::Sharing::MigMps {
                    profile,
                    start: first,
                    cap,
                    memory_limit_bytes: Some(limit),
                },
                shards,
                memory_bytes: Some(admitted),
                estimate: Some(both.speeds[index].as_estimate()),
                explanation: self.explanation(job, Reason::SharedInstance, text, candidates),
            };
        }
        let text = words::instance_text(instance, waiting.slowdown_ratio_max);
        let reason = if instance.is_tried { Reason::SmallerInstance } else { Reason::OwnInstance };
        Member {
            start: waiting.start,
            workload: waiting.workload.clone(),
            role: Role::Host,
            sharing: share::Sharing::Mig { profile, start: first },
            shards,
            memory_bytes: size.and_then(|size| size.memory_bytes),
            estimate: Some(instance.speed.as_estimate()),
            explanation: self.explanation(job, reason, text, candidates),
        }
    }
}
