//! What the daemons of a cluster on which a pair ran tell Prometheus: every panel of every dashboard has data, every alert rule
//! can be evaluated, and nobody is named.

use crate::rides::{SOON, load, make_known, submit};
use pillion_tests::monitoring::{Prometheus, UNTOLD_BY_SIMULATED, get};
use pillion_tests::wait::wait_until;
use pillion_tests::{Cluster, ClusterSpec};

/// Two that go well together under MPS.
const WORKLOADS: [&str; 2] = ["resnet50-infer", "bert-small-batch"];
/// Keeps away from the node with CCS.
const WITH_MPS: [&str; 2] = ["-x", "n2"];

#[test]
fn prometheus_has_data_for_every_panel_when_a_pair_has_run() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let targets = [("pillion-scheduler", "scheduler"), ("agent-n1", "n1"), ("agent-n2", "n2")];
    let targets = targets.map(|(job, whose)| (job, cluster.metrics_address(whose).unwrap()));
    let prometheus = Prometheus::start(&cluster.root().join("prometheus"), &targets).unwrap();
    let becomes_so = |expression: &str| {
        wait_until(expression, SOON, || Ok(!prometheus.query(expression)?.is_empty())).unwrap();
    };
    make_known(&cluster, &["alice"], &WORKLOADS, &[&WITH_MPS]);
    // One that was planned before the other came would have a device alone, and so would the other.
    let begin = cluster.begin_together(3).unwrap();
    let more = [WITH_MPS.as_slice(), &[&begin]].concat();
    let pair = WORKLOADS.map(|name| submit(&cluster, "alice", name, &load(name, 3_000), &more));
    becomes_so("sum(pillion_shared_devices{mechanism=\"mps\"}) == 1");
    becomes_so("max(pillion_device_tenants{node=\"n1\"}) == 2");
    becomes_so("min(pillion_device_mps_up{node=\"n1\"}) == 1");
    becomes_so("sum(pillion_device_shards{node=\"n1\"}) > 0");
    for job in pair {
        cluster.wait_for_job(job, &["COMPLETED"], 2 * SOON).unwrap();
    }
    becomes_so("sum(pillion_shared_runs_total) == 2");
    becomes_so("sum(pillion_releases_total) >= 4 and sum(pillion_planned_starts_total) >= 4");
    becomes_so("sum by (kind) (pillion_decisions_total{kind=~\"pair|join\"}) > 0");
    becomes_so("sum(pillion_task_starts_total{answer=\"decided\"}) >= 4");
    becomes_so(
        "sum(pillion_gpu_seconds_total{sharing=\"shared\"}) > 0 and sum(pillion_energy_joules_total) > 0",
    );
    becomes_so(
        "min(pillion_store_up) == 1 and min(pillion_agent_connected) == 1 and min(pillion_uplink_connected) == 1",
    );
    let mut wrong = prometheus.check_dashboards_and_rules().unwrap();
    wrong.retain(|line| !line.contains(UNTOLD_BY_SIMULATED));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(prometheus.query("ALERTS{alertstate=\"firing\"}").unwrap().is_empty(), "all is well");
    for (job, address) in targets {
        let page = get(address, "/metrics").unwrap();
        for secret in ["alice", "resnet", "bert", "PILLION"] {
            assert!(!page.contains(secret), "{job} tells of {secret}");
        }
    }
}
