//! Programs, run and given up when they take too long; and the time.

use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether something has happened.
pub const STEP: Duration = Duration::from_millis(5);

/// What a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub errors: String,
}

/// The time on the clock that never goes back.
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "it measures real hardware in real time")]
    Instant::now()
}

/// A program to be run.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "NVIDIA's programs are what is checked")]
    Command::new(program)
}

/// Gives a program these variables, and of ours no other that CUDA knows.
pub fn with_cuda_variables(command: &mut Command, variables: &[(String, String)]) {
    for name in std::env::vars_os().map(|(name, _)| name) {
        if name.to_string_lossy().starts_with("CUDA_") {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
}

/// Waits until `holds`, `deadline` at most.
pub fn until(deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = now();
    loop {
        if holds() {
            return true;
        }
        if begun.elapsed() >= deadline {
            return false;
        }
        std::thread::sleep(STEP);
    }
}

/// Runs a program with `input` on its standard input.
///
/// # Errors
/// A sentence: it cannot be run, or took longer than `deadline` and was killed.
pub fn run(mut command: Command, input: &str, deadline: Duration) -> Result<Said, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that wants no input may have closed it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (out, errors) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let mut status = None;
    let ended = until(deadline, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    if !ended {
        end(&mut child);
        return Err(format!("{name} did not end within {} s", deadline.as_secs()));
    }
    Ok(Said { code: status.and_then(|it| it.code()), out: joined(out), errors: joined(errors) })
}

/// Ends a child at once, and waits for it.
pub fn end(child: &mut Child) {
    // It has ended by itself: as good.
    let _ = child.kill();
    let _ = child.wait();
}

type Gatherer = Option<JoinHandle<String>>;

fn gather(pipe: Option<impl Read + Send + 'static>) -> Gatherer {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

/// What a gatherer has. A process left behind may hold the pipe open: not waited for long.
fn joined(gatherer: Gatherer) -> String {
    let Some(gatherer) = gatherer else { return String::new() };
    if until(Duration::from_secs(1), || gatherer.is_finished()) {
        gatherer.join().unwrap_or_default()
    } else {
        "(its output does not end)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_heard_and_given_up() {
        let mut shell = command("sh");
        shell.args(["-c", "cat; echo no >&2; exit 3"]);
        let said = run(shell, "hello\n", Duration::from_secs(5)).unwrap();
        assert_eq!(said, Said { code: Some(3), out: "hello\n".into(), errors: "no\n".into() });
        let mut sleep = command("sleep");
        sleep.arg("60");
        let error = run(sleep, "", Duration::from_millis(20)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
        assert!(run(command("/nowhere/at/all"), "", STEP).unwrap_err().contains("/nowhere/at/all"));
    }
}
