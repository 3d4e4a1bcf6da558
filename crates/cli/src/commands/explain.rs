//! `pillion explain JOB`: what was decided, why, what else was considered, and what came of it; days later too.
//!
//! The scheduler leaves partner workloads out for those who may not see them; here they show as "(not shown)".

use super::job_status::unknown;
use crate::args::JobArgs;
use crate::client::{Operator, answer};
use crate::commands::pairs::cap;
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{
    Candidate, Decision, Estimate, Event, ExplainRequest, ExplainResponse, JobExplanation, Member, QueueJob,
};
use pillion_core::SlurmJobId;
use std::fmt::Write as _;

/// Asks the scheduler. The second answer: whether it knows the job.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator, args: &JobArgs) -> Result<(Answer, bool), CliError> {
    let response = answer(client.explain(ExplainRequest { job_id: args.job.to_string() })).await?;
    let found = response.found;
    Ok((show(args.job, &response), found))
}

fn show(job: SlurmJobId, response: &ExplainResponse) -> Answer {
    let job_id = job.to_string();
    let mut parsable = Table::new(&COLUMNS);
    let mut blocks = Vec::new();
    if response.found {
        job_blocks(&job_id, response.job.as_ref(), &mut blocks);
        field(&mut blocks, "Shadow", &format::clean(response.shadow.as_deref().unwrap_or_default()));
        for decision in &response.decisions {
            decision_blocks(decision, &job_id, &mut blocks);
        }
        // The newest says how it stands now; the way there is told from the oldest on.
        for considered in &response.explanations {
            considered_blocks(considered, &mut blocks);
            let candidates = considered.explanation.iter().flat_map(|explanation| &explanation.candidates);
            for candidate in candidates {
                let mut row = vec![considered.revision.to_string(), format::time(considered.at_seconds)];
                row.extend(candidate_cells(candidate));
                parsable.push(row);
            }
        }
        event_blocks(&response.events, &mut blocks);
    } else {
        blocks.push(Block::Line(unknown(job)));
    }
    Answer { blocks, parsable, json: json::render(response) }
}

fn line(blocks: &mut Vec<Block>, text: String) {
    blocks.push(Block::Line(text));
}

fn job_blocks(job_id: &str, job: Option<&QueueJob>, blocks: &mut Vec<Block>) {
    let Some(job) = job else {
        return line(blocks, format!("Job {job_id}"));
    };
    let account = if job.account.is_empty() { String::new() } else { format!("account {}, ", job.account) };
    line(blocks, format!("Job {} of {} ({account}partition {})", job.job_id, job.user, job.partition));
    field(blocks, "Workload", &format::shown(job.workload_name.as_ref()));
    field(blocks, "Submitted", &format::time_or_none(job.submitted_at_seconds));
    field(blocks, "State", &job.state);
    field(blocks, "Why", &job.reason);
    if let Some(at) = job.starts_alone_at_seconds {
        field(blocks, "Starts alone", &format!("{} at the latest", format::time(at)));
    }
    if let Some(ratio) = job.slowdown_ratio_max {
        let promise = format!("takes at most {} its time alone", format::ratio(Some(ratio)));
        field(blocks, "Promise", &promise);
    }
}

fn field(blocks: &mut Vec<Block>, name: &str, value: &str) {
    if !value.is_empty() {
        line(blocks, format!("  {name:<14}{value}"));
    }
}

fn decision_blocks(decision: &Decision, job_id: &str, blocks: &mut Vec<Block>) {
    line(blocks, String::new());
    let joined = if decision.group_id == decision.decision_id {
        String::new()
    } else {
        format!(", joins decision {}", decision.group_id)
    };
    let made = format::time(decision.created_at_seconds);
    line(blocks, format!("Decision {}, made {made}: {}{joined}", decision.decision_id, decision.state));
    line(
        blocks,
        format!(
            "  {} {} ({}), mechanism {}, expected gain {}",
            decision.node,
            decision.gres_type,
            decision.device_model,
            decision.mechanism,
            format::fraction(Some(decision.gain))
        ),
    );
    if let Some(why) = &decision.abandoned_reason {
        line(blocks, format!("  given up: {why}"));
    }
    blocks.push(Block::Table(decided(decision), 2));
    if decision.members.iter().any(|member| member.started_at_seconds.is_some()) {
        blocks.push(Block::Table(came_of_it(decision), 2));
    }
    for member in decision.members.iter().filter(|member| member.job_id.as_deref() == Some(job_id)) {
        for text in verdict(member) {
            line(blocks, format!("  {text}"));
        }
    }
}

/// What was decided for each member.
fn decided(decision: &Decision) -> Table {
    let columns = [
        "JOBID",
        "USER",
        "WORKLOAD",
        "ROLE",
        ">CAP",
        ">SHARDS",
        ">MEMORY_LIMIT",
        ">EXPECTED",
        ">AT_LEAST",
        ">PROMISE",
    ];
    let mut table = Table::new(&columns);
    for member in &decision.members {
        table.push(vec![
            format::shown(member.job_id.as_ref()),
            format::shown(member.user.as_ref()),
            format::shown(member.workload_name.as_ref()),
            member.role.clone(),
            cap(member),
            member.shards.to_string(),
            format::bytes(member.memory_limit_bytes),
            format::fraction(member.predicted_speed_fraction),
            format::fraction(member.predicted_speed_fraction_low),
            format::ratio(member.slowdown_ratio_max),
        ]);
    }
    table
}

/// What came of it.
fn came_of_it(decision: &Decision) -> Table {
    let columns = ["JOBID", "STATE", "START", "END", ">MEASURED", ">SOLO_TIME", ">ENERGY"];
    let mut table = Table::new(&columns);
    for member in &decision.members {
        table.push(vec![
            format::shown(member.job_id.as_ref()),
            member.state.clone(),
            format::time_or_none(member.started_at_seconds),
            format::time_or_none(member.ended_at_seconds),
            format::fraction(member.measured_speed_fraction),
            format::duration(member.solo_duration_seconds),
            format::energy(member.energy_joules),
        ]);
    }
    table
}

/// Predicted against measured, and the promise, a sentence each; nothing before it was measured.
fn verdict(member: &Member) -> Vec<String> {
    let Some(measured) = member.measured_speed_fraction.filter(|speed| *speed > 0.0) else {
        return Vec::new();
    };
    let mut text = format!("It ran at {} of its speed alone", format::fraction(Some(measured)));
    if let Some(predicted) = member.predicted_speed_fraction {
        let _ = write!(text, "; {} was expected", format::fraction(Some(predicted)));
    }
    if let Some(low) = member.predicted_speed_fraction_low {
        let side = if measured >= low { "above" } else { "BELOW" };
        let _ = write!(text, ", {side} the pessimistic {}", format::fraction(Some(low)));
    }
    let promise = member.slowdown_ratio_max.map(|promise| {
        let slowdown = 1.0 / measured;
        let kept = if pillion_core::units::keeps_promise(measured, promise) { "kept" } else { "BROKEN" };
        format!(
            "Promise {kept}: it took {} its time alone, at most {} was promised",
            format::ratio(Some(slowdown)),
            format::ratio(Some(promise))
        )
    });
    std::iter::once(text).chain(promise).collect()
}

fn considered_blocks(considered: &JobExplanation, blocks: &mut Vec<Block>) {
    line(blocks, String::new());
    let at = format!("Considered {} (revision {})", format::time(considered.at_seconds), considered.revision);
    let Some(explanation) = &considered.explanation else {
        return line(blocks, format!("{at}: the scheduler is of another version of Pillion"));
    };
    line(blocks, format!("{at}, model {}", explanation.model));
    line(blocks, format!("  {}: {}", explanation.reason, explanation.text));
    if explanation.candidates.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["PARTNER", "WORKLOAD", "RUNNING", "CAPS", "OWN", "OTHER", ">GAIN", "RESULT"]);
    for candidate in explanation.candidates.iter().take(CANDIDATES_SHOWN) {
        table.push(narrow_cells(candidate));
    }
    blocks.push(Block::Table(table, 2));
    if let Some(more @ 1..) = explanation.candidates.len().checked_sub(CANDIDATES_SHOWN) {
        line(blocks, format!("  and {more} more, which --json and --parsable2 name"));
    }
    estimate_blocks(&explanation.candidates, blocks);
}

/// What the estimate that decided is made of: beside the chosen partner, else beside the best of those that were excluded.
fn estimate_blocks(candidates: &[Candidate], blocks: &mut Vec<Block>) {
    let chosen = candidates.iter().find(|candidate| candidate.chosen);
    let Some(candidate) = chosen.or_else(|| candidates.iter().find(|each| terms_of(each).is_some())) else {
        return;
    };
    let Some(own) = terms_of(candidate) else { return };
    let partner = match (&candidate.partner, candidate.chosen) {
        (Some(partner), true) => format!("{partner}, its partner"),
        (Some(partner), false) => format!("{partner}, its best partner"),
        (None, true) => "its partner".to_owned(),
        (None, false) => "its best partner".to_owned(),
    };
    line(blocks, format!("  Beside {partner}, it was expected at {}, from:", uncertain(own)));
    let mut columns = vec!["TERM", ">OWN"];
    if candidate.other.is_some() {
        columns.push(">OTHER");
    }
    let mut table = Table::new(&columns);
    for (name, value) in &own.terms {
        let mut row = vec![name.clone(), format!("{value:.3}")];
        if let Some(other) = &candidate.other {
            row.push(other.terms.get(name).map(|value| format!("{value:.3}")).unwrap_or_default());
        }
        table.push(row);
    }
    blocks.push(Block::Table(table, 4));
}

/// A candidate's own estimate, where it says what it is made of.
fn terms_of(candidate: &Candidate) -> Option<&Estimate> {
    candidate.own.as_ref().filter(|own| !own.terms.is_empty())
}

/// `85 % +- 3 % of its speed alone (at least 81 %)`.
fn uncertain(estimate: &Estimate) -> String {
    let deviation = if estimate.speed_fraction_deviation > 0.0 {
        format!(" +- {}", format::fraction(Some(estimate.speed_fraction_deviation)))
    } else {
        String::new()
    };
    format!(
        "{}{deviation} of its speed alone (at least {})",
        format::fraction(Some(estimate.speed_fraction)),
        format::fraction(Some(estimate.speed_fraction_low))
    )
}

/// So many candidates are shown to people: they come best first.
const CANDIDATES_SHOWN: usize = 4;

const COLUMNS: [&str; 14] = [
    ">REVISION",
    "TIME",
    "PARTNER",
    "WORKLOAD",
    "RUNNING",
    ">OWN_CAP",
    ">OTHER_CAP",
    ">OWN",
    ">OWN_LOW",
    ">OTHER",
    ">OTHER_LOW",
    ">GAIN",
    "RESULT",
    "RULE",
];

fn candidate_cells(candidate: &Candidate) -> [String; 12] {
    let caps = candidate.cap_fractions.unwrap_or_default();
    let result = match (candidate.chosen, &candidate.excluded_by) {
        (true, _) => "chosen",
        (false, None) => "allowed",
        (false, Some(_)) => "excluded",
    };
    let [own, own_low] = speed_cells(candidate.own.as_ref());
    let [other, other_low] = speed_cells(candidate.other.as_ref());
    [
        format::shown(candidate.partner.as_ref()),
        format::shown(candidate.workload_name.as_ref().or(candidate.workload.as_ref())),
        if candidate.is_running { "yes" } else { "no" }.to_owned(),
        format::cap(caps.own),
        format::cap(caps.other),
        own,
        own_low,
        other,
        other_low,
        format::fraction(candidate.gain),
        result.to_owned(),
        candidate.rule().unwrap_or_default().to_owned(),
    ]
}

/// A speed and its pessimistic bound.
fn speed_cells(estimate: Option<&Estimate>) -> [String; 2] {
    [
        format::fraction(estimate.map(|estimate| estimate.speed_fraction)),
        format::fraction(estimate.map(|estimate| estimate.speed_fraction_low)),
    ]
}

/// The same for people: speeds with their pessimistic bound in brackets, caps as own/other.
fn narrow_cells(candidate: &Candidate) -> Vec<String> {
    let [partner, workload, running, own_cap, other_cap, own, own_low, other, other_low, gain, result, rule] =
        candidate_cells(candidate);
    let caps = if own_cap == other_cap { own_cap } else { format!("{own_cap}/{other_cap}") };
    let result = if rule.is_empty() { result } else { rule };
    vec![partner, workload, running, caps, bounded(&own, &own_low), bounded(&other, &other_low), gain, result]
}

fn bounded(speed: &str, low: &str) -> String {
    if speed.is_empty() { String::new() } else { format!("{speed} ({low})") }
}

fn event_blocks(events: &[Event], blocks: &mut Vec<Block>) {
    if events.is_empty() {
        return;
    }
    line(blocks, String::new());
    line(blocks, "Events".to_owned());
    let mut table = Table::new(&["TIME", "EVENT", "NODE", "DETAIL"]);
    for event in events {
        table.push(vec![
            format::time(event.at_seconds),
            event.kind.clone(),
            event.node.clone().unwrap_or_default(),
            event.detail.clone(),
        ]);
    }
    blocks.push(Block::Table(table, 2));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_whether_the_promise_was_kept() {
        let member = |measured| Member {
            predicted_speed_fraction: Some(0.93),
            predicted_speed_fraction_low: Some(0.86),
            measured_speed_fraction: measured,
            slowdown_ratio_max: Some(1.25),
            ..Member::default()
        };
        assert_eq!(verdict(&member(None)), [""; 0]);
        let kept = verdict(&member(Some(0.91))).join("\n");
        assert!(
            kept.contains("Promise kept: it took 1.10x") && kept.contains("above the pessimistic 86 %"),
            "{kept}"
        );
        let broken = verdict(&member(Some(0.5))).join("\n");
        assert!(broken.contains("Promise BROKEN") && broken.contains("BELOW"), "{broken}");
    }
}
