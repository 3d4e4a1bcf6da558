//! `pillion idle`: GPUs that jobs hold and do not use, a row a GPU; or a text for each user, to be sent to him.

use crate::args::IdleArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{IdleDevice, IdleRequest, IdleResponse};
use std::collections::BTreeMap;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, args: &IdleArgs) -> Result<Answer, CliError> {
    let request = IdleRequest {
        for_seconds: args.at_least.as_secs_f64(),
        busy_below_fraction: f64::from(args.busy_below) / 100.0,
        user: args.user.clone(),
    };
    let response = answer(client.idle(request)).await?;
    Ok(if args.mail { mails(&response) } else { show(&response) })
}

const COLUMNS: [&str; 11] = [
    "JOBID",
    "USER",
    "ACCOUNT",
    "PARTITION",
    "WORKLOAD",
    "NODE",
    "DEVICE",
    "MODEL",
    ">HOURS",
    "SINCE",
    "PROCESS",
];

fn show(response: &IdleResponse) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for device in &response.devices {
        table.push(line(device));
    }
    let mut answer = Answer::table(table, json::render(response));
    answer.blocks.push(Block::Line(summary(response)));
    answer
}

fn line(device: &IdleDevice) -> Vec<String> {
    vec![
        device.job_id.clone(),
        device.user.clone(),
        device.account.clone(),
        device.partition.clone(),
        format::shown(device.workload_name.as_ref()),
        device.node.clone(),
        device.gres_type.clone(),
        format::shown(device.device_model.as_ref()),
        hours(device.idle_seconds),
        format::time(device.since_seconds),
        if device.has_process { "yes" } else { "no" }.to_owned(),
    ]
}

fn hours(seconds: f64) -> String {
    format!("{:.1}", seconds / 3600.0)
}

/// What the rows are of, and what could not be said.
fn summary(response: &IdleResponse) -> String {
    if response.seen_at_seconds.is_none() {
        return "No partition is observed (observe.partitions), or Slurm was not read yet".to_owned();
    }
    let held = usize::try_from(response.held_count).unwrap_or(usize::MAX);
    let unseen = match response.unseen_count {
        0 => String::new(),
        count => format!("; of {count} of them nobody can say how busy they are"),
    };
    format!(
        "{} of {} held did no work for {} (busy under {}){unseen}",
        response.devices.len(),
        format::counted(held, "GPU"),
        format::duration(Some(response.for_seconds)),
        format::fraction(Some(response.busy_below_fraction)),
    )
}

/// One text a user.
fn mails(response: &IdleResponse) -> Answer {
    let mut of_users: BTreeMap<&str, Vec<&IdleDevice>> = BTreeMap::new();
    for device in &response.devices {
        of_users.entry(&device.user).or_default().push(device);
    }
    let mut lines = Vec::new();
    for (user, devices) in of_users {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(mail(user, &devices, response));
    }
    let blocks = lines.into_iter().map(Block::Verbatim).collect();
    Answer { blocks, parsable: Table::new(&COLUMNS), json: json::render(response) }
}

fn mail(user: &str, devices: &[&IdleDevice], response: &IdleResponse) -> Vec<String> {
    let count = format::counted(devices.len(), "GPU");
    let mut lines = vec![
        format!("To: {user}"),
        format!("Subject: {count} held by your jobs without work"),
        String::new(),
        format!("Dear {user},"),
        String::new(),
        format!(
            "your jobs hold {count} that did next to nothing (busy under {} of the time) for",
            format::fraction(Some(response.busy_below_fraction))
        ),
        format!("{} or longer:", format::duration(Some(response.for_seconds))),
        String::new(),
    ];
    for device in devices {
        let process = if device.has_process { "" } else { ", no process of the job on it" };
        let name = device.workload_name.as_ref().map(|name| format!(" ({})", format::clean(name)));
        lines.push(format!(
            "  job {}{}: {} {}, {} hours, since {}{process}",
            device.job_id,
            name.unwrap_or_default(),
            device.node,
            device.gres_type,
            hours(device.idle_seconds),
            format::time(device.since_seconds),
        ));
    }
    lines.extend([
        String::new(),
        "If they are needed, nothing has to be done. If they are not, please end the job".to_owned(),
        "(scancel JOBID) or ask for fewer GPUs next time, so that others can use them.".to_owned(),
        "'pillion report JOBID' shows what was seen of a job.".to_owned(),
    ]);
    lines
}
