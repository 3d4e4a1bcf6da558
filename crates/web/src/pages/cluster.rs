//! The cluster now: numbers first, then every GPU of a page of nodes.

use super::parts::{
    STATES, card, choice, device_head, device_row, field, filters, node_facts, node_link, nothing, scrolling,
};
use super::{Ask, now, taken};
use crate::address::Page;
use crate::chart;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{AccountRequest, AccountRow, ClusterNode, ClusterRequest, ClusterResponse};
use pillion_core::amount::Amount;
use pillion_core::device::Mechanism;

/// How many nodes stand on one page.
const NODES: u64 = 50;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let words: Vec<&'static str> = STATES.iter().map(|(word, _)| *word).collect();
    let state = ask.word("state", &words)?;
    let mechanism = ask.word("mechanism", &Mechanism::ALL.map(Mechanism::as_str))?;
    let first = ask.number("from")?.min(1_000_000);
    let request = ClusterRequest {
        nodes: ask.filter("node").to_owned(),
        state: state.to_owned(),
        mechanism: mechanism.to_owned(),
        offset: u32::try_from(first).unwrap_or(u32::MAX),
        limit: u32::try_from(NODES).unwrap_or(u32::MAX),
    };
    let cluster = taken(ask.service.cluster(ask.question(request)).await)?;
    let today = today(ask).await?;
    Ok(Sheet {
        title: "The cluster now".to_owned(),
        body: html! {
            (source(&cluster))
            (numbers(&cluster, today.as_ref()))
            (states(&cluster))
            section aria-labelledby="gpus" {
                h2 #gpus { "Every GPU" }
                (form(ask, state, mechanism))
                @if cluster.nodes.is_empty() {
                    (nothing(if cluster.node_count == 0 { "No agent has reported yet." } else { "No node matches these filters." }))
                } @else {
                    (pager(ask, &cluster, first))
                    (glance(&cluster.nodes))
                    (scrolling("GPUs by node", &table(&cluster.nodes, cluster.now_seconds)))
                    (pager(ask, &cluster, first))
                }
            }
        },
    })
}

/// What was gained since midnight; `None` for viewers of whom nobody knows who they are.
async fn today(ask: &Ask<'_>) -> Result<Option<AccountRow>, Problem> {
    if ask.viewer.name.is_none() && !ask.viewer.sees_all {
        return Ok(None);
    }
    let now = now();
    let request = AccountRequest {
        since_seconds: format::today(now).0,
        until_seconds: now + 1.0,
        ..AccountRequest::default()
    };
    let rows = taken(ask.service.account(ask.question(request)).await)?.rows;
    Ok(Some(rows.into_iter().next().unwrap_or_default()))
}

fn source(cluster: &ClusterResponse) -> Markup {
    let read = match cluster.last_scan_at_seconds {
        None => "Slurm’s queue was not read yet".to_owned(),
        at => format!("Slurm’s queue read {}", format::ago(at, cluster.now_seconds)),
    };
    let meaning = match cluster.mode.as_str() {
        "active" => "it decides, and jobs share",
        _ => "it only watches",
    };
    html! { p.source { (read) " · mode " strong { (cluster.mode) } ": " (meaning) " · Pillion " (cluster.version) } }
}

fn numbers(cluster: &ClusterResponse, today: Option<&AccountRow>) -> Markup {
    let of_devices = html! { "of " (format::count(cluster.device_count.into())) " on " (format::counted(cluster.node_count.into(), "node")) };
    html! {
        dl.cards {
            (card("Jobs waiting", &format::count(cluster.waiting_count.into()), "", &html! { a href=(Page::Queue.path()) { "what they wait for" } }))
            (card("GPUs shared", &format::count(state_count(cluster, "shared").into()), "", &of_devices))
            @if let Some(today) = today {
                @let measured = today.promises_kept + today.promises_broken;
                @let kept = (measured > 0).then(|| f64::from(today.promises_kept) / f64::from(measured));
                @let (saved, energy) = (Amount::device_time(today.gpu_seconds_saved), Amount::energy(today.energy_joules_saved));
                (card("Saved today", &saved.signed_number(), saved.unit().name(),
                    &html! { "over " (format::counted(today.run_count.into(), "run")) ", " (today.shared_run_count) " shared" }))
                (card("Energy saved today", &energy.signed_number(), energy.unit().name(),
                    &html! { "of " (Amount::energy(today.energy_joules)) " used" }))
                (card("Promises kept today", &format::percent(kept), "",
                    &html! { (today.promises_kept) " of " (format::counted(measured.into(), "measured run")) }))
            }
        }
    }
}

fn state_count(cluster: &ClusterResponse, word: &str) -> u32 {
    cluster.states.iter().find(|it| it.state == word).map_or(0, |it| it.count)
}

fn states(cluster: &ClusterResponse) -> Markup {
    let counted = STATES.map(|(word, meaning)| (word, meaning, state_count(cluster, word)));
    let parts = counted.map(|(word, _, count)| (word, f64::from(count)));
    html! {
        div.states {
            (chart::parts(&parts))
            ul.legend {
                @for (word, meaning, count) in counted {
                    @if count > 0 {
                        li { a href=(Page::Cluster.with(&[("state", word)])) title=(meaning) {
                            span class={ "key key-" (word) } aria-hidden="true" {} (format::count(count.into())) " " (word)
                        } }
                    }
                }
            }
        }
    }
}

fn form(ask: &Ask<'_>, state: &str, mechanism: &str) -> Markup {
    let words: Vec<&str> = STATES.iter().map(|(word, _)| *word).collect();
    filters(
        &Page::Cluster,
        &html! {
            (field("node", "Nodes", ask.filter("node"), "n[1-8],n12"))
            (choice("state", "With a GPU that is", state, &words))
            (choice("mechanism", "Shared by", mechanism, &Mechanism::ALL.map(Mechanism::as_str)))
        },
    )
}

fn pager(ask: &Ask<'_>, cluster: &ClusterResponse, first: u64) -> Markup {
    let total = u64::from(cluster.match_count);
    let last = first + u64::try_from(cluster.nodes.len()).unwrap_or(0);
    html! {
        @if total > NODES || first > 0 {
            nav.pager aria-label="Pages of nodes" {
                @if first > 0 { a rel="prev" href=(from_node(ask, first.saturating_sub(NODES))) { "← earlier nodes" } }
                span { "Nodes " (first + 1) " to " (last) " of " (format::count(total)) }
                @if last < total { a rel="next" href=(from_node(ask, last)) { "further nodes →" } }
            }
        }
    }
}

/// This page from another node on.
fn from_node(ask: &Ask<'_>, first: u64) -> String {
    let first = if first == 0 { String::new() } else { first.to_string() };
    ask.filters.address(&Page::Cluster, &[("from", &first)])
}

/// A square for each GPU, a row for each node.
fn glance(nodes: &[ClusterNode]) -> Markup {
    html! {
        ul.glance aria-label="Nodes at a glance" {
            @for node in nodes {
                @let width = 11 * node.devices.len().max(1) + 1;
                li { a href=(Page::Node(node.node.clone()).path()) {
                    span.name { (node.node) }
                    svg viewBox={ "0 0 " (width) " 12" } width=(width * 3 / 2) height="18" role="img" aria-label=(summary(node)) {
                        @for (at, device) in node.devices.iter().enumerate() {
                            rect class={ "fill-" (device.state) } x=(1 + 11 * at) y="1" width="10" height="10" rx="2" {}
                            @if device.state == "shared" { path.split d={ "M" (6 + 11 * at) " 1v10" } {} }
                            @if device.state == "closed" { path.split d={ "M" (3 + 11 * at) " 3l6 6m0 -6l-6 6" } {} }
                        }
                    }
                } }
            }
        }
    }
}

fn summary(node: &ClusterNode) -> String {
    let counts =
        STATES.map(|(word, _)| (word, node.devices.iter().filter(|device| device.state == word).count()));
    let words = counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}"));
    words.collect::<Vec<_>>().join(", ")
}

fn table(nodes: &[ClusterNode], now: f64) -> Markup {
    html! {
        table.devices {
            caption.hidden { "GPUs by node, with their tenants, caps and activity" }
            (device_head())
            @for node in nodes {
                tbody {
                    tr.node { th colspan="6" scope="rowgroup" { (node_link(&node.node)) " " (node_facts(node, now)) } }
                    @for device in &node.devices { (device_row(device)) }
                }
            }
        }
    }
}
