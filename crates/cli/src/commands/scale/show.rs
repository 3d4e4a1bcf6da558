//! One workload on a terminal: what each count takes, what is best, and how it looks.

use super::amounts::{quantity, time};
use super::{Asked, Input, causes, plot};
use crate::format::{self, clean, fraction};
use crate::output::{Answer, Block, Table as Cells, json};
use pillion_core::Fraction;
use pillion_core::units::JOULES_PER_KILOWATT_HOUR;
use pillion_scale::answers::{
    BreakEven, Budget, Choice, best_per_gpu, best_per_watt, break_even, within_budget, within_deadline,
};
use pillion_scale::{Cause, EnoughCpus, Measure, Row, Table, Workload, enough_cpus};
use serde::Serialize;

const COLUMNS: [&str; 11] = [
    ">GPUS",
    ">NODES",
    ">RUNS",
    ">TIME",
    ">+-",
    ">SPEEDUP",
    ">EFFICIENCY",
    ">OVERHEAD",
    ">GPU_HOURS",
    ">KWH",
    "SOURCE",
];

/// What is asked of a table.
pub(super) struct Questions<'q> {
    pub(super) efficiency: Fraction,
    pub(super) deadline_seconds: Option<f64>,
    pub(super) budgets: &'q [Asked],
}

/// The answer, as scripts read it.
#[derive(Debug, Serialize)]
struct Report<'r> {
    workload: &'r str,
    gpu_model: &'r str,
    measure: Measure,
    /// Of how many runs, or units of progress, times and costs are.
    work: f64,
    gpus_per_node: Option<u32>,
    input: &'r Input,
    rows: &'r [Row],
    break_even: Option<BreakEven>,
    best_per_gpu: Option<Choice>,
    best_per_watt: Option<Choice>,
    deadline: Option<DeadlineAnswer>,
    budgets: Vec<BudgetAnswer>,
    enough_cpus: Vec<EnoughCpus>,
    runs_of_other_layouts: usize,
    gpus_with_times_apart: &'r [u32],
    /// Why each measured count takes what it takes, where its devices were watched.
    causes: &'r [Cause],
}

#[derive(Debug, Serialize)]
struct DeadlineAnswer {
    seconds: f64,
    choice: Option<Choice>,
}

#[derive(Debug, Serialize)]
struct BudgetAnswer {
    budget: Budget,
    asked: String,
    choice: Option<Choice>,
}

pub(super) fn answer(
    workload: &Workload,
    table: &Table,
    input: &Input,
    questions: &Questions<'_>,
    causes: &[Cause],
) -> Answer {
    let report = Report { causes, ..report(workload, table, input, questions) };
    let mut cells = Cells::new(&COLUMNS);
    table.rows.iter().for_each(|row| cells.push(line(row)));
    let mut blocks = vec![text(&title(&report)), text(""), Block::Table(cells.clone(), 0), text("")];
    blocks.extend(answers(&report).iter().map(|sentence| text(sentence)));
    blocks.push(text(""));
    blocks.extend(plot::draw(&table.rows).iter().map(|drawn| text(drawn)));
    blocks.push(text(""));
    blocks.extend(causes::blocks(causes));
    blocks.extend(doubts(&report, table).iter().map(|sentence| text(sentence)));
    Answer { blocks, parsable: cells, json: json::render(&report) }
}

fn text(line: &str) -> Block {
    Block::Line(clean(line))
}

fn report<'r>(
    workload: &'r Workload,
    table: &'r Table,
    input: &'r Input,
    questions: &Questions<'_>,
) -> Report<'r> {
    let Questions { efficiency, deadline_seconds, budgets } = questions;
    let budget = |asked: &Asked| BudgetAnswer {
        budget: asked.budget,
        asked: asked.words.clone(),
        choice: within_budget(table, asked.budget),
    };
    Report {
        workload: &workload.name,
        gpu_model: &workload.gpu_model,
        measure: table.measure,
        work: table.work,
        gpus_per_node: table.shape.gpus_per_node(),
        input,
        rows: &table.rows,
        break_even: break_even(table, efficiency.value()),
        best_per_gpu: best_per_gpu(table),
        best_per_watt: best_per_watt(table),
        deadline: deadline_seconds
            .map(|seconds| DeadlineAnswer { seconds, choice: within_deadline(table, seconds) }),
        budgets: budgets.iter().map(budget).collect(),
        enough_cpus: enough_cpus(&workload.runs),
        runs_of_other_layouts: table.other_layouts,
        gpus_with_times_apart: &table.apart,
        causes: &[],
    }
}

fn title(report: &Report<'_>) -> String {
    let on = if report.gpu_model.is_empty() { String::new() } else { format!(" on {}", report.gpu_model) };
    let of = if report.measure == Measure::Progress {
        format!(" for {} units", report.work)
    } else {
        String::new()
    };
    format!("{}{on}{of}: times are {}", report.workload, report.measure.text())
}

fn line(row: &Row) -> Vec<String> {
    let energy = row.energy_joules.map(|energy| quantity(energy.expected / JOULES_PER_KILOWATT_HOUR));
    vec![
        row.gpus.to_string(),
        row.nodes.map(|nodes| nodes.to_string()).unwrap_or_default(),
        if row.runs > 0 { row.runs.to_string() } else { String::new() },
        time(row.time_seconds.expected),
        time(row.time_seconds.half_width()),
        format!("{:.2}", row.speedup_ratio.expected),
        fraction(Some(row.efficiency_ratio.expected)),
        signed_time(row.overhead_seconds),
        quantity(row.gpu_hours.expected),
        energy.unwrap_or_default(),
        row.source.text().to_owned(),
    ]
}

/// More GPUs can be worth more than their number, and then nothing is lost.
fn signed_time(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", time(-seconds)) } else { time(seconds) }
}

fn answers(report: &Report<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(found) = &report.break_even {
        lines.push(break_even_line(found));
    }
    if let Some(found) = report.best_per_gpu {
        lines.push(format!("most speed a GPU: {}", choice(found)));
    }
    lines.push(match report.best_per_watt {
        Some(found) => format!("most speed a watt: {}, of those that were metered", choice(found)),
        None => "most speed a watt: unknown, for the power of two counts or more would have to be measured"
            .to_owned(),
    });
    if let Some(DeadlineAnswer { seconds, choice: found }) = &report.deadline {
        let within = format!("within {}", time(*seconds));
        lines.push(match found {
            Some(found) => format!("{within}: {}", choice(*found)),
            None => format!("{within}: no count up to {}; {}", reach(report), fastest(report)),
        });
    }
    for budget in &report.budgets {
        lines.push(match budget.choice {
            Some(found) => format!("fastest within {}: {}", budget.asked, choice(found)),
            None if is_unmetered(report, budget.budget) => {
                format!("fastest within {}: unknown, for nobody measured power", budget.asked)
            }
            None => format!("fastest within {}: no count; every one costs more", budget.asked),
        });
    }
    for EnoughCpus { gpus, cpus, tried } in &report.enough_cpus {
        let gpus = format::counted(*gpus as usize, "GPU");
        lines.push(format!("CPUs with {gpus}: {cpus} are as fast as more, of {}", format::listed(tried)));
    }
    lines
}

fn break_even_line(found: &BreakEven) -> String {
    let least = fraction(Some(found.efficiency_ratio));
    let measured = format::counted(found.measured_gpus as usize, "GPU");
    let further = if found.is_at_least { " or further" } else { "" };
    format!(
        "break-even at an efficiency of {least}: {measured} measured; with estimates {}{further}",
        choice(found.estimated)
    )
}

/// `16 GPUs (8 to 32)`.
fn choice(found: Choice) -> String {
    let gpus = format::counted(found.gpus as usize, "GPU");
    match (found.low, found.high) {
        (Some(low), Some(high)) if low == high => gpus,
        (low, high) => {
            let bound =
                |count: Option<u32>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
            format!("{gpus} ({} to {})", bound(low), bound(high))
        }
    }
}

fn reach(report: &Report<'_>) -> String {
    report.rows.last().map(|row| format::counted(row.gpus as usize, "GPU")).unwrap_or_default()
}

fn fastest(report: &Report<'_>) -> String {
    let by_time =
        |one: &&Row, other: &&Row| one.time_seconds.expected.total_cmp(&other.time_seconds.expected);
    let fastest = report.rows.iter().min_by(by_time);
    fastest
        .map(|row| {
            let gpus = format::counted(row.gpus as usize, "GPU");
            format!("the fastest takes {} with {gpus}", time(row.time_seconds.expected))
        })
        .unwrap_or_default()
}

fn is_unmetered(report: &Report<'_>, budget: Budget) -> bool {
    matches!(budget, Budget::Joules(_)) && report.rows.iter().all(|row| row.energy_joules.is_none())
}

/// What to keep in mind, and what was left out.
fn doubts(report: &Report<'_>, table: &Table) -> Vec<String> {
    let mut lines = vec![
        "+-: half of the interval that holds nine times of ten; (8 to 32): the answer at the ends of the intervals".to_owned(),
    ];
    if report.gpus_per_node.is_none() {
        lines.push("what a node holds is not known: give it with --gpus-per-node".to_owned());
    }
    if !table.apart.is_empty() {
        lines.push(format!(
            "times at one number of GPUs ({}) lie more than 1.5 times apart: these runs hardly did the same work",
            format::listed(&table.apart)
        ));
    }
    if report.runs_of_other_layouts > 0 {
        lines.push(format!(
            "left out: {} with other nodes or CPUs than most of their count",
            format::counted(report.runs_of_other_layouts, "run")
        ));
    }
    lines.extend(left_out(report.input));
    lines
}

/// A line a cause.
pub(super) fn left_out(input: &Input) -> Vec<String> {
    let causes = input.left_out.iter().map(|it| format!("left out: {} {}", it.count, it.cause));
    let older = input.is_cut.then(|| format!("left out: runs that are older than the newest {}", input.rows));
    causes.chain(older).collect()
}
