//! What a campaign over counts looks like: its runs, and what they are worth. Pure.

use super::campaign::{Campaign, Outcome, Run, Standing};
use crate::commands::scale;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize)]
struct Characterized {
    runs: Vec<RunRow>,
    /// As `pillion scale --json` tells it; absent until two counts are measured.
    scale: Option<Value>,
}

#[derive(Serialize)]
struct RunRow {
    gpus: u32,
    nodes: u32,
    cpus_per_gpu: Option<u32>,
    job_id: String,
    state: &'static str,
    elapsed_seconds: Option<f64>,
    detail: String,
}

fn row(run: &Run, standing: Option<&Standing>) -> RunRow {
    let (state, elapsed_seconds, detail) = match (&run.outcome, standing) {
        (Some(Outcome::Measured { elapsed_seconds, .. }), _) => {
            ("measured", Some(*elapsed_seconds), String::new())
        }
        (Some(Outcome::Failed(why)), _) => ("failed", None, why.clone()),
        (None, Some(Standing::Open(state, detail))) => (*state, None, detail.clone()),
        (None, _) => ("waiting", None, String::new()),
    };
    let super::campaign::Count { gpus, nodes, cpus_per_gpu } = run.count;
    RunRow { gpus, nodes, cpus_per_gpu, job_id: run.job_id.to_string(), state, elapsed_seconds, detail }
}

/// The whole answer. `name`: as people call the script.
pub(super) fn answer(campaign: &Campaign, standings: &[Option<Standing>], name: &str) -> Answer {
    let rows: Vec<RunRow> = campaign
        .runs
        .iter()
        .enumerate()
        .map(|(at, run)| row(run, standings.get(at).and_then(Option::as_ref)))
        .collect();
    let mut table = Table::new(&[">GPUS", ">NODES", ">CPUS_PER_GPU", "JOBID", "STATE", ">TIME", "DETAIL"]);
    for row in &rows {
        table.push(vec![
            row.gpus.to_string(),
            row.nodes.to_string(),
            row.cpus_per_gpu.map(|cpus| cpus.to_string()).unwrap_or_default(),
            row.job_id.clone(),
            row.state.to_owned(),
            row.elapsed_seconds.map(|seconds| format::duration(Some(seconds))).unwrap_or_default(),
            row.detail.clone(),
        ]);
    }
    let workload = campaign.workload(name);
    let told = scale::of_campaign(&workload);
    let (blocks, scale) = match told {
        Some(told) => (told.blocks, value(&told.json)),
        None => (vec![Block::Line(waits(&workload.runs))], None),
    };
    let mut answer = Answer::table(table, json::render(&Characterized { runs: rows, scale }));
    answer.blocks.push(Block::Line(String::new()));
    answer.blocks.extend(blocks);
    answer
}

/// An answer inside another one has no version of its own.
fn value(answer: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(answer).ok()?;
    value.as_object_mut()?.remove("version");
    Some(value)
}

fn waits(runs: &[pillion_scale::Run]) -> String {
    match runs {
        [] => "Nothing is measured yet".to_owned(),
        [first, ..] => format!(
            "Only {} is measured yet, and one count says nothing of others",
            format::counted(first.gpus as usize, "GPU")
        ),
    }
}
