//! Combinations that may be chosen, where a site (or a replay of measurements) allows only some.

use pillion_core::{Fraction, WorkloadKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A cap, exactly as it was written, so that a chosen combination is found again among those allowed. 1 = none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cap(Fraction);

impl Eq for Cap {}

impl Ord for Cap {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.value().total_cmp(&other.0.value())
    }
}

impl PartialOrd for Cap {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl From<Option<Fraction>> for Cap {
    fn from(cap: Option<Fraction>) -> Self {
        Self(cap.unwrap_or(Fraction::ONE))
    }
}

impl From<Cap> for Option<Fraction> {
    fn from(cap: Cap) -> Self {
        Some(cap.0).filter(|cap| *cap < Fraction::ONE)
    }
}

/// The only combinations of two workloads and their caps that may share a device. Order does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AllowList {
    pairs: BTreeMap<WorkloadKey, BTreeMap<WorkloadKey, BTreeSet<(Cap, Cap)>>>,
}

impl AllowList {
    /// Allows one combination, in either order.
    pub fn allow(
        &mut self,
        (a, cap_a): (&WorkloadKey, Option<Fraction>),
        (b, cap_b): (&WorkloadKey, Option<Fraction>),
    ) {
        let (cap_a, cap_b) = (Cap::from(cap_a), Cap::from(cap_b));
        for (first, second, caps) in [(a, b, (cap_a, cap_b)), (b, a, (cap_b, cap_a))] {
            self.pairs.entry(first.clone()).or_default().entry(second.clone()).or_default().insert(caps);
        }
    }

    /// The caps under which two workloads may share: (of `a`, of `b`), the tightest first and none last.
    pub fn caps(
        &self,
        a: &WorkloadKey,
        b: &WorkloadKey,
    ) -> impl Iterator<Item = (Option<Fraction>, Option<Fraction>)> {
        let allowed = self.pairs.get(a).and_then(|partners| partners.get(b));
        allowed.into_iter().flatten().map(|(first, second)| ((*first).into(), (*second).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_is_allowed_in_either_order_and_no_other_is() {
        let (a, b) = (WorkloadKey::new("a"), WorkloadKey::new("b"));
        let third = Some(Fraction::clamped(0.3));
        let mut list = AllowList::default();
        list.allow((&a, third), (&b, None));
        list.allow((&a, None), (&b, None));
        assert_eq!(list.caps(&a, &b).collect::<Vec<_>>(), [(third, None), (None, None)]);
        assert_eq!(list.caps(&b, &a).collect::<Vec<_>>(), [(None, third), (None, None)]);
        assert_eq!(list.caps(&a, &a).count(), 0);
        let odd = Some(Fraction::clamped(1.0 / 3.0));
        list.allow((&a, odd), (&a, Some(Fraction::ONE)));
        assert_eq!(list.caps(&a, &a).collect::<Vec<_>>(), [(odd, None), (None, odd)], "caps stay exact");
    }
}
