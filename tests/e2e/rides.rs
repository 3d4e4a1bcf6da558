//! Jobs of known and unknown workloads, what they say of themselves, and what Slurm says of who runs where: what the
//! storm, restarts, outages and the order of the queue have in common. Knows nothing of how Pillion decides.

use pillion_core::SlurmJobId;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, HarnessError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

type Result<T> = std::result::Result<T, HarnessError>;

/// How long a condition may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// Long enough for a profile on a busy machine: seven looks of the agent.
pub(crate) const KNOWN_SECONDS: u32 = 420;
/// Names and values of one line that a job wrote.
pub(crate) type Words = BTreeMap<String, String>;

/// The line that every start of a job adds to a file of its own, before anything else.
const START_LINE: &str = "echo at=$EPOCHREALTIME restarts=${SLURM_RESTART_COUNT:-0} node=$SLURMD_NODENAME \
     gpu=$SLURM_JOB_GPUS shards=$SLURM_SHARDS_ON_NODE decision=$PILLION_DECISION \
     cap=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limit=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT pipe=$CUDA_MPS_PIPE_DIRECTORY \
     ccs=$ZEX_NUMBER_OF_CCS >> $HOME/starts.$SLURM_JOB_ID";

/// A script that writes down its start and then does `work`.
pub(crate) fn script(work: &str) -> String {
    format!("#!/bin/bash\n{START_LINE}\n{work}\n")
}

/// `pillion-load` for so many seconds of the simulated machine.
pub(crate) fn load(name: &str, seconds: u32) -> String {
    script(&format!("exec pillion-load {name} --seconds {seconds}"))
}

/// A guest that is sent back: its first start and its next are so long, in seconds of the simulated machine. The first outlasts
/// SIGTERM, for there are no control groups here to hold it by.
pub(crate) fn guest(work: &str, [first_seconds, next_seconds]: [u32; 2]) -> String {
    script(&format!(
        "if [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ]; then trap '' TERM; seconds={first_seconds}; else seconds={next_seconds}; fi\n\
         exec pillion-load {work} --seconds $seconds"
    ))
}

/// Submits a job that may share, under the name of its workload.
pub(crate) fn submit(
    cluster: &Cluster,
    user: &str,
    profile: &str,
    script: &str,
    more: &[&str],
) -> SlurmJobId {
    let option = format!("--colocate=profile={profile}");
    let mut arguments = vec![option.as_str(), "--gres=gpu:1", "-c1", "--mem=100", "-t10"];
    arguments.extend(more);
    cluster.submit_as(user, script, &arguments).unwrap()
}

/// Every start of a job, as it wrote them down itself.
pub(crate) fn starts(cluster: &Cluster, user: &str, job: SlurmJobId) -> Vec<Words> {
    let text = std::fs::read_to_string(cluster.home(user).join(format!("starts.{job}"))).unwrap_or_default();
    let words = |line: &str| {
        line.split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    text.lines().map(words).collect()
}

/// Runs each workload once alone, and waits until it is remembered. `more`: options, such as the node to keep away from.
pub(crate) fn make_known(cluster: &Cluster, users: &[&str], names: &[&str], more: &[&[&str]]) {
    let mut jobs = Vec::new();
    let before = profile_count(cluster).unwrap();
    for user in users {
        for name in names {
            jobs.extend(
                more.iter().map(|more| submit(cluster, user, name, &load(name, KNOWN_SECONDS), more)),
            );
        }
    }
    wait_until_known(cluster, before, &jobs);
}

/// The same for workloads whose names are not what they run: `(profile, work)`.
pub(crate) fn make_known_as(cluster: &Cluster, user: &str, workloads: &[(&str, &str)]) {
    let before = profile_count(cluster).unwrap();
    let run = |(name, work): &(&str, &str)| submit(cluster, user, name, &load(work, KNOWN_SECONDS), &[]);
    wait_until_known(cluster, before, &workloads.iter().map(run).collect::<Vec<_>>());
}

/// The same of several users, for so many seconds each.
pub(crate) fn make_known_for<const N: usize>(
    cluster: &Cluster,
    seconds: u32,
    all: &[(&str, [(&str, &str); N])],
) {
    let before = profile_count(cluster).unwrap();
    let each = all.iter().flat_map(|(user, workloads)| workloads.iter().map(move |named| (*user, *named)));
    let run =
        |(user, (name, work)): (&str, (&str, &str))| submit(cluster, user, name, &load(work, seconds), &[]);
    wait_until_known(cluster, before, &each.map(run).collect::<Vec<_>>());
}

fn wait_until_known(cluster: &Cluster, before: usize, jobs: &[SlurmJobId]) {
    for job in jobs {
        cluster.wait_for_job(*job, &["COMPLETED"], SOON).unwrap();
    }
    wait_for("profiles of all that ran", SOON, || {
        let count = profile_count(cluster)? - before;
        let seen = format!("{count} of {}", jobs.len());
        Ok(if count >= jobs.len() { Look::Ready(()) } else { Look::NotYet(seen) })
    })
    .unwrap();
}

/// How many profiles are remembered.
pub(crate) fn profile_count(cluster: &Cluster) -> Result<usize> {
    let text = cluster.pillion_as("root", &["profile", "--noheader", "--parsable2"])?.stdout()?;
    Ok(text.lines().count())
}

/// Every decision of the last hour, as `pillion pairs` gives them.
pub(crate) fn decisions(cluster: &Cluster) -> Vec<Value> {
    let arguments = ["pairs", "--all", "-S", "now-1hour", "--limit", "10000", "--json"];
    let text = cluster.pillion_as("root", &arguments).unwrap().stdout().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value["decisions"].as_array().unwrap().clone()
}

/// The decision and the member's row of one start; `None` where nothing was decided for it.
pub(crate) fn member_of(decisions: &[Value], job: SlurmJobId, restarts: u64) -> Option<(&Value, &Value)> {
    let id = job.to_string();
    let is_it = |member: &&Value| member["job_id"] == id.as_str() && member["restart_count"] == restarts;
    // A start that was given up may have been decided on again: the last one counts.
    let all = decisions.iter().filter_map(|decision| {
        let member = decision["members"].as_array()?.iter().find(is_it)?;
        Some((decision, member))
    });
    all.max_by_key(|(decision, _)| decision["decision_id"].as_u64())
}

/// One start of a job that Slurm says runs.
pub(crate) type Running = (SlurmJobId, u64);

/// Who was seen running together, by Slurm's own books.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Pairs of starts that held shards of one GPU at one moment.
    pub(crate) together: BTreeSet<(Running, Running)>,
    /// The most shards that a GPU ever had in use.
    pub(crate) shards_max: u32,
    /// How often was looked.
    pub(crate) look_count: u32,
}

impl Watched {
    /// Looks once at all jobs and nodes. A GPU beyond 100 shards fails the test.
    pub(crate) fn look(&mut self, cluster: &Cluster) -> Result<()> {
        let jobs = cluster.scontrol(&["show", "job", "-d", "-o"])?;
        let mut gpus: BTreeMap<(String, usize), Vec<(Running, u32)>> = BTreeMap::new();
        for line in jobs.lines().filter(|line| line.contains(" JobState=RUNNING ")) {
            let Some(running) = running_of(line) else { continue };
            for (node, index, shards) in shards_of(line) {
                gpus.entry((node, index)).or_default().push((running, shards));
            }
        }
        for ((node, index), tenants) in &gpus {
            let shards: u32 = tenants.iter().map(|(_, shards)| shards).sum();
            assert!(shards <= 100, "{node} GPU {index}: {shards} shards in use: {tenants:?}");
            self.shards_max = self.shards_max.max(shards);
            for (at, (first, _)) in tenants.iter().enumerate() {
                self.together.extend(tenants[at + 1..].iter().map(|(second, _)| ordered(*first, *second)));
            }
        }
        let nodes = cluster.scontrol(&["show", "node", "-d", "-o"])?;
        for used in nodes.split(" GresUsed=").skip(1).filter_map(|rest| rest.split(' ').next()) {
            let all = used.split(',').filter_map(|entry| entry.split_once('(')?.1.split_once('/'));
            for (count, _) in all {
                let count: u32 = count.parse().unwrap_or(0);
                assert!(count <= 100, "Slurm booked {count} shards of one GPU: {used}");
            }
        }
        self.look_count += 1;
        Ok(())
    }

    /// Whoever ran together was planned together: both starts belong to one group of decisions.
    pub(crate) fn check_planned(&self, decisions: &[Value]) {
        for (first, second) in &self.together {
            let group = |(job, restarts): &Running| {
                let (decision, _) = member_of(decisions, *job, *restarts)
                    .unwrap_or_else(|| panic!("{job} shared a GPU in start {restarts} without a decision"));
                decision["group_id"].as_u64()
            };
            assert_eq!(group(first), group(second), "{first:?} and {second:?} ran together unplanned");
        }
    }
}

fn ordered(first: Running, second: Running) -> (Running, Running) {
    if first <= second { (first, second) } else { (second, first) }
}

/// The word after `NAME=` in a line of `scontrol -o`.
fn word<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let begin = line.find(&format!(" {name}="))? + name.len() + 2;
    line[begin..].split(' ').next()
}

fn running_of(line: &str) -> Option<Running> {
    let id = line.strip_prefix("JobId=")?.split(' ').next()?;
    Some((id.parse().ok()?, word(line, "Restarts")?.parse().ok()?))
}

/// Node, GPU and count of each GPU of which the job holds shards: `GRES=shard:g1:40(0/100,40/100,..)`.
fn shards_of(line: &str) -> Vec<(String, usize, u32)> {
    let (Some(node), Some(gres)) = (word(line, "Nodes"), word(line, "GRES")) else { return Vec::new() };
    let lists = gres.split("shard:").filter_map(|entry| entry.split_once('(')?.1.split(')').next());
    let used = |list: &str| -> Vec<(String, usize, u32)> {
        list.split(',')
            .enumerate()
            .filter_map(|(index, count)| Some((index, count.split('/').next()?.parse().ok()?)))
            .filter(|(_, count)| *count > 0)
            .map(|(index, count)| (node.to_owned(), index, count))
            .collect()
    };
    lists.flat_map(used).collect()
}

/// The middle one of some numbers.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
