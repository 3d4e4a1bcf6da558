//! Parts of Pillion, and Slurm's controller, are away for a while: jobs start all the same, nobody is harmed, nothing is
//! lost, and what was missed is counted.

use crate::leases::epoch_of;
use crate::rides::{
    SOON, decisions, load, make_known, median, member_of, profile_count, script, starts, submit,
};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::Duration;

const PAIR: [&str; 2] = ["resnet50-infer", "bert-small-batch"];
const BOUND_SECONDS: u64 = 10;
/// From a start without our daemons to the same with a dead one: what a user may lose.
const ADDED_SECONDS_MAX: f64 = 0.2;

/// One pool node, so that jobs cannot go elsewhere.
fn start() -> Cluster {
    let spec = ClusterSpec {
        pool_nodes: vec![PoolNode::new("n1", "h200", Mechanism::Mps)],
        gpus_per_node: 8,
        bound_seconds: BOUND_SECONDS,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    cluster
}

fn completed(cluster: &Cluster, jobs: &[SlurmJobId]) {
    for job in jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], SOON).unwrap();
        assert_eq!(starts(cluster, "alice", *job).len(), 1, "job {job} is to run once");
    }
}

/// It had a whole GPU, and nothing of ours in its environment.
fn check_alone(cluster: &Cluster, job: SlurmJobId) {
    let found = &starts(cluster, "alice", job)[0];
    assert_eq!(found["shards"], "100", "{found:?}");
    for name in ["decision", "cap", "limit", "pipe", "ccs"] {
        assert_eq!(found[name], "", "{name} in job {job}: {found:?}");
    }
}

fn miss_count(cluster: &Cluster) -> u64 {
    let text = cluster.pillion_as("root", &["status", "--json"]).unwrap().stdout().unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["miss_count"].as_u64().unwrap()
}

/// Seconds from slurmctld's allocation to the first line of the job, of each job.
fn launch_seconds(cluster: &Cluster, jobs: &[SlurmJobId]) -> Vec<f64> {
    let log = std::fs::read_to_string(cluster.layout().log("slurmctld")).unwrap();
    let seconds = |job: &SlurmJobId| {
        let allocated = [format!(" Allocate JobId={job} "), format!(" Started JobId={job} ")];
        let line = log.lines().find(|line| allocated.iter().any(|words| line.contains(words))).unwrap();
        let begun: f64 = starts(cluster, "alice", *job)[0]["at"].parse().unwrap();
        // `[2026-11-21T05:02:45.004]`; both clocks are this machine's, so the time of day is enough.
        let clock = line.split(['T', ']']).nth(1).unwrap();
        let parts: Vec<f64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
        let of_day = parts[0] * 3600.0 + parts[1] * 60.0 + parts[2];
        (begun.rem_euclid(86_400.0) - of_day).rem_euclid(86_400.0)
    };
    jobs.iter().map(seconds).collect()
}

/// Jobs that Slurm starts now, one after the other; returns how long each launch took.
fn launches(cluster: &Cluster, profile: &str) -> (Vec<SlurmJobId>, Vec<f64>) {
    let jobs: Vec<SlurmJobId> = (0..16)
        .map(|number| {
            let job = submit(cluster, "alice", &format!("{profile}-{number}"), &script("sleep 0.1"), &[]);
            // As if the bound had run out; refused where it runs by then.
            let _ = cluster.scontrol(&["update", &format!("JobId={job}"), "StartTime=now"]);
            cluster.wait_for_job(job, &["COMPLETED"], SOON).unwrap();
            job
        })
        .collect();
    completed(cluster, &jobs);
    let seconds = launch_seconds(cluster, &jobs);
    (jobs, seconds)
}

#[test]
fn without_an_agent_jobs_start_alone_in_time_and_the_miss_is_counted() {
    let mut cluster = start();
    let (_, with_agent) = launches(&cluster, "with");
    let before = miss_count(&cluster);
    cluster.kill_agent("n1", Signal::KILL).unwrap();

    // Nobody touches this one: no agent can prepare it, so the switch starts it.
    let by_itself = submit(&cluster, "alice", "by-itself", &script("true"), &[]);
    let (mut jobs, without_agent) = launches(&cluster, "without");
    completed(&cluster, &[by_itself]);
    jobs.push(by_itself);
    for job in &jobs {
        check_alone(&cluster, *job);
    }
    let (with, without) = (median(with_agent), median(without_agent));
    println!(
        "from allocation to the job's first line: {with:.3} s with the agent, {without:.3} s without (medians)"
    );
    assert!(without - with <= ADDED_SECONDS_MAX, "{without:.3} s without the agent, {with:.3} s with it");

    cluster.start_agent("n1").unwrap();
    let expected = before + u64::try_from(jobs.len()).unwrap();
    wait_for("the misses that the dead agent could not report", SOON, || {
        let count = miss_count(&cluster);
        Ok(if count >= expected { Look::Ready(()) } else { Look::NotYet(format!("{count} of {expected}")) })
    })
    .unwrap();
}

/// The private Postgres of the scheduler.
pub(crate) struct Postgres {
    data: PathBuf,
}

impl Postgres {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self { data: cluster.layout().path("scheduler/postgres/data") }
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        let pid = text.lines().next()?.trim().parse().ok().and_then(Pid::from_raw)?;
        // Numbers of processes are used again, within minutes where many are started.
        let folder = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).ok()?;
        (folder == self.data).then_some(pid)
    }

    /// Ends the server; with its data out of the way, nobody can start it again.
    pub(crate) fn stop(&self, signal: Signal, is_kept_away: bool) {
        let pid = self.pid().expect("it runs");
        if is_kept_away {
            std::fs::rename(&self.data, self.data.with_extension("away")).unwrap();
        }
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn give_back(&self) {
        std::fs::rename(self.data.with_extension("away"), &self.data).unwrap();
    }
}

/// Two known jobs that begin together, so that they are planned together.
fn pair(cluster: &Cluster, seconds: u32) -> [SlurmJobId; 2] {
    let begin = cluster.begin_together(3).unwrap();
    let jobs = PAIR.map(|name| submit(cluster, "alice", name, &load(name, seconds), &[&begin]));
    for job in jobs {
        wait_until("start in a pair", SOON, || Ok(!starts(cluster, "alice", job).is_empty())).unwrap();
    }
    let decisions = decisions(cluster);
    let group = |job| member_of(&decisions, job, 0).map(|(decision, _)| decision["group_id"].clone());
    let is_pair = group(jobs[0]).is_some() && group(jobs[0]) == group(jobs[1]);
    assert!(is_pair, "{jobs:?} are no pair; the scheduler's last words:\n{}", last_words(cluster));
    jobs
}

/// The end of what the scheduler logged.
fn last_words(cluster: &Cluster) -> String {
    let log = std::fs::read_to_string(cluster.layout().log("pillion-scheduler.out")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// The scheduler leads, has looked at Slurm since, and hears every agent: from here on it decides.
fn wait_until_deciding(cluster: &Cluster) {
    wait_for("a scheduler that decides", SOON, || {
        let output = cluster.pillion_as("root", &["status", "--json"])?.output()?;
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return Ok(Look::NotYet("no answer".to_owned()));
        };
        let agents = status["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_heard = !agents.is_empty() && agents.iter().all(|agent| agent["connected"] == true);
        // Who begins to lead forgets older looks.
        let has_looked = status["last_scan_at_seconds"].as_f64().is_some_and(|at| at > 0.0);
        let is_deciding = status["leading"] == true && has_looked && is_heard;
        Ok(if is_deciding { Look::Ready(()) } else { Look::NotYet(status.to_string()) })
    })
    .unwrap();
}

/// Both ran on to their ends, and the scheduler saw them end.
fn check_ended(cluster: &Cluster, jobs: &[SlurmJobId]) {
    completed(cluster, jobs);
    wait_until("the ends in Pillion's books", SOON, || {
        let decisions = decisions(cluster);
        Ok(jobs.iter().all(|job| {
            member_of(&decisions, *job, 0).is_some_and(|(_, member)| {
                member["state"] == "ended" && member["energy_joules"].as_f64().is_some()
            })
        }))
    })
    .unwrap();
}

#[test]
fn nothing_is_lost_while_postgres_slurmctld_or_the_scheduler_is_away() {
    let mut cluster = start();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let postgres = Postgres::of(&cluster);

    // Away for longer than the bound, with a pair running; the switch starts what waits, and what it does is remembered.
    let running = pair(&cluster, 600);
    postgres.stop(Signal::KILL, true);
    let known_before = PAIR.len();
    // Long enough for a profile even where a busy machine lets the agent look every few seconds only.
    let meanwhile = submit(&cluster, "alice", "meanwhile", &load("launch-bound", 700), &[]);
    completed(&cluster, &[meanwhile]);
    assert_eq!(starts(&cluster, "alice", meanwhile)[0]["shards"], "100");
    postgres.give_back();
    check_ended(&cluster, &running);
    wait_until("the profile of what ran meanwhile", SOON, || {
        Ok(profile_count(&cluster).is_ok_and(|count| count > known_before))
    })
    .unwrap();

    // Stopped in good order it comes back by itself, and decisions go on.
    let old = postgres.pid();
    postgres.stop(Signal::INT, false);
    wait_until("another server", SOON, || Ok(postgres.pid().is_some() && postgres.pid() != old)).unwrap();
    wait_until_deciding(&cluster);

    // Slurm's controller is away with a pair running.
    let running = pair(&cluster, 900);
    cluster.stop_slurmctld(Signal::TERM).unwrap();
    cluster.start_slurmctld().unwrap();
    check_ended(&cluster, &running);
    for job in running {
        let found = &starts(&cluster, "alice", job)[0];
        assert!(!found["decision"].is_empty() && !found["pipe"].is_empty(), "{found:?}");
    }

    // The scheduler hangs for longer than the bound; afterwards it finds what ran, and decides again.
    let waiting = submit(&cluster, "alice", "hung", &script("true"), &["--begin=now+1"]);
    cluster.daemon("pillion-scheduler").unwrap().signal(Signal::STOP);
    completed(&cluster, &[waiting]);
    check_alone(&cluster, waiting);
    cluster.daemon("pillion-scheduler").unwrap().signal(Signal::CONT);
    wait_until_deciding(&cluster);
    check_ended(&cluster, &pair(&cluster, 240));
}

/// What operators read of a device that does not answer.
const UNREADABLE: &str = "it cannot be read: no answer from the driver";

/// Every driver hangs, which its agent outlives: nothing can be decided, and nobody waits for the drivers.
#[test]
fn while_every_driver_hangs_jobs_start_alone_in_time() {
    let nodes = ["n1", "n2"];
    let spec = ClusterSpec {
        pool_nodes: nodes.map(|name| PoolNode::new(name, "h200", Mechanism::Mps)).into(),
        bound_seconds: BOUND_SECONDS,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    for node in nodes {
        cluster.daemon(&format!("pillion-simulated-device-{node}")).unwrap().signal(Signal::STOP);
    }
    // Some come before anybody has noticed, others when every device has been closed for a while.
    let submit_some = |name: &str| -> Vec<SlurmJobId> {
        (0..4).map(|at| submit(&cluster, "alice", &format!("{name}-{at}"), &script("true"), &[])).collect()
    };
    let first = submit_some("at-once");
    completed(&cluster, &first);
    wait_for("closed devices", SOON, || {
        let text = cluster.pillion_as("root", &["nodes"])?.stdout()?;
        let is_each = text.matches(UNREADABLE).count() == 8;
        Ok(if is_each { Look::Ready(()) } else { Look::NotYet(text) })
    })
    .unwrap();
    let later = submit_some("later");
    completed(&cluster, &later);
    for job in first.iter().chain(&later) {
        let [submitted, eligible] =
            ["SubmitTime", "EligibleTime"].map(|field| epoch_of(&cluster, *job, field));
        let held = eligible.unwrap().saturating_sub(submitted.unwrap());
        assert!(held <= 2 * BOUND_SECONDS, "job {job} was held for {held} s");
    }
    for job in &later {
        check_alone(&cluster, *job);
    }
    for node in nodes {
        cluster.daemon(&format!("pillion-simulated-device-{node}")).unwrap().signal(Signal::CONT);
    }
    wait_until("open devices", SOON, || {
        let text = cluster.pillion_as("root", &["nodes"])?.stdout()?;
        Ok(!text.contains(UNREADABLE))
    })
    .unwrap();
    check_ended(&cluster, &pair(&cluster, 240));
}

/// The longest that the tests above may wait for a job that only the switch starts: it must lie within a test's patience.
const _: () = assert!(BOUND_SECONDS * 3 < Duration::from_secs(90).as_secs());
