//! Jobs of several GPUs in the same pool: a job of two beside those of one, and one of four for which a node is kept. Acts here; words in
//! `tell`.

use super::answers;
use super::story::{PATIENCE, operator};
use super::tell;
use crate::cluster::Cluster;
use crate::error::{HarnessError, Result};
use crate::wait::{Look, wait_for};
use pillion_core::SlurmJobId;

/// Work of those that come first, and of the one that waits for them: half a minute here, and a moment.
const FIRST_SECONDS: u32 = 1_800;
const LAST_SECONDS: u32 = 300;

/// A job of so many GPUs, which works on each.
fn script(count: usize, seconds: u32) -> String {
    format!(
        "#!/bin/bash\n#SBATCH --job-name=train-{count} --gres=gpu:{count} --constraint=nvidia --time=10\n\
         #SBATCH --colocate\n\
         echo \"gpus=$SLURM_JOB_GPUS shards=$SLURM_SHARDS_ON_NODE decision=${{PILLION_DECISION:-none}}\"\n\
         for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do\n\
           CUDA_VISIBLE_DEVICES=$gpu pillion-load gromacs --seconds {seconds} &\n\
         done\n\
         wait\n"
    )
}

/// Tells it.
///
/// # Errors
/// [`HarnessError::Refused`] where a job had other GPUs than it asked for.
pub(super) fn tell(cluster: &Cluster) -> Result<()> {
    tell::wide();
    let submit = |user, count, seconds| cluster.submit_as(user, &script(count, seconds), &[]);
    let two = submit("alice", 2, FIRST_SECONDS)?;
    let one = submit("bob", 1, FIRST_SECONDS)?;
    for job in [two, one] {
        cluster.wait_for_job(job, &["RUNNING"], PATIENCE)?;
    }
    let four = submit("bob", 4, LAST_SECONDS)?;
    wait_for("a node that is kept for four GPUs", PATIENCE, || {
        let jobs = answers::queue(&operator(cluster, &["queue", "--json"])?)?;
        let is_kept = jobs.iter().any(|(_, why)| why.contains("are set apart for it"));
        Ok(if is_kept { Look::Ready(()) } else { Look::NotYet(format!("{jobs:?}")) })
    })?;
    tell::wide_waits(&operator(cluster, &["queue", "-o", tell::QUEUE_COLUMNS])?);
    let mut lines = Vec::new();
    for (job, count) in [(one, 1), (two, 2), (four, 4)] {
        lines.push(found(cluster, job, count)?);
    }
    tell::wide_found(&lines);
    Ok(())
}

/// What a job of so many GPUs says that it had.
fn found(cluster: &Cluster, job: SlurmJobId, count: usize) -> Result<String> {
    let printed = cluster.finished_output(job, PATIENCE)?;
    let line = printed.lines().next().unwrap_or_default();
    let word = |name: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let has_all = word("gpus=").split(',').filter(|gpu| !gpu.is_empty()).count() == count;
    let is_decided = !matches!(word("decision=").as_str(), "" | "none");
    if has_all && is_decided && (count == 1 || word("shards=") == (count * 100).to_string()) {
        return Ok(format!("job {job}, {count} asked for: {line}"));
    }
    Err(HarnessError::Refused(format!("job {job} asked for {count} GPUs and printed '{line}'")))
}
