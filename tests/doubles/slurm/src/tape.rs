//! What a Slurm prints, kept on a tape: the calls that we make, with what each answered, so that a release is read again without it.
//!
//! Programs named `squeue` and `scontrol` stand between [`CommandSlurm`] and Slurm's own. They write each call down with what it printed,
//! or answer from what was written down; a call that is not on the tape fails. What each call makes up for itself (a nonce) has a fixed
//! name there.

use pillion_core::SlurmJobId;
use pillion_slurm::{CommandSettings, CommandSlurm, Job, JobState, Node, ReasonKind, Slurm as _, SlurmError};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
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

/// All that we ask of a Slurm, as it was understood: a line a thing. Times are told by whether they are known, and words for reasons by
/// their kind, for both are chance.
///
/// # Errors
/// The first question that could not be answered.
pub async fn reading(slurm: &CommandSlurm) -> Result<String, SlurmError> {
    let mut text = String::new();
    let scan = slurm.jobs(&[]).await?;
    let _ = writeln!(text, "lines that could not be read: {}", scan.dropped_line_count);
    let mut jobs: Vec<&Job> = scan.jobs.iter().map(AsRef::as_ref).collect();
    jobs.sort_by_key(|job| job.id);
    for job in &jobs {
        let _ = writeln!(text, "{}", job_line(job));
    }
    for node in slurm.nodes().await? {
        let _ = writeln!(text, "{}", node_line(&node));
    }
    for mut partition in slurm.partitions().await? {
        partition.nodes.sort();
        let _ = writeln!(text, "{partition:?}");
    }
    for reservation in slurm.reservations().await? {
        let seconds = reservation.ends_at.seconds_since(reservation.starts_at);
        let _ = writeln!(text, "reservation of {:?} for {seconds} s", reservation.nodes);
    }
    let _ = writeln!(text, "{:?}", slurm.privacy().await?);
    let _ = writeln!(text, "by GPU: {:?}", slurm.gpu_defaults().await?);
    let _ = writeln!(text, "KillWait: {:?}", slurm.kill_wait().await?);

    let ids: Vec<SlurmJobId> = jobs.iter().map(|job| job.id).collect();
    for (id, name) in slurm.job_names(&ids).await? {
        let _ = writeln!(text, "{id} is called {name:?}");
    }
    for (id, count) in slurm.node_counts(&ids).await? {
        let _ = writeln!(text, "{id} is of {count} nodes");
    }
    let running: Vec<&Job> =
        jobs.into_iter().filter(|job| job.state == JobState::Running && job.id.task.is_none()).collect();
    let inner: Vec<u32> = running.iter().map(|job| job.inner_id).collect();
    let _ = writeln!(text, "devices: {:?}", slurm.held_devices(&inner).await?);
    for job in running {
        let (script, may_again) = (slurm.batch_script(job.id.id).await?, slurm.allows_requeue(job.id).await?);
        let script = String::from_utf8_lossy(&script.unwrap_or_default()).lines().last().map(str::to_owned);
        let _ = writeln!(text, "{} may be requeued: {may_again}, its script ends by {script:?}", job.id);
    }
    Ok(text)
}

fn job_line(job: &Job) -> String {
    let reason = match &job.reason {
        ReasonKind::Resources(_) => "Resources(..)".to_owned(),
        ReasonKind::Limit(_) => "Limit(..)".to_owned(),
        other => format!("{other:?}"),
    };
    let times = [
        (job.eligible_at.is_some(), "eligible"),
        (job.started_at.is_some(), "started"),
        (job.ended_at.is_some(), "ends"),
        (job.priority == 0, "no priority"),
        (job.has_dependency, "depends"),
    ];
    let known: Vec<&str> =
        times.into_iter().filter_map(|(is_known, word)| is_known.then_some(word)).collect();
    let inner = if job.id.task.is_none() { job.inner_id.to_string() } else { "of an array".to_owned() };
    format!(
        "job {} ({inner}, start {}) {:?} {reason} of {} ({}) in {}, limit {:?} s, {:?} on {:?} of {:?} without {:?} {:?}, {} CPUs, {} MiB, \
         reservation {:?}, throttle {:?}, exit {:?}, {known:?}, {:?}",
        job.id,
        job.restart_count,
        job.state,
        job.user,
        job.uid.0,
        job.partition,
        job.time_limit_seconds,
        job.gres,
        job.nodes,
        job.required_nodes,
        job.excluded_nodes,
        job.features,
        job.cpus,
        job.memory_mib,
        job.reservation,
        job.array_throttle,
        job.exit,
        job.mark.as_ref().map(|mark| mark.as_ref().map(ToString::to_string)),
    )
}

fn node_line(node: &Node) -> String {
    format!(
        "node {} {:?}: {} of {} CPUs, {} of {} MiB, {:?} in {:?}, {:?}, {:?}, {:?}, {} MiB of scratch",
        node.name.0,
        node.availability,
        node.cpus_allocated,
        node.cpus,
        node.memory_mib_allocated,
        node.memory_mib,
        node.features,
        node.partitions,
        node.shards,
        node.gpus,
        node.other_gres,
        node.scratch_mib,
    )
}
