//! How good the estimates are: expected against measured speed, and how often the truth lies where it was said to lie.

use super::style::{Area, Drawn, FAINT, FONT, INK, OURS, TEXT_SIZE, TITLE_SIZE, TREES, number, picture};
use pillion_pairing::backtest::{CalibrationPoint, SeedOutcome};
use plotters::prelude::*;

/// More dots say no more, and make a large file.
const DOTS_MAX: usize = 3000;
const BINS: usize = 20;
/// A probability and the deviations from the mean below which a normal value lies with it.
const NORMAL: [(f64, f64); 11] = [
    (0.05, -1.6449),
    (0.1, -1.2816),
    (0.2, -0.8416),
    (0.3, -0.5244),
    (0.4, -0.2533),
    (0.5, 0.0),
    (0.6, 0.2533),
    (0.7, 0.5244),
    (0.8, 0.8416),
    (0.9, 1.2816),
    (0.95, 1.6449),
];

/// Expected against measured speed, and beside it how often the truth lay below a bound.
pub(super) fn draw(outcomes: &[SeedOutcome]) -> Result<String, String> {
    let points = outcomes.iter().flat_map(|outcome| &outcome.calibration);
    let last = points.map(|point| point.observations).max().unwrap_or(0);
    let (cold, warm) = (points_after(outcomes, 0), points_after(outcomes, last));
    picture((1060, 520), |area| {
        let panels = area.split_evenly((1, 2));
        speeds(&panels[0], &cold).map_err(|error| error.to_string())?;
        reliability(
            &panels[1],
            &[(&cold, "nothing seen of either", OURS), (&warm, "after pairings were observed", TREES)],
        )
        .map_err(|error| error.to_string())
    })
}

/// What was estimated after so many observations.
fn points_after(outcomes: &[SeedOutcome], observations: usize) -> Vec<CalibrationPoint> {
    let points = outcomes.iter().flat_map(|outcome| &outcome.calibration);
    points.filter(|point| point.observations == observations).copied().collect()
}

fn share(part: usize, whole: usize) -> f64 {
    number(part) / number(whole).max(1.0)
}

fn speeds<'a>(area: &Area<'a>, points: &[CalibrationPoint]) -> Drawn<'a> {
    let mut chart = ChartBuilder::on(area)
        .caption("Speeds of workloads that nobody saw share", (FONT, TITLE_SIZE))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..1.02, 0.0..1.02)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT.mix(0.3))
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE + 1))
        .x_desc("predicted speed, of solo speed")
        .y_desc("measured speed")
        .draw()?;
    let stride = points.len().div_ceil(DOTS_MAX).max(1);
    let dots = points.iter().step_by(stride);
    chart
        .draw_series(dots.map(|point| Circle::new((point.speed, point.truth), 2, OURS.mix(0.22).filled())))?;
    chart.draw_series(LineSeries::new([(0.0, 0.0), (1.0, 1.0)], FAINT.stroke_width(1)))?;
    let means = binned(points);
    chart
        .draw_series(LineSeries::new(means.iter().copied(), INK.stroke_width(2)))?
        .label("mean measured")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], INK.stroke_width(2)));
    chart.draw_series(means.into_iter().map(|mean| Circle::new(mean, 3, INK.filled())))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font((FONT, TEXT_SIZE))
        .background_style(WHITE.mix(0.8))
        .draw()
}

/// Of each twentieth of predicted speeds that holds enough: mean predicted and mean measured.
fn binned(points: &[CalibrationPoint]) -> Vec<(f64, f64)> {
    let mut bins = vec![(0.0, 0.0, 0_u32); BINS];
    for point in points {
        let bin = (0..BINS).rev().find(|bin| point.speed >= share(*bin, BINS)).unwrap_or(0);
        let (said, truth, count) = bins[bin];
        bins[bin] = (said + point.speed, truth + point.truth, count + 1);
    }
    let enough = bins.into_iter().filter(|(_, _, count)| *count >= 5);
    enough.map(|(said, truth, count)| (said / f64::from(count), truth / f64::from(count))).collect()
}

fn triangle_at(place: (i32, i32)) -> TriangleMarker<(i32, i32), i32> {
    TriangleMarker::new(place, 6, INK.filled())
}

fn reliability<'a>(area: &Area<'a>, stages: &[(&Vec<CalibrationPoint>, &str, RGBColor)]) -> Drawn<'a> {
    let mut chart = ChartBuilder::on(area)
        .caption("How often the truth lay below a bound", (FONT, TITLE_SIZE))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT.mix(0.3))
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE + 1))
        .x_desc("stated probability")
        .y_desc("observed share")
        .draw()?;
    chart.draw_series(LineSeries::new([(0.0, 0.0), (1.0, 1.0)], FAINT.stroke_width(1)))?;
    for (points, name, colour) in stages.iter().copied() {
        let known: Vec<&CalibrationPoint> = points.iter().filter(|point| point.deviation > 0.0).collect();
        if known.is_empty() {
            continue;
        }
        let mut curve = Vec::new();
        for (probability, deviations) in NORMAL {
            let below =
                known.iter().filter(|point| point.truth <= point.speed + deviations * point.deviation);
            curve.push((probability, share(below.count(), known.len())));
        }
        chart
            .draw_series(LineSeries::new(curve.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(curve.into_iter().map(|place| Circle::new(place, 3, colour.filled())))?;
        // The model's own bound, which is one-sided and stated to hold nine times in ten.
        let low = share(points.iter().filter(|point| point.truth < point.low).count(), points.len());
        chart.draw_series([TriangleMarker::new((0.1, low), 6, colour.filled())])?;
    }
    chart
        .draw_series(std::iter::empty::<Circle<(f64, f64), i32>>())?
        .label("below the promised low (0.1 at most)")
        .legend(move |(x, y)| triangle_at((x + 9, y)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font((FONT, TEXT_SIZE))
        .background_style(WHITE.mix(0.8))
        .draw()
}
