//! Released, pinned, and then something comes between: the release is taken back and the job runs alone within a minute,
//! and its user can read why. Where nobody is left, `pillion rescue` does it within four.

use crate::leases::{
    Journal, SLOW_RELEASE, SOON, UNTIL_TOLD, before_release, epoch_of, let_end, told, wait_until_settled,
};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, now, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::Signal;
use std::time::Duration;

/// From the release to the start alone.
const UNDONE_SECONDS_MAX: u64 = 60;
/// The timer's period, and how long rescue may take.
const RESCUE_PERIOD: Duration = Duration::from_mins(1);
const RESCUE_DEADLINE: Duration = Duration::from_mins(4);

/// A pool of nodes that are named after what will happen to them, each with a feature of its own, and `spare`, which
/// has all features and no agent: nothing is planned for it, and Slurm can use it.
fn pool(names: &[&str]) -> Vec<PoolNode> {
    let node =
        |name: &str, features: &[&str]| PoolNode::new(name, "h200", Mechanism::Mps).with_features(features);
    let mut nodes: Vec<_> = names.iter().map(|name| node(name, &[name])).collect();
    let all: Vec<&str> = names.iter().copied().chain(["elsewhere"]).collect();
    nodes.push(node("spare", &all));
    nodes
}

/// Everything of ours but an agent on `spare`, and a scheduler that takes its time before each release.
fn start(spec: ClusterSpec, failpoints: &str) -> Cluster {
    let mut cluster = Cluster::start(spec).unwrap();
    for node in cluster.spec().node_names() {
        cluster.start_devices(&node).unwrap();
    }
    cluster.start_scheduler_with_failpoints(failpoints).unwrap();
    let pool: Vec<String> = cluster.spec().pool_nodes.iter().map(|node| node.name.clone()).collect();
    for node in pool.iter().filter(|node| *node != "spare") {
        cluster.start_agent(node).unwrap();
    }
    cluster
}

fn submit(cluster: &Cluster, script: &str, more: &[&str]) -> SlurmJobId {
    let mut arguments = vec!["--colocate", "--gres=gpu:1", "-c1", "--mem=100", "-t10"];
    arguments.extend(more);
    cluster.submit_as("alice", script, &arguments).unwrap()
}

/// Another job that takes every CPU of a node of the pool.
fn take_cpus(cluster: &Cluster, node: &str) -> SlurmJobId {
    let cpus = format!("-c{}", cluster.spec().cpus_per_node);
    let hog =
        cluster.submit_as("root", "sleep 900", &["-p", "shared", "-w", node, &cpus, "--mem=100"]).unwrap();
    cluster.wait_for_job(hog, &["RUNNING"], SOON).unwrap();
    hog
}

fn update(cluster: &Cluster, words: &[&str]) {
    let mut arguments = vec!["update"];
    arguments.extend(words);
    cluster.scontrol(&arguments).unwrap();
}

/// Waits until the release of a job was taken back: any whole device, any node, never released again.
fn wait_for_undo(cluster: &Cluster, job: SlurmJobId) {
    wait_until(&format!("undo of job {job}"), SOON, || Ok(Journal::of(cluster, job).undos() > 0)).unwrap();
    let fields = cluster.job(job).unwrap();
    let mark = &fields["AdminComment"];
    assert!(mark.ends_with(";alone=1") && !mark.contains(";lease="), "job {job}: {fields:?}");
    assert_eq!(fields["TresPerNode"], "gres/shard:100", "job {job}: {fields:?}");
    assert_eq!(fields["ReqNodeList"], "(null)", "job {job}: {fields:?}");
}

/// Checks how an undone job ran: once, released once, with what it printed. `restarts`: of a job that Slurm had begun to
/// start on a node that was dead already.
fn ran_alone(cluster: &Cluster, job: SlurmJobId, restarts: u32) {
    let printed = cluster.finished_output(job, SOON).unwrap();
    assert!(printed.starts_with(&format!("started restarts={restarts}\n")), "job {job}: {printed}");
    assert_eq!(printed.matches("started").count(), 1, "job {job}: {printed}");
    assert_eq!(cluster.job_field(job, "Restarts").unwrap(), restarts.to_string());
    let journal = Journal::of(cluster, job);
    assert_eq!((journal.releases(), journal.undos()), (1, 1), "job {job}: {journal:?}");
    assert_eq!(journal.starts(), 1 + usize::try_from(restarts).unwrap(), "job {job}: {journal:?}");
}

/// One job whose release became impossible.
struct Case {
    what: &'static str,
    job: SlurmJobId,
    /// Part of the sentence that its user is told.
    why: &'static str,
    restarts: u32,
}

impl Case {
    fn new(what: &'static str, job: SlurmJobId, why: &'static str) -> Self {
        Self { what, job, why, restarts: 0 }
    }

    /// Alone, on the spare node, soon enough, and explained.
    fn check(&self, cluster: &Cluster) {
        println!("{}: job {}", self.what, self.job);
        wait_for_undo(cluster, self.job);
        ran_alone(cluster, self.job, self.restarts);
        assert_eq!(cluster.job_field(self.job, "NodeList").unwrap(), "spare", "{}", self.what);
        let released_at = Journal::of(cluster, self.job).released_at().unwrap();
        let waited = epoch_of(cluster, self.job, "StartTime").unwrap() - released_at;
        println!("{}: ran alone {waited} s after its release", self.what);
        assert!(waited <= UNDONE_SECONDS_MAX, "{}: it waited {waited} s", self.what);
        self.check_explanation(cluster);
    }

    fn check_explanation(&self, cluster: &Cluster) {
        wait_until_settled(cluster, self.job);
        let reasons = told(cluster, self.job, &["undone", "restarted"]);
        println!("{}: {reasons:?}", self.what);
        let [reason] = reasons.as_slice() else { panic!("{}: {reasons:?}", self.what) };
        assert!(reason.contains(self.why), "{}: {reason}", self.what);
    }
}

const WORK: &str = "echo started restarts=${SLURM_RESTART_COUNT:-0}; echo decision=${PILLION_DECISION:-none}";

/// What holds a job back whatever the node: taken back as well, and it runs when that is over.
fn limits(cluster: &mut Cluster) -> (Case, Case, SlurmJobId) {
    let first =
        cluster.submit_as("alice", UNTIL_TOLD, &["-p", "gpu", "--qos=one", "-c1", "--mem=100"]).unwrap();
    cluster.wait_for_job(first, &["RUNNING"], SOON).unwrap();
    let job = submit(cluster, WORK, &["-C", "calm", "--qos=one"]);
    before_release(cluster, job, |_, _| ());
    let qos = Case::new("a QOS limit", job, "s: QOSMaxJobsPerUserLimit");

    let array = submit(cluster, UNTIL_TOLD, &["-C", "calm", "--array=1-2"]).id;
    let tasks = [SlurmJobId::array_task(array, 1), SlurmJobId::array_task(array, 2)];
    wait_until("release of the first task", SOON, || {
        Ok(tasks.iter().any(|task| Journal::of(cluster, *task).releases() == 1))
    })
    .unwrap();
    let is_second = |task: &SlurmJobId| Journal::of(cluster, *task).releases() == 0;
    let second = tasks.into_iter().find(is_second).unwrap();
    let running = if second == tasks[0] { tasks[1] } else { tasks[0] };
    before_release(cluster, second, |cluster, _| {
        cluster.wait_for_job(running, &["RUNNING"], SOON).unwrap();
        update(cluster, &[&format!("JobId={array}"), "ArrayTaskThrottle=1"]);
    });
    let throttle = Case::new("an array throttle", second, "s: JobArrayTaskLimit");
    (qos, throttle, first)
}

#[test]
fn a_release_that_cannot_start_is_undone_and_the_job_runs_alone() {
    let spec = ClusterSpec {
        pool_nodes: pool(&["busy", "drained", "reserved", "killed", "calm"]),
        accounting: true,
        // Of a dead node Slurm asks until its patience ends, and hears of the others only then: 10 s would end theirs too.
        slurm_conf_extra: vec!["SlurmdTimeout=20".to_owned()],
        ..ClusterSpec::default()
    };
    let mut cluster = start(spec, SLOW_RELEASE);
    for words in ["add qos one MaxJobsPerUser=1", "modify user alice set qos+=one"] {
        cluster.program("sacctmgr").arg("-i").args(words.split(' ')).stdout().unwrap();
    }
    let mut cases = Vec::new();

    let job = submit(&cluster, WORK, &["-C", "busy"]);
    before_release(&mut cluster, job, |cluster, node| {
        take_cpus(cluster, node);
    });
    cases.push(Case::new("CPUs taken", job, "s: Resources"));
    let (qos, throttle, first) = limits(&mut cluster);

    let job = submit(&cluster, WORK, &["-C", "reserved"]);
    before_release(&mut cluster, job, |cluster, node| {
        let nodes = format!("Nodes={node}");
        let words = ["create", "reservation", "StartTime=now", "Duration=10", "Users=root", &nodes];
        cluster.scontrol(&words).unwrap();
    });
    cases.push(Case::new("a reservation", job, "RESERVED"));

    let job = submit(&cluster, WORK, &["-C", "drained"]);
    before_release(&mut cluster, job, |cluster, node| {
        update(cluster, &[&format!("NodeName={node}"), "State=DRAIN", "Reason=test"]);
    });
    cases.push(Case::new("node drained", job, "DRAIN"));

    let job = submit(&cluster, WORK, &["-C", "calm"]);
    before_release(&mut cluster, job, |cluster, node| {
        update(cluster, &[&format!("JobId={job}"), &format!("ExcNodeList={node}")]);
    });
    cases.push(Case::new("node excluded", job, "Slurm holds it"));

    let job = submit(&cluster, WORK, &["-C", "calm"]);
    before_release(&mut cluster, job, |cluster, _| {
        update(cluster, &[&format!("JobId={job}"), "Features=elsewhere"]);
    });
    cases.push(Case::new("a feature that it lacks", job, "Slurm holds it"));

    let job = submit(&cluster, WORK, &["-C", "killed"]);
    before_release(&mut cluster, job, |cluster, node| {
        cluster.stop_slurmd(node, Signal::KILL).unwrap();
    });
    cases.push(Case { restarts: 1, ..Case::new("slurmd killed", job, "the pin of an earlier release") });

    for case in &cases {
        case.check(&cluster);
    }
    for case in [&qos, &throttle] {
        println!("{}: job {}", case.what, case.job);
        wait_for_undo(&cluster, case.job);
        assert_eq!(cluster.job_field(case.job, "JobState").unwrap(), "PENDING", "{}", case.what);
        case.check_explanation(&cluster);
    }
    std::fs::write(cluster.home("alice").join("end"), "").unwrap();
    let_end(&cluster, first);
    for case in [qos, throttle] {
        ran_alone(&cluster, case.job, case.restarts);
    }
}

#[test]
fn rescue_alone_brings_every_released_job_to_run() {
    let spec = ClusterSpec { pool_nodes: pool(&["n1", "n2"]), ..ClusterSpec::default() };
    let failpoints = format!("{SLOW_RELEASE};release-after-release=1*off->pause");
    let mut cluster = start(spec, &failpoints);

    // The first stands pinned where all CPUs are taken, the second where it may not run at all.
    let first = submit(&cluster, WORK, &["-C", "n1"]);
    let mut hog = None;
    before_release(&mut cluster, first, |cluster, node| hog = Some(take_cpus(cluster, node)));
    let second = submit(&cluster, WORK, &["-C", "n2"]);
    before_release(&mut cluster, second, |cluster, node| {
        update(cluster, &[&format!("JobId={second}"), &format!("ExcNodeList={node}")]);
    });
    cluster.kill_scheduler(Signal::KILL).unwrap();
    update(&cluster, &["NodeName=n1", "State=DRAIN", "Reason=test"]);
    cluster.scontrol(&["requeuehold", &hog.unwrap().to_string()]).unwrap();

    let (begun, mut runs) = (now(), 0);
    wait_for("start of both jobs by rescue alone", RESCUE_DEADLINE, || {
        if begun.elapsed() >= RESCUE_PERIOD * runs {
            runs += 1;
            println!("{}", cluster.program("pillion").arg("rescue").stdout()?);
        }
        let ended = |job| Ok(cluster.job_field(job, "JobState")? == "COMPLETED");
        let (one, other) = (ended(first)?, ended(second)?);
        Ok(if one && other { Look::Ready(()) } else { Look::NotYet(format!("first {one}, second {other}")) })
    })
    .unwrap();
    println!("rescued after {:.0} s and {runs} runs", begun.elapsed().as_secs_f64());
    assert!(runs > 1, "nothing stood in the way of these jobs");
    for job in [first, second] {
        wait_for_undo(&cluster, job);
        ran_alone(&cluster, job, 0);
        assert_eq!(cluster.job_field(job, "NodeList").unwrap(), "spare");
    }

    cluster.start_scheduler().unwrap();
    for job in [first, second] {
        wait_until_settled(&cluster, job);
        assert_eq!(Journal::of(&cluster, job).releases(), 1);
    }
}
