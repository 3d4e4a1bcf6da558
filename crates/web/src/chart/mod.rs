//! Small pictures in SVG. Each stands beside the number that it shows, or above a table of them: who cannot see it loses
//! nothing, so screen readers pass it over.

mod counts;

pub(crate) use counts::{At, Counts, Height, counts, counts_key};

use crate::format;
use maud::{Markup, html};

/// A bar of one value of a whole.
pub(crate) fn bar(fraction: f64, class: &str) -> Markup {
    let width = fraction.clamp(0.0, 1.0) * 100.0;
    html! {
        svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.trough x="0" y="0" width="100" height="8" {}
            rect class=(class) x="0" y="0" width=(format!("{width:.1}")) height="8" {}
        }
    }
}

/// Parts of a whole side by side: (class, count).
pub(crate) fn parts(parts: &[(&str, f64)]) -> Markup {
    let sum: f64 = parts.iter().map(|(_, count)| count).sum();
    let mut x = 0.0;
    let placed: Vec<(&str, f64, f64)> = parts
        .iter()
        .filter(|(_, count)| *count > 0.0)
        .map(|(class, count)| {
            let width = count / sum.max(f64::MIN_POSITIVE) * 100.0;
            x += width;
            (*class, x - width, width)
        })
        .collect();
    html! {
        svg.parts viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            @for (class, x, width) in placed {
                rect class={ "fill-" (class) } x=(format!("{x:.2}")) y="0" width=(format!("{:.2}", (width - 0.3).max(0.2))) height="10" {}
            }
        }
    }
}

/// Some of a device's slices that one tenant has: where they begin, how many they are, and what stands on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) start: u8,
    pub(crate) count: u8,
    pub(crate) label: String,
}

/// A device in its slices: those that are taken as one piece each, the others one by one.
pub(crate) fn slices(count: u8, cuts: &[Cut]) -> Markup {
    const SLICE: u32 = 40;
    let at = |slices: u8| u32::from(slices) * SLICE;
    let is_taken = |slice: &u8| cuts.iter().any(|cut| (cut.start..cut.start + cut.count).contains(slice));
    html! {
        svg.slices viewBox={ "0 0 " (at(count)) " 24" } aria-hidden="true" focusable="false" {
            @for slice in (0..count).filter(|slice| !is_taken(slice)) {
                rect.free x=(at(slice) + 1) y="1" width=(SLICE - 2) height="22" rx="3" {}
            }
            @for cut in cuts {
                rect.taken x=(at(cut.start) + 1) y="1" width=(at(cut.count) - 2) height="22" rx="3" {}
                text x=(at(cut.start) + at(cut.count) / 2) y="16" text-anchor="middle" { (cut.label) }
            }
        }
    }
}

/// One column a step, up from zero or down: (label, value).
pub(crate) fn columns(values: &[(String, f64)], unit: &str) -> Markup {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 200.0;
    const LEFT: f64 = 52.0;
    const BOTTOM: f64 = 26.0;
    let (low, high) =
        values.iter().fold((0.0_f64, 0.0_f64), |(low, high), (_, it)| (low.min(*it), high.max(*it)));
    let step = nice_step(high - low);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil().max(1.0) * step);
    let y = |value: f64| 10.0 + (high - value) / (high - low) * (HEIGHT - BOTTOM - 10.0);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred columns")]
    let slot = (WIDTH - LEFT) / values.len().max(1) as f64;
    let every = values.len().div_ceil(12).max(1);
    let lines =
        std::iter::successors(Some(low), |at| Some(at + step)).take_while(|at| *at <= high + step / 2.0);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred columns")]
    let placed = values.iter().enumerate().map(|(at, (label, value))| {
        let x = LEFT + at as f64 * slot;
        let (top, height) =
            if *value >= 0.0 { (y(*value), y(0.0) - y(*value)) } else { (y(0.0), y(*value) - y(0.0)) };
        (at, label, *value, x, top, height.max(if *value == 0.0 { 0.0 } else { 1.0 }))
    });
    html! {
        svg.columns viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } aria-hidden="true" focusable="false" {
            @for line in lines {
                line.grid.zero[line.abs() < step / 1e6] x1=(LEFT) x2=(WIDTH) y1=(format!("{:.1}", y(line))) y2=(format!("{:.1}", y(line))) {}
                text.axis x=(LEFT - 8.0) y=(format!("{:.1}", y(line) + 4.0)) text-anchor="end" { (tick(line, step)) }
            }
            @for (at, label, value, x, top, height) in placed {
                rect.lost[value < 0.0].gain[value >= 0.0] x=(format!("{:.1}", x + slot * 0.14)) y=(format!("{top:.1}"))
                    width=(format!("{:.1}", slot * 0.72)) height=(format!("{height:.1}")) rx="2" {
                    title { (label) ": " (format::signed(value)) " " (unit) }
                }
                @if at % every == 0 {
                    text.axis x=(format!("{:.1}", x + slot / 2.0)) y=(HEIGHT - 8.0) text-anchor="middle" { (short_day(label)) }
                }
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives about four lines.
fn nice_step(range: f64) -> f64 {
    let rough = (range / 4.0).max(0.05);
    let power = 10.0_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough).unwrap_or(rough)
}

/// Likewise of a range from zero up, however small.
fn fine_step(range: f64) -> f64 {
    let rough = (range / 5.0).max(1e-9);
    let power = 10.0_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough * 0.999).unwrap_or(rough)
}

/// A number at a line of the grid, with as many digits as tell it from the next one; from ten thousand on in thousands.
fn number(value: f64, step: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 9")]
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    match value {
        1e9.. => format!("{value:.0e}"),
        1e7.. => format!("{:.0}M", value / 1e6),
        1e4.. => format!("{:.0}k", value / 1e3),
        _ => format!("{value:.digits$}"),
    }
}

fn tick(value: f64, step: f64) -> String {
    let text = if step >= 1.0 { format!("{:.0}", value.abs()) } else { format!("{:.1}", value.abs()) };
    if value < -step / 1e6 { format!("−{text}") } else { text }
}

/// `2026-11-21` as `21 Nov`; other labels as they are.
fn short_day(label: &str) -> String {
    chrono::NaiveDate::parse_from_str(label, "%Y-%m-%d")
        .map_or_else(|_| label.to_owned(), |day| day.format("%-d %b").to_string())
}

/// What was expected of a tenant, between its bounds, against what it was promised and what was measured. All are speeds
/// as fractions of the speed alone.
pub(crate) struct Range {
    pub(crate) low: Option<f64>,
    pub(crate) expected: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) promised: Option<f64>,
    pub(crate) measured: Option<f64>,
}

/// The range of an estimate, from standstill to full speed.
pub(crate) fn range(range: &Range) -> Markup {
    html! {
        svg.range viewBox="0 0 330 34" aria-hidden="true" focusable="false" {
            line.grid x1="4" x2="319" y1="17" y2="17" {}
            @for at in [0.0, 0.25, 0.5, 0.75, 1.0] { line.grid x1=(range_x(at)) x2=(range_x(at)) y1="13" y2="21" {} }
            @if let (Some(low), Some(high)) = (range.low, range.high.or(range.expected)) {
                rect.band x=(range_x(low)) y="10" width=(format!("{:.1}", ((high.min(1.05) - low) * 300.0).max(1.0))) height="14" rx="3" {}
            }
            @if let Some(expected) = range.expected { line.expected x1=(range_x(expected)) x2=(range_x(expected)) y1="8" y2="26" {} }
            @if let Some(promised) = range.promised { line.promised x1=(range_x(promised)) x2=(range_x(promised)) y1="2" y2="32" {} }
            @if let Some(measured) = range.measured { circle.measured cx=(range_x(measured)) cy="17" r="5" {} }
        }
    }
}

/// Where a speed stands, from 4 to 319 of the picture's 330 units.
fn range_x(speed: f64) -> String {
    format!("{:.1}", 4.0 + speed.clamp(0.0, 1.05) * 300.0)
}

/// Throughput under caps of 10 % to 90 %, and of 100 % without one, as fractions of the last.
pub(crate) fn curve(points: &[(f64, f64)]) -> Markup {
    let mut line = Vec::new();
    for (cap, speed) in points {
        line.push(format!("{:.1},{:.1}", 30.0 + cap * 280.0, 130.0 - speed.clamp(0.0, 1.1) * 110.0));
    }
    html! {
        svg.curve viewBox="-20 0 360 156" aria-hidden="true" focusable="false" {
            @for at in [0.0, 0.5, 1.0] {
                line.grid x1="30" x2="310" y1=(format!("{:.1}", 130.0 - at * 110.0)) y2=(format!("{:.1}", 130.0 - at * 110.0)) {}
                text.axis x="26" y=(format!("{:.1}", 134.0 - at * 110.0)) text-anchor="end" { (format!("{:.0} %", at * 100.0)) }
                text.axis x=(format!("{:.1}", 30.0 + at * 280.0)) y="150" text-anchor="middle" { (format!("{:.0} %", at * 100.0)) }
            }
            polyline.line points=(line.join(" ")) {}
            @for point in &line { @if let Some((x, y)) = point.split_once(',') { circle.dot cx=(x) cy=(y) r="3.5" {} } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_nothing_and_of_losses_are_drawn() {
        for values in [
            vec![],
            vec![("2026-11-21".to_owned(), 0.0)],
            vec![("a".to_owned(), -3.0), ("b".to_owned(), 9.0)],
        ] {
            let text = columns(&values, "kWh").into_string();
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        assert!(columns(&[("2026-11-21".to_owned(), -3.0)], "kWh").into_string().contains("class=\"lost\""));
        assert_eq!(short_day("2026-11-21"), "21 Nov");
    }

    #[test]
    fn steps_are_round() {
        for (range, step) in [(10.0, 5.0), (100.0, 50.0), (7.0, 2.0)] {
            assert!((nice_step(range) - step).abs() < 1e-9, "{range}");
        }
    }
}
