//! `pillion plan` on files as scripts see it: the shape of the answer, the example of the documentation, and one line
//! for everything that is wrong.

mod mig;

use crate::harness::{Ran, run_at};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

const SOLO: &str = "workload,family,sm_active_fraction,memory_bandwidth_fraction,memory_bytes_peak\n\
                    light,l,0.1,0.05,8e9\nheavy,h,0.97,0.3,\n";
const QUEUE: &str = "workload,max_slowdown\nlight,\nheavy,\nlight,\nheavy,\nlight,\n";
/// What no model may doubt: light ones do not disturb each other, heavy ones halve each other.
const HISTORY: &str = "workload_a,workload_b,cap_fraction_a,cap_fraction_b,speed_fraction_a,speed_fraction_b,power_watts,\
                       fits,device,mechanism,observations,speed_sd\n\
                       light,light,,,0.99,0.98,120,1,h100,,9,0.02\n\
                       heavy,heavy,,,0.45,0.44,,1,h100,,9,0.02\n\
                       light,heavy,,,0.96,0.97,,1,h100,mps,9,0.02\n\
                       light,heavy,,,,,,0,k80,none,,\n";
const RUNNING: &str = "workload,cap_fraction,remaining_seconds\nlight,,600\n";
const ALLOW: &str = "workload_a,workload_b,cap_fraction_a,cap_fraction_b\n";
const LINE: &str = "plan --solo solo.csv --queue queue.csv --max-slowdown 1.6";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let files =
        [("solo", SOLO), ("queue", QUEUE), ("pairs", HISTORY), ("running", RUNNING), ("allow", ALLOW)];
    for (name, text) in files {
        write(folder.path(), &format!("{name}.csv"), text.as_bytes());
    }
    folder
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).expect("written");
}

async fn run(folder: &TempDir, line: &str) -> Ran {
    run_at("unix:/nowhere", folder.path(), line).await
}

#[tokio::test]
async fn the_command_of_the_documentation_is_run() {
    let folder = folder();
    for (name, text) in [("SOLO", SOLO), ("QUEUE", QUEUE), ("PAIRS", HISTORY), ("RUNNING", RUNNING)] {
        write(folder.path(), &format!("{name}.csv"), text.as_bytes());
    }
    let page = include_str!("../../../../docs/planning-on-files.md");
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("pillion ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let ran = run(&folder, &format!("{} --device h100", lines[0])).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", lines[0]);
    let answer: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    assert!(!list(&answer, "pairings").is_empty(), "{answer}");
}

async fn answer(folder: &TempDir, line: &str) -> Value {
    let ran = run(folder, &format!("{line} --json")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    serde_json::from_str(&ran.out).expect("one JSON object")
}

fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().expect("a list")
}

/// The workloads and caps of each pairing or candidate, each in order of their names.
fn combinations(entries: &[Value]) -> Vec<Vec<String>> {
    let named = |member: &Value| format!("{} {}", member["workload"], member["cap_fraction"]);
    let mut all: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let mut members: Vec<String> = list(entry, "members").iter().map(named).collect();
            members.sort();
            members
        })
        .collect();
    all.sort();
    all
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

const SPEEDS: [&str; 3] = ["speed_fraction", "speed_fraction_high", "speed_fraction_low"];

fn check_speeds(member: &Value) {
    let [expected, high, low] = SPEEDS.map(|key| member[key].as_f64().expect("a number"));
    assert!(0.0 <= low && low <= expected && expected <= high && high <= 1.0, "{member}");
}

/// The rows of the queue, as often as they stand in an answer.
fn rows(answer: &Value) -> Vec<u64> {
    let members = list(answer, "pairings").iter().flat_map(|pairing| list(pairing, "members"));
    let mut rows: Vec<u64> =
        members.chain(list(answer, "alone")).filter_map(|entry| entry["row"].as_u64()).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test]
async fn the_answer_has_the_form_that_scripts_read() {
    let folder = folder();
    let line = format!("{LINE} --history pairs.csv --running running.csv --device h100 --mechanism mps");
    let answer = answer(&folder, &line).await;
    assert_eq!(keys(&answer), ["alone", "model", "pairings", "version"]);
    assert_eq!(rows(&answer), [0, 1, 2, 3, 4]);
    assert_eq!(list(&answer, "pairings").len(), 3, "three light ones take two heavy ones and one that runs");
    for pairing in list(&answer, "pairings") {
        assert_eq!(keys(pairing), ["gain", "members"]);
        let mut sum = -1.0;
        for member in list(pairing, "members") {
            let mut expected =
                ["cap_fraction", "row", "shards", SPEEDS[0], SPEEDS[1], SPEEDS[2], "workload"].to_vec();
            if member["row"].is_null() {
                expected.insert(2, "running_row");
                assert_eq!((&member["running_row"], &member["shards"]), (&0.into(), &Value::Null));
            } else {
                assert!((1..=100).contains(&member["shards"].as_u64().expect("a count")));
            }
            assert_eq!(keys(member), expected);
            assert!(member["cap_fraction"].is_null() || member["cap_fraction"].is_f64());
            check_speeds(member);
            sum += member["speed_fraction"].as_f64().expect("a number");
        }
        assert!((pairing["gain"].as_f64().expect("a number") - sum).abs() < 1e-9);
    }
    let model = &answer["model"];
    assert_eq!(
        keys(model),
        ["device", "interval", "mechanism", "name", "observations", "observations_elsewhere"]
    );
    assert_eq!(
        (&model["interval"], &model["device"], &model["mechanism"]),
        (&0.9.into(), &"h100".into(), &"mps".into())
    );
    assert_eq!((&model["observations"], &model["observations_elsewhere"]), (&3.into(), &1.into()));
}

#[tokio::test]
async fn tables_say_the_same() {
    let folder = folder();
    let line = format!("{LINE} --history pairs.csv --running running.csv --device h100");
    let bare = run(&folder, &format!("{line} --parsable2 --noheader")).await.out;
    let mut results: Vec<String> =
        bare.lines().map(|row| row.split('|').take(2).collect::<Vec<_>>().join(" ")).collect();
    results.sort();
    assert_eq!(results, ["0 runs already", "0 shares", "1 shares", "2 shares", "3 shares", "4 shares"]);
    let table = run(&folder, &line).await.out;
    let header: Vec<&str> = table.lines().next().expect("a header").split_whitespace().collect();
    let expected = "ROW RESULT PAIRING WORKLOAD CAP SHARDS EXPECTED AT_LEAST AT_MOST GAIN WHY";
    assert_eq!(header.join(" "), expected);
    assert!(table.contains("3 devices shared, 0 jobs alone (model "), "{table}");
    assert!(table.contains(", h100 by mps; 3 observations, 1 of another device or mechanism)"), "{table}");
}

#[tokio::test]
async fn who_is_alone_is_told_why() {
    let folder = folder();
    write(folder.path(), "queue.csv", b"workload\nheavy\nheavy\nby-name-only\n");
    let answer = answer(&folder, &format!("{LINE} --history pairs.csv --device h100")).await;
    assert_eq!((rows(&answer), list(&answer, "pairings").len()), (vec![0, 1, 2], 0));
    for alone in list(&answer, "alone") {
        assert_eq!(keys(alone), ["reason", "row", "text", "workload"]);
    }
    let first = &answer["alone"][0];
    assert_eq!((&first["workload"], &first["reason"]), (&"heavy".into(), &"promise-at-risk".into()));
}

#[tokio::test]
async fn candidates_stand_there_once_and_are_chosen_or_excluded() {
    let folder = folder();
    let line = format!("{LINE} --history pairs.csv --running running.csv --device h100 --candidates");
    let answer = answer(&folder, &line).await;
    let mut chosen = 0;
    for candidate in list(&answer, "candidates") {
        assert_eq!(keys(candidate), ["chosen_count", "excluded_by", "gain", "members"]);
        for member in list(candidate, "members") {
            assert_eq!(
                keys(member),
                ["cap_fraction", "is_running", SPEEDS[0], SPEEDS[1], SPEEDS[2], "workload"]
            );
            check_speeds(member);
        }
        let count = candidate["chosen_count"].as_u64().expect("a count");
        assert_eq!(candidate["excluded_by"].is_null(), count > 0, "{candidate}");
        chosen += count;
    }
    assert_eq!(chosen, 3, "as often as there are pairings");
    let of_heavy = list(&answer, "candidates")
        .iter()
        .find(|one| list(one, "members").iter().all(|member| member["workload"] == "heavy"));
    assert_eq!(of_heavy.expect("it was considered")["excluded_by"], "promise-at-risk");
    let table = run(&folder, &line).await.out;
    assert!(table.contains("combinations considered:\n  WORKLOADS"), "{table}");
    assert!(table.contains("heavy + heavy") && table.contains("promise-at-risk"), "{table}");
}

#[tokio::test]
async fn only_what_is_allowed_is_chosen_in_either_order() {
    let folder = folder();
    let line = format!("{LINE} --history pairs.csv --device h100 --allow allow.csv");
    let nothing = answer(&folder, &line).await;
    assert_eq!((rows(&nothing), list(&nothing, "pairings").len()), (vec![0, 1, 2, 3, 4], 0));
    for (row, expected) in [
        ("light,light,,\n", "\"light\" null,\"light\" null"),
        ("heavy,light,0.9,\n", "\"heavy\" 0.9,\"light\" null"),
        ("light,heavy,1,0.9\n", "\"heavy\" 0.9,\"light\" null"),
    ] {
        write(folder.path(), "allow.csv", format!("{ALLOW}{row}").as_bytes());
        let answer = answer(&folder, &line).await;
        let chosen = combinations(list(&answer, "pairings"));
        assert!(!chosen.is_empty(), "{row}");
        assert!(chosen.iter().all(|one| one.join(",") == expected), "{row}: {chosen:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_one_line_and_nothing_is_printed() {
    let cases: [(&str, &[u8], &str); 16] = [
        ("solo.csv", b"", "line 1, column 1: nothing where a header with workload was expected"),
        ("solo.csv", b"workload,clan\n", "line 1, column 2: 'clan' where one of workload, family, "),
        ("solo.csv", b"workload\na\na\n", "line 3, column workload: 'a' where each workload once"),
        (
            "solo.csv",
            b"workload,stall_fraction\na,12\n",
            "line 2, column stall_fraction: '12' where a number from 0 to 1",
        ),
        ("queue.csv", b"user\nbob\n", "line 1, column workload: no such column"),
        (
            "queue.csv",
            b"workload\r\na\r\n\xe4\r\n",
            "line 3, column workload: bytes that are no UTF-8 where UTF-8",
        ),
        (
            "queue.csv",
            b"workload,max_slowdown\na,0.9\n",
            "line 2, column max_slowdown: '0.9' where a number from 1 to 10",
        ),
        (
            "queue.csv",
            b"workload;user\na;b\n",
            "line 1, column 1: 'workload;user' where one of workload, user, ",
        ),
        ("queue.csv", b"workload,user\n\na\n", "line 3, column 1: a line of 1 fields where one of 2"),
        (
            "running.csv",
            b"workload,cap_fraction\na,-1\n",
            "line 2, column cap_fraction: '-1' where a number above 0",
        ),
        (
            "running.csv",
            b"workload,remaining_seconds\na,1h\n",
            "line 2, column remaining_seconds: '1h' where a number",
        ),
        ("pairs.csv", b"workload_a,workload_b\na,b\n", "line 1, column speed_fraction_a: no such column"),
        (
            "pairs.csv",
            b"workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits\na,b,1,1,2\n",
            "line 2, column fits: '2' where 0 or 1",
        ),
        (
            "pairs.csv",
            b"workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits,device\na,b,1,inf,1,\n",
            "line 2, column speed_fraction_b: 'inf' where a number from 0 to 10",
        ),
        ("allow.csv", b"workload_a,workload_b\n", "line 1, column cap_fraction_a: no such column"),
        (
            "allow.csv",
            b"workload_a,workload_b,cap_fraction_a,cap_fraction_b\na,b,,50\n",
            "line 2, column cap_fraction_b: '50' where a number above 0, at most 1",
        ),
    ];
    let line = format!("{LINE} --history pairs.csv --running running.csv --allow allow.csv");
    for (name, bytes, expected) in cases {
        let folder = folder();
        write(folder.path(), name, bytes);
        for format in ["", "--json", "--parsable2"] {
            let ran = run(&folder, &format!("{line} {format}")).await;
            assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (65, "", 1), "{}", ran.err);
            let message = format!("pillion: {name}, {expected}");
            assert!(ran.err.starts_with(&message), "{:?} does not begin with {message:?}", ran.err);
            assert!(ran.err.ends_with(" was expected\n"), "{:?}", ran.err);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_one_line_too() {
    let folder = folder();
    for option in ["--history", "--running", "--allow"] {
        for (file, why) in [("missing.csv", "No such file"), (".", "Is a directory")] {
            let ran = run(&folder, &format!("{LINE} {option} {file} --json")).await;
            assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (65, "", 1), "{}", ran.err);
            assert!(ran.err.starts_with(&format!("pillion: cannot read {file}: {why}")), "{}", ran.err);
        }
    }
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let folder = folder();
    for wrong in [
        "--broken-budget 1.5",
        "--max-slowdown 0.5",
        "--device-memory 80G",
        "--max-tenants 17",
        "--mechanism mig",
        "--caps yes",
        "--candidates --parsable2",
        "--live",
    ] {
        let ran = run(&folder, &format!("{LINE} {wrong}")).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{wrong}");
    }
    assert_eq!(run(&folder, "plan --solo solo.csv").await.code, 64);
    assert_eq!(
        run(&folder, &format!("{LINE} --broken-budget 0 --objective energy --caps off")).await.code,
        0
    );
}

/// What stands between ` ```language ` and ` ``` `, each with the last line before it.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<(&'t str, &'t str)> {
    let fence = format!("```{language}\n");
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&fence) {
        let (block, next) = after.split_once("```").expect("a block ends");
        found.push((before.trim_end().lines().last().unwrap_or_default(), block));
        rest = next;
    }
    found
}

#[tokio::test]
async fn the_example_of_the_documentation_holds() {
    let text = include_str!("../../../../docs/planning-on-files.md");
    let folder = tempfile::tempdir().expect("a folder");
    let files = blocks(text, "csv");
    assert_eq!(files.len(), 4);
    for (title, content) in files {
        write(folder.path(), title.trim_matches('`'), content.as_bytes());
    }
    let [(_, command)] = blocks(text, "sh")[..] else { panic!("one command") };
    let line = command.trim().strip_prefix("pillion ").expect("a command of ours");
    let line = line.strip_suffix(" --json").expect("a command whose answer is JSON");
    let answer = answer(&folder, line).await;
    let [(_, written)] = blocks(text, "json")[..] else { panic!("one answer") };
    let written: Value = serde_json::from_str(written).expect("the answer is JSON");
    // The numbers are the model's, and better ones may come; what they lead to stays.
    assert_eq!(
        combinations(list(&answer, "pairings")),
        combinations(list(&written, "pairings")),
        "{answer:#}"
    );
    assert_eq!(answer["alone"], written["alone"]);
    assert_eq!(keys(&answer), keys(&written));
    assert_eq!(keys(&answer["model"]), keys(&written["model"]));
    let members = |answer: &Value| -> Vec<String> {
        let members = list(answer, "pairings").iter().flat_map(|pairing| list(pairing, "members"));
        let mut keys: Vec<String> = members.map(|member| keys(member).join(" ")).collect();
        keys.sort();
        keys
    };
    assert_eq!(members(&answer), members(&written));
}
