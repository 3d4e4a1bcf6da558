//! What jobs are booked with beyond their profiles: pure.

use pillion_core::{UserId, WorkloadKey};
use pillion_store::Charge;
use std::collections::BTreeMap;

/// How much more of a device than their profiles say runs were seen to use; empty where nobody asks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Charged(BTreeMap<UserId, OfUser>);

#[derive(Debug, Clone, PartialEq, Default)]
struct OfUser {
    of_all: f64,
    of_workload: BTreeMap<WorkloadKey, f64>,
}

impl Charged {
    /// Of the next run of a workload: what its own runs used, else what its user's did, for a new name is anybody's to make up.
    pub fn beyond_fraction(&self, uid: UserId, workload: &WorkloadKey) -> f64 {
        self.0.get(&uid).map_or(0.0, |user| user.of_workload.get(workload).copied().unwrap_or(user.of_all))
    }
}

impl FromIterator<Charge> for Charged {
    fn from_iter<I: IntoIterator<Item = Charge>>(charges: I) -> Self {
        let mut users: BTreeMap<UserId, OfUser> = BTreeMap::new();
        for Charge { uid, workload, beyond_fraction } in charges {
            let user = users.entry(uid).or_default();
            match workload {
                Some(workload) => drop(user.of_workload.insert(workload, beyond_fraction)),
                None => user.of_all = beyond_fraction,
            }
        }
        Self(users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_of_a_workload_goes_before_what_was_seen_of_its_user() {
        let charge = |uid, workload: Option<&str>, beyond_fraction| Charge {
            uid: UserId(uid),
            workload: workload.map(WorkloadKey::new),
            beyond_fraction,
        };
        let charged: Charged = [
            charge(1002, None, 0.25),
            charge(1002, Some("bob/honest"), 0.0),
            charge(1002, Some("bob/light"), 0.5),
        ]
        .into_iter()
        .collect();
        let of = |uid, workload| charged.beyond_fraction(UserId(uid), &WorkloadKey::new(workload));
        assert_eq!((of(1002, "bob/light"), of(1002, "bob/honest")), (0.5, 0.0));
        assert_eq!((of(1002, "bob/new"), of(1001, "bob/light")), (0.25, 0.0), "a new name is no way out");
    }
}
