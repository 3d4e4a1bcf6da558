//! Pictures of a backtest, as SVG files: what any two workloads gain beside each other, how good the estimates are, and
//! what observed pairings teach. Draws into texts; only [`write()`] touches the disk.

mod calibration;
mod gain;
mod learning;
mod style;
mod week;

use crate::error::CliError;
use pillion_pairing::backtest::week::WeekReport;
use pillion_pairing::backtest::{Report, SeedOutcome, Truth};
use std::path::{Path, PathBuf};

/// Draws all pictures into a folder, which is made where it is missing. Gives the files.
///
/// # Errors
/// [`CliError::File`] where one cannot be written, [`CliError::Data`] where one cannot be drawn.
pub fn write(
    folder: &Path,
    truth: &Truth,
    outcomes: &[SeedOutcome],
    report: &Report,
) -> Result<Vec<PathBuf>, CliError> {
    let pictures = [
        ("gain.svg", gain::draw(truth, outcomes)),
        ("calibration.svg", calibration::draw(outcomes)),
        ("learning-curve.svg", learning::draw(report)),
    ];
    write_all(folder, pictures)
}

/// Likewise of a week.
///
/// # Errors
/// As [`write()`].
pub fn write_week(folder: &Path, report: &WeekReport) -> Result<Vec<PathBuf>, CliError> {
    write_all(folder, [("week.svg", week::draw(report))])
}

fn write_all<const COUNT: usize>(
    folder: &Path,
    pictures: [(&str, Result<String, String>); COUNT],
) -> Result<Vec<PathBuf>, CliError> {
    std::fs::create_dir_all(folder).map_err(CliError::file("write", folder))?;
    let mut written = Vec::new();
    for (name, picture) in pictures {
        let path = folder.join(name);
        let picture =
            picture.map_err(|why| CliError::Data(format!("cannot draw {}: {why}", path.display())))?;
        std::fs::write(&path, picture).map_err(CliError::file("write", &path))?;
        written.push(path);
    }
    Ok(written)
}
