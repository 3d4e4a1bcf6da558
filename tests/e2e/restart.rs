//! A job that starts again, or that Slurm starts by itself while it is being released: it is never beside a tenant that
//! was not planned with it, never in the environment of an earlier start, never with half a release.

use crate::rides::{SOON, Watched, decisions, load, make_known, member_of, script, starts, submit};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::show::parse_fields;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::wait::{Look, now, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) const PAIR: [&str; 2] = ["resnet50-infer", "bert-small-batch"];

pub(crate) fn mps_nodes() -> Vec<PoolNode> {
    ["n1", "n2"].map(|name| PoolNode::new(name, "h200", Mechanism::Mps)).into()
}

/// Long in its first start, short in the next.
fn long_then_short(name: &str) -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then seconds=6000; else seconds=120; fi\n\
         exec pillion-load {name} --seconds $seconds"
    ))
}

/// Two jobs that share a GPU, where asked for away from one node. They begin together, so that they are planned together.
pub(crate) fn pair(cluster: &Cluster, scripts: &[String; 2], not_on: &[&str]) -> [SlurmJobId; 2] {
    let excluded = not_on.iter().flat_map(|node| ["-x", node]);
    let begin = cluster.begin_together(3).unwrap();
    let more: Vec<&str> = excluded.chain([begin.as_str()]).collect();
    let submit = |index: usize| submit(cluster, "alice", PAIR[index], &scripts[index], &more);
    let jobs = [submit(0), submit(1)];
    wait_for("two tenants of one GPU", SOON, || {
        let mut watched = Watched::default();
        watched.look(cluster)?;
        let found = watched.together.contains(&((jobs[0], 0), (jobs[1], 0)));
        let has_begun = jobs.iter().all(|job| starts(cluster, "alice", *job).len() == 1);
        Ok(if found && has_begun { Look::Ready(()) } else { Look::NotYet(format!("{watched:?}")) })
    })
    .unwrap();
    jobs
}

/// Looks at who runs where until the jobs are done.
fn watch_until_completed(cluster: &Cluster, watched: &mut Watched, jobs: &[SlurmJobId]) {
    wait_for("end of the jobs", 2 * SOON, || {
        watched.look(cluster)?;
        let mut waiting = Vec::new();
        for job in jobs {
            let state = cluster.job_field(*job, "JobState")?;
            assert!(!matches!(state.as_str(), "FAILED" | "CANCELLED" | "TIMEOUT"), "job {job} is {state}");
            if state != "COMPLETED" {
                waiting.push(format!("{job}: {state} {}", cluster.job_field(*job, "Reason")?));
            }
        }
        Ok(if waiting.is_empty() { Look::Ready(()) } else { Look::NotYet(waiting.join(", ")) })
    })
    .unwrap();
}

/// It started twice: shared the first time, and then alone without any limit, or under another decision.
fn check_restarted(cluster: &Cluster, job: SlurmJobId) {
    let all = starts(cluster, "alice", job);
    assert_eq!(all.len(), 2, "starts of job {job}: {all:?}");
    let (first, second) = (&all[0], &all[1]);
    assert!(!first["decision"].is_empty() && first["shards"] != "100", "{first:?}");
    assert_eq!(second["restarts"], "1", "{second:?}");
    assert_ne!(first["decision"], second["decision"], "the environment of an earlier start");
    if second["decision"].is_empty() {
        assert_eq!(second["shards"], "100", "without a decision it is alone: {second:?}");
        for name in ["cap", "limit", "pipe", "ccs"] {
            assert_eq!(second[name], "", "{name} of an earlier start: {second:?}");
        }
    }
}

/// It ran once, to its end, and not as one that was harmed.
fn check_unharmed(cluster: &Cluster, job: SlurmJobId) {
    let fields = cluster.job(job).unwrap();
    assert_eq!((fields["JobState"].as_str(), fields["Restarts"].as_str()), ("COMPLETED", "0"), "job {job}");
    assert_eq!(starts(cluster, "alice", job).len(), 1);
    let text = cluster.job_output(job).unwrap().text;
    let value: Value = serde_json::from_str(text.trim()).unwrap();
    assert!(value["speed_fraction_mean"].as_f64().unwrap() > 0.6, "{text}");
}

/// A job of a higher tier takes the whole GPU on which `tenant` runs.
fn preempt(cluster: &Cluster, tenant: SlurmJobId) -> SlurmJobId {
    let gres = format!("--gres=shard:g{}:100", starts(cluster, "alice", tenant)[0]["gpu"]);
    let node = starts(cluster, "alice", tenant)[0]["node"].clone();
    cluster.submit_as("root", "sleep 1", &["-p", "urgent", &gres, "-w", &node, "-t1", "--mem=100"]).unwrap()
}

#[test]
fn a_restarted_job_is_never_beside_somebody_it_was_not_planned_with() {
    let urgent = "PartitionName=urgent Nodes=n1,n2 PriorityTier=10 MaxTime=10";
    let spec = ClusterSpec {
        pool_nodes: mps_nodes(),
        slurm_conf_extra: ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", urgent]
            .map(str::to_owned)
            .into(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let mut watched = Watched::default();

    // All pairs stand before anything happens: a tenant who has lost his partner may get another.
    let failed = pair(&cluster, &PAIR.map(long_then_short), &[]);
    let failing = starts(&cluster, "alice", failed[0])[0]["node"].clone();
    let preempted = pair(&cluster, &PAIR.map(long_then_short), &[&failing]);
    let by_owner = [0, 1].map(|which| {
        let mut scripts = PAIR.map(|name| load(name, 2400));
        scripts[which] = long_then_short(PAIR[which]);
        let jobs = pair(&cluster, &scripts, &[&failing]);
        (jobs[which], jobs[1 - which])
    });
    watched.look(&cluster).unwrap();

    // A node dies; owners start the host of one pair anew and the joiner of another; root takes the GPU of a third.
    cluster.stop_slurmd(&failing, Signal::KILL).unwrap();
    for (job, _) in by_owner {
        let alice = cluster.program_as("alice", "scontrol").unwrap();
        alice.args(["requeue", &job.to_string()]).stdout().unwrap();
        // And root does not want it to wait the two minutes.
        cluster.scontrol(&["update", &format!("JobId={job}"), "StartTime=now"]).unwrap();
    }
    let urgent = preempt(&cluster, preempted[0]);

    let restarted: Vec<SlurmJobId> =
        failed.into_iter().chain(preempted).chain(by_owner.map(|(job, _)| job)).collect();
    let partners = by_owner.map(|(_, partner)| partner);
    let all: Vec<SlurmJobId> = restarted.iter().copied().chain(partners).chain([urgent]).collect();
    watch_until_completed(&cluster, &mut watched, &all);
    for job in restarted {
        check_restarted(&cluster, job);
    }
    for job in partners {
        check_unharmed(&cluster, job);
    }
    // The urgent job was root's own: it runs without a decision, but beside nobody.
    watched.check_planned(&decisions(&cluster));
    assert!(cluster.node(&failing).unwrap()["State"].starts_with("DOWN"), "the node did fail");
}

const RACE_COUNT: usize = 200;
/// How long a waiting job may carry a pin without a lease: as long as a refused release takes to be put back.
const HALF_STATE_MAX: Duration = Duration::from_secs(5);

/// Waiting jobs that are pinned, but neither leased nor given back, and since when.
#[derive(Default)]
struct HalfStates(BTreeMap<String, Instant>);

impl HalfStates {
    fn look(&mut self, cluster: &Cluster) {
        let text = cluster.scontrol(&["show", "job", "-o"]).unwrap();
        let halves: Vec<String> = text.lines().filter_map(half_released).collect();
        self.0.retain(|job, _| halves.contains(job));
        for job in halves {
            let since = self.0.entry(job.clone()).or_insert_with(now);
            assert!(since.elapsed() < HALF_STATE_MAX, "job {job} is pinned without a lease");
        }
    }
}

fn half_released(line: &str) -> Option<String> {
    let fields = parse_fields(line);
    let is_pinned = fields["ReqNodeList"] != "(null)" || fields["TresPerNode"] != "gres/shard:100";
    let mark = fields.get("AdminComment").map(String::as_str).unwrap_or_default();
    let is_half = fields["JobState"] == "PENDING"
        && fields["Partition"] == "shared"
        && is_pinned
        && !mark.contains(";lease=");
    is_half.then(|| fields["JobId"].clone())
}

/// Submits jobs and lets the bound of each run out at a random moment about its release.
fn race(cluster: &Cluster, chance: &mut StdRng) -> Vec<SlurmJobId> {
    let mut halves = HalfStates::default();
    let mut due: Vec<(Instant, SlurmJobId)> = Vec::new();
    let mut jobs = Vec::new();
    while jobs.len() < RACE_COUNT || !due.is_empty() {
        if jobs.len() < RACE_COUNT {
            let name = ["resnet50-infer", "bert-small-batch", "never-seen"][chance.random_range(0..3)];
            let profile =
                if name == "never-seen" { format!("never-{}", jobs.len()) } else { name.to_owned() };
            let job = submit(cluster, "alice", &profile, &script("sleep 0.2"), &[]);
            due.push((now() + Duration::from_millis(chance.random_range(0..2500)), job));
            jobs.push(job);
        }
        let is_due = |(at, _): &(Instant, SlurmJobId)| *at <= now();
        let (over, rest): (Vec<_>, Vec<_>) = due.into_iter().partition(is_due);
        due = rest;
        for (_, job) in over {
            let begin = ["StartTime=now", "StartTime=now+1"][chance.random_range(0..2)];
            // Refused where it has started: that is the race.
            let _ = cluster.scontrol(&["update", &format!("JobId={job}"), begin]);
        }
        halves.look(cluster);
    }
    wait_for("end of all jobs", 2 * SOON, || {
        halves.look(cluster);
        let left = cluster.squeue("%i %T %r")?.into_iter().filter(|line| !line.contains(" COMPLETED "));
        let left: Vec<String> = left.collect();
        Ok(if left.is_empty() { Look::Ready(()) } else { Look::NotYet(left.join(", ")) })
    })
    .unwrap();
    jobs
}

#[test]
fn a_bound_that_runs_out_during_the_release_leaves_no_half_state() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20);
    println!("SEED={seed}");
    let spec = ClusterSpec {
        pool_nodes: mps_nodes(),
        gpus_per_node: 8,
        bound_seconds: 10,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    cluster.start_pillion().unwrap();
    make_known(&cluster, &["alice"], &PAIR, &[&[]]);
    let jobs = race(&cluster, &mut StdRng::seed_from_u64(seed));

    let decisions = decisions(&cluster);
    let (mut released, mut alone) = (0, 0);
    for job in jobs {
        let fields = cluster.job(job).unwrap();
        assert_eq!((fields["JobState"].as_str(), fields["Restarts"].as_str()), ("COMPLETED", "0"), "{job}");
        let all = starts(&cluster, "alice", job);
        assert_eq!(all.len(), 1, "starts of job {job}: {all:?}");
        let found = &all[0];
        // What Slurm gave when it started is what it asked for then, and still is: nobody resized it.
        if fields["TresPerNode"] == "gres/shard:100" {
            assert_eq!(found["shards"], "100", "job {job}: {found:?}");
            alone += 1;
        } else {
            let (decision, member) = member_of(&decisions, job, 0).expect("released without a decision");
            let gres = format!("gres/shard:{}:{}", decision["gres_type"].as_str().unwrap(), member["shards"]);
            assert_eq!(fields["TresPerNode"], gres, "job {job}");
            assert_eq!(found["shards"], member["shards"].to_string(), "job {job}: {found:?}");
            assert_eq!(found["node"], decision["node"].as_str().unwrap(), "job {job}: {found:?}");
            assert_eq!(format!("g{}", found["gpu"]), decision["gres_type"].as_str().unwrap(), "job {job}");
            released += 1;
        }
    }
    println!("of {RACE_COUNT} races the release won {released}, the bound {alone}");
    assert!(released >= RACE_COUNT / 20 && alone >= RACE_COUNT / 20, "no race: {released} to {alone}");
}
