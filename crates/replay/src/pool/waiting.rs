//! Who waits for a device, by the type of GPU that he needs: who waits for one type keeps nobody from another.

use std::collections::BTreeSet;

/// Less is served first; then by place in the list of jobs.
type OrderKey = (u64, usize);

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    of_type: Vec<BTreeSet<OrderKey>>,
}

impl Waiting {
    pub(super) fn new(type_count: usize) -> Self {
        Self { of_type: vec![BTreeSet::new(); type_count] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_type.iter().all(BTreeSet::is_empty)
    }

    pub(super) fn insert(&mut self, gpu_type: u32, key: OrderKey) {
        self.of_type[gpu_type as usize].insert(key);
    }

    /// Whether he was there.
    pub(super) fn remove(&mut self, gpu_type: u32, key: OrderKey) -> bool {
        self.of_type[gpu_type as usize].remove(&key)
    }

    /// Of each type so many, all of them in the order of service.
    pub(super) fn first(&self, counts: &[usize]) -> Vec<usize> {
        let of_types =
            self.of_type.iter().zip(counts).flat_map(|(of_type, count)| of_type.iter().take(*count));
        let mut first: Vec<OrderKey> = of_types.copied().collect();
        first.sort_unstable();
        first.into_iter().map(|(_, job)| job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_a_queue_of_its_own_and_all_are_served_in_one_order() {
        let mut waiting = Waiting::new(2);
        for (gpu_type, order) in [(0, 1), (0, 2), (0, 3), (1, 4), (0, 5), (1, 6)] {
            waiting.insert(gpu_type, (order, 10 * usize::try_from(order).unwrap()));
        }
        assert_eq!(waiting.first(&[2, 2]), [10, 20, 40, 60]);
        assert_eq!(waiting.first(&[0, 1]), [40]);
        assert!(waiting.remove(1, (4, 40)) && !waiting.remove(1, (4, 40)) && !waiting.is_empty());
    }
}
