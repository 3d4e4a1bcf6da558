//! The demo of an unchanged cluster: whole GPUs only, no pool, no plugin, no module of lua. Pillion is installed in the shadow, jobs of
//! two users run as they would anyway, and what would have been done is told. At the end a comparison says whether anything is otherwise
//! than without us.

use super::Progress;
use super::story::{PATIENCE, operator, wait_for_profiles};
use super::tell::shadow as words;
use crate::cluster::Cluster;
use crate::cluster::spec::ClusterSpec;
use crate::error::{HarnessError, Result};
use crate::unchanged::Looks;
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;
use serde_json::Value;
use std::time::Duration;

/// What a user runs: who, the name of the job, its load, and how long it works, in seconds of the simulated machine.
type Load = (&'static str, &'static str, &'static str, u32);

/// What there is to be beside, and longer than what waits: a job joins nobody whom it would outlast while others wait for a whole GPU.
const LONG: [Load; 2] =
    [("alice", "images", "resnet50-train", 2400), ("bob", "images", "resnet50-train", 2400)];
const SHORT: [Load; 2] =
    [("alice", "words", "bert-small-batch", 1200), ("bob", "molecules", "gromacs", 1200)];
/// How often each has run before: from two runs on Pillion goes by how long they took, and no more by their time limits.
const RUNS_BEFORE: u64 = 2;
/// A GPU that somebody holds and does not use is told of after a minute's mean, and a moment more.
const IDLE_PATIENCE: Duration = Duration::from_mins(5);

/// One node of four whole GPUs.
pub(super) fn spec() -> ClusterSpec {
    ClusterSpec::observed(1)
}

/// Tells it.
///
/// # Errors
/// What went wrong; [`HarnessError::Refused`] where something is otherwise than without us.
pub(super) fn tell(cluster: &mut Cluster, progress: &mut Progress) -> Result<()> {
    let before = Looks::take(cluster)?;
    progress.done("a look at Slurm, and at jobs of alice and bob, without Pillion");
    cluster.start_observing()?;
    progress.done(
        "Pillion: scheduler with mode = \"shadow\", an agent that observes; no pool, plugin, lua or hook",
    );
    let forgotten = cluster.submit_as("bob", "sleep 3600", &["--gres=gpu:1", "-J", "forgotten"])?;
    words::first_runs();
    for _ in 0..RUNS_BEFORE {
        let runs =
            LONG.iter().chain(&SHORT).map(|load| submit(cluster, *load)).collect::<Result<Vec<_>>>()?;
        ends(cluster, &runs)?;
    }
    wait_for_profiles(cluster, LONG.len() + SHORT.len(), RUNS_BEFORE)?;
    words::again();
    // One long run more than users: three hold all GPUs that bob's forgotten one has left.
    let all = LONG.iter().chain(&LONG[..1]).chain(&SHORT);
    let again = all.map(|load| submit(cluster, *load)).collect::<Result<Vec<_>>>()?;
    ends(cluster, &again)?;
    report(cluster, &again)?;
    idle(cluster)?;
    cluster.program("scancel").arg(forgotten.to_string()).stdout()?;
    cluster.wait_for_job(forgotten, &["CANCELLED"], PATIENCE)?;
    before.wait_until_slurm_looks_so(cluster)?;
    let other = before.differences(&Looks::take(cluster)?);
    if !other.is_empty() {
        return Err(HarnessError::Refused(format!("otherwise than without Pillion: {}", other.join(", "))));
    }
    words::unchanged();
    Ok(())
}

fn submit(cluster: &Cluster, (user, name, load, seconds): Load) -> Result<SlurmJobId> {
    let script = format!("pillion-load {load} --seconds {seconds}");
    cluster.submit_as(user, &script, &["--gres=gpu:1", "-t", "60", "-J", name])
}

fn ends(cluster: &Cluster, jobs: &[SlurmJobId]) -> Result<()> {
    jobs.iter().try_for_each(|job| cluster.finished_output(*job, PATIENCE).map(drop))
}

/// The report, once all that can be scored is; and one job of whom somebody would have come beside another.
fn report(cluster: &Cluster, jobs: &[SlurmJobId]) -> Result<()> {
    let arguments = ["shadow", "report", "-S", "now-1hour"];
    wait_for("decisions that are scored", PATIENCE, || {
        let text = operator(cluster, &[&arguments[..], &["--json"]].concat())?;
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        let count = |field: &str| told[field].as_u64().unwrap_or(0);
        // The one that sleeps stays open.
        let is_whole = count("open_count") == 1 && count("scored_count") > 0;
        Ok(if is_whole { Look::Ready(()) } else { Look::NotYet(text) })
    })?;
    words::report(&operator(cluster, &arguments)?);
    for job in jobs {
        let told = operator(cluster, &["why", &job.to_string()])?;
        if told.contains("it would have started") {
            words::why(*job, &told);
            return Ok(());
        }
    }
    Err(HarnessError::Refused("no job would have come to be beside another".to_owned()))
}

fn idle(cluster: &Cluster) -> Result<()> {
    let arguments = ["idle", "--for", "1m"];
    let told = wait_for("a GPU without work", IDLE_PATIENCE, || {
        let told = operator(cluster, &arguments)?;
        Ok(if told.contains("bob") { Look::Ready(told) } else { Look::NotYet(told) })
    })?;
    words::idle(&told);
    Ok(())
}
