//! `pillion backtest --groups GROUPS.csv`: what the model says of three and more that share a device, against what was
//! measured of them.

use super::number;
use crate::args::BacktestArgs;
use crate::commands::plan_files::Loaded;
use crate::error::CliError;
use crate::output::{Answer, Block, Table, json};
use pillion_core::SlowdownRatio;
use pillion_pairing::backtest::groups::{GroupScore, scores};
use pillion_pairing::files::{self, Measured};
use serde::Serialize;
use std::path::Path;

const COLUMNS: [&str; 10] =
    [">TENANTS", "ARE", "SEEN", ">GROUPS", ">RMSE", ">BIAS", ">ABOVE_LOW", ">KEPT", ">ADMITTED", ">BROKEN"];

/// The answer, as scripts read it.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    slowdown_ratio_max: f64,
    scores: Vec<GroupScore>,
}

/// Scores the groups of a file.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] for a file that makes no sense, or has no group in it.
pub(super) fn make(
    args: &BacktestArgs,
    measured: &Measured,
    file: &Path,
    promise: SlowdownRatio,
) -> Result<Answer, CliError> {
    let loaded = Loaded::read(file)?;
    let groups = files::read_groups(loaded.named(), args.mechanism, &measured.device_model)
        .map_err(|error| CliError::Data(error.to_string()))?;
    if groups.is_empty() {
        return Err(CliError::Data(format!("{}: it has no group in it", file.display())));
    }
    let scores = scores(&measured.profiles, &measured.observations, &groups, promise);
    Ok(show(&Report { device: measured.device_model.clone(), slowdown_ratio_max: promise.value(), scores }))
}

fn show(report: &Report) -> Answer {
    let mut table = Table::new(&COLUMNS);
    report.scores.iter().for_each(|score| table.push(line(score)));
    let summary = format!("groups on {}; promise {}", report.device, report.slowdown_ratio_max);
    Answer {
        blocks: vec![Block::Line(summary), super::blank(), Block::Table(table.clone(), 0)],
        parsable: table,
        json: json::render(report),
    }
}

fn line(score: &GroupScore) -> Vec<String> {
    let are = if score.are_copies { "copies" } else { "different" };
    vec![
        score.tenants.to_string(),
        are.to_owned(),
        super::name(score.seen),
        score.groups.to_string(),
        number(Some(score.speed_fraction_rmse)),
        number(Some(score.speed_fraction_bias)),
        number(Some(score.above_low_fraction)),
        score.kept.to_string(),
        score.admitted.to_string(),
        score.broken.to_string(),
    ]
}
