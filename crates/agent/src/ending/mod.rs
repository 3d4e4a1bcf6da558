//! Starts that are being ended beside others: their MPS clients go through the daemon, before a signal ends them and perhaps
//! their neighbours too (docs/decisions/0005-real-devices.md).
//!
//! ```text
//! we end it:      hold ──► scontrol requeue ──► end: clients that SIGTERM kills ──► let go ··· the others ──► SIGKILL
//!                   └─ refused, or nobody says more in 10 s ──► let go
//! Slurm ends it:  SIGTERM ··· end: whoever is left ──► SIGKILL
//! ```

mod freezer;
mod step;

pub use freezer::{NotHeld, let_go};
pub use step::{Client, Round, ended, may_be_ended};

use crate::procfs::{ProcFs, ProcessId};
use freezer::{Freezer, Frozen, Group};
use pillion_core::{JobStart, UnixTime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use step::{HOLD_SECONDS_MAX, has_lasted};
use tracing::{info, warn};

/// Where the groups that are held are written down.
pub fn list_path(state_directory: &Path) -> PathBuf {
    state_directory.join("held.json")
}

/// Where the kernel shows control groups.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// The starts that are held, and those whose last clients are ended later.
#[derive(Debug)]
pub struct Endings {
    cgroups: PathBuf,
    freezer: Freezer,
    held: BTreeMap<JobStart, (UnixTime, Frozen)>,
    /// Since when, and in how many seconds.
    later: BTreeMap<JobStart, (UnixTime, f64)>,
}

impl Endings {
    /// Lets go whatever an agent before held. `list`: where held groups are written down.
    pub fn new(list: PathBuf, cgroups: impl Into<PathBuf>) -> Self {
        let (held, later) = (BTreeMap::new(), BTreeMap::new());
        Self { cgroups: cgroups.into(), freezer: Freezer::new(list), held, later }
    }

    /// Holds a start, whose `tasks` run, in its control group, from now on: also one that was held before.
    ///
    /// # Errors
    /// Why it goes on.
    pub fn hold(
        &mut self,
        start: JobStart,
        (tasks, proc): (&[ProcessId], &ProcFs),
        now: UnixTime,
    ) -> Result<(), NotHeld> {
        // Its guard's time is that of the hold before.
        self.let_go(start);
        let running: Vec<&ProcessId> = tasks.iter().filter(|task| proc.is_alive(**task)).collect();
        if running.is_empty() {
            return Err(NotHeld::alone("none of its tasks runs any more".to_owned()));
        }
        let groups: BTreeSet<Group> =
            running.iter().filter_map(|task| Group::of(&proc.job_places(task.pid), &self.cgroups)).collect();
        let Ok([group]) = <[Group; 1]>::try_from(groups.into_iter().collect::<Vec<_>>()) else {
            return Err(NotHeld::here("its tasks are not in one control group of Slurm's".to_owned()));
        };
        let frozen = self.freezer.freeze(&group, Duration::from_secs_f64(HOLD_SECONDS_MAX))?;
        info!(%start, "held while Slurm is asked to take it");
        self.held.insert(start, (now, frozen));
        Ok(())
    }

    /// Lets a start go on, if it is held.
    pub fn let_go(&mut self, start: JobStart) {
        if let Some((_, frozen)) = self.held.remove(&start) {
            self.freezer.thaw(frozen);
            info!(%start, "let go");
        }
    }

    /// Whoever of this start is left is ended in so many seconds; what was said of it last counts.
    pub fn end_later(&mut self, start: JobStart, now: UnixTime, delay_seconds: f64) {
        self.later.insert(start, (now, delay_seconds));
    }

    /// A start is over.
    pub fn forget(&mut self, start: JobStart) {
        self.let_go(start);
        self.later.remove(&start);
    }

    /// Lets go who was held too long, and gives the starts whose last clients are to be ended now.
    pub fn due(&mut self, now: UnixTime) -> Vec<JobStart> {
        self.freezer.reap();
        let is_long = |(since, _): &(UnixTime, Frozen)| has_lasted(*since, now, HOLD_SECONDS_MAX);
        let too_long: Vec<JobStart> =
            self.held.iter().filter(|(_, held)| is_long(held)).map(|(start, _)| *start).collect();
        for start in too_long {
            warn!(%start, "nobody said what becomes of it");
            self.let_go(start);
        }
        let due = self.later.iter().filter(|(_, (since, delay))| has_lasted(*since, now, *delay));
        let due: Vec<JobStart> = due.map(|(start, _)| *start).collect();
        self.later.retain(|start, _| !due.contains(start));
        due
    }

    /// Lets everybody go: the agent ends.
    pub fn let_all_go(&mut self) {
        let held: Vec<JobStart> = self.held.keys().copied().collect();
        for start in held {
            self.let_go(start);
        }
    }
}
