//! One client process, started and watched: its speed, and what becomes of it.

use crate::client::Line;
use crate::cuda::{CudaError, Facts};
use crate::kernels::Workload;
use crate::programs::{command, end, now, until, with_cuda_variables};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a client may take to have its device: the first one also waits for an MPS server, and for the compiler.
const READY_DEADLINE: Duration = Duration::from_secs(20);
/// What a client that nobody ends runs at most.
const SECONDS_MAX: &str = "120";

/// What became of a client in a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// It went on, at so many iterations a second.
    Works(f64),
    /// CUDA failed.
    Failed(CudaError),
    /// Its process ended without a word.
    Ended,
    /// Its process is there and got nowhere.
    Hangs,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Works(_) => f.write_str("works on"),
            Self::Failed(error) if error.code < 0 => write!(f, "{}: {}", error.call, error.name),
            Self::Failed(error) => write!(f, "{} returned {} ({})", error.call, error.name, error.code),
            Self::Ended => f.write_str("ended without a word"),
            Self::Hangs => f.write_str("hangs"),
        }
    }
}

/// What the lines of a time tell. `is_alive`: whether the process still is.
pub fn fate(lines: &[Line], is_alive: bool) -> Fate {
    let mut points = Vec::new();
    for line in lines {
        match line {
            Line::Failed(error) => return Fate::Failed(error.clone()),
            Line::Progress { seconds, iterations } => points.push((*seconds, *iterations)),
            Line::Ready(_) => {}
        }
    }
    if !is_alive {
        return Fate::Ended;
    }
    match (points.first(), points.last()) {
        (Some((from, before)), Some((to, after))) if after > before && to > from => {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
            let iterations = (after - before) as f64;
            Fate::Works(iterations / (to - from))
        }
        _ => Fate::Hangs,
    }
}

/// Which client is started.
#[derive(Debug, Clone)]
pub struct Client {
    /// What it runs.
    pub workload: Workload,
    /// Its variables; of ours it has no other that CUDA knows.
    pub variables: Vec<(String, String)>,
    /// Device memory that it holds beyond what its workload needs.
    pub held_bytes: u64,
    /// The user and the program, if not ours: others may not be allowed to run that.
    pub other_user: Option<(u32, PathBuf)>,
}

impl Client {
    /// Of our own user, with no more memory than it needs.
    pub fn new(workload: Workload, variables: Vec<(String, String)>) -> Self {
        Self { workload, variables, held_bytes: 0, other_user: None }
    }
}

/// A client process; ended with this value.
pub struct Tenant {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Line>,
    /// The device as it sees it.
    pub facts: Facts,
}

impl Tenant {
    /// Starts a client, and waits until it has its device.
    ///
    /// # Errors
    /// A sentence: why it has none.
    pub fn start(client: &Client) -> Result<Self, String> {
        let mut command = match &client.other_user {
            None => command(std::env::current_exe().map_err(|error| error.to_string())?),
            Some((uid, program)) => {
                let mut command = command(program);
                command.uid(*uid).gid(*uid).current_dir("/");
                command
            }
        };
        command.args(["client", "--workload", client.workload.name(), "--seconds", SECONDS_MAX]);
        command.args(["--held-bytes", &client.held_bytes.to_string()]);
        with_cuda_variables(&mut command, &client.variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().map_err(|error| format!("no client: {error}"))?;
        let input = process.stdin.take();
        let output = process.stdout.take().ok_or("a client without output")?;
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str(&line) else { continue };
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        match ready(&lines) {
            Ok(facts) => Ok(Self { process, input, lines, facts }),
            Err(reason) => {
                end(&mut process);
                Err(reason)
            }
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What becomes of it in this time. What was said before does not count.
    pub fn watch(&mut self, time: Duration) -> Fate {
        // A failure just before the watch is what it would find.
        let mut lines: Vec<Line> =
            self.lines.try_iter().filter(|line| matches!(line, Line::Failed(_))).collect();
        let begun = now();
        while let Some(left) = time.checked_sub(begun.elapsed()) {
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                // Its time is over, or the process has closed its output: then it ends.
                Err(_) => break,
            }
        }
        let is_alive = !has_ended(&mut self.process) && begun.elapsed() >= time;
        fate(&lines, is_alive)
    }

    /// Its speed over this time, in iterations a second.
    ///
    /// # Errors
    /// A sentence: what became of it instead.
    pub fn speed(&mut self, time: Duration) -> Result<f64, String> {
        match self.watch(time) {
            Fate::Works(speed) => Ok(speed),
            other => Err(format!("a client {other}")),
        }
    }

    /// Lets it run for a while, too short perhaps for a speed.
    ///
    /// # Errors
    /// A sentence: it failed, or ended.
    pub fn run_on(&mut self, time: Duration) -> Result<(), String> {
        match self.watch(time) {
            Fate::Works(_) | Fate::Hangs => Ok(()),
            other => Err(format!("a client {other}")),
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // It has ended by itself: as good.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end; false if it does not come.
    pub fn ends(&mut self, deadline: Duration) -> bool {
        until(deadline, || has_ended(&mut self.process))
    }

    /// Lets it end well.
    pub fn leave(mut self) {
        drop(self.input.take());
        self.ends(Duration::from_secs(3));
    }
}

fn ready(lines: &Receiver<Line>) -> Result<Facts, String> {
    match lines.recv_timeout(READY_DEADLINE) {
        Ok(Line::Ready(facts)) => Ok(facts),
        Ok(Line::Failed(error)) => Err(format!("a client has no device: {}", Fate::Failed(error))),
        Ok(Line::Progress { .. }) => Err("a client said something unexpected".to_owned()),
        Err(_) => Err("a client does not get its device in time, or ended".to_owned()),
    }
}

fn has_ended(process: &mut Child) -> bool {
    !matches!(process.try_wait(), Ok(None))
}

impl Drop for Tenant {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(seconds: f64, iterations: u64) -> Line {
        Line::Progress { seconds, iterations }
    }

    #[test]
    fn lines_tell_what_became_of_a_client() {
        let error = CudaError { call: "cuCtxSynchronize".into(), code: 805, name: "CUDA_ERROR_MPS".into() };
        let going = [progress(1.0, 100), progress(1.5, 150), progress(3.0, 300)];
        assert_eq!(fate(&going, true), Fate::Works(100.0));
        assert_eq!(fate(&going, false), Fate::Ended);
        assert_eq!(fate(&[], true), Fate::Hangs);
        assert_eq!(fate(&[progress(1.0, 5)], true), Fate::Hangs, "one line is no speed");
        assert_eq!(fate(&[progress(1.0, 5), progress(2.0, 5)], true), Fate::Hangs);
        let failed = [progress(1.0, 100), Line::Failed(error.clone())];
        assert_eq!(fate(&failed, false), Fate::Failed(error));
        assert_eq!(fate(&failed, true).to_string(), "cuCtxSynchronize returned CUDA_ERROR_MPS (805)");
        let missing = CudaError { call: "libcuda.so.1".into(), code: -1, name: "no such file".into() };
        assert_eq!(Fate::Failed(missing).to_string(), "libcuda.so.1: no such file");
    }
}
