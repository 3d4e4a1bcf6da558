//! Permits by holder (an address, an identity): each may have so many connections, and who has them all is sent away until one
//! of them is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many permits each holder has. Holders without any are forgotten.
#[derive(Debug)]
pub struct Permits<H: Ord>(Mutex<BTreeMap<H, usize>>);

impl<H: Ord> Default for Permits<H> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Permit<H: Ord> {
    permits: Arc<Permits<H>>,
    holder: H,
}

impl<H: Ord + Clone> Permits<H> {
    /// A permit for this holder, who may have so many. `None`: he has them.
    pub fn acquire(self: &Arc<Self>, holder: H, most: usize) -> Option<Permit<H>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&holder).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        counts.insert(holder.clone(), count + 1);
        Some(Permit { permits: Arc::clone(self), holder })
    }
}

impl<H: Ord> Drop for Permit<H> {
    fn drop(&mut self) {
        let mut counts = self.permits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_so_many_permits_and_gets_another_when_one_is_over() {
        let permits = Arc::new(Permits::default());
        let mut hers: Vec<_> = (0..3).map(|_| permits.acquire("alice", 3).unwrap()).collect();
        assert!(permits.acquire("alice", 3).is_none());
        let his = permits.acquire("bob", 3).unwrap();
        hers.pop();
        hers.push(permits.acquire("alice", 3).unwrap());
        drop((hers, his));
        assert!(permits.0.lock().unwrap().is_empty(), "nobody is remembered");
    }
}
