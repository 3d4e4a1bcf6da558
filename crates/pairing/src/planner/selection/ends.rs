//! Who could hold a device longer than whom: by what their workloads are known to take, else by their time limits.

use crate::planner::classes::PlanContext;
use crate::planner::ends;
use crate::planner::index::{ClassIndex, DeviceIndex, JobIndex, KindIndex};
use pillion_core::UnixTime;
use typed_index_collections::TiVec;

/// By class and kind of device.
type ByPlace<T> = TiVec<ClassIndex, TiVec<KindIndex, T>>;

/// When jobs end that would start now, as numbers: how many different ends of joiners are earlier. Each end is looked up once, for there
/// are as many pairs of groups as groups squared.
pub(super) struct Ends {
    sorted: Vec<UnixTime>,
    of_joiner: ByPlace<usize>,
    /// How many of them are no later than when the class would end as a host.
    of_host: ByPlace<usize>,
}

impl Ends {
    pub(super) fn new(context: &PlanContext<'_>) -> Self {
        let all = by_place(context, end_of_joiner);
        let mut sorted: Vec<UnixTime> = all.iter().flatten().flatten().copied().collect();
        sorted.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        sorted.dedup();
        // Whoever has no end ends after all others.
        let place = |end: &Option<UnixTime>| {
            end.map_or(sorted.len(), |end| sorted.partition_point(|other| *other < end))
        };
        let of_joiner = all.iter().map(|of_kind| of_kind.iter().map(place).collect()).collect();
        let hosts = by_place(context, end_of_host);
        let of_host = hosts.iter().map(|of_kind| of_kind.iter().map(|end| rank(&sorted, *end)).collect());
        Self { of_host: of_host.collect(), sorted, of_joiner }
    }

    /// How many of the different ends of joiners are no later than this one; `None` = no end.
    pub(super) fn rank(&self, end: Option<UnixTime>) -> usize {
        rank(&self.sorted, end)
    }

    /// Whether a job of this class may run on, on such a device, when that is over which ends at this rank.
    pub(super) fn outlives(&self, class: ClassIndex, kind: KindIndex, rank: usize) -> bool {
        self.of_joiner[class][kind] >= rank
    }

    /// Whether a job of the one class may run on, on such a device, when one of the other is over.
    pub(super) fn outlives_host(&self, joiner: ClassIndex, host: ClassIndex, kind: KindIndex) -> bool {
        self.outlives(joiner, kind, self.of_host[host][kind])
    }
}

fn by_place<'a>(
    context: &PlanContext<'a>,
    end: fn(&PlanContext<'a>, ClassIndex, KindIndex) -> Option<UnixTime>,
) -> ByPlace<Option<UnixTime>> {
    let of_class = |class| context.kinds.keys().map(|kind| end(context, class, kind)).collect();
    context.classes.keys().map(of_class).collect()
}

fn rank(sorted: &[UnixTime], end: Option<UnixTime>) -> usize {
    end.map_or(usize::MAX, |end| sorted.partition_point(|other| *other <= end))
}

/// Whether a joiner could run on when the job is over that it starts with on such a device.
pub(crate) fn outlives_job(
    context: &PlanContext<'_>,
    joiner: JobIndex,
    host: JobIndex,
    device: DeviceIndex,
) -> bool {
    let kind = context.kind_of[device];
    let [joiner, host] = [joiner, host].map(|job| context.class_of[job]);
    ends::outlives(end_of_joiner(context, joiner, kind), end_of_host(context, host, kind))
}

/// Whether a joiner could run on when all that run on a device are over.
pub(crate) fn outlives_tenants(context: &PlanContext<'_>, joiner: JobIndex, device: DeviceIndex) -> bool {
    let end = end_of_joiner(context, context.class_of[joiner], context.kind_of[device]);
    ends::outlives(end, last_end(context, device))
}

/// When the last that runs on a device is over; `None` = nobody knows.
pub(super) fn last_end(context: &PlanContext<'_>, device: DeviceIndex) -> Option<UnixTime> {
    let view = &context.devices[device];
    // Whoever outlives guests has the device in their place, as anybody may: they would have gone for it.
    let all = view.tenants.iter().filter(|tenant| tenant.guest.is_none()).map(|tenant| {
        let workload = tenant.workload.as_ref();
        let profile =
            workload.and_then(|workload| context.profile_index.get(&(workload, view.model.as_str())));
        let profile = profile.map(|profile| context.profiles[*profile]);
        ends::end_of_tenant(tenant, profile, context.view.taken_at, context.policy)
    });
    all.reduce(|a, b| Some(a?).zip(b).map(|(a, b)| if a > b { a } else { b })).flatten()
}

/// When a job of this class is over that starts now with nobody beside it; `None` = nobody knows.
fn end_of_host(context: &PlanContext<'_>, class: ClassIndex, kind: KindIndex) -> Option<UnixTime> {
    let (job, profile) = (context.classes[class], context.profile_on(class, &context.kinds[kind].model));
    ends::end_of_host(job, profile, context.view.taken_at, context.policy)
}

fn end_of_joiner(context: &PlanContext<'_>, class: ClassIndex, kind: KindIndex) -> Option<UnixTime> {
    let (job, profile) = (context.classes[class], context.profile_on(class, &context.kinds[kind].model));
    ends::end_of_joiner(job, profile, context.view.taken_at, context.policy)
}
