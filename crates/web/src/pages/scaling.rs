//! How a workload scales over GPUs: each number of them, measured or estimated, with its interval.

use super::parts::scrolling;
use crate::chart::{self, At, Counts, Height};
use crate::format;
use maud::{Markup, html};
use pillion_api::ScaleRun;
use pillion_core::amount::{Amount, Unit};
use pillion_core::units::SECONDS_PER_HOUR;
use pillion_scale::answers::{Choice, break_even};
use pillion_scale::{EFFICIENCY_USUAL, Estimate, Measure, NodeShape, Row, Run, Source, Table};
use std::collections::BTreeMap;

/// A section a model of GPU on which these runs, of one workload, had several numbers of them; nothing where they had one.
pub(super) fn sections(runs: &[ScaleRun]) -> Markup {
    let mut of_models: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
    for run in runs {
        let timed = Run::metered(run.node_count, run.gpu_count, run.elapsed_seconds, run.energy_joules);
        of_models.entry(run.device_model.as_deref().unwrap_or_default()).or_default().push(timed);
    }
    let tables = of_models.into_iter().filter_map(|(model, runs)| {
        let table = Table::of(Measure::Elapsed, &runs, NodeShape::seen(&runs), 1.0).ok()?;
        Some((model, table))
    });
    html! { @for (model, table) in tables { (section(model, &table)) } }
}

fn section(model: &str, table: &Table) -> Markup {
    let on = if model.is_empty() { String::new() } else { format!(" on {model}") };
    let most = table.rows.iter().map(|row| row.speedup_ratio.high).fold(1.0, f64::max);
    html! {
        section aria-label={ "How it scales" (on) } {
            h2 { "How many GPUs" (on) }
            p.source { "Elapsed times of completed runs that had their GPUs to themselves" }
            @if let Some(found) = break_even(table, EFFICIENCY_USUAL) {
                p { "Break-even at an efficiency of " (format::percent(Some(EFFICIENCY_USUAL))) ": "
                    (format::counted(found.measured_gpus.into(), "GPU")) " measured, "
                    (found.estimated.gpus) " with estimates" @if let Some(ends) = ends(&found.estimated) { " (" (ends) ")" } @if found.is_at_least { " or further" } "." }
            }
            (pictures(table))
            (scrolling("How it scales", &rows(table, most)))
            p.note { "± and bands hold nine times of ten. Efficiency is what a GPU is worth, of what it is worth at the smallest number." }
        }
    }
}

/// What it is at the ends of the intervals, where that is another: `2 to 8`.
fn ends(choice: &Choice) -> Option<String> {
    let (low, high) = (choice.low.unwrap_or(choice.gpus), choice.high.unwrap_or(choice.gpus));
    (low < high).then(|| format!("{low} to {high}"))
}

/// What stands in the table, over the numbers of GPUs.
fn pictures(table: &Table) -> Markup {
    let points = |value: fn(&Row) -> Option<Estimate>| -> Vec<At> {
        let at = |row: &Row| {
            Some(At { gpus: row.gpus, value: value(row)?, is_measured: row.source == Source::Measured })
        };
        table.rows.iter().filter_map(at).collect()
    };
    let smallest = table.rows.first().map_or(1.0, |row| f64::from(row.gpus));
    let full = table.rows.iter().map(|row| f64::from(row.gpus) / smallest).collect();
    let kept = vec![100.0 * EFFICIENCY_USUAL; table.rows.len()];
    let speedup = points(|row| Some(row.speedup_ratio));
    let efficiency = points(|row| Some(row.efficiency_ratio.times(100.0)));
    let gpu_seconds = points(|row| Some(row.gpu_hours.times(SECONDS_PER_HOUR)));
    let energy = points(|row| row.energy_joules);
    html! {
        (chart::counts_key())
        div.curves {
            (chart::counts(&Counts { name: "Speedup, and the ideal", points: &speedup, against: Some(full), height: Height::Doublings, unit: "×" }))
            (chart::counts(&Counts { name: "Efficiency, and the break-even", points: &efficiency, against: Some(kept), height: Height::Even, unit: " %" }))
            (amounts("GPU time of a run", &gpu_seconds, Unit::of_device_time))
            (amounts("Energy of a run", &energy, Unit::of_energy))
        }
    }
}

/// In the unit that says something of the greatest of them.
fn amounts(of: &str, points: &[At], unit: fn(f64) -> Unit) -> Markup {
    let unit = unit(points.iter().map(|at| at.value.expected).fold(0.0, f64::max));
    let told = |at: &At| At { value: at.value.times(unit.count(1.0)), ..*at };
    let points: Vec<At> = points.iter().map(told).collect();
    let name = format!("{of}, in {}", unit.name());
    chart::counts(&Counts { name: &name, points: &points, against: None, height: Height::Even, unit: "" })
}

fn rows(table: &Table, most: f64) -> Markup {
    html! {
        table {
            thead { tr {
                th.number scope="col" { "GPUs" } th.number scope="col" { "Runs" } th.number scope="col" { "Time" } th.number scope="col" { "±" }
                th.number scope="col" { "Speedup" } th.number scope="col" { "Efficiency" } th scope="col" { span.hidden { "Band of the efficiency" } }
                th.number scope="col" { "GPU time" } th.number scope="col" { "Energy" } th scope="col" { "Source" }
            } }
            tbody { @for row in &table.rows { (line(row, most)) } }
        }
    }
}

fn line(row: &Row, most: f64) -> Markup {
    let efficiency = row.efficiency_ratio;
    let is_measured = row.source == Source::Measured;
    let band = chart::Range {
        low: Some(efficiency.low),
        expected: Some(efficiency.expected),
        high: Some(efficiency.high),
        promised: Some(EFFICIENCY_USUAL),
        measured: is_measured.then_some(efficiency.expected),
    };
    html! { tr {
        th.number scope="row" { (row.gpus) }
        td.number { @if is_measured { (row.runs) } }
        td.number { (format::duration(row.time_seconds.expected)) }
        td.number { (format::duration(row.time_seconds.half_width())) }
        td.number { (chart::bar(row.speedup_ratio.expected / most, "fill-activity")) " " (format::ratio(Some(row.speedup_ratio.expected))) }
        td.number { (format::percent(Some(efficiency.expected))) }
        td { (chart::range(&band)) }
        td.number { (Amount::device_time(row.gpu_hours.expected * SECONDS_PER_HOUR)) }
        td.number { @if let Some(energy) = row.energy_joules { (Amount::energy(energy.expected)) } @else { (format::NONE) } }
        td { (row.source.text()) }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gpu_count: u32, elapsed_seconds: f64) -> ScaleRun {
        ScaleRun {
            device_model: Some("h<100".to_owned()),
            gpu_count,
            node_count: 1,
            elapsed_seconds,
            ..ScaleRun::default()
        }
    }

    #[test]
    fn several_counts_are_drawn_with_their_bands_and_one_is_not() {
        assert_eq!(sections(&[run(1, 100.0), run(1, 90.0)]).into_string(), "");
        let page = sections(&[run(1, 7200.0), run(2, 4500.0), run(4, 3790.0)]).into_string();
        assert!(
            page.contains("How many GPUs on h&lt;100") && page.contains("2 GPUs measured, 2 with estimates"),
            "{page}"
        );
        // 1, 2 and 4 were measured; 8 and 16 are estimated.
        assert_eq!(page.matches("<tr>").count(), 1 + 5, "{page}");
        // Three points in each of three pictures, for nothing was metered, and in the table; and what the mark is.
        assert_eq!(page.matches("class=\"measured\"").count(), 3 * 4 + 1);
        assert_eq!(page.matches("class=\"estimated\"").count(), 2 * 3 + 1);
        assert_eq!(page.matches("polygon class=\"band\"").count(), 3);
        assert!(page.contains("Speedup, and the ideal") && !page.contains("Energy of a run"), "{page}");
        assert!(page.contains("estimated, two doublings out"), "{page}");
    }
}
