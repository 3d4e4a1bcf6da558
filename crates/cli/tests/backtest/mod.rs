//! `pillion backtest` as scripts see it: the shape of the answer, the pictures, and what is refused.

mod mig;

use crate::harness::{Ran, run_at};
use serde_json::Value;
use std::fmt::Write as _;
use tempfile::TempDir;

/// Four families of two: light, middling, heavy and hogging.
const USES: [(&str, f64); 4] = [("a", 0.1), ("b", 0.3), ("c", 0.6), ("d", 0.9)];
const LINE: &str = "backtest --solo solo.csv --pairs pairs.csv --seeds 3 --queues 6,20 --max-slowdown 1.5";

/// Two that need no more than there is run at full speed, others are slowed alike.
fn folder() -> TempDir {
    let workloads =
        || USES.iter().flat_map(|(family, need)| ["1", "2"].map(|size| (format!("{family}{size}"), need)));
    let mut solo = "workload,family,sm_active_fraction\n".to_owned();
    let mut pairs = "workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits,device\n".to_owned();
    for (at, (a, need)) in workloads().enumerate() {
        writeln!(solo, "{a},{},{need}", &a[..1]).expect("a text takes everything");
        for (b, other) in workloads().skip(at) {
            let speed = (1.0 / (need + other)).min(0.97);
            writeln!(pairs, "{a},{b},{speed},{speed},1,v100").expect("a text takes everything");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("solo.csv", solo), ("pairs.csv", pairs)] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

async fn run(folder: &TempDir, line: &str) -> Ran {
    run_at("unix:/nowhere", folder.path(), line).await
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_commands_of_the_documentation_are_run() {
    let folder = folder();
    let converted = folder.path().join("converted/kace");
    std::fs::create_dir_all(&converted).expect("made");
    for (from, to) in [("solo.csv", "SOLO.csv"), ("pairs.csv", "PAIRS.csv")] {
        for place in [folder.path(), converted.as_path()] {
            std::fs::copy(folder.path().join(from), place.join(to)).expect("copied");
        }
    }
    let page = include_str!("../../../../docs/backtest.md");
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("pillion ")).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let groups = "group,workload,speed_fraction\n1,a1,0.9\n1,a2,0.9\n1,b1,0.7\n";
    std::fs::write(folder.path().join("GROUPS.csv"), groups).expect("written");
    let miso = include_str!("../../../../tests/fixtures/miso/miso_mig_solo.csv");
    let place = folder.path().join("tests/fixtures/miso");
    std::fs::create_dir_all(&place).expect("made");
    std::fs::write(place.join("miso_mig_solo.csv"), miso).expect("written");
    for line in lines {
        // As it stands but for its length: what is shown is worth minutes.
        let line = line.replace(" --queues 8,32,200 --seeds 30", "").replace(" --seeds 30", "");
        let size = match &line {
            line if line.contains("--mig") || line.contains("--groups") => "",
            line if line.contains("--week") => "--jobs 6 --seeds 2",
            _ => "--queues 6 --seeds 2",
        };
        let ran = run(&folder, &format!("{line} {size}")).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        assert!(
            ["ours", "Pillion, promise", "ADMITTED"].iter().any(|word| ran.out.contains(word)),
            "{line} printed\n{}",
            ran.out
        );
    }
    assert!(folder.path().join("pictures/gain.svg").exists());
}

#[tokio::test]
async fn the_answer_has_the_form_that_scripts_read() {
    let ran = run(&folder(), &format!("{LINE} --json")).await;
    // No bar in a pipe.
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    assert_eq!(keys(&answer), ["estimates", "policies", "protocol", "set", "splits", "version"]);
    assert_eq!(
        keys(&answer["policies"][0]),
        [
            "above_low_count",
            "above_low_fraction",
            "broken_fraction",
            "gpu_hours",
            "observations",
            "paired_fraction",
            "policy",
            "queue",
            "s_kept",
            "saved_fraction",
            "seeds_counted",
            "slowdown_ratio_p95",
            "unfit_pairs",
            "unmeasured_pairs"
        ]
    );
    let policies = answer["policies"].as_array().expect("a list");
    let named = |name: &str| policies.iter().filter(|score| score["policy"] == name).count();
    // Two queues; those that learn are scored cold and three times warm.
    for name in ["exclusive", "random-that-fits", "half-half", "oracle"] {
        assert_eq!(named(name), 2, "{name}");
    }
    for name in ["greedy", "extra-trees", "ours"] {
        assert_eq!(named(name), 8, "{name}");
    }
    let oracle = policies.iter().find(|score| score["policy"] == "oracle").expect("an oracle");
    assert_eq!((oracle["s_kept"].as_f64(), oracle["broken_fraction"].as_f64()), (Some(1.0), Some(0.0)));
    assert_eq!(answer["set"]["combinations"], 36);
    assert_eq!(answer["protocol"]["warm_observations"], serde_json::json!([20, 50, 100]));
}

#[tokio::test]
async fn equal_files_give_an_equal_answer() {
    let folder = folder();
    let (first, second) = (run(&folder, LINE).await, run(&folder, LINE).await);
    assert_eq!(first.out, second.out);
    assert!(
        first.out.contains("36 combinations of 8 workloads of 4 families on v100 (mps)"),
        "{}",
        first.out
    );
}

#[tokio::test]
async fn pictures_are_drawn_where_they_were_asked_for() {
    let folder = folder();
    let ran = run(&folder, &format!("{LINE} --plot pictures/new")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for (name, words) in [
        ("gain.svg", "Measured without caps"),
        ("calibration.svg", "stated probability"),
        ("learning-curve.svg", "observed pairings"),
    ] {
        let picture = std::fs::read_to_string(folder.path().join("pictures/new").join(name)).expect(name);
        assert!(picture.starts_with("<svg") && picture.contains(words), "{name}");
        assert!(ran.out.contains(&format!("drawn: pictures/new/{name}")), "{}", ran.out);
    }
}

const WEEK: &str = "backtest --week --solo solo.csv --pairs pairs.csv --seeds 2 --jobs 8 --max-slowdown 1.5";

#[tokio::test]
async fn a_week_has_the_form_that_scripts_read() {
    let ran = run(&folder(), &format!("{WEEK} --first-runs host --versions on --json")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "no bar in a pipe");
    let answer: Value = serde_json::from_str(&ran.out).expect("one JSON object");
    assert_eq!(keys(&answer), ["days", "protocol", "regret", "set", "version"]);
    let scores = answer["days"].as_array().expect("a list");
    assert_eq!(scores.len(), 4 * 8, "four policies on seven days, and in all of them");
    assert_eq!(
        keys(&scores[0]),
        [
            "broken_fraction",
            "day",
            "exclusive_hours",
            "first_run_fraction",
            "first_run_joined_fraction",
            "kept_hours",
            "oracle_share",
            "paired_fraction",
            "policy",
            "saved_hours",
            "sent_back_fraction",
            "unfit_pairs",
            "unmeasured_pairs"
        ]
    );
    let protocol = &answer["protocol"];
    assert_eq!(
        (protocol["first_runs"].as_str(), protocol["recurrence"].as_str()),
        (Some("host"), Some("versions"))
    );
    assert_eq!(keys(&answer["regret"][0]), ["oracle_hours", "policy", "regret_hours", "round"]);
    let oracle = scores.iter().find(|score| score["policy"] == "oracle").expect("an oracle");
    assert_eq!(oracle["oracle_share"].as_f64(), Some(1.0));
}

#[tokio::test]
async fn a_week_is_shown_as_a_table_and_a_picture() {
    let folder = folder();
    let ran = run(&folder, &format!("{WEEK} --plot pictures")).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for words in ["first runs: alone", "oracle-hosts", "drawn: pictures/week.svg"] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let picture = std::fs::read_to_string(folder.path().join("pictures/week.svg")).expect("drawn");
    assert!(picture.contains("Hours lost against the oracle"));
    let again = run(&folder, &format!("{WEEK} --plot pictures")).await;
    assert_eq!(ran.out, again.out);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_a_line() {
    let folder = folder();
    let cases = [
        ("--queues 8,1", 64, "1 is not in 2..=2000"),
        ("--queues many", 64, "invalid digit"),
        ("--seeds 0", 64, "0 is not in 1..=10000"),
        ("--max-slowdown 0.9", 64, "a ratio from 1 to 10 is expected"),
        ("--device k80", 65, "no measured pair is of the device 'k80'"),
        ("--plot solo.csv", 65, "cannot write solo.csv"),
        ("--week --queues 8", 64, "cannot be used with"),
        ("--week --observe chosen", 64, "cannot be used with"),
        ("--jobs 8", 64, "--week"),
        ("--week --recur 1.5", 64, "a fraction from 0 to 1 is expected"),
    ];
    for (option, code, message) in cases {
        let line = format!("backtest --solo solo.csv --pairs pairs.csv {option}");
        let line = if option.contains("seeds") { line } else { line + " --seeds 1" };
        let ran = run(&folder, &line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{option}: {}", ran.err);
        assert!(ran.err.contains(message), "{option}: {}", ran.err);
    }
    std::fs::write(
        folder.path().join("one.csv"),
        "workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits\na1,a2,0.9,0.9,1\n",
    )
    .expect("written");
    let ran = run(&folder, "backtest --solo solo.csv --pairs one.csv").await;
    assert_eq!((ran.code, ran.out.as_str()), (65, ""));
    assert_eq!(ran.err, "pillion: one.csv: the measured pairs are of 1 families; at least 2 are needed\n");
    std::fs::write(
        folder.path().join("bad.csv"),
        "workload_a,workload_b,speed_fraction_a,speed_fraction_b,fits\na1,a2,fast,0.9,1\n",
    )
    .expect("written");
    let ran = run(&folder, "backtest --solo solo.csv --pairs bad.csv").await;
    assert_eq!(ran.code, 65);
    assert!(
        ran.err.contains("bad.csv, line 2, column speed_fraction_a: 'fast' where a number"),
        "{}",
        ran.err
    );
}
