//! `pillion plan --solo SOLO.csv --queue QUEUE.csv`: the same decision, on files that need no cluster.

use crate::args::PlanArgs;
use crate::commands::explain::word;
use crate::commands::plan::{counted, policy, read};
use crate::error::CliError;
use crate::format;
use crate::output::{self, Block, Table, json};
use pillion_core::Fraction;
use pillion_core::device::Mechanism;
use pillion_pairing::Contention;
use pillion_pairing::files::{self, Answer, AnswerMember, FileOptions, NamedText, PlanFiles};
use std::path::Path;

/// What a device is called where no `--device` names it: any name that the profiles share.
const DEVICE_MODEL: &str = "device";

/// Reads the files and plans.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] with file, line, column and what was expected.
pub(super) fn make(args: &PlanArgs, solo: &Path, queue: &Path) -> Result<output::Answer, CliError> {
    let read_named = |path: &Path| Ok::<_, CliError>((path.display().to_string(), read(path)?));
    let (solo, queue) = (read_named(solo)?, read_named(queue)?);
    let running = args.running.as_deref().map(read_named).transpose()?;
    let policy = policy(args);
    let options = FileOptions {
        device_model: args.device.clone().unwrap_or_else(|| DEVICE_MODEL.to_owned()),
        mechanism: args.mechanism.unwrap_or(Mechanism::Mps),
        device_memory_bytes: args.device_memory,
        slowdown_ratio_max: policy.slowdown_ratio_max,
    };
    let files = PlanFiles { solo: named(&solo), queue: named(&queue), running: running.as_ref().map(named) };
    let view = files::view(&files, &options).map_err(|error| CliError::Data(error.to_string()))?;
    let plan = pillion_pairing::plan(&view, &Contention, &policy);
    Ok(show(&files::answer(&plan, &Contention)))
}

fn named((name, text): &(String, String)) -> NamedText<'_> {
    NamedText { name, text }
}

const COLUMNS: [&str; 10] =
    [">ROW", "RESULT", ">PAIRING", "WORKLOAD", ">CAP", ">SHARDS", ">EXPECTED", ">AT_LEAST", ">GAIN", "WHY"];

fn show(answer: &Answer) -> output::Answer {
    let mut table = Table::new(&COLUMNS);
    for (index, pairing) in answer.pairings.iter().enumerate() {
        for member in &pairing.members {
            table.push(shared_line(index, pairing.gain, member));
        }
    }
    for alone in &answer.alone {
        let mut row = vec![alone.row.to_string(), "alone".to_owned()];
        row.extend(std::iter::repeat_n(String::new(), COLUMNS.len() - 3));
        row.push(format!("{}: {}", word(alone.reason), alone.text));
        table.push(row);
    }
    let summary = format!(
        "{} share, {} alone (model {})",
        counted(answer.pairings.len(), "device"),
        counted(answer.alone.len(), "job"),
        answer.model.name
    );
    let blocks = vec![Block::Table(table.clone(), 0), Block::Line(summary)];
    output::Answer { blocks, parsable: table, json: json::render(answer) }
}

fn shared_line(index: usize, gain: f64, member: &AnswerMember) -> Vec<String> {
    let (row, result) = match (member.row, member.running_row) {
        (Some(row), _) => (row.to_string(), "shares"),
        (None, Some(row)) => (row.to_string(), "runs already"),
        (None, None) => (String::new(), "shares"),
    };
    let cap = member
        .cap_fraction
        .map_or_else(|| "none".to_owned(), |cap| format::fraction(Some(Fraction::value(cap))));
    vec![
        row,
        result.to_owned(),
        index.to_string(),
        member.workload.clone(),
        cap,
        member.shards.map(|shards| shards.to_string()).unwrap_or_default(),
        format::fraction(Some(member.speed_fraction)),
        format::fraction(Some(member.speed_fraction_low)),
        format::fraction(Some(gain)),
        String::new(),
    ]
}
