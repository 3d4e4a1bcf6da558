//! Who shared with whom, newest first, a page at a time.

use super::parts::{
    decision_link, field, filters, job_link, node_link, nothing, scrolling, state, workload_link,
};
use super::{Ask, now, taken};
use crate::address::Page;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{Decision, Member, PairsRequest};

/// How many decisions stand on one page.
const SHOWN: usize = 50;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let now = now();
    let is_timed = !ask.filter("since").is_empty() || !ask.filter("until").is_empty();
    let (since, until) = if is_timed { ask.stretch(now, 36_500.0)? } else { (0.0, 0.0) };
    if !ask.filter("with").is_empty() && ask.filter("workload").is_empty() {
        return Err(Problem::filter("with=… says beside whom; name the workload too."));
    }
    let request = PairsRequest {
        active_only: ask.word("state", &["active"])? == "active",
        since_seconds: since,
        until_seconds: until,
        user: ask.filter("user").to_owned(),
        include_single: false,
        limit: u32::try_from(SHOWN).unwrap_or(u32::MAX),
        nodes: ask.filter("node").to_owned(),
        workload: ask.filter("workload").to_owned(),
        beside: ask.filter("with").to_owned(),
        before_decision_id: ask.number("before")?,
    };
    let decisions = taken(ask.service.pairs(ask.question(request)).await)?.decisions;
    Ok(Sheet {
        title: "Who shared with whom".to_owned(),
        body: html! {
            (form(ask))
            @if !ask.filter("with").is_empty() {
                p.source { (asked(&decisions, ask.filter("workload"))) " beside " (asked(&decisions, ask.filter("with"))) ", newest first" }
            }
            @if decisions.is_empty() {
                (nothing("No pairing matches, or none that you may see."))
            } @else {
                (scrolling("Pairings", &table(&decisions, now)))
                @if decisions.len() >= SHOWN && let Some(last) = decisions.last() {
                    nav.pager aria-label="Pages of pairings" {
                        a rel="next" href=(ask.filters.address(&Page::Pairs, &[("before", &last.decision_id.to_string())])) { "older pairings →" }
                    }
                }
            }
        },
    })
}

/// A workload that was asked for, as the answer calls it.
fn asked(decisions: &[Decision], workload: &str) -> Markup {
    let mut members = decisions.iter().flat_map(|decision| &decision.members);
    let named = members.find(|member| member.workload.as_deref() == Some(workload));
    workload_link(Some(workload), named.and_then(|member| member.workload_name.as_deref()))
}

fn form(ask: &Ask<'_>) -> Markup {
    filters(
        &Page::Pairs,
        &html! {
            (field("workload", "Workload", ask.filter("workload"), "any"))
            (field("with", "Beside", ask.filter("with"), "any"))
            (field("user", "User", ask.filter("user"), "any"))
            (field("node", "Nodes", ask.filter("node"), "n[1-8]"))
            (field("since", "Since", ask.filter("since"), "now-7days"))
            (field("until", "Until", ask.filter("until"), "now"))
            label.check { input type="checkbox" name="state" value="active" checked[ask.filter("state") == "active"]; span { "only what runs now" } }
        },
    )
}

/// Decisions with what was expected and what came.
pub(super) fn table(decisions: &[Decision], now: f64) -> Markup {
    html! {
        table.pairings {
            caption.hidden { "Pairings, newest first" }
            thead { tr {
                th scope="col" { "Decision" } th scope="col" { "When" } th scope="col" { "Where" } th scope="col" { "State" }
                th scope="col" { "Members" } th.number scope="col" { "Expected" } th.number scope="col" { "Measured" }
                th.number scope="col" { "Promise" } th.number scope="col" { "Gain expected" }
            } }
            @for decision in decisions {
                tbody {
                    @for (at, member) in decision.members.iter().enumerate() {
                        tr {
                            @if at == 0 { (head_cells(decision, now)) }
                            (member_cells(member))
                            @if at == 0 { td.number rowspan=(decision.members.len()) { (format!("{:+.0} %", decision.gain * 100.0).replace('-', "−")) } }
                        }
                    }
                }
            }
        }
    }
}

fn head_cells(decision: &Decision, now: f64) -> Markup {
    let rows = decision.members.len();
    html! {
        th scope="rowgroup" rowspan=(rows) {
            (decision_link(decision.decision_id, &decision.decision_id.to_string()))
            @if decision.group_id != decision.decision_id { br; span.muted { "joins " (decision_link(decision.group_id, &decision.group_id.to_string())) } }
        }
        td rowspan=(rows) { (format::time(decision.created_at_seconds, now)) }
        td rowspan=(rows) { (node_link(&decision.node)) " " (decision.gres_type) br; span.muted { (decision.device_model) " · " (decision.mechanism) } }
        td rowspan=(rows) { (state(&decision.state)) }
    }
}

fn member_cells(member: &Member) -> Markup {
    let measured = format::slowdown(member.measured_speed_fraction);
    let is_broken = measured.zip(member.slowdown_ratio_max).is_some_and(|(is, promised)| is > promised);
    html! {
        td { (job_link(member.job_id.as_deref())) " " (workload_link(member.workload.as_deref(), member.workload_name.as_deref())) " " span.muted { (member.role) } }
        td.number { (format::ratio(format::slowdown(member.predicted_speed_fraction))) }
        td.number.loss[is_broken] { (format::ratio(measured)) @if is_broken { span.hidden { " promise broken" } } }
        td.number { @if let Some(promised) = member.slowdown_ratio_max { "≤ " (format::ratio(Some(promised))) } }
    }
}
