//! `pillion characterize` against a scheduler of fixtures, and a Slurm of shell lines: what it prints of what it did before, what it refuses,
//! and that nothing is submitted while Slurm may still hold a job for it.

use super::campaign::{SCRIPT, SUBMITTED_AT, remember};
use super::harness::Harness;
use super::{program, snapshot};
use serde_json::{Value, json};
use std::path::Path;

/// A campaign that was followed to its end: nothing is left to submit.
fn remembered(folder: &Path) {
    let failed = json!({"failed": "it ended as failed; see what it printed"});
    let runs = [
        run(1.0, "46", &"taught".into()),
        run(0.2, "47", &"taught".into()),
        run(0.6, "48", &"taught".into()),
        run(0.9, "49", &failed),
    ];
    remember(folder, "characterize", &["--deep"], &runs);
}

/// A run on record that was submitted long ago.
fn run(cap: f64, job_id: &str, outcome: &Value) -> Value {
    json!({"cap": cap, "job_id": job_id, "submitted_at": SUBMITTED_AT, "outcome": outcome})
}

#[tokio::test]
async fn characterize_tells_what_a_campaign_taught_without_doing_it_again() {
    let harness = Harness::start();
    remembered(harness.folder.path());
    snapshot(&harness, "characterize", "characterize --caps 0.6,0.2 train.sh --deep", 0).await;
}

#[tokio::test]
async fn characterize_refuses_what_makes_no_sense_before_anything_is_submitted() {
    let harness = Harness::start();
    let place = harness.folder.path();
    std::fs::write(place.join("train.sh"), SCRIPT).expect("written");
    std::fs::write(place.join("own.sh"), "#!/bin/sh\n#SBATCH --colocate=cap=0.3\n").expect("written");
    for (line, code, said) in [
        ("characterize none.sh", 65, "cannot read none.sh"),
        ("characterize own.sh", 65, "own.sh: line 2: take cap= out"),
        ("characterize --caps 0.25 train.sh", 64, "a cap is 0.1, 0.2, .. 0.9 or 1"),
        ("characterize --caps 1 train.sh", 64, "leave 1 out of --caps"),
        ("characterize --sbatch=--colocate=no train.sh", 64, "write settings of --colocate in the script"),
    ] {
        let ran = harness.run(line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}");
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
    assert_eq!(std::fs::read_dir(place.join("pillion/characterize")).map_or(0, Iterator::count), 0);
}

/// Job 61, of which the scheduler knows nothing, was submitted for the run without a cap; `sbatch` keeps account of its calls.
fn with_open_job() -> Harness {
    let harness = Harness::start();
    std::fs::create_dir(harness.folder.path().join("bin")).expect("a folder");
    program(
        &harness,
        "sbatch",
        "echo call >> sbatch.calls; echo 'pillion: waits for a GPU of its own' >&2; echo 71",
    );
    program(&harness, "sacct", "exit 1");
    remember(harness.folder.path(), "characterize", &[], &[run(1.0, "61", &Value::Null)]);
    harness
}

/// Calls it once: what became of the run, as it says, and how often `sbatch` was called until now.
async fn once(harness: &Harness, words: &str) -> (i32, String, usize) {
    let ran = harness.run(&format!("characterize --json --no-wait {words}")).await;
    let calls = std::fs::read_to_string(harness.folder.path().join("sbatch.calls")).unwrap_or_default();
    (ran.code, format!("{}{}", ran.out, ran.err), calls.lines().count())
}

#[tokio::test]
async fn nothing_is_submitted_again_while_slurm_holds_its_job_whether_the_scheduler_knows_it_or_not() {
    let harness = with_open_job();
    for state in ["PENDING", "RUNNING", "REQUEUE_HOLD", "COMPLETING", "SOMETHING_NEW"] {
        program(&harness, "squeue", &format!("case \"$*\" in *61*) echo '61|{state}';; esac"));
        for _ in 0..2 {
            let (code, said, calls) = once(&harness, "train.sh").await;
            assert_eq!((code, calls), (0, 0), "{state}: {said}");
            assert!(said.contains("the scheduler does not know it"), "{state}: {said}");
        }
    }
    // slurmctld is away: nobody can say.
    let away = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1";
    program(&harness, "squeue", away);
    for _ in 0..2 {
        let (code, said, calls) = once(&harness, "train.sh").await;
        assert_eq!((code, calls), (75, 0), "{said}");
    }
    // It is over: how, says who knows; the same command tries it anew, once.
    program(&harness, "squeue", "case \"$*\" in *61*) echo '61|CANCELLED';; *71*) echo '71|PENDING';; esac");
    let (code, said, calls) = once(&harness, "train.sh").await;
    assert!(said.contains("Slurm says that it ended as cancelled"), "{said}");
    assert_eq!((code, calls), (1, 0), "{said}");
    for _ in 0..2 {
        assert_eq!(once(&harness, "train.sh").await.2, 1);
    }
}

#[tokio::test]
async fn a_job_that_slurm_has_forgotten_is_over() {
    let harness = with_open_job();
    program(&harness, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
    // slurmctld, not the accounts, says what it holds: these may say so of a job that was lost.
    program(&harness, "sacct", "echo '61|RUNNING'");
    let (code, said, calls) = once(&harness, "train.sh").await;
    assert!(said.contains("neither the scheduler nor Slurm knows it any more"), "{said}");
    assert_eq!((code, calls), (1, 0), "{said}");
}
