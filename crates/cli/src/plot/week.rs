//! A week from an empty history: the share of the oracle's hours by day, and what was lost against it since the beginning.

use super::style::{Area, Drawn, FAINT, FONT, GREEDY, OURS, RANDOM, TEXT_SIZE, TITLE_SIZE, number, picture};
use pillion_pairing::backtest::week::{WeekPolicy, WeekReport};
use plotters::prelude::*;

const LINES: [(WeekPolicy, &str, RGBColor); 3] = [
    (WeekPolicy::Ours, "ours, from nothing", OURS),
    (WeekPolicy::OracleHosts, "oracle, first runs joined after minutes", GREEDY),
    (WeekPolicy::OracleAlone, "oracle, first runs alone", RANDOM),
];

struct Panel<'p> {
    title: &'p str,
    below: &'p str,
    right: usize,
    legend: SeriesLabelPosition,
}

/// Two panels.
pub(super) fn draw(report: &WeekReport) -> Result<String, String> {
    let of_day = |policy: WeekPolicy| -> Vec<(f64, f64)> {
        let own = report.days.iter().filter(|score| score.policy == policy);
        own.filter_map(|score| Some((number(score.day?), score.oracle_share?))).collect()
    };
    let regret = |policy: WeekPolicy| -> Vec<(f64, f64)> {
        let own = report.regret.iter().filter(|point| point.policy == policy);
        own.map(|point| (number(point.round), point.regret_hours)).collect()
    };
    let rounds = report.protocol.days * report.protocol.rounds_per_day;
    let figures = [
        (
            Panel {
                title: "Hours kept, of the oracle's",
                below: "day",
                right: report.protocol.days,
                legend: SeriesLabelPosition::LowerRight,
            },
            LINES.map(|(policy, ..)| of_day(policy)),
        ),
        (
            Panel {
                title: "Hours lost against the oracle since the beginning",
                below: "round",
                right: rounds,
                legend: SeriesLabelPosition::UpperLeft,
            },
            LINES.map(|(policy, ..)| regret(policy)),
        ),
    ];
    picture((980, 440), |area| {
        for (part, (panel, lines)) in area.split_evenly((1, 2)).iter().zip(&figures) {
            paint(part, panel, lines).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

fn paint<'a>(area: &Area<'a>, panel: &Panel<'_>, lines: &[Vec<(f64, f64)>]) -> Drawn<'a> {
    let values = lines.iter().flatten().map(|(_, value)| *value);
    let (low, high) = values.fold((0.0_f64, 1.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, (FONT, TITLE_SIZE))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..number(panel.right) * 1.03, low..high * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT.mix(0.3))
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE + 1))
        .x_desc(panel.below)
        .x_labels(8)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for ((_, name, colour), points) in LINES.into_iter().zip(lines).filter(|(_, points)| !points.is_empty()) {
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|place| Circle::new(*place, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(panel.legend.clone())
        .label_font((FONT, TEXT_SIZE))
        .background_style(WHITE.mix(0.8))
        .draw()
}
