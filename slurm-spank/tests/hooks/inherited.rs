//! A job that another one's script submits finds nothing of that one's share.

use super::{FakeSpank, agent, decided, run_task, variables};
use pillion_core::handoff::{BATCH_STEP, HandoffReply, MARKER_TELLS};
use pillion_slurm_spank::hooks::init;
use pillion_slurm_spank::spank::{Context, Item};
use std::collections::BTreeMap;
use std::path::Path;

/// What a job of ours, beside others on a device, hands on.
fn handed_on(runtime: &Path) -> BTreeMap<String, String> {
    let under = |rest: &str| format!("{}/{rest}", runtime.display());
    variables(&[
        ("PILLION_DECISION", "4"),
        ("PILLION_PROGRESS", &under("progress/6")),
        ("CUDA_MPS_PIPE_DIRECTORY", &under("mps/g1/pipe")),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8G"),
        ("CUDA_MPS_SM_PARTITION", "p1"),
        ("APPTAINER_BIND", &format!("/data:/data:ro,{}", under("mps/g1/pipe"))),
        ("SINGULARITY_BIND", &under("mps/g1/pipe")),
    ])
}

/// A step of a plain job with a whole GPU.
fn plain(step: u32, handed_on: BTreeMap<String, String>) -> FakeSpank {
    let mut spank = FakeSpank::task();
    spank.items.insert(Item::StepId, step);
    spank.job = variables(&[("SLURM_GPUS", "1"), ("HOME", "/h")]);
    spank.job.extend(handed_on);
    spank
}

#[test]
fn a_job_that_is_not_ours_has_nothing_of_its_submitters_share() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    for step in [BATCH_STEP, 0] {
        let mut spank = plain(step, handed_on(directory.path()));
        assert!(!run_task(&mut spank, &[&socket], &[]));
        let left = variables(&[("SLURM_GPUS", "1"), ("HOME", "/h"), ("APPTAINER_BIND", "/data:/data:ro")]);
        assert_eq!((&spank.job, &spank.log[..]), (&left, &[][..]), "step {step}");
        // And so its srun asks for the GPU that it has.
        spank.process = spank.job.clone();
        spank.context = Context::Local;
        init(&mut spank, &[&socket]);
        assert_eq!(spank.process, left);
    }
}

#[test]
fn what_a_user_set_for_himself_stays() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    let his = variables(&[
        ("PILLION_PROGRESS", "/home/me/counter"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"),
        ("APPTAINER_BIND", "/data,/run/other"),
    ]);
    let mut spank = plain(BATCH_STEP, his);
    let before = spank.job.clone();
    spank.job.insert("PILLION_DECISION".to_owned(), "4".to_owned());
    run_task(&mut spank, &[&socket], &[]);
    assert_eq!(spank.job, before, "a daemon of his own");
}

#[test]
fn a_script_of_ours_has_its_own_share_or_none() {
    let own = [("PILLION_DECISION", "5"), ("CUDA_MPS_PIPE_DIRECTORY", "/run/p/pipe")];
    let without =
        [("SLURM_JOB_GPUS", "1"), ("SLURM_SHARDS_ON_NODE", "40"), ("APPTAINER_BIND", "/data:/data:ro")];
    for (reply, expected) in
        [(decided(&own, &[]), [&without[..], &own[..]].concat()), (HandoffReply::unknown(), without.to_vec())]
    {
        let directory = tempfile::tempdir().unwrap();
        let (socket, asked) = agent(directory.path(), reply);
        let mut spank = FakeSpank::colocated();
        spank.job.extend(handed_on(directory.path()));
        run_task(&mut spank, &[&socket], &[]);
        asked.join().unwrap();
        assert_eq!(spank.job, variables(&expected));
    }
    // Nobody answers.
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    let mut spank = FakeSpank::colocated();
    spank.job.extend(handed_on(directory.path()));
    run_task(&mut spank, &[&socket], &[]);
    assert_eq!(spank.job, variables(&without));
}

/// Its limits are its script's: without them it would run beside MPS, and beyond its cap.
#[test]
fn a_step_of_ours_keeps_what_its_script_has_where_no_agent_answers() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("jobs")).unwrap();
    let marker = directory.path().join("jobs/7");
    let socket = format!("socket={}", directory.path().join("agent.sock").display());
    for (text, keeps) in [("", true), (MARKER_TELLS, false)] {
        std::fs::write(&marker, text).unwrap();
        let mut spank = plain(0, handed_on(directory.path()));
        let before = spank.job.clone();
        assert!(run_task(&mut spank, &[&socket], &[]));
        assert_eq!(spank.job == before, keeps, "{text:?}");
    }
}
