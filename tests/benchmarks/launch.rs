//! What Pillion adds to the launch of a job: from `srun` or `sbatch` to the job's first instruction, with the plugin and
//! without, for jobs with `--colocate` and for jobs that never heard of it.

use crate::stats::{Chance, Variant, table};
use anyhow::{Context as _, ensure};
use pillion_core::{Clock as _, SlurmJobId, SystemClock};
use pillion_tests::cluster::spec::JobSubmit;
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// What a job prints first: the time, and whether the plugin gave it a decision.
const FIRST_INSTRUCTION: &str = "echo $EPOCHREALTIME ${PILLION_DECISION:-none}";
/// Rounds with a wait for the scheduler in them are slow, and a few are enough.
const DECIDED_ROUNDS_MAX: usize = 40;

/// A cluster of plain Slurm: same nodes, nothing of ours.
pub(crate) fn plain_cluster() -> anyhow::Result<Cluster> {
    let spec =
        ClusterSpec { spank: false, hooks: false, job_submit: JobSubmit::Absent, ..ClusterSpec::default() };
    Ok(Cluster::start(spec)?)
}

/// `plugstack.conf` of a cluster, which every launch reads anew.
struct Plugstack {
    path: PathBuf,
    text: String,
}

impl Plugstack {
    fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let path = cluster.layout().path("conf/plugstack.conf");
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.contains("pillion"), "the plugin was not built: {} does not name it", path.display());
        Ok(Self { path, text })
    }

    fn set(&self, is_on: bool) -> anyhow::Result<()> {
        Ok(std::fs::write(&self.path, if is_on { self.text.as_str() } else { "" })?)
    }
}

/// The seconds from `begun` to a first instruction, and the decision that it saw.
fn first_instruction(printed: &str, begun: f64) -> anyhow::Result<(f64, String)> {
    let mut words = printed.split_whitespace();
    let at: f64 = words.next().and_then(|word| word.parse().ok()).context("the job printed no time")?;
    Ok((at - begun, words.next().unwrap_or_default().to_owned()))
}

/// A step of a running job.
fn step(cluster: &Cluster, job: SlurmJobId) -> anyhow::Result<(f64, String)> {
    let job = format!("--jobid={job}");
    let step = cluster.program_as("alice", "srun")?.args([job.as_str(), "--overlap", "-n1", "bash", "-c"]);
    let begun = SystemClock.now().seconds();
    first_instruction(&step.arg(FIRST_INSTRUCTION).stdout()?, begun)
}

/// A batch job, to its end, so that the next one finds the node as this one did.
fn batch(cluster: &Cluster, options: &[&str]) -> anyhow::Result<(f64, String)> {
    let begun = SystemClock.now().seconds();
    let job = cluster.submit_as("alice", FIRST_INSTRUCTION, options)?;
    first_instruction(&cluster.finished_output(job, SOON)?, begun)
}

/// Runs the topic.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    let plain = plain_cluster()?;
    let mut ours = Cluster::start(ClusterSpec::default())?;
    ours.start_pillion()?;
    let plugstack = Plugstack::of(&ours)?;
    steps(&mut ours, &plugstack, rounds)?;
    batches(&plain, &ours, &plugstack, rounds.div_ceil(3))?;
    plugstack.set(true)?;
    decided(&plain, &ours, rounds.min(DECIDED_ROUNDS_MAX))
}

/// Steps are launched at once, without Slurm's scheduler in between: here the plugin's own cost shows.
fn steps(cluster: &mut Cluster, plugstack: &Plugstack, rounds: usize) -> anyhow::Result<()> {
    let hold = |options: &[&str]| -> anyhow::Result<SlurmJobId> {
        let job = cluster.submit_as("alice", "echo begun; sleep 36000", options)?;
        cluster.wait_for_output(job, "begun", SOON)?;
        Ok(job)
    };
    let other = hold(&["--gres=gpu:1", "-t600"])?;
    let managed = hold(&["--colocate", "--gres=gpu:1", "-t600", "-x", "n2"])?;
    let mut others =
        [Variant::new("without --colocate, no plugin"), Variant::new("without --colocate, plugin")];
    let mut manageds = [
        Variant::new("with --colocate, no plugin"),
        Variant::new("with --colocate, plugin, agent answers"),
        Variant::new("with --colocate, plugin, agent frozen"),
    ];
    let mut chance = Chance::new();
    for _ in 0..rounds {
        for which in chance.order(4) {
            let (is_on, is_managed) = (which % 2 == 1, which >= 2);
            plugstack.set(is_on)?;
            let (seconds, decision) = step(cluster, if is_managed { managed } else { other })?;
            let is_decided = decision != "none";
            ensure!(
                is_decided == (is_on && is_managed),
                "a step saw decision {decision}, plugin on: {is_on}"
            );
            let variants: &mut [Variant] = if is_managed { &mut manageds } else { &mut others };
            variants[usize::from(is_on)].push(seconds);
        }
    }
    plugstack.set(true)?;
    for _ in 0..rounds.div_ceil(3) {
        cluster.daemon("pillion-agent-n1")?.signal(Signal::STOP);
        let (seconds, decision) = step(cluster, managed)?;
        cluster.daemon("pillion-agent-n1")?.signal(Signal::CONT);
        ensure!(decision == "none", "a frozen agent answered with decision {decision}");
        manageds[2].push(seconds);
    }
    println!("### srun to the first instruction of a step\n\n{}\n{}", table(&others), table(&manageds));
    for job in [other, managed] {
        cluster.program("scancel").arg(job.to_string()).stdout()?;
        cluster.wait_for_job(job, &["CANCELLED"], SOON)?;
    }
    Ok(())
}

/// Whole batch jobs of people who did not ask: everything of Pillion that they meet, and the plugin alone.
fn batches(plain: &Cluster, ours: &Cluster, plugstack: &Plugstack, rounds: usize) -> anyhow::Result<()> {
    let mut variants = [
        Variant::new("plain Slurm"),
        Variant::new("lua and hooks, no plugin"),
        Variant::new("lua, hooks and plugin"),
    ];
    let mut chance = Chance::new();
    for _ in 0..rounds {
        for which in chance.order(3) {
            chance.pause();
            plugstack.set(which != 1)?;
            let (seconds, decision) = batch(if which == 0 { plain } else { ours }, &["--gres=gpu:1"])?;
            ensure!(decision == "none", "a job without --colocate saw decision {decision}");
            variants[which].push(seconds);
        }
    }
    println!("### sbatch to the first instruction, jobs without --colocate\n\n{}", table(&variants));
    Ok(())
}

/// Batch jobs of people who did ask, on an empty pool: with the wait for a scan, a decision, the agent and the release.
fn decided(plain: &Cluster, ours: &Cluster, rounds: usize) -> anyhow::Result<()> {
    let mut variants = [Variant::new("plain Slurm"), Variant::new("with --colocate, an empty pool")];
    let mut chance = Chance::new();
    for _ in 0..rounds {
        for which in chance.order(2) {
            chance.pause();
            if which == 0 {
                variants[0].push(batch(plain, &["--gres=gpu:1"])?.0);
                continue;
            }
            let (seconds, decision) = batch(ours, &["--colocate", "--gres=gpu:1", "-t10"])?;
            ensure!(decision != "none", "a job with --colocate ran without a decision");
            variants[1].push(seconds);
        }
    }
    println!("### sbatch to the first instruction, jobs with --colocate\n\n{}", table(&variants));
    Ok(())
}
