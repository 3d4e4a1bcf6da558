//! `pillion shadow report`: what would have been done in observed partitions, held against what ran. Times and memory in it are
//! measured, speeds are predictions, and it says so.

use crate::args::{ShadowAction, ShadowArgs};
use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{ShadowBelief, ShadowCalibration, ShadowCount, ShadowRequest, ShadowResponse};
use pillion_core::UnixTime;

/// The question that the options mean; from midnight until now if they name no time, as `sacct` does.
///
/// # Errors
/// [`CliError::Usage`] for a time that cannot be read, or a stretch that ends before it begins.
pub fn request(args: &ShadowArgs, now: UnixTime) -> Result<ShadowRequest, CliError> {
    let ShadowAction::Report(args) = &args.action;
    let (start, end) = (args.start.as_deref().unwrap_or("today"), args.end.as_deref().unwrap_or("now"));
    let (since, until) = format::stretch(Some(start), Some(end), now).map_err(CliError::Usage)?;
    Ok(ShadowRequest {
        since_seconds: since.unwrap_or(now).seconds(),
        until_seconds: until.unwrap_or(now).seconds(),
    })
}

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, request: ShadowRequest) -> Result<Answer, CliError> {
    Ok(show(&answer(client.shadow(request)).await?))
}

const COLUMNS: [&str; 4] = ["WHAT", "STATE", ">COUNT", "MEANING"];

fn show(response: &ShadowResponse) -> Answer {
    let (since, until) = (format::time(response.since_seconds), format::time(response.until_seconds));
    let partitions = response.partitions.join(",");
    let mut blocks = vec![line(format!(
        "Starts in {partitions} that were decided on from {since} until {until}, and nothing done of it"
    ))];
    if !response.is_deciding.unwrap_or(response.mode == "shadow") {
        blocks.push(line(format!(
            "The scheduler's mode is {} now: nothing new is decided in the shadow",
            response.mode
        )));
    }
    let parsable = states(response);
    if response.start_count == 0 {
        blocks.push(line("None; choose another time with -S and -E, or wait for jobs".to_owned()));
        return Answer { blocks, parsable, json: json::render(response) };
    }
    blocks.push(line(summary(response)));
    blocks.push(line(String::new()));
    blocks.push(Block::Table(parsable.clone(), 2));
    blocks.push(line(String::new()));
    blocks.extend(worth(response).into_iter().map(line));
    Answer { blocks, parsable, json: json::render(response) }
}

fn line(text: String) -> Block {
    Block::Line(text)
}

fn counted(count: u32, what: &str) -> String {
    format::counted(usize::try_from(count).unwrap_or(usize::MAX), what)
}

fn summary(response: &ShadowResponse) -> String {
    format!(
        "{}, {} of them not over; the others held {:.1} GPU-hours. {} would have come to be beside others; of these {} are scored",
        counted(response.start_count, "start"),
        response.open_count,
        response.gpu_hours,
        response.paired_count,
        response.scored_count,
    )
}

/// Everything that is counted, a row a state.
fn states(response: &ShadowResponse) -> Table {
    let mut table = Table::new(&COLUMNS);
    push(&mut table, "own GPU", &response.alone);
    push(&mut table, "memory", &response.fits);
    belief(&mut table, "together", response.overlap.as_ref());
    belief(&mut table, "duration", response.durations.as_ref());
    push(&mut table, "not scored", &response.unscored);
    table
}

fn push(table: &mut Table, what: &str, counts: &[ShadowCount]) {
    for ShadowCount { kind, text, count } in counts {
        table.push(vec![what.to_owned(), kind.clone(), count.to_string(), text.clone()]);
    }
}

fn belief(table: &mut Table, what: &str, belief: Option<&ShadowBelief>) {
    let ShadowBelief { as_believed_count, otherwise_count, unknown_count } =
        belief.copied().unwrap_or_default();
    let states = [
        ("as-believed", as_believed_count, "within a quarter of what was believed, or a minute"),
        ("otherwise", otherwise_count, "further from it"),
        ("unknown", unknown_count, "nobody had measured the workload before"),
    ];
    for (state, count, meaning) in states.into_iter().filter(|(_, count, _)| *count > 0) {
        table.push(vec![what.to_owned(), state.to_owned(), count.to_string(), meaning.to_owned()]);
    }
}

/// What it would have been worth, and what it would have risked.
fn worth(response: &ShadowResponse) -> Vec<String> {
    let mut lines = Vec::new();
    if response.scored_count > 0 {
        lines.push(format!(
            "GPU-hours that would have been saved: {:.2} (low), {:.2} (expected), in {:.1} h together of which {:.1} h were believed",
            response.saved_gpu_hours_low,
            response.saved_gpu_hours,
            response.overlap_hours,
            response.overlap_hours_believed,
        ));
        if response.over_limit_count > 0 {
            lines.push(format!(
                "{} would have come to the time limit, by the speed that was predicted",
                counted(response.over_limit_count, "job")
            ));
        }
    }
    lines.push(format!(
        "Promises at risk: {:.1} of {}, all who would have come to be beside others",
        response.promises_at_risk, response.promise_count
    ));
    lines.extend(response.calibration.as_ref().map(calibration));
    lines.push("Times and memory are measured. How fast jobs go beside each other was not tried: speeds are predictions".to_owned());
    lines
}

/// How what was foretold in the pool compares to what was measured there, and what the low figure is by that.
fn calibration(known: &ShadowCalibration) -> String {
    let said = format!(
        "In the pool {} of {} were measured at or above their bounds (nine of ten are meant to be); {} of their promises were broken, where \
         {:.1} were expected",
        known.above_bound_count,
        counted(known.speed_count, "foretold speed"),
        known.promises_broken,
        known.promises_broken_expected,
    );
    match (known.stretch_ratio, known.saved_gpu_hours_low) {
        (Some(stretch), Some(low)) => {
            format!(
                "{said}. With bounds {stretch:.2} times as far down, as that says: {low:.2} GPU-hours (low)"
            )
        }
        _ => format!(
            "{said}. No bounds can be set by them: it takes nine at least, each foretold with some doubt"
        ),
    }
}
