//! `pillion characterize` on real Slurm, in a pool where some GPUs can set caps and some cannot: a user's script is run alone without a cap and under two, as jobs of his own; the
//! campaign outlives the command, and what the runs taught is in the profile.

use crate::rides::{SOON, starts};
use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

/// A compute-bound workload, which a cap slows, for several looks of the agent on a busy machine.
const WORK: &str = "pillion-load gemm-hog --seconds 420";

fn characterize(cluster: &Cluster, more: &[&str]) -> std::process::Output {
    let arguments = ["characterize", "--caps", "0.3,0.6", "--sbatch=--time=10", "--json"];
    cluster.pillion_as("alice", &arguments).unwrap().args(more).arg("train.sh").output().unwrap()
}

fn told(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Cap, job and state of each run.
fn runs(told: &Value) -> Vec<(f64, SlurmJobId, String)> {
    let row = |run: &Value| {
        let text = |name: &str| run[name].as_str().unwrap().to_owned();
        (run["cap_fraction"].as_f64().unwrap(), text("job_id").parse().unwrap(), text("state"))
    };
    told["runs"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_script_is_measured_alone_under_caps_and_the_campaign_outlives_the_command() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    let script = cluster.home("alice").join("train.sh");
    let lines = "#SBATCH --gres=gpu:1 -c1 --mem=100\n#SBATCH --colocate=profile=hog,memory=16G";
    std::fs::write(&script, crate::rides::script(WORK).replacen('\n', &format!("\n{lines}\n"), 1)).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o644)).unwrap();

    // Somebody looks in now and then, and does not stay.
    let last = wait_for("runs under all caps to be begun", 2 * SOON, || {
        let output = characterize(&cluster, &["--no-wait"]);
        // Until the agents have come.
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("no GPU of the pool is shared by MPS now") {
            return Ok(Look::NotYet(said.into_owned()));
        }
        assert!(output.status.success(), "{output:?}");
        let told = told(&output);
        Ok(if runs(&told).len() == 3 { Look::Ready(told) } else { Look::NotYet(told.to_string()) })
    })
    .unwrap();
    assert_eq!(runs(&last).iter().map(|(cap, ..)| *cap).collect::<Vec<_>>(), [1.0, 0.3, 0.6]);

    // He stays until all is known: no run is submitted twice.
    let output = characterize(&cluster, &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let done = told(&output);
    let (jobs, before) = (runs(&done), runs(&last));
    assert_eq!(
        jobs.iter().map(|run| run.1).collect::<Vec<_>>(),
        before.iter().map(|run| run.1).collect::<Vec<_>>()
    );
    assert!(jobs.iter().all(|(.., state)| state == "measured"), "{done:#}");
    let workload = done["workload"].as_str().unwrap();
    assert!(workload.starts_with("alice/") && done["device_model"] == "h200", "{done:#}");
    let speed = |at: usize| done["speeds"][at]["speed_fraction"].as_f64().unwrap();
    assert!(speed(0) < 0.6 && speed(0) < speed(1) && speed(1) <= 1.05, "{done:#}");
    assert!(done["learnt"].as_str().unwrap().contains("of its speed with 30 % of the GPU"), "{done:#}");

    // Each ran alone, with its cap in its environment and the whole device booked.
    for (cap, job, _) in &jobs {
        let [start] = &starts(&cluster, "alice", *job)[..] else { panic!("{job} started more than once") };
        let expected = if *cap < 1.0 { format!("{:.0}", cap * 100.0) } else { String::new() };
        assert_eq!(
            (start["cap"].as_str(), start["shards"].as_str()),
            (expected.as_str(), "100"),
            "{start:?}"
        );
        let report = cluster.pillion_as("alice", &["report", &job.to_string()]).unwrap().stdout().unwrap();
        let taught =
            if *cap < 1.0 { "how fast the workload is alone with" } else { "how the workload runs alone" };
        assert!(report.contains(taught), "{report}");
    }
    // What is known is told without a new job.
    let again = characterize(&cluster, &[]);
    assert_eq!((again.status.code(), told(&again)), (Some(0), done.clone()));
    let drawn = cluster.pillion_as("alice", &["profile", workload]).unwrap().stdout().unwrap();
    assert!(drawn.contains("speed at cap 0.3"), "{drawn}");
}

#[test]
fn what_cannot_be_characterized_leaves_no_job_behind() {
    let mut cluster = Cluster::start(ClusterSpec::default()).unwrap();
    cluster.start_pillion().unwrap();
    // A scheduler that knows of no GPU yet refuses everything, and says so.
    wait_until("a GPU that is shared by MPS", SOON, || {
        let nodes = cluster.pillion_as("alice", &["nodes", "--parsable2", "--noheader"])?.stdout()?;
        Ok(nodes.contains("|mps|"))
    })
    .unwrap();
    let script = cluster.home("alice").join("train.sh");
    let refused = |text: &str| {
        std::fs::write(&script, text).unwrap();
        let output = characterize(&cluster, &[]);
        assert!(!output.status.success(), "{output:?}");
        // One that Slurm began in between takes a moment to end, or was quicker than we.
        let is_over = |state: &String| ["CANCELLED", "COMPLETED"].contains(&state.as_str());
        wait_until("end of every job", SOON, || Ok(cluster.squeue("%T")?.iter().all(is_over))).unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    // Not one GPU: there is no cap for several, Pillion leaves such a job alone, and it would run without one.
    let said = refused("#!/bin/sh\n#SBATCH --gres=gpu:2 -c1\nexit 0\n");
    assert!(
        said.contains("so it was cancelled again") && said.contains("cap= is for jobs of one GPU"),
        "{said}"
    );
    let said = refused("#!/bin/sh\n#SBATCH --gres=gpu:1 --nonsense\nexit 0\n");
    assert!(said.contains("sbatch submitted nothing") && said.contains("nonsense"), "{said}");
    let said = refused("#!/bin/sh\n#SBATCH --colocate=no\nexit 0\n");
    assert!(said.contains("line 2: take --colocate=no out"), "{said}");
    // A script that fails is tried once, and nothing is begun after it.
    std::fs::write(&script, "#!/bin/sh\n#SBATCH --gres=gpu:1 -c1 --mem=100\nexit 3\n").unwrap();
    let output = characterize(&cluster, &[]);
    let told = told(&output);
    assert_eq!((output.status.code(), runs(&told).len()), (Some(1), 1), "{told:#}");
    assert_eq!(told["runs"][0]["detail"], "it ended as failed; see what it printed");
}
