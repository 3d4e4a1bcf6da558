//! `pillion why JOB`: what it waits for and until when; or whether it shared, how fast it ran, and what made it slow.
//! Nothing of its neighbours is told, not even to operators: they ask `explain`.

use super::job_status::{ask, field, job_id, promise, render, say, share};
use crate::args::JobArgs;
use crate::client::Operator;
use crate::error::CliError;
use crate::format;
use crate::output::Answer;
use pillion_api::JobStatus;

/// Asks the scheduler. The second answer: whether it knows the job.
///
/// # Errors
/// As [`crate::client::answer`].
pub async fn fetch(client: &mut Operator, args: &JobArgs) -> Result<(Answer, bool), CliError> {
    let response = ask(client, args.job).await?;
    Ok((render(&response, args.job, lines), response.found))
}

fn lines(status: &JobStatus) -> Vec<String> {
    let mut lines = vec![heading(status)];
    if status.started_at_seconds.is_none() && status.ending.is_none() {
        let job = status.job.clone().unwrap_or_default();
        say(&mut lines, "Because", Some(job.reason.trim_start_matches("waits: ").to_owned()));
        say(&mut lines, "Since", Some(format::time_or_none(job.submitted_at_seconds)));
        say(&mut lines, "Until", job.starts_alone_at_seconds.map(until));
        say(&mut lines, "Promise", promise(status));
    } else {
        say(&mut lines, "Shared", shared(status));
        say(&mut lines, "Share", share(status));
        say(&mut lines, "Speed", speed(status));
        say(&mut lines, "Promise", promise(status));
        for (at, cause) in slow_because(status).into_iter().enumerate() {
            say(&mut lines, if at == 0 { "Slow because" } else { "and because" }, Some(cause));
        }
    }
    say(&mut lines, "Shadow", status.shadow.clone());
    for event in &status.events {
        lines.push(field(
            "Happened",
            &format!("{} {}: {}", format::time(event.at_seconds), event.kind, event.detail),
        ));
    }
    lines
}

fn heading(status: &JobStatus) -> String {
    let id = job_id(status);
    let place = match (&status.node, &status.decision) {
        (Some(node), Some(decision)) => format!(" on {node}, {}", decision.gpus()),
        (Some(node), None) => format!(" on {node}"),
        _ => String::new(),
    };
    match (status.elapsed_seconds(), &status.ending) {
        (Some(elapsed), Some(ending)) => {
            format!("Job {id} ended ({ending}) after {}{place}", format::duration(Some(elapsed)))
        }
        (Some(elapsed), None) => format!("Job {id} has run for {}{place}", format::duration(Some(elapsed))),
        (None, Some(ending)) => format!("Job {id} ended ({ending}) before it started"),
        (None, None) => format!("Job {id} is {}", status.state()),
    }
}

fn until(seconds: f64) -> String {
    format!("{}, should Pillion stop: from then on Slurm starts it alone", format::time(seconds))
}

fn shared(status: &JobStatus) -> Option<String> {
    // Of an observed partition, where Slurm gives GPUs whole.
    match status.held_devices.len() {
        0 => {}
        1 => return Some("no: Slurm gave it a whole GPU".to_owned()),
        count => return Some(format!("no: Slurm gave it {count} whole GPUs")),
    }
    let Some(fraction) = status.shared_fraction() else {
        let is_over = status.ending.is_some();
        return is_over.then(|| "not known: nothing was measured of this run".to_owned());
    };
    if fraction == 0.0 {
        return Some(format!("no: it had its {} to itself", status.gpu_word()));
    }
    let others = match status.neighbour_count {
        0 | 1 => "one other job".to_owned(),
        count => format!("{count} other jobs, one after the other or at once"),
    };
    Some(format!("{} of its time, with {others}", format::fraction(Some(fraction))))
}

fn speed(status: &JobStatus) -> Option<String> {
    let speed = status.speed_fraction?;
    let runs = status.profile.as_ref().and_then(|profile| profile.read().ok());
    let runs = runs.map_or(0, |profile| profile.run_count);
    let runs = if runs == 1 { "its one run alone".to_owned() } else { format!("its {runs} runs alone") };
    Some(format!("{} of that of {runs}", format::fraction(Some(speed))))
}

/// A sentence a cause; one that says so where it was not slow.
fn slow_because(status: &JobStatus) -> Vec<String> {
    if status.slow_causes.is_empty() {
        return status.speed_fraction.map(|_| "it was not slow".to_owned()).into_iter().collect();
    }
    status.slow_causes.iter().map(|cause| format!("{}: {}", cause.kind, cause.evidence)).collect()
}
