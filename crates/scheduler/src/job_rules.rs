//! What the site says of single jobs: the first override of its file that matches what Slurm says of a job, and `[policy]` for the rest
//! (docs/decisions/0036-policy-by-job.md). Pure. Must not ask what a user claims: account, QOS and partition are Slurm's.

use crate::pace::settings::PaceSettings;
use pillion_config::{FirstRuns, Guests, Isolation, Override, Scheduler, Trials, Users, Watch};
use pillion_core::SlowdownRatio;
use pillion_core::isolation::Isolation as Wall;
use pillion_core::name::digest;
use pillion_pairing::{FirstRuns as FirstRunRule, GuestRule, JobRules, Policy, UserPolicy};
use pillion_slurm::Job;

/// The rules by job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobPolicy {
    overrides: Vec<Override>,
    /// Whether first runs may be hosts at all: only where the watch parts pairs in the whole pool.
    may_host_first_runs: bool,
    /// Whether jobs of which nothing else is said are tried.
    are_all_tried: bool,
}

impl JobPolicy {
    /// From the file.
    pub fn new(config: &Scheduler) -> Self {
        Self {
            overrides: config.policy.overrides.clone(),
            may_host_first_runs: config.first_runs_unwatched().is_empty(),
            are_all_tried: config.policy.trials == Trials::On,
        }
    }

    /// Whether the same holds for every job.
    pub fn is_uniform(&self) -> bool {
        self.overrides.is_empty()
    }

    /// The number of the override that counts for a job, from 1, and the override.
    fn of(&self, job: &Job) -> Option<(u32, &Override)> {
        let mut all = (1..).zip(&self.overrides);
        all.find(|(_, own)| own.matches(&job.partition, &job.account, &job.qos))
    }

    /// How many tenants an override lets a device have at most; 0 where none says so.
    pub fn tenants_max(&self) -> u32 {
        self.overrides.iter().filter_map(|own| own.tenants_max).max().unwrap_or(0)
    }

    /// Whether every job that names no promise is promised the same.
    pub fn promises_all_the_same(&self) -> bool {
        self.overrides.iter().all(|own| own.slowdown_ratio_max.is_none())
    }
}

/// The site's policy, as it is asked of one job.
#[derive(Debug, Clone, Copy)]
pub struct ByJob<'a> {
    /// What holds for all.
    pub policy: &'a Policy,
    /// What does not.
    pub own: &'a JobPolicy,
    /// By partition what is done where promises break.
    pub pace: &'a PaceSettings,
}

impl ByJob<'_> {
    /// What is said of a job; `None` where the same holds for every job. With one of whom Slurm says nothing any more nobody shares.
    pub fn rules(self, job: Option<&Job>) -> Option<JobRules> {
        let Self { policy, own: JobPolicy { may_host_first_runs, .. }, .. } = self;
        if self.own.is_uniform() {
            return None;
        }
        let Some(job) = job else { return Some(JobRules { tenants_max: 1, ..policy.of_jobs() }) };
        let of_all = JobRules { is_parted: self.watch(job) == Watch::Act, ..policy.of_jobs() };
        let of_all = if self.own.are_all_tried { of_all } else { JobRules { trials: false, ..of_all } };
        let Some((number, own)) = self.own.of(job) else { return Some(of_all) };
        let first_runs = own.first_runs.map(|rule| match rule {
            FirstRuns::Host if *may_host_first_runs => FirstRunRule::Host,
            FirstRuns::Host | FirstRuns::Alone => FirstRunRule::Alone,
        });
        Some(JobRules {
            from_override: Some(number),
            users: own.users.map_or(of_all.users, between),
            isolation: own.isolation.map_or(of_all.isolation, wall),
            tenants_max: own.tenants_max.unwrap_or(of_all.tenants_max),
            caps: own.caps.unwrap_or(of_all.caps),
            first_runs: first_runs.unwrap_or(of_all.first_runs),
            trials: own.trials.map_or(of_all.trials, |rule| rule == Trials::On),
            guests: own.guests.map_or(of_all.guests, beside),
            ..of_all
        })
    }

    /// The promise to a job that names none.
    pub fn promise(self, job: &Job) -> SlowdownRatio {
        let own = self.own.of(job).and_then(|(_, own)| own.slowdown_ratio_max);
        own.and_then(|ratio| SlowdownRatio::try_promise(ratio).ok()).unwrap_or(self.policy.slowdown_ratio_max)
    }

    /// What is done where a promise breaks on a device that this job joined last.
    pub fn watch(self, job: &Job) -> Watch {
        let own = self.own.of(job).and_then(|(_, own)| own.watch);
        own.unwrap_or_else(|| self.pace.of(&job.partition))
    }

    /// Whether nobody's promise is looked after.
    pub fn is_watch_off(self) -> bool {
        let is_off = |own: &Override| own.watch.is_none_or(|watch| watch == Watch::Off);
        self.pace.is_off() && self.own.overrides.iter().all(is_off)
    }

    /// Whether anybody's first run may be a host.
    pub fn may_host_first_runs(self) -> bool {
        let says_so =
            |own: &Override| own.first_runs == Some(FirstRuns::Host) && self.own.may_host_first_runs;
        self.policy.first_runs == FirstRunRule::Host || self.own.overrides.iter().any(says_so)
    }
}

/// What a decision on a job presupposes of it, as `pillion.lua` compares it under slurmctld's lock: account, QOS and partition.
pub fn decided_on(job: &Job) -> String {
    digest(&format!("{}\n{}\n{}", job.account, job.qos, job.partition))
}

pub(crate) fn between(users: Users) -> UserPolicy {
    match users {
        Users::SameUser => UserPolicy::SameUser,
        Users::SameAccount => UserPolicy::SameAccount,
        Users::Any => UserPolicy::Any,
    }
}

pub(crate) fn wall(isolation: Isolation) -> Wall {
    match isolation {
        Isolation::Shared => Wall::Shared,
        Isolation::Hard => Wall::Hard,
    }
}

pub(crate) fn beside(guests: Guests) -> GuestRule {
    match guests {
        Guests::Beside => GuestRule::Beside,
        Guests::Never => GuestRule::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings;
    use crate::testing;
    use pillion_slurm::JobState;

    const FILE: &str = "[pool]\npartitions = [\"day\", \"night\"]\n[policy]\nwatch = \"advise\"\n\
        [[policy.override]]\nqos = [\"free\"]\naccounts = [\"lab\"]\nusers = \"any\"\nslowdown_ratio_max = 3\nwatch = \"act\"\ntrials = \"on\"\n\
        [[policy.override]]\nqos = [\"free\"]\nguests = \"never\"\n\
        [[policy.override]]\npartitions = [\"night\"]\nisolation = \"hard\"\ntenants_max = 1\ncaps = false\nfirst_runs = \"host\"\n";

    fn job(partition: &str, account: &str, qos: &str) -> Job {
        let (partition, account, qos) = (partition.into(), account.into(), qos.into());
        Job { partition, account, qos, ..testing::job(JobState::Pending) }
    }

    #[test]
    fn the_first_that_matches_counts_and_the_policy_for_what_it_does_not_name() {
        let config = pillion_config::parse_scheduler(FILE).unwrap();
        let settings = settings(&config);
        let by_job = settings.by_job();
        let rules = |job: &Job| by_job.rules(Some(job)).unwrap();
        let of_lab = job("night", "lab", "free");
        let expected = JobRules {
            from_override: Some(1),
            users: UserPolicy::Any,
            is_parted: true,
            trials: true,
            ..rules(&job("day", "", ""))
        };
        assert_eq!(rules(&of_lab), expected, "and not what is said of the night");
        assert_eq!((by_job.promise(&of_lab).value(), by_job.watch(&of_lab)), (3.0, Watch::Act));
        let of_others = rules(&job("night", "other", "free"));
        assert_eq!(
            (of_others.from_override, of_others.guests, of_others.users),
            (Some(2), GuestRule::Never, UserPolicy::SameUser)
        );
        let at_night = rules(&job("night", "other", "normal"));
        assert_eq!((at_night.isolation, at_night.tenants_max, at_night.caps), (Wall::Hard, 1, false));
        assert_eq!(at_night.first_runs, FirstRunRule::Alone, "nobody parts pairs in the whole pool");
        let of_none = rules(&job("day", "lab", "normal"));
        assert_eq!((of_none.from_override, of_none.trials, of_none.is_parted), (None, false, false));
        assert!(settings.policy.trials.is_some(), "there are trials, of those of whom it is said");
        assert_eq!(by_job.promise(&job("day", "lab", "normal")), settings.policy.slowdown_ratio_max);
        assert_eq!(by_job.rules(None).unwrap().tenants_max, 1, "Slurm has forgotten it");
    }

    #[test]
    fn who_names_several_partitions_is_parted_where_all_of_them_part() {
        let text = "[pool]\npartitions = [\"day\", \"night\"]\n[policy]\nwatch = \"act\"\nwatch_partitions = { night = \"off\" }\n\
            [[policy.override]]\nqos = [\"free\"]\nusers = \"any\"\n";
        let settings = settings(&pillion_config::parse_scheduler(text).unwrap());
        let is_parted =
            |partitions: &str| settings.by_job().rules(Some(&job(partitions, "", "free"))).unwrap().is_parted;
        assert!(is_parted("day") && !is_parted("night") && !is_parted("day,night"));
    }

    #[test]
    fn where_the_same_holds_for_all_nothing_is_said_of_single_jobs() {
        let config = pillion_config::parse_scheduler("[pool]\npartitions = [\"day\"]\n").unwrap();
        let settings = settings(&config);
        assert!(settings.job_policy.is_uniform() && settings.job_policy.promises_all_the_same());
        assert_eq!(settings.by_job().rules(Some(&job("day", "", ""))), None);
    }

    #[test]
    fn whatever_slurm_says_otherwise_is_another_job_to_decide_on() {
        let decided = decided_on(&job("day", "lab", "free"));
        assert_eq!(decided, decided_on(&job("day", "lab", "free")));
        for other in [
            job("night", "lab", "free"),
            job("day", "la", "bfree"),
            job("day", "lab", ""),
            job("day", "", "free"),
        ] {
            assert_ne!(decided, decided_on(&other));
        }
    }
}
