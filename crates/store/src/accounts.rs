//! What runs used and gained, summed by whom, where, what or when.

use super::SliceLesson;
use pillion_core::{NodeName, UnixTime, UserId, WorkloadKey};

/// What runs are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// All in one row.
    Nothing,
    User,
    Account,
    Partition,
    Workload,
    Node,
    /// The size of the MIG instance that it had to itself; `none` where it had none.
    Instance,
    /// The day on which it ended, so many seconds east of UTC: `2026-11-21`.
    Day {
        /// The zone's offset.
        utc_offset_seconds: i32,
    },
}

impl GroupBy {
    /// As asked for: `user`, `account`, .., empty for nothing; `None` for another word.
    pub fn parse(word: &str, utc_offset_seconds: i32) -> Option<Self> {
        let day = Self::Day { utc_offset_seconds };
        let (node, instance) = (Self::Node, Self::Instance);
        [Self::Nothing, Self::User, Self::Account, Self::Partition, Self::Workload, node, instance, day]
            .into_iter()
            .find(|grouping| grouping.word() == word)
    }

    /// The word that [`Self::parse`] takes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::User => "user",
            Self::Account => "account",
            Self::Partition => "partition",
            Self::Workload => "workload",
            Self::Node => "node",
            Self::Instance => "instance",
            Self::Day { .. } => "day",
        }
    }
}

/// What runs used and gained (`analysis::account` says how it is counted).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sums {
    /// Starts that ended.
    pub run_count: u32,
    /// Those that were beside others.
    pub shared_run_count: u32,
    /// Device time: a second that was shared counts by the tenants of it, half for one of two.
    pub gpu_seconds: f64,
    /// Seconds beside others.
    pub shared_seconds: f64,
    /// Of those, seconds in runs whose speed nobody knows.
    pub unmeasured_seconds: f64,
    /// Device time that was saved; below zero: lost.
    pub gpu_seconds_saved: f64,
    /// Energy, each run's part.
    pub energy_joules: f64,
    /// Energy that was saved against the same workloads alone, over completed runs where both are known.
    pub energy_joules_saved: f64,
    /// Measured runs that were as fast as promised.
    pub promises_kept: u32,
    /// Measured runs that were not.
    pub promises_broken: u32,
    /// Runs that were ended so that their job starts again alone. What they did is lost.
    pub sent_back_run_count: u32,
}

impl Sums {
    pub fn add(&mut self, more: &Self) {
        self.run_count += more.run_count;
        self.shared_run_count += more.shared_run_count;
        self.gpu_seconds += more.gpu_seconds;
        self.shared_seconds += more.shared_seconds;
        self.unmeasured_seconds += more.unmeasured_seconds;
        self.gpu_seconds_saved += more.gpu_seconds_saved;
        self.energy_joules += more.energy_joules;
        self.energy_joules_saved += more.energy_joules_saved;
        self.promises_kept += more.promises_kept;
        self.promises_broken += more.promises_broken;
        self.sent_back_run_count += more.sent_back_run_count;
    }
}

/// What one run used and gained, and whose it was. Made once, when the run is profiled, and never changed: what a month
/// gained does not depend on what is learnt or changed later.
#[derive(Debug, Clone, PartialEq)]
pub struct RunAccount {
    /// Whose it was: what a user may see.
    pub uid: UserId,
    /// The user's name.
    pub user: String,
    pub account: String,
    /// The pool partition.
    pub partition: String,
    /// What it ran.
    pub workload: WorkloadKey,
    pub node: NodeName,
    /// When its last process was gone.
    pub ended_at: UnixTime,
    /// What it used and gained; of one run.
    pub sums: Sums,
    /// How much more of its device it used beside others than its profile says, 0..=1; absent = nobody can say, or asks.
    pub use_beyond_fraction: Option<f64>,
    /// What it taught of its workload in instances; absent = it ran in none.
    pub slice: Option<SliceLesson>,
}

/// A group of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// What they have in common.
    pub key: String,
    /// What they used and gained.
    pub sums: Sums,
}

/// Of runs: of how many it was said that they would run out of device memory, and of how many that came true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAlarms {
    /// Of how many.
    pub told: u32,
    /// Of those, how many ran out of it.
    pub came_true: u32,
}

/// Which runs to count.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFilter {
    /// Ended at or after.
    pub since: UnixTime,
    /// Runs that ended before this.
    pub until: UnixTime,
    /// Of this user.
    pub user: Option<String>,
    /// Of this account.
    pub account: Option<String>,
    /// In this partition.
    pub partition: Option<String>,
    /// Of this workload.
    pub workload: Option<String>,
    /// On one of these nodes; empty: on any.
    pub nodes: Vec<NodeName>,
    /// Of this uid: what a user may see.
    pub uid: Option<UserId>,
}

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// The whole hours of a question that can be answered by the hour, from and until when; the rest of it, before and after
/// them, is added from single runs. None: both are its end.
pub(super) fn whole_hours(filter: &RunFilter, group_by: GroupBy) -> (UnixTime, UnixTime) {
    let none = (filter.until, filter.until);
    let by_hour = match group_by {
        GroupBy::Nothing | GroupBy::User | GroupBy::Account | GroupBy::Partition | GroupBy::Workload => true,
        // Sums by the hour do not tell these apart.
        GroupBy::Node | GroupBy::Instance => false,
        // Days that begin between two hours of UTC.
        GroupBy::Day { utc_offset_seconds } => utc_offset_seconds % 3600 == 0,
    };
    if !by_hour || !filter.nodes.is_empty() {
        return none;
    }
    let first = (filter.since.seconds() / HOUR).ceil() * HOUR;
    let last = (filter.until.seconds() / HOUR).floor() * HOUR;
    if first < last { (UnixTime::from_seconds(first), UnixTime::from_seconds(last)) } else { none }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(since: f64, until: f64) -> RunFilter {
        RunFilter {
            since: UnixTime::from_seconds(since),
            until: UnixTime::from_seconds(until),
            user: None,
            account: None,
            partition: None,
            workload: None,
            nodes: Vec::new(),
            uid: None,
        }
    }

    #[test]
    fn whole_hours_lie_within_the_stretch_and_what_they_cannot_tell_is_left_to_runs() {
        let hours = |filter: &RunFilter, group_by| {
            let (first, last) = whole_hours(filter, group_by);
            (first.seconds(), last.seconds())
        };
        let day = |utc_offset_seconds| GroupBy::Day { utc_offset_seconds };
        let (year, odd) = (filter(0.0, 36_000.0), filter(1.5, 10_799.5));
        assert_eq!(hours(&year, GroupBy::User), (0.0, 36_000.0));
        assert_eq!(hours(&year, day(-7200)), (0.0, 36_000.0));
        assert_eq!(hours(&odd, GroupBy::Nothing), (3600.0, 7200.0));
        assert_eq!(hours(&filter(1.0, 7199.0), GroupBy::Nothing), (7199.0, 7199.0), "no whole hour");
        assert_eq!(hours(&year, day(19_800)), (36_000.0, 36_000.0), "India");
        assert_eq!(hours(&year, GroupBy::Node), (36_000.0, 36_000.0));
        assert_eq!(hours(&year, GroupBy::Instance), (36_000.0, 36_000.0));
        let there = RunFilter { nodes: vec![NodeName::new("n1")], ..year };
        assert_eq!(hours(&there, GroupBy::User), (36_000.0, 36_000.0));
    }

    #[test]
    fn what_is_no_word_of_a_group_is_refused() {
        assert_eq!(GroupBy::parse("week", 0), None);
        assert_eq!(GroupBy::parse("", 0), Some(GroupBy::Nothing));
    }
}
