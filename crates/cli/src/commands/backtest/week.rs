//! `pillion backtest --week`: a fresh installation over a simulated week. Weeks run side by side; what each of them does is
//! `pillion_pairing::backtest::week`'s.

use super::{bar, blank, name, number, summary};
use crate::args::{BacktestArgs, FirstRunsArg, Switch};
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use crate::plot;
use indicatif::ParallelProgressIterator as _;
use pillion_core::SlowdownRatio;
use pillion_pairing::FirstRuns;
use pillion_pairing::backtest::week::{
    DayScore, Recurrence, Watch, Week, WeekOptions, WeekOutcome, WeekReport,
};
use pillion_pairing::files::Measured;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Replays, and draws where that was asked for.
pub(super) fn make(
    args: &BacktestArgs,
    (measured, pairs): (&Measured, &Path),
    slowdown_ratio_max: SlowdownRatio,
) -> Result<Answer, CliError> {
    let options = WeekOptions {
        jobs: args.jobs as usize,
        seeds: args.seeds,
        slowdown_ratio_max,
        recur_fraction: args.recur.value(),
        first_runs: match args.first_runs {
            FirstRunsArg::Alone => FirstRuns::Alone,
            FirstRunsArg::Host => FirstRuns::Host,
        },
        recurrence: match args.versions {
            Switch::On => Recurrence::Versions,
            Switch::Off => Recurrence::Unknown,
        },
        watch: args.watch.then(Watch::default),
        trials: args.trial_policy(),
    };
    let week = Week::new(&measured.profiles, &measured.observations, &measured.device_model, options)
        .map_err(|error| CliError::Data(format!("{}: {error}", pairs.display())))?;
    let bar = bar(args.seeds);
    let outcomes: Vec<WeekOutcome> =
        (0..args.seeds).into_par_iter().progress_with(bar.clone()).map(|seed| week.seed(seed)).collect();
    bar.finish_and_clear();
    let report = week.report(&outcomes);
    let drawn = match &args.plot {
        Some(folder) => plot::write_week(folder, &report)?,
        None => Vec::new(),
    };
    Ok(show(&report, &drawn))
}

const COLUMNS: [&str; 12] = [
    "DAY",
    "POLICY",
    ">HOURS",
    ">SAVED",
    ">KEPT",
    ">OF_ORACLE",
    ">PAIRED",
    ">BROKEN",
    ">SENT_BACK",
    ">UNFIT",
    ">FIRST_RUNS",
    ">JOINED",
];

fn show(report: &WeekReport, drawn: &[PathBuf]) -> Answer {
    let mut days = Table::new(&COLUMNS);
    report.days.iter().for_each(|score| days.push(line(score)));
    let protocol = &report.protocol;
    let how = format!(
        "{} days of {} rounds of {} jobs; {} of them ran before; first runs: {}",
        protocol.days,
        protocol.rounds_per_day,
        protocol.jobs,
        protocol.recur_fraction,
        name(protocol.first_runs),
    );
    let set = summary(&report.set, protocol.slowdown_ratio_max, protocol.seeds);
    let mut blocks = vec![Block::Line(set), Block::Line(how), blank(), Block::Table(days.clone(), 0)];
    if !drawn.is_empty() {
        blocks.push(blank());
        blocks.extend(drawn.iter().map(|file| Block::Line(format!("drawn: {}", file.display()))));
    }
    Answer { blocks, parsable: days, json: json::render(report) }
}

fn line(score: &DayScore) -> Vec<String> {
    vec![
        score.day.map_or_else(|| "all".to_owned(), |day| day.to_string()),
        name(score.policy),
        format!("{:.1}", score.exclusive_hours),
        format!("{:.2}", score.saved_hours),
        format!("{:.2}", score.kept_hours),
        number(score.oracle_share),
        number(score.paired_fraction),
        number(score.broken_fraction),
        number(score.sent_back_fraction),
        score.unfit_pairs.to_string(),
        number(score.first_run_fraction),
        number(score.first_run_joined_fraction),
    ]
}
