//! `pillion canary` against a scheduler of fixtures and a `sinfo` that knows one node: what it prints of what it did before, and what it
//! refuses before anything is submitted.

mod fate;

use super::harness::Harness;
use super::{program, snapshot};
use serde_json::{Value, json};
use std::path::Path;

const SCRIPT: &str = "#!/bin/sh\n#SBATCH --gres=gpu:1 --time=10\ntrain\n";

/// A harness whose `sinfo` prints these lines and whose `squeue` knows no job, with two scripts.
fn harness(sinfo: &str) -> Harness {
    let harness = Harness::start();
    let place = harness.folder.path();
    std::fs::create_dir(place.join("bin")).expect("a folder");
    program(&harness, "sinfo", &format!("printf '{sinfo}'"));
    program(&harness, "squeue", "exit 0");
    for name in ["solver.sh", "training.sh"] {
        std::fs::write(place.join(name), SCRIPT).expect("written");
    }
    harness
}

/// A job on record that was submitted long ago.
fn run(work: &Value, job: u32, outcome: &Value) -> Value {
    json!({"work": work, "job_name": format!("pillion-canary-n1-1-{job}"), "begin": null, "job_id": job.to_string(),
        "submitted_at": 1_763_463_940.0, "has_sbatch_ended": true, "outcome": outcome})
}

/// Puts a canary on record.
fn remember(folder: &Path, scripts: &[&str], runs: &[Value], before: &Value) {
    let script = |name: &&str| {
        let path = folder.join(format!("{name}.sh")).canonicalize().expect("it was written");
        json!({"name": name, "subject": {"script": path, "text": SCRIPT, "arguments": [], "options": []}})
    };
    let scripts: Vec<Value> = scripts.iter().map(script).collect();
    let about = json!({"node": "n1", "partition": "shared", "scripts": scripts, "promise": 10.0});
    let canary = json!({"about": about, "began_at": 1_763_463_940.0, "named_count": 100, "runs": runs, "before": before});
    let place = folder.join("pillion/canary");
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::write(place.join("n1.json"), canary.to_string()).expect("written");
}

/// A canary that was followed to its end: nothing is left to submit.
fn remembered(folder: &Path) {
    let beside = |group_id: u32, speed: f64| {
        json!({"beside": {"group_id": group_id, "expected_speed_fraction": 0.91, "bound_speed_fraction": 0.84,
            "speed_fraction": speed, "slowdown_ratio_max": 10.0, "reason": ""}})
    };
    let pair = |scripts: [usize; 2], slot: usize| json!({"beside": {"pair": scripts, "slot": slot}});
    let runs = [
        run(&json!({"alone": {"script": 0}}), 61, &"alone".into()),
        run(&json!({"alone": {"script": 1}}), 62, &"alone".into()),
        run(&pair([0, 0], 0), 63, &beside(1, 0.93)),
        run(&pair([0, 0], 1), 64, &beside(1, 0.95)),
        run(&pair([0, 1], 0), 65, &beside(2, 0.9)),
        run(&pair([0, 1], 1), 66, &beside(2, 0.78)),
        run(&pair([1, 1], 0), 67, &beside(3, 0.7)),
        run(&pair([1, 1], 1), 68, &beside(3, 0.72)),
    ];
    let before = json!({"speed_count": 0, "above_bound_count": 0, "stretch_ratio": null,
        "saved_gpu_hours_low_without": 9.5, "saved_gpu_hours_low_with": null});
    remember(folder, &["solver", "training"], &runs, &before);
}

#[tokio::test]
async fn a_canary_tells_what_was_foretold_and_measured_without_doing_it_again() {
    let harness = harness("n1|shared|mixed\\n");
    remembered(harness.folder.path());
    snapshot(&harness, "canary", "canary solver.sh training.sh", 0).await;
}

#[tokio::test]
async fn a_dry_run_prints_what_would_be_submitted_and_leaves_no_record() {
    let harness = harness("n1|shared|idle\\nn9|shared|idle\\n");
    let ran =
        harness.run("canary -w n1 --runs 2 --sbatch=--account=hpc --dry-run solver.sh training.sh").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let alone = "sbatch --account=hpc --partition=shared --colocate=profile=solver,cap=1 --exclude=n9 ";
    let beside =
        "sbatch --account=hpc --partition=shared --colocate=max-slowdown=10,profile=training --exclude=n9 ";
    assert_eq!((ran.out.matches(alone).count(), ran.out.matches(beside).count()), (2, 3), "{}", ran.out);
    assert!(!harness.folder.path().join("pillion/canary").exists());
    let json = harness.run("canary -w n1 --json --dry-run solver.sh").await.out;
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(
        (json["submissions"].as_array().map(Vec::len), &json["submissions"][1]["what"]),
        (Some(3), &"pair 1".into())
    );
}

#[tokio::test]
async fn a_canary_refuses_what_makes_no_sense_before_anything_is_submitted() {
    let harness = harness("n1|shared|down\\nn2|shared|idle\\nw1|gpu|idle\\n");
    let place = harness.folder.path();
    std::fs::create_dir(place.join("other")).expect("a folder");
    for (name, text) in [
        ("other/solver.sh", SCRIPT),
        ("endless.sh", "#!/bin/sh\n#SBATCH --gres=gpu:1\ntrain\n"),
        ("array.sh", "#!/bin/sh\n#SBATCH -t 10 --array=1-4\ntrain\n"),
        ("own.sh", "#!/bin/sh\n#SBATCH -t 10 --colocate=no\ntrain\n"),
        ("a+b.sh", SCRIPT),
    ] {
        std::fs::write(place.join(name), text).expect("written");
    }
    for (words, code, said) in [
        ("none.sh", 65, "cannot read none.sh"),
        ("endless.sh", 65, "endless.sh: it has no time limit; write one"),
        ("array.sh", 65, "array.sh: take --array out"),
        ("own.sh", 65, "own.sh: line 2: take --colocate=no out"),
        ("a+b.sh", 65, "a+b.sh: its name cannot be a workload's"),
        ("solver.sh other/solver.sh", 64, "are both named solver; rename one"),
        ("--sbatch=--colocate=no solver.sh", 64, "write settings of --colocate in the script"),
        ("--max-slowdown 11 solver.sh", 64, "write a number from 1 to 10"),
        ("--pairs 0 solver.sh", 64, "write a number of pairs, 1 or more"),
        ("solver.sh", 64, "the pool has several nodes (n1,n2); name the one"),
        ("-w n1 solver.sh", 64, "Slurm starts nothing on n1: it is down"),
        ("-w n2 solver.sh", 64, "the agent of n2 is not connected"),
        ("-w w1 solver.sh", 64, "w1 is in none of the pool's partitions (shared); its nodes are n1,n2"),
        ("--scheduler unix:/nowhere solver.sh", 69, "cannot reach the scheduler"),
    ] {
        let ran = harness.run(&format!("canary {words}")).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words}");
        assert!(ran.err.contains(said), "{words}: {}", ran.err);
    }
    assert!(!place.join("pillion/canary").exists(), "nothing is remembered of it");
}
