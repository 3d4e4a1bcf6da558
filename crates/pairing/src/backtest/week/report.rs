//! What all weeks come to, in the form that scripts read (`pillion backtest --week --json`; docs/backtest.md says what each
//! figure means). Fields are only ever added.

use super::super::report::SetSize;
use super::super::score::as_float;
use super::super::seed::share;
use super::outcome::Tally;
use super::{
    DAYS, FIRST_RUN_ALONE_HOURS, POLICIES, ROUNDS_PER_DAY, Recurrence, Watch, Week, WeekOutcome, WeekPolicy,
};
use crate::policy::FirstRuns;
use crate::trials::TrialPolicy;
use serde::Serialize;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WeekReport {
    /// What was done.
    pub protocol: WeekProtocol,
    /// What it was done on.
    pub set: SetSize,
    /// How each policy fared on each day, and in the whole week.
    pub days: Vec<DayScore>,
    /// What was lost against the oracle from the beginning of the week on, round by round.
    pub regret: Vec<RegretPoint>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WeekProtocol {
    /// The promise: shared time over solo time, at most.
    pub slowdown_ratio_max: f64,
    /// How many weeks.
    pub seeds: u64,
    /// Days of a week.
    pub days: usize,
    /// Rounds of a day.
    pub rounds_per_day: usize,
    /// Jobs of a round, of one solo hour each.
    pub jobs: usize,
    /// How probably a job runs what ran before.
    pub recur_fraction: f64,
    /// What became of first runs.
    pub first_runs: FirstRuns,
    /// Hours that a first run had its device to itself before it could be joined.
    pub first_run_alone_hours: f64,
    /// What was known of new workloads.
    pub recurrence: Recurrence,
    /// How pairs were taken apart that broke a promise; `null` = they were not.
    pub watch: Option<Watch>,
    /// How pairs outside the bounds were tried; `null` = they were not.
    pub trials: Option<TrialPolicy>,
}

/// How a policy fared on one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DayScore {
    /// Who chose.
    pub policy: WeekPolicy,
    /// The day, from 1; `null` = the whole week.
    pub day: Option<usize>,
    /// Hours of all jobs, each alone: the mean over all seeds.
    pub exclusive_hours: f64,
    /// Hours saved, whether or not promises were kept; below 0 = lost.
    pub saved_hours: f64,
    /// Hours saved by pairs that kept the promise, less hours lost by any.
    pub kept_hours: f64,
    /// `kept_hours` over those of the oracle that may do anything, over all seeds; `null` = it saves nothing.
    pub oracle_share: Option<f64>,
    /// Share of the jobs that shared a device, or tried to.
    pub paired_fraction: Option<f64>,
    /// Of these, the share that ran slower than promised, or did not fit.
    pub broken_fraction: Option<f64>,
    /// Of the pairs, the share that was taken apart.
    pub sent_back_fraction: Option<f64>,
    /// Share of the jobs that ran for the first time.
    pub first_run_fraction: Option<f64>,
    /// Of these, the share that was joined.
    pub first_run_joined_fraction: Option<f64>,
    /// Pairs that did not fit, over all seeds.
    pub unfit_pairs: usize,
    /// Pairs that nobody measured, over all seeds: more than 0 is a mistake of the policy.
    pub unmeasured_pairs: usize,
}

/// What was lost since the beginning of the week.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegretPoint {
    /// The round, from 1.
    pub round: usize,
    /// Who chose.
    pub policy: WeekPolicy,
    /// Hours that the oracle kept and it did not, in all rounds so far: the mean over all seeds.
    pub regret_hours: f64,
    /// Hours that the oracle kept in all rounds so far.
    pub oracle_hours: f64,
}

pub(super) fn report(week: &Week<'_>, outcomes: &[WeekOutcome]) -> WeekReport {
    let rounds: Vec<[Tally; POLICIES.len()]> = (0..DAYS * ROUNDS_PER_DAY)
        .map(|round| sum(outcomes.iter().map(|outcome| outcome.rounds[round])))
        .collect();
    let mut days: Vec<DayScore> = Vec::new();
    for (day, rounds) in rounds.chunks(ROUNDS_PER_DAY).enumerate() {
        days.extend(scores(Some(day + 1), &sum(rounds.iter().copied()), outcomes.len()));
    }
    days.extend(scores(None, &sum(rounds.iter().copied()), outcomes.len()));
    let options = &week.options;
    WeekReport {
        protocol: WeekProtocol {
            slowdown_ratio_max: options.slowdown_ratio_max.value(),
            seeds: options.seeds,
            days: DAYS,
            rounds_per_day: ROUNDS_PER_DAY,
            jobs: options.jobs,
            recur_fraction: options.recur_fraction,
            first_runs: options.first_runs,
            first_run_alone_hours: FIRST_RUN_ALONE_HOURS,
            recurrence: options.recurrence,
            watch: options.watch,
            trials: options.trials,
        },
        set: SetSize::of(&week.truth),
        days,
        regret: regret(&rounds, outcomes.len()),
    }
}

fn sum(tallies: impl Iterator<Item = [Tally; POLICIES.len()]>) -> [Tally; POLICIES.len()] {
    tallies.fold([Tally::default(); POLICIES.len()], |sums, one| {
        std::array::from_fn(|policy| sums[policy].plus(one[policy]))
    })
}

/// The oracle that may do anything is the last of the policies.
const ORACLE: usize = POLICIES.len() - 1;

fn scores(
    day: Option<usize>,
    tallies: &[Tally; POLICIES.len()],
    seeds: usize,
) -> impl Iterator<Item = DayScore> {
    let seeds = as_float(seeds.max(1));
    let oracle = tallies[ORACLE].hours_kept;
    POLICIES.into_iter().zip(*tallies).map(move |(policy, tally)| DayScore {
        policy,
        day,
        exclusive_hours: as_float(tally.jobs) / seeds,
        saved_hours: tally.hours_saved / seeds,
        kept_hours: tally.hours_kept / seeds,
        oracle_share: (oracle > 0.0).then(|| tally.hours_kept / oracle),
        paired_fraction: share(tally.paired, tally.jobs),
        broken_fraction: share(tally.broken, tally.paired),
        sent_back_fraction: share(2 * tally.sent_back, tally.paired),
        first_run_fraction: share(tally.first_runs, tally.jobs),
        first_run_joined_fraction: share(tally.first_runs_joined, tally.first_runs),
        unfit_pairs: tally.unfit,
        unmeasured_pairs: tally.unmeasured,
    })
}

fn regret(rounds: &[[Tally; POLICIES.len()]], seeds: usize) -> Vec<RegretPoint> {
    let seeds = as_float(seeds.max(1));
    let mut kept = [0.0; POLICIES.len()];
    let mut points = Vec::new();
    for (round, tallies) in rounds.iter().enumerate() {
        for (sum, tally) in kept.iter_mut().zip(tallies) {
            *sum += tally.hours_kept / seeds;
        }
        points.extend(POLICIES[..ORACLE].iter().zip(kept).map(|(policy, own)| RegretPoint {
            round: round + 1,
            policy: *policy,
            regret_hours: kept[ORACLE] - own,
            oracle_hours: kept[ORACLE],
        }));
    }
    points
}
