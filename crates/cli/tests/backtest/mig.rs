//! `pillion backtest --mig`.

use super::{keys, run};
use serde_json::Value;
use tempfile::TempDir;

const ROWS: &str = "model,batch_size,mig_profile,norm_speed_vs_7g\n\
                    light,1,7g.40gb,1\nlight,1,2g.10gb,0.9\nlight,1,4g.20gb,0.95\n\
                    heavy,1,7g.40gb,1\nheavy,1,2g.10gb,0.3\nheavy,1,4g.20gb,0.6\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("slices.csv"), ROWS).expect("written");
    folder
}

#[tokio::test]
async fn each_rule_has_a_line_a_mix() {
    let folder = folder();
    let ran = run(&folder, "backtest --mig slices.csv --seeds 2 --json").await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(keys(&answer), ["device", "jobs", "scores", "seeds", "version"]);
    let scores = answer["scores"].as_array().expect("scores");
    let of = |mix: &str| -> Vec<&str> {
        let own = scores.iter().filter(|score| score["mix"] == mix);
        own.filter_map(|score| score["rule"].as_str()).collect()
    };
    let rules = [
        "one at a time",
        "static 4g+2g",
        "static 2g+2g+2g",
        "best static in hindsight",
        "tightest by memory",
        "Pillion, promise 2.5",
        "Pillion, promise 1.67",
        "Pillion, promise 1.25",
    ];
    assert_eq!((of("all"), of("heavy")), (rules.to_vec(), rules.to_vec()));
    let one = run(&folder, "backtest --mig slices.csv --seeds 1 --max-slowdown 1.2 --parsable2").await;
    let lines: Vec<&str> = one.out.lines().filter(|line| line.contains("Pillion")).collect();
    assert_eq!(lines.len(), 3, "{}", one.out);
    assert!(lines.iter().all(|line| line.contains("|Pillion, promise 1.2|")), "{}", one.out);
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_in_a_line() {
    let folder = folder();
    for (line, code, message) in [
        ("backtest", 64, "--solo"),
        ("backtest --solo a.csv", 64, "--pairs"),
        ("backtest --mig slices.csv --solo a.csv", 64, "cannot be used with"),
        ("backtest --mig slices.csv --week", 64, "cannot be used with"),
        (
            "backtest --mig slices.csv --device v100",
            64,
            "'v100' cannot be cut, as far as is known; known are a30, a100-40",
        ),
        (
            "backtest --mig slices.csv --device h100",
            65,
            "slices.csv, line 2, column mig_profile: '7g.40gb' where one of",
        ),
        ("backtest --mig nothing.csv", 65, "cannot read nothing.csv"),
    ] {
        let ran = run(&folder, line).await;
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}: {}", ran.err);
        assert!(ran.err.contains(message), "{line}: {}", ran.err);
    }
}
