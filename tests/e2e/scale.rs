//! How a training scales, on real Slurm: a simulated distributed workload on 1, 2 and 4 devices of a cluster that is only observed, run by
//! a campaign as jobs of a user, one rank made slow on four. What is told of it is what the model that made it says, and the slow rank
//! is named. And the same in a pool, where a workload runs with and without co-location, on one node and on two.

use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::{ADMITS_PLAIN, PoolNode};
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(2);
/// The model, in seconds of the clock: what is not divided, what is, and how much longer the last of four ranks takes.
const SERIAL_SECONDS: f64 = 8.0;
const DIVIDED_SECONDS: f64 = 100.0;
const SLOW_RATIO: f64 = 1.5;
const TOLERANCE: f64 = 0.05;

/// A rank a GPU, each with its part of the work; all wait for the last.
fn script(time_scale: f64) -> String {
    let work = DIVIDED_SECONDS * time_scale;
    format!(
        "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --time=10\nsleep {SERIAL_SECONDS}\ngpus=(${{SLURM_JOB_GPUS//,/ }})\n\
         for at in \"${{!gpus[@]}}\"; do\n\
         factor=1\n[[ ${{#gpus[@]}} == 4 && $at == 3 ]] && factor={SLOW_RATIO}\n\
         seconds=$(awk \"BEGIN {{ print {work} / ${{#gpus[@]}} * $factor }}\")\n\
         SLURM_JOB_GPUS=${{gpus[at]}} CUDA_VISIBLE_DEVICES=${{gpus[at]}} pillion-load gemm-hog --seconds \"$seconds\" &\n\
         done\nwait\n"
    )
}

fn model(gpus: u32) -> f64 {
    let slow = if gpus == 4 { SLOW_RATIO } else { 1.0 };
    SERIAL_SECONDS + DIVIDED_SECONDS / f64::from(gpus) * slow
}

fn json(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The measured rows of a table are what the model says.
fn is_as_the_model(table: &Value) {
    let rows: Vec<&Value> =
        table["rows"].as_array().unwrap().iter().filter(|row| row["source"] == "measured").collect();
    assert_eq!(
        rows.iter().map(|row| row["gpus"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 4],
        "{table:#}"
    );
    for row in rows {
        let gpus = u32::try_from(row["gpus"].as_u64().unwrap()).unwrap();
        let (time, speedup) = (model(gpus), model(1) / model(gpus));
        for (name, expected) in [
            ("time_seconds", time),
            ("speedup_ratio", speedup),
            ("efficiency_ratio", speedup / f64::from(gpus)),
            ("gpu_hours", time * f64::from(gpus) / 3600.0),
        ] {
            let told = row[name]["expected"].as_f64().unwrap();
            assert!(
                (told / expected - 1.0).abs() < TOLERANCE,
                "{gpus} GPUs, {name}: {told}, the model {expected}"
            );
        }
    }
}

#[test]
fn a_distributed_workload_is_measured_as_its_model_made_it_and_its_slow_rank_is_named() {
    let mut cluster = Cluster::start(ClusterSpec::observed(1)).unwrap();
    cluster.start_observing().unwrap();
    let path = cluster.home("alice").join("train.sh");
    std::fs::write(&path, script(cluster.spec().time_scale)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();

    // Somebody begins it and goes; somebody else comes back and stays.
    let words = ["characterize", "--gpus", "1,2,4", "--json"];
    let begun =
        cluster.pillion_as("alice", &words).unwrap().args(["--no-wait", "train.sh"]).output().unwrap();
    assert!(begun.status.success(), "{begun:?}");
    let jobs = |told: &Value| {
        let runs = told["runs"].as_array().unwrap();
        runs.iter().map(|run| run["job_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = jobs(&json(&begun));
    assert_eq!(before.len(), 3, "all are submitted");
    let done = cluster.pillion_as("alice", &words).unwrap().arg("train.sh").output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    let told = json(&done);
    assert_eq!(jobs(&told), before, "none is submitted twice");
    is_as_the_model(&told["scale"]);

    // The same from what agents observed, with who is to blame.
    let observed = wait_for("three observed runs", SOON, || {
        let asked = cluster.pillion_as("alice", &["scale", "train.sh", "--json"])?.output().unwrap();
        let told: Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        let counts = told["causes"].as_array().map_or(0, Vec::len);
        let said = format!("{told} {}", String::from_utf8_lossy(&asked.stderr));
        Ok(if counts == 3 { Look::Ready(told) } else { Look::NotYet(said) })
    })
    .unwrap();
    is_as_the_model(&observed);
    let four = &observed["causes"][2];
    let odd = four["odd_ranks"].as_array().unwrap();
    assert_eq!(odd.len(), 1, "{four:#}");
    assert_eq!(
        (&odd[0]["node"], &odd[0]["device"], &odd[0]["oddity"]),
        (&"w1".into(), &"g3".into(), &"slow".into())
    );
    assert!(four["idle_ranks_seconds"].as_f64().unwrap() > 0.0, "{four:#}");
    assert!(observed["causes"][1]["odd_ranks"].as_array().unwrap().is_empty(), "{observed:#}");
    assert!(observed["rows"][0]["energy_joules"]["expected"].as_f64().unwrap() > 0.0, "by meter");
    let text = cluster.pillion_as("alice", &["scale", "train.sh"]).unwrap().stdout().unwrap();
    assert!(text.contains("the slow rank is g3 on w1"), "{text}");

    // It is nobody else's to see.
    let others = cluster.pillion_as("bob", &["scale", "train.sh"]).unwrap().output().unwrap();
    assert!(!others.status.success() && others.stdout.is_empty(), "{others:?}");
    cluster.stop_observing().unwrap();
}

/// Every job that Slurm's accounts have of alice, with its nodes.
fn accounted(cluster: &Cluster) -> Vec<String> {
    let words = ["-X", "-n", "-P", "--user=alice", "--starttime=now-1hour", "-o", "JobID,NNodes,State"];
    let text = cluster.program("sacct").args(words).stdout().unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A campaign that needs two nodes for its second count, killed after Slurm had taken a job and before anybody wrote that down: once while
/// slurmctld knows the job, and once when only the accounts do.
#[test]
fn a_campaign_goes_over_two_nodes_and_submits_nothing_twice_whoever_is_killed() {
    let spec = ClusterSpec {
        accounting: true,
        slurm_conf_extra: vec!["MinJobAge=2".to_owned()],
        ..ClusterSpec::observed(2)
    };
    let cluster = Cluster::start(spec).unwrap();
    let home = cluster.home("alice");
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:1 --ntasks-per-node=1 --time=10 --comment=\"grant 7\"\nsrun sleep 2\n";
    // Submits, and kills who called: `timeout`'s parent.
    let fatal = "#!/bin/bash\nset -e\n/usr/bin/sbatch \"$@\"\nread -r _ _ _ parent _ < /proc/$PPID/stat\nkill -9 \"$parent\"\n";
    std::fs::create_dir(home.join("fatal")).unwrap();
    for (name, text, mode) in [("several.sh", script, 0o644), ("fatal/sbatch", fatal, 0o755)] {
        std::fs::write(home.join(name), text).unwrap();
        std::fs::set_permissions(home.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let words = ["characterize", "--gpus", "4,8", "--json", "several.sh"];
    let killed = || {
        let path = format!("{}/fatal:{}", home.display(), pillion_tests::testbed::search_path());
        let output = cluster.pillion_as("alice", &words).unwrap().env("PATH", path).output().unwrap();
        assert!(output.status.code().is_none(), "{output:?}");
    };
    killed();
    let one = wait_for("the first job in the accounts", SOON, || {
        let all = accounted(&cluster);
        Ok(if all.len() == 1 { Look::Ready(all) } else { Look::NotYet(format!("{all:?}")) })
    })
    .unwrap();
    // The first is taken up, and the second is submitted by one who is killed likewise.
    killed();
    wait_for("slurmctld to have forgotten both", SOON, || {
        let (all, held) = (accounted(&cluster), cluster.squeue("%i")?);
        let are_over = all.len() == 2 && all.iter().all(|line| line.ends_with("COMPLETED"));
        Ok(if are_over && held.is_empty() {
            Look::Ready(())
        } else {
            Look::NotYet(format!("{all:?} {held:?}"))
        })
    })
    .unwrap();
    let done = cluster.pillion_as("alice", &words).unwrap().output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let told = json(&done);
    let runs: Vec<(u64, u64, &str)> = told["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            (run["gpus"].as_u64().unwrap(), run["nodes"].as_u64().unwrap(), run["state"].as_str().unwrap())
        })
        .collect();
    assert_eq!(runs, [(4, 1, "measured"), (8, 2, "measured")], "{told:#}");
    let all = accounted(&cluster);
    assert_eq!(all.len(), 2, "nothing was submitted twice: {all:?}");
    assert!(
        all[0].contains("|1|")
            && all[1].contains("|2|")
            && all[0].split('|').next() == one[0].split('|').next(),
        "{all:?}"
    );
    assert_eq!(told["scale"]["rows"][1]["nodes"], 2, "{told:#}");
}

/// How often the workload of the pool writes how far it is.
const STEPS: u32 = 10;

/// A rank a GPU, each with its part of every step; all wait for the last, and then it is written how far they are.
fn counting_script(time_scale: f64) -> String {
    let work = DIVIDED_SECONDS * time_scale / f64::from(STEPS);
    format!(
        "sleep {SERIAL_SECONDS}\ngpus=(${{SLURM_JOB_GPUS//,/ }})\ncount=$((${{#gpus[@]}} * SLURM_JOB_NUM_NODES))\n\
         for ((step = 1; step <= {STEPS}; step++)); do\n\
         for at in \"${{!gpus[@]}}\"; do\n\
         factor=1\n[[ $count == 4 && $at == 3 ]] && factor={SLOW_RATIO}\n\
         seconds=$(awk \"BEGIN {{ print {work} / $count * $factor }}\")\n\
         env -u PILLION_PROGRESS SLURM_JOB_GPUS=${{gpus[at]}} CUDA_VISIBLE_DEVICES=${{gpus[at]}} pillion-load gemm-hog --seconds \"$seconds\" &\n\
         done\nwait\nif [[ $PILLION_PROGRESS ]]; then echo $((step * 10)) >>\"$PILLION_PROGRESS\"; fi\n\
         done\n"
    )
}

/// Each row's count with what the model says of it, so far off at most.
fn is_near(table: &Value, counts: &[u32], name: &str, expected: fn(u32) -> f64, tolerance: f64) {
    for gpus in counts {
        let rows = table["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["gpus"] == *gpus).unwrap_or_else(|| panic!("{table:#}"));
        let (told, expected) = (row[name]["expected"].as_f64().unwrap(), expected(*gpus));
        assert_eq!(row["source"], "measured", "{table:#}");
        let off = (told / expected - 1.0).abs();
        assert!(off < tolerance, "{gpus} GPUs, {name}: {told}, the model {expected}");
    }
}

/// What is told of a count's devices.
fn cause(table: &Value, gpus: u64) -> Option<&Value> {
    table["causes"].as_array()?.iter().find(|cause| cause["gpus"] == gpus)
}

/// By what it wrote: what is not divided lies before the first number, and is not in it.
fn is_as_it_counted(table: &Value) {
    let seconds_of_one_in_a_hundred: fn(u32) -> f64 = |gpus| {
        let slow = if gpus == 4 { SLOW_RATIO } else { 1.0 };
        DIVIDED_SECONDS / 100.0 / f64::from(gpus) * slow
    };
    is_near(table, &[1, 4], "time_seconds", seconds_of_one_in_a_hundred, 2.0 * TOLERANCE);
    let measured = table["rows"].as_array().unwrap().iter().filter(|row| row["source"] == "measured");
    assert_eq!(
        measured.count(),
        2,
        "who did not ask has no counter, and on two nodes nobody knows: {table:#}"
    );
}

#[test]
fn runs_of_several_gpus_in_the_pool_count_as_observed_ones_do() {
    let nodes = ["n1", "n2"].map(|name| PoolNode::new(name, "h200", Mechanism::Mps));
    let spec = ClusterSpec {
        pool_nodes: nodes.into(),
        bound_seconds: 600,
        pool_conf_extra: vec![ADMITS_PLAIN.to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let script = counting_script(cluster.spec().time_scale);
    // Asked for in every way that leads into the pool; the last one needs all devices.
    let asked: [&[&str]; 4] = [
        &["--colocate", "--gres=gpu:1"],
        &["-p", "shared", "--gres=gpu:2"],
        &["--colocate", "--gres=gpu:4"],
        &["--colocate", "--gres=gpu:4", "-N2"],
    ];
    let submit = |request: &&[&str]| {
        let words = [&["-J", "train", "-c1", "--mem=100", "-t10"], *request].concat();
        cluster.submit_as("alice", &script, &words).unwrap()
    };
    let jobs: Vec<_> = asked.iter().map(submit).collect();
    for job in &jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], 2 * SOON).unwrap();
    }
    let ask = |user: &str, words: &[&str]| {
        let words = [&["scale", "train", "--json"], words].concat();
        let asked = cluster.pillion_as(user, &words)?.output().unwrap();
        let told: Value = serde_json::from_slice(&asked.stdout).unwrap_or_default();
        Ok((told, String::from_utf8_lossy(&asked.stderr).into_owned()))
    };
    let told = wait_for("four runs of the pool", SOON, || {
        let (told, error) = ask("alice", &[])?;
        let counts = told["rows"]
            .as_array()
            .map_or(0, |rows| rows.iter().filter(|row| row["source"] == "measured").count());
        // What devices did is told by agents: of who asked for co-location, on one node. Of who did not, where he took his turn.
        let has_causes = [1, 4].iter().all(|gpus| cause(&told, *gpus).is_some());
        Ok(if counts == 4 && has_causes {
            Look::Ready(told)
        } else {
            Look::NotYet(format!("{told} {error}"))
        })
    })
    .unwrap();
    is_near(&told, &[1, 2, 4], "time_seconds", model, TOLERANCE);
    // Slurm tells whole seconds, of some twenty.
    is_near(&told, &[8], "time_seconds", model, 3.0 * TOLERANCE);
    is_near(&told, &[1, 2, 4], "speedup_ratio", |gpus| model(1) / model(gpus), TOLERANCE);
    let rows = told["rows"].as_array().unwrap();
    let nodes: Vec<_> = rows.iter().take(4).map(|row| row["nodes"].as_u64()).collect();
    assert_eq!(nodes, [Some(1), Some(1), Some(1), Some(2)], "{told:#}");
    assert!(rows[2]["energy_joules"]["expected"].as_f64().unwrap() > 0.0, "by meter: {told:#}");
    // The slow rank is named, by the device that Slurm gave.
    let odd = cause(&told, 4).unwrap()["odd_ranks"].as_array().unwrap();
    assert_eq!((odd.len(), &odd[0]["oddity"]), (1, &"slow".into()), "{told:#}");

    let (counted, error) = ask("alice", &["--by", "progress"]).unwrap();
    assert_eq!(counted["measure"], "progress", "{counted:#} {error}");
    is_as_it_counted(&counted);

    // Operators see the sum, and nobody else anything.
    let account = cluster.pillion_json(&["acct"]).unwrap();
    assert_eq!(account["scaling"]["workload_count"], 1, "{account:#}");
    let (others, _) = ask("bob", &[]).unwrap();
    assert_eq!(others, Value::Null);
    let text = cluster.pillion_as("alice", &["scale", "train"]).unwrap().stdout().unwrap();
    println!("{text}");
}
