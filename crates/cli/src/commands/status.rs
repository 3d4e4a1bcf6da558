//! `pillion status`: how the scheduler and its agents are.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{AgentStatus, DeviceStatus, StatusRequest, StatusResponse};
use std::collections::BTreeSet;

/// Asks the scheduler.
///
/// # Errors
/// As [`answer`].
pub async fn fetch(client: &mut Operator) -> Result<Answer, CliError> {
    Ok(show(&ask(client).await?))
}

/// How the scheduler is. Who was not let in is named as it named itself, which may be anything.
pub(crate) async fn ask(client: &mut Operator) -> Result<StatusResponse, CliError> {
    let mut status = answer(client.status(StatusRequest {})).await?;
    for refused in &mut status.refused {
        for text in [&mut refused.who, &mut refused.address, &mut refused.why] {
            *text = format::clean(text);
        }
    }
    Ok(status)
}

fn show(status: &StatusResponse) -> Answer {
    let agents = agents(&status.agents);
    let lines = [
        ("Scheduler", scheduler(status)),
        (
            "Leading",
            if status.leading { "yes" } else { "no: another scheduler does, or the database is lost" }
                .to_owned(),
        ),
        ("Slurm", slurm(status)),
        ("Pool", list(&status.pool_partitions)),
        ("Database", status.database.clone()),
        ("Last scan", format::time_or_none(status.last_scan_at_seconds)),
        ("Revision", status.revision.to_string()),
        ("Bound", format::duration(Some(f64::from(u32::try_from(status.bound_seconds).unwrap_or(u32::MAX))))),
        ("Misses", status.miss_count.to_string()),
        ("Violations", status.violation_count.to_string()),
        ("Dropped lines", status.dropped_line_count.to_string()),
    ];
    let mut blocks: Vec<Block> =
        lines.iter().map(|(name, value)| Block::Line(format!("{name:<15}{}", or_dash(value)))).collect();
    if !agents.is_empty() {
        blocks.push(Block::Line(String::new()));
        blocks.push(Block::Table(agents.clone(), 0));
    }
    Answer { blocks, parsable: agents, json: json::render(status) }
}

/// What Slurm is not good enough for stands beside Slurm.
fn scheduler(status: &StatusResponse) -> String {
    let known = format!("{}, mode {}", status.scheduler_version, status.mode);
    match &status.not_acting {
        Some(why) if status.slurm_refusal.is_none() => format!("{known}: NOT ACTING: {}", format::clean(why)),
        _ => known,
    }
}

fn slurm(status: &StatusResponse) -> String {
    match &status.slurm_refusal {
        None => status.slurm_version.clone(),
        Some(why) => format!("{}: NOT ACTING: {why}", status.slurm_version),
    }
}

fn list(words: &[String]) -> String {
    words.join(",")
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// An agent that is not responding has no clock; what rounds to nothing has no sign.
fn skew(agent: &AgentStatus) -> String {
    let tenths = (agent.clock_skew_seconds * 10.0).round();
    match (agent.connected, tenths == 0.0) {
        (false, _) => String::new(),
        (true, true) => "0.0 s".to_owned(),
        (true, false) => format!("{:+.1} s", tenths / 10.0),
    }
}

fn agents(agents: &[AgentStatus]) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "AGENT",
        "VERSION",
        "LAST_SEEN",
        ">CLOCK_SKEW",
        ">DEVICES",
        "MODELS",
        "MECHANISM",
    ]);
    for agent in agents {
        table.push(vec![
            agent.node.clone(),
            if agent.connected { "connected" } else { "not-responding" }.to_owned(),
            agent.version.clone(),
            format::time_or_none(agent.last_seen_at_seconds),
            skew(agent),
            agent.devices.len().to_string(),
            distinct(agent, |device| &device.model),
            distinct(agent, |device| &device.mechanism),
        ]);
    }
    table
}

/// What its devices have, each once: `a100,h100`.
fn distinct(agent: &AgentStatus, word: fn(&DeviceStatus) -> &str) -> String {
    let words: BTreeSet<&str> = agent.devices.iter().map(word).collect();
    words.into_iter().collect::<Vec<_>>().join(",")
}
