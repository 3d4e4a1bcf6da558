//! Pictures of a backtest, as SVG files: what any two workloads gain beside each other, how good the estimates are, and
//! what observed pairings teach. Draws into texts; only [`write()`] touches the disk.

mod calibration;
mod gain;
mod learning;

use crate::error::CliError;
use pillion_pairing::backtest::{Report, SeedOutcome, Truth};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Why a picture could not be drawn.
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;
type Drawn<'a> = Result<(), DrawError<'a>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "sans-serif";
const TITLE_SIZE: i32 = 17;
const TEXT_SIZE: i32 = 13;
const INK: RGBColor = RGBColor(38, 38, 38);
const FAINT: RGBColor = RGBColor(150, 150, 150);
/// Told apart by people who see few colours, too (Okabe and Ito's palette).
const OURS: RGBColor = RGBColor(0, 114, 178);
const TREES: RGBColor = RGBColor(213, 94, 0);
const GREEDY: RGBColor = RGBColor(0, 158, 115);
const RANDOM: RGBColor = RGBColor(120, 120, 120);

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

/// A white picture of this size, in pixels, painted by `paint`; the text of its file.
fn picture(size: (u32, u32), paint: impl Fn(&Area<'_>) -> Result<(), String>) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        paint(&area)?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn style(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}
