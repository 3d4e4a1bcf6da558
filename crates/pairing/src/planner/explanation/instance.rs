//! A job that starts in an instance of its own.

use super::{Explainer, words};
use crate::plan::{CANDIDATES_MAX, Member, Reason, Role};
use crate::planner::placement::{Instance, Start};
use pillion_core::mig::Slot;
use pillion_core::{Shards, share};

/// What is gained: in an instance, how much faster it is than the part of the device that it takes.
pub(super) fn gain(start: &Start, shares: &[Shards]) -> f64 {
    match (start.instance, shares) {
        (Some(own), [part, ..]) => own.speed.speed_fraction - f64::from(part.count()) / 100.0,
        _ => start.evaluation.as_ref().map_or(0.0, |evaluation| evaluation.gain),
    }
}

impl Explainer<'_, '_> {
    /// A job that has an instance to itself: as much memory as that has, and as fast as was measured there or is foretold.
    pub(super) fn member_in_instance(&self, start: &Start, instance: Instance, shards: Shards) -> Member {
        let (job, device) = (start.jobs[0], &self.context.devices[start.device]);
        let waiting = &self.context.jobs[job];
        let Slot { profile, start: first } = instance.slot;
        let size = device.geometry.as_ref().and_then(|geometry| geometry.size(profile));
        let candidates = self.candidates(job, Some(start.device), None, CANDIDATES_MAX);
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
