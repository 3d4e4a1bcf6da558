//! `pillion plan --solo SOLO.csv --queue QUEUE.csv`: the same decision, on files that need no cluster.

use super::plan_mig::{self, Called};
use crate::args::PlanArgs;
use crate::error::CliError;
use crate::format;
use crate::names::Names;
use crate::output::{self, Block, Table, json};
use pillion_core::Fraction;
use pillion_core::device::Mechanism;
use pillion_core::mig::Geometry;
use pillion_pairing::files::{
    self, Answer, AnswerCandidate, AnswerMember, AnswerModel, CandidateMember, FileOptions, NamedText,
    PlanFiles,
};
use pillion_pairing::model::{TrainOptions, train};
use pillion_pairing::shape::let_be_cut;
use std::path::Path;

/// Reads the files, trains on the history and plans.
///
/// # Errors
/// [`CliError::File`]; [`CliError::Data`] with file, line, column and what was expected.
pub(super) fn make(args: &PlanArgs, solo: &Path, queue: &Path) -> Result<output::Answer, CliError> {
    let [history, running, allow] =
        [&args.history, &args.running, &args.allow].map(|file| file.as_deref().map(Loaded::read).transpose());
    let (solo, queue) = (Loaded::read(solo)?, Loaded::read(queue)?);
    let (history, running, allow) = (history?, running?, allow?);
    let policy = args.policy();
    let options = FileOptions {
        device_model: args.device.clone(),
        mechanism: args.mechanism.unwrap_or(Mechanism::Mps),
        device_memory_bytes: args.device_memory,
        slowdown_ratio_max: policy.slowdown_ratio_max,
    };
    let files = PlanFiles {
        solo: solo.named(),
        queue: queue.named(),
        history: history.as_ref().map(Loaded::named),
        running: running.as_ref().map(Loaded::named),
        allow: allow.as_ref().map(Loaded::named),
    };
    let mut read = files::read(&files, &options).map_err(|error| CliError::Data(error.to_string()))?;
    let model = train(&read.view.profiles, &read.observations, &TrainOptions::default());
    if args.mig {
        let free_max = args.devices.unwrap_or(1) as usize;
        let mut free_count = 0;
        read.view.devices.retain(|device| {
            free_count += usize::from(device.tenants.is_empty());
            !device.tenants.is_empty() || free_count <= free_max
        });
        if !let_be_cut(&mut read.view) {
            let model = &read.device_model;
            return Err(CliError::Data(format!("'{model}' is no model that MIG can cut; {}", cut_models())));
        }
        let plan = pillion_pairing::plan(&read.view, &model, &policy);
        return Ok(plan_mig::show(&read.view, &plan, &Names::new(), Called::ByRow));
    }
    Ok(show(&files::answer(&read, &model, &policy, args.candidates)))
}

/// Which models can be cut, for `--device`.
fn cut_models() -> String {
    let known: Vec<&str> = Geometry::models().collect();
    format!("--device takes {}", known.join(", "))
}

/// A file's content and the name that errors call it by.
pub(super) struct Loaded {
    name: String,
    bytes: Vec<u8>,
}

impl Loaded {
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let bytes = std::fs::read(path).map_err(CliError::file("read", path))?;
        Ok(Self { name: path.display().to_string(), bytes })
    }

    pub(super) fn named(&self) -> NamedText<'_> {
        NamedText { name: &self.name, bytes: &self.bytes }
    }
}

const COLUMNS: [&str; 11] = [
    ">ROW",
    "RESULT",
    ">PAIRING",
    "WORKLOAD",
    ">CAP",
    ">SHARDS",
    ">EXPECTED",
    ">AT_LEAST",
    ">AT_MOST",
    ">GAIN",
    "WHY",
];

fn show(answer: &Answer) -> output::Answer {
    let mut table = Table::new(&COLUMNS);
    for (index, pairing) in answer.pairings.iter().enumerate() {
        for member in &pairing.members {
            table.push(shared_line(index, pairing.gain, member));
        }
    }
    for alone in &answer.alone {
        let mut row = vec![alone.row.to_string(), "alone".to_owned(), String::new(), alone.workload.clone()];
        row.extend(std::iter::repeat_n(String::new(), COLUMNS.len() - row.len() - 1));
        row.push(format!("{}: {}", alone.reason, alone.text));
        table.push(row);
    }
    let mut blocks = vec![Block::Table(table.clone(), 0), Block::Line(summary(answer))];
    if let Some(candidates) = &answer.candidates {
        blocks.push(Block::Line(format!("{} considered:", format::counted(candidates.len(), "combination"))));
        blocks.push(Block::Table(candidate_table(candidates), 2));
    }
    output::Answer { blocks, parsable: table, json: json::render_rows(answer) }
}

fn summary(answer: &Answer) -> String {
    let AnswerModel { name, device, mechanism, observations, observations_elsewhere, .. } = &answer.model;
    let elsewhere = match observations_elsewhere {
        0 => String::new(),
        count => format!(", {count} of another device or mechanism"),
    };
    format!(
        "{} shared, {} alone (model {name}, {device} by {mechanism}; {}{elsewhere})",
        format::counted(answer.pairings.len(), "device"),
        format::counted(answer.alone.len(), "job"),
        format::counted(*observations, "observation"),
    )
}

fn shared_line(index: usize, gain: f64, member: &AnswerMember) -> Vec<String> {
    let (row, result) = match (member.row, member.running_row) {
        (Some(row), _) => (row.to_string(), "shares"),
        (None, Some(row)) => (row.to_string(), "runs already"),
        (None, None) => (String::new(), "shares"),
    };
    vec![
        row,
        result.to_owned(),
        index.to_string(),
        member.workload.clone(),
        format::cap(member.cap_fraction.map(Fraction::value)),
        member.shards.map(|shards| shards.to_string()).unwrap_or_default(),
        format::fraction(Some(member.speed_fraction)),
        format::fraction(Some(member.speed_fraction_low)),
        format::fraction(Some(member.speed_fraction_high)),
        format::fraction(Some(gain)),
        String::new(),
    ]
}

fn candidate_table(candidates: &[AnswerCandidate]) -> Table {
    let columns =
        ["WORKLOADS", ">CAPS", ">EXPECTED", ">AT_LEAST", ">AT_MOST", ">GAIN", ">CHOSEN", "EXCLUDED_BY"];
    let mut table = Table::new(&columns);
    for candidate in candidates {
        table.push(vec![
            each(candidate, name),
            each(candidate, |member| format::cap(member.cap_fraction.map(Fraction::value))),
            speeds(candidate, |member| member.speed_fraction),
            speeds(candidate, |member| member.speed_fraction_low),
            speeds(candidate, |member| member.speed_fraction_high),
            format::fraction(candidate.gain),
            candidate.chosen_count.to_string(),
            candidate.excluded_by.map(|reason| reason.to_string()).unwrap_or_default(),
        ]);
    }
    table
}

/// `a + b`: a cell of each member.
fn each(candidate: &AnswerCandidate, cell: impl Fn(&CandidateMember) -> String) -> String {
    candidate.members.iter().map(cell).collect::<Vec<String>>().join(" + ")
}

/// The same of speeds; empty where nothing was estimated.
fn speeds(candidate: &AnswerCandidate, speed: fn(&CandidateMember) -> Option<f64>) -> String {
    if candidate.gain.is_none() {
        return String::new();
    }
    each(candidate, |member| format::fraction(speed(member)))
}

fn name(member: &CandidateMember) -> String {
    let running = if member.is_running { " (running)" } else { "" };
    format!("{}{running}", member.workload)
}
