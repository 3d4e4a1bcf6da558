//! What a job is stays what it is under management: cancelled, an array, one that waits for another or for a time, one
//! that fails, one that starts steps, one that is no batch job, one that goes well with nobody.

use crate::leases::{Journal, SOON, epoch_of, explain, wait_for_fail_point, wait_until_settled};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;

const GPU: [&str; 4] = ["--gres=gpu:1", "-c1", "--mem=100", "-t5"];

fn submit(cluster: &Cluster, script: &str, options: &[&str]) -> SlurmJobId {
    let colocate =
        if options.iter().any(|option| option.starts_with("--colocate")) { "-t5" } else { "--colocate" };
    let arguments = [&GPU[..], &[colocate], options].concat();
    let job = cluster.submit_as("alice", script, &arguments).unwrap();
    let mark = cluster.job_field(job, "AdminComment").unwrap();
    assert!(mark.starts_with("pillion1;"), "job {job} with {options:?} is not managed: '{mark}'");
    job
}

/// Nothing starts in the pool, whatever is submitted meanwhile; then all of it is looked at together.
fn all_at_once<T>(cluster: &Cluster, submit_all: impl FnOnce() -> T) -> T {
    cluster.scontrol(&["update", "NodeName=n1", "State=DRAIN", "Reason=test"]).unwrap();
    let jobs = submit_all();
    cluster.scontrol(&["update", "NodeName=n1", "State=RESUME"]).unwrap();
    jobs
}

fn is_queued(cluster: &Cluster, job: SlurmJobId) -> bool {
    let text = cluster.pillion_as("root", &["queue", "--noheader", "-P"]).unwrap().stdout().unwrap();
    text.lines().any(|line| line.split('|').next() == Some(job.to_string().as_str()))
}

/// Everything that was explained of a job, as text.
fn explained(cluster: &Cluster, job: SlurmJobId) -> String {
    explain(cluster, job).unwrap().unwrap_or_default().to_string()
}

/// The words of a line that a job printed: `name=value name=value`.
fn word(output: &str, name: &str) -> String {
    let words = output.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next().unwrap_or_default()
}

/// Cancelled before anything was decided: it never runs, and nothing waits for it.
fn cancelled_before_the_plan(cluster: &Cluster) {
    all_at_once(cluster, || {
        let job = submit(cluster, "touch ran-cancelled", &[]);
        wait_until("job in the queue", SOON, || Ok(is_queued(cluster, job))).unwrap();
        cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
        cluster.wait_for_job(job, &["CANCELLED"], SOON).unwrap();
        wait_until("queue without it", SOON, || Ok(!is_queued(cluster, job))).unwrap();
        assert_eq!(Journal::of(cluster, job).starts(), 0);
    });
}

/// Cancelled when it was planned and is about to be released: it never runs, nothing of it stays, others are served.
fn cancelled_within_a_release(cluster: &mut Cluster) {
    cluster.kill_scheduler(Signal::TERM).unwrap();
    cluster.start_scheduler_with_failpoints("release-before-release=pause").unwrap();
    let job = submit(cluster, "touch ran-cancelled", &[]);
    wait_for_fail_point(cluster, job, "release-before-release");
    cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
    cluster.kill_scheduler(Signal::KILL).unwrap();
    cluster.start_scheduler().unwrap();
    wait_until_settled(cluster, job);
    let fields = cluster.job(job).unwrap();
    assert_eq!(fields["JobState"], "CANCELLED");
    assert!(!fields["AdminComment"].contains(";lease="), "{}", fields["AdminComment"]);
    assert_eq!(Journal::of(cluster, job).starts(), 0);
    let next = submit(cluster, "echo decision=$PILLION_DECISION", &[]);
    assert!(!word(&cluster.finished_output(next, SOON).unwrap(), "decision").is_empty());
    assert!(!cluster.home("alice").join("ran-cancelled").exists());
}

/// Jobs whose start depends on something: none of them sooner, all of them once.
struct Waiting {
    array: SlurmJobId,
    after: SlurmJobId,
    never: SlurmJobId,
    later: SlurmJobId,
    later_at: u64,
}

fn submit_waiting(cluster: &Cluster) -> Waiting {
    let task = "echo start $SLURM_ARRAY_TASK_ID >> tasks; sleep 1; echo end $SLURM_ARRAY_TASK_ID >> tasks";
    let array = submit(cluster, task, &["--array=1-6%2"]);
    let dependency = format!("--dependency=afterok:{array}");
    let after = submit(cluster, "wc -l < tasks", &[&dependency]);
    let failing = submit(cluster, "exit 7", &[]);
    let never = submit(
        cluster,
        "touch ran-never",
        &[&format!("--dependency=afterok:{failing}"), "--kill-on-invalid-dep=yes"],
    );
    let later = submit(cluster, "true", &["--begin=now+15"]);
    let later_at = epoch_of(cluster, later, "StartTime").unwrap();
    Waiting { array, after, never, later, later_at }
}

fn check_waiting(cluster: &Cluster, jobs: &Waiting) {
    let output = cluster.finished_output(jobs.after, SOON).unwrap();
    assert_eq!(output.trim(), "12", "the job behind the array started before its end");
    let text = std::fs::read_to_string(cluster.home("alice").join("tasks")).unwrap();
    let (mut running, mut most) = (0_usize, 0);
    for line in text.lines() {
        running = if line.starts_with("start") { running + 1 } else { running - 1 };
        most = most.max(running);
    }
    assert!(most <= 2, "{most} tasks at once: {text}");
    let once: BTreeSet<&str> = text.lines().collect();
    assert_eq!((once.len(), text.lines().count()), (12, 12), "{text}");
    for task in 1..=6 {
        let id: SlurmJobId = format!("{}_{task}", jobs.array).parse().unwrap();
        let fields = cluster.wait_for_job(id, &["COMPLETED"], SOON).unwrap();
        assert!(fields["AdminComment"].contains(";lease="), "{id}: {}", fields["AdminComment"]);
    }
    cluster.wait_for_job(jobs.never, &["CANCELLED"], SOON).unwrap();
    assert!(!cluster.home("alice").join("ran-never").exists());
    cluster.wait_for_job(jobs.later, &["COMPLETED"], SOON).unwrap();
    let started = epoch_of(cluster, jobs.later, "StartTime").unwrap();
    let submitted = epoch_of(cluster, jobs.later, "SubmitTime").unwrap();
    assert!(started >= submitted + 14, "it began at {started}, submitted at {submitted}");
    assert!(jobs.later_at >= submitted + 14);
    assert!(cluster.job_field(jobs.later, "AdminComment").unwrap().contains(";lease="));
}

/// A job ends as it would without us.
fn ends_as_it_would(cluster: &Cluster) {
    for script in ["exit 7", "kill -9 $$", "srun -n1 bash -c 'exit 5'", "sleep 300 & exit 0"] {
        let plain = cluster.submit_as("alice", script, &GPU).unwrap();
        let job = submit(cluster, script, &[]);
        let [plain, job] = [plain, job].map(|job| {
            let fields = cluster.wait_for_job(job, &["COMPLETED", "FAILED"], SOON).unwrap();
            (fields["JobState"].clone(), fields["ExitCode"].clone(), fields["Restarts"].clone())
        });
        assert_eq!(plain, job, "{script}");
    }
    let script = "[ -n \"$SLURM_RESTART_COUNT\" ] && exit 3; scontrol requeue $SLURM_JOB_ID; sleep 60";
    let job = submit(cluster, script, &["--requeue"]);
    let fields = cluster.wait_for_job(job, &["COMPLETED", "FAILED", "CANCELLED"], SOON).unwrap();
    let ended = (fields["JobState"].as_str(), fields["ExitCode"].as_str(), fields["Restarts"].as_str());
    assert_eq!(ended, ("FAILED", "3:0", "1"));
}

/// `srun` and `salloc` from a prompt run on the ordinary partition with a GPU of their own, and say why, where they say nothing of memory.
fn interactive(cluster: &Cluster) {
    let inside = "echo partition=$SLURM_JOB_PARTITION gpus=$SLURM_JOB_GPUS shards=$SLURM_SHARDS_ON_NODE";
    for client in ["srun", "salloc"] {
        let program = cluster.program_as("alice", client).unwrap().args(["--colocate"]).args(GPU);
        let output = program.args(["bash", "-c", inside]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{client}: {said}");
        assert!(
            said.contains(
                "pillion: this job is left as you wrote it and shares no GPU: for others to join it"
            ),
            "{client}: {said}"
        );
        assert_eq!(
            (word(&printed, "partition").as_str(), word(&printed, "shards").as_str()),
            ("gpu", ""),
            "{client}: {printed}"
        );
        let refused =
            cluster.program_as("alice", client).unwrap().args(["--colocate=often", "--gres=gpu:1", "true"]);
        assert!(!refused.output().unwrap().status.success(), "{client} takes anything");
    }
}

/// There are no GPUs for a step in a job that has shards. So the job is left as it was written, and its steps have what they ask for.
fn steps_that_ask_for_gpus(cluster: &Cluster) {
    for count in [1, 2] {
        let inside = "echo partition=$SLURM_JOB_PARTITION gpus=$CUDA_VISIBLE_DEVICES";
        let script = format!("srun -n1 --gpus={count} bash -c '{inside}'");
        let gres = format!("--gres=gpu:{count}");
        let arguments = [&["--colocate", gres.as_str()], &GPU[1..]].concat();
        let submission = cluster.try_submit_as("alice", &script, &arguments).unwrap();
        assert!(
            submission.said.contains(
                "pillion: this job is left as you wrote it and shares no GPU: a step in its script asks for GPUs; \
                 write plain srun"
            ),
            "{count}: {}",
            submission.said
        );
        let job = submission.job.unwrap();
        let printed = cluster.finished_output(job, SOON).unwrap();
        let gpus = word(&printed, "gpus");
        let gpu_count = gpus.split(',').filter(|index| index.parse::<u32>().is_ok()).count();
        assert_eq!((word(&printed, "partition").as_str(), gpu_count), ("gpu", count), "{printed}");
        assert_eq!(cluster.job_field(job, "AdminComment").unwrap(), "", "{count}");
    }
}

/// What the batch script and a step in it find in their environment.
const ENVIRONMENTS: &str = "show='env | grep -E \"^(CUDA_|ZE|PILLION_|SLURM_JOB_GPUS=)\" | sort'
    bash -c \"$show\" > batch.$SLURM_JOB_ID; srun -n1 bash -c \"$show\" > step.$SLURM_JOB_ID || exit 1";

/// Workloads that are measured in a first run: two that go well together, and two whose memory does not fit beside anybody.
const WORKLOADS: [(&str, &str); 4] = [
    ("fit-a", "pillion-load resnet50-infer"),
    ("fit-b", "pillion-load bert-small-batch"),
    ("big-a", "pillion-load resnet50-infer --memory 90G"),
    ("big-b", "pillion-load bert-small-batch --memory 80G"),
];

/// Runs a workload for so many seconds of the simulated machine.
fn run_workload(cluster: &Cluster, index: usize, seconds: u32, options: &[&str]) -> SlurmJobId {
    let (name, work) = WORKLOADS[index];
    let profile = format!("--colocate=profile={name}");
    let script = format!(
        "echo gpu=$SLURM_JOB_GPUS shards=$SLURM_SHARDS_ON_NODE\n{ENVIRONMENTS}\n{work} --seconds {seconds}"
    );
    let arguments = [&GPU[1..], &[profile.as_str()], options].concat();
    cluster.submit_as("alice", &script, &arguments).unwrap()
}

/// An unknown workload runs alone on a whole device, with the reason; so does one that declares its memory only.
fn first_runs(cluster: &Cluster) {
    let jobs: Vec<SlurmJobId> =
        (0..4).map(|index| run_workload(cluster, index, 420, &["--gres=gpu:1"])).collect();
    for job in jobs {
        let output = cluster.finished_output(job, SOON).unwrap();
        assert_eq!(word(&output, "shards"), "100", "{output}");
        let why = explained(cluster, job);
        assert!(why.contains("the workload has not been measured on this device model yet"), "{why}");
    }
    wait_for("four profiles", SOON, || {
        let text = cluster.pillion_as("root", &["profile", "--noheader", "-P"])?.stdout()?;
        Ok(if text.lines().count() >= 4 { Look::Ready(()) } else { Look::NotYet(text) })
    })
    .unwrap();
}

/// The group of the last decision of a job: the same for those who share.
fn group(cluster: &Cluster, job: SlurmJobId) -> Option<u64> {
    let all = explain(cluster, job).unwrap()?;
    all["decisions"].as_array()?.iter().filter_map(|decision: &Value| decision["group_id"].as_u64()).max()
}

/// Two that fit share, and their steps see what the scripts see; two that do not fit are left alone, with that reason.
fn second_runs(cluster: &Cluster) {
    let [a, b] = all_at_once(cluster, || {
        [run_workload(cluster, 0, 600, &["--gpus=1"]), run_workload(cluster, 1, 600, &["--gres=gpu:1"])]
    });
    for job in [a, b] {
        cluster.finished_output(job, SOON).unwrap();
        let read = |name: &str| {
            std::fs::read_to_string(cluster.home("alice").join(format!("{name}.{job}"))).unwrap()
        };
        let (batch, step) = (read("batch"), read("step"));
        assert_eq!(batch, step, "job {job}: a step sees something else");
        assert!(batch.contains("CUDA_MPS_PIPE_DIRECTORY=") && batch.contains("PILLION_DECISION="), "{batch}");
    }
    assert_eq!(group(cluster, a), group(cluster, b), "they were not paired");

    let [a, b] =
        all_at_once(cluster, || [2, 3].map(|index| run_workload(cluster, index, 300, &["--gres=gpu:1"])));
    let [output_a, output_b] = [a, b].map(|job| cluster.finished_output(job, SOON).unwrap());
    assert_ne!(word(&output_a, "gpu"), word(&output_b, "gpu"));
    assert_ne!(group(cluster, a), group(cluster, b));
    for job in [a, b] {
        let why = explained(cluster, job);
        assert!(why.contains("the device memory does not suffice for both"), "{why}");
    }
}

#[test]
fn what_a_job_is_stays_what_it_is() {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    let waiting = submit_waiting(&cluster);
    interactive(&cluster);
    steps_that_ask_for_gpus(&cluster);
    ends_as_it_would(&cluster);
    check_waiting(&cluster, &waiting);
    cancelled_before_the_plan(&cluster);
    first_runs(&cluster);
    second_runs(&cluster);
    cancelled_within_a_release(&mut cluster);
}
