//! The real `pillion` against a scheduler of fixtures: every command in every format, as people and scripts see it.

mod backtest;
mod campaign;
mod canary;
mod characterize;
mod harness;
mod plan_on_files;
mod replay;
mod scale;

use harness::{Harness, VIEW, run_at};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

/// Runs a command in all three formats and snapshots what it prints.
async fn snapshot(harness: &Harness, name: &str, line: &str, code: i32) {
    for (format, option) in [("table", ""), ("parsable", "--parsable2"), ("json", "--json")] {
        let ran = harness.run(&format!("{option} {line}")).await;
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{line} {option}");
        if format == "json" {
            let json: serde_json::Value = serde_json::from_str(&ran.out).expect("one JSON object");
            assert_eq!(json["version"], 1, "{line}");
        }
        insta::assert_snapshot!(format!("{name}_{format}"), ran.out);
    }
}

/// A program of Slurm's, as lines of a shell.
fn program(harness: &Harness, name: &str, lines: &str) {
    let path = harness.folder.path().join("bin").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
}

#[tokio::test]
async fn queue_says_what_waits_and_why() {
    let harness = Harness::start();
    snapshot(&harness, "queue", "queue", 0).await;
    let ran = harness.run("queue -u alice --noheader --parsable2").await;
    assert_eq!(ran.out.lines().count(), 1);
    assert!(
        ran.out.starts_with("42|alice|ml|shared|waiting|2026-11-18T11:05:40|2026-11-18T11:15:40|1.25x|"),
        "{}",
        ran.out
    );
}

#[tokio::test]
async fn pairs_says_who_shares_with_whom() {
    let harness = Harness::start();
    snapshot(&harness, "pairs", "pairs", 0).await;
    let past = harness.run("pairs -S 2026-11-01 -E now --noheader").await;
    assert_eq!((past.code, past.out.as_str()), (0, ""));
    let refused = harness.run("pairs -u mallory").await;
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("only operators see other users' jobs"), "{}", refused.err);
    let wrong = harness.run("pairs -S yesterday").await;
    assert_eq!(wrong.code, 64);
    assert!(wrong.err.contains("'yesterday' is not a time; write 2026-11-21"), "{}", wrong.err);
}

#[tokio::test]
async fn why_says_what_a_job_waits_for_and_what_made_it_slow() {
    let harness = Harness::start();
    snapshot(&harness, "why_ended", "why 42", 0).await;
    snapshot(&harness, "why_waiting", "why 43", 0).await;
    snapshot(&harness, "why_running", "why 44", 0).await;
    snapshot(&harness, "why_evicted", "why 45", 0).await;
    snapshot(&harness, "why_unknown", "why 7", 1).await;
}

#[tokio::test]
async fn acct_says_what_was_gained() {
    let harness = Harness::start();
    let stretch = "-S 2026-11-01 -E 2026-11-08";
    snapshot(&harness, "acct", &format!("acct {stretch}"), 0).await;
    snapshot(&harness, "acct_by_user", &format!("acct {stretch} --by user"), 0).await;
    let none = harness.run(&format!("acct {stretch} -w n7")).await;
    assert!(
        none.out.ends_with("None was seen by Pillion; choose another time with -S and -E\n"),
        "{}",
        none.out
    );
    let wrong = harness.run("acct -w n[1-").await;
    assert_eq!(wrong.code, 64);
    assert!(wrong.err.contains("'n[1-' is not a hostlist; write n1, n[1-3,7] or n1,n2"), "{}", wrong.err);
    let swapped = harness.run("acct -S 2026-11-08 -E 2026-11-01").await;
    assert!(swapped.code == 64 && swapped.err.contains("swap them"), "{}", swapped.err);
}

#[tokio::test]
async fn a_report_fits_on_one_screen() {
    let harness = Harness::start();
    snapshot(&harness, "report_taught_nothing", "report 46", 0).await;
    snapshot(&harness, "report_ended", "report 42", 0).await;
    snapshot(&harness, "report_running", "report 44", 0).await;
    snapshot(&harness, "report_evicted", "report 45", 0).await;
    snapshot(&harness, "report_observed", "report 51", 0).await;
    let lines = harness.run("report 42").await.out;
    assert!(lines.lines().count() < 24, "{lines}");
}

#[tokio::test]
async fn explain_tells_the_whole_story_and_hides_partners() {
    let harness = Harness::start();
    snapshot(&harness, "explain", "explain 42", 0).await;
    snapshot(&harness, "explain_unknown", "explain 7", 1).await;
    let wrong = harness.run("explain 42.batch").await;
    assert_eq!(wrong.code, 64);
    assert!(wrong.err.contains("write 33, or 33_2 for an array task"), "{}", wrong.err);
}

#[tokio::test]
async fn idle_says_who_holds_what_without_work() {
    let harness = Harness::start();
    snapshot(&harness, "idle", "idle", 0).await;
    let long = harness.run("idle --for 10h --busy-below 1% --noheader --parsable2").await;
    assert_eq!(long.out.lines().count(), 1, "{}", long.out);
    let mail = harness.run("idle --mail").await;
    insta::assert_snapshot!("idle_mail", mail.out);
    for (line, said) in [
        ("idle --for 1", "a duration is expected; write 30m, 1h or 2d"),
        ("idle --busy-below 7%", "1%, 5%, 10% or 25% is expected"),
        ("idle --mail --json", "cannot be used with"),
    ] {
        let wrong = harness.run(line).await;
        assert_eq!((wrong.code, wrong.out.as_str()), (64, ""), "{line}");
        assert!(wrong.err.contains(said), "{line}: {}", wrong.err);
    }
}

#[tokio::test]
async fn rightsize_says_with_how_much_less_they_would_have_done() {
    let harness = Harness::start();
    snapshot(&harness, "rightsize", "rightsize", 0).await;
    let of_bob = harness.run("rightsize --user bob --runs 6 --noheader --parsable2").await;
    assert_eq!(of_bob.out.lines().count(), 1, "{}", of_bob.out);
    let often = harness.run("rightsize --runs 7 --noheader --parsable2").await;
    assert_eq!(often.out, "");
    let mail = harness.run("rightsize --mail").await;
    insta::assert_snapshot!("rightsize_mail", mail.out);
    let wrong = harness.run("rightsize --runs 0").await;
    assert_eq!((wrong.code, wrong.out.as_str()), (64, ""), "{}", wrong.err);
}

#[tokio::test]
async fn shadow_says_what_would_have_been_done_and_what_came_of_it() {
    let harness = Harness::start();
    snapshot(&harness, "shadow", "shadow report -S 2026-11-01 -E 2026-12-01", 0).await;
    snapshot(&harness, "shadow_none", "shadow report -S 2026-01-01 -E 2026-01-02", 0).await;
    snapshot(&harness, "why_shadow", "why 51", 0).await;
    snapshot(&harness, "explain_shadow", "explain 51", 0).await;
    let wrong = harness.run("shadow report -S now -E today").await;
    assert_eq!((wrong.code, wrong.out.as_str()), (64, ""), "{}", wrong.err);
}

/// Those of docs/evaluate.md that ask a scheduler; its job stands for one that is observed. Those that submit jobs are run on real Slurm
/// (`tests/e2e/canary.rs`).
#[tokio::test]
async fn the_commands_for_observed_partitions_are_run() {
    let harness = Harness::start();
    let page = include_str!("../../../docs/evaluate.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("pillion "));
    let lines = lines.filter(|line| !line.starts_with("replay ") && !line.starts_with("canary "));
    let lines: Vec<String> = lines.map(|line| line.replace("4711", "51")).collect();
    assert_eq!(lines.len(), 12, "{lines:?}");
    for line in lines {
        let ran = harness.run(&line).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    }
}

#[tokio::test]
async fn profile_says_what_is_remembered() {
    let harness = Harness::start();
    snapshot(&harness, "profile", "profile", 0).await;
    snapshot(&harness, "profile_drawn", "profile alice/4f1c", 0).await;
    let broken = harness.run("profile broken").await;
    assert_eq!((broken.code, broken.out.as_str()), (65, ""));
    assert!(broken.err.contains("install the same version on both sides"), "{}", broken.err);
}

#[tokio::test]
async fn model_says_what_was_learnt_and_why_it_is_used() {
    let harness = Harness::start();
    snapshot(&harness, "model", "model", 0).await;
    let ran = harness.run("model --limit 1 --noheader -o version,state").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "2  rejected\n"));
}

#[tokio::test]
async fn plan_live_is_the_scheduler_s_own_dry_run() {
    let harness = Harness::start();
    snapshot(&harness, "plan_live", "plan --live", 0).await;
}

#[tokio::test]
async fn a_saved_snapshot_is_replayed_without_a_scheduler() {
    let harness = Harness::start();
    let saved = harness.run("snapshot save view.json --json").await;
    assert_eq!((saved.code, saved.err.as_str()), (0, ""));
    let json: serde_json::Value = serde_json::from_str(&saved.out).expect("one object");
    assert_eq!((&json["version"], &json["waiting_count"]), (&1.into(), &1.into()));
    let text = std::fs::read_to_string(harness.folder.path().join("view.json")).expect("it was written");
    assert_eq!(text, VIEW);
    let replayed = run_at("unix:/nowhere", harness.folder.path(), "plan --view view.json --json").await;
    assert_eq!((replayed.code, replayed.err.as_str()), (0, ""));
    let plan: serde_json::Value = serde_json::from_str(&replayed.out).expect("one object");
    assert_eq!(plan["parent_revision"], 41);
    assert_eq!(
        plan["pairings"][0]["members"][0]["start"]["job_id"], "42",
        "a free device and a job: it starts\n{plan:#}"
    );
}

#[tokio::test]
async fn a_broken_snapshot_is_refused_with_its_place() {
    let harness = Harness::start();
    let path = harness.folder.path().join("broken.json");
    std::fs::write(&path, VIEW.replace("\"h100\", \"gpu_types\"", "7, \"gpu_types\"")).expect("written");
    let ran = harness.run("plan --view broken.json").await;
    assert_eq!((ran.code, ran.out.as_str()), (65, ""));
    assert!(
        ran.err.contains("broken.json is no snapshot") && ran.err.contains("line 9 column"),
        "{}",
        ran.err
    );
    assert_eq!(harness.run("plan --view missing.json").await.code, 65);
    assert_eq!(harness.run("plan").await.code, 64);
}

#[tokio::test]
async fn status_says_how_the_scheduler_is() {
    let harness = Harness::start();
    snapshot(&harness, "status", "status", 0).await;
}

#[tokio::test]
async fn nodes_says_how_every_device_is_and_who_measures_it() {
    let harness = Harness::start();
    snapshot(&harness, "nodes", "nodes", 0).await;
}

#[tokio::test]
async fn drain_and_undrain_say_what_they_did() {
    let harness = Harness::start();
    snapshot(&harness, "drain", "drain n1,n1:g[0-1] --reason noise", 0).await;
    snapshot(&harness, "undrain", "undrain n1 n1:g1", 0).await;
    snapshot(&harness, "undrain_open", "undrain n1:g0", 1).await;
    let stranger = harness.run("drain n9 -r noise").await;
    assert_eq!((stranger.code, stranger.out.as_str()), (1, ""));
    let expected = "pillion: the scheduler refused: the pool has no node n9; its nodes are n1\n";
    assert_eq!(stranger.err, expected);
    assert_eq!(harness.run("drain n1").await.code, 64, "without a reason");
    let wrong = harness.run("drain n[1- -r noise").await;
    assert!(
        wrong.code == 64 && wrong.err.contains("names no nodes or GPUs; write n1, n[1-3]"),
        "{}",
        wrong.err
    );
}

#[tokio::test]
async fn evict_says_what_happens_next() {
    let harness = Harness::start();
    snapshot(&harness, "evict", "evict 42 --reason noisy", 0).await;
    let refused = harness.run("evict 43").await;
    let expected = "pillion: the scheduler refused: job 43 does not run: it waits\n";
    assert_eq!((refused.code, refused.out.as_str(), refused.err.as_str()), (1, "", expected));
    assert_eq!(harness.run("evict 42.batch").await.code, 64);
}

#[tokio::test]
async fn policy_says_what_is_in_force_and_who_says_so() {
    let harness = Harness::start();
    snapshot(&harness, "policy", "policy", 0).await;
}

#[tokio::test]
async fn events_say_what_happened() {
    let harness = Harness::start();
    snapshot(&harness, "events", "events -S 2026-11-01", 0).await;
    snapshot(&harness, "events_more", "events -S 2026-11-01 --limit 1", 0).await;
    let ran = harness.run("events -S 2026-11-01 -j 42,33_2 -N n[1-2] --noheader -o kind,jobid").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "evicted  42\n"));
    let ran = harness.run("events -S 2026-11-01 -k drained,victim --noheader -o kind").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "drained\n"));
    assert_eq!(harness.run("events -j 42.batch").await.code, 64);
    let swapped = harness.run("events -S 2026-11-08 -E 2026-11-01").await;
    assert!(swapped.code == 64 && swapped.err.contains("swap them"), "{}", swapped.err);
}

#[tokio::test]
async fn top_prints_one_frame_and_wants_a_terminal_for_more() {
    let harness = Harness::start();
    let ran = harness.run("top --once").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!("top_once", ran.out);
    let live = harness.run("top").await;
    assert_eq!((live.code, live.out.as_str()), (64, ""));
    assert!(live.err.contains("top needs a terminal; for a pipe write --once"), "{}", live.err);
    assert_eq!(harness.run("top --once --json").await.code, 64);
}

#[tokio::test]
async fn an_absent_scheduler_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in [
        "queue",
        "pairs",
        "explain 42",
        "profile",
        "model",
        "nodes",
        "status",
        "drain n1 -r noise",
        "undrain n1",
        "evict 42",
        "policy",
        "events",
        "top --once",
        "plan --live",
        "snapshot save x.json",
    ] {
        let ran = run_at("unix:/nowhere/scheduler.sock", folder.path(), line).await;
        assert_eq!((ran.code, ran.out.as_str()), (69, ""), "{line}");
        assert_eq!(
            ran.err,
            "pillion: cannot reach the scheduler at unix:/nowhere/scheduler.sock (No such file or directory (os error 2)); \
             see that it runs (systemctl status pillion-scheduler), or name another address with --scheduler or \
             PILLION_SCHEDULER\n"
        );
    }
    assert!(!folder.path().join("x.json").exists());
    assert_eq!(run_at("head:7531", folder.path(), "queue").await.code, 64);
}

#[tokio::test]
async fn poke_is_quick_and_never_fails() {
    let harness = Harness::start();
    let ran = harness.run("poke").await;
    assert_eq!((ran.code, ran.out + &ran.err), (0, String::new()));
    assert_eq!(harness.pokes.load(Ordering::SeqCst), 1);
    assert_eq!(run_at("unix:/nowhere", harness.folder.path(), "poke").await.code, 0);
    // A scheduler that accepts and never answers.
    let silent = harness.folder.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).expect("a socket");
    let begun = tokio::time::Instant::now();
    let ran = run_at(&format!("unix:{}", silent.display()), harness.folder.path(), "poke").await;
    assert_eq!((ran.code, ran.out + &ran.err), (0, String::new()));
    let seconds = begun.elapsed().as_secs_f64();
    assert!((1.0..5.0).contains(&seconds), "it gave up after {seconds} s");
}

/// A configuration that names a folder without Slurm's programs.
fn without_slurm(harness: &Harness) {
    let folder = harness.folder.path().display().to_string();
    let text = format!(
        "state_directory = \"{folder}\"\n[pool]\npartitions = [\"shared\"]\n[slurm]\nbinary_directory = \"{folder}\"\n\
         conf = \"{folder}/slurm.conf\"\n"
    );
    std::fs::write(harness.folder.path().join("pillion.toml"), text).expect("written");
}

#[tokio::test]
async fn doctor_says_what_is_missing_and_how_to_mend_it() {
    let harness = Harness::start();
    without_slurm(&harness);
    let ran = harness.run("doctor --config pillion.toml").await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    for expected in [
        "FAIL slurm-version       Slurm does not answer: cannot run scontrol",
        "mend: start slurmctld",
        "FAIL lua-module",
        "FAIL plugstack",
        "ok   scheduler           release 0.1.0, mode active",
        "ok   database            private Postgres in /var/lib/pillion",
        "skip gres-types",
    ] {
        assert!(ran.out.contains(expected), "'{expected}' is not in\n{}", ran.out);
    }
    let json: serde_json::Value =
        serde_json::from_str(&harness.run("doctor --config pillion.toml --json --quiet").await.out)
            .expect("one object");
    assert_eq!(json["version"], 1);
    let checks = json["checks"].as_array().expect("a list");
    assert!(checks.iter().all(|check| check["mend"].is_string() && check["status"] != "ok"), "{json:#}");
    assert_eq!(harness.run("doctor --config missing.toml").await.code, 65);
}

#[tokio::test]
async fn rescue_without_slurm_asks_to_try_later() {
    let harness = Harness::start();
    without_slurm(&harness);
    let ran = harness.run("rescue --config pillion.toml").await;
    assert_eq!((ran.code, ran.out.as_str()), (75, ""));
    assert!(ran.err.starts_with("pillion: cannot read from Slurm; see that slurmctld runs"), "{}", ran.err);
}

#[tokio::test]
async fn columns_are_chosen_by_name() {
    let harness = Harness::start();
    let ran = harness.run("pairs -o jobid,shards --noheader").await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "42           55\n(not shown)  45\n"));
    let parsable = harness.run("queue --format JOBID,REASON -P").await;
    assert!(parsable.out.starts_with("JOBID|REASON\n42|"), "{}", parsable.out);
    let wrong = harness.run("queue -o jobid,gpu").await;
    assert_eq!((wrong.code, wrong.out.as_str()), (64, ""));
    assert!(wrong.err.contains("there is no column 'gpu'; allowed are JOBID,USER"), "{}", wrong.err);
    assert_eq!(harness.run("explain 42 -o jobid").await.code, 64);
}
