//! Why jobs fail, told from outside: one that runs out of device memory is said to have, and one that dies with its partner
//! is started again, once and alone.

use crate::leases::explain;
use crate::restart::{PAIR, mps_nodes, pair};
use crate::rides::{SOON, load, make_known, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};

/// The file whose appearance tells a job that its partner is gone.
const PARTNER_GONE: &str = "partner-gone";

/// Waits for an event of the job, and gives its sentence.
pub(crate) fn wait_for_event(cluster: &Cluster, job: SlurmJobId, kind: &str) -> String {
    wait_for(&format!("event {kind} of job {job}"), SOON, || {
        let explained = explain(cluster, job)?.unwrap_or_default();
        let events = explained["events"].as_array().cloned().unwrap_or_default();
        let found = events.iter().find(|event| event["kind"] == kind);
        let detail = found.and_then(|event| event["detail"].as_str()).map(str::to_owned);
        Ok(detail.map_or_else(|| Look::NotYet(format!("{events:?}")), Look::Ready))
    })
    .unwrap()
}

#[test]
fn a_job_that_says_that_device_memory_ran_out_is_told_so() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let work =
        "pillion-load resnet50-infer --seconds 420\necho 'RuntimeError: CUDA out of memory.' >&2\nexit 1";
    let job = submit(&cluster, "alice", "greedy", &script(work), &[]);
    cluster.wait_for_job(job, &["FAILED"], SOON).unwrap();
    let told = wait_for_event(&cluster, job, "out-of-memory");
    assert!(told.contains("said-out-of-memory") && told.contains("it exited with code 1"), "{told}");
    assert_eq!(cluster.job_field(job, "Restarts").unwrap(), "0", "alone it was nobody's victim");
}

/// Its first start fails when its partner has gone, as a client of MPS does whose neighbour was killed; its next one works.
fn dies_with_its_partner(name: &str) -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then\n\
         pillion-load {name} --seconds 6000 &\n\
         while [ ! -e \"$HOME/{PARTNER_GONE}\" ]; do sleep 0.1; done\n\
         kill $!\nwait\nexit 1\nfi\n\
         exec pillion-load {name} --seconds 120"
    ))
}

/// A busy machine looks at its devices late: nobody is a victim of whom the agent never saw beside it.
pub(crate) fn seen_together(cluster: &Cluster, jobs: [SlurmJobId; 2]) {
    wait_for("both have run for a while", SOON, || {
        let ran = jobs.map(|job| cluster.job_field(job, "RunTime").unwrap_or_default());
        let is_while = ran.iter().all(|time| time.as_str() >= "00:00:08");
        Ok(if is_while { Look::Ready(()) } else { Look::NotYet(format!("{ran:?}")) })
    })
    .unwrap();
}

#[test]
fn who_dies_with_its_partner_is_started_again_alone() {
    let spec = ClusterSpec { pool_nodes: mps_nodes(), ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let scripts = [load(PAIR[0], 6000), dies_with_its_partner(PAIR[1])];
    let [cancelled, victim] = pair(&cluster, &scripts, &[]);
    seen_together(&cluster, [cancelled, victim]);
    cluster.program("scancel").arg(cancelled.to_string()).stdout().unwrap();
    cluster.wait_for_job(cancelled, &["CANCELLED"], SOON).unwrap();
    std::fs::write(cluster.home("alice").join(PARTNER_GONE), "").unwrap();

    let reason = wait_for_event(&cluster, victim, "victim");
    assert!(reason.contains("soon after a tenant beside it ended"), "{reason}");
    assert!(!reason.contains(&cancelled.to_string()), "users are told nothing of who it was: {reason}");
    wait_for_event(&cluster, victim, "requeued");
    let fields = cluster.wait_for_job(victim, &["COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(fields["Restarts"], "1");
    let all = starts(&cluster, "alice", victim);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((all[1]["shards"].as_str(), all[1]["decision"].as_str()), ("100", ""), "{all:?}");
    assert_eq!(cluster.job_field(cancelled, "Restarts").unwrap(), "0", "who was cancelled stays so");
}
