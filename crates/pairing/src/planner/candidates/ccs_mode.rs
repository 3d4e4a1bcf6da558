//! In which CCS mode two jobs start together (docs/principles.md#order-of-service). A card keeps its mode while anyone
//! runs there, so halves are for two and no more; quarters are worth their cost only where a third will come that fits
//! in one.

use super::caps::CAP_GAIN_MIN;
use super::{CCS_MODE_SHARED, Seat, Verdict};
use crate::plan::Reason;
use crate::planner::admit;
use crate::planner::classes::PlanContext;
use crate::planner::index::{ClassIndex, KindIndex};
use std::cmp::Reverse;
use std::rc::Rc;

/// The mode of a card that up to four share.
const CCS_MODE_CROWDED: u8 = 4;
/// So many classes are looked at as the third of a pair, the most numerous first.
const THIRDS_MAX: usize = 8;

impl<'a> PlanContext<'a> {
    /// How many tenants a device may have in this mode.
    pub(crate) fn seats(&self, mode: Option<u8>) -> u32 {
        mode.map_or(u32::MAX, u32::from).min(self.policy.tenants_max)
    }

    /// Two waiting jobs, by class, that start together; on a card in the mode that is worth more.
    pub(super) fn in_best_mode(
        &self,
        pair: [ClassIndex; 2],
        seats: [Seat<'a>; 2],
        kind: KindIndex,
    ) -> Result<Verdict, Reason> {
        let device = self.kinds[kind];
        if !device.mechanism.has_modes() {
            return self.look_at(&seats, device, None);
        }
        let in_halves = self.look_at(&seats, device, Some(CCS_MODE_SHARED));
        if self.policy.tenants_max <= 2 || !self.is_crowded {
            return in_halves;
        }
        let in_quarters = self.look_at(&seats, device, Some(CCS_MODE_CROWDED));
        match (&in_halves, in_quarters) {
            (Ok(halves), Ok(quarters)) if quarters.is_admitted() => {
                let worth_of_halves = if halves.is_admitted() { halves.value() } else { 0.0 };
                let third = self.worth_of_third(pair, seats, kind);
                let is_better = quarters.value() + third >= worth_of_halves + CAP_GAIN_MIN;
                if third > 0.0 && is_better { Ok(quarters) } else { in_halves }
            }
            _ => in_halves,
        }
    }

    /// The most that another waiting job wins by joining these two in quarters; 0 if none may.
    fn worth_of_third(&self, pair: [ClassIndex; 2], seats: [Seat<'a>; 2], kind: KindIndex) -> f64 {
        let first = self.classes[pair[0]];
        let guests = self.quarter_guests(kind);
        let thirds = guests.iter().copied().filter(|class| {
            let job = self.classes[*class];
            let taken = pair.iter().filter(|member| *member == class).count();
            self.startable_count[*class] > taken
                && (&job.partition, &job.gpu_type) == (&first.partition, &first.gpu_type)
        });
        let worths = thirds.take(THIRDS_MAX).filter_map(|third| self.value_with_third(seats, third, kind));
        worths.fold(0.0, f64::max)
    }

    /// What these three are worth together in quarters; `None` where they may not.
    fn value_with_third(&self, seats: [Seat<'a>; 2], third: ClassIndex, kind: KindIndex) -> Option<f64> {
        let seats = [seats[0], seats[1], self.waiting_seat(third, kind).ok()?];
        let verdict = self.look_at(&seats, self.kinds[kind], Some(CCS_MODE_CROWDED)).ok()?;
        verdict.is_admitted().then(|| verdict.value())
    }

    /// The classes that keep their promise alone in a quarter, the most numerous first: found once for all pairs.
    fn quarter_guests(&self, kind: KindIndex) -> Rc<[ClassIndex]> {
        if let Some(found) = self.found.quarter_guests.borrow().get(&kind) {
            return Rc::clone(found);
        }
        let mut guests: Vec<ClassIndex> =
            self.classes.keys().filter(|class| self.fits_in_quarter(*class, kind)).collect();
        guests.sort_by_key(|class| Reverse(self.startable_count[*class]));
        let guests: Rc<[ClassIndex]> = guests.into();
        self.found.quarter_guests.borrow_mut().insert(kind, Rc::clone(&guests));
        guests
    }

    fn fits_in_quarter(&self, class: ClassIndex, kind: KindIndex) -> bool {
        let Ok(seat) = self.waiting_seat(class, kind) else { return false };
        let alone = self.predict(&[seat], &[None], self.kinds[kind], Some(CCS_MODE_CROWDED));
        alone.is_ok_and(|alone| admit::keeps_promise(&alone[0], seat.promise))
    }
}
