//! A cluster with whole GPUs only, which is observed: no pool, no plugin, no module of lua. What its jobs do is learnt and told, and
//! neither they nor Slurm's records of them are other than without us.

use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
/// Two parts of a minute that must be over, and what it takes to tell of them.
const LATE: Duration = Duration::from_mins(4);
/// A job as users write them, which says what it finds in its environment, and how Slurm has it.
const LOOK: &str = "env | sort; scontrol show job $SLURM_JOB_ID -d";
/// What differs between any two jobs, or two looks at one cluster: times, process numbers, and who in slurmctld started a job.
const OF_THE_MOMENT: [&str; 18] = [
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_TASK_PID",
    "RunTime",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "StartTime",
    "EndTime",
    "LastSchedEval",
    "Scheduler",
    "AllocNode:Sid",
    "BootTime",
    "SlurmdStartTime",
    "LastBusyTime",
    "LastActiveTime",
    "CPULoad",
    "FreeMem",
];

/// What names a job by its number.
const OF_A_JOB: [&str; 3] = ["SLURM_JOB_ID", "SLURM_JOBID", "JobId"];

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

/// All words of it, but for what is of the moment, and for the number of the job where it stands.
fn lasting(text: &str, job: Option<&SlurmJobId>) -> Vec<String> {
    let (number, file) =
        job.map_or_else(Default::default, |job| (job.to_string(), format!("/slurm-{job}.out")));
    let words = text.split_whitespace().filter_map(|word| {
        let (name, value) = word.split_once('=').unwrap_or(("", word));
        let is_number = OF_A_JOB.contains(&name) && value == number;
        (!OF_THE_MOMENT.contains(&name) && !is_number).then(|| word.to_owned())
    });
    words.map(|word| if job.is_some() { word.replace(&file, "/slurm-N.out") } else { word }).collect()
}

/// What jobs of one GPU and of two find in their environment, and their records in Slurm.
fn jobs_look(cluster: &Cluster) -> [Vec<String>; 2] {
    ["--gres=gpu:1", "--gres=gpu:2"].map(|gres| {
        let job = cluster.submit_as("alice", LOOK, &[gres, "-J", "look", "-w", "w1"]).unwrap();
        let text = cluster.finished_output(job, SOON).unwrap();
        assert!(text.contains("SLURM_JOB_GPUS=") && text.contains("JOB_GRES="), "{text}");
        lasting(&text, Some(&job))
    })
}

/// How Slurm says that it is set up; but for the time of asking, and the number of the next job.
fn slurm_looks(cluster: &Cluster) -> [Vec<String>; 3] {
    ["config", "nodes", "partitions"].map(|what| {
        let text = cluster.scontrol(&["show", what]).unwrap();
        let of_the_moment = ["Configuration data as of", "NEXT_JOB_ID"];
        let lines = text.lines().filter(|line| !of_the_moment.iter().any(|it| line.starts_with(it)));
        lasting(&lines.collect::<Vec<_>>().join("\n"), None)
    })
}

/// The last jobs' ends may be still under way on their nodes.
fn wait_until_slurm_looks_like(before: &[Vec<String>; 3], cluster: &Cluster) {
    wait_for("Slurm as it was without us", SOON, || {
        let now = slurm_looks(cluster);
        let other =
            now.iter().zip(before).flat_map(|(now, before)| now.iter().filter(|word| !before.contains(word)));
        let other: Vec<&String> = other.collect();
        Ok(if now == *before { Look::Ready(()) } else { Look::NotYet(format!("{other:?}")) })
    })
    .unwrap();
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
    let before = (slurm_looks(&cluster), jobs_look(&cluster));
    cluster.start_observing().unwrap();
    wait_until_slurm_looks_like(&before.0, &cluster);
    assert_eq!(jobs_look(&cluster), before.1, "a job's environment, and its record in Slurm");
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

    assert_eq!(std::fs::read(cluster.layout().slurm_conf()).unwrap(), conf, "Slurm's configuration");
    cluster.program("scancel").arg(forgotten.to_string()).stdout().unwrap();
    cluster.wait_for_job(forgotten, &["CANCELLED"], SOON).unwrap();
    wait_until_slurm_looks_like(&before.0, &cluster);
    assert_eq!(jobs_look(&cluster), before.1, "with all that was learnt");
    cluster.stop_observing().unwrap();
}
