//! Who was not let in lately, for `pillion doctor`: the newest refusal of each address and role, as many as are worth a look.

use crate::claim::Claimant;
use pillion_core::UnixTime;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are kept; the one that is longest ago goes first.
const KEPT_MAX: usize = 128;

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
pub struct Refusals(Mutex<BTreeMap<(IpAddr, Claimant), Refused>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(IpAddr, Claimant), Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody was refused. Whether it is news: the same again and again belongs in no log.
    pub fn note(&self, address: IpAddr, claimant: &Claimant, why: String, at: UnixTime) -> bool {
        let mut kept = self.lock();
        let key = (address, claimant.clone());
        let known = kept.get(&key);
        let is_news = known.is_none_or(|known| !is_alike(&known.why, &why));
        let count = known.map_or(1, |known| known.count.saturating_add(1));
        if known.is_none() && kept.len() >= KEPT_MAX {
            let oldest = kept.iter().min_by(|(_, a), (_, b)| a.at.seconds().total_cmp(&b.at.seconds()));
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                kept.remove(&oldest);
            }
        }
        kept.insert(key, Refused { who: claimant.to_string(), address, why, at, count });
        is_news
    }

    /// Somebody was let in.
    pub fn forget(&self, address: IpAddr, claimant: &Claimant) {
        self.lock().remove(&(address, claimant.clone()));
    }

    /// All that are kept.
    pub fn all(&self) -> Vec<Refused> {
        self.lock().values().cloned().collect()
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
            assert_eq!(noted, is_news, "{why}");
        }
        let all = refusals.all();
        assert_eq!((all.len(), all[0].count, all[0].at.epoch()), (1, 3, 3));
        assert_eq!(all[0].who, "the agent of n1");
        refusals.forget(address, &agent);
        assert!(refusals.all().is_empty());
    }

    #[test]
    fn strangers_of_a_thousand_names_take_no_more_room_than_some() {
        let refusals = Refusals::default();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for at in 0..1000_u64 {
            let agent = Claimant::Agent(NodeName::new(format!("n{at}")));
            refusals.note(address, &agent, String::new(), UnixTime::from_epoch(at));
        }
        let all = refusals.all();
        assert_eq!(all.len(), KEPT_MAX);
        assert!(
            all.iter().any(|refused| refused.at.epoch() == 999)
                && all.iter().all(|refused| refused.at.epoch() >= 872)
        );
    }
}
