//! From the configuration file ([`pillion_config::Scheduler`]) to what the modules take.

use crate::context::Settings;
use crate::grpc::auth::Operators;
use crate::job_rules::{JobPolicy, beside, between, wall};
use crate::pace::settings::PaceSettings;
use crate::train::Training;
use pillion_config::{
    EndsBy, FirstRuns, Objective, OomRequeue, PolicyConfig, Scheduler, ShardsBy, TrainingConfig, Trials,
};
use pillion_core::SlowdownRatio;
use pillion_pairing::{EndsBy as EndRule, FirstRuns as FirstRunRule, Objective as Aim, Policy, TrialPolicy};
use std::time::Duration;

/// The reconcilers' part of it.
pub fn settings(config: &Scheduler) -> Settings {
    Settings {
        pool: config.pool.partitions.clone(),
        observed: config.observe.partitions.clone(),
        observe_shadow: config.observe.shadow,
        bound: Duration::from_secs(config.bound_seconds),
        mode: config.mode,
        history_kept: days(config.database.history_kept_days),
        samples_kept: Duration::from_hours(24 * u64::from(config.database.samples_kept_days)),
        sample_period: Duration::from_secs(u64::from(config.database.sample_period_seconds)),
        policy: Policy { first_runs: first_runs(config), ..policy(&config.policy) },
        job_policy: JobPolicy::new(config),
        alone_devices_max: config.policy.alone_devices_max,
        credit_runs: config.policy.credit_runs,
        books_by_use: config.policy.shards_by == ShardsBy::Use,
        restarts_by_consent: config.policy.oom_requeue == OomRequeue::Ask,
        heartbeat_path: Some(config.heartbeat_path.clone()),
        gpu_types: config.pool.gpu_types.clone(),
        plain_jobs: config.pool.plain_jobs,
        shared_by_default: config.pool.shared_by_default().map(str::to_owned).collect(),
        session_idle: Duration::from_secs_f64(config.policy.session_idle_seconds),
        training: training(config.training),
        pace: pace(&config.policy),
        ..Settings::default()
    }
}

/// 0 means no end.
fn days(count: u32) -> Option<Duration> {
    (count > 0).then(|| Duration::from_hours(24 * u64::from(count)))
}

/// Who may see everything.
pub fn operators(config: &Scheduler) -> Operators {
    Operators { uids: config.listen.operator_uids.clone() }
}

fn policy(config: &PolicyConfig) -> Policy {
    let PolicyConfig {
        users,
        isolation,
        share_instances,
        share_wide,
        objective,
        slowdown_ratio_max,
        memory_margin_fraction,
        gain_min,
        tenants_max,
        caps,
        solo_runs_min,
        solo_seconds_min,
        // With the watch: `first_runs`.
        first_runs: _,
        first_run_seconds_min,
        ends_by,
        // Of users and the order in which they are served, and of what runs already: the scheduler's own.
        credit_runs: _,
        shards_by: _,
        oom_requeue: _,
        alone_devices_max: _,
        broken_budget_fraction,
        pair_when_idle,
        watch: _,
        watch_believes,
        watch_first_seconds,
        watch_steady_seconds: _,
        watch_restart_seconds,
        watch_partitions: _,
        trials,
        guests,
        session_idle_seconds: _,
        // Of single jobs: `job_rules`.
        ref overrides,
    } = *config;
    // Where some are tried there are trials, and of the others it is said that they are not.
    let are_some_tried = trials == Trials::On || overrides.iter().any(|own| own.trials == Some(Trials::On));
    let standard = Policy::default();
    Policy {
        users: between(users),
        watch_believes: between(watch_believes),
        isolation: wall(isolation),
        guests: beside(guests),
        share_instances,
        share_wide,
        objective: match objective {
            Objective::Throughput => Aim::Throughput,
            Objective::Energy => Aim::Energy,
            Objective::ThroughputPerWatt => Aim::ThroughputPerWatt,
        },
        // The file was checked: only a value made by hand can be out of range.
        slowdown_ratio_max: SlowdownRatio::try_promise(slowdown_ratio_max)
            .unwrap_or(standard.slowdown_ratio_max),
        memory_margin_fraction,
        gain_min,
        tenants_max,
        caps,
        solo_runs_min,
        solo_seconds_min,
        first_runs: standard.first_runs,
        first_run_seconds_min,
        ends_by: match ends_by {
            EndsBy::Runs => EndRule::Runs,
            EndsBy::Limits => EndRule::Limits,
        },
        broken_budget_fraction,
        allowed: None,
        pair_when_idle,
        trials: are_some_tried.then(|| TrialPolicy {
            // The watch's first reading is the verdict.
            trial_seconds: f64::from(watch_first_seconds),
            restart_seconds: f64::from(watch_restart_seconds),
        }),
    }
}

/// Hosts only where the watch parts pairs in the whole pool: a GPU may be in several partitions, and its guest of any.
fn first_runs(config: &Scheduler) -> FirstRunRule {
    let is_host = config.policy.first_runs == FirstRuns::Host && config.first_runs_unwatched().is_empty();
    if is_host { FirstRunRule::Host } else { FirstRunRule::Alone }
}

fn pace(config: &PolicyConfig) -> PaceSettings {
    PaceSettings {
        watch: config.watch,
        by_partition: config.watch_partitions.clone(),
        first_seconds: f64::from(config.watch_first_seconds),
        steady_seconds: f64::from(config.watch_steady_seconds),
        restart_seconds: f64::from(config.watch_restart_seconds),
    }
}

fn training(config: TrainingConfig) -> Training {
    let TrainingConfig { observations_min, period_seconds_min, observations_max } = config;
    Training { observations_min, period_min: Duration::from_secs(period_seconds_min), observations_max }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_config::Watch;
    use pillion_core::isolation::Isolation as Wall;
    use pillion_pairing::{GuestRule, UserPolicy};

    #[test]
    fn nothing_written_is_what_the_modules_take_for_usual() {
        let settings = settings(&Scheduler::default());
        // Of files nobody knows for how long was measured.
        assert_eq!(settings.policy, Policy { solo_seconds_min: 30.0, ..Policy::default() });
        assert_eq!(settings.credit_runs, Settings::default().credit_runs);
        assert_eq!(settings.alone_devices_max, Settings::default().alone_devices_max);
        assert_eq!(settings.pace, Settings::default().pace);
        assert_eq!(settings.session_idle, Settings::default().session_idle);
        assert_eq!(format!("{:?}", settings.training), format!("{:?}", Training::default()));
    }

    #[test]
    fn what_is_written_of_users_rights_reaches_the_scheduler() {
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\ncredit_runs = 3\nalone_devices_max = 7\nsession_idle_seconds = 90\n";
        let settings = settings(&pillion_config::parse_scheduler(text).unwrap());
        assert_eq!((settings.credit_runs, settings.alone_devices_max), (3, 7));
        assert_eq!(settings.session_idle, Duration::from_secs(90));
    }

    #[test]
    fn shards_are_booked_by_profiles_until_the_site_wants_them_by_use() {
        let books_by_use = |line: &str| {
            let text = format!("[pool]\npartitions = [\"a\"]\n[policy]\n{line}");
            settings(&pillion_config::parse_scheduler(&text).unwrap()).books_by_use
        };
        assert!(!books_by_use("") && !books_by_use("shards_by = \"profile\""));
        assert!(books_by_use("shards_by = \"use\""));
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\nshards_by = \"guess\"\n";
        assert!(pillion_config::parse_scheduler(text).is_err());
    }

    #[test]
    fn who_ran_out_of_memory_is_started_again_by_consent_unless_the_site_forbids_it() {
        let restarts = |line: &str| {
            let text = format!("[pool]\npartitions = [\"a\"]\n[policy]\n{line}");
            pillion_config::parse_scheduler(&text).map(|config| settings(&config).restarts_by_consent)
        };
        assert_eq!((restarts("").ok(), restarts("oom_requeue = \"ask\"").ok()), (Some(true), Some(true)));
        assert_eq!(restarts("oom_requeue = \"never\"").ok(), Some(false));
        assert!(restarts("oom_requeue = \"always\"").is_err());
    }

    #[test]
    fn trials_are_off_until_they_are_wanted_and_take_the_times_of_the_watch() {
        let policy = |line: &str| {
            let text = format!("[pool]\npartitions = [\"a\"]\n[policy]\nwatch_first_seconds = 90\n{line}");
            settings(&pillion_config::parse_scheduler(&text).unwrap()).policy
        };
        assert_eq!((policy("").trials, policy("trials = \"off\"").trials), (None, None));
        let expected = TrialPolicy { trial_seconds: 90.0, restart_seconds: 120.0 };
        assert_eq!(policy("trials = \"on\"").trials, Some(expected));
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\ntrials = \"maybe\"\n";
        assert!(pillion_config::parse_scheduler(text).is_err());
    }

    #[test]
    fn what_is_written_of_the_watch_reaches_it() {
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\nwatch = \"off\"\nwatch_first_seconds = 30\n\
                    watch_steady_seconds = 300\nwatch_restart_seconds = 45\n[policy.watch_partitions]\na = \"act\"\n";
        let pace = settings(&pillion_config::parse_scheduler(text).unwrap()).pace;
        let expected = PaceSettings {
            watch: Watch::Off,
            by_partition: [("a".to_owned(), Watch::Act)].into(),
            first_seconds: 30.0,
            steady_seconds: 300.0,
            restart_seconds: 45.0,
        };
        assert_eq!(pace, expected);
        let wrong = text.replace("a = \"act\"", "a = \"now\"");
        let error = format!("{:?}", pillion_config::parse_scheduler(&wrong).unwrap_err());
        assert!(error.contains("advise"), "{error}");
    }

    #[test]
    fn what_is_written_reaches_the_policy() {
        let text = "[pool]\npartitions = [\"a\"]\n[policy]\nusers = \"any\"\nisolation = \"hard\"\nshare_instances = true\nshare_wide = true\nobjective = \"throughput-per-watt\"\n\
                    slowdown_ratio_max = 1.5\nmemory_margin_fraction = 0.25\ngain_min = 0.5\ntenants_max = 3\ncaps = false\n\
                    solo_runs_min = 4\nsolo_seconds_min = 90\nfirst_runs = \"host\"\nwatch = \"act\"\n\
                    watch_believes = \"same-account\"\nfirst_run_seconds_min = 120\nends_by = \"limits\"\nbroken_budget_fraction = 0.125\npair_when_idle = false\nguests = \"never\"\n";
        let config = pillion_config::parse_scheduler(text).unwrap();
        let expected = Policy {
            users: UserPolicy::Any,
            watch_believes: UserPolicy::SameAccount,
            isolation: Wall::Hard,
            share_instances: true,
            share_wide: true,
            objective: Aim::ThroughputPerWatt,
            slowdown_ratio_max: SlowdownRatio::try_promise(1.5).unwrap(),
            memory_margin_fraction: 0.25,
            gain_min: 0.5,
            tenants_max: 3,
            caps: false,
            solo_runs_min: 4,
            solo_seconds_min: 90.0,
            first_runs: FirstRunRule::Host,
            first_run_seconds_min: 120.0,
            ends_by: EndRule::Limits,
            broken_budget_fraction: 0.125,
            allowed: None,
            pair_when_idle: false,
            trials: None,
            guests: GuestRule::Never,
        };
        assert_eq!(settings(&config).policy, expected);
    }

    #[test]
    fn first_runs_are_hosts_only_where_the_watch_acts_in_the_whole_pool() {
        let rule = |watch: &str| {
            let text =
                format!("[pool]\npartitions = [\"a\", \"b\"]\n[policy]\nfirst_runs = \"host\"\n{watch}");
            let config = pillion_config::parse_scheduler(&text).unwrap();
            let unwatched = config.first_runs_unwatched().join(",");
            (settings(&config).policy.first_runs, unwatched)
        };
        assert_eq!(rule(""), (FirstRunRule::Alone, "a,b".to_owned()), "it only tells");
        assert_eq!(rule("watch = \"act\"\n"), (FirstRunRule::Host, String::new()));
        let but_one = "watch = \"act\"\n[policy.watch_partitions]\nb = \"advise\"\n";
        assert_eq!(rule(but_one), (FirstRunRule::Alone, "b".to_owned()));
        let each = "[policy.watch_partitions]\na = \"act\"\nb = \"act\"\n";
        assert_eq!(rule(each), (FirstRunRule::Host, String::new()));
    }
}
