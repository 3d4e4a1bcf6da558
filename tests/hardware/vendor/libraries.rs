//! Vendors' own libraries on a machine that has neither their driver nor a device: the agent says what is missing, once, and goes
//! on. Over NVML it is then given the double, as if the driver had come. In the place of Intel's own loader an agent that runs was
//! not seen to take the double up, so that this is not asked of it here.

use super::parts;
use crate::{SOON, cluster, submit};
use pillion_core::device::Mechanism;
use pillion_tests::Cluster;
use pillion_tests::cluster::spec::NodeBackend;
use pillion_tests::daemons::built;
use pillion_tests::wait::{Look, wait_for, wait_until};

/// Why the node has no device to share, as operators are told.
fn fault(cluster: &Cluster) -> Option<String> {
    let nodes = cluster.pillion_json(&["nodes"]).unwrap();
    let faults = nodes["nodes"][0]["setup"]["faults"].as_array().cloned().unwrap_or_default();
    let fault = faults.iter().find(|fault| fault["kind"] == "no-devices")?;
    Some(fault["detail"].as_str().unwrap_or_default().to_owned())
}

fn device_count(cluster: &Cluster) -> usize {
    cluster.pillion_json(&["nodes"]).unwrap()["nodes"][0]["devices"].as_array().map_or(0, Vec::len)
}

/// A cluster whose one pool node has the vendor's library and nothing below it.
fn without_device(title: &str, backend: NodeBackend, mechanism: Mechanism, says: &str) -> Cluster {
    let (model, work) = match mechanism {
        Mechanism::Mps => ("h200", "resnet50-infer"),
        _ => ("max-1550", "ResNet-50 --batch-size 2"),
    };
    let cluster = cluster(model, mechanism, backend);
    let detail = wait_for("a sentence about the node", SOON, || {
        Ok(fault(&cluster).map_or_else(|| Look::NotYet("it has no fault".to_owned()), Look::Ready))
    })
    .unwrap();
    println!("{title:14} {:36} read {detail:?}", "said_to_operators");
    assert!(detail.contains(says) && !detail.contains('\n'), "{detail}");
    assert_eq!(device_count(&cluster), 0);
    let job = submit(&cluster, "solo", work, &[]);
    cluster.wait_for_job(job, &["COMPLETED"], SOON).expect("jobs run as without us");
    let log = std::fs::read_to_string(cluster.layout().log("pillion-agent-n1.out")).unwrap();
    assert_eq!(log.matches("no device can be shared here").count(), 1, "once: {log}");
    cluster
}

/// The driver comes, as far as the agent can see.
fn look_again(title: &str, cluster: &Cluster, double: &str) {
    let link = cluster.root().join("run/n1/library");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(built(double).unwrap(), &link).unwrap();
    wait_until("devices, once the driver is there", SOON, || Ok(device_count(cluster) > 0)).unwrap();
    assert_eq!(fault(cluster), None);
    println!("{title:14} {:36} read {} devices, without a restart", "looked_again", device_count(cluster));
}

#[test]
fn an_agent_over_the_real_nvml_without_a_driver() {
    if parts("nvidia").is_some() {
        let says = "NVIDIA driver is not loaded";
        let cluster = without_device("nvml-real", NodeBackend::NvidiaWithoutDriver, Mechanism::Mps, says);
        look_again("nvml-real", &cluster, "libnvidia_ml_double.so");
    }
}

#[test]
fn an_agent_over_intels_real_runtime_without_a_device() {
    if parts("intel").is_some() {
        without_device("intel-real", NodeBackend::IntelWithoutDevice, Mechanism::Ccs, "no driver to offer");
    }
}
