//! What becomes of a canary's jobs is what Slurm says: with a Slurm of shell lines that holds jobs, has forgotten them, answers too late, or
//! whose node is down, nothing is submitted while it may still hold a job for it.

use super::super::harness::{Harness, Ran};
use super::super::program;
use super::{harness, remember, run};
use serde_json::{Value, json};

const UP: &str = "n1|shared|idle\\n";
const DOWN: &str = "n1|shared|down*\\n";
/// As slurmctld answers who asks for one job that it has forgotten.
const FORGOTTEN: &str =
    "case \"$*\" in *--jobs=*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1;; esac";
/// An `sbatch` that keeps account of its calls, and of the record as it was then.
const SBATCH: &str = "echo \"$(tr '\\0' ' ' < /proc/$PPID/cmdline)\" >> sbatch.calls
cp pillion/canary/n1.json record.$(wc -l < sbatch.calls)
echo 'pillion: waits for a GPU of its own' >&2
expr 70 + $(wc -l < sbatch.calls)";

/// Two scripts, of which the first runs alone as job 61 by the record; the second is known by job 62, or has not begun.
fn with_open_job(sinfo: &str, is_second_known: bool) -> Harness {
    let harness = harness(sinfo);
    program(&harness, "sbatch", SBATCH);
    program(&harness, "sacct", "exit 1");
    let runs = [
        run(&json!({"alone": {"script": 0}}), 61, &Value::Null),
        run(&json!({"alone": {"script": 1}}), 62, &"alone".into()),
    ];
    let (scripts, runs) = if is_second_known {
        (&["solver", "training"][..], &runs[..])
    } else {
        (&["solver"][..], &runs[..1])
    };
    remember(harness.folder.path(), scripts, runs, &Value::Null);
    harness
}

async fn once(harness: &Harness, words: &str) -> (Ran, Value) {
    let ran = harness.run(&format!("canary --json --no-wait {words}")).await;
    let told = serde_json::from_str(&ran.out).unwrap_or(Value::Null);
    (ran, told)
}

/// With which words of a shell `sbatch` was called, each time.
fn calls(harness: &Harness) -> Vec<String> {
    let calls = std::fs::read_to_string(harness.folder.path().join("sbatch.calls")).unwrap_or_default();
    calls.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn nothing_is_submitted_again_while_slurm_holds_its_job_whether_the_scheduler_knows_it_or_not() {
    let harness = with_open_job(UP, false);
    for state in ["PENDING", "RUNNING", "REQUEUE_HOLD", "COMPLETING"] {
        program(&harness, "squeue", &format!("case \"$*\" in *61*) echo '61|{state}';; esac"));
        for _ in 0..2 {
            let (ran, told) = once(&harness, "solver.sh").await;
            assert_eq!((ran.code, &told["alone"][0]["state"]), (0, &"open".into()), "{state}: {}", ran.err);
        }
    }
    // slurmctld is away: nobody can say.
    program(
        &harness,
        "squeue",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
    );
    assert_eq!(once(&harness, "solver.sh").await.0.code, 75);
    assert_eq!(calls(&harness), Vec::<String>::new());
    // It is over: how, says who knows; the same command tries it anew.
    program(&harness, "squeue", "case \"$*\" in *61*) echo '61|CANCELLED';; esac");
    let (ran, told) = once(&harness, "solver.sh").await;
    let detail = told["alone"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("Slurm says that it ended as cancelled"), "{detail} {}", ran.err);
    assert_eq!((&told["alone"][0]["state"], calls(&harness).len()), (&"failed".into(), 0));
    once(&harness, "solver.sh").await;
    assert_eq!(calls(&harness).len(), 1);
}

#[tokio::test]
async fn a_job_that_slurm_has_forgotten_is_over() {
    let harness = with_open_job(UP, false);
    program(&harness, "squeue", FORGOTTEN);
    let told = once(&harness, "solver.sh").await.1;
    let detail = told["alone"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("neither the scheduler nor Slurm knows it"), "{told}");
    // slurmctld, not the accounts, says what it holds: these may say so of a job that was lost.
    let harness = with_open_job(UP, false);
    program(&harness, "squeue", FORGOTTEN);
    program(&harness, "sacct", "echo '61|RUNNING'");
    assert_eq!(once(&harness, "solver.sh").await.1["alone"][0]["state"], "failed");
}

#[tokio::test]
async fn an_sbatch_that_slurmctld_answers_too_late_may_still_bring_a_job() {
    let harness = harness(UP);
    let late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation";
    program(&harness, "sbatch", &format!("echo call >> sbatch.calls; echo '{late}' >&2; exit 1"));
    let words = "canary --json --no-wait solver.sh";
    let ran = harness.run(words).await;
    assert!(ran.code == 75 && ran.err.contains("Socket timed out"), "{} {}", ran.code, ran.err);
    let ran = harness.run(words).await;
    assert_eq!((ran.code, calls(&harness).len()), (0, 1), "{}", ran.err);
    // There it is.
    program(
        &harness,
        "squeue",
        "for word; do case $word in --name=*) echo \"17|PENDING|${word#--name=}\" ;; esac; done",
    );
    let told: Value = serde_json::from_str(&harness.run(words).await.out).expect("one object");
    assert_eq!((&told["alone"][0]["job_id"], calls(&harness).len()), (&"17".into(), 1), "{told}");
    // One that said no is tried again at once.
    let harness = super::harness(UP);
    program(
        &harness,
        "sbatch",
        "echo call >> sbatch.calls; echo 'sbatch: error: Invalid account' >&2; exit 1",
    );
    for count in [1, 2] {
        assert_eq!((harness.run(words).await.code, calls(&harness).len()), (1, count));
    }
}

#[tokio::test]
async fn each_sbatch_ends_by_itself_and_is_on_record_with_its_own_moment() {
    let harness = harness(UP);
    program(&harness, "sbatch", SBATCH);
    let ran = harness.run("canary --json --no-wait --runs 2 solver.sh").await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let calls = calls(&harness);
    assert!(calls.len() == 2 && calls.iter().all(|call| call.starts_with("timeout ")), "{calls:?}");
    let record = |call: u32| -> Value {
        let text =
            std::fs::read_to_string(harness.folder.path().join(format!("record.{call}"))).expect("kept");
        serde_json::from_str(&text).expect("a record")
    };
    let moment = |record: &Value, run: usize| record["runs"][run]["submitted_at"].as_f64().expect("a time");
    let (first, second) = (record(1), record(2));
    assert!(first["runs"][0]["job_id"].is_null() && second["runs"][0]["job_id"] == "71", "{second}");
    assert!(moment(&second, 1) > moment(&first, 1), "of its own sbatch, not of the first");
}

#[tokio::test]
async fn jobs_of_a_canary_that_is_not_on_record_are_not_joined_by_others() {
    let harness = harness(UP);
    program(&harness, "sbatch", SBATCH);
    program(
        &harness,
        "squeue",
        "echo 'pillion-canary-n1-6a3-0|17|RUNNING'; echo 'pillion-canary-n1-b-6a3-0|18|RUNNING'; echo 'pillion-canary-n1-6a3-1|19|COMPLETED'",
    );
    let (ran, _) = once(&harness, "solver.sh").await;
    assert!(
        ran.code == 64
            && ran.err.contains("Slurm holds jobs of a canary on n1 that are not on record here (17)"),
        "{}",
        ran.err
    );
    assert_eq!(calls(&harness).len(), 0);
}

#[tokio::test]
async fn a_node_that_goes_down_ends_a_canary_in_one_sentence_and_it_goes_on_when_the_node_is_back() {
    let harness = with_open_job(DOWN, true);
    program(&harness, "squeue", "case \"$*\" in *61*) echo '61|PENDING';; esac");
    for words in ["solver.sh training.sh", "--again solver.sh training.sh"] {
        let (ran, told) = once(&harness, words).await;
        let said = "pillion: Slurm starts nothing on n1: it is down*; the same command goes on when that is mended (not over: 61)\n";
        assert!(ran.code == 1 && ran.err.ends_with(said), "{words}: {}", ran.err);
        assert_eq!(told["alone"][0]["state"], "open");
    }
    // Its job is over: nothing is submitted there.
    program(&harness, "squeue", FORGOTTEN);
    let (ran, told) = once(&harness, "solver.sh training.sh").await;
    assert_eq!((ran.code, &told["alone"][0]["state"]), (1, &"failed".into()), "{}", ran.err);
    assert!(ran.err.ends_with("it is down*; the same command goes on when that is mended\n"), "{}", ran.err);
    let (ran, _) = once(&harness, "solver.sh training.sh").await;
    assert!(ran.code == 64 && ran.err.contains("Slurm starts nothing on n1"), "{} {}", ran.code, ran.err);
    assert_eq!(calls(&harness).len(), 0);
    // It is back.
    program(&harness, "sinfo", &format!("printf '{UP}'"));
    let (ran, told) = once(&harness, "solver.sh training.sh").await;
    assert_eq!((ran.code, calls(&harness).len()), (0, 1), "{}", ran.err);
    assert_eq!(told["alone"][0]["state"], "measured", "what is known stays: {told}");
}

#[tokio::test]
async fn again_goes_on_with_what_is_open_and_begins_anew_when_all_is_over() {
    let harness = with_open_job(UP, true);
    program(&harness, "squeue", "case \"$*\" in *61*) echo '61|RUNNING';; esac");
    let (ran, told) = once(&harness, "--again solver.sh training.sh").await;
    assert_eq!((ran.code, &told["alone"][1]["job_id"]), (0, &"62".into()), "{}", ran.err);
    assert!(ran.err.contains("61 is not over: this goes on with it"), "{}", ran.err);
    assert_eq!(calls(&harness).len(), 0);
    program(&harness, "squeue", FORGOTTEN);
    let (_, told) = once(&harness, "--again solver.sh training.sh").await;
    assert_eq!(
        (told["alone"].as_array().map(Vec::len), calls(&harness).len()),
        (Some(2), 2),
        "both anew: {told}"
    );
}
