//! Which caps are tried, and when one is worth having. No cap is the default (docs/principles.md#caps): measured,
//! uncapped tenants beat an even split on average, and a cap pays where one tenant hogs.

use crate::allow::AllowList;
use crate::policy::JobRules;
use pillion_core::profile::WorkloadProfile;
use pillion_core::{Fraction, WorkloadKey};

/// A cap is set only for this much more than without one: less is within the noise of measurements.
pub(crate) const CAP_GAIN_MIN: f64 = 0.05;
/// Tenants that are all this fast without caps need none.
pub(crate) const FAST_ENOUGH_FRACTION: f64 = 0.95;

/// The cap of one tenant, before the choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CapSlot {
    /// It runs already: an MPS cap is fixed for a client's life. Or it may have none.
    Fixed(Option<Fraction>),
    /// It starts now.
    Free,
}

impl CapSlot {
    /// Of one that starts now. MPS holds each process to a cap by itself: several of one job would have it several times.
    pub(crate) const fn of_new(rules: JobRules, profile: &WorkloadProfile) -> Self {
        if rules.caps && profile.process_count_peak <= 1 { Self::Free } else { Self::Fixed(None) }
    }

    fn takes(self, cap: Option<Fraction>, may_cap: bool) -> bool {
        match self {
            Self::Fixed(own) => cap == own,
            Self::Free => may_cap || cap.is_none(),
        }
    }
}

/// No caps where they can be chosen.
pub(crate) fn without_caps(slots: &[CapSlot]) -> Vec<Option<Fraction>> {
    slots.iter().map(|slot| if let CapSlot::Fixed(cap) = slot { *cap } else { None }).collect()
}

/// All sets of caps worth trying besides none: one tenant capped, or two free tenants kept apart, in steps of a tenth.
pub(crate) fn cap_sets(slots: &[CapSlot]) -> Vec<Vec<Option<Fraction>>> {
    let free: Vec<usize> = (0..slots.len()).filter(|index| slots[*index] == CapSlot::Free).collect();
    let mut sets = Vec::new();
    // Widest first: among equals the widest cap wins.
    for tenths in (1..=9_u8).rev() {
        for &capped in &free {
            let mut set = without_caps(slots);
            set[capped] = Some(tenth(tenths));
            sets.push(set);
        }
        if let [first, second] = free[..] {
            let mut set = without_caps(slots);
            (set[first], set[second]) = (Some(tenth(tenths)), Some(tenth(10 - tenths)));
            sets.push(set);
        }
    }
    sets
}

/// The sets of caps under which tenants may share that are bound to a list: each two of them by a combination of it. The
/// widest first.
pub(crate) fn allowed_sets(
    slots: &[CapSlot],
    workloads: &[&WorkloadKey],
    allowed: &AllowList,
    may_cap: bool,
) -> Vec<Vec<Option<Fraction>>> {
    let mut sets: Vec<Vec<Option<Fraction>>> = vec![Vec::new()];
    for (at, slot) in slots.iter().enumerate() {
        let beside = workloads[usize::from(at == 0)];
        let mut caps: Vec<Option<Fraction>> = allowed
            .caps(workloads[at], beside)
            .map(|(own, _)| own)
            .filter(|cap| slot.takes(*cap, may_cap))
            .collect();
        caps.dedup();
        let mut longer = Vec::new();
        for set in sets {
            for cap in caps.iter().rev().filter(|cap| goes_with(&set, **cap, workloads, allowed)) {
                longer.push([&set[..], &[*cap]].concat());
            }
        }
        sets = longer;
    }
    sets
}

/// Whether the next tenant may have this cap beside each of those before it, which have theirs.
fn goes_with(
    before: &[Option<Fraction>],
    cap: Option<Fraction>,
    workloads: &[&WorkloadKey],
    allowed: &AllowList,
) -> bool {
    let own = workloads[before.len()];
    let mut others = before.iter().zip(workloads);
    others.all(|(other_cap, other)| allowed.caps(other, own).any(|pair| pair == (*other_cap, cap)))
}

fn tenth(count: u8) -> Fraction {
    Fraction::clamped(f64::from(count) / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_free_tenants_have_one_capped_or_both_apart() {
        let sets = cap_sets(&[CapSlot::Free, CapSlot::Free]);
        assert_eq!(sets.len(), 27);
        assert!(sets.contains(&vec![Some(tenth(3)), Some(tenth(7))]));
        assert!(sets.contains(&vec![None, Some(tenth(9))]));
    }

    #[test]
    fn a_running_tenant_keeps_its_cap() {
        let kept = Some(tenth(6));
        let sets = cap_sets(&[CapSlot::Fixed(kept), CapSlot::Free]);
        assert_eq!(sets.len(), 9);
        assert!(sets.iter().all(|set| set[0] == kept));
    }

    #[test]
    fn a_list_leaves_its_own_combinations() {
        let (a, b) = (WorkloadKey::new("a"), WorkloadKey::new("b"));
        let mut allowed = AllowList::default();
        for (cap_a, cap_b) in [(Some(3), Some(7)), (None, Some(5)), (Some(3), None), (None, None)] {
            allowed.allow((&a, cap_a.map(tenth)), (&b, cap_b.map(tenth)));
        }
        let free = [CapSlot::Free; 2];
        let third = Some(tenth(3));
        assert_eq!(
            allowed_sets(&free, &[&a, &b], &allowed, true),
            [vec![None, None], vec![None, Some(tenth(5))], vec![third, None], vec![third, Some(tenth(7))]]
        );
        assert_eq!(allowed_sets(&free, &[&b, &a], &allowed, false), [vec![None, None]]);
        assert_eq!(
            allowed_sets(&[CapSlot::Fixed(Some(tenth(7))), CapSlot::Free], &[&b, &a], &allowed, true),
            [vec![Some(tenth(7)), third]]
        );
        assert_eq!(allowed_sets(&free, &[&a, &a], &allowed, true), Vec::<Vec<_>>::new());
        let three = allowed_sets(&[CapSlot::Free; 3], &[&a, &b, &b], &allowed, true);
        assert_eq!(three, Vec::<Vec<_>>::new(), "two of b may not share, so neither may the three");
    }
}
