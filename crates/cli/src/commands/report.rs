//! `pillion report JOB`: one screen, in the manner of `seff`: what it used of its GPU, what it cost, and what to do next time.

use super::job_status::{ask, promise, render, say, share};
use crate::args::JobArgs;
use crate::client::Operator;
use crate::error::CliError;
use crate::format;
use crate::output::Answer;
use pillion_api::{HeldDevice, JobStatus};
use pillion_core::amount::Amount;
use pillion_core::event::EventKind;
use pillion_core::metric::{Metric, Metrics};
use pillion_core::profile::LessonKind;

/// Asks the scheduler. The second answer: whether it knows the job.
///
/// # Errors
/// As [`crate::client::answer`].
pub async fn fetch(client: &mut Operator, args: &JobArgs) -> Result<(Answer, bool), CliError> {
    let response = ask(client, args.job).await?;
    Ok((render(&response, args.job, lines), response.found))
}

fn lines(status: &JobStatus) -> Vec<String> {
    let job = status.job.clone().unwrap_or_default();
    let account = if job.account.is_empty() { String::new() } else { format!(", account {}", job.account) };
    let mut lines = vec![format!("Job {} of {}{account}", job.job_id, job.user)];
    say(&mut lines, "Workload", job.workload_name);
    say(&mut lines, "State", Some(status.state().to_owned()));
    say(&mut lines, "GPU", device(status));
    for held in &status.held_devices {
        say(&mut lines, "GPU", Some(held_device(held)));
    }
    say(&mut lines, "Waited", waited(status));
    say(&mut lines, "Ran", ran(status));
    say(&mut lines, "Share", share(status));
    say(&mut lines, "GPU activity", activity(status));
    say(&mut lines, "GPU memory", memory(status));
    say(&mut lines, "Energy", energy(status));
    say(&mut lines, "Promise", promise(status));
    let speed = status.speed_fraction;
    let speed = speed.map(|speed| format!("{} of its runs alone", format::fraction(Some(speed))));
    say(&mut lines, "Speed", speed);
    for event in status.events.iter().filter(|event| event.kind.parse() == Ok(EventKind::Evicted)) {
        say(&mut lines, "Restarted", Some(format!("{} {}", format::time(event.at_seconds), event.detail)));
    }
    say(&mut lines, "Advice", status.advice.clone());
    say(&mut lines, "Taught", taught(status));
    for sentence in status.rightsizing.iter().flat_map(|row| &row.sentences) {
        say(&mut lines, "Less", Some(sentence.clone()));
    }
    if status.run.is_none() && status.held_devices.is_empty() {
        let why = if status.ending.is_some() {
            "Nothing was measured of this run: the node's agent was not responding, or the job did not use its GPU"
        } else {
            "What it used is measured when it has ended"
        };
        lines.push(format!("  {why}"));
    }
    lines
}

/// What this run taught of its workload.
fn taught(status: &JobStatus) -> Option<String> {
    let cap = status.member().and_then(|member| member.cap_fraction).unwrap_or(1.0);
    Some(match status.lesson()? {
        LessonKind::Alone => "how the workload runs alone".to_owned(),
        LessonKind::Capped => {
            format!("how fast the workload is alone with {} of a GPU", format::fraction(Some(cap)))
        }
        LessonKind::Nothing => {
            format!("nothing: {}", status.lesson_detail.as_deref().unwrap_or("it is not known why"))
        }
        LessonKind::Shared => return None,
    })
}

/// What was seen of a device that a start of an observed partition holds.
fn held_device(held: &HeldDevice) -> String {
    let place = format!("{} {}", held.node, held.gres_type);
    if held.seen_seconds <= 0.0 {
        return format!("{place}: nobody has looked at it");
    }
    let unused = if held.was_used { "" } else { ", never used by the job" };
    let (idle, seen) = (format::duration(Some(held.idle_seconds)), format::duration(Some(held.seen_seconds)));
    format!("{place}: {idle} of {seen} without work (busy under 5 %){unused}")
}

fn device(status: &JobStatus) -> Option<String> {
    let node = status.node.as_ref()?;
    let decision = status.decision.as_ref()?;
    Some(format!(
        "{node} {} ({}), mechanism {}",
        decision.gres_type, decision.device_model, decision.mechanism
    ))
}

fn waited(status: &JobStatus) -> Option<String> {
    let until = status.started_at_seconds.unwrap_or(status.now_seconds);
    Some(format::duration(Some((until - status.job.as_ref()?.submitted_at_seconds?).max(0.0))))
}

fn ran(status: &JobStatus) -> Option<String> {
    let elapsed = format::duration(Some(status.elapsed_seconds()?));
    Some(match status.shared_fraction() {
        Some(fraction) if fraction > 0.0 => {
            format!("{elapsed}, beside another job for {} of it", format::fraction(Some(fraction)))
        }
        Some(_) => format!("{elapsed}, with the {} to itself", status.gpu_word()),
        None => elapsed,
    })
}

/// While it was alone; of a run that never was, as its workload usually is.
fn activity(status: &JobStatus) -> Option<String> {
    let own = status.summary().and_then(|run| run.solo_means).map(|means| compute_and_bandwidth(&means.0));
    let usual = status.profile.as_ref().and_then(|profile| profile.read().ok());
    let usual = usual.map(|profile| compute_and_bandwidth(&profile.metrics));
    let ([active, bandwidth], when) = match (own, usual) {
        (Some(own), _) if own != [None, None] => (own, "while alone"),
        (_, Some(usual)) => (usual, "in its runs alone"),
        _ => return None,
    };
    let mut parts = Vec::new();
    for (name, value) in [("compute units", active), ("memory bandwidth", bandwidth)] {
        parts.extend(value.map(|value| format!("{name} {}", format::fraction(Some(value)))));
    }
    (!parts.is_empty()).then(|| format!("{} ({when})", parts.join(", ")))
}

fn compute_and_bandwidth(metrics: &Metrics) -> [Option<f64>; 2] {
    [Metric::SmActiveFraction, Metric::MemoryBandwidthFraction].map(|metric| metrics.get(metric))
}

fn memory(status: &JobStatus) -> Option<String> {
    let bytes_peak = status.run.as_ref()?.memory_bytes_peak?;
    let peak = format::bytes(Some(bytes_peak));
    let limit = status.member().and_then(|member| member.memory_limit_bytes);
    let (whole, name) = match (limit, status.memory_bytes_declared) {
        (Some(limit), _) => (limit, "its limit of"),
        (None, Some(declared)) => (declared, "the declared"),
        (None, None) => return Some(format!("{peak} at most")),
    };
    #[expect(clippy::cast_precision_loss, reason = "a part in percent")]
    let part = format::fraction(Some(bytes_peak as f64 / whole.max(1) as f64));
    Some(format!("{peak} at most: {part} of {name} {}", format::bytes(Some(whole))))
}

fn energy(status: &JobStatus) -> Option<String> {
    let joules = status.run.as_ref()?.energy_joules?;
    let shared = status.shared_fraction().is_some_and(|fraction| fraction > 0.0);
    let part = if shared { ", its part of the GPU's" } else { "" };
    Some(format!("{}{part}", Amount::energy(joules)))
}
