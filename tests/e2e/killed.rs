//! slurmctld killed at the moment in which jobs start, so that it forgets that it started them: a managed job, which its
//! lease pins to the very node where it runs already, pays no more for it than a plain job beside it.

use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(2);
/// Later than slurmctld needs to write down that the jobs exist (5 s), so that only their start is forgotten.
const BEGIN_SECONDS: u32 = 12;
const ENDED: [&str; 5] = ["COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"];

/// What the kill did to one job.
#[derive(Debug)]
struct Harm {
    state: String,
    start_count: usize,
    is_node_drained: bool,
}

impl Harm {
    fn to(cluster: &Cluster, job: SlurmJobId) -> Self {
        // Slurm may hold a job whose second launch a node refused, for the first still runs there: also a plain one.
        let is_held =
            |fields: &BTreeMap<String, String>| fields["Reason"].contains("launch_failed_requeued_held");
        let fields = wait_for("its end", SOON, || {
            let fields = cluster.job(job)?;
            let is_over = ENDED.contains(&fields["JobState"].as_str()) || is_held(&fields);
            Ok(if is_over { Look::Ready(fields) } else { Look::NotYet(fields["JobState"].clone()) })
        })
        .unwrap();
        let starts = std::fs::read_to_string(cluster.home("alice").join(format!("starts.{job}"))).unwrap();
        // One that is held is on no node.
        let node = (!is_held(&fields)).then(|| cluster.node(&fields["NodeList"]).unwrap());
        Self {
            state: if is_held(&fields) { "HELD".to_owned() } else { fields["JobState"].clone() },
            start_count: starts.lines().count(),
            is_node_drained: node.is_some_and(|node| node["State"].contains("DRAIN")),
        }
    }
}

#[test]
fn a_killed_slurmctld_costs_a_managed_job_no_more_than_a_plain_one() {
    let spec = ClusterSpec { whole_gpu_node_count: 1, bound_seconds: 600, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let begin = cluster.begin_together(BEGIN_SECONDS).unwrap();
    let script = "echo $SLURM_RESTART_COUNT- >> ~/starts.$SLURM_JOB_ID; sleep 8";
    let common = [begin.as_str(), "--gres=gpu:1", "-c1", "--mem=100", "-t10"];
    let plain = cluster.submit_as("alice", script, &[&common[..], &["-pgpu"]].concat()).unwrap();
    let managed = cluster.submit_as("alice", script, &[&common[..], &["--colocate"]].concat()).unwrap();
    wait_until("the start of both", SOON, || {
        let has_started = |job: SlurmJobId| cluster.home("alice").join(format!("starts.{job}")).exists();
        Ok(has_started(plain) && has_started(managed))
    })
    .unwrap();
    let leased = cluster.job(managed).unwrap();
    assert!(leased["TresPerNode"].starts_with("gres/shard:g"), "it runs by a lease: {leased:?}");
    cluster.stop_slurmctld(Signal::KILL).unwrap();
    cluster.start_slurmctld().unwrap();

    let (plain, managed) = (Harm::to(&cluster, plain), Harm::to(&cluster, managed));
    // Where the nodes come back in the second in which Slurm starts both again, it revokes the credentials of both.
    assert!(
        managed.state == "COMPLETED" || managed.state == plain.state,
        "{managed:?}, and without us {plain:?}"
    );
    // Whose start was forgotten is a matter of milliseconds: one start more than the other is chance, two are ours.
    assert!(managed.start_count <= plain.start_count + 1, "{managed:?}, and without us {plain:?}");
    assert!(!managed.is_node_drained || plain.is_node_drained, "{managed:?}, and without us {plain:?}");
}
