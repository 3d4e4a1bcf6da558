//! Programs of the system that doctor and setup ask. Waits no longer than a deadline, and starts nothing that outlives it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// The longest that one may take that only answers.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest that systemd may take for a unit: what it waits for itself (`DefaultTimeoutStopSec`), and some more.
pub const UNIT_DEADLINE: Duration = Duration::from_mins(2);

/// What a program did.
pub struct Said {
    pub succeeded: bool,
    pub text: String,
    pub complaint: String,
}

/// Runs a program of the system: whether it succeeded, and what it printed.
///
/// # Errors
/// Why it could not be run.
pub async fn run_program(program: &Path, arguments: &[&str]) -> Result<(bool, String), String> {
    let said = run_with_input(program, arguments, "").await?;
    Ok((said.succeeded, said.text))
}

/// The same, within a deadline of its own.
///
/// # Errors
/// Why it could not be run.
pub async fn run_within(program: &Path, arguments: &[&str], deadline: Duration) -> Result<Said, String> {
    run(program, arguments, "", deadline).await
}

/// The same, with something to read.
///
/// # Errors
/// Why it could not be run.
pub async fn run_with_input(program: &Path, arguments: &[&str], input: &str) -> Result<Said, String> {
    run(program, arguments, input, DEADLINE).await
}

async fn run(program: &Path, arguments: &[&str], input: &str, deadline: Duration) -> Result<Said, String> {
    let name = program.display();
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let answer = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that reads nothing may be gone by now.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    match tokio::time::timeout(deadline, answer).await {
        Err(_) => Err(format!("{name} did not answer within {} s", deadline.as_secs())),
        Ok(Err(error)) => Err(format!("cannot run {name}: {error}")),
        Ok(Ok(output)) => Ok(Said {
            succeeded: output.status.success(),
            text: String::from_utf8_lossy(&output.stdout).into_owned(),
            complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_program_is_given_and_says_is_passed_on() {
        let said = run_with_input(Path::new("sh"), &["-c", "cat; echo why >&2; exit 3"], "text")
            .await
            .expect("runs");
        assert_eq!((said.succeeded, said.text.as_str(), said.complaint.as_str()), (false, "text", "why\n"));
        assert!(run_with_input(Path::new("/nowhere/munge"), &[], "").await.is_err());
    }
}
