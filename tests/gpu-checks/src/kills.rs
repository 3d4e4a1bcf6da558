//! What the end of one MPS client, at work, does to its neighbour: by each signal, alone and after `terminate_client`. And
//! what clients see when their server or daemon dies.

use crate::bench::{Bench, Limits};
use crate::kernels::Workload;
use crate::programs::now;
use crate::report::{Measured, table};
use crate::stats::cell;
use crate::tenant::{Fate, Tenant};
use pillion_device::MpsState;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a neighbour is watched afterwards.
const WATCH: Duration = Duration::from_secs(1);
const ENDS: [(&str, Signal, bool); 4] = [
    ("SIGTERM", Signal::TERM, false),
    ("SIGKILL", Signal::KILL, false),
    ("terminate_client, then SIGTERM", Signal::TERM, true),
    ("terminate_client, then SIGKILL", Signal::KILL, true),
];

/// What was seen of one end.
#[derive(Debug, Clone, PartialEq)]
struct Trial {
    neighbour: String,
    /// The server's state as the agent sees it.
    state: String,
    /// Whether a new client is let in.
    newcomer: String,
    /// How long `terminate_client` took, and what its client saw.
    termination: Option<(f64, String)>,
}

/// Ends clients, `count` times each way. `has_time`: false when no more may be begun.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn neighbours(bench: &mut Bench, count: usize, has_time: &dyn Fn() -> bool) -> Measured {
    let mut trials: [Vec<Trial>; ENDS.len()] = Default::default();
    // Round by round, so that time that runs out leaves all ways alike.
    for _ in 0..count {
        for ((_, signal, terminates), trials) in ENDS.into_iter().zip(&mut trials) {
            if has_time() {
                trials.push(trial(bench, signal, terminates)?);
            }
        }
    }
    let rows: Vec<Vec<String>> =
        ENDS.into_iter().zip(&trials).map(|((way, ..), trials)| row(way, trials)).collect();
    let heading = ["the client's end", "times", "its neighbour", "state afterwards", "a new client"];
    let mut text = table(&heading, rows);
    let terminations: Vec<&(f64, String)> =
        trials.iter().flatten().filter_map(|it| it.termination.as_ref()).collect();
    let seconds: Vec<f64> = terminations.iter().map(|(seconds, _)| *seconds).collect();
    let seen = counted(terminations.iter().map(|(_, seen)| seen.as_str()));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n`terminate_client` took {} s, median (range). Its client afterwards: {seen}.\n",
        cell(&seconds)
    );
    Ok((text, 0).into())
}

fn row(way: &str, trials: &[Trial]) -> Vec<String> {
    let column = |of: fn(&Trial) -> &str| counted(trials.iter().map(of));
    vec![
        way.to_owned(),
        trials.len().to_string(),
        column(|it| &it.neighbour),
        column(|it| &it.state),
        column(|it| &it.newcomer),
    ]
}

/// Each answer with how often it came.
fn counted<'a>(answers: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(answer, count)| format!("{answer}: {count}")).collect();
    if parts.is_empty() { "nothing seen".to_owned() } else { parts.join("; ") }
}

fn trial(bench: &mut Bench, signal: Signal, terminates: bool) -> Result<Trial, String> {
    bench.start()?;
    let seen = watched_end(bench, signal, terminates);
    // Its tenants have gone with it; a daemon that died is cleared away.
    bench.stop()?;
    seen
}

fn watched_end(bench: &mut Bench, signal: Signal, terminates: bool) -> Result<Trial, String> {
    let mut neighbour = bench.tenant(Workload::Compute, Limits::default())?;
    let mut victim = bench.tenant(Workload::Compute, Limits::default())?;
    bench.has_client(&neighbour)?;
    bench.has_client(&victim)?;
    let termination = if terminates {
        let begun = now();
        let answer = bench.terminate(victim.pid());
        let seconds = begun.elapsed().as_secs_f64();
        let fate = victim.watch(Duration::from_millis(300));
        Some((seconds, answer.err().unwrap_or_else(|| fate.to_string())))
    } else {
        None
    };
    victim.signal(signal);
    let has_ended = victim.ends(Duration::from_secs(5));
    let fate = neighbour.watch(WATCH);
    let state = state(bench);
    let newcomer = bench.tenant(Workload::Compute, Limits::default()).map(Tenant::leave);
    drop(victim);
    drop(neighbour);
    Ok(Trial {
        neighbour: if has_ended {
            fate.to_string()
        } else {
            format!("{fate}, beside a client that does not end")
        },
        state,
        newcomer: newcomer.err().unwrap_or_else(|| "is let in".to_owned()),
        termination,
    })
}

fn state(bench: &mut Bench) -> String {
    match bench.status() {
        Ok(Some(status)) => match status.state {
            MpsState::Starting => "starting".to_owned(),
            MpsState::Up => "up".to_owned(),
            MpsState::Draining => "draining".to_owned(),
            MpsState::Fault => "fault".to_owned(),
            MpsState::Died => "died".to_owned(),
        },
        Ok(None) => "no daemon".to_owned(),
        Err(reason) => reason,
    }
}

/// What a client sees when its server, or the control daemon, is killed.
///
/// # Errors
/// As [`neighbours`].
pub fn deaths(bench: &mut Bench) -> Measured {
    let mut rows = Vec::new();
    for (who, find) in [
        ("the MPS server", Bench::server_pid as fn(&Bench) -> Option<u32>),
        ("the control daemon", Bench::daemon_pid),
    ] {
        bench.start()?;
        let seen = death(bench, find);
        bench.stop()?;
        let (fate, state, newcomer) = seen?;
        rows.push(vec![who.to_owned(), fate.to_string(), state, newcomer]);
    }
    Ok((table(&["killed", "a client of it", "state afterwards", "a new client"], rows), 0).into())
}

fn death(bench: &mut Bench, find: fn(&Bench) -> Option<u32>) -> Result<(Fate, String, String), String> {
    let mut tenant = bench.tenant(Workload::Compute, Limits::default())?;
    bench.has_client(&tenant)?;
    let pid = find(bench).and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(pid.ok_or("it is not found")?, Signal::KILL).map_err(|error| error.to_string())?;
    let fate = tenant.watch(WATCH);
    let state = state(bench);
    let newcomer = bench.tenant(Workload::Compute, Limits::default()).map(Tenant::leave);
    Ok((fate, state, newcomer.err().unwrap_or_else(|| "is let in, or runs without MPS".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_counted_by_what_was_seen() {
        let trial = |neighbour: &str| Trial {
            neighbour: neighbour.to_owned(),
            state: "up".to_owned(),
            newcomer: "is let in".to_owned(),
            termination: None,
        };
        let trials = [trial("works on"), trial("hangs"), trial("works on")];
        assert_eq!(
            row("SIGKILL", &trials),
            ["SIGKILL", "3", "hangs: 1; works on: 2", "up: 3", "is let in: 3"]
        );
        assert_eq!(row("SIGTERM", &[])[1..], ["0", "nothing seen", "nothing seen", "nothing seen"]);
    }
}
