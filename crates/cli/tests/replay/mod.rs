//! `pillion replay` as admins type it: what it prints, what the documentation shows, and what is refused.

mod prometheus;

use crate::harness::{Ran, run_at};
use serde_json::Value;
use tempfile::TempDir;

const SACCT: &str = include_str!("sacct.txt");
const NODES: &str = include_str!("nodes.txt");
const TELEMETRY: &str = "job_id,gpu_index,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak,power_watts_mean\n\
    1,0,0.1,0.05,4e9,120\n2,0,0.1,0.05,4e9,120\n";
/// Short enough for a test, and with everything in it.
const LINE: &str = "replay sacct.txt --nodes nodes.txt --gpu-memory a100=80 --pool 50% --adoption 100% --users any --seeds 3 \
                    --plan-seconds 600 --idle-watts 55 --price 2.5 --carbon 320";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let fields = "JobIDRaw User Account Partition JobName State\nSubmit Eligible Start End AllocTRES ReqTRES SubmitLine\n";
    for (name, text) in [
        ("sacct.txt", SACCT),
        ("nodes.txt", NODES),
        ("telemetry.csv", TELEMETRY),
        ("fields.txt", fields),
        ("scripts.txt", &scripts()),
    ] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

/// What the first two jobs ran, as sacct prints it, and a third of which it knows nothing.
fn scripts() -> String {
    let dashes = "-".repeat(80);
    let of_job = |job: u32, script: &str| format!("Batch Script for {job}\n{dashes}\n{script}\n");
    [of_job(1, "#!/bin/sh\npython a.py\n"), of_job(2, "#!/bin/sh\npython b.py\n"), of_job(3, "NONE\n")]
        .concat()
}

async fn run(folder: &TempDir, line: &str) -> Ran {
    run_at("unix:/nowhere", folder.path(), line).await
}

#[tokio::test]
async fn a_replay_says_what_was_wasted_saved_and_risked_and_how_far_to_believe_it() {
    let folder = folder();
    for (format, option) in [("table", ""), ("parsable", " --parsable2"), ("json", " --json")] {
        let ran = run(&folder, &format!("{LINE}{option}")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{LINE}{option}");
        // Among those of the other commands, which docs/json.md is made from.
        insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(format!("commands__replay_{format}"), ran.out);
        });
    }
    let [saved, again] =
        [run(&folder, &format!("{LINE} --json")).await, run(&folder, &format!("{LINE} --json")).await];
    assert_eq!(saved.out, again.out, "the same file says the same");
    let saved: Value = serde_json::from_str(&saved.out).expect("one JSON object");
    let setting = &saved["settings"][0];
    assert!(setting["gpu_hours_saved"]["low"].as_f64() < setting["gpu_hours_saved"]["expected"].as_f64());
    assert!(setting["groups"]["expected"].as_f64() > Some(0.0), "somebody shares: {setting}");
}

#[tokio::test]
async fn the_commands_of_the_documentation_are_run() {
    let folder = folder();
    let page = include_str!("../../../../docs/evaluate.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("pillion "));
    // The others ask a scheduler: tests/commands.rs runs them.
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("replay ")).collect();
    assert_eq!(lines.len(), 8, "{lines:?}");
    let url = prometheus::double(prometheus::both_exporters);
    for line in lines {
        let line = line.replace("http://prometheus:9090", &url);
        // As it stands; but what is drawn and planned anew for each setting is worth minutes.
        let is_simulated = line.starts_with("replay sacct.txt");
        let short = if is_simulated { " --seeds 3 --plan-seconds 3600" } else { "" };
        let ran = run(&folder, &format!("{line}{short}")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert!(!is_simulated || ran.out.contains("repetition"), "{line} printed\n{}", ran.out);
    }
    let html = std::fs::read_to_string(folder.path().join("report.html")).expect("it was written");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("How far to believe this"));
    assert!(!html.contains("http://") && !html.contains("src="), "it needs nothing else");
    // What was made anonymous says the same, and names nobody.
    let anonymous =
        std::fs::read_to_string(folder.path().join("anonymous/sacct.txt")).expect("it was written");
    assert!(!anonymous.contains("user1") && !anonymous.contains("train"), "{}", &anonymous[..400]);
    let options = LINE.strip_prefix("replay sacct.txt --nodes nodes.txt").expect("it begins so");
    let [before, after] =
        [LINE.to_owned(), format!("replay anonymous/sacct.txt --nodes anonymous/nodes.txt{options}")];
    let (before, after) = (run(&folder, &before).await, run(&folder, &after).await);
    let saved = |out: &str| out.lines().find(|line| line.starts_with("  50 %")).map(str::to_owned);
    assert_eq!(after.code, 0, "{}", after.err);
    assert!(saved(&before.out).is_some() && saved(&before.out) == saved(&after.out), "{}", after.out);
}

#[tokio::test]
async fn stored_scripts_tell_workloads_apart_and_the_report_says_how_much_they_tell() {
    let folder = folder();
    let made = folder.path().join("scripts");
    std::fs::create_dir(&made).expect("made");
    for (name, script) in [
        ("1.sh", "#!/bin/sh\n#SBATCH -t 5\npython a.py\n"),
        ("2", "#!/bin/sh\npython b.py\n"),
        ("README", "x"),
    ] {
        std::fs::write(made.join(name), script).expect("written");
    }
    for (option, dropped) in [("scripts.txt", 0), ("scripts", 1)] {
        let ran = run(&folder, &format!("{LINE} --scripts {option} --json")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{option}");
        let told: Value = serde_json::from_str(&ran.out).expect("one JSON object");
        let by_key = told["confidence"]["repetition_by_key"].as_array().expect("a list");
        let kinds: Vec<&str> = by_key.iter().filter_map(|of_key| of_key["told_by"].as_str()).collect();
        assert_eq!(kinds, ["script", "submit_line"], "{told}");
        // Both scripts ran once.
        assert!(
            by_key[0]["gpu_hours"].as_f64() > Some(0.0) && by_key[0]["gpu_hours_repeated"] == 0.0,
            "{told}"
        );
        let rows = told["input"]["rows_dropped"].as_array().expect("a list");
        let scripts =
            rows.iter().filter(|row| row["cause"].as_str().is_some_and(|cause| cause.contains("of scripts")));
        assert_eq!(
            scripts.map(|row| row["count"].as_u64()).collect::<Vec<_>>(),
            vec![Some(1); dropped],
            "{told}"
        );
    }
}

#[tokio::test]
async fn the_command_for_sacct_has_what_this_sacct_has() {
    let folder = folder();
    let ran = run(&folder, "replay --print-sacct").await;
    assert!(
        ran.out.starts_with("SLURM_TIME_FORMAT=%s sacct ") && ran.out.ends_with(",AdminComment\n"),
        "{}",
        ran.out
    );
    let ran = run(&folder, "replay --print-sacct --fields fields.txt -S 2026-10-01 --json").await;
    let told: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    assert!(
        told["command"].as_str().is_some_and(|command| command.contains("--starttime=2026-10-01 ")),
        "{told}"
    );
    assert!(
        told["fields_left_out"].as_array().is_some_and(|fields| fields.iter().any(|name| name == "NodeList")),
        "{told}"
    );
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_one_sentence() {
    let folder = folder();
    std::fs::write(folder.path().join("iso.txt"), SACCT.replace("|179", "|2026-10-01T00:00:0"))
        .expect("written");
    std::fs::create_dir(folder.path().join("there")).expect("made");
    for (line, code, said) in [
        ("replay", 64, "required"),
        ("replay sacct.txt", 64, "the nodes are missing: give what 'scontrol show nodes' prints"),
        ("replay none.txt --nodes nodes.txt", 65, "cannot read none.txt"),
        ("replay nodes.txt --nodes nodes.txt", 65, "nodes.txt: the first line does not name sacct's fields"),
        ("replay sacct.txt --nodes sacct.txt", 65, "sacct.txt: it describes no node with a GPU"),
        ("replay iso.txt --nodes nodes.txt", 65, "not in seconds since 1970"),
        ("replay sacct.txt --shape 4", 64, "'4' is no shape of nodes; write COUNTxGPUS"),
        ("replay sacct.txt --shape 1x1:h100", 65, "none of the jobs could run on the nodes that were given"),
        (
            "replay sacct.txt --nodes nodes.txt --pool 9",
            65,
            "a pool of 9 nodes was asked for; there are 2 with GPUs",
        ),
        (
            "replay sacct.txt --nodes nodes.txt --pool 0%",
            64,
            "a part of the nodes (25%) or a number of them (8)",
        ),
        ("replay sacct.txt --nodes nodes.txt --adoption 1.5", 64, "write 25%"),
        ("replay sacct.txt --nodes nodes.txt --carbon=-3", 64, "--carbon"),
        (
            "replay sacct.txt --nodes nodes.txt --carbon nodes.txt",
            65,
            "line 2 is not 'seconds since 1970,grams a kilowatt-hour'",
        ),
        (
            "replay sacct.txt --nodes nodes.txt --telemetry nodes.txt",
            65,
            "nodes.txt: the column job_id is missing",
        ),
        ("replay sacct.txt --nodes nodes.txt --scripts nodes.txt", 65, "nodes.txt: it holds no script"),
        ("replay sacct.txt --nodes nodes.txt --scripts there", 65, "there: it holds no script"),
        ("replay sacct.txt --nodes nodes.txt --gpu-memory a100", 64, "write TYPE=GIB"),
        ("replay sacct.txt --nodes nodes.txt --seeds 2", 64, "3..=100"),
        ("replay --print-sacct --fields nodes.txt", 65, "this sacct has no field JobIDRaw"),
        ("replay --print-sacct -S $(reboot)", 64, "a time as sacct takes it is expected"),
        ("replay anonymise sacct.txt --output there", 65, "cannot write there"),
    ] {
        let ran = run(&folder, line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
}

#[tokio::test]
async fn what_comes_in_is_read_and_free_text_of_nodes_may_be_in_any_encoding() {
    let folder = folder();
    let latin =
        [NODES.replacen("   State=", "   Reason=au\u{df}er Betrieb State=", 1).as_str(), "\n"].concat();
    let latin: Vec<u8> = latin.chars().map(|letter| u8::try_from(letter).expect("Latin-1")).collect();
    assert!(std::str::from_utf8(&latin).is_err());
    std::fs::write(folder.path().join("nodes.txt"), latin).expect("written");
    let ran = tokio::process::Command::new(env!("CARGO_BIN_EXE_pillion"))
        .args(LINE.replace("sacct.txt", "-").split_whitespace())
        .current_dir(folder.path())
        .stdin(std::fs::File::open(folder.path().join("sacct.txt")).expect("it is there"))
        .output()
        .await
        .expect("pillion runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), said.as_ref()), (Some(0), ""));
    assert!(String::from_utf8_lossy(&ran.stdout).starts_with("90 jobs of 8 users on 2 nodes"), "{ran:?}");
}
