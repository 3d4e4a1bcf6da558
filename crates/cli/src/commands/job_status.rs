//! What `why` and `report` have in common: they ask for one job, and say the same of one that is not known.

use crate::client::{Operator, answer};
use crate::error::CliError;
use crate::format;
use crate::output::{Answer, Block, Table, json};
use pillion_api::{Decision, JobRequest, JobResponse, JobStatus};
use pillion_core::units::keeps_promise;
use pillion_core::{Shards, SlurmJobId};

/// Asks the scheduler; no status: it does not know the job, or the caller may not see it.
///
/// # Errors
/// As [`answer`].
pub(crate) async fn ask(client: &mut Operator, job: SlurmJobId) -> Result<JobResponse, CliError> {
    answer(client.job(JobRequest { job_id: job.to_string() })).await
}

/// Lines for people, and one row for scripts.
pub(super) fn render(
    response: &JobResponse,
    job: SlurmJobId,
    lines: impl Fn(&JobStatus) -> Vec<String>,
) -> Answer {
    let mut parsable = Table::new(&COLUMNS);
    let lines = match &response.status {
        Some(status) => {
            parsable.push(cells(status));
            lines(status)
        }
        None => vec![unknown(job)],
    };
    let blocks = lines.into_iter().map(Block::Line).collect();
    Answer { blocks, parsable, json: json::render(response) }
}

/// Why nothing is told of a job.
pub(super) fn unknown(job: SlurmJobId) -> String {
    format!(
        "Job {job} is not known to Pillion: it was submitted a moment ago, or without --colocate outside the \
         observed partitions, it is not yours, or it was forgotten after the site's time of keeping"
    )
}

const COLUMNS: [&str; 15] = [
    "JOBID",
    "STATE",
    "NODE",
    "DEVICE",
    "START",
    "END",
    "SHARED",
    "CAP",
    "SHARDS",
    "SPEED",
    "SHARED_SPEED",
    "PROMISE",
    "MEM_PEAK",
    "ENERGY_JOULES",
    "SLOW_BECAUSE",
];

fn cells(status: &JobStatus) -> Vec<String> {
    let member = status.member();
    let run = status.run.as_ref();
    let kinds: Vec<&str> = status.slow_causes.iter().map(|cause| cause.kind.as_str()).collect();
    vec![
        job_id(status).to_owned(),
        status.state().to_owned(),
        status.node.clone().unwrap_or_default(),
        status.decision.as_ref().map(|decision| decision.gres_type.clone()).unwrap_or_default(),
        format::time_or_none(status.started_at_seconds),
        format::time_or_none(status.ended_at_seconds),
        number(status.shared_fraction()),
        number(member.and_then(|member| member.cap_fraction)),
        member.map(|member| member.shards.to_string()).unwrap_or_default(),
        number(status.speed_fraction),
        number(member.and_then(|member| member.measured_speed_fraction)),
        number(member.and_then(|member| member.slowdown_ratio_max)),
        run.and_then(|run| run.memory_bytes_peak).map(|bytes| bytes.to_string()).unwrap_or_default(),
        number(run.and_then(|run| run.energy_joules)),
        kinds.join(","),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.4}")).unwrap_or_default()
}

/// Which job it is.
pub(super) fn job_id(status: &JobStatus) -> &str {
    status.job.as_ref().map_or("", |job| &job.job_id)
}

/// `  Name          value`.
pub(super) fn field(name: &str, value: &str) -> String {
    format!("  {name:<16}{value}")
}

/// Adds a field where something is known.
pub(super) fn say(lines: &mut Vec<String>, name: &str, value: Option<String>) {
    lines.extend(value.filter(|value| !value.is_empty()).map(|value| field(name, &value)));
}

/// What it may use of its device: cap, mode, shards, memory; `None` where nothing was decided.
pub(super) fn share(status: &JobStatus) -> Option<String> {
    let member = status.member()?;
    let device_count = status.decision.as_ref().map_or(1, Decision::device_count);
    if device_count > 1 && member.shards == u32::from(Shards::ALL.count()) {
        return Some(format!("all of {device_count} GPUs, which it shares with nobody"));
    }
    let each = if device_count > 1 { format!(" of each of {device_count} GPUs") } else { String::new() };
    let mut parts = vec![format!("{} of 100 shards{each} booked", member.shards)];
    if member.role == "interactive host" {
        parts.push("interactive: guests may use the GPU while it is idle".to_owned());
    }
    parts.extend(member.mig_slot.as_ref().map(|slot| format!("the MIG instance {slot}")));
    match (member.cap_fraction, member.ccs_mode) {
        (Some(cap), _) => {
            let whose = if member.mig_slot.is_some() { "its" } else { "the" };
            parts.push(format!("at most {:.0} % of {whose} compute units", cap * 100.0));
        }
        (None, Some(mode)) if mode > 1 => parts.push(format!("one of {mode} parts of the card")),
        _ if member.mig_slot.is_some() => {}
        _ => parts.push("no cap".to_owned()),
    }
    if let Some(bytes) = member.memory_limit_bytes {
        parts.push(format!("at most {} of GPU memory a process", format::bytes(Some(bytes))));
    }
    Some(parts.join(", "))
}

/// How it went against the promise; `None` where nobody promised anything yet.
pub(super) fn promise(status: &JobStatus) -> Option<String> {
    let member = status.member()?;
    let limit = format::ratio(Some(member.slowdown_ratio_max?));
    let Some(speed) = member.measured_speed_fraction.filter(|speed| *speed > 0.0) else {
        let shared = status.shared_fraction().unwrap_or(0.0);
        return Some(match status.ending {
            None => format!("at most {limit} its time alone"),
            Some(_) if shared == 0.0 => format!("at most {limit} its time alone; it was never shared"),
            Some(_) => format!("at most {limit} its time alone; how fast it went while shared is not known"),
        });
    };
    let took = format::ratio(Some(1.0 / speed));
    let verdict = if keeps_promise(speed, member.slowdown_ratio_max?) { "kept" } else { "BROKEN" };
    Some(format!("{verdict}: while shared it took {took} its time alone, at most {limit} was promised"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillion_api::Member;

    #[test]
    fn what_it_has_of_several_gpus_is_said_of_each() {
        let status = |gres_type: &str, shards| {
            let members = vec![Member { shards, ..Member::default() }];
            let decision = Decision { gres_type: gres_type.to_owned(), members, ..Decision::default() };
            JobStatus { decision: Some(decision), ..JobStatus::default() }
        };
        assert_eq!(share(&status("g0", 50)).unwrap(), "50 of 100 shards booked, no cap");
        assert_eq!(share(&status("g0,g1", 50)).unwrap(), "50 of 100 shards of each of 2 GPUs booked, no cap");
        assert_eq!(share(&status("g0,g1", 100)).unwrap(), "all of 2 GPUs, which it shares with nobody");
    }
}
