//! A cluster with whole GPUs only, which is observed: no pool, no plugin, no module of lua. What its jobs do is learnt and told, and
//! neither they nor Slurm's records of them are other than without us.

use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// Two parts of a minute that must be over, and what it takes to tell of them.
const LATE: Duration = Duration::from_mins(4);
/// A job as users write them, which says what it finds in its environment.
const LOOK: &str = "env | sort; scontrol show job $SLURM_JOB_ID -d";

fn json(cluster: &Cluster, user: &str, words: &[&str]) -> Value {
    let text = cluster.pillion_as(user, &[words, &["--json"]].concat()).unwrap().stdout().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Each name with its value, but for the digits in it (ids, times, ports, pids) and for which of Slurm's schedulers started the job.
fn shape(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    pairs
        .filter(|(name, _)| *name != "Scheduler")
        .map(|(name, value)| (name.to_owned(), value.chars().filter(|c| !c.is_ascii_digit()).collect()))
        .collect()
}

fn looked(cluster: &Cluster) -> BTreeMap<String, String> {
    let job = cluster.submit_as("alice", LOOK, &["--gres=gpu:1", "-J", "look"]).unwrap();
    shape(&cluster.finished_output(job, SOON).unwrap())
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

#[test]
fn an_unchanged_cluster_is_observed_and_learnt_from() {
    let mut cluster = Cluster::start(ClusterSpec::observed(2)).unwrap();
    let conf = std::fs::read(cluster.layout().slurm_conf()).unwrap();
    let before = looked(&cluster);
    cluster.start_observing().unwrap();
    assert_eq!(looked(&cluster), before, "a job's environment and its record in Slurm");
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

    assert_eq!(std::fs::read(cluster.layout().slurm_conf()).unwrap(), conf, "Slurm's configuration");
    assert_eq!(looked(&cluster), before);
    cluster.scontrol(&["requeuehold", &forgotten.to_string()]).unwrap();
    cluster.stop_observing().unwrap();
}
