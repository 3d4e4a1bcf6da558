//! What a site gives by GPU where a job asks for no CPUs or memory: in the pool as beside it.

use crate::rides::SOON;
use pillion_core::SlurmJobId;
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};

/// CPUs and memory of a job, by its own environment and by Slurm's record.
fn given(cluster: &Cluster, more: &[&str]) -> (SlurmJobId, String) {
    let arguments = [&["--gres=gpu:1", "-t5"], more].concat();
    let job =
        cluster.submit_as("alice", "echo $SLURM_JOB_PARTITION cpus=$SLURM_CPUS_ON_NODE", &arguments).unwrap();
    let inside = cluster.finished_output(job, SOON).unwrap();
    let memory = cluster.job_field(job, "AllocTRES").unwrap();
    let memory = memory.split(',').find(|item| item.starts_with("mem=")).unwrap_or_default().to_owned();
    (job, format!("{} {memory}", inside.trim()))
}

#[test]
fn jobs_in_the_pool_get_what_the_site_gives_by_gpu() {
    // The partitions have a default of memory by CPU, and that by GPU goes before it.
    let slurm_conf_extra = ["DefCpuPerGPU=2", "DefMemPerGPU=300"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(ClusterSpec { slurm_conf_extra, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    let beat = pillion_tests::daemons::heartbeat(&cluster);
    wait_until("it is told", SOON, || {
        Ok(std::fs::read_to_string(&beat).unwrap_or_default().contains("per_gpu=gpu cpus=2 memory_mib=300\n"))
    })
    .unwrap();
    assert_eq!(given(&cluster, &[]).1, "gpu cpus=2 mem=300M", "Slurm by itself");
    let (job, in_pool) = given(&cluster, &["--colocate"]);
    assert_eq!(in_pool, "shared cpus=2 mem=300M", "{job}");
    let (job, asked) = given(&cluster, &["--colocate", "-c1", "--mem=100"]);
    assert_eq!(asked, "shared cpus=1 mem=100M", "{job}");
}
