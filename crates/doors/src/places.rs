//! Places for connections that nobody can take from others. Whoever comes gets one: where all are taken, the owner who has the
//! most loses the one that he has had longest. So who holds many shuts out himself.
//!
//! An owner is a user, where the connection comes from this machine and the kernel tells whose it is; else a machine.

use crate::peer::{self, Ends};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The least time between two looks at the kernel's table of sockets: any user of this machine can make it long, and it is read
/// where connections are taken. Who came from this machine since the last look is one owner with all others who did.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    User(u32),
    Machine(IpAddr),
}

/// A connection that has a place.
#[derive(Debug)]
struct Entered {
    ends: Ends,
    /// `None`: nobody has looked yet.
    owner: Option<Owner>,
    end: CancellationToken,
}

impl Entered {
    fn machine(&self) -> Owner {
        Owner::Machine(self.ends.0.ip().to_canonical())
    }
}

#[derive(Debug)]
struct Inside {
    last_number: u64,
    /// In the order in which they came.
    held: BTreeMap<u64, Entered>,
    looked_at: Option<Instant>,
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
            inside: Mutex::new(Inside { last_number: 0, held: BTreeMap::new(), looked_at: None }),
            owners: peer::owners,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in. Where somebody has to go for it, reads the kernel's table of sockets now and then.
    pub fn enter(self: Arc<Self>, ends: Ends) -> Place {
        let (number, end) = {
            let mut inside = self.lock();
            inside.last_number += 1;
            let (number, end) = (inside.last_number, CancellationToken::new());
            inside.held.insert(number, Entered { ends, owner: None, end: end.clone() });
            if inside.held.len() > self.places {
                self.look(&mut inside);
                if let Some(gone) = who_goes(&inside).and_then(|last| inside.held.remove(&last)) {
                    gone.end.cancel();
                }
            }
            (number, end)
        };
        Place { doors: self, number, end }
    }

    /// Finds out whose the connections are of which nobody knows it yet.
    fn look(&self, inside: &mut Inside) {
        if inside.looked_at.is_some_and(|at| at.elapsed() < LOOK_PAUSE) {
            return;
        }
        inside.looked_at = Some(Instant::now());
        let unknown: Vec<&mut Entered> =
            inside.held.values_mut().filter(|entered| entered.owner.is_none()).collect();
        let ends: Vec<Ends> = unknown.iter().map(|entered| entered.ends).collect();
        for (entered, user) in unknown.into_iter().zip((self.owners)(&ends)) {
            entered.owner = Some(user.map_or_else(|| entered.machine(), Owner::User));
        }
    }
}

/// The oldest connection of whom has most; of two who have as many, of whom came first.
fn who_goes(inside: &Inside) -> Option<u64> {
    let mut held_by: BTreeMap<Owner, (usize, u64)> = BTreeMap::new();
    for (number, entered) in &inside.held {
        let owner = entered.owner.unwrap_or_else(|| entered.machine());
        held_by.entry(owner).or_insert((0, *number)).0 += 1;
    }
    let (_, oldest) = held_by.into_values().max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1)))?;
    Some(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// As it was tried: the table is as long as a user makes it, and was read for each connection beyond the places.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_connections_reads_the_kernels_table_now_and_then() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        fn counted(ends: &[Ends]) -> Vec<Option<u32>> {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            by_port(ends)
        }
        let doors = Arc::new(Doors { owners: counted, ..Doors::new(8) });
        let enter = |port: u16| Arc::clone(&doors).enter(ends(&format!("127.0.0.1:{port}")));
        let flood: Vec<Place> = (1000..1100).map(enter).collect();
        assert_eq!(LOOKS.load(Ordering::Relaxed), 1);
        tokio::time::advance(LOOK_PAUSE).await;
        let modest = enter(2000);
        let more: Vec<Place> = (1100..1200).map(enter).collect();
        assert_eq!(LOOKS.load(Ordering::Relaxed), 2);
        assert!(!modest.end.is_cancelled(), "who is known to have one keeps it");
        assert_eq!(ended_count(&flood) + ended_count(&more), 193);
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
