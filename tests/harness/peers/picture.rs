//! The ways beside each other as bars, for the README. Pure.

use super::figures::Figures;
use plotters::coord::Shift;
use plotters::prelude::*;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Why a picture could not be drawn.
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

const FONT: &str = "sans-serif";
const TITLE_SIZE: i32 = 14;
const TEXT_SIZE: i32 = 13;
const INK: RGBColor = RGBColor(38, 38, 38);
/// Told apart by people who see few colours, too (Okabe and Ito's palette): the others, and ours.
const OTHERS: RGBColor = RGBColor(150, 150, 150);
const OURS: RGBColor = RGBColor(0, 114, 178);

/// Pixels: the names' column, each column of bars, and of those the room for a number behind the longest bar.
const NAMES_WIDTH: i32 = 235;
const COLUMN_WIDTH: i32 = 225;
const NUMBER_WIDTH: i32 = 66;
const ROW_HEIGHT: i32 = 34;
const TOP: i32 = 46;
const BAR_HEIGHT: i32 = 18;

/// A column: what it is of, the figure, and its number as text.
type Column = (&'static str, fn(&Figures) -> f64, fn(f64) -> String);

const COLUMNS: [Column; 4] = [
    ("GPU-hours", |figures| figures.gpu_hours, |hours| format!("{hours:.0}")),
    ("mean turnaround, hours", |figures| figures.turnaround_mean_hours, |hours| format!("{hours:.2}")),
    ("energy, kWh", |figures| figures.energy_kilowatt_hours, |energy| format!("{energy:.1}")),
    ("promises broken", |figures| 100.0 * figures.broken_fraction(), |percent| format!("{percent:.1} %")),
];

/// An SVG: a row for each way, those whose name begins with `ours` in colour.
///
/// # Errors
/// What the picture's library says.
pub fn picture(title: &str, ways: &[(&str, Figures)], ours: &str) -> Result<String, String> {
    let columns = i32::try_from(COLUMNS.len()).unwrap_or(i32::MAX);
    let rows = i32::try_from(ways.len()).unwrap_or(i32::MAX);
    let size = (NAMES_WIDTH + columns * COLUMN_WIDTH, TOP + 28 + rows * ROW_HEIGHT);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (size.0.unsigned_abs(), size.1.unsigned_abs()))
            .into_drawing_area();
        paint(&area, title, ways, ours).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn paint<'a>(
    area: &Area<'a>,
    title: &str,
    ways: &[(&str, Figures)],
    ours: &str,
) -> Result<(), DrawError<'a>> {
    area.fill(&WHITE)?;
    write(area, title, (10, 8), TITLE_SIZE)?;
    for (row, (name, _)) in (0_i32..).zip(ways) {
        write(area, name, (10, TOP + 26 + row * ROW_HEIGHT), TEXT_SIZE)?;
    }
    for (column, (head, figure, number)) in (0_i32..).zip(COLUMNS) {
        let left = NAMES_WIDTH + column * COLUMN_WIDTH;
        write(area, head, (left, TOP - 2), TEXT_SIZE)?;
        let most = ways.iter().map(|(_, figures)| figure(figures)).fold(0.0, f64::max);
        for (row, (name, figures)) in (0_i32..).zip(ways) {
            let (value, top) = (figure(figures), TOP + 24 + row * ROW_HEIGHT);
            let right = left + bar_width(value, most);
            let colour = if name.starts_with(ours) { OURS } else { OTHERS };
            area.draw(&Rectangle::new([(left, top), (right, top + BAR_HEIGHT)], colour.filled()))?;
            write(area, &number(value), (right + 6, top + 2), TEXT_SIZE)?;
        }
    }
    area.present()
}

/// In pixels, and one at least: nothing is seen of a bar of nothing.
fn bar_width(value: f64, most: f64) -> i32 {
    let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    let width = (part * f64::from(COLUMN_WIDTH - NUMBER_WIDTH)).round() as i32;
    width.max(1)
}

fn write<'a>(area: &Area<'a>, text: &str, place: (i32, i32), size: i32) -> Result<(), DrawError<'a>> {
    area.draw_text(text, &(FONT, size).into_font().color(&INK), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(gpu_hours: f64, broken: usize) -> Figures {
        Figures {
            makespan_hours: 2.0,
            turnaround_mean_hours: 1.0,
            turnaround_p95_hours: 2.0,
            gpu_hours,
            energy_kilowatt_hours: 3.0,
            slowdown_p95_ratio: 1.1,
            broken,
            ended: 8,
            lost: 0,
        }
    }

    /// Of each rectangle of one colour: how wide it is, in pixels.
    fn widths(svg: &str, colour: &str) -> Vec<i32> {
        let bars = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(colour));
        let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        bars.map(|line| width(line).unwrap()).collect()
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let svg =
            picture("a <queue>", &[("plain", figures(40.0, 2)), ("Pillion", figures(10.0, 0))], "Pillion");
        let svg = svg.unwrap();
        let full = COLUMN_WIDTH - NUMBER_WIDTH;
        assert_eq!(widths(&svg, "#969696"), [full; 4], "{svg}");
        assert_eq!(widths(&svg, "#0072B2"), [(full + 2) / 4, full, full, 1]);
        assert!(svg.contains("a &lt;queue&gt;") && svg.contains("25.0 %") && svg.contains("0.0 %"), "{svg}");
    }
}
