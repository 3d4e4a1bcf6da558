//! What a campaign looks like: its runs, the speeds that are known, and what they mean. Pure.

use super::campaign::{Campaign, Outcome, Run, RunStatus};
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_core::CapStep;
use pillion_core::profile::WorkloadProfile;
use serde::Serialize;

/// A speed from here on counts as whole: the spread of equal runs is of this size.
const SPEED_WHOLE: f64 = 0.95;

/// What is known of a campaign beside its own record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    /// How each open run stands, in the order of the runs; those that are over say so themselves.
    pub statuses: Vec<Option<RunStatus>>,
    /// The profile of the workload on the device model of the run without a cap.
    pub profile: Option<WorkloadProfile>,
    /// As people know the workload.
    pub workload_name: Option<String>,
}

#[derive(Serialize)]
struct Characterized<'a> {
    workload: Option<&'a str>,
    workload_name: Option<&'a str>,
    device_model: Option<&'a str>,
    runs: Vec<RunRow>,
    speeds: Vec<SpeedRow>,
    learnt: Option<String>,
}

#[derive(Serialize)]
struct RunRow {
    cap_fraction: f64,
    job_id: String,
    state: &'static str,
    detail: String,
}

#[derive(Serialize)]
struct SpeedRow {
    cap_fraction: f64,
    speed_fraction: f64,
}

/// The state of a run in one word, and why.
fn state(run: &Run, status: Option<&RunStatus>) -> (&'static str, String) {
    match (&run.outcome, status) {
        (Some(Outcome::Taught), _) => ("measured", String::new()),
        (Some(Outcome::Failed(why)), _) => ("failed", why.clone()),
        (None, Some(RunStatus::Open { state, detail })) => (state, detail.clone()),
        (None, _) => ("waiting", String::new()),
    }
}

/// What the speeds mean for sharing; `None` where none is known.
pub fn learnt(speeds: &[(CapStep, f64)]) -> Option<String> {
    let (narrowest, slowest) = *speeds.first()?;
    // A wider cap never helps: where it seems to hurt, that is noise.
    let enough = speeds.iter().rev().take_while(|(_, speed)| *speed >= SPEED_WHOLE).last();
    Some(match enough {
        Some((cap, speed)) if *cap == narrowest => format!(
            "With {} of the GPU it is still at {} of its speed: it leaves most of a GPU to a neighbour",
            percent(*cap),
            format::fraction(Some(*speed))
        ),
        Some((cap, speed)) => format!(
            "It keeps {} of its speed with {} of the GPU, and {} with {}: that much it needs beside a neighbour",
            format::fraction(Some(*speed)),
            percent(*cap),
            format::fraction(Some(slowest)),
            percent(narrowest)
        ),
        None => format!(
            "Every cap that was measured slows it, down to {} of its speed with {} of the GPU: it uses all of it",
            format::fraction(Some(slowest)),
            percent(narrowest)
        ),
    })
}

fn percent(cap: CapStep) -> String {
    format::fraction(Some(cap.into()))
}

/// The whole answer.
pub fn answer(campaign: &Campaign, known: &Known) -> Answer {
    let mut table = Table::new(&[">CAP", "JOBID", "STATE", "DETAIL"]);
    let mut runs = Vec::new();
    for (at, run) in campaign.runs.iter().enumerate() {
        let (state, detail) = state(run, known.statuses.get(at).and_then(Option::as_ref));
        table.push(vec![run.cap.to_string(), run.job_id.to_string(), state.to_owned(), detail.clone()]);
        runs.push(RunRow { cap_fraction: run.cap.into(), job_id: run.job_id.to_string(), state, detail });
    }
    let profile = known.profile.as_ref();
    let speeds: Vec<(CapStep, f64)> =
        profile.map(|profile| profile.speed_fractions_at_cap().collect()).unwrap_or_default();
    let learnt = learnt(&speeds);
    let rows =
        speeds.iter().map(|(cap, speed)| SpeedRow { cap_fraction: (*cap).into(), speed_fraction: *speed });
    let body = Characterized {
        workload: profile.map(|profile| profile.workload.as_str()),
        workload_name: known.workload_name.as_deref(),
        device_model: profile.map(|profile| profile.device_model.as_str()),
        runs,
        speeds: rows.collect(),
        learnt: learnt.clone(),
    };
    let mut answer = Answer::table(table, json::render(&body));
    if let (Some(profile), Some(learnt)) = (profile, learnt) {
        let lines = [
            String::new(),
            format!(
                "{} alone on {}: speed of that without a cap",
                known.workload_name.as_deref().unwrap_or(profile.workload.as_str()),
                profile.device_model
            ),
        ];
        let bars = speeds.iter().map(|(cap, speed)| format::bar_line(&format!("cap {cap}"), *speed));
        let lines = lines.into_iter().chain(bars).chain([String::new(), learnt]);
        answer.blocks.extend(lines.map(|line| Block::Line(format::clean(&line))));
    }
    answer
}

#[cfg(test)]
mod tests;
