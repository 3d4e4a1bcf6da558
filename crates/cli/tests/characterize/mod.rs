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

/// An `sbatch` that keeps the comment of each call and then does this.
fn submitting(harness: &Harness, lines: &str) {
    let kept =
        "for word; do case $word in --comment=*) echo \"${word#--comment=}\" >> sbatch.calls;; esac; done";
    program(harness, "sbatch", &format!("{kept}\n{lines}"));
}

const LATE: &str =
    "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1";
/// Job 71 waits, with the comment of the first call.
const THERE: &str =
    "case \"$*\" in *%k*) echo \"71|PENDING|$(head -n 1 sbatch.calls)\";; *71*) echo '71|PENDING';; esac";

/// Slurm has no job of his, and one node of four GPUs.
fn with_nothing_on_record() -> Harness {
    let harness = with_open_job();
    std::fs::remove_dir_all(harness.folder.path().join("pillion")).expect("nothing is on record");
    program(&harness, "squeue", "exit 0");
    program(&harness, "sinfo", "echo 'n1|gpu*|gpu:4'");
    harness
}

#[tokio::test]
async fn what_may_have_been_submitted_is_looked_for_and_not_submitted_twice() {
    for words in ["train.sh", "--gpus 1 train.sh"] {
        let harness = with_nothing_on_record();
        submitting(&harness, LATE);
        let (code, said, calls) = once(&harness, words).await;
        assert!((code, calls) == (75, 1) && said.contains("Socket timed out"), "{code} {said}");
        // Slurm does not have it yet, and may.
        let (_, said, calls) = once(&harness, words).await;
        assert_eq!(calls, 1, "{said}");
        assert!(said.contains("whether the last run was submitted is not known yet"), "{said}");
        // There it is.
        program(&harness, "squeue", THERE);
        let (_, said, calls) = once(&harness, words).await;
        assert!(calls == 1 && said.contains("\"71\""), "{said}");
        assert!(!said.contains("not known yet"), "{said}");
    }
}

#[tokio::test]
async fn whoever_is_killed_between_sbatch_and_its_record_finds_the_job_again_also_in_the_accounts() {
    for words in ["train.sh", "--gpus 1 train.sh"] {
        let harness = with_nothing_on_record();
        // Here it is killed: the job is there, and nobody has read its number.
        submitting(&harness, "kill -9 $$");
        let (_, said, calls) = once(&harness, words).await;
        assert_eq!(calls, 1, "{said}");
        let token =
            std::fs::read_to_string(harness.folder.path().join("sbatch.calls")).expect("it was called");
        let line = format!("71|RUNNING|sbatch --parsable --comment={} train.sh", token.trim());
        program(&harness, "sacct", &format!("case \"$*\" in *SubmitLine*) echo '{line}';; esac"));
        let (_, said, calls) = once(&harness, words).await;
        assert!(calls == 1 && said.contains("\"71\""), "{said}");
    }
}

#[tokio::test]
async fn what_was_refused_is_submitted_anew_at_once() {
    let harness = with_open_job();
    std::fs::remove_dir_all(harness.folder.path().join("pillion")).expect("nothing is on record");
    program(&harness, "squeue", "exit 0");
    program(&harness, "sinfo", "echo 'n1|gpu*|gpu:4'");
    submitting(&harness, "echo 'sbatch: error: Invalid account' >&2; exit 1");
    for count in [1, 2] {
        assert_eq!(once(&harness, "--gpus 1 train.sh").await.2, count);
    }
}

#[tokio::test]
async fn a_count_that_fits_no_node_takes_several_where_the_script_uses_them() {
    let harness = with_open_job();
    let place = harness.folder.path();
    program(&harness, "squeue", "exit 0");
    program(&harness, "sinfo", "printf 'n1|gpu*|gpu:4\\nn2|gpu*|gpu:4\\nn3|big|gpu:8\\n'");
    program(&harness, "sbatch", "echo \"$*\" >> sbatch.calls; echo $((70 + $(wc -l < sbatch.calls)))");
    std::fs::write(
        place.join("several.sh"),
        "#!/bin/sh\n#SBATCH --gres=gpu:4 --ntasks-per-node=4\nsrun train\n",
    )
    .expect("written");
    std::fs::write(place.join("one.sh"), "#!/bin/sh\n#SBATCH --gres=gpu:4\ntrain\n").expect("written");
    let (code, said, calls) = once(&harness, "--gpus 4,8 one.sh").await;
    assert!(code == 65 && said.contains("8 GPUs do not fit on one node (4 at most)"), "{code} {said}");
    assert_eq!(calls, 0, "before anything is submitted");
    let (code, said, calls) = once(&harness, "--gpus 4,8 several.sh").await;
    assert_eq!((code, calls), (0, 2), "{said}");
    let lines = std::fs::read_to_string(place.join("sbatch.calls")).expect("it was called");
    let asked: Vec<&str> = lines.lines().collect();
    assert!(asked[0].contains("--gres=gpu:4 --nodes=1 --ntasks-per-node=4 "), "{lines}");
    assert!(
        asked[1].contains("--gres=gpu:4 --nodes=2 --ntasks-per-node=4 --dependency=afterany:71"),
        "{lines}"
    );
    let told: Value =
        serde_json::from_str(&said[..=said.rfind('}').expect("an object")]).expect("one object");
    let nodes: Vec<&Value> = told["runs"].as_array().expect("runs").iter().map(|run| &run["nodes"]).collect();
    assert_eq!(nodes, [1, 2]);
    // As it began, whatever becomes of the partition.
    program(&harness, "sinfo", "printf 'n1|gpu*|gpu:8\\n'");
    assert_eq!(once(&harness, "--gpus 4,8 several.sh").await.2, 2);
    // In another partition it fits.
    let (_, said, calls) = once(&harness, "--again --sbatch=--partition=big --gpus 8 several.sh").await;
    assert!(calls == 3 && said.contains("\"nodes\": 1"), "{said}");
}
