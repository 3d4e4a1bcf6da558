//! What sharing gained: device time, energy and kept promises over many runs, by whom or when. Pure.
//!
//! While two tenants are on a device for t seconds, each at speed fraction s, they do Σ s·t seconds of work alone in t seconds
//! of the device. So a tenant saves s·t − t/2, which over both sums to what the device did beyond one job at a time. Where
//! more than two share, each is still booked half of the time: nobody tells how many were there at each moment, and so the
//! gain is told too small rather than too great. What nobody measured counts as neither gain nor loss, and is told apart.

use crate::store::AccountedRun;
use pillion_core::units::keeps_promise;
use std::collections::BTreeMap;

/// The part of the shared time that is booked to a tenant.
pub(crate) const TENANT_PART: f64 = 0.5;

/// What runs are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// All in one row.
    Nothing,
    /// The user.
    User,
    /// The account.
    Account,
    /// The partition.
    Partition,
    /// The workload.
    Workload,
    /// The node.
    Node,
    /// The day on which it ended, so many seconds east of UTC: `2026-11-21`.
    Day {
        /// The zone's offset.
        utc_offset_seconds: i32,
    },
}

impl GroupBy {
    /// As asked for: `user`, `account`, .., empty for nothing; `None` for another word.
    pub fn parse(word: &str, utc_offset_seconds: i32) -> Option<Self> {
        Some(match word {
            "" => Self::Nothing,
            "user" => Self::User,
            "account" => Self::Account,
            "partition" => Self::Partition,
            "workload" => Self::Workload,
            "node" => Self::Node,
            "day" => Self::Day { utc_offset_seconds },
            _ => return None,
        })
    }

    fn key(self, run: &AccountedRun) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::User => run.user.clone(),
            Self::Account => run.account.clone(),
            Self::Partition => run.partition.clone(),
            Self::Workload => run.workload.to_string(),
            Self::Node => run.node.to_string(),
            Self::Day { utc_offset_seconds } => day(run.ended_at.seconds() + f64::from(utc_offset_seconds)),
        }
    }
}

/// The day of a time in seconds since 1970, in the zone that it is counted in.
#[expect(clippy::cast_possible_truncation, reason = "whole seconds of a time that a run ended")]
fn day(seconds: f64) -> String {
    chrono::DateTime::from_timestamp(seconds as i64, 0)
        .map(|time| time.date_naive().to_string())
        .unwrap_or_default()
}

/// What one group of runs used and gained.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    /// What they have in common.
    pub key: String,
    /// Starts that ended.
    pub run_count: u32,
    /// Those that were beside others.
    pub shared_run_count: u32,
    /// Device time: a shared second counts half.
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
}

/// Sums by group.
#[derive(Debug)]
pub struct Accounts {
    group_by: GroupBy,
    groups: BTreeMap<String, Account>,
}

impl Accounts {
    /// Of nothing yet.
    pub const fn new(group_by: GroupBy) -> Self {
        Self { group_by, groups: BTreeMap::new() }
    }

    /// Counts more runs.
    pub fn extend(&mut self, runs: &[AccountedRun]) {
        for run in runs {
            let key = self.group_by.key(run);
            let group =
                self.groups.entry(key.clone()).or_insert_with(|| Account { key, ..Account::default() });
            add(group, run);
        }
    }

    /// In the order of keys.
    pub fn rows(self) -> impl Iterator<Item = Account> {
        self.groups.into_values()
    }
}

fn add(group: &mut Account, run: &AccountedRun) {
    let elapsed = run.ended_at.seconds_since(run.started_at).max(0.0);
    let shared = run.shared_seconds.clamp(0.0, elapsed);
    group.run_count += 1;
    group.gpu_seconds += elapsed - shared + shared * TENANT_PART;
    group.shared_seconds += shared;
    group.energy_joules += run.energy_joules.unwrap_or(0.0);
    if shared <= 0.0 {
        return;
    }
    group.shared_run_count += 1;
    if let (Some(own), Some(alone), true) = (run.energy_joules, run.solo_energy_joules, run.is_completed) {
        group.energy_joules_saved += alone - own;
    }
    let Some(speed) = run.speed_fraction else {
        group.unmeasured_seconds += shared;
        return;
    };
    group.gpu_seconds_saved += (speed - TENANT_PART) * shared;
    match run.slowdown_ratio_max {
        Some(promise) if keeps_promise(speed, promise) => group.promises_kept += 1,
        Some(_) => group.promises_broken += 1,
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use pillion_core::{NodeName, WorkloadKey};
    use proptest::prelude::*;

    fn account(runs: &[AccountedRun], group_by: GroupBy) -> Vec<Account> {
        let mut accounts = Accounts::new(group_by);
        let (first, rest) = runs.split_at(runs.len() / 2);
        accounts.extend(first);
        accounts.extend(rest);
        accounts.rows().collect()
    }

    fn run(user: &str, seconds: u32, shared: f64, speed_fraction: Option<f64>) -> AccountedRun {
        AccountedRun {
            user: user.to_owned(),
            account: "ml".to_owned(),
            partition: "shared".to_owned(),
            workload: WorkloadKey::new(format!("{user}/w")),
            node: NodeName::new("n1"),
            started_at: at(1000),
            ended_at: at(1000 + u64::from(seconds)),
            shared_seconds: shared,
            energy_joules: Some(100.0),
            solo_energy_joules: Some(150.0),
            speed_fraction,
            slowdown_ratio_max: Some(1.25),
            is_completed: true,
        }
    }

    #[test]
    fn two_at_nine_tenths_of_their_speed_save_eight_tenths_of_a_device() {
        let runs = [run("alice", 100, 100.0, Some(0.9)), run("bob", 100, 100.0, Some(0.9))];
        let [all] = account(&runs, GroupBy::Nothing).try_into().unwrap();
        assert!(
            (all.gpu_seconds - 100.0).abs() < 1e-9 && (all.gpu_seconds_saved - 80.0).abs() < 1e-9,
            "{all:?}"
        );
        assert_eq!((all.promises_kept, all.promises_broken, all.shared_run_count), (2, 0, 2));
        assert!((all.energy_joules_saved - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_alone_gains_nothing_and_one_that_nobody_measured_is_told_apart() {
        let runs =
            [run("alice", 100, 0.0, None), run("bob", 100, 40.0, None), run("bob", 100, 50.0, Some(0.4))];
        let by_user = account(&runs, GroupBy::User);
        assert_eq!(by_user.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["alice", "bob"]);
        let alone = &by_user[0];
        assert_eq!(
            (alone.gpu_seconds, alone.gpu_seconds_saved, alone.energy_joules_saved),
            (100.0, 0.0, 0.0)
        );
        let bob = &by_user[1];
        assert_eq!((bob.unmeasured_seconds, bob.promises_broken, bob.promises_kept), (40.0, 1, 0));
        assert!((bob.gpu_seconds_saved - (0.4 * 50.0 - 25.0)).abs() < 1e-9, "a loss is told too");
    }

    #[test]
    fn a_day_is_the_callers() {
        let runs = [run("alice", 100, 0.0, None)];
        let key = |offset| account(&runs, GroupBy::Day { utc_offset_seconds: offset })[0].key.clone();
        assert_eq!((key(0), key(-3600)), ("1970-01-01".to_owned(), "1969-12-31".to_owned()));
        assert_eq!(GroupBy::parse("week", 0), None);
    }

    proptest! {
        /// However runs are put together, the sums are those of all.
        #[test]
        fn groups_sum_to_the_whole(
            runs in prop::collection::vec((0_usize..3, 1_u32..1000, 0.0..1.0_f64, prop::option::of(0.1..1.2_f64)), 0..30)
        ) {
            let runs: Vec<AccountedRun> = runs
                .into_iter()
                .map(|(user, seconds, part, speed)| run(["a", "b", "c"][user], seconds, part * f64::from(seconds), speed))
                .collect();
            let sum = |group_by, value: fn(&Account) -> f64| account(&runs, group_by).iter().map(value).sum::<f64>();
            for value in [|it: &Account| it.gpu_seconds, |it: &Account| it.gpu_seconds_saved, |it: &Account| it.shared_seconds] {
                prop_assert!((sum(GroupBy::User, value) - sum(GroupBy::Nothing, value)).abs() < 1e-6);
            }
            let count = |group_by| account(&runs, group_by).iter().map(|it| it.run_count).sum::<u32>();
            prop_assert_eq!(count(GroupBy::Workload), u32::try_from(runs.len()).unwrap());
        }
    }
}
