//! One job: how it ran and what made it slow, and every answer that the engine had for it.

use super::parts::{cap, decision_link, node_link, scrolling, state, workload_link};
use super::reasons;
use super::{Ask, taken};
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{Event, ExplainRequest, ExplainResponse, JobExplanation, JobRequest, JobStatus, QueueJob};
use pillion_core::amount::Amount;

pub(super) async fn sheet(ask: &Ask<'_>, id: &str) -> Result<Sheet, Problem> {
    let job = taken(ask.service.job(ask.question(JobRequest { job_id: id.to_owned() })).await)?;
    let explained = taken(ask.service.explain(ask.question(ExplainRequest { job_id: id.to_owned() })).await)?;
    let job = job.status.unwrap_or_default();
    let row = job.job.as_ref().ok_or_else(|| Problem::missing(&format!("job {id}")))?;
    Ok(Sheet {
        title: format!("Job {}", row.job_id),
        body: html! {
            (lead(&job, row))
            (facts(&job, row))
            (slowness(&job))
            (decisions(&explained, job.now_seconds))
            (considered(&explained.explanations, job.now_seconds))
            (events(&job.events, job.now_seconds))
        },
    })
}

fn lead(job: &JobStatus, row: &QueueJob) -> Markup {
    html! {
        p.lead {
            (state(job.ending.as_ref().unwrap_or(&row.state))) " "
            (workload_link(row.workload.as_deref(), row.workload_name.as_deref())) " of " strong { (row.user) } @if !row.account.is_empty() { ", account " (row.account) } ", partition " (row.partition)
            @if let Some(elapsed) = job.elapsed_seconds() {
                @if job.ending.is_none() { "; has run for " } @else { "; ran for " } (format::duration(elapsed))
            }
            @if let Some(node) = &job.node { " on " (node_link(node)) @if let Some(decision) = &job.decision { ", " (decision.gpus()) } }
            "."
        }
        @if !row.reason.is_empty() { p { "Why it stands there: " (row.reason) } }
        @if let Some(advice) = &job.advice { p.advice { strong { "Next time: " } (advice) } }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn facts(job: &JobStatus, row: &QueueJob) -> Markup {
    let now = job.now_seconds;
    let run = job.run.as_ref();
    html! {
        dl.facts {
            (fact("Submitted", &format::time_or_none(row.submitted_at_seconds, now)))
            @if job.started_at_seconds.is_none() { (fact("Starts alone", &html! { (format::time_or_none(row.starts_alone_at_seconds, now)) " at the latest" })) }
            @if job.started_at_seconds.is_some() { (fact("Started", &format::time_or_none(job.started_at_seconds, now))) }
            @if job.ended_at_seconds.is_some() { (fact("Ended", &format::time_or_none(job.ended_at_seconds, now))) }
            (fact("Promise", &html! { "takes at most " (format::ratio(row.slowdown_ratio_max)) " its time alone" }))
            @if let Some(own) = job.member() { (fact("Held to", &html! { (cap(own.cap_fraction, own.ccs_mode, own.mig_slot.as_deref())) ", " (own.shards) " shards" })) }
            @if let Some(shared) = job.shared_fraction() { (fact("Shared", &html! { (format::percent(Some(shared))) " of its time, with " (format::counted(job.neighbour_count.into(), "other job")) })) }
            @if job.speed_fraction.is_some() { (fact("Speed", &html! { (format::percent(job.speed_fraction)) " of its speed alone" })) }
            @if let Some(run) = run {
                (fact("Peak memory", &html! { (format::bytes(run.memory_bytes_peak)) }))
                @if let Some(joules) = run.energy_joules { (fact("Energy", &html! { (Amount::energy(joules)) })) }
            }
            @if let Some(throttled) = job.throttled_fraction { (fact("Held down by power or heat", &html! { (format::percent(Some(throttled))) })) }
        }
    }
}

fn slowness(job: &JobStatus) -> Markup {
    html! {
        @if !job.slow_causes.is_empty() {
            section aria-labelledby="slow" {
                h2 #slow { "What made it slow" }
                ol { @for cause in &job.slow_causes { li { strong { (cause.kind) } ": " (cause.evidence) } } }
            }
        }
    }
}

fn decisions(explained: &ExplainResponse, now: f64) -> Markup {
    html! {
        @if !explained.decisions.is_empty() {
            section aria-labelledby="decisions" {
                h2 #decisions { "Decisions" }
                ul { @for decision in &explained.decisions {
                    li { (decision_link(decision.decision_id, &format!("Decision {}", decision.decision_id))) " " (state(&decision.state)) ", " (node_link(&decision.node)) " " (decision.gres_type) ", " (format::time(decision.created_at_seconds, now)) }
                } }
            }
        }
    }
}

fn considered(explanations: &[JobExplanation], now: f64) -> Markup {
    html! {
        @if !explanations.is_empty() {
            section aria-labelledby="considered" {
                h2 #considered { "What the engine answered, newest first" }
                @for one in explanations.iter().rev() {
                    article.why {
                        h3 { (format::time(one.at_seconds, now)) @if one.revision > 0 { span.muted { ", revision " (one.revision) } } }
                        @match &one.explanation {
                            Some(explanation) => { (reasons::explained(explanation)) }
                            None => { p.nothing { "Another version of Pillion wrote this." } }
                        }
                    }
                }
            }
        }
    }
}

fn events(events: &[Event], now: f64) -> Markup {
    let table = html! {
        table {
            caption.hidden { "What happened to the job" }
            thead { tr { th scope="col" { "When" } th scope="col" { "What" } th scope="col" { "Detail" } } }
            tbody { @for event in events { tr { td { (format::time(event.at_seconds, now)) } th scope="row" { (event.kind) } td { (event.detail) } } } }
        }
    };
    html! { @if !events.is_empty() { section aria-labelledby="events" { h2 #events { "What happened" } (scrolling("Events", &table)) } } }
}
