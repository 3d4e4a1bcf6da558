//! `pillion backtest --mig SLICES.csv`: one device cut into instances by each rule, on the same queues; what each does is
//! `pillion_pairing::backtest::mig`'s.

use super::{blank, number};
use crate::args::BacktestArgs;
use crate::commands::plan_files::Loaded;
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_core::SlowdownRatio;
use pillion_core::mig::Geometry;
use pillion_pairing::backtest::mig::{JOBS, RuleScore, SliceBacktest};
use pillion_pairing::files;
use serde::Serialize;
use std::path::Path;

/// Whose measurements are published.
const DEVICE: &str = "a100-40";
/// The promises that are replayed where none is named.
const PROMISES: [f64; 3] = [2.5, 1.67, 1.25];

const COLUMNS: [&str; 7] =
    ["MIX", ">WORKLOADS", "RULE", ">THROUGHPUT", ">TURNAROUND", ">P95_SLOWDOWN", ">MAX_SLOWDOWN"];

/// The answer, as scripts read it.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    jobs: usize,
    seeds: u64,
    scores: Vec<RuleScore>,
}

/// Replays.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] for a file that makes no sense, or measures nothing that could be replayed.
pub(super) fn make(args: &BacktestArgs, file: &Path) -> Result<Answer, CliError> {
    let device = args.device.clone().unwrap_or_else(|| DEVICE.to_owned());
    let geometry = Geometry::of_model(&device).ok_or_else(|| {
        let known: Vec<&str> = Geometry::models().collect();
        CliError::Usage(format!(
            "--device: '{device}' cannot be cut, as far as is known; known are {}",
            known.join(", ")
        ))
    })?;
    let loaded = Loaded::read(file)?;
    let speeds =
        files::read_slices(loaded.named(), geometry).map_err(|error| CliError::Data(error.to_string()))?;
    let backtest = SliceBacktest::new(&speeds, geometry, promises(args))
        .map_err(|error| CliError::Data(format!("{}: {error}", file.display())))?;
    let scores = backtest.run(args.seeds);
    Ok(show(&Report { device, jobs: JOBS, seeds: args.seeds, scores }))
}

fn promises(args: &BacktestArgs) -> Vec<SlowdownRatio> {
    let usual = || PROMISES.into_iter().filter_map(|promise| SlowdownRatio::try_promise(promise).ok());
    args.max_slowdown.map_or_else(|| usual().collect(), |promise| vec![promise])
}

fn show(report: &Report) -> Answer {
    let mut table = Table::new(&COLUMNS);
    report.scores.iter().for_each(|score| table.push(line(score)));
    let seeds = format::counted(usize::try_from(report.seeds).unwrap_or(usize::MAX), "seed");
    let summary = format!(
        "one {}, queues of {} jobs that all wait from the beginning, {seeds}; throughput and turnaround over one at a time",
        report.device, report.jobs
    );
    let blocks = vec![Block::Line(summary), blank(), Block::Table(table.clone(), 0)];
    Answer { blocks, parsable: table, json: json::render(report) }
}

fn line(score: &RuleScore) -> Vec<String> {
    vec![
        score.mix.as_str().to_owned(),
        score.workload_count.to_string(),
        score.rule.clone(),
        number(Some(score.throughput_ratio)),
        number(Some(score.turnaround_ratio)),
        format::ratio(Some(score.slowdown_ratio_p95)),
        format::ratio(Some(score.slowdown_ratio_most)),
    ]
}
