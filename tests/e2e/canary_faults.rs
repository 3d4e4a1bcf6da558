//! What comes between two steps of a canary, on real Slurm: it is killed behind sbatch, the scheduler is away, its user cancels one of its
//! jobs, an admin takes its node down and gives it back. Nothing is submitted while Slurm holds a job for it, and it comes to its end.

use crate::rides::KNOWN_SECONDS;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::testbed::search_path;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::Duration;

const LINE: [&str; 4] = ["canary", "--no-wait", "--json", "solver.sh"];
/// A job after the other, some of them twice, on a busy machine.
const LONG: Duration = Duration::from_mins(5);
/// An sbatch whose caller is killed when the job is with Slurm, and nothing else is written down: the caller of `timeout`, which began it.
const LAST_SBATCH: &str =
    "#!/bin/bash\nPATH=${PATH#*:}\nsbatch \"$@\"\nkill -9 $(cut -d' ' -f4 /proc/$PPID/stat)\n";

fn prepared() -> Cluster {
    let pool_nodes = vec![PoolNode::new("n1", "h200", Mechanism::Mps)];
    let mut cluster = Cluster::start(ClusterSpec { pool_nodes, ..ClusterSpec::default() }).unwrap();
    cluster.start_pillion().unwrap();
    cluster.wait_for_agents(1).unwrap();
    let script = format!(
        "#!/bin/bash\n#SBATCH --gres=gpu:1 -c1 --mem=100 -t10\nexec pillion-load resnet50-infer --seconds {KNOWN_SECONDS}\n"
    );
    std::fs::write(cluster.home("alice").join("solver.sh"), script).unwrap();
    let folder = cluster.home("alice").join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sbatch"), LAST_SBATCH).unwrap();
    for path in [folder.join("sbatch"), folder] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    cluster
}

/// One call of the command, and what it printed.
fn step(cluster: &Cluster) -> (Output, Value) {
    let output = cluster.pillion_as("alice", &LINE).unwrap().output().unwrap();
    // No more than two at once: Slurm holds no job of a pair beside another one of the same.
    let held =
        jobs(cluster).iter().filter(|[_, state]| ["PENDING", "RUNNING"].contains(&state.as_str())).count();
    assert!(held <= 2, "{:?}", jobs(cluster));
    let told = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, told)
}

/// Every job of a canary that there ever was: its number and state.
fn jobs(cluster: &Cluster) -> Vec<[String; 2]> {
    let lines = cluster.squeue("%i %T %j").unwrap();
    let own = lines.iter().filter(|line| line.contains(" pillion-canary-n1-"));
    own.map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        [words.next().unwrap(), words.next().unwrap()]
    })
    .collect()
}

/// Calls it until that is so.
fn step_until(cluster: &Cluster, what: &str, is_so: impl Fn(&Output, &Value) -> bool) -> (Output, Value) {
    wait_for(what, LONG, || {
        let (output, told) = step(cluster);
        Ok(if is_so(&output, &told) {
            Look::Ready((output, told))
        } else {
            Look::NotYet(format!("{told} {}", String::from_utf8_lossy(&output.stderr)))
        })
    })
    .unwrap()
}

#[test]
fn a_canary_goes_on_after_a_kill_a_cancellation_and_a_node_that_went_down() {
    let mut cluster = prepared();
    let path = format!("{}:{}", cluster.home("alice").join("bin").display(), search_path());
    let killed = cluster.pillion_as("alice", &LINE).unwrap().env("PATH", path).output().unwrap();
    assert_eq!((killed.status.code(), jobs(&cluster).len()), (None, 1), "killed behind sbatch: {killed:?}");
    // Its name is on record, its number is not.
    let (_, told) = step(&cluster);
    let first = jobs(&cluster)[0][0].clone();
    assert_eq!((&told["alone"][0]["job_id"], jobs(&cluster).len()), (&first.as_str().into(), 1), "{told:#}");

    cluster.kill_scheduler(Signal::TERM).unwrap();
    let (output, _) = step(&cluster);
    assert_eq!((output.status.code(), jobs(&cluster).len()), (Some(69), 1), "{output:?}");
    cluster.start_scheduler().unwrap();

    cluster.program_as("alice", "scancel").unwrap().arg(&first).stdout().unwrap();
    let (_, told) =
        step_until(&cluster, "word of the cancelled job", |_, told| told["alone"][0]["state"] == "failed");
    assert!(told["alone"][0]["detail"].as_str().unwrap().contains("ended as cancelled"), "{told:#}");
    assert_eq!(jobs(&cluster).len(), 1, "a failure is told before it is tried anew");

    // A pair runs, and its node goes down.
    let running = |cluster: &Cluster| jobs(cluster).iter().filter(|[_, state]| state == "RUNNING").count();
    step_until(&cluster, "a pair that runs", |_, told| {
        told["alone"][0]["state"] == "measured" && running(&cluster) == 2
    });
    assert_eq!(jobs(&cluster).len(), 4, "{:?}", jobs(&cluster));
    cluster.scontrol(&["update", "NodeName=n1", "State=DOWN", "Reason=fan"]).unwrap();
    let (output, _) = step_until(&cluster, "word of the node", |output, _| {
        String::from_utf8_lossy(&output.stderr).contains("Slurm starts nothing on n1: it is down")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.trim().lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("; the same command goes on when that is mended"), "{said}");
    let count = jobs(&cluster).len();
    step(&cluster);
    assert_eq!((jobs(&cluster).len(), count), (4, 4), "nothing is submitted there");

    // By an admin, unless its slurmd has said in the meantime that it is well.
    if cluster.node("n1").unwrap()["State"].contains("DOWN") {
        cluster.scontrol(&["update", "NodeName=n1", "State=RESUME"]).unwrap();
    }
    let (output, told) = step_until(&cluster, "the pair's end", |output, told| {
        told["pairs"][0]["state"] == "together" && output.status.success()
    });
    assert_eq!(told["verdict"]["speed_count"], 2, "{told:#} {output:?}");
    // Started again without each other, by Slurm, they were submitted anew together, once; else not at all.
    assert!([4, 6].contains(&jobs(&cluster).len()), "{:?}", jobs(&cluster));
}
