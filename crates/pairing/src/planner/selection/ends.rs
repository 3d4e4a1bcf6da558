//! Who could hold a device longer than whom, by the limits of both.

use crate::planner::admit;
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex};
use pillion_core::UnixTime;
use typed_index_collections::TiVec;

/// When jobs end by their limits, as numbers: of each class, how many different ends are earlier.
pub(super) struct Ends {
    sorted: Vec<UnixTime>,
    pub(super) of_class: TiVec<ClassIndex, usize>,
}

impl Ends {
    pub(super) fn new(context: &PlanContext<'_>) -> Self {
        let ends: TiVec<ClassIndex, Option<UnixTime>> =
            context.classes.iter().map(|job| admit::latest_end(job, context.view.taken_at)).collect();
        let mut sorted: Vec<UnixTime> = ends.iter().flatten().copied().collect();
        sorted.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        sorted.dedup();
        // Whoever has no limit ends after all others.
        let of_class = ends
            .iter()
            .map(|end| end.map_or(sorted.len(), |end| sorted.partition_point(|other| *other < end)));
        Self { of_class: of_class.collect(), sorted }
    }

    /// How many of the different ends of classes are no later than this one; `None` = no limit.
    pub(super) fn rank(&self, end: Option<UnixTime>) -> usize {
        end.map_or(usize::MAX, |end| self.sorted.partition_point(|other| *other <= end))
    }

    /// Whether a job of this class may run on when that is over which ends at this rank.
    pub(super) fn outlives(&self, class: ClassIndex, rank: usize) -> bool {
        self.of_class[class] >= rank
    }
}

/// Whether a joiner could run on when the job that it starts with is over.
pub(crate) fn outlives_job(context: &PlanContext<'_>, joiner: JobIndex, host: JobIndex) -> bool {
    let [joiner_end, host_end] =
        [joiner, host].map(|job| admit::latest_end(&context.jobs[job], context.view.taken_at));
    admit::outlives(joiner_end, host_end)
}

/// Whether a joiner could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(context: &PlanContext<'_>, joiner: JobIndex, device: DeviceIndex) -> bool {
    let end = admit::latest_end(&context.jobs[joiner], context.view.taken_at);
    admit::outlives(end, last_end(context, device))
}

/// When the last that runs on a device is over; `None` = no limit.
pub(super) fn last_end(context: &PlanContext<'_>, device: DeviceIndex) -> Option<UnixTime> {
    let ends = context.devices[device].tenants.iter().map(|tenant| tenant.time_limit_at);
    ends.reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b })).flatten()
}
