//! All workloads at a glance: where each one's break-even lies, and what was spent beyond.

use super::amounts::quantity;
use super::{Input, show};
use crate::args::ScaleArgs;
use crate::format::{self, clean, fraction};
use crate::output::{Answer, Block, Table as Cells, json};
use pillion_scale::{History, Sum, Summary, summarise};
use serde::Serialize;

const COLUMNS: [&str; 8] =
    ["WORKLOAD", "GPU", ">RUNS", "GPUS", ">BREAK_EVEN", ">GPU_HOURS", ">ABOVE", ">ABOVE_PART"];
/// More lines nobody reads; `--parsable2` and `--json` have all of them.
const LINES_MAX: usize = 40;

/// The answer, as scripts read it.
#[derive(Debug, Serialize)]
struct Report<'r> {
    efficiency_ratio: f64,
    input: &'r Input,
    above_fraction: Option<f64>,
    #[serde(flatten)]
    sum: &'r Sum,
}

pub(super) fn answer(history: &History, input: &Input, args: &ScaleArgs) -> Answer {
    let sum = summarise(history, args.efficiency.value(), args.gpu_model.as_deref());
    let (mut all, mut shown) = (Cells::new(&COLUMNS), Cells::new(&COLUMNS));
    for (at, summary) in sum.workloads.iter().enumerate() {
        all.push(line(summary));
        if at < LINES_MAX {
            shown.push(line(summary));
        }
    }
    let mut blocks: Vec<Block> = head(&sum, args).iter().map(|sentence| text(sentence)).collect();
    if !all.is_empty() {
        blocks.extend([text(""), Block::Table(shown, 0)]);
    }
    if let Some(more) = sum.workloads.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
        blocks.push(text(&format!(
            "and {more} more, of which less was spent above break-even; --parsable2 has all"
        )));
    }
    let left_out = show::left_out(input);
    if !left_out.is_empty() {
        blocks.push(text(""));
        blocks.extend(left_out.iter().map(|sentence| text(sentence)));
    }
    let report = Report {
        efficiency_ratio: args.efficiency.value(),
        input,
        above_fraction: sum.above_fraction(),
        sum: &sum,
    };
    Answer { blocks, parsable: all, json: json::render_rows(&report) }
}

fn text(line: &str) -> Block {
    Block::Line(clean(line))
}

fn head(sum: &Sum, args: &ScaleArgs) -> Vec<String> {
    let known = format::counted(sum.workloads.len(), "workload");
    let least = fraction(Some(args.efficiency.value()));
    let mut lines = Vec::new();
    if let Some(part) = sum.above_fraction() {
        lines.push(format!(
            "{} of {} GPU-hours above their break-even (an efficiency of {least}), in {known} with runs at several counts",
            fraction(Some(part)),
            quantity(sum.gpu_hours)
        ));
        if let Some(price) = args.price {
            lines.push(format!("worth {} at your price", quantity(sum.gpu_hours_above * price)));
        }
    } else {
        lines.push(format!("{known} with runs at several counts; break-even at an efficiency of {least}"));
    }
    if sum.one_count > 0 {
        let hours = if sum.gpu_hours_one_count > 0.0 {
            format!(" ({} GPU-hours)", quantity(sum.gpu_hours_one_count))
        } else {
            String::new()
        };
        lines.push(format!(
            "nothing can be said of {}{hours} with one count: run them with half and twice as many GPUs",
            format::counted(sum.one_count, "workload")
        ));
    }
    lines
}

fn line(summary: &Summary) -> Vec<String> {
    let further = if summary.is_at_least { "+" } else { "" };
    let part = summary.gpu_hours_above.zip(summary.gpu_hours).map(|(above, all)| above / all);
    vec![
        summary.workload.clone(),
        summary.gpu_model.clone(),
        summary.runs.to_string(),
        format::listed(&summary.gpus),
        format!("{}{further}", summary.break_even_gpus),
        summary.gpu_hours.map(quantity).unwrap_or_default(),
        summary.gpu_hours_above.map(quantity).unwrap_or_default(),
        fraction(part),
    ]
}
