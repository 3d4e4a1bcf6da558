//! One decision: who was put where, why, against whom else, and what came of it.

use super::parts::{cap, decision_link, job_link, node_link, scrolling, state, workload_link};
use super::reasons;
use super::{Ask, now, taken};
use crate::chart;
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{DecidedRequest, DecidedResponse, Decision, Explanation, Member};

pub(super) async fn sheet(ask: &Ask<'_>, id: u64) -> Result<Sheet, Problem> {
    let decided = taken(ask.service.decided(ask.question(DecidedRequest { decision_id: id })).await)?;
    let DecidedResponse { found: true, decision: Some(decision), explanations, group } = decided else {
        return Err(Problem::missing(&format!("decision {id}")));
    };
    let now = now();
    let read: Vec<Option<Explanation>> = explanations.into_iter().map(|it| it.explanation).collect();
    Ok(Sheet {
        title: format!("Decision {id}"),
        body: html! {
            (facts(&decision, now))
            section aria-labelledby="members" {
                h2 #members { "Who, and what came of it" }
                (scrolling("Members", &members(&decision, &read, now)))
                (key())
            }
            section aria-labelledby="why" {
                h2 #why { "Why" }
                @if read.is_empty() { p.nothing { "No reason was kept." } }
                @for one in &read {
                    article.why {
                        @match one {
                            Some(one) => {
                                h3 { "Job " (job_link(Some(&one.job_id))) }
                                (reasons::explained(one))
                            }
                            None => { p.nothing { "Another version of Pillion wrote this reason." } }
                        }
                    }
                }
            }
            @if !group.is_empty() {
                section aria-labelledby="group" {
                    h2 #group { "Others of the same sharing" }
                    ul { @for other in &group {
                        li { (decision_link(other.decision_id, &format!("Decision {}", other.decision_id))) ", " (other.state) ", " (format::time(other.created_at_seconds, now)) }
                    } }
                }
            }
        },
    })
}

fn facts(decision: &Decision, now: f64) -> Markup {
    html! {
        p.lead {
            (state(&decision.state)) " On " (node_link(&decision.node)) ", " strong { (decision.gpus()) } " (" (decision.device_model) "), "
            @match decision.mechanism.as_str() { "none" => "not shared", word => { "shared by " strong { (word) } } }
            "; made " (format::time(decision.created_at_seconds, now))
            @if decision.group_id != decision.decision_id { "; joins " (decision_link(decision.group_id, &format!("decision {}", decision.group_id))) }
            @if decision.members.len() > 1 || decision.gain > 0.0 { "; expected to do " strong { (format!("{:.0} %", decision.gain * 100.0)) } " of a job’s work beyond one at a time" }
            "."
        }
        @if let Some(why) = &decision.abandoned_reason { p.fault { "Given up: " (why) } }
    }
}

/// What is drawn for a member: its estimate with both bounds where the reason says it.
fn range(member: &Member, read: &[Option<Explanation>]) -> chart::Range {
    let own = read
        .iter()
        .flatten()
        .find(|it| member.job_id.as_ref() == Some(&it.job_id))
        .and_then(|it| it.candidates.iter().find(|candidate| candidate.chosen)?.own.as_ref());
    chart::Range {
        low: member.predicted_speed_fraction_low,
        expected: member.predicted_speed_fraction,
        high: own.map(|own| own.speed_fraction_high),
        promised: format::slowdown(member.slowdown_ratio_max),
        measured: member.measured_speed_fraction,
    }
}

fn members(decision: &Decision, read: &[Option<Explanation>], now: f64) -> Markup {
    html! {
        table {
            caption.hidden { "Members of the decision, with what was expected, promised and measured" }
            thead { tr {
                th scope="col" { "Job" } th scope="col" { "As" } th scope="col" { "Held to" } th scope="col" { "Speed, of its speed alone" }
                th.number scope="col" { "Expected" } th.number scope="col" { "At least" } th.number scope="col" { "Promised" } th.number scope="col" { "Measured" }
                th scope="col" { "Ran" }
            } }
            tbody { @for member in &decision.members {
                tr {
                    th scope="row" { (job_link(member.job_id.as_deref())) " " (workload_link(member.workload.as_deref(), member.workload_name.as_deref())) @if let Some(user) = &member.user { span.muted { " of " (user) } } }
                    td { (member.role) br; (state(&member.state)) }
                    td { (cap(member.cap_fraction, member.ccs_mode, member.mig_slot.as_deref())) br; span.muted { (member.shards) " shards" @if member.memory_limit_bytes.is_some() { ", " (format::bytes(member.memory_limit_bytes)) } } }
                    td { (chart::range(&range(member, read))) }
                    td.number { (format::percent(member.predicted_speed_fraction)) }
                    td.number { (format::percent(member.predicted_speed_fraction_low)) }
                    td.number { (format::percent(format::slowdown(member.slowdown_ratio_max))) }
                    td.number { (verdict(member)) }
                    td { (ran(member, now)) }
                }
            } }
        }
    }
}

fn verdict(member: &Member) -> Markup {
    let Some(measured) = member.measured_speed_fraction.filter(|speed| *speed > 0.0) else {
        return html! { span.muted { "not measured" } };
    };
    let is_kept = member.slowdown_ratio_max.is_none_or(|promised| measured * promised >= 1.0);
    html! {
        strong { (format::percent(Some(measured))) } br;
        @if is_kept { span.kept { "promise kept" } } @else { span.fault { "promise broken" } }
    }
}

fn ran(member: &Member, now: f64) -> Markup {
    html! {
        @match (member.started_at_seconds, member.ended_at_seconds) {
            (Some(start), Some(end)) => { (format::time(start, now)) br; span.muted { "for " (format::duration(end - start)) } }
            (Some(start), None) => { "since " (format::time(start, now)) }
            _ => { span.muted { "not started" } }
        }
        @if let Some(alone) = member.solo_duration_seconds { br; span.muted { "alone " (format::duration(alone)) } }
    }
}

fn key() -> Markup {
    html! {
        p.note {
            "In the pictures: the band reaches from the pessimistic to the optimistic bound, with the expected speed as a line in it; the tall line is \
             the least that was promised, the dot what was measured."
        }
    }
}
