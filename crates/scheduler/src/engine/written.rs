//! Which explanations are worth writing down: pure. A plan explains every job that it leaves waiting, and of 100,000 nearly all have
//! the explanation that they had before. A reason that is new goes first; newer candidates beside the same reason follow in turns, and now
//! and then only: several plans are made a second, and each has other figures for everybody. The board has what the last one said.

use pillion_core::{SlurmJobId, UnixTime};
use pillion_pairing::{Candidate, Explanation, Reason};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// How many are written down after one plan.
const PER_PLAN: usize = 2_000;
/// How long a reason stays written down at least: one that comes and goes between two plans tells nobody anything.
const REASON_STAYS: Duration = Duration::from_secs(5);
/// How long candidates stay beside a reason that is the same still.
const CANDIDATES_STAY: Duration = Duration::from_mins(1);

/// What was written down of each job that waits.
#[derive(Default)]
pub(super) struct Written {
    jobs: BTreeMap<SlurmJobId, Known>,
    /// The last job of which newer candidates were written down: the next turn goes on behind it.
    last: Option<SlurmJobId>,
    hasher: RandomState,
}

/// What was written down of one.
#[derive(Clone, Copy)]
struct Known {
    reason: Reason,
    digest: u64,
    at: UnixTime,
}

impl Known {
    /// Whether it has stood for so long; a clock that was set back holds nothing up.
    fn has_stood(&self, at: UnixTime, long: Duration) -> bool {
        at >= self.at + long || at < self.at
    }
}

/// What is to be written down now.
pub(super) struct Due {
    pub(super) explanations: Vec<Explanation>,
    at: UnixTime,
    written: Vec<Known>,
    last: Option<SlurmJobId>,
}

impl Written {
    /// What a plan says that is not written down yet.
    pub(super) fn due(&self, left: &[Explanation], at: UnixTime) -> Due {
        let mut lists = HashMap::new();
        let mut due = Due { explanations: Vec::new(), at, written: Vec::new(), last: self.last };
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for one in left {
            let known = self.jobs.get(&one.job_id);
            let is_as_before = known.is_some_and(|known| known.reason == one.reason);
            let stays = if is_as_before { CANDIDATES_STAY } else { REASON_STAYS };
            if known.is_some_and(|known| !known.has_stood(at, stays)) {
                continue;
            }
            if is_as_before {
                let is_behind = self.last.is_none_or(|last| one.job_id > last);
                if is_behind { &mut behind } else { &mut before }.push(one);
            } else if due.explanations.len() < PER_PLAN {
                due.add(one, self.digest(one, &mut lists));
            }
        }
        for turn in [&mut behind, &mut before] {
            turn.sort_by_key(|one| one.job_id);
        }
        for one in behind.into_iter().chain(before) {
            if due.explanations.len() >= PER_PLAN {
                break;
            }
            let digest = self.digest(one, &mut lists);
            if self.jobs.get(&one.job_id).is_some_and(|known| known.digest != digest) {
                due.last = Some(one.job_id);
                due.add(one, digest);
            }
        }
        due
    }

    /// They are written down.
    pub(super) fn keep(&mut self, due: Due) {
        self.last = due.last;
        let jobs = due.explanations.into_iter().map(|one| one.job_id);
        self.jobs.extend(jobs.zip(due.written));
    }

    /// Forgets everybody but those that wait still: whoever comes back begins anew.
    pub(super) fn retain(&mut self, left: &[Explanation]) {
        let waiting: BTreeSet<SlurmJobId> = left.iter().map(|one| one.job_id).collect();
        self.jobs.retain(|job, _| waiting.contains(job));
    }

    fn digest(&self, one: &Explanation, lists: &mut HashMap<*const Candidate, u64>) -> u64 {
        let Explanation { job_id: _, reason, text, model, candidates } = one;
        // Jobs of one class share one list.
        let list = *lists.entry(candidates.as_ptr()).or_insert_with(|| {
            self.hasher.hash_one(serde_json::to_vec(candidates.as_ref()).unwrap_or_default())
        });
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        hasher.write(model.as_bytes());
        hasher.write_u64(self.hasher.hash_one((reason, list)));
        hasher.finish()
    }
}

impl Due {
    fn add(&mut self, one: &Explanation, digest: u64) {
        self.explanations.push(one.clone());
        self.written.push(Known { reason: one.reason, digest, at: self.at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, at};
    use std::sync::Arc;

    fn explanation(id: u32, reason: Reason, text: &str) -> Explanation {
        let (job_id, candidates) = (SlurmJobId::plain(id), Arc::default());
        Explanation { job_id, reason, text: text.into(), model: "m".into(), candidates }
    }

    fn ids(due: &Due) -> Vec<u32> {
        due.explanations.iter().map(|one| one.job_id.id).collect()
    }

    #[test]
    fn what_was_written_down_is_not_written_again() {
        let mut written = Written::default();
        let left = [explanation(1, Reason::Held, "a"), explanation(2, Reason::BehindOthers, "b")];
        let due = written.due(&left, at(NOW));
        assert_eq!(ids(&due), [1, 2]);
        written.keep(due);
        let later = at(NOW + 60);
        assert!(written.due(&left, later).explanations.is_empty());
        let newer = [explanation(1, Reason::Held, "c"), explanation(2, Reason::Blocked, "b")];
        assert_eq!(ids(&written.due(&newer, later)), [2, 1], "a new reason goes first");
        written.retain(&left[..1]);
        assert_eq!(ids(&written.due(&left, later)), [2], "whoever was planned meanwhile begins anew");
    }

    /// As a storm showed it: 160 jobs that waited were written 300 times a second.
    #[test]
    fn what_comes_and_goes_between_plans_is_not_written_down() {
        let mut written = Written::default();
        let waits = |reason, text| [explanation(1, reason, text)];
        let first = written.due(&waits(Reason::NoDeviceFree, "a"), at(NOW));
        written.keep(first);
        let is_due = |reason, text, seconds| {
            !written.due(&waits(reason, text), at(NOW + seconds)).explanations.is_empty()
        };
        let other_candidates = [1, 59, 60].map(|seconds| is_due(Reason::NoDeviceFree, "b", seconds));
        assert_eq!(other_candidates, [false, false, true]);
        assert_eq!([1, 4, 5].map(|seconds| is_due(Reason::Blocked, "b", seconds)), [false, false, true]);
        let before = at(NOW - 3_600);
        assert_eq!(
            ids(&written.due(&waits(Reason::NoDeviceFree, "b"), before)),
            [1],
            "the clock was set back"
        );
    }

    #[test]
    fn a_long_queue_is_written_down_in_turns() {
        let mut written = Written::default();
        let count = u32::try_from(PER_PLAN).unwrap() * 5 / 2;
        let all = |text: &str| -> Vec<Explanation> {
            (1..=count).map(|id| explanation(id, Reason::BehindOthers, text)).collect()
        };
        for (text, now) in [("first", NOW), ("second", NOW + 60)] {
            let mut seen = BTreeSet::new();
            for _ in 0..3 {
                let due = written.due(&all(text), at(now));
                assert!(due.explanations.len() <= PER_PLAN);
                seen.extend(ids(&due));
                written.keep(due);
            }
            assert_eq!(seen.len(), all(text).len(), "{text}");
            assert!(written.due(&all(text), at(now + 60)).explanations.is_empty());
        }
    }
}
