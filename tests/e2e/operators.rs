//! What operators order, on real Slurm: a job that is evicted is started again alone, and a drained GPU takes nobody.

use crate::faults::wait_for_event;
use crate::leases::explain;
use crate::restart::{PAIR, mps_nodes, pair};
use crate::rides::{SOON, load, make_known, script, starts, submit};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};

/// Runs a command as an operator: its exit status, and what it said.
fn order(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let output = cluster.pillion_as("root", arguments).unwrap().output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_evicted_job_runs_alone_the_next_time_and_its_neighbour_goes_on() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let short_then = script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then seconds=24000; else seconds=120; fi\n\
         exec pillion-load {} --seconds $seconds",
        PAIR[1]
    ));
    let [stays, evicted] = pair(&cluster, &[load(PAIR[0], 24000), short_then], &[]);
    let by_user = cluster.pillion_as("alice", &["evict", &evicted.to_string()]).unwrap().output().unwrap();
    assert_eq!(by_user.status.code(), Some(1), "{}", String::from_utf8_lossy(&by_user.stderr));

    let (status, said) = order(&cluster, &["evict", &evicted.to_string(), "--reason", "too noisy"]);
    assert_eq!(status, 0, "{said}");
    let told = wait_for_event(&cluster, evicted, "requeued");
    assert!(told.contains("evicted by root: too noisy"), "{told}");
    cluster.wait_for_job(evicted, &["COMPLETED"], 4 * SOON).unwrap();
    let all = starts(&cluster, "alice", evicted);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((all[1]["shards"].as_str(), all[1]["decision"].as_str()), ("100", ""), "{all:?}");
    assert_eq!(cluster.job_field(stays, "Restarts").unwrap(), "0");
    let (status, said) = order(&cluster, &["evict", &stays.to_string()]);
    assert!(status == 1 && said.contains("runs alone already"), "{said}");
}

#[test]
fn a_job_that_may_not_be_requeued_is_not_evicted() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let once = PAIR.map(|name| load(name, 24000).replacen('\n', "\n#SBATCH --no-requeue\n", 1));
    let [job, _] = pair(&cluster, &once, &[]);
    let (status, said) = order(&cluster, &["evict", &job.to_string()]);
    assert!(status == 1 && said.contains("was submitted with --no-requeue"), "{said}");
    assert_eq!(cluster.job_field(job, "JobState").unwrap(), "RUNNING");
}

#[test]
fn a_drained_pool_keeps_jobs_waiting_until_it_is_undrained() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let (status, said) = order(&cluster, &["drain", "n[1-2]", "--reason", "fan noise"]);
    assert_eq!(status, 0, "{said}");
    let job = submit(&cluster, "alice", PAIR[0], &load(PAIR[0], 120), &[]);
    wait_for("the reason why it waits", SOON, || {
        let row = explain(&cluster, job)?.unwrap_or_default()["job"].clone();
        let is_told = row["reason"].as_str().is_some_and(|text| text.contains("drained by root: fan noise"));
        Ok(if is_told { Look::Ready(()) } else { Look::NotYet(row.to_string()) })
    })
    .unwrap();
    let (_, nodes) = order(&cluster, &["nodes"]);
    assert!(nodes.contains("drained by root: fan noise"), "{nodes}");
    assert_eq!(cluster.job_field(job, "JobState").unwrap(), "PENDING");
    let (status, said) = order(&cluster, &["undrain", "n2"]);
    assert_eq!(status, 0, "{said}");
    let fields = cluster.wait_for_job(job, &["COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(fields["NodeList"], "n2");
}
