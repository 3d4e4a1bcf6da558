//! `pillion backtest --solo SOLO.csv --pairs PAIRS.csv`: random queues against measured pairs, every policy on the same
//! ones. Seeds run side by side; what each of them does is `pillion_pairing::backtest`'s.

mod groups;
mod mig;
mod week;

use crate::args::{BacktestArgs, ObserveArg};
use crate::commands::plan_files::Loaded;
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use crate::plot;
use indicatif::{ParallelProgressIterator as _, ProgressBar, ProgressStyle};
use pillion_core::SlowdownRatio;
use pillion_pairing::backtest::{
    Backtest, BacktestOptions, EstimateScore, Observe, PolicyScore, Report, SeedOutcome, SetSize, SplitScore,
    TrialScore,
};
use pillion_pairing::files::{self, FileOptions, Measured};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Replays, and draws where that was asked for.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] for files that make no sense, or measure nothing that could be replayed.
pub fn make(args: &BacktestArgs) -> Result<Answer, CliError> {
    if let Some(file) = &args.mig {
        return mig::make(args, file);
    }
    let (Some(solo), Some(pairs)) = (&args.solo, &args.pairs) else {
        return Err(CliError::Usage("--solo and --pairs are needed, or --mig".to_owned()));
    };
    let slowdown_ratio_max = promise(args);
    let measured = read_measured(args, (solo, pairs), slowdown_ratio_max)?;
    if let Some(file) = &args.groups {
        return groups::make(args, &measured, file, slowdown_ratio_max);
    }
    if args.week {
        return week::make(args, (&measured, pairs), slowdown_ratio_max);
    }
    let options = BacktestOptions {
        queues: args.queues.iter().map(|jobs| *jobs as usize).collect(),
        seeds: args.seeds,
        slowdown_ratio_max,
        warm_observations: args.observed.clone(),
        observe: match args.observe {
            ObserveArg::Random => Observe::Random,
            ObserveArg::Chosen => Observe::Chosen,
        },
        trials: args.trial_policy(),
    };
    let backtest = Backtest::new(&measured.profiles, &measured.observations, &measured.device_model, options)
        .map_err(|error| CliError::Data(format!("{}: {error}", pairs.display())))?;
    let bar = bar(args.seeds);
    let outcomes: Vec<SeedOutcome> =
        (0..args.seeds).into_par_iter().progress_with(bar.clone()).map(|seed| backtest.seed(seed)).collect();
    bar.finish_and_clear();
    let report = backtest.report(&outcomes);
    let drawn = match &args.plot {
        Some(folder) => plot::write(folder, backtest.truth(), &outcomes, &report)?,
        None => Vec::new(),
    };
    Ok(show(&report, &drawn))
}

fn promise(args: &BacktestArgs) -> SlowdownRatio {
    args.max_slowdown.unwrap_or(pillion_pairing::Policy::default().slowdown_ratio_max)
}

fn read_measured(
    args: &BacktestArgs,
    (solo, pairs): (&Path, &Path),
    slowdown_ratio_max: SlowdownRatio,
) -> Result<Measured, CliError> {
    let (solo, pairs) = (Loaded::read(solo)?, Loaded::read(pairs)?);
    let options = FileOptions {
        device_model: args.device.clone(),
        mechanism: args.mechanism,
        device_memory_bytes: None,
        slowdown_ratio_max,
    };
    files::read_measured(solo.named(), Some(pairs.named()), &options)
        .map_err(|error| CliError::Data(error.to_string()))
}

/// A bar on a terminal, nothing in a pipe: indicatif looks by itself.
fn bar(seeds: u64) -> ProgressBar {
    ProgressBar::new(seeds).with_style(style())
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{pos}/{len} seeds {wide_bar} {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

const POLICY_COLUMNS: [&str; 12] = [
    ">QUEUE",
    "POLICY",
    ">OBSERVED",
    ">GPU_HOURS",
    ">SAVED",
    ">S_KEPT",
    ">PAIRED",
    ">BROKEN",
    ">UNFIT",
    ">P95_SLOWDOWN",
    ">ABOVE_LOW",
    ">SEEDS",
];
const ESTIMATE_COLUMNS: [&str; 9] = [
    "ESTIMATE",
    ">OBSERVED",
    ">SPEEDS",
    ">RMSE",
    ">BIAS",
    ">SUM_RMSE",
    ">SUM_ERROR",
    ">ABOVE_LOW",
    ">ADMISSIBLE_ABOVE_LOW",
];
const TRIAL_COLUMNS: [&str; 8] =
    ["TRIALS", ">QUEUE", ">OBSERVED", ">TRIED", ">HELD", ">WENT_BACK", ">HOURS_LOST", ">HOURS_WAITED"];
const SPLIT_COLUMNS: [&str; 7] =
    ["CAPS", ">OBSERVED", ">PAIRS", ">CHOSEN", ">BEST", ">HALF_HALF", ">UNCAPPED"];

fn show(report: &Report, drawn: &[PathBuf]) -> Answer {
    let mut policies = Table::new(&POLICY_COLUMNS);
    let mut estimates = Table::new(&ESTIMATE_COLUMNS);
    let mut splits = Table::new(&SPLIT_COLUMNS);
    report.policies.iter().for_each(|score| policies.push(policy_line(score)));
    report.estimates.iter().for_each(|score| estimates.push(estimate_line(score)));
    report.splits.iter().filter(|score| score.pairs > 0).for_each(|score| splits.push(split_line(score)));
    let set = &report.set;
    let protocol = &report.protocol;
    let summary = summary(set, protocol.slowdown_ratio_max, protocol.seeds);
    let mut blocks = vec![Block::Line(summary), blank(), Block::Table(policies.clone(), 0), blank()];
    if !report.trials.is_empty() {
        let mut trials = Table::new(&TRIAL_COLUMNS);
        report.trials.iter().for_each(|score| trials.push(trial_line(score)));
        blocks.extend([Block::Table(trials, 0), blank()]);
    }
    blocks.push(Block::Table(estimates, 0));
    if !splits.is_empty() {
        blocks.extend([blank(), Block::Table(splits, 0)]);
    }
    if !drawn.is_empty() {
        blocks.push(blank());
        blocks.extend(drawn.iter().map(|file| Block::Line(format!("drawn: {}", file.display()))));
    }
    Answer { blocks, parsable: policies, json: json::render(report) }
}

/// What was replayed, in a line.
fn summary(set: &SetSize, slowdown_ratio_max: f64, seeds: u64) -> String {
    format!(
        "{} of {} workloads of {} families on {} ({}), {} unfit; promise {slowdown_ratio_max}, {}",
        format::counted(set.combinations, "combination"),
        set.workloads,
        set.families,
        set.device,
        set.mechanism,
        set.unfit,
        format::counted(usize::try_from(seeds).unwrap_or(usize::MAX), "seed"),
    )
}

fn blank() -> Block {
    Block::Line(String::new())
}

fn name(policy: impl serde::Serialize) -> String {
    let word = serde_json::to_value(policy).ok().and_then(|word| word.as_str().map(str::to_owned));
    word.unwrap_or_default()
}

/// Three digits, so that a difference that means nothing does not look like one that does.
fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn policy_line(score: &PolicyScore) -> Vec<String> {
    vec![
        score.queue.to_string(),
        name(score.policy),
        score.observations.map(|count| count.to_string()).unwrap_or_default(),
        format!("{:.1}", score.gpu_hours),
        number(Some(score.saved_fraction)),
        number(score.s_kept),
        number(Some(score.paired_fraction)),
        number(score.broken_fraction),
        score.unfit_pairs.to_string(),
        format::ratio(score.slowdown_ratio_p95),
        number(score.above_low_fraction),
        score.seeds_counted.to_string(),
    ]
}

fn trial_line(score: &TrialScore) -> Vec<String> {
    vec![
        "trials".to_owned(),
        score.queue.to_string(),
        score.observations.to_string(),
        score.tried.to_string(),
        score.held.to_string(),
        score.went_back.to_string(),
        number(Some(score.hours_lost)),
        number(Some(score.hours_waited)),
    ]
}

fn estimate_line(score: &EstimateScore) -> Vec<String> {
    vec![
        name(score.policy),
        score.observations.to_string(),
        score.count.to_string(),
        number(score.speed_fraction_rmse),
        number(score.speed_fraction_bias),
        number(score.uncapped_sum_rmse),
        number(score.uncapped_sum_error_fraction),
        number(score.above_low_fraction),
        number(score.admissible_above_low_fraction),
    ]
}

fn split_line(score: &SplitScore) -> Vec<String> {
    vec![
        name(score.policy),
        score.observations.map(|count| count.to_string()).unwrap_or_default(),
        score.pairs.to_string(),
        number(score.chosen_sum),
        number(score.best_sum),
        number(score.half_half_sum),
        number(score.uncapped_sum),
    ]
}
