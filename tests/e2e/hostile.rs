//! Users who mean no good, or whose tools do not: words that forge lines, an environment made up, a progress file that is
//! something else. Nothing of it hides a job, makes one, stops the agent, or keeps a neighbour from being served.

use crate::leases::explain;
use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::fs::{CWD, FileType, Mode, Uid, chown, mknodat};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);
const BOUND_SECONDS: u64 = 20;

/// What `pillion` answers an operator.
fn ask(cluster: &Cluster, arguments: &[&str]) -> Value {
    let text = cluster.pillion_as("root", arguments).unwrap().stdout().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Jobs that Pillion says wait, with their users.
fn queue(cluster: &Cluster) -> BTreeSet<(String, String)> {
    let jobs = ask(cluster, &["queue", "--json"])["jobs"].as_array().cloned().unwrap_or_default();
    let text = |job: &Value, name: &str| job[name].as_str().unwrap_or_default().to_owned();
    jobs.iter().map(|job| (text(job, "job_id"), text(job, "user"))).collect()
}

fn set_pool(cluster: &Cluster, state: &str) {
    let state = format!("State={state}");
    cluster.scontrol(&["update", "NodeName=n[1-2]", &state, "Reason=test"]).unwrap();
}

/// `sbatch` with words that are no text, perhaps. `None`: refused, with what was said.
fn submit_words(
    cluster: &Cluster,
    words: Vec<OsString>,
    forged: &[(&str, &str)],
) -> (Option<SlurmJobId>, String) {
    let script = "#!/bin/bash\nenv | sort; echo $SLURM_JOB_ID >> ran\n";
    let mut program =
        cluster.program_as("alice", "sbatch").unwrap().args(["--parsable", "--gres=gpu:1", "-c1"]);
    program = program.args(["--mem=100", "-t5"]).args(words).input(script);
    for (name, value) in forged {
        program = program.env(*name, *value);
    }
    let output = program.output().unwrap();
    let job = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    (job.filter(|_| output.status.success()), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Bob's job of every day, which shall not notice anything.
fn neighbour(cluster: &Cluster) -> SlurmJobId {
    let script = "echo decision=$PILLION_DECISION; pillion-load resnet50-infer --seconds 60";
    let job =
        cluster.submit_as("bob", script, &["--colocate", "--gres=gpu:1", "--mem=100", "-x", "n2"]).unwrap();
    assert_eq!(cluster.job_field(job, "Partition").unwrap(), "shared");
    job
}

fn assert_served(cluster: &Cluster, job: SlurmJobId) {
    cluster.finished_output(job, SOON).unwrap();
    let mark = cluster.job_field(job, "AdminComment").unwrap();
    assert!(mark.contains(";lease="), "job {job} ran, but was not released by Pillion: {mark}");
}

/// Texts that would forge lines, records or fields where they were printed among others.
fn texts() -> Vec<Vec<u8>> {
    let big = |unit: &str| unit.repeat(60_000 / unit.len()).into_bytes();
    vec![
        b"two\nlines".to_vec(),
        b"x\nJobId=77 JobName=y UserId=bob(60002) JobState=PENDING Partition=shared AdminComment=pillion1;w=00;lease=1".to_vec(),
        b"x AdminComment=pillion1;w=0123456789abcdef;part=;field=node;gres=gpu:1;other=;begin=0;lease=1;r=0 y=z".to_vec(),
        b"77;77;PENDING;BeginTime;60002;bob;research;shared\n77|PENDING|bob".to_vec(),
        b"\xff\xfe\x80 \x1b[2J\x07\x01\r\t".to_vec(),
        b";|,=%j%%'\"\\$(touch pwned)`touch pwned`".to_vec(),
        b"-".to_vec(),
        b"A".repeat(1000),
        big("A"),
        big("77;PENDING\n"),
    ]
}

/// Every text as a name and as a comment; gives the jobs that Slurm took.
fn submit_texts(cluster: &Cluster) -> BTreeSet<SlurmJobId> {
    let mut jobs = BTreeSet::new();
    for text in texts() {
        for option in ["--job-name=", "--comment="] {
            let word = [option.as_bytes(), &text].concat();
            let (job, said) = submit_words(cluster, vec!["--colocate".into(), OsString::from_vec(word)], &[]);
            let shown = String::from_utf8_lossy(&text[..text.len().min(30)]).into_owned();
            println!(
                "{option}{shown:?}.. ({} bytes): {}",
                text.len(),
                job.map_or(said.trim().to_owned(), |job| format!("job {job}"))
            );
            let Some(job) = job else { continue };
            assert_eq!(
                cluster.program("squeue").args(["-h", "-o", "%P", "-j", &job.to_string()]).stdout().unwrap(),
                "shared\n"
            );
            jobs.insert(job);
        }
    }
    assert!(jobs.len() >= 10, "Slurm refused most of them: {jobs:?}");
    jobs
}

/// Values of the option that are none: refused with one short sentence (Slurm then repeats the value by itself).
fn refuse_values(cluster: &Cluster) {
    let long = [b'a'].repeat(60_000);
    for value in [&b"yes\nno"[..], b"profile=\xff\xfe", b"memory=8G;", &long, b"profile=$(touch pwned)"] {
        let word = [b"--colocate=", value].concat();
        let (job, said) = submit_words(cluster, vec![OsString::from_vec(word)], &[]);
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("error: --colocate: ")).collect();
        let is_told = |line: &&str| line.contains("allowed") || line.contains("may hold only");
        assert!(job.is_none() && ours.len() == 1 && ours.iter().all(is_told), "{said}");
        assert!(ours[0].len() < 500, "{}", ours[0]);
    }
}

/// Words that forge; and what a tool of the site leaves in the admin comment of a job that waits.
fn words(cluster: &Cluster) {
    set_pool(cluster, "DRAIN");
    let jobs = submit_texts(cluster);
    refuse_values(cluster);
    let bob = neighbour(cluster);
    let expected: BTreeSet<(String, String)> = jobs
        .iter()
        .map(|job| (job.to_string(), "alice".to_owned()))
        .chain([(bob.to_string(), "bob".to_owned())])
        .collect();
    wait_for("queue of Pillion that is Slurm's", SOON, || {
        let seen = queue(cluster);
        let what = format!("{seen:?}, not {expected:?}");
        Ok(if seen == expected { Look::Ready(()) } else { Look::NotYet(what) })
    })
    .unwrap();
    assert_eq!(
        ask(cluster, &["status", "--json"])["dropped_line_count"],
        0,
        "what users write is not read at all"
    );

    // A tool of the site writes over a mark: that job is nobody's any more, and the others are seen as before.
    let spoilt = *jobs.first().unwrap();
    let comment = "AdminComment=jobstats:\n77;77;PENDING;pillion1;w=0;lease=1\n;;";
    cluster.scontrol(&["update", &format!("JobId={spoilt}"), comment]).unwrap();
    wait_until("queue without the job whose mark is gone", SOON, || {
        let seen = queue(cluster);
        Ok(seen.len() == expected.len() - 1 && seen.is_subset(&expected))
    })
    .unwrap();
    set_pool(cluster, "RESUME");
    for job in &jobs {
        // Read without its words, which would end up among the fields.
        wait_until(&format!("end of job {job}"), SOON, || {
            let state = cluster
                .program("squeue")
                .args(["-h", "-t", "all", "-o", "%T", "-j", &job.to_string()])
                .stdout()?;
            Ok(state.trim() == "COMPLETED")
        })
        .unwrap();
    }
    assert_served(cluster, bob);
    let ran = std::fs::read_to_string(cluster.home("alice").join("ran")).unwrap();
    let mut ran: Vec<SlurmJobId> = ran.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort();
    assert_eq!(ran, jobs.into_iter().collect::<Vec<_>>(), "each once");
    assert!(!cluster.home("alice").join("pwned").exists());
}

/// The variables that a job printed by `env`.
fn variable(output: &str, name: &str) -> Option<String> {
    output.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

/// What a user exports before he submits: Pillion's own words have the last say where it has decided, and nothing that
/// was forged is believed.
fn environment(cluster: &Cluster) {
    let forged = [
        ("PILLION_DECISION", "99999"),
        ("PILLION_PROGRESS", "/etc/passwd"),
        ("SLURM_JOB_GPUS", "0,1,2,3"),
        ("SLURM_SHARDS_ON_NODE", "1"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
        ("_SLURM_SPANK_OPTION_pillion_colocate", "memory=1K,max-slowdown=10"),
        ("SLURM_JOB_ID", "1"),
    ];
    let (job, said) = submit_words(cluster, vec!["--colocate".into()], &forged);
    let job = job.unwrap_or_else(|| panic!("{said}"));
    let output = cluster.finished_output(job, SOON).unwrap();
    let mark = cluster.job_field(job, "AdminComment").unwrap();
    assert!(mark.contains(";lease=") && !mark.contains(";m=") && !mark.contains(";s="), "{mark}");
    let explained = explain(cluster, job).unwrap().unwrap();
    let decision = explained["decisions"][0].clone();
    assert_eq!(variable(&output, "PILLION_DECISION"), Some(decision["decision_id"].to_string()), "{output}");
    let progress = variable(&output, "PILLION_PROGRESS").unwrap();
    assert!(progress.starts_with(&cluster.root().display().to_string()), "{progress}");
    let gpu = decision["gres_type"].as_str().unwrap().trim_start_matches('g').to_owned();
    for name in ["SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"] {
        assert_eq!(variable(&output, name).as_deref(), Some(gpu.as_str()), "{name}");
    }
    assert_eq!(variable(&output, "SLURM_SHARDS_ON_NODE").as_deref(), Some("100"));

    // Without the option itself, its forged traces are no option.
    let (job, said) = submit_words(cluster, vec![], &forged);
    let job = job.unwrap_or_else(|| panic!("{said}"));
    let output = cluster.finished_output(job, SOON).unwrap();
    assert_eq!(variable(&output, "SLURM_JOB_PARTITION").as_deref(), Some("gpu"));
    assert_eq!(cluster.job_field(job, "AdminComment").unwrap(), "");

    // The option is for one job: what that job submits, perhaps inside, is what it says itself.
    let nested =
        "sbatch --parsable --gres=gpu:1 -c1 --mem=100 -t5 --wrap true; env | grep SPANK_OPTION; true";
    let job =
        cluster.submit_as("alice", nested, &["--colocate=memory=8G", "--gres=gpu:1", "--mem=100"]).unwrap();
    let output = cluster.finished_output(job, SOON).unwrap();
    let inner: SlurmJobId = output.lines().next().unwrap().parse().unwrap();
    let inner = cluster.wait_for_job(inner, &["COMPLETED"], SOON).unwrap();
    assert_eq!((inner["Partition"].as_str(), inner.get("AdminComment")), ("gpu", None), "{output}");

    restarts_and_steps(cluster);
    assert_served(cluster, neighbour(cluster));
}

/// Steps that claim to be another start, on all devices, or to have all shards.
const FORGED_STEPS: &str = r#"show() { echo "$1 decision=$PILLION_DECISION pipe=$CUDA_MPS_PIPE_DIRECTORY progress=$PILLION_PROGRESS"; }
export -f show
show script
srun --gres=none --export=ALL,SLURM_JOB_GPUS=0-3,SLURM_RESTART_COUNT=7,SLURM_SHARDS_ON_NODE=100 bash -c "show step"
while [ ! -e seen ]; do sleep 0.2; done"#;

/// The devices of each start of a job, as the nodes' agents have written them down.
fn devices_of(cluster: &Cluster, job: SlurmJobId) -> Vec<Value> {
    let starts_on = |node: &str| -> Vec<Value> {
        let text = std::fs::read(cluster.root().join(format!("agent/{node}/runs.json"))).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        state["starts"].as_array().cloned().unwrap_or_default()
    };
    let starts = ["n1", "n2"].into_iter().flat_map(starts_on);
    let its = starts.filter(|start| start["inner_job_id"] == job.id);
    its.map(|start| start["gres_types"].clone()).collect()
}

/// A start that its user made look like a later one is the one that it is; steps have what their script has, and book no
/// device beside it.
fn restarts_and_steps(cluster: &Cluster) {
    let missed = || ask(cluster, &["status", "--json"])["miss_count"].as_u64().unwrap();
    let before = missed();
    let (job, said) = submit_words(cluster, vec!["--colocate".into()], &[("SLURM_RESTART_COUNT", "7")]);
    let job = job.unwrap_or_else(|| panic!("{said}"));
    let output = cluster.finished_output(job, SOON).unwrap();
    let decision = explain(cluster, job).unwrap().unwrap()["decisions"][0]["decision_id"].to_string();
    assert_eq!(variable(&output, "PILLION_DECISION"), Some(decision), "{output}");
    assert_eq!(variable(&output, "SLURM_RESTART_COUNT"), None, "{output}");

    let arguments = ["--colocate", "--gres=gpu:1", "--mem=100", "-t5"];
    let job = cluster.submit_as("alice", FORGED_STEPS, &arguments).unwrap();
    let output = cluster.wait_for_output(job, "step decision", SOON).unwrap();
    let line = |who: &str| output.lines().find_map(|line| line.strip_prefix(who)).map(str::to_owned);
    let script = line("script ").unwrap_or_else(|| panic!("{output}"));
    assert!(script.starts_with("decision=") && !script.starts_with("decision= "), "{output}");
    assert_eq!(line("step "), Some(script), "{output}");
    let devices = devices_of(cluster, job);
    assert_eq!(devices.len(), 1, "one start of the job: {devices:?}");
    assert_eq!(devices[0].as_array().map(Vec::len), Some(1), "on one device: {devices:?}");
    std::fs::write(cluster.home("alice").join("seen"), "").unwrap();
    cluster.finished_output(job, SOON).unwrap();
    assert_eq!(missed(), before, "no start is blamed on its node");
}

/// Everything that a job can do to its progress file, by itself.
const MISCHIEF: &str = r#"p=$PILLION_PROGRESS; echo path=$p; d=$(dirname "$p"); echo 5 > x
rm -f "$p" 2>&1 && echo removed
ln -sfn /etc/shadow "$p" 2>&1 && echo linked
mv -f x "$p" 2>&1 && echo moved
mkfifo "$d/pipe" 2>&1 && echo made
touch "$d/other" 2>&1 && echo made
ls "$d" 2>&1 && echo listed
truncate -s 1T "$p" && stat -c 'now a %F of %U, %s bytes' "$p"
while [ ! -e go ]; do sleep 0.2; done"#;

/// A progress file that is a terabyte by its user's doing, and one that is a link or a pipe by whatever doing: the agent
/// reads on, and measures the neighbour on the same node.
fn progress_files(cluster: &mut Cluster) {
    let arguments = ["--colocate", "--gres=gpu:1", "--mem=100", "-t10", "-x", "n2"];
    let jobs = [(); 3].map(|()| cluster.submit_as("alice", MISCHIEF, &arguments).unwrap());
    let mut paths = Vec::new();
    for job in jobs {
        let output = cluster.wait_for_output(job, "now a", SOON).unwrap();
        for word in ["removed", "linked", "moved", "made", "listed"] {
            assert!(!output.lines().any(|line| line == word), "{output}");
        }
        assert!(output.contains("now a regular file of alice, 1099511627776 bytes"), "{output}");
        let path = output.lines().find_map(|line| line.strip_prefix("path=")).unwrap();
        paths.push(PathBuf::from(path));
    }
    let node = cluster.job_field(jobs[0], "NodeList").unwrap();
    let alice = pillion_tests::testbed::identity_of("alice").unwrap();
    std::fs::remove_file(&paths[0]).unwrap();
    std::os::unix::fs::symlink("/etc/shadow", &paths[0]).unwrap();
    std::fs::remove_file(&paths[1]).unwrap();
    mknodat(CWD, &paths[1], FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    chown(&paths[1], Some(Uid::from_raw(alice.uid)), None).unwrap();
    let profiles = || -> String {
        cluster
            .pillion_as("root", &["profile", "--user", "bob", "--noheader", "-P"])
            .unwrap()
            .stdout()
            .unwrap()
    };
    let before = profiles();
    let script = "pillion-load bert-small-batch --seconds 420";
    let bob = cluster
        .submit_as("bob", script, &["--colocate=profile=measured", "--gres=gpu:1", "--mem=100", "-x", "n2"])
        .unwrap();
    assert_served(cluster, bob);
    assert_eq!(cluster.job_field(bob, "NodeList").unwrap(), node);
    wait_until("profile of the neighbour", SOON, || Ok(profiles().lines().count() > before.lines().count()))
        .unwrap();
    std::fs::write(cluster.home("alice").join("go"), "").unwrap();
    for job in jobs {
        cluster.finished_output(job, SOON).unwrap();
    }
    wait_until("progress files that are gone with their jobs", SOON, || {
        Ok(paths.iter().all(|path| path.symlink_metadata().is_err()))
    })
    .unwrap();
    for node in ["n1", "n2"] {
        cluster.daemon(&format!("pillion-agent-{node}")).unwrap().check_running().unwrap();
    }
}

#[test]
fn words_environments_and_files_of_a_user_harm_nobody() {
    let spec = ClusterSpec { bound_seconds: BOUND_SECONDS, ..ClusterSpec::default() };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    words(&cluster);
    environment(&cluster);
    progress_files(&mut cluster);
    let status = ask(&cluster, &["status", "--json"]);
    assert_eq!(status["violation_count"], 0, "{status}");
}
