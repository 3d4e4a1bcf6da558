//! Workload by workload: how slow each was beside each other one, how slow it was thought to be, and what it did to energy.
//! As in figure 4 of Costa et al. 2025. A cell says its number; the colour only helps to find it.

use super::parts::{field, filters, nothing, scrolling, workload_link, workload_word};
use super::{Ask, now, taken};
use crate::address::Page;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{HeatmapCell, HeatmapRequest, HeatmapResponse};
use std::collections::{BTreeMap, BTreeSet};

/// How many workloads have a row: the busiest.
const WORKLOADS: usize = 40;
const DAYS: f64 = 30.0;
/// How many pairs the lists of the best and the worst name.
const LISTED: usize = 8;
/// Outcomes without which a pair is no example, where others have as many.
const OUTCOMES_MIN: u32 = 2;

const MEASURES: [(&str, &str); 3] =
    [("measured", "Measured slowdown"), ("predicted", "Predicted slowdown"), ("energy", "Energy")];

type Cells<'a> = BTreeMap<(&'a str, &'a str), &'a HeatmapCell>;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let now = now();
    let (since, until) = ask.stretch(now, DAYS)?;
    let words = MEASURES.map(|(word, _)| word);
    let measure = match ask.word("measure", &words)? {
        "" => "measured",
        word => word,
    };
    let workload = ask.filter("workload").to_owned();
    let request = HeatmapRequest { since_seconds: since, until_seconds: until, workload };
    let heat = taken(ask.service.heatmap(ask.question(request)).await)?;
    let cells: Cells<'_> =
        heat.cells.iter().map(|cell| ((cell.workload.as_str(), cell.beside.as_str()), cell)).collect();
    Ok(Sheet {
        title: "Who goes well with whom".to_owned(),
        body: html! {
            (source(&heat, since, now))
            (form(ask))
            @if heat.cells.is_empty() {
                (nothing("No sharing was measured in that time, or none that you may see."))
            } @else {
                (tabs(ask, measure))
                (legend(measure))
                (scrolling("Heatmap", &matrix(&cells, &heat.cells, measure)))
                (examples(&cells, &names(&heat.cells)))
            }
        },
    })
}

fn source(heat: &HeatmapResponse, since: f64, now: f64) -> Markup {
    html! {
        p.source {
            @if heat.is_cut { "The newest " } (format::counted(heat.outcome_count.into(), "measured outcome"))
            " since " (format::time(since, now)) ". A row is slowed by a column; each number leads to the pairings behind it."
        }
    }
}

fn form(ask: &Ask<'_>) -> Markup {
    filters(
        &Page::Heatmap,
        &html! {
            (field("since", "Since", ask.filter("since"), "now-30days"))
            (field("until", "Until", ask.filter("until"), "now"))
            (field("workload", "Workload", ask.filter("workload"), "any"))
            @if !ask.filter("measure").is_empty() { input type="hidden" name="measure" value=(ask.filter("measure")); }
        },
    )
}

fn tabs(ask: &Ask<'_>, measure: &str) -> Markup {
    html! {
        nav.tabs aria-label="What is shown" {
            ul { @for (word, name) in MEASURES {
                li { a href=(ask.filters.address(&Page::Heatmap, &[("measure", word)])) aria-current=[(word == measure).then_some("true")] { (name) } }
            } }
        }
    }
}

/// Upper bounds of the steps of colour: slowdown, and energy against as many runs alone.
const SLOWDOWN_STEPS: [f64; 7] = [1.03, 1.08, 1.15, 1.25, 1.5, 2.0, f64::INFINITY];
const ENERGY_STEPS: [f64; 7] = [0.65, 0.8, 0.95, 1.05, 1.2, 1.4, f64::INFINITY];

fn step(value: f64, steps: &[f64; 7]) -> usize {
    steps.iter().position(|bound| value <= *bound).unwrap_or(6)
}

fn legend(measure: &str) -> Markup {
    let (class, steps) = if measure == "energy" { ("e", ENERGY_STEPS) } else { ("s", SLOWDOWN_STEPS) };
    html! {
        ul.scale aria-label="Colours" {
            @for (at, bound) in steps.iter().enumerate() {
                li class={ "heat " (class) (at) } {
                    @if bound.is_finite() { "≤ " (format!("{bound:.2}")) } @else { "> " (format!("{:.2}", steps[5])) }
                }
            }
            li.muted { @if measure == "energy" { "energy beside the other, over energy alone" } @else { "time beside the other, over time alone" } }
        }
    }
}

/// What each workload is called, by its key.
type Names<'a> = BTreeMap<&'a str, Option<&'a str>>;

fn names(cells: &[HeatmapCell]) -> Names<'_> {
    let own = cells.iter().map(|cell| (cell.workload.as_str(), cell.workload_name.as_deref()));
    own.chain(cells.iter().map(|cell| (cell.beside.as_str(), cell.beside_name.as_deref()))).collect()
}

/// The busiest workloads of all cells, by name.
fn busiest<'a>(cells: &'a [HeatmapCell], called: &Names<'a>) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for cell in cells {
        *counts.entry(&cell.workload).or_default() += u64::from(cell.outcome_count);
        *counts.entry(&cell.beside).or_default() += u64::from(cell.outcome_count);
    }
    let mut keys: Vec<(&str, u64)> = counts.into_iter().collect();
    keys.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut keys: Vec<&str> = keys.into_iter().take(WORKLOADS).map(|(key, _)| key).collect();
    keys.sort_unstable_by_key(|key| (called.get(key), *key));
    keys
}

fn matrix(cells: &Cells<'_>, all: &[HeatmapCell], measure: &str) -> Markup {
    let called = names(all);
    let shown = busiest(all, &called);
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for name in &shown {
        if shown.iter().any(|beside| cells.contains_key(&(*name, *beside))) {
            rows.push(*name);
        }
        if shown.iter().any(|workload| cells.contains_key(&(*workload, *name))) {
            columns.push(*name);
        }
    }
    html! {
        table.heatmap {
            caption.hidden { "Each row’s workload beside each column’s" }
            thead { tr {
                td {}
                @for column in &columns { th scope="col" { div { (link(&called, column)) } } }
            } }
            tbody { @for row in &rows {
                tr {
                    th scope="row" { (link(&called, row)) }
                    @for column in &columns { (heat_cell(cells.get(&(*row, *column)).copied(), measure)) }
                }
            } }
        }
    }
}

fn link(called: &Names<'_>, key: &str) -> Markup {
    workload_link(Some(key), called.get(key).copied().flatten())
}

fn heat_cell(cell: Option<&HeatmapCell>, measure: &str) -> Markup {
    let Some(cell) = cell else { return html! { td.empty { span.hidden { "never measured" } } } };
    let (value, class, steps) = match measure {
        "predicted" => (cell.predicted_slowdown_ratio, "s", &SLOWDOWN_STEPS),
        "energy" => (cell.energy_ratio, "e", &ENERGY_STEPS),
        _ => (Some(cell.slowdown_ratio), "s", &SLOWDOWN_STEPS),
    };
    let Some(value) = value else { return html! { td.empty { span.hidden { "not known" } } } };
    let address = Page::Pairs.with(&[("workload", &cell.workload), ("with", &cell.beside)]);
    html! {
        td class={ "heat " (class) (step(value, steps)) } {
            a href=(address) title={ (cell.workload_name.as_deref().unwrap_or_default()) " beside " (cell.beside_name.as_deref().unwrap_or_default()) ", " (format::counted(cell.outcome_count.into(), "outcome")) } {
                (format!("{value:.2}"))
            }
        }
    }
}

/// A pair of workloads: what both do together beyond one alone, and how much the slower one is slowed.
struct Example<'a> {
    names: (&'a str, &'a str),
    gain: f64,
    slowdowns: (f64, f64),
    outcome_count: u32,
}

fn example<'a>(cells: &Cells<'a>, one: &'a str, other: &'a str) -> Option<Example<'a>> {
    let (own, its) = (cells.get(&(one, other))?, cells.get(&(other, one))?);
    let gain = own.slowdown_ratio.recip() + its.slowdown_ratio.recip() - 1.0;
    let outcome_count = own.outcome_count.min(its.outcome_count);
    let slowdowns = (own.slowdown_ratio, its.slowdown_ratio);
    Some(Example { names: (one, other), gain, slowdowns, outcome_count })
}

fn examples(cells: &Cells<'_>, called: &Names<'_>) -> Markup {
    let names: BTreeSet<(&str, &str)> =
        cells.keys().map(|(one, other)| if one <= other { (*one, *other) } else { (*other, *one) }).collect();
    let mut pairs: Vec<Example<'_>> =
        names.into_iter().filter_map(|(one, other)| example(cells, one, other)).collect();
    if pairs.iter().any(|pair| pair.outcome_count >= OUTCOMES_MIN) {
        pairs.retain(|pair| pair.outcome_count >= OUTCOMES_MIN);
    }
    pairs.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let best = &pairs[..pairs.len().min(LISTED)];
    let worst: Vec<&Example<'_>> = pairs.iter().rev().filter(|pair| pair.gain < 0.5).take(LISTED).collect();
    html! {
        @if !pairs.is_empty() {
            div.columns {
                section aria-labelledby="best" { h2 #best { "Pairs that gained most" } (list(&best.iter().collect::<Vec<_>>(), called)) }
                @if !worst.is_empty() {
                    section aria-labelledby="worst" { h2 #worst { "Pairs that gained least" } (list(&worst, called)) }
                }
            }
        }
    }
}

fn word(called: &Names<'_>, key: &str) -> String {
    workload_word(called.get(key).copied().flatten().unwrap_or(key))
}

fn list(pairs: &[&Example<'_>], called: &Names<'_>) -> Markup {
    html! {
        ol.examples {
            @for pair in pairs {
                @let address = Page::Pairs.with(&[("workload", pair.names.0), ("with", pair.names.1)]);
                li {
                    a href=(address) { (word(called, pair.names.0)) " with " (word(called, pair.names.1)) }
                    span.muted {
                        " gain " strong { (format!("{:+.0} %", pair.gain * 100.0).replace('-', "−")) } ", slowed "
                        (format::ratio(Some(pair.slowdowns.0))) " and " (format::ratio(Some(pair.slowdowns.1)))
                        ", " (format::counted(pair.outcome_count.into(), "outcome"))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_take_every_ratio() {
        assert_eq!([0.0, 1.03, 1.04, 1.99, 9.0].map(|it| step(it, &SLOWDOWN_STEPS)), [0, 0, 1, 5, 6]);
        assert_eq!(step(f64::NAN, &ENERGY_STEPS), 6);
    }
}
