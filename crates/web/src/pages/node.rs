//! One node: its devices now, and what was decided for it lately.

use super::parts::{device_head, device_row, node_facts, nothing, scrolling};
use super::{Ask, pairs, taken};
use crate::address::Page;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{ClusterNode, ClusterRequest, PairsRequest};

/// How many of its pairings are shown.
const SHOWN: u32 = 20;

pub(super) async fn sheet(ask: &Ask<'_>, name: &str) -> Result<Sheet, Problem> {
    let request = ClusterRequest { nodes: name.to_owned(), ..ClusterRequest::default() };
    let cluster = taken(ask.service.cluster(ask.question(request)).await)?;
    let node = cluster.nodes.into_iter().find(|node| node.node == name);
    let node = node.ok_or_else(|| Problem::missing(&format!("node {name} with an agent")))?;
    let request = PairsRequest { nodes: name.to_owned(), limit: SHOWN, ..PairsRequest::default() };
    let decisions = taken(ask.service.pairs(ask.question(request)).await)?.decisions;
    let now = cluster.now_seconds;
    Ok(Sheet {
        title: format!("Node {name}"),
        body: html! {
            p.source { "Agent " (node.version) ", heard " (format::ago(node.last_seen_at_seconds, now)) " " (node_facts(&node, now)) }
            section aria-labelledby="gpus" { h2 #gpus { "Its GPUs" } (scrolling("GPUs", &devices(&node))) }
            section aria-labelledby="pairings" {
                h2 #pairings { "Its last pairings" }
                @if decisions.is_empty() { (nothing("None, or none that you may see.")) } @else {
                    (scrolling("Pairings", &pairs::table(&decisions, now)))
                    p { a href=(Page::Pairs.with(&[("node", name)])) { "all of them" } }
                }
            }
        },
    })
}

fn devices(node: &ClusterNode) -> Markup {
    html! {
        table.devices {
            caption.hidden { "GPUs of " (node.node) ", with their tenants, caps and activity" }
            (device_head())
            tbody { @for device in &node.devices { (device_row(device)) } }
        }
    }
}
