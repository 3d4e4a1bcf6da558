//! What comes between the steps of an interactive job with `--colocate`, on real Slurm: slurmctld is away, the agent dies under it, its
//! user presses Ctrl-C, moves it, or cancels it, and with all of us dead `pillion rescue` looks after who waits.

use crate::faults::wait_for_event;
use crate::leases::scontrol_as_alice;
use crate::notebook::{Session, make_known, small_guest, start, wait_for_guest};
use crate::rides::SOON;
use pillion_tests::wait::wait_until;
use rustix::process::Signal;

#[test]
fn a_notebook_outlives_whoever_is_away() {
    let mut cluster = start(1);
    make_known(&cluster);
    let notebook = Session::salloc(&cluster, "alice", "notebook", &[], &["RUNNING"]);
    notebook.is(&cluster);
    let guest = small_guest(&cluster);
    wait_for_guest(&cluster, guest);
    // 1. slurmctld goes, once in order and once not, and comes again.
    for signal in [Signal::TERM, Signal::KILL] {
        cluster.stop_slurmctld(signal).unwrap();
        cluster.start_slurmctld().unwrap();
        for job in [notebook.job, guest] {
            cluster.wait_for_job(job, &["RUNNING"], SOON).unwrap();
            assert_eq!(cluster.job_field(job, "Restarts").unwrap(), "0", "{job} after {signal:?}");
        }
    }
    // 2. The agent dies under both and comes again: it knows both, and the guest still goes for the notebook's work.
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.start_agent("n1").unwrap();
    notebook.work(&cluster);
    wait_for_event(&cluster, guest, "made-room");
    cluster.wait_for_job(guest, &["PENDING"], SOON).unwrap();
    notebook.worked(&cluster);
    assert_eq!(cluster.job_field(notebook.job, "JobState").unwrap(), "RUNNING");
    let state = cluster.scontrol(&["show", "node", "n1", "-o"]).unwrap();
    assert!(!state.contains("DRAIN") && !state.contains("DOWN"), "{state}");
    cluster.program("scancel").arg(guest.to_string()).stdout().unwrap();
    notebook.end(&cluster);
}

#[test]
fn a_notebook_that_waits_is_its_user_s() {
    let mut cluster = start(1);
    let first = Session::salloc(&cluster, "alice", "first", &[], &["RUNNING"]);
    first.is(&cluster);
    // 1. Ctrl-C: salloc gives up, and nothing is left of it.
    let mut stopped = Session::salloc(&cluster, "alice", "stopped", &[], &["PENDING"]);
    let pid = rustix::process::Pid::from_child(&stopped.child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    cluster.wait_for_job(stopped.job, &["CANCELLED"], SOON).unwrap();
    assert!(!stopped.child.wait().unwrap().success());
    // 2. Moved to a partition that is not ours: it has what it asked for there, and nothing of ours.
    let moved = Session::salloc(&cluster, "alice", "moved", &[], &["PENDING"]);
    scontrol_as_alice(&cluster, &["update", &format!("JobId={}", moved.job), "Partition=gpu"]);
    let fields = cluster.wait_for_job(moved.job, &["RUNNING"], SOON).unwrap();
    assert_eq!(fields["TresPerNode"], "gres/gpu:1", "{fields:?}");
    wait_until("its step", SOON, || Ok(cluster.home("alice").join(format!("is.{}", moved.job)).exists()))
        .unwrap();
    let is = std::fs::read_to_string(cluster.home("alice").join(format!("is.{}", moved.job))).unwrap();
    assert!(!is.contains("CUDA_MPS") && !is.contains("PILLION_DECISION"), "{is}");
    moved.end(&cluster);
    // 3. All of us die while one waits: when the GPU is free Slurm starts it alone, with rescue or without.
    let waits = Session::salloc(&cluster, "alice", "waits", &[], &["PENDING"]);
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.kill_agent("n1", Signal::KILL).unwrap();
    cluster.pillion_as("root", &["rescue"]).unwrap().output().unwrap();
    first.end(&cluster);
    let fields = cluster.wait_for_job(waits.job, &["RUNNING"], SOON).unwrap();
    assert_eq!(fields["TresPerNode"], "gres/shard:100", "{fields:?}");
    let is = waits.is(&cluster);
    assert!(is.contains("SLURM_SHARDS_ON_NODE=100\n") && !is.contains("CUDA_MPS_PIPE"), "{is}");
    waits.end(&cluster);
}
