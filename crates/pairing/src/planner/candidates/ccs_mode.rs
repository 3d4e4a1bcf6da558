//! In which CCS mode two jobs start together (docs/principles.md#order-of-service). A card keeps its mode while anyone
//! runs there, so halves are for two and no more; quarters are worth their cost only where a third will come that fits
//! in one.

use super::caps::CAP_GAIN_MIN;
use super::evaluation::Evaluation;
use super::evaluator::Evaluator;
use super::tenant::CandidateTenant;
use super::tenants_max;
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::index::{ClassIndex, KindIndex};
use std::cmp::Reverse;
use std::rc::Rc;

/// The mode of a card that two share, and of one on which a job starts that may be joined
/// (docs/principles.md#order-of-service).
pub(crate) const CCS_MODE_SHARED: u8 = 2;
/// The mode of a card that up to four share.
const CCS_MODE_CROWDED: u8 = 4;
/// So many classes are evaluated as the third of a pair, the most numerous first.
const THIRDS_MAX: usize = 8;

impl<'a> Evaluator<'_, 'a> {
    /// Two waiting jobs, by class, that start together; on a card in the mode that is worth more.
    pub(super) fn in_best_mode(
        &self,
        pair: [ClassIndex; 2],
        tenants: [CandidateTenant<'a>; 2],
        kind: KindIndex,
    ) -> Result<Evaluation, Reason> {
        let device = self.context.kinds[kind];
        if !device.mechanism.has_modes() {
            return self.evaluate(&tenants, device, None);
        }
        let in_halves = self.evaluate(&tenants, device, Some(CCS_MODE_SHARED));
        if tenants_max(&tenants, device) <= 2 || !self.context.is_crowded {
            return in_halves;
        }
        let in_quarters = self.evaluate(&tenants, device, Some(CCS_MODE_CROWDED));
        match (&in_halves, in_quarters) {
            (Ok(halves), Ok(quarters)) if quarters.is_admitted() => {
                let worth_of_halves = if halves.is_admitted() { halves.value() } else { 0.0 };
                let third = self.worth_of_third(pair, tenants, kind);
                let is_better = quarters.value() + third >= worth_of_halves + CAP_GAIN_MIN;
                if third > 0.0 && is_better { Ok(quarters) } else { in_halves }
            }
            _ => in_halves,
        }
    }

    /// The most that another waiting job wins by joining these two in quarters; 0 if none may.
    fn worth_of_third(
        &self,
        pair: [ClassIndex; 2],
        tenants: [CandidateTenant<'a>; 2],
        kind: KindIndex,
    ) -> f64 {
        let first = self.context.classes[pair[0]];
        let joiners = self.quarter_joiners(kind);
        let thirds = joiners.iter().copied().filter(|class| {
            let job = self.context.classes[*class];
            let taken = pair.iter().filter(|member| *member == class).count();
            self.context.startable_count[*class] > taken
                && (&job.partition, &job.gpu_type) == (&first.partition, &first.gpu_type)
        });
        let worths = thirds.take(THIRDS_MAX).filter_map(|third| self.value_with_third(tenants, third, kind));
        worths.fold(0.0, f64::max)
    }

    /// What these three are worth together in quarters; `None` where they may not.
    fn value_with_third(
        &self,
        tenants: [CandidateTenant<'a>; 2],
        third: ClassIndex,
        kind: KindIndex,
    ) -> Option<f64> {
        let tenants = [tenants[0], tenants[1], self.waiting_tenant(third, kind).ok()?];
        let evaluation = self.evaluate(&tenants, self.context.kinds[kind], Some(CCS_MODE_CROWDED)).ok()?;
        evaluation.is_admitted().then(|| evaluation.value())
    }

    /// The classes that keep their promise alone in a quarter, the most numerous first: found once for all pairs.
    fn quarter_joiners(&self, kind: KindIndex) -> Rc<[ClassIndex]> {
        if let Some(found) = self.found.quarter_joiners.borrow().get(&kind) {
            return Rc::clone(found);
        }
        let mut joiners: Vec<ClassIndex> =
            self.context.classes.keys().filter(|class| self.fits_in_quarter(*class, kind)).collect();
        joiners.sort_by_key(|class| Reverse(self.context.startable_count[*class]));
        let joiners: Rc<[ClassIndex]> = joiners.into();
        self.found.quarter_joiners.borrow_mut().insert(kind, Rc::clone(&joiners));
        joiners
    }

    fn fits_in_quarter(&self, class: ClassIndex, kind: KindIndex) -> bool {
        let Ok(tenant) = self.waiting_tenant(class, kind) else { return false };
        let alone = self.predict(&[tenant], &[None], self.context.kinds[kind], Some(CCS_MODE_CROWDED));
        alone.is_ok_and(|alone| admit::keeps_promise(&alone[0], tenant.promise))
    }
}
