//! A cluster with whole GPUs only, which is observed: no pool, no plugin, no module of lua. What its jobs do is learnt and told, and
//! neither they nor Slurm's records of them are other than without us.

use pillion_core::SlurmJobId;
use pillion_tests::process::Program;
use pillion_tests::testbed::search_path;
use pillion_tests::unchanged::Looks;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// Two parts of a minute that must be over, and what it takes to tell of them.
const LATE: Duration = Duration::from_mins(4);
/// Asks until it is answered: where the machine has much else to do, the scheduler may say that it cannot now.
fn json(cluster: &Cluster, user: &str, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    wait_for(&words.join(" "), SOON, || {
        let output = cluster.pillion_as(user, &words)?.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(match (output.status.code(), serde_json::from_str(&said)) {
            (Some(0), Ok(value)) => Look::Ready(value),
            _ => Look::NotYet(String::from_utf8_lossy(&output.stderr).into_owned()),
        })
    })
    .unwrap()
}

/// Two users' jobs, one of two GPUs; one that holds a GPU and sleeps.
fn run(cluster: &Cluster) -> [SlurmJobId; 3] {
    let one = "pillion-load resnet50-train --seconds 1200";
    let both = "for gpu in ${SLURM_JOB_GPUS//,/ }; do SLURM_JOB_GPUS=$gpu CUDA_VISIBLE_DEVICES=$gpu pillion-load bert-small-batch --seconds 1200 & done; wait";
    [
        cluster.submit_as("alice", one, &["--gres=gpu:1", "-J", "images"]).unwrap(),
        cluster.submit_as("bob", both, &["--gres=gpu:2", "-J", "words"]).unwrap(),
        cluster.submit_as("bob", "sleep 600", &["--gres=gpu:1", "-J", "forgotten"]).unwrap(),
    ]
}

/// What would have been done with them is written down, and nothing else: the first runs would have had their GPUs to themselves.
fn check_shadow(cluster: &Cluster, alices: SlurmJobId) {
    let report = wait_for("shadow decisions", SOON, || {
        let report = json(cluster, "root", &["shadow", "report", "-S", "now-1hour"]);
        let is_there = report["start_count"].as_u64().is_some_and(|count| count > 0);
        Ok(if is_there { Look::Ready(report) } else { Look::NotYet(report.to_string()) })
    })
    .unwrap();
    assert_eq!((&report["mode"], &report["paired_count"]), (&"shadow".into(), &0.into()), "{report:#}");
    let why = cluster.pillion_as("alice", &["why", &alices.to_string()]).unwrap().stdout().unwrap();
    assert!(why.contains("to itself"), "{why}");
    assert_eq!(
        json(cluster, "root", &["pairs", "-a", "-S", "now-1hour"])["decisions"],
        Value::Array(Vec::new())
    );
}

#[test]
fn an_unchanged_cluster_is_observed_and_learnt_from() {
    let mut cluster = Cluster::start(ClusterSpec::observed(2)).unwrap();
    let before = Looks::take(&cluster).unwrap();
    cluster.start_observing().unwrap();
    before.wait_until_slurm_looks_so(&cluster).unwrap();
    assert_eq!(before.differences(&Looks::take(&cluster).unwrap()), [""; 0]);
    let [alices, words, forgotten] = run(&cluster);
    for job in [alices, words] {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
    }

    // What they were like alone, each user's own; one of two GPUs is a workload of its own.
    let profiles = wait_for("profiles of both", SOON, || {
        let known = json(&cluster, "root", &["profile"]);
        let rows = known["profiles"].as_array().cloned().unwrap_or_default();
        Ok(if rows.len() >= 2 { Look::Ready(rows) } else { Look::NotYet(known.to_string()) })
    })
    .unwrap();
    let of = |user: &str| {
        let begins = format!("{user}/");
        profiles
            .iter()
            .find(|row| row["workload"].as_str().is_some_and(|key| key.starts_with(&begins)))
            .unwrap()
    };
    assert_eq!((&of("alice")["run_count"], &of("bob")["run_count"]), (&1.into(), &1.into()), "{profiles:#?}");
    assert!(of("bob")["workload"].as_str().unwrap().starts_with("bob/2x-"), "{profiles:#?}");
    assert!(of("alice")["sm_active_fraction"].as_f64().unwrap() > 0.1, "{profiles:#?}");
    let own = cluster.pillion_as("alice", &["profile"]).unwrap().stdout().unwrap();
    assert!(own.contains("alice/images") || own.lines().count() == 1, "{own}");

    // Of whom it is known with how much less they would have done: each user is told of his own.
    let looked_at =
        |user: &str| json(&cluster, user, &["rightsize", "--runs", "1"])["workload_count"].clone();
    assert_eq!((looked_at("root"), looked_at("bob")), (profiles.len().into(), 1.into()));

    // Who holds a GPU and does nothing with it.
    let devices = wait_for("a GPU without work", LATE, || {
        let idle = json(&cluster, "bob", &["idle", "--for", "1m"]);
        let rows = idle["devices"].as_array().cloned().unwrap_or_default();
        Ok(if rows.is_empty() { Look::NotYet(idle.to_string()) } else { Look::Ready(rows) })
    })
    .unwrap();
    assert_eq!(devices.len(), 1, "{devices:#?}");
    assert_eq!(
        (&devices[0]["job_id"], &devices[0]["user"], &devices[0]["has_process"]),
        (&forgotten.to_string().into(), &"bob".into(), &false.into())
    );
    let others = json(&cluster, "alice", &["idle", "--for", "1m"]);
    assert_eq!(others["devices"], Value::Array(Vec::new()), "not alice's to see");
    let mail = cluster.pillion_as("root", &["idle", "--for", "1m", "--mail"]).unwrap().stdout().unwrap();
    assert!(mail.contains("To: bob") && mail.contains(&format!("job {forgotten} ")), "{mail}");
    let report = cluster.pillion_as("bob", &["report", &forgotten.to_string()]).unwrap().stdout().unwrap();
    assert!(report.contains("never used by the job"), "{report}");

    check_shadow(&cluster, alices);
    cluster.program("scancel").arg(forgotten.to_string()).stdout().unwrap();
    cluster.wait_for_job(forgotten, &["CANCELLED"], SOON).unwrap();
    before.wait_until_slurm_looks_so(&cluster).unwrap();
    assert_eq!(before.differences(&Looks::take(&cluster).unwrap()), [""; 0], "with all that was learnt");
    cluster.stop_observing().unwrap();
}

/// The demo of an unchanged cluster in the shadow, by its own program: it fails where anything is otherwise than without us.
#[test]
fn the_demo_of_a_shadow_tells_what_would_have_been_done() {
    let output = tempfile::tempdir().unwrap();
    let program = Program::new("pillion-demo").inherit_environment().env("PATH", search_path());
    let told = program.args(["--observe", "--output", output.path().to_str().unwrap()]).stdout().unwrap();
    for expected in [
        "pillion idle",
        "pillion shadow report",
        "would have come to be beside others",
        "their memory fits",
        "GPU-hours that would have been saved",
        "no: Slurm gave it a whole GPU",
        "it would have started",
        "No word is otherwise",
    ] {
        assert!(told.contains(expected), "no '{expected}' in {told}");
    }
}
