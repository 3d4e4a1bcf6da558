//! `pillion acct`: what sharing gained, in GPU-hours and kilowatt-hours, and how many promises were kept.

use crate::args::{AcctArgs, GroupArg};
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use chrono::{DateTime, Local, Offset as _};
use pillion_api::{AccountRequest, AccountResponse, AccountRow, MemoryAlarms, ScaleSum};
use pillion_core::UnixTime;
use pillion_core::amount::{Amount, plain};
use pillion_core::units::{JOULES_PER_KILOWATT_HOUR, SECONDS_PER_HOUR};

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
        scaling_runs_max: Some(0),
    })
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, request: AccountRequest) -> Result<Answer, CliError> {
    Ok(show(&answer(client.account(request)).await?))
}

const COLUMNS: [&str; 11] = [
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
    ">SENT_BACK",
];

/// What people see above the columns whose cells carry their unit.
const HEADS: [(&str, &str); 6] = [
    ("GPU_HOURS", "GPU_TIME"),
    ("SHARED_HOURS", "SHARED_TIME"),
    ("UNMEASURED_HOURS", "UNMEASURED"),
    ("SAVED_GPU_HOURS", "SAVED_GPU_TIME"),
    ("KWH", "ENERGY"),
    ("SAVED_KWH", "SAVED_ENERGY"),
];

fn show(account: &AccountResponse) -> Answer {
    let mut parsable = Table::new(&COLUMNS);
    let mut table = Table::new(&COLUMNS).headed(&HEADS);
    for row in &account.rows {
        parsable.push(cells(
            row,
            |seconds| plain(seconds / SECONDS_PER_HOUR),
            |joules| plain(joules / JOULES_PER_KILOWATT_HOUR),
        ));
        let (time, energy) = (Amount::device_time, Amount::energy);
        table.push(cells(row, |seconds| time(seconds).brief(), |joules| energy(joules).brief()));
    }
    let (since, until) = (format::time(account.since_seconds), format::time(account.until_seconds));
    let stretch = format!("Runs that ended from {since} until {until}");
    let mut blocks = vec![Block::Line(stretch)];
    if account.rows.is_empty() {
        blocks.push(Block::Line("None was seen by Pillion; choose another time with -S and -E".to_owned()));
    } else {
        blocks.push(Block::Table(table, 0));
        let alarms = account.memory_alarms.filter(|alarms| alarms.told > 0);
        blocks.extend(alarms.map(|MemoryAlarms { told, came_true }| {
            Block::Line(format!(
                "Of {told} that would probably run out of GPU memory (memory-growing) {came_true} did"
            ))
        }));
    }
    blocks.extend(account.scaling.as_ref().map(|sum| Block::Line(above(sum))));
    Answer { blocks, parsable, json: json::render(account) }
}

/// What runs spent above their break-even.
fn above(sum: &ScaleSum) -> String {
    format!(
        "{} of {} of runs above their break-even (an efficiency of {}), in {} that ran with several numbers of GPUs; see 'pillion scale'",
        format::fraction(Some(sum.gpu_seconds_above / sum.gpu_seconds)),
        Amount::device_time(sum.gpu_seconds),
        format::fraction(Some(sum.efficiency_ratio)),
        format::counted(sum.workload_count as usize, "workload"),
    )
}

/// One row, with amounts as `time` and `energy` word them.
fn cells(row: &AccountRow, time: impl Fn(f64) -> String, energy: impl Fn(f64) -> String) -> Vec<String> {
    let measured = row.promises_kept + row.promises_broken;
    vec![
        match &row.workload_name {
            Some(name) => name.clone(),
            None if row.key.is_empty() => "all".to_owned(),
            None => row.key.clone(),
        },
        row.run_count.to_string(),
        row.shared_run_count.to_string(),
        time(row.gpu_seconds),
        time(row.shared_seconds),
        time(row.unmeasured_seconds),
        time(row.gpu_seconds_saved),
        energy(row.energy_joules),
        energy(row.energy_joules_saved),
        if measured == 0 { String::new() } else { format!("{} of {measured} kept", row.promises_kept) },
        row.sent_back_run_count.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Output};

    fn answer(gpu_seconds_saved: f64, energy_joules_saved: f64) -> Answer {
        let row = AccountRow {
            run_count: 2,
            gpu_seconds: 300.0,
            gpu_seconds_saved,
            energy_joules: 72_000.0,
            energy_joules_saved,
            ..AccountRow::default()
        };
        show(&AccountResponse { rows: vec![row], ..AccountResponse::default() })
    }

    fn printed(answer: &Answer, format: Format) -> String {
        Output::new(format, false).render(answer)
    }

    #[test]
    fn what_is_lost_by_less_than_a_digit_is_no_minus_nothing() {
        let parsable = printed(&answer(-1.0, -0.0), Format::Parsable);
        assert_eq!(parsable, "all|2|0|0.08|0.00|0.00|0.00|0.02|0.00||0\n");
    }

    #[test]
    fn people_are_told_in_the_unit_that_says_something() {
        let text = printed(&answer(-12.0, 3600.0), Format::Table);
        for part in ["5.00 min", "-12 s", "20.0 Wh", "1.00 Wh", "0 h"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_column_keeps_its_name_for_format() {
        let table = Table::new(&COLUMNS).headed(&HEADS);
        let chosen = Answer::table(table, String::new());
        assert!(printed(&chosen, Format::Parsable).is_empty());
        assert!(Output::new(Format::Parsable, true).render(&chosen).contains("|GPU_HOURS|"));
        assert!(Output::new(Format::Table, true).render(&chosen).contains("GPU_TIME"));
    }
}
