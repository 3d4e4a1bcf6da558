//! `pillion rightsize`: workloads that would have done with a smaller GPU, less memory or fewer GPUs; or a text for each user, to be
//! sent to him.

use crate::args::RightsizeArgs;
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{RightsizeRequest, RightsizeResponse, Rightsizing};
use std::collections::BTreeMap;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, args: &RightsizeArgs) -> Result<Answer, CliError> {
    let request =
        RightsizeRequest { user: args.user.clone(), run_count_min: args.runs, ..RightsizeRequest::default() };
    let response = answer(client.rightsize(request)).await?;
    Ok(if args.mail { mails(&response) } else { show(&response) })
}

const COLUMNS: [&str; 9] =
    ["WORKLOAD", "MODEL", ">GPUS", ">RUNS", ">GPU-HOURS", ">USED", ">MEMORY-NEEDED", ">MEMORY", "ENOUGH"];

fn show(response: &RightsizeResponse) -> Answer {
    let mut table = Table::new(&COLUMNS);
    for row in &response.rows {
        table.push(line(row));
    }
    let mut answer = Answer::table(table, json::render(response));
    answer.blocks.push(Block::Line(summary(response)));
    answer
}

fn line(row: &Rightsizing) -> Vec<String> {
    vec![
        format::shown(row.workload_name.as_ref()),
        row.device_model.clone(),
        row.device_count.to_string(),
        row.run_count.to_string(),
        row.gpu_hours.map_or_else(|| "-".to_owned(), |hours| format!("{hours:.1}")),
        format::fraction(row.used_fraction),
        format::bytes(row.memory_bytes_needed),
        format::bytes(row.memory_bytes),
        enough(row),
    ]
}

/// Each for itself: `2 GPUs, or t4, or 12.0 GiB`.
fn enough(row: &Rightsizing) -> String {
    let count = row
        .device_count_enough
        .map(|count| format::counted(usize::try_from(count).unwrap_or(usize::MAX), "GPU"));
    let memory = row.memory_bytes_enough.map(|bytes| format::bytes(Some(bytes)));
    let parts: Vec<String> = [count, row.device_model_enough.clone(), memory].into_iter().flatten().collect();
    parts.join(", or ")
}

fn summary(response: &RightsizeResponse) -> String {
    let measured = usize::try_from(response.workload_count).unwrap_or(usize::MAX);
    format!(
        "{} of {} measured in {} or more alone would have done with less; each is said for itself",
        response.rows.len(),
        format::counted(measured, "workload"),
        format::counted(usize::try_from(response.run_count_min).unwrap_or(usize::MAX), "run"),
    )
}

/// One text a user.
fn mails(response: &RightsizeResponse) -> Answer {
    let mut of_users: BTreeMap<&str, Vec<&Rightsizing>> = BTreeMap::new();
    for row in &response.rows {
        of_users.entry(&row.user).or_default().push(row);
    }
    let mut lines = Vec::new();
    for (user, rows) in of_users {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(mail(user, &rows));
    }
    let blocks = lines.into_iter().map(Block::Verbatim).collect();
    Answer { blocks, parsable: Table::new(&COLUMNS), json: json::render(response) }
}

fn mail(user: &str, rows: &[&Rightsizing]) -> Vec<String> {
    let mut lines = vec![
        format!("To: {user}"),
        format!("Subject: {} of your jobs would do with less", format::counted(rows.len(), "kind")),
        String::new(),
        format!("Dear {user},"),
        String::new(),
        "your jobs asked for more of the GPUs than they used. What would have been enough, as far as"
            .to_owned(),
        "their runs show:".to_owned(),
    ];
    for row in rows {
        lines.push(String::new());
        lines.push(format!(
            "  {} on {}, {}:",
            format::clean(&format::shown(row.workload_name.as_ref())),
            format::counted(usize::try_from(row.device_count).unwrap_or(usize::MAX), "GPU"),
            row.device_model
        ));
        lines.extend(row.sentences.iter().map(|sentence| format!("  * {sentence}")));
    }
    lines.extend([
        String::new(),
        "Jobs that ask for less often start sooner. If your work is going to grow, nothing has to be"
            .to_owned(),
        "done. 'pillion rightsize' shows the figures.".to_owned(),
    ]);
    lines
}
