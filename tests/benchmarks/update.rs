//! How long Slurm takes from the update that releases a job to the job's first instruction, beside an ordinary job that is
//! given StartTime=now.

use crate::stats::{Chance, Variant, table};
use anyhow::{Context as _, ensure};
use pillion_core::{Clock as _, SystemClock};
use pillion_tests::{Cluster, ClusterSpec};
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
const SCRIPT: &str = "echo $EPOCHREALTIME $SLURM_JOB_GPUS";
/// What Slurm does where the site says nothing.
const SLURM_DEFAULTS: &str = "SchedulerParameters=batch_sched_delay=3";

/// Submits a job that waits, updates it, and gives the seconds from the update to its first instruction.
fn start_by_update(cluster: &Cluster, options: &[&str], update: &[&str]) -> anyhow::Result<(f64, String)> {
    let options = [&["--begin=now+7days"], options].concat();
    let job = cluster.submit_as("root", SCRIPT, &options)?;
    let id = format!("JobId={job}");
    let arguments = [&["update", id.as_str()], update].concat();
    let begun = SystemClock.now().seconds();
    cluster.scontrol(&arguments)?;
    let printed = cluster.finished_output(job, SOON)?;
    let (at, gpus) = printed.trim().split_once(' ').context("the job printed no time")?;
    Ok((at.parse::<f64>()? - begun, gpus.to_owned()))
}

fn measure(title: &str, spec: ClusterSpec, rounds: usize) -> anyhow::Result<()> {
    // No scheduler of ours: it would undo releases that it did not make.
    let cluster = Cluster::start(spec)?;
    let mut variants = [
        Variant::new("plain Slurm: StartTime=now"),
        Variant::new("a release: Gres, ReqNodeList, StartTime=now"),
    ];
    let mut chance = Chance::new();
    for _ in 0..rounds {
        for which in chance.order(2) {
            chance.pause();
            if which == 0 {
                variants[0].push(start_by_update(&cluster, &["--gres=gpu:1"], &["StartTime=now"])?.0);
                continue;
            }
            let now = SystemClock.now().epoch();
            let lease = format!("AdminComment=pillion1;w=4f1c09aa12bc77de;gres=gpu:1;lease={now};r=0");
            // The fence takes a release for a job that carries the mark which it was made from.
            let marked = "--admin-comment=pillion1;w=4f1c09aa12bc77de;gres=gpu:1";
            let release = ["Gres=shard:g1:40", "ReqNodeList=n1", "StartTime=now", lease.as_str()];
            let (seconds, gpus) =
                start_by_update(&cluster, &["-p", "shared", "--gres=shard:100", marked], &release)?;
            ensure!(gpus == "1", "the released job got GPU '{gpus}' and not 1");
            variants[1].push(seconds);
        }
    }
    println!("### {title}\n\n{}", table(&variants));
    Ok(())
}

/// Runs the topic.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    measure("Update to start, SchedulerParameters of the tests", ClusterSpec::default(), rounds)?;
    let slow = ClusterSpec { slurm_conf_extra: vec![SLURM_DEFAULTS.to_owned()], ..ClusterSpec::default() };
    measure("Update to start, Slurm's default SchedulerParameters", slow, rounds.div_ceil(4))
}
