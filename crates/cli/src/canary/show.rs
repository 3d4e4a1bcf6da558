//! What a canary looks like: its jobs, what was foretold of each and what was measured, and what that says of the bounds. Pure.

use super::bound::{self, Bound};
use super::place::NoPlace;
use super::plan::{Came, Canary, Measured, Outcome, Run, Wanted, Work};
use super::verdict::{self, Speed, Verdict};
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_core::units::keeps_promise;
use serde::Serialize;

#[derive(Serialize)]
struct Told<'a> {
    node: &'a str,
    partition: &'a str,
    alone: Vec<JobRow>,
    pairs: Vec<PairRow>,
    /// Absent: no pair was measured.
    verdict: Option<Verdict>,
    /// Speeds that were foretold with bounds, those of them that were as fast as their bounds said, and promises of --max-slowdown that
    /// were broken.
    speed_count: usize,
    above_bound_count: usize,
    promises_broken: usize,
    /// What the scheduler tells operators.
    bound_before: Option<&'a Bound>,
    bound_now: Option<&'a Bound>,
}

#[derive(Serialize)]
struct PairRow {
    /// together | apart | unmeasured | failed | open
    state: &'static str,
    detail: String,
    jobs: Vec<JobRow>,
}

#[derive(Serialize, Clone, Default)]
struct JobRow {
    script: String,
    job_id: Option<String>,
    /// measured | unmeasured | failed | open
    state: &'static str,
    detail: String,
    expected_speed_fraction: Option<f64>,
    bound_speed_fraction: Option<f64>,
    speed_fraction: Option<f64>,
    /// Measured minus expected: below 0 it was slower than foretold.
    speed_error_fraction: Option<f64>,
    /// Times alone.
    slowdown_ratio: Option<f64>,
    slowdown_ratio_max: Option<f64>,
    is_promise_kept: Option<bool>,
    /// Whether it was no slower than the site's own promise allows.
    is_site_promise_kept: Option<bool>,
}

/// What a job is called while it is not over.
pub fn named(run: &Run) -> String {
    run.job_id.map_or_else(|| run.job_name.clone(), |job| job.to_string())
}

/// Why nothing goes on now, and what to do: one sentence.
pub fn away(why: &NoPlace, canary: &Canary) -> String {
    let open: Vec<String> = canary.open().map(named).collect();
    let waits =
        if open.is_empty() { String::new() } else { format!(" (not over: {})", format::listed(open)) };
    format::clean(&format!("{why}; the same command goes on when that is mended{waits}"))
}

fn script(canary: &Canary, place: usize) -> String {
    canary.about.scripts.get(place).map(|script| script.name.clone()).unwrap_or_default()
}

fn job(canary: &Canary, run: &Run, site_promise: Option<f64>) -> JobRow {
    let row = JobRow {
        script: script(canary, run.work.script()),
        job_id: run.job_id.map(|job| job.to_string()),
        ..JobRow::default()
    };
    match &run.outcome {
        None => JobRow { state: "open", ..row },
        Some(Outcome::Alone) => JobRow { state: "measured", ..row },
        Some(Outcome::Failed(why)) => JobRow { state: "failed", detail: why.clone(), ..row },
        Some(Outcome::Beside(measured)) => {
            let Measured {
                expected_speed_fraction,
                bound_speed_fraction,
                speed_fraction,
                slowdown_ratio_max,
                ..
            } = *measured;
            let is_promise_kept =
                speed_fraction.zip(slowdown_ratio_max).map(|(speed, promise)| keeps_promise(speed, promise));
            let state = if speed_fraction.is_some() { "measured" } else { "unmeasured" };
            JobRow {
                state,
                expected_speed_fraction,
                bound_speed_fraction,
                speed_fraction,
                speed_error_fraction: speed_fraction.zip(expected_speed_fraction).map(|(is, was)| is - was),
                slowdown_ratio: speed_fraction.map(|speed| 1.0 / speed),
                slowdown_ratio_max,
                is_promise_kept,
                is_site_promise_kept: speed_fraction
                    .zip(site_promise)
                    .map(|(speed, promise)| keeps_promise(speed, promise)),
                ..row
            }
        }
    }
}

fn pair(canary: &Canary, scripts: [usize; 2], site_promise: Option<f64>) -> PairRow {
    let runs = canary.pair(scripts);
    let jobs: Vec<JobRow> = scripts
        .iter()
        .zip(runs)
        .map(|(place, run)| match run {
            Some(run) => job(canary, run, site_promise),
            None => JobRow { script: script(canary, *place), state: "open", ..JobRow::default() },
        })
        .collect();
    let came = canary.came_of(scripts);
    let (state, detail) = match came {
        Came::Open => ("open", String::new()),
        Came::Together => ("together", String::new()),
        Came::Failed => ("failed", "one of them did not come to its end".to_owned()),
        Came::Unknown(place) => {
            ("open", format!("it is not known how {} runs alone", script(canary, place)))
        }
        Came::Apart => ("apart", format!("they were not put together: {}", why_apart(runs))),
        Came::Unmeasured => (
            "unmeasured",
            "nothing tells how fast they were: write PILLION_PROGRESS in the scripts, or measure each alone more often (--runs)"
                .to_owned(),
        ),
    };
    // Of those who had a device each it was not foretold how fast they are beside each other.
    let jobs = if came == Came::Apart { jobs.into_iter().map(alone).collect() } else { jobs };
    PairRow { state, detail, jobs }
}

fn alone(row: JobRow) -> JobRow {
    JobRow { script: row.script, job_id: row.job_id, state: "unmeasured", ..JobRow::default() }
}

fn why_apart(runs: [Option<&Run>; 2]) -> String {
    let reasons = runs.into_iter().flatten().filter_map(|run| match &run.outcome {
        Some(Outcome::Beside(measured)) if !measured.reason.is_empty() => {
            Some(format!("{}: {}", named(run), measured.reason))
        }
        _ => None,
    });
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { "'pillion explain JOB' says why".to_owned() } else { reasons.join("; ") }
}

const COLUMNS: [&str; 11] = [
    "WHAT",
    "SCRIPT",
    "JOBID",
    "STATE",
    ">EXPECTED",
    ">BOUND",
    ">MEASURED",
    ">ERROR",
    ">SLOWDOWN",
    "PROMISE",
    "DETAIL",
];

/// Whether the site's own promise was kept, and that of the canary where it was not.
fn promises(row: &JobRow, site_promise: Option<f64>) -> String {
    let word = |is_kept: bool| if is_kept { "kept" } else { "BROKEN" };
    let said = |promise: Option<f64>, is_kept: Option<bool>| {
        Some(format!("{} {}", format::ratio(Some(promise?)), word(is_kept?)))
    };
    let own = said(row.slowdown_ratio_max, row.is_promise_kept)
        .filter(|_| row.is_promise_kept == Some(false) || site_promise.is_none());
    let all = [
        said(site_promise, row.is_site_promise_kept),
        own.filter(|_| row.slowdown_ratio_max != site_promise),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn cells(what: &str, row: &JobRow, state: &str, detail: &str, site_promise: Option<f64>) -> Vec<String> {
    let error = row.speed_error_fraction.map(|error| format!("{:+.0} %", error * 100.0));
    vec![
        what.to_owned(),
        row.script.clone(),
        row.job_id.clone().unwrap_or_default(),
        state.to_owned(),
        format::fraction(row.expected_speed_fraction),
        format::fraction(row.bound_speed_fraction),
        format::fraction(row.speed_fraction),
        error.unwrap_or_default(),
        row.slowdown_ratio.map(|ratio| format::ratio(Some(ratio))).unwrap_or_default(),
        promises(row, site_promise),
        detail.to_owned(),
    ]
}

fn table(alone: &[JobRow], pairs: &[PairRow], site_promise: Option<f64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for row in alone {
        table.push(cells("alone", row, row.state, &row.detail, site_promise));
    }
    for (at, pair) in pairs.iter().enumerate() {
        for row in &pair.jobs {
            let detail = if row.detail.is_empty() { &pair.detail } else { &row.detail };
            table.push(cells(&format!("pair {}", at + 1), row, pair.state, detail, site_promise));
        }
    }
    table
}

/// What was measured of a pair; `None` where one of two has no speed, or they were not together.
fn speeds(pair: &PairRow) -> Option<[Speed; 2]> {
    let speed = |row: &JobRow| {
        Some(Speed {
            expected_fraction: row.expected_speed_fraction,
            bound_fraction: row.bound_speed_fraction,
            fraction: row.speed_fraction?,
        })
    };
    let [first, second] = &pair.jobs[..] else { return None };
    Some([speed(first)?, speed(second)?])
}

/// The whole answer. `now`: what is known of bounds now, where that is told to the caller. `site_promise`: what the site promises to jobs that
/// name nothing.
pub fn answer(canary: &Canary, wanted: &Wanted, now: Option<&Bound>, site_promise: Option<f64>) -> Answer {
    let runs = canary.runs.iter().filter(|run| matches!(run.work, Work::Alone { .. }));
    let alone: Vec<JobRow> = runs.map(|run| job(canary, run, site_promise)).collect();
    let pairs: Vec<PairRow> =
        wanted.pairs.iter().map(|scripts| pair(canary, *scripts, site_promise)).collect();
    // As the scheduler counts: of those that were put together.
    let together: Vec<&JobRow> = pairs.iter().flat_map(|pair| &pair.jobs).collect();
    let bounded = together.iter().filter_map(|row| row.speed_fraction.zip(row.bound_speed_fraction));
    let bounded: Vec<(f64, f64)> = bounded.collect();
    let above_bound_count = bounded.iter().filter(|(speed, bound)| speed >= bound).count();
    let promises_broken = together.iter().filter(|row| row.is_promise_kept == Some(false)).count();
    let verdict = verdict::of(&pairs.iter().filter_map(speeds).collect::<Vec<_>>(), site_promise);
    let drawn = table(&alone, &pairs, site_promise);
    let mut lines = vec![String::new()];
    match &verdict {
        Some(verdict) => lines.extend(verdict::sentences(verdict)),
        None => lines.push("No two were measured beside each other yet".to_owned()),
    }
    if !bounded.is_empty() {
        lines.push(format!(
            "{above_bound_count} of {} at or above their bounds (nine of ten are meant to be)",
            format::counted(bounded.len(), "speed"),
        ));
    }
    let before = canary.before.as_ref();
    match now {
        Some(now) => {
            let known = before.map_or_else(|| "nothing was measured".to_owned(), bound::sentence);
            lines.push(format!("In the pool before it: {known}"));
            lines.push(format!("In the pool now:       {}", bound::sentence(now)));
        }
        None => lines.push(
            "What that does to the bounds the scheduler tells operators: pillion shadow report".to_owned(),
        ),
    }
    let body = Told {
        node: &canary.about.node,
        partition: &canary.about.partition,
        alone,
        pairs,
        verdict,
        speed_count: bounded.len(),
        above_bound_count,
        promises_broken,
        bound_before: before,
        bound_now: now,
    };
    let mut answer = Answer::table(drawn, json::render(&body));
    answer.blocks.extend(lines.into_iter().map(|line| Block::Line(format::clean(&line))));
    answer
}

#[derive(Serialize)]
struct Planned {
    submissions: Vec<Submission>,
}

#[derive(Serialize)]
struct Submission {
    what: String,
    command: String,
}

/// What would be submitted, without doing it.
pub fn planned(submissions: &[(Work, String)]) -> Answer {
    let mut table = Table::new(&["WHAT", "COMMAND"]);
    let mut pair = 0;
    let rows = submissions.iter().map(|(work, command)| {
        let what = match work {
            Work::Alone { .. } => "alone".to_owned(),
            Work::Beside { slot, .. } => {
                pair += usize::from(*slot == 0);
                format!("pair {pair}")
            }
        };
        Submission { what, command: command.clone() }
    });
    let submissions: Vec<Submission> = rows.collect();
    for Submission { what, command } in &submissions {
        table.push(vec![what.clone(), command.clone()]);
    }
    Answer::table(table, json::render(&Planned { submissions }))
}

#[cfg(test)]
mod tests;
