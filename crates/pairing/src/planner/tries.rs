//! Which trials one choice has started already, and how many more of each kind it may start. Must not estimate, and not choose.

use crate::planner::classes::PlanContext;
use crate::planner::index::{KindIndex, ProfileIndex};
use rustc_hash::{FxHashMap, FxHashSet};

/// Which trials are of one kind: the first kind of devices of that model and mechanism, and both profiles, the lower first.
pub(crate) type TryKey = (KindIndex, [ProfileIndex; 2]);

/// What one choice has started already.
#[derive(Debug, Clone)]
pub(crate) struct Tries {
    started: FxHashSet<TryKey>,
    /// How many more may be started, by model and mechanism.
    room: FxHashMap<KindIndex, usize>,
}

impl Tries {
    /// What is open.
    pub(crate) fn new(context: &PlanContext<'_>) -> Self {
        let mut tries = Self { started: FxHashSet::default(), room: FxHashMap::default() };
        let Some(trials) = &context.trials else { return tries };
        for (kind, device) in context.kinds.iter_enumerated() {
            tries.room.insert(kind, trials.room(device));
            for workloads in trials.open_on(device) {
                let [a, b] = workloads
                    .map(|workload| context.profile_index.get(&(workload, device.model.as_str())).copied());
                tries.started.extend(a.zip(b).map(|(a, b)| (kind, [a.min(b), a.max(b)])));
            }
        }
        tries
    }

    /// Whether one of this kind may be started still.
    pub(crate) fn may_start(&self, key: TryKey) -> bool {
        !self.started.contains(&key) && self.room.get(&key.0).is_some_and(|room| *room > 0)
    }

    /// One of this kind starts; says whether it may.
    pub(crate) fn start(&mut self, key: TryKey) -> bool {
        let may_start = self.may_start(key);
        if may_start {
            self.started.insert(key);
            self.room.entry(key.0).and_modify(|room| *room -= 1);
        }
        may_start
    }
}
