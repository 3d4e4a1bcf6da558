//! Places for connections that nobody can take from others. Whoever comes gets one: where all are taken, the owner who has the
//! most loses the one that he has had longest. So who holds many shuts out himself.
//!
//! An owner is a user, where the connection comes from this machine and the kernel tells whose it is; else a machine.

use crate::peer::{self, Ends};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    User(u32),
    Machine(IpAddr),
}

#[derive(Debug, Default)]
struct Inside {
    last_number: u64,
    /// In the order in which they came.
    held: BTreeMap<u64, (Ends, CancellationToken)>,
}

/// So many places.
#[derive(Debug)]
pub struct Doors {
    places: usize,
    inside: Mutex<Inside>,
    owners: fn(&[Ends]) -> Vec<Option<u32>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Place {
    doors: Arc<Doors>,
    number: u64,
    end: CancellationToken,
}

impl Place {
    /// Somebody else has come, who has fewer: the connection is to be closed.
    pub async fn evicted(&self) {
        self.end.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doors.lock().held.remove(&self.number);
    }
}

impl Doors {
    /// With so many places.
    pub const fn new(places: usize) -> Self {
        Self {
            places,
            inside: Mutex::new(Inside { last_number: 0, held: BTreeMap::new() }),
            owners: peer::owners,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in. Reads the kernel's table of sockets where somebody has to go for it.
    pub fn enter(self: Arc<Self>, ends: Ends) -> Place {
        let (number, end) = {
            let mut inside = self.lock();
            inside.last_number += 1;
            let (number, end) = (inside.last_number, CancellationToken::new());
            inside.held.insert(number, (ends, end.clone()));
            if inside.held.len() > self.places
                && let Some(last) = self.who_goes(&inside)
                && let Some((_, gone)) = inside.held.remove(&last)
            {
                gone.cancel();
            }
            (number, end)
        };
        Place { doors: self, number, end }
    }

    /// The oldest connection of whom has most; of two who have as many, of whom came first.
    fn who_goes(&self, inside: &Inside) -> Option<u64> {
        let ends: Vec<Ends> = inside.held.values().map(|(ends, _)| *ends).collect();
        let owners = (self.owners)(&ends);
        let mut held_by: BTreeMap<Owner, (usize, u64)> = BTreeMap::new();
        for ((number, (ends, _)), owner) in inside.held.iter().zip(owners) {
            let owner = owner.map_or(Owner::Machine(ends.0.ip().to_canonical()), Owner::User);
            held_by.entry(owner).or_insert((0, *number)).0 += 1;
        }
        let (_, oldest) = held_by.into_values().max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1)))?;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the port: below 2000 it is user 1's, below 3000 user 2's.
    fn by_port(ends: &[Ends]) -> Vec<Option<u32>> {
        ends.iter().map(|(peer, _)| peer.ip().is_loopback().then(|| u32::from(peer.port() / 1000))).collect()
    }

    fn doors(places: usize) -> Arc<Doors> {
        Arc::new(Doors { owners: by_port, ..Doors::new(places) })
    }

    fn ends(peer: &str) -> Ends {
        (peer.parse().unwrap(), "127.0.0.1:9820".parse().unwrap())
    }

    fn ended_count(places: &[Place]) -> usize {
        places.iter().filter(|place| place.end.is_cancelled()).count()
    }

    #[test]
    fn who_holds_the_most_makes_room_for_whoever_comes() {
        let doors = doors(8);
        let greedy: Vec<Place> = (0..8)
            .map(|port| Arc::clone(&doors).enter(ends(&format!("127.0.0.1:{}", 1000 + port))))
            .collect();
        let modest = Arc::clone(&doors).enter(ends("127.0.0.1:2000"));
        assert_eq!((ended_count(&greedy), greedy[0].end.is_cancelled()), (1, true), "his oldest");
        let more: Vec<Place> = (0..100)
            .map(|port| Arc::clone(&doors).enter(ends(&format!("127.0.0.1:{}", 1100 + port))))
            .collect();
        assert!(!modest.end.is_cancelled(), "however many he opens");
        assert_eq!(ended_count(&greedy) + ended_count(&more), 101);
        let other = Arc::clone(&doors).enter(ends("10.0.0.7:2000"));
        assert!(!other.end.is_cancelled() && !modest.end.is_cancelled());
        assert_eq!(doors.lock().held.len(), 8);
    }

    #[test]
    fn a_connection_that_is_over_gives_its_place_back() {
        let doors = doors(1);
        for port in 0..5 {
            let place = Arc::clone(&doors).enter(ends(&format!("127.0.0.1:{}", 1000 + port)));
            assert!(!place.end.is_cancelled());
        }
        assert!(doors.lock().held.is_empty());
    }
}
