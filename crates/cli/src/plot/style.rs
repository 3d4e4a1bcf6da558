//! What the pictures have in common: their paper, letters and colours.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Why a picture could not be drawn.
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;
pub(super) type Drawn<'a> = Result<(), DrawError<'a>>;
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) const FONT: &str = "sans-serif";
pub(super) const TITLE_SIZE: i32 = 17;
pub(super) const TEXT_SIZE: i32 = 13;
pub(super) const INK: RGBColor = RGBColor(38, 38, 38);
pub(super) const FAINT: RGBColor = RGBColor(150, 150, 150);
/// Told apart by people who see few colours, too (Okabe and Ito's palette).
pub(super) const OURS: RGBColor = RGBColor(0, 114, 178);
pub(super) const TREES: RGBColor = RGBColor(213, 94, 0);
pub(super) const GREEDY: RGBColor = RGBColor(0, 158, 115);
pub(super) const RANDOM: RGBColor = RGBColor(120, 120, 120);

/// A white picture of this size, in pixels, painted by `paint`; the text of its file.
pub(super) fn picture(
    size: (u32, u32),
    paint: impl Fn(&Area<'_>) -> Result<(), String>,
) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        paint(&area)?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub(super) fn style(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}
