//! What the control program prints, word for word, and whether the agent's code takes it.

use crate::bench::{Bench, Limits, Served};
use crate::kernels::Workload;
use crate::life::verdicts;
use crate::programs::Said;
use crate::report::Measured;
use pillion_core::Fraction;
use std::fmt::Write as _;
use std::time::Duration;

/// What was said and what came back, in order.
#[derive(Debug, Default)]
pub struct Transcript(String);

impl Transcript {
    fn note(&mut self, command: &str, answer: &Result<Said, String>) {
        // Writing to a string cannot fail.
        let _ = match answer {
            Ok(Said { code, out, errors }) => {
                let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
                let errors =
                    if errors.is_empty() { String::new() } else { format!("! {}\n", errors.trim_end()) };
                writeln!(self.0, "> {command}\n{}{errors}= {code}\n", ended(out))
            }
            Err(reason) => writeln!(self.0, "> {command}\n? {reason}\n"),
        };
    }

    fn say(&mut self, bench: &Bench, command: &str) {
        let answer = bench.say(command);
        self.note(command, &answer);
    }

    /// All of it: `>` what was said, `!` its errors, `=` the exit code, `?` why there is none.
    pub fn text(&self) -> &str {
        &self.0
    }
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Asks for everything that the agent asks for, idle and with two clients.
///
/// # Errors
/// A sentence: why there is no daemon or no client.
pub fn record(bench: &mut Bench, transcript: &mut Transcript) -> Measured {
    let version = bench.call("-v");
    transcript.note("(program) -v", &version);
    let mut checks = Vec::new();
    bench.start()?;
    for command in ["help", "get_server_list", "ps", "get_device_client_list", "no_such_command", "lspart"] {
        transcript.say(bench, command);
    }
    transcript.say(bench, "get_default_active_thread_percentage");
    checks.push(("no client yet: state and lists are understood", bench.status().map(drop)));
    let pair = (
        bench.tenant(Workload::Compute, Limits::default()),
        bench.tenant(Workload::Compute, Limits::default()),
    );
    let (Ok(first), Ok(second)) = pair else {
        let reason = [pair.0.err(), pair.1.err()].into_iter().flatten().next().unwrap_or_default();
        bench.stop()?;
        return Err(reason);
    };
    let mut pids = vec![first.pid(), second.pid()];
    pids.sort_unstable();
    with_clients(bench, transcript);
    checks.push(("two clients: both are in the lists", clients_are(bench, &pids)));
    let terminated = bench.terminate(first.pid());
    checks.push(("terminate_client: found by `ps`, answered 0", terminated));
    transcript.say(bench, "ps");
    drop(first);
    let left = crate::programs::until(Duration::from_secs(5), || clients_are(bench, &[second.pid()]).is_ok());
    checks.push((
        "its neighbour alone is left",
        if left { Ok(()) } else { clients_are(bench, &[second.pid()]) },
    ));
    second.leave();
    checks.push(("the daemon ends when it is told", bench.stop()));
    let half = Fraction::clamped(0.625);
    checks.push((
        "a default of 62.5 is taken and read back",
        bench.start_for(&Served { cap_default: Some(half), ..Served::default() }),
    ));
    transcript.say(bench, "get_default_active_thread_percentage");
    transcript.say(bench, "quit -t 1");
    checks.push(("and cleared away", bench.stop()));
    checks.push((
        "-multiuser-server is known",
        bench.start_for(&Served { several_at_once: true, ..Served::default() }),
    ));
    checks.push(("and cleared away", bench.stop()));
    let (table, failed) = verdicts(&checks);
    Ok((format!("{table}\nWhat was printed is in the file beside this one.\n"), failed).into())
}

fn with_clients(bench: &Bench, transcript: &mut Transcript) {
    let server = bench.server_pid().unwrap_or_default();
    transcript.say(bench, "get_server_list");
    for command in
        ["get_server_status", "get_client_list", "get_device_client_list", "get_active_thread_percentage"]
    {
        transcript.say(bench, &format!("{command} {server}"));
    }
    transcript.say(bench, "ps");
    transcript.say(bench, &format!("ps -p {server}"));
    transcript.say(bench, "get_server_status 1");
    transcript.say(bench, &format!("terminate_client {server} 1"));
}

fn clients_are(bench: &mut Bench, expected: &[u32]) -> Result<(), String> {
    let mut found = bench.status()?.map(|status| status.client_pids).unwrap_or_default();
    found.sort_unstable();
    if found == expected {
        Ok(())
    } else {
        Err(format!("{} clients are listed, not {}", found.len(), expected.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_keeps_every_word() {
        let mut transcript = Transcript::default();
        let said =
            |out: &str, errors: &str, code| Ok(Said { code, out: out.to_owned(), errors: errors.to_owned() });
        transcript.note("ps", &said("PID ID\n1 2", "", Some(0)));
        transcript.note("nothing", &said("", "Unknown\n", Some(1)));
        transcript.note("quit", &Err("it did not end".to_owned()));
        let expected = "> ps\nPID ID\n1 2\n= 0\n\n> nothing\n! Unknown\n= 1\n\n> quit\n? it did not end\n\n";
        assert_eq!(transcript.text(), expected);
    }
}
