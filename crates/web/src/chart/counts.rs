//! Curves over numbers of GPUs, each with the band that holds it nine times of ten.

use maud::{Markup, html};
use pillion_scale::Estimate;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;
/// What a number of GPUs takes below the picture.
const LABEL_WIDTH: f64 = 26.0;
/// Spaces between lines of the grid, of doublings.
const LINES_MAX: f64 = 5.0;

/// A value at a number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) gpus: u32,
    pub(crate) value: Estimate,
    /// Else it is estimated.
    pub(crate) is_measured: bool,
}

/// How values stand above each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Height {
    /// From zero up.
    Even,
    /// Each doubling as high as any other, from the smallest number's on: what doubles with the numbers is a straight line.
    Doublings,
}

/// A picture: the curve, and what it is held against. Values are in the unit that its name says.
pub(crate) struct Counts<'a> {
    /// What it is of, in a few words.
    pub(crate) name: &'a str,
    /// By rising numbers.
    pub(crate) points: &'a [At],
    /// A second line, a value a point.
    pub(crate) against: Option<Vec<f64>>,
    pub(crate) height: Height,
    /// What stands behind a number at a line of the grid.
    pub(crate) unit: &'static str,
}

/// What the marks of all pictures are.
pub(crate) fn counts_key() -> Markup {
    html! {
        ul.counts-key aria-hidden="true" {
            li { svg viewBox="0 0 24 12" { circle.measured cx="12" cy="6" r="4" {} } "measured" }
            li { svg viewBox="0 0 24 12" { circle.estimated cx="12" cy="6" r="3.5" {} } "estimated" }
            li { svg viewBox="0 0 24 12" { rect.band x="0" y="1" width="24" height="10" {} } "nine times of ten" }
            li { svg viewBox="0 0 24 12" { line.against x1="0" x2="24" y1="6" y2="6" {} } "what it is held against" }
        }
    }
}

/// The picture. Each doubling of the number is as wide as any other. Nothing is drawn of less than two points.
pub(crate) fn counts(picture: &Counts<'_>) -> Markup {
    let (Some(first), Some(last)) = (picture.points.first(), picture.points.last()) else { return html! {} };
    let doublings = (f64::from(last.gpus) / f64::from(first.gpus)).log2();
    if doublings <= 0.0 {
        return html! {};
    }
    let against = picture.against.as_deref().unwrap_or_default();
    let axis = Axis::of(picture, against);
    let x = |gpus: u32| {
        LEFT + (f64::from(gpus) / f64::from(first.gpus)).log2() / doublings * (WIDTH - LEFT - RIGHT)
    };
    let place = |gpus: u32, value: f64| format!("{:.1},{:.1}", x(gpus), axis.y(value));
    let along = |value: fn(&Estimate) -> f64| -> Vec<String> {
        picture.points.iter().map(|at| place(at.gpus, value(&at.value))).collect()
    };
    // There along the upper end and back along the lower.
    let lower = along(|value| value.low);
    let band: Vec<String> = along(|value| value.high).into_iter().chain(lower.into_iter().rev()).collect();
    let second: Vec<String> =
        picture.points.iter().zip(against).map(|(at, value)| place(at.gpus, *value)).collect();
    let labelled = apart(picture.points.iter().map(|at| (at.gpus, x(at.gpus))).collect());
    html! {
        figure.counts {
            figcaption { (picture.name) }
            svg.counts viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } aria-hidden="true" focusable="false" {
                @for (value, label) in &axis.lines {
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(format!("{:.1}", axis.y(*value))) y2=(format!("{:.1}", axis.y(*value))) {}
                    text.axis x=(LEFT - 8.0) y=(format!("{:.1}", axis.y(*value) + 4.0)) text-anchor="end" { (label) }
                }
                polygon.band points=(band.join(" ")) {}
                @if !second.is_empty() { polyline.against fill="none" points=(second.join(" ")) {} }
                polyline.line points=(along(|value| value.expected).join(" ")) {}
                @for at in picture.points {
                    @let (kind, radius) = if at.is_measured { ("measured", 4.0) } else { ("estimated", 3.5) };
                    circle class=(kind) cx=(format!("{:.1}", x(at.gpus))) cy=(format!("{:.1}", axis.y(at.value.expected))) r=(radius) {}
                }
                @for (gpus, x) in labelled {
                    text.axis x=(format!("{x:.1}")) y=(HEIGHT - BOTTOM + 20.0) text-anchor="middle" { (gpus) }
                }
                text.axis x=(format!("{:.1}", f64::midpoint(LEFT, WIDTH - RIGHT))) y=(HEIGHT - 4.0) text-anchor="middle" { "GPUs" }
            }
        }
    }
}

/// Those of these labels, each at its place, that leave room for each other. The first and the last always stand.
fn apart(labels: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    let Some((last, rest)) = labels.split_last() else { return labels };
    let mut kept: Vec<(u32, f64)> = Vec::with_capacity(labels.len());
    for label in rest {
        let has_room = |other: &(u32, f64)| (label.1 - other.1).abs() >= LABEL_WIDTH;
        if kept.last().is_none_or(has_room) && (kept.is_empty() || has_room(last)) {
            kept.push(*label);
        }
    }
    kept.push(*last);
    kept
}

/// What stands beside the picture, and how high a value is in it.
struct Axis {
    height: Height,
    bottom: f64,
    top: f64,
    /// Each line of the grid with its label.
    lines: Vec<(f64, String)>,
}

impl Axis {
    fn of(picture: &Counts<'_>, against: &[f64]) -> Self {
        let ends = picture.points.iter().flat_map(|at| [at.value.low, at.value.high]);
        let values = || ends.clone().chain(against.iter().copied()).filter(|value| value.is_finite());
        let most = values().fold(0.0, f64::max);
        let label = |value: f64, step: f64| format!("{}{}", super::number(value, step), picture.unit);
        match picture.height {
            Height::Even => {
                let step = super::fine_step(most);
                let top = (most / step).ceil().max(1.0) * step;
                let lines = std::iter::successors(Some(0.0), |at| Some(at + step));
                let lines = lines.take_while(|at| *at <= top * 1.001).map(|at| (at, label(at, step)));
                Self { height: Height::Even, bottom: 0.0, top, lines: lines.collect() }
            }
            Height::Doublings => {
                let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min).min(most);
                // Of numbers below one as far as a sixteenth: beyond that there is no curve.
                let bottom = least.clamp(1.0 / 16.0, 1.0).log2().floor();
                let top = most.clamp(2.0, 1e9).log2().ceil().max(bottom + 1.0);
                let stride = ((top - bottom) / LINES_MAX).ceil().max(1.0);
                let lines = std::iter::successors(Some(bottom), |at| Some(at + stride));
                let lines = lines
                    .take_while(|at| *at <= top + 1e-9)
                    .map(|at| (at.exp2(), label(at.exp2(), at.exp2().min(1.0))));
                Self { height: Height::Doublings, bottom, top, lines: lines.collect() }
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        let at = match self.height {
            Height::Even => value,
            Height::Doublings => value.max(f64::MIN_POSITIVE).log2(),
        };
        let part = (at.clamp(self.bottom, self.top) - self.bottom) / (self.top - self.bottom);
        TOP + (1.0 - part) * (HEIGHT - TOP - BOTTOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(gpus: u32, low: f64, expected: f64, high: f64) -> At {
        At { gpus, value: Estimate { low, expected, high }, is_measured: gpus < 4 }
    }

    fn drawn(points: &[At], against: Option<Vec<f64>>, height: Height) -> String {
        counts(&Counts { name: "Speedup", points, against, height, unit: "×" }).into_string()
    }

    fn points_of(picture: &str, class: &str) -> String {
        let rest = picture.split(&format!("class=\"{class}\"")).nth(1).unwrap();
        rest.split("points=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    fn numbers(text: &str) -> Vec<f64> {
        text.split([' ', ',']).map(|it| it.parse().unwrap()).collect()
    }

    fn labels(picture: &str) -> Vec<&str> {
        let texts = picture.split("<text ").skip(1);
        texts.map(|text| text.split('>').nth(1).unwrap().split('<').next().unwrap()).collect()
    }

    #[test]
    fn a_curve_stands_in_its_band() {
        let points = [at(1, 1.0, 1.0, 1.0), at(2, 1.5, 1.8, 2.0), at(4, 2.0, 3.0, 4.0)];
        let picture = drawn(&points, Some(vec![1.0, 2.0, 4.0]), Height::Even);
        assert_eq!(picture.matches("class=\"measured\"").count(), 2, "{picture}");
        assert_eq!(picture.matches("class=\"estimated\"").count(), 1, "{picture}");
        // The band's far end is as high as what it is held against, at the same place.
        assert_eq!(points_of(&picture, "band").split(' ').count(), 6);
        assert_eq!(
            points_of(&picture, "band").split(' ').nth(2),
            points_of(&picture, "against").split(' ').nth(2)
        );
        // Higher is less far down, and two doublings are twice as wide as one.
        let line = numbers(&points_of(&picture, "line"));
        assert!(line[1] > line[3] && line[3] > line[5], "{line:?}");
        assert!((line[4] - line[0] - 2.0 * (line[2] - line[0])).abs() < 0.2, "{line:?}");
        assert_eq!(labels(&picture), ["0×", "1×", "2×", "3×", "4×", "1", "2", "4", "GPUs"]);
    }

    #[test]
    fn by_doublings_what_doubles_with_the_gpus_is_a_straight_line() {
        let points: Vec<At> = [1, 2, 4, 64].map(|gpus| at(gpus, 0.9, f64::from(gpus).sqrt(), 8.0)).into();
        let picture = drawn(&points, Some(vec![1.0, 2.0, 4.0, 64.0]), Height::Doublings);
        let ideal = numbers(&points_of(&picture, "against"));
        let slope = |from: usize, to: usize| {
            (ideal[2 * to + 1] - ideal[2 * from + 1]) / (ideal[2 * to] - ideal[2 * from])
        };
        assert!((slope(0, 1) - slope(2, 3)).abs() < 0.01, "{ideal:?}");
        assert_eq!(labels(&picture), ["0.5×", "2×", "8×", "32×", "1", "2", "4", "64", "GPUs"]);
    }

    #[test]
    fn labels_leave_room_for_each_other() {
        let points: Vec<At> = [4, 8, 16, 24, 32, 48, 64, 128, 256].map(|gpus| at(gpus, 1.0, 1.0, 1.0)).into();
        let picture = drawn(&points, None, Height::Even);
        let of_gpus: Vec<&str> = labels(&picture).into_iter().filter(|label| !label.contains('×')).collect();
        assert_eq!(of_gpus, ["4", "8", "16", "32", "64", "128", "256", "GPUs"]);
        let close: Vec<At> = [63, 64].map(|gpus| at(gpus, 1.0, 1.0, 1.0)).into();
        assert!(
            labels(&drawn(&close, None, Height::Even)).ends_with(&["63", "64", "GPUs"]),
            "the ends stand"
        );
    }

    #[test]
    fn of_one_number_nothing_is_drawn_and_of_extremes_no_nonsense() {
        for height in [Height::Even, Height::Doublings] {
            assert_eq!(drawn(&[], None, height) + &drawn(&[at(2, 1.0, 1.0, 1.0)], None, height), "");
            let wild = drawn(&[at(1, 0.0, 0.0, 0.0), at(1024, 0.0, 1e9, 1e12)], None, height);
            assert!(!wild.contains("NaN") && !wild.contains("inf"), "{wild}");
        }
    }
}
