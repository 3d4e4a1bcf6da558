//! What becomes of two tenants whose MPS goes wrong under them, over the doubles of NVIDIA's library and programs: the control
//! daemon dies, or the server is in FAULT. It is told, nobody new comes until they have left, and who fails with it is started
//! again, once and alone.

use crate::faults::{seen_together, wait_for_event};
use crate::leases::explain;
use crate::restart::{PAIR, pair};
use crate::rides::{SOON, load, make_known, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_device::simulated::Simulated;
use pillion_tests::cluster::spec::{NodeBackend, PoolNode};
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

/// The one GPU that there is, with both tenants on it.
struct Scene {
    cluster: Cluster,
    /// Does what its device does: it fails when its MPS fails, and works in its next start.
    frail: SlurmJobId,
    /// Its program hangs, and so stays a client; it leaves when it is told to.
    stubborn: SlurmJobId,
}

const FREEZE: &str = "freeze";
const FROZEN: &str = "frozen";
const LEAVE: &str = "leave";

fn frail(name: &str) -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then seconds=60000; else seconds=120; fi\n\
         exec pillion-load {name} --seconds $seconds"
    ))
}

/// `code`: what its first start ends with.
fn stubborn(name: &str, code: u32) -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" != 0 ]; then exec pillion-load {name} --seconds 120; fi\n\
         pillion-load {name} --seconds 60000 &\n\
         while [ ! -e \"$HOME/{FREEZE}\" ]; do sleep 0.1; done\n\
         kill -STOP $!; touch \"$HOME/{FROZEN}\"\n\
         while [ ! -e \"$HOME/{LEAVE}\" ]; do sleep 0.1; done\n\
         kill -KILL $!; wait\nexit {code}"
    ))
}

impl Scene {
    fn start(code: u32) -> Self {
        let node = PoolNode { backend: NodeBackend::Nvidia, ..PoolNode::new("n1", "h200", Mechanism::Mps) };
        let mut cluster = Cluster::start(ClusterSpec {
            pool_nodes: vec![node],
            whole_gpu_node_count: 0,
            gpus_per_node: 1,
            ..ClusterSpec::default()
        })
        .unwrap();
        cluster.start_pillion().unwrap();
        make_known(&cluster, &["alice"], &PAIR, &[&[]]);
        let [frail, stubborn] = pair(&cluster, &[frail(PAIR[0]), stubborn(PAIR[1], code)], &[]);
        seen_together(&cluster, [frail, stubborn]);
        let scene = Self { cluster, frail, stubborn };
        scene.say(FREEZE);
        let frozen = scene.cluster.home("alice").join(FROZEN);
        wait_until("a program that hangs", SOON, || Ok(frozen.exists())).unwrap();
        scene
    }

    fn say(&self, word: &str) {
        std::fs::write(self.cluster.home("alice").join(word), "").unwrap();
    }

    /// Where the first start of a job found its daemon.
    fn pipe(&self, job: SlurmJobId) -> String {
        starts(&self.cluster, "alice", job)[0]["pipe"].clone()
    }

    /// Waits until `pillion events` tells this of the node.
    fn wait_until_told(&self, kind: &str, detail: &str) {
        wait_for(&format!("event {kind}: {detail}"), SOON, || {
            let arguments = ["events", "-S", "now-1hour", "--json"];
            let text = self.cluster.pillion_as("root", &arguments)?.stdout()?;
            let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let events = told["events"].as_array().cloned().unwrap_or_default();
            let is_it = |event: &serde_json::Value| {
                event["kind"] == kind
                    && event["node"] == "n1"
                    && event["detail"].as_str().is_some_and(|said| said.contains(detail))
            };
            Ok(if events.iter().any(is_it) { Look::Ready(()) } else { Look::NotYet(format!("{events:?}")) })
        })
        .unwrap();
    }

    /// Another job of a known workload, which would go well beside the one that is left.
    fn newcomer(&self) -> SlurmJobId {
        submit(&self.cluster, "alice", PAIR[0], &load(PAIR[0], 120), &[])
    }

    /// When a start of a job began, by its own clock.
    fn began_at(&self, job: SlurmJobId, start: usize) -> f64 {
        starts(&self.cluster, "alice", job)[start]["at"].parse().unwrap()
    }

    /// Lets the hanging program go, and gives the time.
    fn leave(&self) -> f64 {
        let at = self.cluster.program("date").arg("+%s.%N").stdout().unwrap().trim().parse().unwrap();
        self.say(LEAVE);
        at
    }

    /// It ran twice: beside the other one, and then alone.
    fn was_started_again_alone(&self, job: SlurmJobId) {
        let fields = self.cluster.wait_for_job(job, &["COMPLETED"], 2 * SOON).unwrap();
        assert_eq!(fields["Restarts"], "1");
        let all = starts(&self.cluster, "alice", job);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!((all[1]["shards"].as_str(), all[1]["decision"].as_str()), ("100", ""), "{all:?}");
    }
}

#[test]
fn a_daemon_that_dies_takes_who_fails_with_it_once_and_lets_nobody_in_until_all_have_left() {
    let scene = Scene::start(0);
    let pipe = scene.pipe(scene.frail);
    assert_eq!(pipe, scene.pipe(scene.stubborn), "one daemon serves both");
    let daemon = std::fs::read_to_string(Path::new(&pipe).join("nvidia-cuda-mps-control.pid")).unwrap();
    kill_process(Pid::from_raw(daemon.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();

    scene.wait_until_told("device-fault", "its MPS daemon died");
    let reason = wait_for_event(&scene.cluster, scene.frail, "victim");
    assert!(!reason.contains(&scene.stubborn.to_string()), "users are told nothing of others: {reason}");
    wait_for_event(&scene.cluster, scene.frail, "requeued");
    let newcomer = scene.newcomer();
    wait_until("a newcomer that is known", SOON, || Ok(explain(&scene.cluster, newcomer)?.is_some()))
        .unwrap();
    assert_eq!(scene.cluster.job_field(scene.stubborn, "JobState").unwrap(), "RUNNING", "it goes on");
    let left_at = scene.leave();
    let fields = scene.cluster.wait_for_job(scene.stubborn, &["COMPLETED"], SOON).unwrap();
    assert_eq!(fields["Restarts"], "0");

    scene.was_started_again_alone(scene.frail);
    scene.cluster.wait_for_job(newcomer, &["COMPLETED"], 2 * SOON).unwrap();
    for (job, start) in [(scene.frail, 1), (newcomer, 0)] {
        assert!(scene.began_at(job, start) >= left_at, "{job} came before the last suspect had left");
    }
    scene.wait_until_told("device-well", "its MPS daemon died");
}

#[test]
fn a_server_in_fault_lets_nobody_in_until_its_clients_have_left() {
    let scene = Scene::start(1);
    let mut devices = Simulated::new(scene.cluster.root().join("run/n1/devices.sock"));
    devices.fault_mps(0).unwrap();

    scene.wait_until_told("device-fault", "its MPS server reports a fault");
    // Nobody ended before it: as far as anybody knows it was its own fault.
    let fields = scene.cluster.wait_for_job(scene.frail, &["FAILED"], SOON).unwrap();
    assert_eq!(fields["Restarts"], "0");
    let newcomer = scene.newcomer();
    // Slurm dates ends in whole seconds: who fails in the same one is no victim.
    wait_until("a later second", SOON, || {
        let ended = scene.cluster.program("date").args(["+%s", "-d", &fields["EndTime"]]).stdout()?;
        let now = scene.cluster.program("date").arg("+%s").stdout()?;
        let seconds = |text: &str| text.trim().parse::<i64>().unwrap_or_default();
        Ok(seconds(&now) >= seconds(&ended) + 3)
    })
    .unwrap();
    let left_at = scene.leave();
    let reason = wait_for_event(&scene.cluster, scene.stubborn, "victim");
    assert!(reason.contains("soon after a tenant beside it ended"), "{reason}");
    scene.was_started_again_alone(scene.stubborn);
    scene.cluster.wait_for_job(newcomer, &["COMPLETED"], 2 * SOON).unwrap();
    assert!(scene.began_at(newcomer, 0) >= left_at, "it came before the last suspect had left");
    scene.wait_until_told("device-well", "its MPS server reports a fault");
}

/// Whoever ignores SIGTERM works until SIGKILL, which takes his neighbour along, unless the daemon ends him before. `end` has Slurm end him, in
/// this state; his neighbour has work for so long, in seconds of the devices.
fn who_is_deaf_leaves_through_the_daemon(
    end: impl Fn(&Cluster, SlurmJobId),
    state: &str,
    neighbour_seconds: u32,
) {
    let node = PoolNode { backend: NodeBackend::Nvidia, ..PoolNode::new("n1", "h200", Mechanism::Mps) };
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![node],
        whole_gpu_node_count: 0,
        gpus_per_node: 1,
        machine_conf_extra: vec!["killed_client_ends_mps = true".to_owned()],
        slurm_conf_extra: vec!["KillWait=8".to_owned()],
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let deaf = script(&format!("trap '' TERM\nexec pillion-load {} --seconds 60000", PAIR[0]));
    let [ended, neighbour] = pair(&cluster, &[deaf, load(PAIR[1], neighbour_seconds)], &[]);
    seen_together(&cluster, [ended, neighbour]);
    end(&cluster, ended);
    let told = wait_for_event(&cluster, ended, "clients-ended");
    assert!(told.starts_with("1 process of it left the GPU through the MPS daemon"), "{told}");
    cluster.wait_for_job(ended, &[state], SOON).unwrap();
    let fields = cluster.wait_for_job(neighbour, &["COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(fields["Restarts"], "0");
}

#[test]
fn a_tenant_that_is_cancelled_leaves_through_the_daemon_and_its_neighbour_works_on() {
    let cancel = |cluster: &Cluster, job: SlurmJobId| {
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
    };
    who_is_deaf_leaves_through_the_daemon(cancel, "CANCELLED", 1200);
}

#[test]
fn a_tenant_whose_time_is_over_leaves_through_the_daemon_and_its_neighbour_works_on() {
    let shorten = |cluster: &Cluster, job: SlurmJobId| {
        cluster.scontrol(&["update", &format!("JobId={job}"), "TimeLimit=1"]).unwrap();
    };
    who_is_deaf_leaves_through_the_daemon(shorten, "TIMEOUT", 7200);
}
