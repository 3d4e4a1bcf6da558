//! GPUs of observed partitions that jobs hold and do not use.

use super::parts::{job_link, nothing, scrolling, workload_word};
use super::{Ask, now, taken};
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{IdleDevice, IdleRequest, IdleResponse};

/// How many GPUs are shown: those that stood longest.
const SHOWN: usize = 200;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let request = IdleRequest { user: ask.filter("user").to_owned(), ..IdleRequest::default() };
    let response = taken(ask.service.idle(ask.question(request)).await)?;
    let devices = &response.devices;
    Ok(Sheet {
        title: "GPUs held without work".to_owned(),
        body: html! {
            p.source {
                @if response.seen_at_seconds.is_none() { "No partition is observed, or Slurm was not read yet" }
                @else {
                    (devices.len()) " of " (format::counted(response.held_count.into(), "GPU")) " did no work for an hour or longer: busy under 5 % of each minute, by compute units where the GPU tells them"
                    @if response.unseen_count > 0 { "; of " (response.unseen_count) " nobody can say" }
                    @if devices.len() > SHOWN { "; the first " (SHOWN) " are shown" }
                }
            }
            @if devices.is_empty() { (nothing("No job of yours holds a GPU without work.")) } @else { (scrolling("GPUs without work", &table(&response, now()))) }
        },
    })
}

fn table(response: &IdleResponse, now: f64) -> Markup {
    html! {
        table {
            caption.hidden { "GPUs without work, the longest first" }
            thead { tr { th scope="col" { "Job" } th scope="col" { "User" } th scope="col" { "Workload" } th scope="col" { "Node" } th scope="col" { "GPU" } th scope="col" { "Model" } th.number scope="col" { "Hours" } th scope="col" { "Since" } th scope="col" { "Process" } } }
            tbody { @for device in response.devices.iter().take(SHOWN) { (row(device, now)) } }
        }
    }
}

fn row(device: &IdleDevice, now: f64) -> Markup {
    html! { tr {
        th scope="row" { (job_link(Some(&device.job_id))) }
        td { (device.user) } td { @if let Some(name) = &device.workload_name { (workload_word(name)) } }
        td { (device.node) } td { (device.gres_type) } td { @if let Some(model) = &device.device_model { (model) } }
        td.number { (format!("{:.1}", device.idle_seconds / 3600.0)) }
        td { (format::time_or_none(Some(device.since_seconds), now)) }
        td { @if device.has_process { "yes" } @else { "no" } }
    } }
}
