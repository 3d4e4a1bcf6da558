//! Curves over numbers of GPUs, each with the band that holds it nine times of ten.

use maud::{Markup, html};
use pillion_scale::Estimate;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// A value at a number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) gpus: u32,
    pub(crate) value: Estimate,
    /// Else it is estimated.
    pub(crate) is_measured: bool,
}

/// A picture: the curve, and what it is held against.
pub(crate) struct Counts<'a> {
    /// What it is of, in a few words.
    pub(crate) name: &'a str,
    /// By rising numbers.
    pub(crate) points: &'a [At],
    /// A second line, a value a point.
    pub(crate) against: Option<Vec<f64>>,
    /// What stands at a line of the grid.
    pub(crate) tick: fn(f64) -> String,
}

/// The picture. Each doubling is as wide as any other; the values begin at zero. Nothing is drawn of less than two points.
pub(crate) fn counts(picture: &Counts<'_>) -> Markup {
    let (Some(first), Some(last)) = (picture.points.first(), picture.points.last()) else { return html! {} };
    let doublings = (f64::from(last.gpus) / f64::from(first.gpus)).log2();
    if doublings <= 0.0 {
        return html! {};
    }
    let against = picture.against.as_deref().unwrap_or_default();
    let most =
        picture.points.iter().map(|at| at.value.high).chain(against.iter().copied()).fold(0.0, f64::max);
    let step = super::nice_step(most);
    let top = (most / step).ceil().max(1.0) * step;
    let x = |gpus: u32| {
        LEFT + (f64::from(gpus) / f64::from(first.gpus)).log2() / doublings * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| TOP + (1.0 - value.clamp(0.0, top) / top) * (HEIGHT - TOP - BOTTOM);
    let place = |gpus: u32, value: f64| format!("{:.1},{:.1}", x(gpus), y(value));
    let along = |value: fn(&Estimate) -> f64| -> Vec<String> {
        picture.points.iter().map(|at| place(at.gpus, value(&at.value))).collect()
    };
    // There along the upper end and back along the lower.
    let lower = along(|value| value.low);
    let band: Vec<String> = along(|value| value.high).into_iter().chain(lower.into_iter().rev()).collect();
    let second: Vec<String> =
        picture.points.iter().zip(against).map(|(at, value)| place(at.gpus, *value)).collect();
    let lines: Vec<f64> =
        std::iter::successors(Some(0.0), |at| Some(at + step)).take_while(|at| *at <= top * 1.001).collect();
    html! {
        figure.counts {
            figcaption { (picture.name) }
            svg.counts viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } aria-hidden="true" focusable="false" {
                @for line in lines {
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(format!("{:.1}", y(line))) y2=(format!("{:.1}", y(line))) {}
                    text.axis x=(LEFT - 6.0) y=(format!("{:.1}", y(line) + 4.0)) text-anchor="end" { ((picture.tick)(line)) }
                }
                polygon.band points=(band.join(" ")) {}
                @if !second.is_empty() { polyline.promised fill="none" points=(second.join(" ")) {} }
                polyline.line points=(along(|value| value.expected).join(" ")) {}
                @for at in picture.points {
                    @if at.is_measured { circle.measured cx=(format!("{:.1}", x(at.gpus))) cy=(format!("{:.1}", y(at.value.expected))) r="4" {} }
                    text.axis x=(format!("{:.1}", x(at.gpus))) y=(HEIGHT - 8.0) text-anchor="middle" { (at.gpus) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(gpus: u32, low: f64, expected: f64, high: f64) -> At {
        At { gpus, value: Estimate { low, expected, high }, is_measured: gpus < 4 }
    }

    fn drawn(points: &[At], against: Option<Vec<f64>>) -> String {
        counts(&Counts { name: "Speedup", points, against, tick: |value| format!("{value:.1}") })
            .into_string()
    }

    #[test]
    fn a_curve_stands_in_its_band() {
        let points = [at(1, 1.0, 1.0, 1.0), at(2, 1.5, 1.8, 2.0), at(4, 2.0, 3.0, 4.0)];
        let picture = drawn(&points, Some(vec![1.0, 2.0, 4.0]));
        assert_eq!(picture.matches("class=\"measured\"").count(), 2, "{picture}");
        let points_of = |class: &str| {
            let rest = picture.split(&format!("class=\"{class}\"")).nth(1).unwrap();
            rest.split("points=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        // The band's far end is as high as what it is held against, at the same place.
        assert_eq!(points_of("band").split(' ').count(), 6);
        assert_eq!(points_of("band").split(' ').nth(2), points_of("promised").split(' ').nth(2));
        // Higher is less far down, and two doublings are twice as wide as one.
        let numbers =
            |text: &str| -> Vec<f64> { text.split([' ', ',']).map(|it| it.parse().unwrap()).collect() };
        let line = numbers(&points_of("line"));
        assert!(line[1] > line[3] && line[3] > line[5], "{line:?}");
        assert!((line[4] - line[0] - 2.0 * (line[2] - line[0])).abs() < 0.2, "{line:?}");
    }

    #[test]
    fn of_one_number_nothing_is_drawn_and_of_extremes_no_nonsense() {
        assert_eq!(drawn(&[], None) + &drawn(&[at(2, 1.0, 1.0, 1.0)], None), "");
        let wild = drawn(&[at(1, 0.0, 0.0, 0.0), at(1024, 0.0, 1e9, 1e12)], None);
        assert!(!wild.contains("NaN") && !wild.contains("inf"), "{wild}");
    }
}
