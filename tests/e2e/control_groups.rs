//! Slurm with control groups, as most sites run it: a job reaches the GPUs that it booked and no others, and one that has to go
//! beside another stands still until its MPS clients have left through the daemon. Whatever dies meanwhile, nobody stays frozen.

use crate::faults::wait_for_event;
use crate::restart::{PAIR, pair as pair_of_known};
use crate::rides::{SOON, load, make_known, make_known_for, script, starts, submit};
use crate::trials::{ALONE_SECONDS, BREAK, LONG_SECONDS};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::control_groups::{are_there, freezer_of, own_name};
use pillion_tests::cluster::spec::{Containment, NodeBackend, PoolNode};
use pillion_tests::testbed::identity_of;
use pillion_tests::wait::{Look, now, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A hold ends by itself (10 s), and its guard acts two seconds later.
const HELD_MAX: Duration = Duration::from_secs(20);

/// One node of two GPUs behind the doubles of NVIDIA's library and programs; `None` where the machine has no such control groups.
fn start(policy: &[&str]) -> Option<Cluster> {
    if !are_there() {
        pillion_test_kit::not_on_this_machine("it has no control groups of version 1 (freezer, devices)");
        return None;
    }
    let name = own_name("n1").unwrap();
    let node = PoolNode { backend: NodeBackend::Nvidia, ..PoolNode::new(&name, "h200", Mechanism::Mps) };
    let mut cluster = Cluster::start(ClusterSpec {
        pool_nodes: vec![node],
        whole_gpu_node_count: 0,
        gpus_per_node: 2,
        containment: Containment::ControlGroups,
        // Whoever is killed at work takes his neighbour along; and what control groups do to a real driver, whose files they close.
        machine_conf_extra: ["killed_client_ends_mps = true", "constrain_devices = true"]
            .map(str::to_owned)
            .into(),
        slurm_conf_extra: vec!["KillWait=6".to_owned()],
        scheduler_conf_extra: policy.iter().map(|line| (*line).to_owned()).collect(),
        ..ClusterSpec::default()
    })
    .unwrap();
    cluster.start_pillion().unwrap();
    Some(cluster)
}

fn node_of(cluster: &Cluster) -> String {
    cluster.spec().pool_nodes[0].name.clone()
}

/// Nobody drained it: Slurm does so where it cannot kill what stands still.
fn is_in_service(cluster: &Cluster) {
    let state = cluster.scontrol(&["show", "node", &node_of(cluster), "-o"]).unwrap();
    assert!(!state.contains("DRAIN") && !state.contains("DOWN"), "{state}");
}

#[test]
fn a_job_reaches_the_gpus_that_it_booked_and_no_others() {
    let Some(cluster) = start(&[]) else { return };
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    // A file that is open to it has no driver behind it here; one that is closed is refused before anybody looks.
    let files: Vec<String> =
        (0..2).map(|gpu| cluster.layout().device_file(gpu).display().to_string()).collect();
    let tries = format!("for file in {}; do : <$file; done", files.join(" "));
    let of = |name: &str| script(&format!("{tries}\nexec pillion-load {name} --seconds 600"));
    let jobs = pair_of_known(&cluster, &PAIR.map(of), &[]);
    for job in jobs {
        let own: usize = starts(&cluster, "alice", job)[0]["gpu"].parse().unwrap();
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        let said = cluster.job_output(job).unwrap().text;
        let of_file = |gpu: usize| said.lines().find(|line| line.contains(&files[gpu])).unwrap_or(&said);
        assert!(of_file(own).contains("No such device or address"), "its own, {own}: {said}");
        assert!(of_file(1 - own).contains("Operation not permitted"), "another's: {said}");
    }
    is_in_service(&cluster);
}

/// A host, and a guest that SIGTERM kills: it has no handler.
fn trial(cluster: &Cluster) -> [SlurmJobId; 2] {
    make_known_for(cluster, ALONE_SECONDS, &[("bob", BREAK)]);
    let begin = cluster.begin_together(3).unwrap();
    let [(host, work), (guest, its)] = BREAK;
    let next = script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then seconds={LONG_SECONDS}; else seconds=300; fi\n\
         exec pillion-load {its} --seconds $seconds"
    ));
    let jobs = [
        submit(cluster, "bob", &format!("{host},max-slowdown=1.1"), &load(work, LONG_SECONDS), &[&begin]),
        submit(cluster, "bob", &format!("{guest},max-slowdown=10"), &next, &[&begin]),
    ];
    for job in jobs {
        cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
    }
    jobs
}

const TRIED: [&str; 5] = [
    "caps = false",
    "watch = \"act\"",
    "trials = \"on\"",
    "watch_first_seconds = 40",
    "watch_restart_seconds = 0",
];

/// The agent's list of who is held.
fn held_list(cluster: &Cluster) -> PathBuf {
    cluster.layout().path("agent").join(node_of(cluster)).join("held.json")
}

/// The host never noticed, and the guest ran once more, to its end.
fn both_are_well(cluster: &Cluster, [host, guest]: [SlurmJobId; 2]) {
    cluster.wait_for_job(guest, &["COMPLETED"], 2 * SOON).unwrap();
    assert_eq!(cluster.job_field(guest, "Restarts").unwrap(), "1");
    let fields = cluster.job(host).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Restarts"].as_str()), ("RUNNING", "0"), "{fields:?}");
    is_in_service(cluster);
}

#[test]
fn who_goes_back_stands_still_until_its_clients_have_left() {
    let Some(cluster) = start(&TRIED) else { return };
    let jobs = trial(&cluster);
    wait_for_event(&cluster, jobs[1], "sent-back");
    let left = wait_for_event(&cluster, jobs[1], "clients-ended");
    assert!(left.starts_with("1 process of it left the GPU through the MPS daemon"), "{left}");
    both_are_well(&cluster, jobs);
    let log =
        std::fs::read_to_string(cluster.layout().log(&format!("pillion-agent-{}.out", node_of(&cluster))))
            .unwrap();
    assert!(log.contains("held while Slurm is asked to take it"), "{log}");
}

/// Its state as the kernel has it; a group that has gone holds nobody.
fn state_of(freezer: &Path) -> String {
    std::fs::read_to_string(freezer.join("freezer.state")).unwrap_or_default().trim().to_owned()
}

#[test]
fn nobody_stays_frozen_where_the_agent_dies_in_between() {
    let Some(mut cluster) = start(&TRIED) else { return };
    let jobs = trial(&cluster);
    let node = node_of(&cluster);
    let freezer = freezer_of(&node, identity_of("bob").unwrap().uid, jobs[1]);
    // Held for tens of milliseconds, if nothing comes in between.
    let begun = now();
    while state_of(&freezer) != "FROZEN" {
        assert!(begun.elapsed() < 2 * SOON, "never held; {}", cluster.log_tails());
        std::thread::sleep(Duration::from_millis(1));
    }
    cluster.daemon("slurmctld").unwrap().signal(Signal::STOP);
    cluster.kill_agent(&node, Signal::KILL).unwrap();
    let died = now();
    wait_until("a job that goes on", HELD_MAX, || Ok(state_of(&freezer) != "FROZEN")).unwrap();
    println!("it stood still for {:.1} s after the agent died", died.elapsed().as_secs_f64());
    cluster.daemon("slurmctld").unwrap().signal(Signal::CONT);
    cluster.start_agent(&node).unwrap();
    wait_for("end of the guest", 3 * SOON, || {
        let fields = cluster.job(jobs[1])?;
        let is_over = fields["JobState"] == "COMPLETED";
        Ok(if is_over { Look::Ready(()) } else { Look::NotYet(format!("{fields:?}")) })
    })
    .unwrap();
    is_in_service(&cluster);
    assert_eq!(std::fs::read_to_string(held_list(&cluster)).unwrap_or("[]".to_owned()).trim(), "[]");
}
