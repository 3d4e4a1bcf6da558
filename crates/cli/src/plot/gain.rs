//! What any two workloads gain beside each other without caps, measured and predicted: as figure 4 of Costa et al.

use super::style::{Area, Drawn, FAINT, FONT, INK, TEXT_SIZE, TITLE_SIZE, picture, style};
use pillion_pairing::backtest::{SeedOutcome, Truth};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;

/// What is known of two workloads without caps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    /// The sum of both speeds.
    Sum(f64),
    /// They do not fit together.
    Unfit,
}

type Cells = BTreeMap<[usize; 2], Cell>;

const CELL_MAX: i32 = 20;
const CELL_MIN: i32 = 4;
/// Cells smaller than this have no room for their figure.
const CELL_WITH_FIGURE: i32 = 18;
const TOP: i32 = 64;
const GAP: i32 = 28;
const SCALE_WIDTH: i32 = 110;
/// Pixels of a letter, about.
const LETTER: f64 = 0.56;
const SUM_MIN: f64 = 0.6;
const SUM_MAX: f64 = 2.0;

/// Both panels, and the scale.
pub(super) fn draw(truth: &Truth, outcomes: &[SeedOutcome]) -> Result<String, String> {
    let layout = Layout::of(truth);
    let panels = [
        ("Measured without caps: sum of both speeds", measured(truth)),
        ("Predicted before anything of either was seen", predicted(truth, outcomes)),
    ];
    picture(layout.size(), |area| {
        for (index, (title, cells)) in panels.iter().enumerate() {
            let left = layout.left(index);
            layout.panel(area, left, title, cells).map_err(|error| error.to_string())?;
        }
        layout.row_names(area, truth).map_err(|error| error.to_string())?;
        for index in 0..panels.len() {
            layout.column_names(area, truth, layout.left(index)).map_err(|error| error.to_string())?;
        }
        layout.scale(area).map_err(|error| error.to_string())
    })
}

fn measured(truth: &Truth) -> Cells {
    let uncapped = truth.combinations.iter().filter(|combination| combination.is_uncapped());
    uncapped
        .map(|combination| {
            let cell = combination.speeds.map_or(Cell::Unfit, |speeds| Cell::Sum(speeds[0] + speeds[1]));
            (combination.workloads, cell)
        })
        .collect()
}

/// The mean over the seeds in which both workloads were new.
fn predicted(truth: &Truth, outcomes: &[SeedOutcome]) -> Cells {
    let mut said: BTreeMap<[usize; 2], (f64, f64)> = BTreeMap::new();
    for (combination, sum) in outcomes.iter().flat_map(|outcome| &outcome.uncapped_sums) {
        let total = said.entry(truth.combinations[*combination].workloads).or_default();
        *total = (total.0 + sum, total.1 + 1.0);
    }
    said.into_iter().map(|(ends, (sum, count))| (ends, Cell::Sum(sum / count))).collect()
}

/// Where things stand, in pixels.
struct Layout {
    count: i32,
    cell: i32,
    names: i32,
}

impl Layout {
    #[expect(clippy::cast_possible_truncation, reason = "a few thousand pixels")]
    fn of(truth: &Truth) -> Self {
        let count = i32::try_from(truth.workloads.len()).unwrap_or(i32::MAX).clamp(1, 2000);
        let cell = (700 / count).clamp(CELL_MIN, CELL_MAX);
        let longest = truth.workloads.iter().map(|name| name.as_str().chars().count()).max().unwrap_or(0);
        let letters = f64::from(u32::try_from(longest.min(60)).unwrap_or(60));
        let names = (letters * LETTER * f64::from(Self::name_size(cell))) as i32 + 14;
        Self { count, cell, names }
    }

    const fn name_size(cell: i32) -> i32 {
        if cell > 12 { 12 } else { cell }
    }

    const fn side(&self) -> i32 {
        self.count * self.cell
    }

    const fn left(&self, panel: usize) -> i32 {
        self.names + if panel == 0 { 0 } else { self.side() + GAP }
    }

    /// The pixels of the cells before this one.
    fn before(&self, index: usize) -> i32 {
        i32::try_from(index).unwrap_or(0) * self.cell
    }

    fn size(&self) -> (u32, u32) {
        let (width, height) =
            (self.left(1) + self.side() + SCALE_WIDTH, TOP + self.side().max(240) + self.names + 8);
        (width.unsigned_abs(), height.unsigned_abs())
    }

    fn panel<'a>(&self, area: &Area<'a>, left: i32, title: &str, cells: &Cells) -> Drawn<'a> {
        area.draw(&Text::new(title.to_owned(), (left, TOP - 34), style(TITLE_SIZE, INK)))?;
        let corners = [(left, TOP), (left + self.side(), TOP + self.side())];
        area.draw(&Rectangle::new(corners, RGBColor(222, 222, 222).filled()))?;
        for ([a, b], cell) in cells {
            self.cell(area, left, (*a, *b), *cell)?;
            if a != b {
                self.cell(area, left, (*b, *a), *cell)?;
            }
        }
        area.draw(&Rectangle::new(corners, FAINT.stroke_width(1)))
    }

    fn cell<'a>(&self, area: &Area<'a>, left: i32, (row, column): (usize, usize), cell: Cell) -> Drawn<'a> {
        let (x, y) = (left + self.before(column), TOP + self.before(row));
        let (fill, figure) = match cell {
            Cell::Sum(sum) => (colour(sum), format!("{sum:.1}")),
            Cell::Unfit => (RGBColor(70, 70, 70), "×".to_owned()),
        };
        area.draw(&Rectangle::new([(x, y), (x + self.cell, y + self.cell)], fill.filled()))?;
        if self.cell < CELL_WITH_FIGURE {
            return Ok(());
        }
        // How bright the eye finds a colour (ITU-R BT.601).
        let brightness = 0.299 * f64::from(fill.0) + 0.587 * f64::from(fill.1) + 0.114 * f64::from(fill.2);
        let ink = if brightness < 145.0 { WHITE } else { INK };
        let centred = style(10, ink).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new(figure, (x + self.cell / 2, y + self.cell / 2), centred))
    }

    fn row_names<'a>(&self, area: &Area<'a>, truth: &Truth) -> Drawn<'a> {
        let right = style(Self::name_size(self.cell), INK).pos(Pos::new(HPos::Right, VPos::Center));
        for (row, name) in (0..).zip(&truth.workloads) {
            let place = (self.names - 6, TOP + row * self.cell + self.cell / 2);
            area.draw(&Text::new(name.as_str().to_owned(), place, right.clone()))?;
        }
        Ok(())
    }

    fn column_names<'a>(&self, area: &Area<'a>, truth: &Truth, left: i32) -> Drawn<'a> {
        let font = (FONT, Self::name_size(self.cell)).into_font().transform(FontTransform::Rotate270);
        let upwards = font.color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        for (column, name) in (0..).zip(&truth.workloads) {
            let place = (left + column * self.cell + self.cell / 2, TOP + self.side() + 6);
            area.draw(&Text::new(name.as_str().to_owned(), place, upwards.clone()))?;
        }
        Ok(())
    }

    /// From the worst to the best, with the sum at which sharing is no better than time-slicing.
    #[expect(clippy::cast_possible_truncation, reason = "within the height of the scale")]
    fn scale<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let (left, height) = (self.left(1) + self.side() + 24, 200);
        for step in 0..height {
            let sum = SUM_MAX - (SUM_MAX - SUM_MIN) * f64::from(step) / f64::from(height);
            let corners = [(left, TOP + step), (left + 18, TOP + step + 1)];
            area.draw(&Rectangle::new(corners, colour(sum).filled()))?;
        }
        for sum in [0.6, 1.0, 1.4, 1.8, 2.0] {
            let text = style(TEXT_SIZE, INK).pos(Pos::new(HPos::Left, VPos::Center));
            let above = ((sum - SUM_MIN) / (SUM_MAX - SUM_MIN) * f64::from(height)).round() as i32;
            area.draw(&Text::new(format!("{sum:.1}"), (left + 24, TOP + height - above), text))?;
        }
        let note = style(11, INK);
        for (line, words) in
            (0..).zip(["1.0: as good as", "time-slicing", "grey: not", "measured", "×: does not fit"])
        {
            area.draw(&Text::new(
                words.to_owned(),
                (left - 12, TOP + height + 14 + line * 15),
                note.clone(),
            ))?;
        }
        Ok(())
    }
}

/// Red where sharing costs, white where it gains nothing, blue where it pays.
fn colour(sum: f64) -> RGBColor {
    let (full, share) = if sum < 1.0 {
        (RGBColor(178, 24, 43), (1.0 - sum) / (1.0 - SUM_MIN))
    } else {
        (RGBColor(8, 69, 148), (sum - 1.0) / (SUM_MAX - 1.0))
    };
    let share = share.clamp(0.0, 1.0);
    RGBColor(between(250, full.0, share), between(250, full.1, share), between(247, full.2, share))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two bytes")]
fn between(from: u8, to: u8, share: f64) -> u8 {
    (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8
}
