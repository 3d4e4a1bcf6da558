//! One workload: how it uses each device model alone, and what its neighbours did to it.

use super::parts::{nothing, scrolling, workload_link};
use super::{Ask, now, scaling, taken};
use crate::address::Page;
use crate::chart;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{HeatmapCell, HeatmapRequest, ProfilesRequest, ScaleRequest};
use pillion_core::amount::Amount;
use pillion_core::metric::Metric;
use pillion_core::profile::WorkloadProfile;

const DAYS: f64 = 90.0;

pub(super) async fn sheet(ask: &Ask<'_>, name: &str) -> Result<Sheet, Problem> {
    let now = now();
    let request = ProfilesRequest { workload: name.to_owned(), user: String::new() };
    let stored = taken(ask.service.profiles(ask.question(request)).await)?.profiles;
    let profiles: Vec<WorkloadProfile> = stored.iter().filter_map(|profile| profile.read().ok()).collect();
    let request = HeatmapRequest {
        since_seconds: now - DAYS * 86_400.0,
        until_seconds: now + 1.0,
        workload: name.to_owned(),
    };
    let cells = taken(ask.service.heatmap(ask.question(request)).await)?.cells;
    let request = ScaleRequest { workload: name.to_owned() };
    let runs = taken(ask.service.scale(ask.question(request)).await)?.runs;
    if profiles.is_empty() && cells.is_empty() && runs.is_empty() {
        return Err(Problem::missing(&format!("workload {name}")));
    }
    // Whoever typed a name has asked for a key by it.
    let key = profiles.first().map(|profile| profile.workload.as_str());
    let name = key.or(cells.first().map(|cell| cell.workload.as_str())).unwrap_or(name);
    let named = cells.first().and_then(|cell| cell.workload_name.as_deref());
    let named = named.or(runs.first().and_then(|run| run.workload_name.as_deref()));
    let title = stored.first().and_then(|profile| profile.workload_name.as_deref()).or(named).unwrap_or(name);
    Ok(Sheet {
        title: title.to_owned(),
        body: html! {
            p.source {
                a href=(Page::Pairs.with(&[("workload", name)])) { "its pairings" } " · "
                a href=(Page::Gains.with(&[("workload", name)])) { "what it gained" } " · "
                a href=(Page::Heatmap.with(&[("workload", name)])) { "its row of the heatmap" }
            }
            @if profiles.is_empty() { (nothing("It was never measured alone.")) }
            @for profile in &profiles { (on_model(profile)) }
            (scaling::sections(&runs))
            section aria-labelledby="beside" {
                h2 #beside { "Beside others, the last " (format!("{DAYS:.0}")) " days" }
                @if cells.is_empty() { (nothing("No sharing of it was measured, or none that you may see.")) } @else { (scrolling("Neighbours", &neighbours(name, title, &cells))) }
            }
        },
    })
}

/// What is drawn of a profile: a bar each.
fn fractions(profile: &WorkloadProfile) -> impl Iterator<Item = (&'static str, f64)> {
    Metric::ALL.into_iter().filter_map(|metric| Some((metric.bar()?.title, profile.metrics.get(metric)?)))
}

fn on_model(profile: &WorkloadProfile) -> Markup {
    let runs = format::counted(profile.run_count.into(), "run");
    let points = capped(profile);
    html! {
        section aria-label={ "Alone on " (profile.device_model) } {
            h2 { "Alone on " (profile.device_model) }
            p.source { "Means over " (runs) @if let Some(family) = &profile.family { ", family " (family) } }
            dl.facts {
                div { dt { "Takes" } dd { (format::duration_or_none(profile.duration_seconds)) @if let Some(variation) = profile.duration_variation_fraction { span.muted { " ± " (format::percent(Some(variation))) } } } }
                div { dt { "Peak memory" } dd { (format::bytes(profile.memory_bytes_peak)) } }
                div { dt { "Power" } dd { @if let Some(watts) = profile.metrics.get(Metric::PowerWatts) { (format!("{watts:.0} W")) } @else { (format::NONE) } } }
                div { dt { "Energy" } dd { @if let Some(joules) = profile.energy_joules { (Amount::energy(joules)) } @else { (format::NONE) } } }
                div { dt { "Processes" } dd { (profile.process_count_peak) @if let Some(bytes) = profile.process_memory_bytes_peak.filter(|_| profile.process_count_peak > 1) { span.muted { ", " (format::bytes(Some(bytes))) " each at most" } } } }
            }
            div.columns {
                table.narrow.profile {
                    caption { "How it uses the device" }
                    tbody { @for (label, value) in fractions(profile) {
                        tr { th scope="row" { (label) } td.number { (chart::bar(value, "fill-activity")) " " (format::percent(Some(value))) } }
                    } }
                }
                @if points.len() > 1 {
                    figure {
                        figcaption { "Throughput under a cap, of that without" }
                        (chart::curve(&points))
                        p.hidden { @for (cap, speed) in &points { "At a cap of " (format::percent(Some(*cap))) ": " (format::percent(Some(*speed))) ". " } }
                    }
                }
            }
        }
    }
}

/// Speed under each cap that was measured, over that without a cap.
fn capped(profile: &WorkloadProfile) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        profile.speed_fractions_at_cap().map(|(cap, speed)| (cap.into(), speed)).collect();
    if !points.is_empty() {
        points.push((1.0, 1.0));
    }
    points
}

fn neighbours(key: &str, title: &str, cells: &[HeatmapCell]) -> Markup {
    html! {
        table {
            caption.hidden { "What each neighbour did to " (title) }
            thead { tr { th scope="col" { "Beside" } th.number scope="col" { "Outcomes" } th.number scope="col" { "Slowed" } th.number scope="col" { "Predicted" } th.number scope="col" { "Energy" } th.number scope="col" { "Promises broken" } th scope="col" { span.hidden { "Pairings" } } } }
            tbody { @for cell in cells { tr {
                th scope="row" { (workload_link(Some(&cell.beside), cell.beside_name.as_deref())) }
                td.number { (cell.outcome_count) }
                td.number { (format::ratio(Some(cell.slowdown_ratio))) }
                td.number { (format::ratio(cell.predicted_slowdown_ratio)) }
                td.number { (format::ratio(cell.energy_ratio)) }
                td.number.loss[cell.promises_broken > 0] { (cell.promises_broken) }
                td { a href=(Page::Pairs.with(&[("workload", key), ("with", &cell.beside)])) { "pairings" span.hidden { " beside " (cell.beside_name.as_deref().unwrap_or_default()) } } }
            } } }
        }
    }
}
