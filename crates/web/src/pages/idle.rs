//! GPUs of observed partitions that jobs hold and do not use, and workloads for which less would do.

use super::parts::{job_link, nothing, scrolling, workload_word};
use super::{Ask, now, taken};
use crate::format;
use crate::frame::Sheet;
use crate::problem::Problem;
use maud::{Markup, html};
use pillion_api::{IdleDevice, IdleRequest, IdleResponse, RightsizeRequest, Rightsizing};

/// How many GPUs are shown: those that stood longest; and how many workloads: those with the most device time.
const SHOWN: usize = 200;

pub(super) async fn sheet(ask: &Ask<'_>) -> Result<Sheet, Problem> {
    let request = IdleRequest { user: ask.filter("user").to_owned(), ..IdleRequest::default() };
    let response = taken(ask.service.idle(ask.question(request)).await)?;
    let devices = &response.devices;
    let request = RightsizeRequest { user: ask.filter("user").to_owned(), ..RightsizeRequest::default() };
    let less = taken(ask.service.rightsize(ask.question(request)).await)?;
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
            h2 { "Workloads for which less would do" }
            p.source {
                (less.rows.len()) " of " (format::counted(less.workload_count.into(), "workload")) " that were measured alone in " (less.run_count_min) " runs or more; each is said for itself"
                @if less.rows.len() > SHOWN { "; the first " (SHOWN) " are shown" }
            }
            @if !less.rows.is_empty() { (scrolling("Workloads for which less would do", &less_table(&less.rows))) }
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

fn less_table(rows: &[Rightsizing]) -> Markup {
    html! {
        table {
            caption.hidden { "Workloads for which less would do, those with the most GPU-hours first" }
            thead { tr { th scope="col" { "Workload" } th scope="col" { "Model" } th.number scope="col" { "GPUs" } th.number scope="col" { "Runs" } th.number scope="col" { "GPU-hours" } th scope="col" { "Enough" } } }
            tbody { @for row in rows.iter().take(SHOWN) { tr {
                th scope="row" { @if let Some(name) = &row.workload_name { (workload_word(name)) } }
                td { (row.device_model) } td.number { (row.device_count) } td.number { (row.run_count) }
                td.number { @if let Some(hours) = row.gpu_hours { (format!("{hours:.1}")) } }
                td { (row.sentences.join("; ")) }
            } } }
        }
    }
}
