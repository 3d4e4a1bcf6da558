//! `pillion acct`: what sharing gained, in GPU-hours and kilowatt-hours, and how many promises were kept.

use crate::args::{AcctArgs, GroupArg};
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use chrono::{DateTime, Local, Offset as _};
use pillion_core::UnixTime;
use pillion_core::units::{JOULES_PER_KILOWATT_HOUR, SECONDS_PER_HOUR};
use pillion_proto::v1::{AccountRequest, AccountResponse, AccountRow};
use serde::Serialize;

/// The question that the options mean; from midnight until now if they name no time, as `sacct` does.
///
/// # Errors
/// [`CliError::Usage`] for a time or a hostlist that cannot be read, or a stretch that ends before it begins.
pub fn request(args: &AcctArgs, now: UnixTime) -> Result<AccountRequest, CliError> {
    let (start, end) = (args.start.as_deref().unwrap_or("today"), args.end.as_deref().unwrap_or("now"));
    let (since, until) = format::stretch(Some(start), Some(end), now).map_err(CliError::Usage)?;
    let (since, until) = (since.unwrap_or(now), until.unwrap_or(now));
    let nodes =
        pillion_slurm::nodeset::expand(&args.nodes).map_err(|error| CliError::Usage(error.to_string()))?;
    let offset = i64::try_from(until.epoch()).ok().and_then(|epoch| DateTime::from_timestamp(epoch, 0));
    Ok(AccountRequest {
        since_seconds: since.seconds(),
        until_seconds: until.seconds(),
        user: args.user.clone(),
        account: args.account.clone(),
        partition: args.partition.clone(),
        workload: args.workload.clone(),
        nodes: nodes.iter().map(ToString::to_string).collect(),
        group_by: args.by.map_or("", GroupArg::word).to_owned(),
        utc_offset_seconds: offset.map_or(0, |at| at.with_timezone(&Local).offset().fix().local_minus_utc()),
    })
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, request: AccountRequest) -> Result<Answer, CliError> {
    let (since, until) = (request.since_seconds, request.until_seconds);
    Ok(show(answer(client.account(request)).await?, since, until))
}

#[derive(Serialize)]
struct Body {
    since_seconds: f64,
    until_seconds: f64,
    rows: Vec<Row>,
}

/// What one group of runs used and gained.
#[derive(Serialize)]
struct Row {
    key: String,
    run_count: u32,
    shared_run_count: u32,
    gpu_seconds: f64,
    shared_seconds: f64,
    unmeasured_seconds: f64,
    gpu_seconds_saved: f64,
    energy_joules: f64,
    energy_joules_saved: f64,
    promises_kept: u32,
    promises_broken: u32,
}

impl From<AccountRow> for Row {
    fn from(row: AccountRow) -> Self {
        let AccountRow {
            key,
            run_count,
            shared_run_count,
            gpu_seconds,
            shared_seconds,
            unmeasured_seconds,
            gpu_seconds_saved,
            energy_joules,
            energy_joules_saved,
            promises_kept,
            promises_broken,
        } = row;
        Self {
            key,
            run_count,
            shared_run_count,
            gpu_seconds,
            shared_seconds,
            unmeasured_seconds,
            gpu_seconds_saved,
            energy_joules,
            energy_joules_saved,
            promises_kept,
            promises_broken,
        }
    }
}

const COLUMNS: [&str; 10] = [
    "WHAT",
    ">RUNS",
    ">SHARED",
    ">GPU_HOURS",
    ">SHARED_HOURS",
    ">UNMEASURED_HOURS",
    ">SAVED_GPU_HOURS",
    ">KWH",
    ">SAVED_KWH",
    ">PROMISES",
];

fn show(AccountResponse { rows }: AccountResponse, since_seconds: f64, until_seconds: f64) -> Answer {
    let body = Body { since_seconds, until_seconds, rows: rows.into_iter().map(Row::from).collect() };
    let mut table = Table::new(&COLUMNS);
    for row in &body.rows {
        table.push(cells(row));
    }
    let stretch =
        format!("Runs that ended from {} until {}", format::time(since_seconds), format::time(until_seconds));
    let mut blocks = vec![Block::Line(stretch)];
    if body.rows.is_empty() {
        blocks.push(Block::Line("None was seen by Pillion; choose another time with -S and -E".to_owned()));
    } else {
        blocks.push(Block::Table(table.clone(), 0));
    }
    Answer { blocks, parsable: table, json: json::render(&body) }
}

fn cells(row: &Row) -> Vec<String> {
    let hours = |seconds: f64| format!("{:.2}", seconds / SECONDS_PER_HOUR);
    let kilowatt_hours = |joules: f64| format!("{:.2}", joules / JOULES_PER_KILOWATT_HOUR);
    let measured = row.promises_kept + row.promises_broken;
    vec![
        if row.key.is_empty() { "all".to_owned() } else { row.key.clone() },
        row.run_count.to_string(),
        row.shared_run_count.to_string(),
        hours(row.gpu_seconds),
        hours(row.shared_seconds),
        hours(row.unmeasured_seconds),
        hours(row.gpu_seconds_saved),
        kilowatt_hours(row.energy_joules),
        kilowatt_hours(row.energy_joules_saved),
        if measured == 0 { String::new() } else { format!("{} of {measured} kept", row.promises_kept) },
    ]
}
