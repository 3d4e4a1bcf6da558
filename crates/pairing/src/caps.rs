//! Which caps are tried, and when one is worth having. No cap is the default (DESIGN D6): measured, uncapped tenants
//! beat an even split on average, and a cap pays where one tenant hogs.

use pillion_core::Fraction;

/// A cap is set only for this much more than without one: less is within the noise of measurements.
pub(crate) const CAP_GAIN_MIN: f64 = 0.05;
/// Tenants that are all this fast without caps need none.
pub(crate) const FAST_ENOUGH_FRACTION: f64 = 0.95;

/// The cap of one tenant, before the choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CapSlot {
    /// It runs already: an MPS cap is fixed for a client's life.
    Fixed(Option<Fraction>),
    /// It starts now.
    Free,
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
}
