//! What observed pairings teach: hours kept, promises broken and the error of the estimates, by how many were observed.

use super::style::{
    Area, Drawn, FAINT, FONT, GREEDY, OURS, RANDOM, TEXT_SIZE, TITLE_SIZE, TREES, number, picture,
};
use pillion_pairing::backtest::{PolicyName, PolicyScore, Report};
use plotters::prelude::*;

const LEARNERS: [(PolicyName, &str, RGBColor); 3] = [
    (PolicyName::Ours, "ours", OURS),
    (PolicyName::ExtraTrees, "Extra Trees", TREES),
    (PolicyName::Greedy, "greedy, our estimates", GREEDY),
];

/// One line of a panel.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Where the names of a panel's lines stand, and the room kept above the highest value, of the range of values.
struct Legend {
    position: SeriesLabelPosition,
    headroom: f64,
}

/// Under lines that rise, and over lines that fall.
const BELOW: Legend = Legend { position: SeriesLabelPosition::LowerRight, headroom: 0.05 };
const ABOVE: Legend = Legend { position: SeriesLabelPosition::UpperRight, headroom: 0.45 };

/// Three panels, for the longest queue.
pub(super) fn draw(report: &Report) -> Result<String, String> {
    let queue = report.protocol.queues.iter().copied().max().unwrap_or(0);
    let right = report.protocol.warm_observations.iter().copied().max().unwrap_or(0);
    let kept = lines(report, queue, right, |score| score.s_kept);
    let broken = lines(report, queue, right, |score| score.broken_fraction.map(|share| 100.0 * share));
    let kept_title = format!("Hours kept, of the oracle's ({queue} jobs)");
    let figures = [
        (kept_title.as_str(), kept, BELOW),
        ("Promises broken, % of jobs that share", broken, ABOVE),
        ("Error of a speed (root mean square)", errors(report), ABOVE),
    ];
    picture((1290, 440), |area| {
        for (part, (title, lines, legend)) in area.split_evenly((1, 3)).iter().zip(&figures) {
            panel(part, title, lines, number(right), legend).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

fn lines(report: &Report, queue: usize, right: usize, figure: fn(&PolicyScore) -> Option<f64>) -> Vec<Line> {
    let scores: Vec<&PolicyScore> = report.policies.iter().filter(|score| score.queue == queue).collect();
    let mut lines = Vec::new();
    for (policy, name, colour) in LEARNERS {
        let own = scores.iter().filter(|score| score.policy == policy);
        let points = own.filter_map(|score| Some((number(score.observations?), figure(score)?))).collect();
        lines.push(Line { name, colour, points });
    }
    let random = scores.iter().find(|score| score.policy == PolicyName::RandomThatFits);
    let random = random.and_then(|score| figure(score));
    let flat = random.map_or_else(Vec::new, |value| vec![(0.0, value), (number(right), value)]);
    lines.push(Line { name: "random that fits", colour: RANDOM, points: flat });
    lines
}

fn errors(report: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for (policy, name, colour) in &LEARNERS[..2] {
        let own = report.estimates.iter().filter(|score| score.policy == *policy);
        let points = own.filter_map(|score| Some((number(score.observations), score.speed_fraction_rmse?)));
        lines.push(Line { name, colour: *colour, points: points.collect() });
    }
    lines
}

fn panel<'a>(area: &Area<'a>, title: &str, lines: &[Line], right: f64, legend: &Legend) -> Drawn<'a> {
    let Legend { position, headroom } = legend;
    let values = lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let high = if high > low { high + headroom * (high - low) } else { low + 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, TITLE_SIZE))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..right * 1.03, low..high)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT.mix(0.3))
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE + 1))
        .x_desc("observed pairings")
        .x_labels(6)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for Line { name, colour, points } in lines.iter().filter(|line| !line.points.is_empty()) {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|place| Circle::new(*place, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(position.clone())
        .label_font((FONT, TEXT_SIZE))
        .background_style(WHITE.mix(0.8))
        .draw()
}
