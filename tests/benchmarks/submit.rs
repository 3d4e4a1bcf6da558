//! What Pillion adds to `sbatch` itself: the plugin in the client, and `pillion.lua` under slurmctld's locks.

use crate::launch::plain_cluster;
use crate::stats::{Chance, Variant, table};
use anyhow::ensure;
use pillion_core::SlurmJobId;
use pillion_tests::cluster::spec::JobSubmit;
use pillion_tests::wait::now;
use pillion_tests::{Cluster, ClusterSpec};

/// Jobs are cancelled after so many rounds, so that the queue stays short.
const ROUNDS_PER_SWEEP: usize = 50;
/// A script as people write them: some lines of options and some of shell. Its digest is taken by lua.
const SCRIPT: &str = "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --time=30\nmodule load cuda\nset -e\n\
                      for epoch in 1 2 3 4 5 6 7 8 9 10; do\n    srun python train.py --epoch $epoch --batch 64\ndone\n";

/// Submits a job that does not start, and takes the time.
fn submit(cluster: &Cluster, options: &[&str]) -> anyhow::Result<(f64, SlurmJobId)> {
    // Far away, so that launches do not disturb the next measurement.
    let options = [&["--begin=now+7days", "--gres=gpu:1"], options].concat();
    let begun = now();
    let job = cluster.submit_as("alice", SCRIPT, &options)?;
    Ok((begun.elapsed().as_secs_f64(), job))
}

/// Runs the topic.
pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    let plain = plain_cluster()?;
    let plugin_only =
        Cluster::start(ClusterSpec { job_submit: JobSubmit::Absent, ..ClusterSpec::default() })?;
    let mut ours = Cluster::start(ClusterSpec::default())?;
    ours.start_pillion()?;
    let mut variants = [
        Variant::new("plain Slurm"),
        Variant::new("plugin, no lua module; without --colocate"),
        Variant::new("plugin and lua module; without --colocate"),
        Variant::new("plugin and lua module; with --colocate"),
    ];
    let mut chance = Chance::new();
    for round in 0..rounds {
        let mut managed = None;
        for which in chance.order(4) {
            let cluster = [&plain, &plugin_only, &ours, &ours][which];
            let options: &[&str] = if which == 3 { &["--colocate"] } else { &[] };
            let (seconds, job) = submit(cluster, options)?;
            variants[which].push(seconds);
            managed = if which == 3 { Some(job) } else { managed };
        }
        if let Some(job) = managed.filter(|_| round % ROUNDS_PER_SWEEP == 0) {
            let partition = ours.job_field(job, "Partition")?;
            ensure!(partition == "shared", "the job with --colocate was not managed; it is in {partition}");
            for cluster in [&plain, &plugin_only, &ours] {
                cluster.program("scancel").args(["--user=alice"]).stdout()?;
            }
        }
    }
    println!("### sbatch, from its start to its end\n\n{}", table(&variants));
    Ok(())
}
