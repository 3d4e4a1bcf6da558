//! A demo that is kept up by `deploy/demo --keep`, as whoever typed that finds it; ended by `deploy/demo --down`.

use pillion_tests::daemons::checkout;
use pillion_tests::process::Program;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Beside the demo that somebody may have kept up in this checkout.
const OUTPUT: &str = "target/demo-test";
/// Before the exit code of each command.
const MARK: &str = "@@ ended with ";
/// How long all commands may take together, in seconds.
const PATIENCE_SECONDS: &str = "600";
/// The last command, which nobody types here before all was seen.
const DOWN: &str = "deploy/demo --down";

/// A demo that is up until this is dropped.
pub(crate) struct Kept {
    /// What `deploy/demo --keep` printed when it was up.
    pub(crate) steps: String,
    is_up: bool,
}

/// A command that was typed.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) line: String,
    pub(crate) printed: String,
    pub(crate) code: String,
}

/// The folder of this demo.
pub(crate) fn output() -> PathBuf {
    checkout().join(OUTPUT)
}

fn script(option: &str) -> Program {
    let program = Program::new(checkout().join("deploy/demo")).arg(option);
    program.inherit_environment().env("PILLION_DEMO_OUTPUT", output())
}

/// The commands of a text: what is indented by four blanks.
fn commands(text: &str) -> Vec<&str> {
    let is_command = |line: &&str| line.strip_prefix("    ").is_some_and(|rest| !rest.starts_with(' '));
    text.lines().filter(is_command).map(str::trim).collect()
}

impl Kept {
    pub(crate) fn start() -> Self {
        let mut kept = Self { steps: String::new(), is_up: true };
        // One that a test left that was killed.
        script("--down").stdout().unwrap();
        let printed = script("--keep").stdout().unwrap();
        let at = printed.find("The cluster is up.").unwrap_or_else(|| panic!("no steps in {printed}"));
        printed[at..].clone_into(&mut kept.steps);
        kept
    }

    /// The commands of the steps as they stand in a checkout whose demo is where it is without a test.
    pub(crate) fn commands(&self) -> Vec<String> {
        commands(&self.steps).into_iter().map(|line| line.replace(OUTPUT, "target/demo")).collect()
    }

    /// Types the commands into one shell. `before`: what it types before a command, to wait as people do.
    pub(crate) fn type_all(&self, before: impl Fn(&str) -> Option<&'static str>) -> Vec<Typed> {
        let lines: Vec<&str> = commands(&self.steps).into_iter().filter(|line| *line != DOWN).collect();
        let typed = |line: &&str| {
            let wait = before(line).unwrap_or(":");
            format!("{wait}\n{{ {line}\n}} 2>&1; echo \"{MARK}$?\"\n")
        };
        let script: String = lines.iter().map(typed).collect();
        let shell = Program::new("timeout").args([PATIENCE_SECONDS, "bash", "-c", &script]);
        let printed = shell.folder(checkout()).inherit_environment().stdout().unwrap();
        let mut parts = printed.split(MARK);
        let mut text = parts.next().unwrap_or_default().to_owned();
        let mut all = Vec::new();
        for (line, part) in lines.into_iter().zip(parts) {
            let (code, rest) = part.split_once('\n').unwrap_or((part, ""));
            let printed = std::mem::replace(&mut text, rest.to_owned());
            all.push(Typed { line: line.to_owned(), printed, code: code.to_owned() });
        }
        all
    }

    /// Where the page is.
    pub(crate) fn page(&self) -> SocketAddr {
        address_after(&self.steps, "   http://")
    }

    /// Where the demo's Prometheus answers.
    pub(crate) fn prometheus(&self) -> SocketAddr {
        address_after(&self.steps, "data source http://")
    }

    /// Ends it as the last of the steps says.
    pub(crate) fn down(mut self) {
        assert_eq!(commands(&self.steps).last(), Some(&DOWN));
        self.is_up = false;
        script("--down").stdout().unwrap();
    }
}

/// What the demo wrote down about its story.
pub(crate) fn result() -> Value {
    serde_json::from_str(&std::fs::read_to_string(output().join("result.json")).unwrap()).unwrap()
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_up
            && let Err(error) = script("--down").stdout()
        {
            eprintln!("the demo did not end: {}", pillion_core::report(&error));
        }
    }
}

fn address_after(text: &str, mark: &str) -> SocketAddr {
    let rest = text.split_once(mark).unwrap_or_else(|| panic!("no '{mark}' in {text}")).1;
    let end =
        rest.find(|char: char| !char.is_ascii_digit() && char != '.' && char != ':').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|error| panic!("{}: {error}", &rest[..end]))
}
