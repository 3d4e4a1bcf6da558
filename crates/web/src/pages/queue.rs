//! What waits, and why.

use super::parts::{job_link, nothing, scrolling, state, workload_word};
use super::{Ask, now, taken};
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{QueueJob, QueueRequest};

/// How many jobs are shown: the first in the order of service.
const SHOWN: usize = 200;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let request = QueueRequest { user: ask.filter("user").to_owned() };
    let jobs = taken(ask.service.queue(ask.question(request)).await)?.jobs;
    let all = jobs.len();
    // A workload is told only of jobs that the viewer may see.
    let own: Vec<QueueJob> = jobs.into_iter().filter(|job| job.workload.is_some()).collect();
    let others = all - own.len();
    Ok(Sheet {
        title: "What waits, and why".to_owned(),
        body: html! {
            p.source {
                (format::counted(u64::try_from(own.len()).unwrap_or(0), "job")) " in the order of service"
                @if own.len() > SHOWN { ", the first " (SHOWN) " are shown" }
                @if others > 0 { "; " (others) " of other users" }
            }
            @if own.is_empty() { (nothing("No job of yours waits.")) } @else { (scrolling("Waiting jobs", &table(&own, now()))) }
        },
    })
}

fn table(jobs: &[QueueJob], now: f64) -> Markup {
    html! {
        table {
            caption.hidden { "Waiting jobs in the order of service" }
            thead { tr { th scope="col" { "Job" } th scope="col" { "User" } th scope="col" { "Workload" } th scope="col" { "State" } th scope="col" { "Why" } th scope="col" { "Submitted" } th scope="col" { "Starts alone at the latest" } th.number scope="col" { "Promise" } } }
            tbody { @for job in jobs.iter().take(SHOWN) { tr {
                th scope="row" { (job_link(Some(&job.job_id))) }
                td { (job.user) } td { @if let Some(name) = job.workload_name.as_ref().or(job.workload.as_ref()) { (workload_word(name)) } } td { (state(&job.state)) } td { (job.reason) }
                td { (format::time_or_none(job.submitted_at_seconds, now)) } td { (format::time_or_none(job.starts_alone_at_seconds, now)) }
                td.number { "≤ " (format::ratio(job.slowdown_ratio_max)) }
            } } }
        }
    }
}
