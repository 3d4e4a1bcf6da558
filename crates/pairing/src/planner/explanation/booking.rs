//! What each starting job is booked with, so that whoever may come finds shards left.

use super::Explainer;
use crate::plan::Reason;
use crate::planner::candidates::Evaluation;
use crate::planner::classes::Seats;
use crate::planner::index::{ClassIndex, KindIndex};
use crate::planner::placement::{Start, shards};
use crate::planner::session;
use pillion_core::Shards;
use pillion_core::share::Sharing;

impl Explainer<'_, '_> {
    /// What each starting job is booked with, and whether a lone one may be joined.
    pub(super) fn shares(&self, start: &Start) -> Vec<Shards> {
        let geometry = self.context.devices[start.device].geometry.as_ref();
        if let Some((own, geometry)) = start.instance.zip(geometry) {
            return self.shares_of_instance(start, own, geometry);
        }
        let (context, kind) = (self.context, self.context.kind_of[start.device]);
        let first = context.class_of[start.jobs[0]];
        match (&start.evaluation, start.jobs.len()) {
            (Some(evaluation), 2) => {
                let both = [first, context.class_of[start.jobs[1]]];
                let speeds = [0, 1].map(|index| evaluation.estimates[index].speed_fraction);
                let uses = [0, 1].map(|index| self.use_expected(both[index], kind) * speeds[index]);
                shards::of_pair(uses, self.seats(both, start, evaluation)).to_vec()
            }
            (Some(evaluation), _) => {
                let device = &context.devices[start.device];
                let others: u32 = device.tenants.iter().map(|tenant| u32::from(tenant.shards.count())).sum();
                let (own_use, others_use) = (self.use_expected(first, kind), f64::from(others) / 100.0);
                let taken = u32::try_from(device.tenants.len()).unwrap_or(u32::MAX).saturating_add(1);
                let seats = self.seats([first; 2], start, evaluation);
                vec![shards::of_joiner(own_use, others_use, device.shards_free, taken, seats)]
            }
            (None, _) => {
                vec![match self.evaluator.may_host(first, kind).and_then(|()| context.sharer(first, kind)) {
                    Ok(_) => {
                        let sharing = Sharing::by(context.kinds[kind].mechanism, None, None);
                        let seats = context.tenants_max([first; 2], kind, None, sharing);
                        shards::of_host(self.use_expected(first, kind), seats)
                    }
                    Err(why) => self.shards_of_unknown(why, first, kind).unwrap_or(Shards::ALL),
                }]
            }
        }
    }

    /// For how many the device of those that share it has shards: these two, or one that joins.
    fn seats(&self, both: [ClassIndex; 2], start: &Start, evaluation: &Evaluation) -> Seats {
        let context = self.context;
        let (device, kind) = (&context.devices[start.device], context.kind_of[start.device]);
        let cap = evaluation.caps.first().copied().flatten();
        let sharing = Sharing::by(device.mechanism, cap, evaluation.ccs_mode);
        context.tenants_max(both, kind, start.is_join.then_some(start.device), sharing)
    }

    /// What is booked for a job of which nothing is foretold, where it may be joined later.
    fn shards_of_unknown(&self, why_alone: Reason, class: ClassIndex, kind: KindIndex) -> Option<Shards> {
        let context = self.context;
        session::shards_of_unknown(why_alone, context.classes[class], context.kinds[kind], context.policy)
    }

    /// How much of such a device a job is expected to use, 0..=1; all of it where that is not known.
    pub(super) fn use_expected(&self, class: ClassIndex, kind: KindIndex) -> f64 {
        let beyond = self.context.classes[class].use_beyond_fraction;
        self.context.sharer(class, kind).map_or(1.0, |(profile, _)| shards::use_expected(profile, beyond))
    }
}
