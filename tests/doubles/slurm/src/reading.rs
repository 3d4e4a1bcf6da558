//! How a Slurm is understood that is asked all that we ask: so that several, which hold the same, can be compared.

use pillion_core::SlurmJobId;
use pillion_slurm::{Job, JobState, Node, ReasonKind, Slurm, SlurmError};
use std::fmt::Write as _;

/// All that we ask of a Slurm, as it was understood: a line a thing. Times are told by whether they are known, and words for reasons by
/// their kind, for both are chance.
///
/// # Errors
/// The first question that could not be answered.
pub async fn reading(slurm: &dyn Slurm) -> Result<String, SlurmError> {
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

/// Checks line by line that a Slurm was understood as was expected. `release` names it.
///
/// # Panics
/// Where it was not.
pub fn assert_reads(expected: &str, read: &str, release: &str) {
    for (line, own) in expected.lines().zip(read.lines()) {
        assert_eq!(own, line, "{release}");
    }
    assert_eq!(read.lines().count(), expected.lines().count(), "{release}");
}
