//! What all seeds come to, in the form that scripts read (`pillion backtest --json`; docs/benchmarks.md says what each
//! figure means). Fields are only ever added.

use super::score::{Tally, UNFIT_HOURS_LOST, as_float};
use super::seed::{Contestant, ErrorSums, SeedOutcome, SplitSums, share};
use super::trials::TrialTally;
use super::truth::Truth;
use super::{Backtest, NOISE_FRACTION, ORACLE_SAVES_MIN_FRACTION, Observe, PolicyName};
use crate::trials::TrialPolicy;
use serde::Serialize;
use std::collections::BTreeSet;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was done.
    pub protocol: Protocol,
    /// What it was done on.
    pub set: SetSize,
    /// How each policy fared, by queue, policy and observations.
    pub policies: Vec<PolicyScore>,
    /// What came of trials, by queue and observations; only where these were replayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<TrialScore>,
    /// How good the estimates were for combinations of new workloads that had not been seen.
    pub estimates: Vec<EstimateScore>,
    /// How good the caps were that a model rates highest, for pairs of new workloads of which nothing had been seen.
    pub splits: Vec<SplitScore>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Protocol {
    /// The promise: shared time over solo time, at most.
    pub slowdown_ratio_max: f64,
    /// How many seeds.
    pub seeds: u64,
    /// Jobs in each queue.
    pub queues: Vec<usize>,
    /// Observed pairings of the warm stages.
    pub warm_observations: Vec<usize>,
    /// Which pairings were observed.
    pub observe: Observe,
    /// How trials went; only where these were replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<TrialPolicy>,
    /// Noise of their speeds: standard deviation of the factor.
    pub noise_fraction: f64,
    /// Device hours that a pair loses that does not fit together.
    pub unfit_hours_lost: f64,
    /// A seed counts for `s_kept` where the oracle saves at least this of the exclusive hours.
    pub oracle_saves_min_fraction: f64,
}

/// What it was done on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetSize {
    /// The device model of the measured pairs.
    pub device: String,
    /// How it was shared.
    pub mechanism: String,
    /// Workloads that were measured in a pair.
    pub workloads: usize,
    /// Families of these workloads; one whose family nobody names is its own.
    pub families: usize,
    /// Measured combinations of two workloads and their caps.
    pub combinations: usize,
    /// Of these, how many did not fit together.
    pub unfit: usize,
    /// Observations that are no part of it: of another device or mechanism, or without both speeds.
    pub left_out: usize,
}

impl SetSize {
    pub(super) fn of(truth: &Truth) -> Self {
        Self {
            device: truth.device_model.clone(),
            mechanism: truth.mechanism.to_string(),
            workloads: truth.workloads.len(),
            families: truth.families().len(),
            combinations: truth.combinations.len(),
            unfit: truth.combinations.iter().filter(|combination| combination.speeds.is_none()).count(),
            left_out: truth.left_out,
        }
    }
}

/// How a policy fared with queues of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyScore {
    /// Jobs in the queue.
    pub queue: usize,
    /// The policy that chose the pairs.
    pub policy: PolicyName,
    /// Observed pairings besides the old families' history; `null` = learns nothing.
    pub observations: Option<usize>,
    /// Seeds that count for `s_kept`.
    pub seeds_counted: usize,
    /// Device hours for the whole queue, one solo hour a job: the mean over all seeds.
    pub gpu_hours: f64,
    /// Of the exclusive hours, how much was saved, whether or not promises were kept.
    pub saved_fraction: f64,
    /// Hours saved by pairs that kept the promise, less hours lost by any, over the oracle's: pooled over the seeds that
    /// count; `null` = none does.
    pub s_kept: Option<f64>,
    /// Share of the jobs that shared a device, or tried to.
    pub paired_fraction: f64,
    /// Of these, the share that ran slower than promised (or did not fit); `null` = none shared.
    pub broken_fraction: Option<f64>,
    /// Pairs that did not fit together, over all seeds.
    pub unfit_pairs: usize,
    /// 95th percentile of solo speed over speed of the jobs that shared; `null` = none.
    pub slowdown_ratio_p95: Option<f64>,
    /// How often a speed lay above the bound given for it; `null` = no bound was given.
    pub above_low_fraction: Option<f64>,
    /// Of how many speeds.
    pub above_low_count: usize,
    /// Pairs that nobody measured, over all seeds; they count as alone. More than 0 is a mistake of the policy.
    pub unmeasured_pairs: usize,
}

/// What came of trials in queues of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialScore {
    /// Jobs in the queue.
    pub queue: usize,
    /// Observed pairings besides the old families' history.
    pub observations: usize,
    /// Pairs that were tried, over all seeds.
    pub tried: usize,
    /// Of these, how many kept their promises as far as the watch saw.
    pub held: usize,
    /// Guests that went back, of trials or of others.
    pub went_back: usize,
    /// Device hours a seed that were lost with pairs that were taken apart, restarts and misfits included.
    pub hours_lost: f64,
    /// Device hours a seed that stood idle for jobs that waited for a verdict.
    pub hours_waited: f64,
}

fn trial_scores(outcomes: &[SeedOutcome], queues: &[usize]) -> Vec<TrialScore> {
    let mut scores = Vec::new();
    for (at, queue) in queues.iter().enumerate() {
        let stages: BTreeSet<Contestant> =
            outcomes.iter().flat_map(|outcome| outcome.trials[at].keys().copied()).collect();
        for stage in stages {
            let tallies: Vec<&TrialTally> =
                outcomes.iter().filter_map(|outcome| outcome.trials[at].get(&stage)).collect();
            scores.push(TrialScore {
                queue: *queue,
                observations: stage.1.unwrap_or(0),
                tried: total(&tallies, |tally| tally.tried),
                held: total(&tallies, |tally| tally.held),
                went_back: total(&tallies, |tally| tally.went_back),
                hours_lost: mean(&tallies, |tally| tally.hours_lost, tallies.len()).unwrap_or(0.0),
                hours_waited: mean(&tallies, |tally| tally.hours_waited, tallies.len()).unwrap_or(0.0),
            });
        }
    }
    scores
}

/// How good a model's estimates were.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimateScore {
    /// The policy whose model estimated.
    pub policy: PolicyName,
    /// Observed pairings besides the old families' history.
    pub observations: usize,
    /// Speeds that were estimated.
    pub count: usize,
    /// Root mean square error of a speed fraction.
    pub speed_fraction_rmse: Option<f64>,
    /// Mean of estimate less truth.
    pub speed_fraction_bias: Option<f64>,
    /// Root mean square error of the sum of two uncapped speeds.
    pub uncapped_sum_rmse: Option<f64>,
    /// Mean of the absolute error of that sum over the sum.
    pub uncapped_sum_error_fraction: Option<f64>,
    /// How often the truth lay above the bound.
    pub above_low_fraction: Option<f64>,
    /// The same for combinations that the bounds admit under the promise.
    pub admissible_above_low_fraction: Option<f64>,
    /// Of how many speeds.
    pub admissible_count: usize,
}

/// How good the caps were that a model rates highest: means over pairs of the two speeds' sum.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitScore {
    /// The policy whose model chose the caps.
    pub policy: PolicyName,
    /// Observed pairings besides the old families' history; `null` = learns nothing.
    pub observations: Option<usize>,
    /// Pairs, over all seeds.
    pub pairs: usize,
    /// At the caps chosen.
    pub chosen_sum: Option<f64>,
    /// At the best caps.
    pub best_sum: Option<f64>,
    /// With one half each.
    pub half_half_sum: Option<f64>,
    /// With no cap on either.
    pub uncapped_sum: Option<f64>,
}

pub(super) fn report(backtest: &Backtest<'_>, outcomes: &[SeedOutcome]) -> Report {
    let (options, truth) = (backtest.options(), backtest.truth());
    let contestants: BTreeSet<Contestant> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.tallies)
        .flat_map(|tallies| tallies.keys().copied())
        .collect();
    let queues = options.queues.iter().enumerate();
    let policies = queues
        .flat_map(|(at, queue)| contestants.iter().map(move |contestant| (at, *queue, *contestant)))
        .map(|(at, queue, contestant)| policy_score(outcomes, at, queue, contestant))
        .collect();
    let learners: BTreeSet<Contestant> =
        outcomes.iter().flat_map(|outcome| outcome.errors.keys().copied()).collect();
    let splitters: BTreeSet<Contestant> =
        outcomes.iter().flat_map(|outcome| outcome.splits.keys().copied()).collect();
    Report {
        protocol: Protocol {
            slowdown_ratio_max: options.slowdown_ratio_max.value(),
            seeds: options.seeds,
            queues: options.queues.clone(),
            warm_observations: options.warm_observations.clone(),
            observe: options.observe,
            trials: options.trials,
            noise_fraction: NOISE_FRACTION,
            unfit_hours_lost: UNFIT_HOURS_LOST,
            oracle_saves_min_fraction: ORACLE_SAVES_MIN_FRACTION,
        },
        set: SetSize::of(truth),
        policies,
        trials: trial_scores(outcomes, &options.queues),
        estimates: learners.iter().map(|learner| estimate_score(outcomes, *learner)).collect(),
        splits: splitters.iter().map(|learner| split_score(outcomes, *learner)).collect(),
    }
}

fn policy_score(outcomes: &[SeedOutcome], at: usize, queue: usize, contestant: Contestant) -> PolicyScore {
    let tallies: Vec<&Tally> =
        outcomes.iter().filter_map(|outcome| outcome.tallies[at].get(&contestant)).collect();
    let hours_saved: f64 = tallies.iter().map(|tally| tally.hours_saved).sum();
    let (jobs, paired) = (total(&tallies, |tally| tally.jobs), total(&tallies, |tally| tally.paired));
    let (above_low, with_low) =
        (total(&tallies, |tally| tally.above_low.0), total(&tallies, |tally| tally.above_low.1));
    let (seeds_counted, s_kept) = s_kept(outcomes, at, contestant);
    let mut slowdowns: Vec<f64> = tallies.iter().flat_map(|tally| tally.slowdowns.iter().copied()).collect();
    PolicyScore {
        queue,
        policy: contestant.0,
        observations: contestant.1,
        seeds_counted,
        gpu_hours: (as_float(jobs) - hours_saved) / as_float(tallies.len().max(1)),
        saved_fraction: hours_saved / as_float(jobs.max(1)),
        s_kept,
        paired_fraction: as_float(paired) / as_float(jobs.max(1)),
        broken_fraction: share(total(&tallies, |tally| tally.broken), paired),
        unfit_pairs: total(&tallies, |tally| tally.unfit),
        slowdown_ratio_p95: percentile_95(&mut slowdowns),
        above_low_fraction: share(above_low, with_low),
        above_low_count: with_low,
        unmeasured_pairs: total(&tallies, |tally| tally.unmeasured),
    }
}

/// A count of all seeds.
fn total<T>(of_seeds: &[&T], part: fn(&T) -> usize) -> usize {
    of_seeds.iter().map(|of_seed| part(of_seed)).sum()
}

/// A sum of all seeds over how many it is of; `None` where it is of none.
fn mean<T>(of_seeds: &[&T], part: fn(&T) -> f64, count: usize) -> Option<f64> {
    (count > 0).then(|| of_seeds.iter().map(|of_seed| part(of_seed)).sum::<f64>() / as_float(count))
}

/// How many seeds count, and what was kept in them of what the oracle saves.
fn s_kept(outcomes: &[SeedOutcome], at: usize, contestant: Contestant) -> (usize, Option<f64>) {
    let (mut seeds, mut kept, mut possible) = (0, 0.0, 0.0);
    for outcome in outcomes {
        let oracle = outcome.tallies[at].get(&(PolicyName::Oracle, None));
        let own = outcome.tallies[at].get(&contestant);
        let (Some(oracle), Some(own)) = (oracle, own) else { continue };
        if oracle.hours_kept >= ORACLE_SAVES_MIN_FRACTION * as_float(oracle.jobs) {
            seeds += 1;
            kept += own.hours_kept;
            possible += oracle.hours_kept;
        }
    }
    (seeds, (possible > 0.0).then(|| kept / possible))
}

/// The smallest value that at least 95 % do not exceed.
fn percentile_95(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 95).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

fn estimate_score(outcomes: &[SeedOutcome], learner: Contestant) -> EstimateScore {
    let sums: Vec<&ErrorSums> = outcomes.iter().filter_map(|outcome| outcome.errors.get(&learner)).collect();
    let (speeds, pairs) = (total(&sums, |sums| sums.speeds), total(&sums, |sums| sums.sums));
    let admissible = total(&sums, |sums| sums.admissible);
    EstimateScore {
        policy: learner.0,
        observations: learner.1.unwrap_or(0),
        count: speeds,
        speed_fraction_rmse: mean(&sums, |sums| sums.square, speeds).map(f64::sqrt),
        speed_fraction_bias: mean(&sums, |sums| sums.error, speeds),
        uncapped_sum_rmse: mean(&sums, |sums| sums.sum_square, pairs).map(f64::sqrt),
        uncapped_sum_error_fraction: mean(&sums, |sums| sums.sum_relative, pairs),
        above_low_fraction: share(total(&sums, |sums| sums.above_low), speeds),
        admissible_above_low_fraction: share(total(&sums, |sums| sums.admissible_above_low), admissible),
        admissible_count: admissible,
    }
}

fn split_score(outcomes: &[SeedOutcome], learner: Contestant) -> SplitScore {
    let sums: Vec<&SplitSums> = outcomes.iter().filter_map(|outcome| outcome.splits.get(&learner)).collect();
    let pairs = total(&sums, |sums| sums.pairs);
    SplitScore {
        policy: learner.0,
        observations: learner.1,
        pairs,
        chosen_sum: mean(&sums, |sums| sums.chosen, pairs),
        best_sum: mean(&sums, |sums| sums.best, pairs),
        half_half_sum: mean(&sums, |sums| sums.half_half, pairs),
        uncapped_sum: mean(&sums, |sums| sums.uncapped, pairs),
    }
}
