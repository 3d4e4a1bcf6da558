//! What a Slurm prints, kept on a tape: the calls that we make, with what each answered, so that a release is read again without it.
//!
//! Programs named `squeue` and `scontrol` stand between [`CommandSlurm`] and Slurm's own. They write each call down with what it printed,
//! or answer from what was written down; a call that is not on the tape fails. What each call makes up for itself (a nonce) has a fixed
//! name there.

use pillion_slurm::{CommandSettings, CommandSlurm};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One call, in lines: `NONCE` stands where a call made up a word for itself.
#[derive(Debug, Serialize, Deserialize)]
struct Call {
    /// The program with its arguments, and the lines that it read.
    asked: Vec<String>,
    status: i32,
    stdout: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stderr: Vec<String>,
}

/// Both programs; `$mode` and `$calls`, the folder of calls, are set before it.
const PROGRAM: &str = r#"
program=$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/input"
nonce=$({ echo "$*"; cat "$work/input"; } | grep -oE '[0-9a-f]{16}' | head -n 1)
: "${nonce:=none of sixteen}"
{ echo "$program $*"; cat "$work/input"; } | sed "s/$nonce/NONCE/g" >"$work/call"
if [ "$mode" = record ]; then
    number=$(find "$calls" -name '*.call' | wc -l)
    "$program" "$@" <"$work/input" >"$work/stdout" 2>"$work/stderr"
    echo $? >"$calls/$number.status"
    for part in call stdout stderr; do sed "s/$nonce/NONCE/g" "$work/$part" >"$calls/$number.$part"; done
else
    number=
    for call in "$calls"/*.call; do
        if cmp -s "$call" "$work/call"; then number=$(basename "$call" .call); fi
    done
    [ -n "$number" ] || { echo "not on the tape: $(cat "$work/call")" >&2; exit 9; }
    for part in stdout stderr; do sed "s/NONCE/$nonce/g" "$calls/$number.$part" >"$work/$part"; done
fi
cat "$work/stdout"
cat "$work/stderr" >&2
exit "$(cat "$calls/$number.status")"
"#;

/// Slurm behind programs that ask the real ones, found by `PATH`, and write down what they said. `folder` is theirs, and `conf` the
/// cluster's configuration.
///
/// # Errors
/// That a program cannot be written.
pub fn recorder(folder: &Path, conf: PathBuf) -> std::io::Result<CommandSlurm> {
    programs(folder, "record", Some(conf))
}

/// What was written down in the folder of a recorder, as a tape.
///
/// # Errors
/// That it cannot be read.
pub fn tape(folder: &Path) -> std::io::Result<String> {
    let mut calls = Vec::new();
    loop {
        let part = |name: &str| std::fs::read_to_string(folder.join(format!("{}.{name}", calls.len())));
        let Ok(status) = part("status") else { break };
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        calls.push(Call {
            asked: lines(part("call")?),
            status: status.trim().parse().map_err(std::io::Error::other)?,
            stdout: lines(part("stdout")?),
            stderr: lines(part("stderr")?),
        });
    }
    Ok(serde_json::to_string_pretty(&calls)? + "\n")
}

/// Slurm behind programs that answer from a tape; `folder` is theirs.
///
/// # Errors
/// That it is no tape, or a program cannot be written.
pub fn player(tape: &str, folder: &Path) -> std::io::Result<CommandSlurm> {
    let calls: Vec<Call> = serde_json::from_str(tape)?;
    for (number, Call { asked, status, stdout, stderr }) in calls.iter().enumerate() {
        let write = |name: &str, text: String| std::fs::write(folder.join(format!("{number}.{name}")), text);
        let text = |lines: &[String]| lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        write("status", status.to_string())?;
        for (name, lines) in [("call", asked), ("stdout", stdout), ("stderr", stderr)] {
            write(name, text(lines))?;
        }
    }
    programs(folder, "play", None)
}

fn programs(folder: &Path, mode: &str, conf: Option<PathBuf>) -> std::io::Result<CommandSlurm> {
    for name in ["squeue", "scontrol"] {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\nmode={mode} calls='{}'\n{PROGRAM}", folder.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    let binary_directory = Some(folder.to_owned());
    Ok(CommandSlurm::new(CommandSettings { binary_directory, conf, timeout: Duration::from_mins(1) }))
}
