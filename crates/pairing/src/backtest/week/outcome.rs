//! What comes of jobs that share: hours and promises, by the truth.

use super::super::score::{UNFIT_HOURS_LOST, as_float, keeps, keeps_one};
use super::super::truth::Truth;
use super::Watch;

/// Two that share, or one that joins a first run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sharing {
    /// The combination that was measured, by place.
    pub(super) combination: usize,
    /// Whether the first of the two is the combination's second.
    pub(super) is_turned: bool,
    /// For how long the first one had the device to itself before, of its one hour alone.
    pub(super) alone_hours: f64,
}

impl Sharing {
    /// The true speeds, in the order of the two; `None` = they do not fit.
    pub(super) fn speeds(&self, truth: &Truth) -> Option<[f64; 2]> {
        let [a, b] = truth.combinations[self.combination].speeds?;
        Some(if self.is_turned { [b, a] } else { [a, b] })
    }
}

/// Device hours saved by two of one solo hour each, the first of which ran alone for a while before.
pub(super) fn hours_saved(alone_hours: f64, [host, guest]: [f64; 2]) -> f64 {
    if host.max(guest) <= 0.0 {
        return -UNFIT_HOURS_LOST;
    }
    let left = 1.0 - alone_hours;
    // Both until one of them is done, then the other alone at full speed.
    let together = if host * 1.0 >= guest * left { left / host } else { guest.recip() };
    let rest = (left - host * together).max(0.0) + (1.0 - guest * together).max(0.0);
    2.0 - (alone_hours + together + rest)
}

/// Device hours saved (below 0) by two of whom the guest goes back: until then both are slowed, and what the guest did is lost.
pub(super) fn hours_saved_parted(watch: Watch, [host, _]: [f64; 2]) -> f64 {
    -(watch.read_hours * (1.0 - host) + watch.restart_hours)
}

/// What came of a round, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    /// Jobs; each takes an hour alone.
    pub(super) jobs: usize,
    /// Jobs that shared, or tried to.
    pub(super) paired: usize,
    /// Of these, how many ran slower than promised; two that did not fit count.
    pub(super) broken: usize,
    /// Pairs that the watch took apart: the guest ran alone from the beginning.
    pub(super) sent_back: usize,
    /// Pairs that did not fit.
    pub(super) unfit: usize,
    /// Jobs that ran for the first time, and how many of them were joined.
    pub(super) first_runs: usize,
    pub(super) first_runs_joined: usize,
    /// Pairs that nobody measured: a mistake of the planner.
    pub(super) unmeasured: usize,
    /// Device hours saved, all counted.
    pub(super) hours_saved: f64,
    /// Hours saved by pairs that kept the promise, less hours lost by any.
    pub(super) hours_kept: f64,
}

impl Tally {
    pub(super) fn of_jobs(jobs: &[(usize, bool)]) -> Self {
        let first_runs = jobs.iter().filter(|(_, is_first)| *is_first).count();
        Self { jobs: jobs.len(), first_runs, ..Self::default() }
    }

    /// Counts two that were taken apart when it was seen that a promise would break: neither breaks so early.
    pub(super) fn add_parted(&mut self, truth: &Truth, sharing: &Sharing, watch: Watch) {
        let saved = hours_saved_parted(watch, sharing.speeds(truth).unwrap_or_default());
        self.paired += 2;
        self.sent_back += 1;
        self.first_runs_joined += usize::from(sharing.alone_hours > 0.0);
        self.hours_saved += saved;
        self.hours_kept += saved;
    }

    /// Counts so many that share alike.
    pub(super) fn add(&mut self, truth: &Truth, sharing: &Sharing, count: usize, speed_min: f64) {
        self.paired += 2 * count;
        self.first_runs_joined += if sharing.alone_hours > 0.0 { count } else { 0 };
        let Some(speeds) = sharing.speeds(truth) else {
            self.unfit += count;
            self.broken += 2 * count;
            self.hours_saved -= UNFIT_HOURS_LOST * as_float(count);
            self.hours_kept -= UNFIT_HOURS_LOST * as_float(count);
            return;
        };
        let saved = hours_saved(sharing.alone_hours, speeds) * as_float(count);
        self.hours_saved += saved;
        if keeps(speeds, speed_min) || saved < 0.0 {
            self.hours_kept += saved;
        }
        self.broken += count * speeds.iter().filter(|speed| !keeps_one(**speed, speed_min)).count();
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            paired: self.paired + other.paired,
            broken: self.broken + other.broken,
            sent_back: self.sent_back + other.sent_back,
            unfit: self.unfit + other.unfit,
            first_runs: self.first_runs + other.first_runs,
            first_runs_joined: self.first_runs_joined + other.first_runs_joined,
            unmeasured: self.unmeasured + other.unmeasured,
            hours_saved: self.hours_saved + other.hours_saved,
            hours_kept: self.hours_kept + other.hours_kept,
        }
    }
}
