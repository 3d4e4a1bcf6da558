//! `pillion scale` as users type it: what it prints, what the documentation shows, and what is refused.

use crate::campaign::{SCRIPT, SUBMITTED_AT, remember};
use crate::harness::{Harness, Ran, run_at};
use serde_json::{Value, json};
use tempfile::TempDir;

const RUNS: &str = include_str!("runs.csv");
const SACCT: &str = include_str!("../replay/sacct.txt");
const PROGRESS: &str = "cluster,model,n_nodes,n_gpus,local_batch,step_s,sync_s,samples_per_s\n\
    aws,bert,1,1,4,1,0,4\naws,bert,1,2,4,1.1,.1,7.3\naws,bert,2,8,4,1.3,.3,24\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("runs.csv", RUNS), ("sacct.txt", SACCT), ("sia.csv", PROGRESS)] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

async fn run(folder: &TempDir, line: &str) -> Ran {
    run_at("unix:/nowhere", folder.path(), line).await
}

async fn snapshot(name: &str, line: &str) {
    let folder = folder();
    snapshot_of(name, line, async |line: String| run(&folder, &line).await).await;
}

async fn snapshot_of(name: &str, line: &str, run: impl AsyncFn(String) -> Ran) {
    for (format, option) in [("table", ""), ("parsable", " --parsable2"), ("json", " --json")] {
        let ran = run(format!("{line}{option}")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}{option}");
        // Among those of the other commands, which docs/json.md is made from.
        insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(format!("commands__{name}_{format}"), ran.out);
        });
    }
}

#[tokio::test]
async fn one_workload_says_what_each_count_takes_and_answers_what_is_asked() {
    let line = "scale --from runs.csv bert --gpus-per-node 4 --deadline 1:20:00 --budget 1.5gpuh --budget .5kwh --budget 5 --price 2";
    snapshot("scale", line).await;
}

#[tokio::test]
async fn what_agents_observed_is_told_with_its_causes_and_nothing_of_what_they_did_not() {
    let harness = Harness::start();
    snapshot_of("scale_observed", "scale bert", async |line: String| harness.run(&line).await).await;
    let all = harness.run("scale --parsable2 --noheader -o workload,break_even").await;
    assert_eq!((all.code, all.out.as_str()), (0, "alice/bert|2\n"), "{}", all.err);
    let none = harness.run("scale nobody").await;
    assert_eq!(none.code, 65);
    assert!(none.err.contains("no completed run of 'nobody' that had its GPUs to itself"), "{}", none.err);
}

#[tokio::test]
async fn by_progress_only_runs_count_that_wrote_it() {
    let harness = Harness::start();
    let told = harness.run("scale bert --by progress --work 36000 --deadline 1:30:00").await;
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("commands__scale_by_progress_table", told.out);
    });
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    let none = harness.run("scale nobody --by progress").await;
    assert!(none.err.contains("that had its GPUs to itself"), "{}", none.err);
    let of_file = harness.run("scale --from runs.csv --by progress").await;
    assert_eq!((of_file.code, of_file.out.as_str()), (64, ""), "a file says itself what its times are");
}

#[tokio::test]
async fn all_workloads_are_told_at_a_glance() {
    snapshot("scale_summary", "scale --from runs.csv --efficiency 0.6 --price 2").await;
    let folder = folder();
    let ran =
        run(&folder, "scale --from runs.csv --efficiency 0.6 --noheader --parsable2 -o workload,break_even")
            .await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "bert|2\nunet|8+\n"));
}

#[tokio::test]
async fn accounting_is_read_as_a_replay_reads_it_and_only_completed_jobs_count() {
    let folder = folder();
    let json = run(&folder, "scale --sacct sacct.txt --json").await;
    let told: Value = serde_json::from_str(&json.out).expect("one JSON object");
    let runs = told["input"]["runs"].as_u64().expect("a number");
    let completed = SACCT.lines().filter(|line| line.contains("COMPLETED") && line.contains("gres/gpu"));
    let steps = |line: &&str| line.split('|').next().is_some_and(|id| id.contains('.'));
    assert_eq!(runs, completed.filter(|line| !steps(line)).count() as u64, "{}", json.out);
    assert!(told["input"]["left_out"].to_string().contains("fewer fields"), "{}", told["input"]);
}

#[tokio::test]
async fn the_commands_of_the_documentation_are_run() {
    let folder = folder();
    let page = include_str!("../../../../docs/scale.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("pillion "));
    let lines: Vec<&str> = lines.map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    assert_eq!(lines.len(), 13, "{lines:?}");
    let (campaigns, lines): (Vec<&str>, Vec<&str>) =
        lines.into_iter().partition(|line| line.starts_with("characterize"));
    let harness = Harness::start();
    for line in lines {
        let is_of_files = line.contains("--from") || line.contains("--sacct");
        let ran = if is_of_files { run(&folder, line).await } else { harness.run(line).await };
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert!(!ran.out.is_empty(), "{line}");
    }
    std::fs::write(folder.path().join("train.sh"), SCRIPT).expect("written");
    assert_eq!(campaigns.len(), 3, "{campaigns:?}");
    for line in campaigns {
        // Each begins anew with other counts, and finds no Slurm here.
        let ran = run(&folder, line).await;
        assert!(ran.code == 1 && ran.err.contains("sinfo could not be run"), "{line}: {}", ran.err);
    }
}

#[tokio::test]
async fn progress_is_told_for_so_many_units_and_is_no_time_to_a_result() {
    let folder = folder();
    let ran = run(&folder, "scale --from sia.csv bert --work 1e6 --deadline 2-00:00:00").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("for 1000000 units") && ran.out.contains("not time to a result"), "{}", ran.out);
    // A million at 7.3 a second take 1 day and 14 hours.
    assert!(ran.out.contains("within 2-00:00:00: 2 GPUs"), "{}", ran.out);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_one_sentence() {
    let folder = folder();
    std::fs::write(folder.path().join("empty.csv"), "workload,gpus,elapsed_seconds\n").expect("written");
    for (line, code, said) in [
        ("scale --from runs.csv --sacct sacct.txt", 64, "cannot be used with"),
        ("scale --from none.csv", 65, "cannot read none.csv"),
        ("scale --from sacct.txt", 65, "sacct.txt: the first line has no column"),
        ("scale --from empty.csv", 65, "empty.csv: it has no rows"),
        ("scale --sacct runs.csv", 65, "runs.csv: "),
        ("scale --from runs.csv gpt", 65, "there is no workload 'gpt' in it"),
        (
            "scale --from runs.csv e",
            65,
            "'e' is several: bert on a100,unet on a100,resnet on a100; write one name whole",
        ),
        ("scale --from runs.csv bert --gpu-model h100", 65, "'bert' did not run on 'h100'; it ran on a100"),
        (
            "scale --from runs.csv resnet",
            65,
            "resnet: all runs (1) had 2 GPUs, and one count says nothing of others; run it with 1 and 4 GPUs",
        ),
        ("scale --from runs.csv bert --efficiency 1.5", 64, "a part above 0 and up to 1 is expected"),
        ("scale --from runs.csv bert --deadline soon", 64, "a time above 0 as sbatch takes it is expected"),
        ("scale --from runs.csv bert --budget 5", 64, "an amount of money needs --price"),
        ("scale --from runs.csv bert --budget x", 64, "40gpuh, 12kwh or an amount of money"),
        ("scale --from runs.csv bert --work 5", 64, "this workload's times are of whole runs"),
        ("scale --from sia.csv bert --deadline 90", 64, "say with --work"),
        ("scale --from runs.csv --deadline 90", 64, "are asked of one workload"),
        ("scale --from runs.csv bert --gpus-per-node 0", 64, "1..=1024"),
    ] {
        let ran = run(&folder, line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
}

/// A campaign over counts that was followed to its end: nothing is left to submit.
fn remembered(folder: &std::path::Path, failed: bool) {
    let run = |gpus: u32, outcome: Value| {
        let count = json!({"gpus": gpus, "cpus_per_gpu": 8});
        json!({"count": count, "job_id": (50 + gpus).to_string(), "submitted_at": SUBMITTED_AT, "outcome": outcome})
    };
    let measured = |seconds: f64| json!({"measured": {"elapsed_seconds": seconds, "cpus": 8}});
    let mut runs = vec![run(1, measured(7200.0)), run(2, measured(4500.0)), run(4, measured(3790.0))];
    if failed {
        runs = vec![run(1, measured(7200.0))];
    }
    remember(folder, "characterize/gpus", &[], &runs);
}

#[tokio::test]
async fn a_campaign_over_counts_tells_what_each_was_worth_without_doing_it_again() {
    let folder = folder();
    remembered(folder.path(), false);
    snapshot_of("characterize_gpus", "characterize --gpus 1,2,4 --cpus 8 train.sh", async |line: String| {
        run(&folder, &line).await
    })
    .await;
}

#[tokio::test]
async fn a_campaign_over_counts_refuses_what_makes_no_sense_before_anything_is_submitted() {
    let folder = folder();
    for (name, line) in [("array.sh", "--array=1-4"), ("task.sh", "--gpus-per-task=1")] {
        let text = format!("#!/bin/sh\n#SBATCH {line}\ntrain\n");
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    for (line, code, said) in [
        ("characterize --gpus 1,2 none.sh", 65, "cannot read none.sh"),
        ("characterize --gpus 1,2 array.sh", 65, "array.sh: take --array out"),
        ("characterize --gpus 1,2 task.sh", 65, "task.sh: take --gpus-per-task out"),
        ("characterize --gpus 0,2 array.sh", 64, "0 is not in 1..=1024"),
        ("characterize --cpus 8 array.sh", 64, "--gpus"),
        ("characterize --gpus 1 --caps 0.5 array.sh", 64, "cannot be used with"),
    ] {
        let ran = run(&folder, line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}");
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
    assert!(!folder.path().join("pillion").exists(), "nothing is remembered of it");
    // One count is measured, and Slurm is not here to run the other.
    remembered(folder.path(), true);
    let ran = run(&folder, "characterize --gpus 1,2 --cpus 8 train.sh").await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("sinfo could not be run"), "{}", ran.err);
}
