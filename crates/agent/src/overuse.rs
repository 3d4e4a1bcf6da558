//! Who holds more device memory than its share allows. The variable by which MPS limits a process is the job's to unset, and its
//! daemon holds everybody to the largest limit among the tenants only: between the two, what is measured decides. Pure.

use crate::procfs::ProcessId;
use pillion_core::share::Share;
use pillion_core::{GresType, JobStart, Shards};

/// What a driver may count to a client beyond its limit: contexts, and pages that are rounded up.
const MARGIN_BYTES: u64 = 256 << 20;

/// What one start holds of one device at one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub index: u32,
    /// The device, as Slurm books it.
    pub gres_type: GresType,
    pub start: JobStart,
    /// All its processes together, as far as the driver says.
    pub memory_bytes: u64,
    /// Its processes there.
    pub processes: Vec<ProcessId>,
}

/// The limit that this start is over, if it is over one. `share`: the start's. A limit is set by MPS for each process and planned
/// with for all of them together. Who has all of a device takes nothing from anybody.
pub fn limit_exceeded(holding: &Holding, share: &Share) -> Option<u64> {
    let is_of = share.gres_types.contains(&holding.gres_type) && share.shards != Shards::ALL;
    let limit = share.memory_bytes_max().filter(|_| is_of)?;
    (holding.memory_bytes > limit.saturating_add(MARGIN_BYTES)).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::share;
    use pillion_core::device::Mechanism;

    #[test]
    fn a_limit_is_what_the_share_says_and_a_margin() {
        let free = share(33, Mechanism::Mps);
        let shards = Shards::try_new(40).unwrap();
        let limited = Share { sharing: free.sharing.limited_to(Some(525 << 20)), shards, ..free.clone() };
        let holding = |memory_bytes| Holding {
            index: 3,
            gres_type: limited.gres_types.first().clone(),
            start: limited.start,
            memory_bytes,
            processes: Vec::new(),
        };
        assert_eq!(limit_exceeded(&holding(140 << 30), &limited), Some(525 << 20));
        assert_eq!(limit_exceeded(&holding((525 << 20) + MARGIN_BYTES), &limited), None);
        let of_each = Share { memory_bytes: Some(2 * (525 << 20)), ..limited.clone() };
        assert_eq!(limit_exceeded(&holding(1 << 30), &of_each), None, "two processes have as much each");
        assert_eq!(limit_exceeded(&holding(2 << 30), &of_each), Some(1050 << 20), "a third has nothing");
        let alone = share(33, Mechanism::TimeSliced);
        let elsewhere = Share { gres_types: GresType::new("g0").into(), ..limited.clone() };
        let has_all = Share { shards: Shards::ALL, ..limited.clone() };
        for free in [free, alone, elsewhere, has_all] {
            assert_eq!(limit_exceeded(&holding(140 << 30), &free), None, "{free:?}");
        }
    }
}
