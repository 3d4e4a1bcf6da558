//! Seats by guest: each has so many, and who has none left is sent away until one of his is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many seats each guest has taken. Guests without any are forgotten.
#[derive(Debug)]
pub struct Guests<G: Ord>(Mutex<BTreeMap<G, usize>>);

impl<G: Ord> Default for Guests<G> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Seat<G: Ord> {
    guests: Arc<Guests<G>>,
    guest: G,
}

impl<G: Ord + Clone> Guests<G> {
    /// A seat for this guest, who may have so many. `None`: he has them.
    pub fn seat(self: &Arc<Self>, guest: G, most: usize) -> Option<Seat<G>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&guest).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        taken.insert(guest.clone(), count + 1);
        Some(Seat { guests: Arc::clone(self), guest })
    }
}

impl<G: Ord> Drop for Seat<G> {
    fn drop(&mut self) {
        let mut taken = self.guests.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.guest) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_so_many_seats_and_gets_another_when_one_is_over() {
        let guests = Arc::new(Guests::default());
        let mut hers: Vec<_> = (0..3).map(|_| guests.seat("alice", 3).unwrap()).collect();
        assert!(guests.seat("alice", 3).is_none());
        let his = guests.seat("bob", 3).unwrap();
        hers.pop();
        hers.push(guests.seat("alice", 3).unwrap());
        drop((hers, his));
        assert!(guests.0.lock().unwrap().is_empty(), "nobody is remembered");
    }
}
