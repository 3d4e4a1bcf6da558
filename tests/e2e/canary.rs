//! `pillion canary` on real Slurm: one node is the pool, an ordinary partition is observed and decided on in the shadow. A user's own
//! scripts run on the pool's node, alone and two at a time, by the commands of docs/evaluate.md; the report of the shadow has figures
//! with and without that, and the jobs of two users in the ordinary partition are those of a cluster without us.

use crate::rides::{KNOWN_SECONDS, SOON};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::unchanged::Looks;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const PAGE: &str = include_str!("../../docs/evaluate.md");
/// The scripts of the page and what they run. The last one is misjudged: beside another of its kind it is slower than it looks.
const SCRIPTS: [(&str, &str); 3] =
    [("solver", "resnet50-infer"), ("training", "bert-small-batch"), ("inference", "hash-probe")];
/// Each beside each, and beside itself.
const PAIR_COUNT: usize = 6;
/// So many jobs there are in all: each alone, and two of each pair.
const JOB_COUNT: usize = SCRIPTS.len() + 2 * PAIR_COUNT;
/// How long a canary may take: one job of some seconds after the other, on a busy machine.
const LONG: Duration = Duration::from_mins(8);

/// A pool of one node, and an ordinary partition beside it that is observed.
fn spec() -> ClusterSpec {
    let extra = ["[observe]", "partitions = [\"gpu\"]", "shadow = true"];
    ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        whole_gpu_node_count: 1,
        scheduler_conf_extra: extra.map(str::to_owned).into(),
        ..ClusterSpec::default()
    }
}

/// The lines of the page that begin so, as the shell would take them.
fn lines(begin: &str) -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().filter(|line| line.starts_with(begin));
    lines.map(|line| line.split_whitespace().skip(1).collect()).collect()
}

fn write(cluster: &Cluster, name: &str, lines: &str, work: &str) {
    let text = format!("#!/bin/bash\n{lines}\nexec pillion-load {work} --seconds {KNOWN_SECONDS}\n");
    std::fs::write(cluster.home("alice").join(name), text).unwrap();
}

fn canary(cluster: &Cluster, words: &[&str]) -> std::process::Output {
    cluster.pillion_as("alice", words).unwrap().output().unwrap()
}

fn told(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What was submitted by a canary and not cancelled again, by Slurm's own books: its state, its name, whose it is, and where it ran.
fn submitted(cluster: &Cluster) -> Vec<String> {
    let lines = cluster.squeue("%T %j %u %P").unwrap();
    let is_own = |line: &String| line.contains(" pillion-canary-") && !line.starts_with("CANCELLED");
    lines.into_iter().filter(is_own).collect()
}

/// What is refused leaves no job behind, and is said in one sentence.
fn check_refusals(cluster: &Cluster) {
    let limit = "#SBATCH --gres=gpu:1 -c1 --mem=100 -t10";
    write(cluster, "endless.sh", "#SBATCH --gres=gpu:1 -c1 --mem=100", "resnet50-infer");
    write(cluster, "solver.bash", limit, "resnet50-infer");
    write(cluster, "cpu.sh", "#SBATCH -c1 --mem=100 -t10", "resnet50-infer");
    for (words, said) in [
        (vec!["solver.sh", "nothing.sh"], "cannot read nothing.sh"),
        (vec!["endless.sh"], "endless.sh: it has no time limit"),
        (vec!["solver.sh", "solver.bash"], "are both named solver; rename one"),
        (vec!["-w", "w1", "solver.sh"], "w1 is in none of the pool's partitions (shared)"),
        (vec!["--sbatch=--account=nobodys", "--sbatch=--nonsense", "solver.sh"], "sbatch submitted nothing"),
        (
            vec!["cpu.sh"],
            "sbatch submitted nothing: sbatch: error: pillion: this job is left as you wrote it",
        ),
        (vec!["--scheduler", "unix:/nowhere", "solver.sh"], "cannot reach the scheduler at unix:/nowhere"),
    ] {
        let output = canary(cluster, &[&["canary"], &words[..]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{words:?}: {output:?}");
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    }
    wait_until("end of every job", SOON, || {
        Ok(cluster.squeue("%T")?.iter().all(|state| ["CANCELLED", "COMPLETED"].contains(&state.as_str())))
    })
    .unwrap();
    for name in ["endless.sh", "solver.bash", "cpu.sh"] {
        std::fs::remove_file(cluster.home("alice").join(name)).unwrap();
    }
    std::fs::remove_dir_all(cluster.home("alice").join(".local/state/pillion")).unwrap();
}

/// Jobs of two users in the ordinary partition, twice: the second time they are known.
fn ordinary(cluster: &Cluster) -> [SlurmJobId; 2] {
    [("alice", "resnet50-infer", "images"), ("bob", "bert-small-batch", "words")].map(|(user, work, name)| {
        // Long enough to be seen by several looks, on a busy machine too.
        let work = format!("pillion-load {work} --seconds {}", 3 * KNOWN_SECONDS);
        cluster.submit_as(user, &work, &["--gres=gpu:1", "-J", name]).unwrap()
    })
}

/// The canary as somebody does it who looks in now and then, each time by a process of its own.
fn run(cluster: &Cluster, words: &[&str], before: &Looks) -> Value {
    let step = [words, &["--no-wait", "--json"]].concat();
    let mut users = Vec::new();
    let done = wait_for("a canary", LONG, || {
        let output = canary(cluster, &step);
        let said = told(&output);
        assert!(submitted(cluster).len() <= JOB_COUNT, "{:#?}", submitted(cluster));
        // Others work meanwhile, and again when half of it is over.
        if users.is_empty() || (users.len() == 2 && said["pairs"][PAIR_COUNT / 2]["state"] == "together") {
            for job in &users {
                cluster.wait_for_job(*job, &["COMPLETED"], SOON)?;
            }
            assert_eq!(before.differences_of_jobs(cluster)?, [""; 0], "while a canary runs");
            users.extend(ordinary(cluster));
        }
        let is_left = String::from_utf8_lossy(&output.stderr).contains("the jobs go on");
        Ok(if is_left { Look::NotYet(said.to_string()) } else { Look::Ready(said) })
    })
    .unwrap();
    assert_eq!(users.len(), 4, "others worked meanwhile");
    for job in users {
        cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
        let seen = cluster.job(job).unwrap();
        let field = |name: &str| seen.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!(
            (field("Restarts"), field("Partition"), field("AdminComment")),
            ("0", "gpu", ""),
            "{seen:?}"
        );
    }
    done
}

/// What was foretold and what was measured of each, and who submitted it where.
fn check_told(cluster: &Cluster, done: &Value) {
    let states = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(states(&done["alone"]), vec!["measured"; SCRIPTS.len()], "{done:#}");
    assert_eq!(states(&done["pairs"]), vec!["together"; PAIR_COUNT], "{done:#}");
    let mut jobs = BTreeSet::new();
    for job in done["pairs"].as_array().unwrap().iter().flat_map(|pair| pair["jobs"].as_array().unwrap()) {
        let number = |name: &str| job[name].as_f64().unwrap_or_else(|| panic!("no {name} in {job}"));
        assert!(number("bound_speed_fraction") <= number("expected_speed_fraction"), "{job}");
        assert!(number("speed_fraction") > 0.0 && job["is_promise_kept"] == true, "{job}");
        jobs.insert(job["job_id"].as_str().unwrap().to_owned());
    }
    assert_eq!((jobs.len(), done["speed_count"].as_u64()), (2 * PAIR_COUNT, Some(2 * PAIR_COUNT as u64)));
    // alice is no operator: of all others she is told nothing.
    assert_eq!((&done["node"], &done["bound_now"]), (&"n1".into(), &Value::Null));
    // The last script is slower beside its own kind than it looks: what was measured says so, whatever was promised.
    let verdict = &done["verdict"];
    let ratio = |name: &str| verdict[name].as_f64().unwrap_or_else(|| panic!("no {name} in {done:#}"));
    assert!(ratio("slowdown_ratio_worst") >= ratio("slowdown_ratio_median"), "{verdict}");
    assert!(ratio("speed_error_fraction_worst") > 0.02, "{verdict}");
    let site = &verdict["site"];
    let pairs = ["admitted_pair_count", "refused_pair_count"].map(|name| site[name].as_u64().unwrap());
    assert_eq!(pairs[0] + pairs[1], PAIR_COUNT as u64, "{verdict}");
    for line in submitted(cluster) {
        assert!(line.ends_with(" alice shared"), "{line}");
    }
}

/// The report of the shadow, without what the canary taught and with it.
fn check_report(cluster: &Cluster) {
    let report = wait_for("shadow decisions on every ordinary job", SOON, || {
        let report = cluster.pillion_json(&["shadow", "report", "-S", "now-1hour"])?;
        let is_told = report["start_count"].as_u64() >= Some(4);
        Ok(if is_told { Look::Ready(report) } else { Look::NotYet(report.to_string()) })
    })
    .unwrap();
    let calibration = &report["calibration"];
    assert_eq!(calibration["speed_count"].as_u64(), Some(2 * PAIR_COUNT as u64), "{report:#}");
    assert!(report["is_deciding"] == true && report["saved_gpu_hours_low"].is_f64(), "{report:#}");
    assert!(
        calibration["saved_gpu_hours_low"].is_f64() && calibration["stretch_ratio"].is_f64(),
        "{report:#}"
    );
    let text =
        cluster.pillion_as("root", &["shadow", "report", "-S", "now-1hour"]).unwrap().stdout().unwrap();
    assert!(text.contains("In the pool ") && text.contains("GPU-hours (low)"), "{text}");
}

#[test]
fn a_canary_beside_an_observed_partition_moves_the_bound_and_touches_nobody() {
    let mut cluster = Cluster::start(spec()).unwrap();
    let before = Looks::take(&cluster).unwrap();
    cluster.start_pillion_and_observing().unwrap();
    for (name, work) in SCRIPTS {
        write(&cluster, &format!("{name}.sh"), "#SBATCH --gres=gpu:1 -c1 --mem=100 -t10", work);
    }
    check_refusals(&cluster);

    // The page's commands: the first prints what the second does, and submits nothing.
    let page = lines("pillion canary");
    let [dry, all] = &page[..] else { panic!("{page:?}") };
    let already = submitted(&cluster).len();
    let printed = cluster.pillion_as("alice", dry).unwrap().stdout().unwrap();
    assert_eq!(printed.matches("sbatch --partition=shared --colocate=").count(), JOB_COUNT, "{printed}");
    assert!(
        printed.contains("profile=solver,cap=1") && printed.contains("max-slowdown=10,profile=training"),
        "{printed}"
    );
    assert_eq!(submitted(&cluster).len(), already, "nothing was submitted");

    let done = run(&cluster, all, &before);
    check_told(&cluster, &done);
    // What is known is told without a new job.
    let count = submitted(&cluster).len();
    let again = canary(&cluster, &[&all[..], &["--json"]].concat());
    assert_eq!((again.status.code(), told(&again), submitted(&cluster).len()), (Some(0), done, count));
    let table = String::from_utf8(canary(&cluster, all).stdout).unwrap();
    assert!(
        table.contains("Beside another 12 jobs took ") && table.contains("Their speeds were foretold"),
        "{table}"
    );
    assert!(table.contains("Under this site's own promise (1.25x) "), "{table}");

    check_report(&cluster);
    before.wait_until_slurm_looks_so(&cluster).unwrap();
    assert_eq!(before.differences(&Looks::take(&cluster).unwrap()), [""; 0], "after a canary");
}
