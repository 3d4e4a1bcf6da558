//! Who was not let in lately, for `pillion doctor` and the log: the newest refusal of each address and role, as many as are worth
//! a look. Whoever comes may call himself by another name each time: so few rows and lines are an address's that it takes
//! neither the room of the others nor the log.

use crate::claim::Claimant;
use pillion_core::UnixTime;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are kept, and how many of one machine: of more, one that came least often makes room.
const KEPT_MAX: usize = 128;
const KEPT_OF_MACHINE_MAX: usize = 8;
/// How many lines of the log there are in this many seconds, and how many of one machine.
const LINES_SECONDS: f64 = 60.0;
const LINES_MAX: usize = 32;
const LINES_OF_MACHINE_MAX: usize = 4;

/// One that was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Who it said that it was: `the agent of n1`.
    pub who: String,
    /// From where it came.
    pub address: IpAddr,
    /// What was wrong, as it was said to the other end.
    pub why: String,
    /// When, the last time.
    pub at: UnixTime,
    /// How often since it was last let in.
    pub count: u64,
}

/// Those that were refused since they were last let in.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    kept: BTreeMap<(IpAddr, Claimant), Refused>,
    lines: Lines,
}

/// What was said in the log lately.
#[derive(Debug, Default)]
struct Lines {
    /// Since when is counted.
    since: Option<UnixTime>,
    /// Whose lines there were since.
    machines: Vec<IpAddr>,
    /// What was news and had no line since the last that had one.
    untold_count: u64,
}

impl Lines {
    /// One more of this machine: `None` where it has no line, or how many had none before it.
    fn take(&mut self, machine: IpAddr, at: UnixTime) -> Option<u64> {
        // A clock that was set back is no reason for silence.
        if self.since.is_none_or(|since| at.seconds_since(since).abs() >= LINES_SECONDS) {
            self.since = Some(at);
            self.machines.clear();
        }
        let own_count = self.machines.iter().filter(|other| **other == machine).count();
        if own_count >= LINES_OF_MACHINE_MAX || self.machines.len() >= LINES_MAX {
            self.untold_count = self.untold_count.saturating_add(1);
            return None;
        }
        self.machines.push(machine);
        Some(std::mem::take(&mut self.untold_count))
    }
}

impl Noted {
    /// Makes room for one more of this machine: one of its own makes it where it has enough, else one of whoever has most.
    fn make_room(&mut self, machine: IpAddr) {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (address, _) in self.kept.keys() {
            *counts.entry(machine_of(*address)).or_default() += 1;
        }
        let count_of = |address: IpAddr| counts.get(&machine_of(address)).copied().unwrap_or(0);
        let has_enough = count_of(machine) >= KEPT_OF_MACHINE_MAX;
        if !has_enough && self.kept.len() < KEPT_MAX {
            return;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let rows = self.kept.iter().filter(|((address, _), _)| {
            if has_enough { machine_of(*address) == machine } else { count_of(*address) == most }
        });
        let rarest = rows
            .min_by(|(_, a), (_, b)| a.count.cmp(&b.count).then(a.at.seconds().total_cmp(&b.at.seconds())));
        if let Some(key) = rarest.map(|(key, _)| key.clone()) {
            self.kept.remove(&key);
        }
    }
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody was refused. `Some`: it is to be told in the log, with how many that were news had no line before it; the same
    /// again and again belongs in no log.
    pub fn note(&self, address: IpAddr, claimant: &Claimant, why: String, at: UnixTime) -> Option<u64> {
        let mut noted = self.lock();
        let key = (address, claimant.clone());
        let known = noted.kept.get(&key);
        let is_news = known.is_none_or(|known| !is_alike(&known.why, &why));
        let count = known.map_or(1, |known| known.count.saturating_add(1));
        if known.is_none() {
            noted.make_room(machine_of(address));
        }
        noted.kept.insert(key, Refused { who: claimant.to_string(), address, why, at, count });
        is_news.then(|| noted.lines.take(machine_of(address), at)).flatten()
    }

    /// Somebody was let in.
    pub fn forget(&self, address: IpAddr, claimant: &Claimant) {
        self.lock().kept.remove(&(address, claimant.clone()));
    }

    /// All that are kept.
    pub fn all(&self) -> Vec<Refused> {
        self.lock().kept.values().cloned().collect()
    }
}

/// What is one machine's: of IPv6 it has a whole network of addresses to choose from.
fn machine_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

/// Whether two reasons are one, but for the numbers in them: a clock is off by another second each time.
fn is_alike(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|text| text.chars().filter(|letter| !letter.is_ascii_digit()));
    one.eq(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_core::NodeName;
    use std::net::Ipv4Addr;

    #[test]
    fn the_same_refusal_is_news_once_and_is_forgotten_when_it_is_over() {
        let refusals = Refusals::default();
        let (address, agent) = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), Claimant::Agent(NodeName::new("n1")));
        for (at, why, is_news) in [
            (1, "its clock is off by 400 s", true),
            (2, "its clock is off by 89 s", false),
            (3, "another key", true),
        ] {
            let noted = refusals.note(address, &agent, why.to_owned(), UnixTime::from_epoch(at));
            assert_eq!(noted, is_news.then_some(0), "{why}");
        }
        let all = refusals.all();
        assert_eq!((all.len(), all[0].count, all[0].at.epoch()), (1, 3, 3));
        assert_eq!(all[0].who, "the agent of n1");
        refusals.forget(address, &agent);
        assert!(refusals.all().is_empty());
    }

    fn agent(name: &str) -> Claimant {
        Claimant::Agent(NodeName::new(name))
    }

    /// As it was tried: another name of 255 letters each time, each a line of the log and a row of `pillion doctor`.
    #[test]
    fn a_stranger_of_many_names_takes_neither_the_log_nor_the_room_of_the_others() {
        let refusals = Refusals::default();
        let (node, stranger) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 66]));
        let refuse = |address, name: &str, why: &str, second| {
            refusals.note(address, &agent(name), why.to_owned(), UnixTime::from_epoch(second))
        };
        assert_eq!(refuse(node, "n1", "another key", 0), Some(0));
        let lines = |second: u64| {
            let names = (0..1000).map(|name| format!("n{second}-{name}"));
            names.filter_map(|name| refuse(stranger, &name, "rubbish", second)).collect::<Vec<_>>()
        };
        assert_eq!(lines(1), [0; LINES_OF_MACHINE_MAX]);
        assert_eq!(lines(59), [0; 0]);
        let untold = 2_000 - LINES_OF_MACHINE_MAX as u64;
        assert_eq!(lines(60), [untold, 0, 0, 0], "what had no line is counted");
        let all = refusals.all();
        assert!(all.iter().any(|refused| refused.address == node && refused.why == "another key"));
        assert_eq!(all.len(), 1 + KEPT_OF_MACHINE_MAX);
    }

    #[test]
    fn one_that_comes_again_stays_beside_the_names_of_its_own_machine() {
        let refusals = Refusals::default();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for second in 0..100_u64 {
            let at = UnixTime::from_epoch(second);
            refusals.note(address, &agent("n1"), "another key".to_owned(), at);
            refusals.note(address, &agent(&format!("x{second}")), "rubbish".to_owned(), at);
        }
        let all = refusals.all();
        assert!(
            all.iter().any(|refused| refused.who == "the agent of n1" && refused.count == 100),
            "{all:?}"
        );
    }

    #[test]
    fn strangers_of_many_addresses_take_no_more_room_than_some() {
        let refusals = Refusals::default();
        let mut lines = 0;
        for at in 0..1000_u16 {
            let [high, low] = at.to_be_bytes();
            let (address, at) = (IpAddr::from([10, 1, high, low]), UnixTime::from_epoch(u64::from(at) / 100));
            lines += usize::from(refusals.note(address, &agent("n1"), String::new(), at).is_some());
        }
        assert_eq!((refusals.all().len(), lines), (KEPT_MAX, LINES_MAX));
        let of_network = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, host]);
        for host in 0..1000 {
            refusals.note(of_network(host), &agent("n1"), String::new(), UnixTime::from_epoch(11));
        }
        let all = refusals.all();
        let of_it = all.iter().filter(|refused| refused.address.is_ipv6()).count();
        assert_eq!(all.len(), KEPT_MAX);
        assert!((1..=KEPT_OF_MACHINE_MAX).contains(&of_it), "a network of IPv6 is one machine's: {of_it}");
    }
}
