//! What sharing gained: by day as charts with their table, or by whom, where and what.

use super::parts::{card, field, filters, node_link, nothing, scrolling, workload_link};
use super::{Ask, now, taken};
use crate::address::Page;
use crate::chart;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{AccountRequest, AccountResponse, AccountRow, ScaleSum};
use pillion_core::amount::{Amount, Unit};

/// The days that are shown where nobody says which.
const DAYS: f64 = 14.0;
/// A page is not kept waiting by more runs than these; `pillion acct` reads all of them.
const SCALING_RUNS_MAX: u32 = 5_000;
const GROUPS: [&str; 6] = ["day", "user", "account", "partition", "workload", "node"];

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let now = now();
    let (since, until) = ask.stretch(now, DAYS)?;
    let by = match ask.word("by", &GROUPS)? {
        "" => "day",
        word => word,
    };
    // Whole days, so that the first column is no part of one.
    let since = if by == "day" && ask.filter("since").is_empty() { format::today(since).0 } else { since };
    let request = AccountRequest {
        since_seconds: since,
        until_seconds: until,
        user: ask.filter("user").to_owned(),
        account: ask.filter("account").to_owned(),
        partition: ask.filter("partition").to_owned(),
        workload: ask.filter("workload").to_owned(),
        nodes: Vec::new(),
        group_by: by.to_owned(),
        utc_offset_seconds: format::today(now).1,
        scaling_runs_max: Some(SCALING_RUNS_MAX),
    };
    let AccountResponse { mut rows, scaling, .. } = taken(ask.service.account(ask.question(request)).await)?;
    if by != "day" {
        rows.sort_by(|a, b| b.gpu_seconds_saved.total_cmp(&a.gpu_seconds_saved));
    }
    Ok(Sheet {
        title: "What sharing gained".to_owned(),
        body: html! {
            p.source { "Runs that ended from " (format::time(since, now)) " to " (format::time(until.min(now), now)) }
            (form(ask))
            @if rows.is_empty() {
                (nothing("No run ended in that time, or none that you may see."))
            } @else {
                (numbers(&sum(&rows)))
                (tabs(ask, by))
                @if by == "day" { (charts(&rows)) }
                (scrolling("What was gained", &table(&rows, by)))
                p.note {
                    "Two at nine tenths of their speed do 1.8 jobs’ work in the time of one: that saves 0.8 GPU-hours an hour. \
                     Runs whose speed nobody could measure count as neither gain nor loss. Energy is against the same workloads alone."
                }
            }
            @if let Some(sum) = &scaling { (above(sum)) }
        },
    })
}

/// What observed runs spent above their break-even.
fn above(sum: &ScaleSum) -> Markup {
    html! {
        p.note {
            (format::percent(Some(sum.gpu_seconds_above / sum.gpu_seconds))) " of " (Amount::device_time(sum.gpu_seconds))
            " of " @if sum.is_cut { "the newest " (SCALING_RUNS_MAX) " " } "completed runs lie above their break-even (an efficiency of " (format::percent(Some(sum.efficiency_ratio)))
            "), in " (format::counted(sum.workload_count.into(), "workload")) " that ran with several numbers of GPUs. " code { "pillion scale" } " says which."
        }
    }
}

fn sum(rows: &[AccountRow]) -> AccountRow {
    let mut sum = AccountRow::default();
    for row in rows {
        sum.run_count += row.run_count;
        sum.shared_run_count += row.shared_run_count;
        sum.gpu_seconds += row.gpu_seconds;
        sum.gpu_seconds_saved += row.gpu_seconds_saved;
        sum.energy_joules += row.energy_joules;
        sum.energy_joules_saved += row.energy_joules_saved;
        sum.promises_kept += row.promises_kept;
        sum.promises_broken += row.promises_broken;
        sum.sent_back_run_count += row.sent_back_run_count;
    }
    sum
}

fn kept(row: &AccountRow) -> Option<f64> {
    let measured = row.promises_kept + row.promises_broken;
    (measured > 0).then(|| f64::from(row.promises_kept) / f64::from(measured))
}

fn numbers(sum: &AccountRow) -> Markup {
    let (saved, energy) =
        (Amount::device_time(sum.gpu_seconds_saved), Amount::energy(sum.energy_joules_saved));
    html! {
        dl.cards {
            (card("Saved", &saved.signed_number(), saved.unit().name(),
                &html! { "beside " (Amount::device_time(sum.gpu_seconds)) " that were used" }))
            (card("Energy saved", &energy.signed_number(), energy.unit().name(),
                &html! { (Amount::energy(sum.energy_joules)) " used" }))
            (card("Promises kept", &format::percent(kept(sum)), "",
                &html! { (format::count(sum.promises_broken.into())) " of " (format::count((sum.promises_kept + sum.promises_broken).into())) " broken" }))
            (card("Runs", &format::count(sum.run_count.into()), "", &html! {
                (format::count(sum.shared_run_count.into())) " shared a GPU"
                @if sum.sent_back_run_count > 0 { ", " (format::count(sum.sent_back_run_count.into())) " sent back" }
            }))
        }
    }
}

fn form(ask: &Ask<'_>) -> Markup {
    filters(
        &Page::Gains,
        &html! {
            (field("since", "Since", ask.filter("since"), "now-14days"))
            (field("until", "Until", ask.filter("until"), "now"))
            (field("user", "User", ask.filter("user"), "any"))
            (field("account", "Account", ask.filter("account"), "any"))
            (field("partition", "Partition", ask.filter("partition"), "any"))
            @if !ask.filter("by").is_empty() { input type="hidden" name="by" value=(ask.filter("by")); }
        },
    )
}

fn tabs(ask: &Ask<'_>, by: &str) -> Markup {
    html! {
        nav.tabs aria-label="Put together by" {
            ul { @for group in GROUPS {
                li { a href=(ask.filters.address(&Page::Gains, &[("by", group)])) aria-current=[(group == by).then_some("true")] { "by " (group) } }
            } }
        }
    }
}

fn charts(rows: &[AccountRow]) -> Markup {
    let times: Vec<f64> = rows.iter().map(|row| row.gpu_seconds_saved).collect();
    let energies: Vec<f64> = rows.iter().map(|row| row.energy_joules_saved).collect();
    // One unit for all days, so that they can be compared.
    let (time_unit, energy_unit) =
        (Unit::of_device_time(greatest(&times)), Unit::of_energy(greatest(&energies)));
    html! {
        div.charts {
            (saved_by_day(rows, &times, time_unit, time_unit.name()))
            (saved_by_day(rows, &energies, energy_unit, &format!("Energy in {}", energy_unit.name())))
        }
    }
}

/// In size, whatever its sign.
fn greatest(values: &[f64]) -> f64 {
    values.iter().map(|value| value.abs()).fold(0.0, f64::max)
}

fn saved_by_day(rows: &[AccountRow], saved: &[f64], unit: Unit, what: &str) -> Markup {
    let values: Vec<(String, f64)> =
        rows.iter().zip(saved).map(|(row, value)| (row.key.clone(), unit.count(*value))).collect();
    html! { figure { figcaption { (what) " saved a day" } (chart::columns(&values, unit.name())) } }
}

fn table(rows: &[AccountRow], by: &str) -> Markup {
    html! {
        table {
            caption.hidden { "What sharing gained, by " (by) }
            thead { tr {
                th scope="col" { (by[..1].to_uppercase()) (by[1..]) }
                th.number scope="col" { "Runs" } th.number scope="col" { "Shared" }
                th.number scope="col" { "GPU time saved" } th.number scope="col" { "Energy saved" }
                th.number scope="col" { "Promises kept" } th.number scope="col" { "Not measured" }
            } }
            tbody { @for row in rows {
                @let (saved, energy) = (Amount::device_time(row.gpu_seconds_saved), Amount::energy(row.energy_joules_saved));
                tr {
                    th scope="row" { (key(row, by)) }
                    td.number { (format::count(row.run_count.into())) }
                    td.number { (format::count(row.shared_run_count.into())) }
                    td.number.loss[saved.is_loss()] { (saved.signed_brief()) }
                    td.number.loss[energy.is_loss()] { (energy.signed_brief()) }
                    td.number { @if let Some(kept) = kept(row) { (chart::bar(kept, "fill-kept")) " " } (format::percent(kept(row))) }
                    td.number { @if row.unmeasured_seconds > 0.0 { (format::duration(row.unmeasured_seconds)) } @else { (format::NONE) } }
                }
            } }
        }
    }
}

fn key(row: &AccountRow, by: &str) -> Markup {
    html! {
        @match by {
            "workload" => { (workload_link(Some(&row.key), row.workload_name.as_deref())) }
            "node" => { (node_link(&row.key)) }
            "day" => { time datetime=(row.key) { (row.key) } }
            _ => { a href=(Page::Gains.with(&[(by, &row.key)])) { (row.key) } }
        }
    }
}
