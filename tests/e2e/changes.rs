//! What users change by `scontrol` in their own jobs that wait under management: refused, or taken out of management
//! whole, and then the job runs as it was written, with that change. What does not matter changes nothing.

use crate::leases::scontrol_as_alice;
use pillion_core::SlurmJobId;
use pillion_tests::cluster::show::Fields;
use pillion_tests::wait::{Look, wait_for};
use pillion_tests::{Cluster, ClusterSpec};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);

/// What becomes of a change.
#[derive(Clone, Copy)]
enum Outcome {
    /// Refused with a part of this sentence; the job waits as before.
    Refused(&'static str),
    /// The job goes where it came from: what it asks for there, and where it may run.
    Leaves(&'static str, &'static str),
    /// Refused with the advice to take it out first; held meanwhile, so that it does not start between the two steps, it then
    /// leaves so.
    InTwoSteps(&'static str, &'static str),
    /// It stays managed.
    Stays,
}
use Outcome::{InTwoSteps, Leaves, Refused, Stays};

const SHARDS: &str = "shards are given out by Pillion alone";
const ONE: &str = "gres/gpu:1";
/// What Slurm may refuse when it has moved the job already.
const FIRST: &str = "take it out first (scontrol update JobId=";

/// How the job was submitted, what its user changes, and what becomes of it.
static ROWS: [(&str, &str, Outcome); 49] = [
    ("--gres=gpu:1", "Gres=shard:g1:10", Refused(SHARDS)),
    ("--gres=gpu:1", "Gres=shard:g1:100,lscratch:1", Refused(SHARDS)),
    ("--gres=gpu:1", "TresPerNode=gres/shard:1", Refused(SHARDS)),
    ("--gres=gpu:1", "AdminComment=pillion1;w=0", Refused("")),
    ("--gres=gpu:1", "Partition=gpu,shared", Refused("write --colocate")),
    ("--gres=gpu:1", "Priority=4000000000", Refused("")),
    ("--gres=gpu:1", "Nice=-5", Refused("")),
    ("--gres=gpu:1", "Gres=gpu:2", Leaves("gres/gpu:2", "w[1-2]")),
    ("--gpus=1", "Gres=gpu:1", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "Gres=lscratch:3", Leaves("gres/lscratch:3", "w[1-2]")),
    ("--gres=gpu:1,lscratch:9", "Comment=changed", Leaves("gres/gpu:1,gres/lscratch:9", "w[1-2]")),
    ("--gpus=1", "Comment=changed", Leaves(ONE, "w[1-2]")),
    ("--gpus-per-task=1 -n1", "Comment=changed", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1 -p other", "Comment=changed", Leaves(ONE, "w2")),
    ("--gres=gpu:1", "StartTime=now", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1 --begin=now+2hours", "StartTime=now", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "ReqNodeList=w1", InTwoSteps(ONE, "w1")),
    // As a job of that partition would wait for a node that it has not.
    ("--gres=gpu:1", "ReqNodeList=n1", InTwoSteps(ONE, "")),
    ("--gres=gpu:1", "ExcNodeList=w1", Leaves(ONE, "w2")),
    ("--gres=gpu:1", "Features=old", InTwoSteps(ONE, "w[1-2]")),
    ("--gres=gpu:1 -p other", "NumNodes=1", InTwoSteps(ONE, "w2")),
    ("--gres=gpu:1", "StartTime=now Nice=7", InTwoSteps(ONE, "w[1-2]")),
    ("--gres=gpu:1", "Partition=other", Leaves(ONE, "w2")),
    ("--gres=gpu:1", "MinMemoryNode=200", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "NumCPUs=2-2", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "CPUsPerTask=2", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "Comment=x JobName=y WorkDir=/tmp", Leaves(ONE, "w[1-2]")),
    ("--gres=gpu:1", "Gres=bogus:1", Refused("")),
    ("--gres=gpu:1", "Partition=nowhere", Refused("")),
    ("--gres=gpu:1", "Features=bogus", Refused(FIRST)),
    ("--gres=gpu:1", "OverSubscribe=YES", Refused(FIRST)),
    ("--gres=gpu:1", "OverSubscribe=NO", Refused(FIRST)),
    ("--gres=gpu:1", "CPUsPerTask=0", Refused(FIRST)),
    ("--gres=gpu:1", "NumNodes=2", Refused(FIRST)),
    ("--gres=gpu:1", "TresPerTask=gres/gpu:1", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x Clusters=c", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x Contiguous=1", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x Dependency=bogus", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x EndTime=now+1hour", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x Nice=-5", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x TasksPerNode=1", Refused(FIRST)),
    ("--gres=gpu:1", "Comment=x TimeMin=600", Refused(FIRST)),
    ("--gres=gpu:1", "Partition=gpu Prefer=bogus", Refused(FIRST)),
    ("--gres=gpu:1", "Partition=gpu Priority=4000000000", Refused(FIRST)),
    ("--gres=gpu:1", "StartTime=now TimeLimit=30-0", Refused(FIRST)),
    ("--gres=gpu:1", "TimeLimit=4", Stays),
    ("--gres=gpu:1", "JobName=other", Stays),
    ("--gres=gpu:1", "Nice=5", Stays),
    ("--gres=gpu:1", "MailType=END", Stays),
];

fn change(cluster: &Cluster, user: &str, job: SlurmJobId, change: &str) -> Result<(), String> {
    let program = cluster.program_as(user, "scontrol").unwrap();
    let output = program.args(["update", &format!("JobId={job}")]).args(change.split(' ')).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn is_managed(fields: &Fields) -> bool {
    let is_leased = fields["AdminComment"].contains(";lease=");
    fields["Partition"] == "shared" && fields["TresPerNode"].starts_with("gres/shard:100") && !is_leased
}

/// What a refused change changed all the same.
fn changed(before: &Fields, after: &Fields) -> String {
    let names = ["Partition", "TresPerNode", "AdminComment", "Comment", "ReqNodeList", "Priority", "Nice"];
    let changed = names.iter().filter(|name| before.get(**name) != after.get(**name));
    let mut text = String::new();
    for name in changed {
        let _ = write!(text, "; {name} was {:?} and is {:?}", before.get(*name), after.get(*name));
    }
    text
}

/// What is wrong with the request of a job that has left.
fn asked_outside(job: &Fields, gres: &str) -> String {
    let asks = job["TresPerNode"].replace("gres:", "gres/");
    let is_right = job["Partition"] != "shared" && asks == gres && !job.contains_key("TresPerJob");
    if is_right { String::new() } else { format!("; it is in {} and asks for {asks}", job["Partition"]) }
}

/// Does what the user was told, having held the job, as the user guide says.
fn take_out(cluster: &Cluster, job: SlurmJobId, said: &str) {
    scontrol_as_alice(cluster, &["hold", &job.to_string()]);
    let advice = said.split("(scontrol ").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    scontrol_as_alice(cluster, &advice.split(' ').collect::<Vec<_>>());
}

/// What is wrong right after the change; the pool is closed, so that a managed job waits.
fn wrong_at_once(cluster: &Cluster, job: SlurmJobId, words: &str, outcome: Outcome) -> String {
    let before = cluster.job(job).unwrap();
    if !is_managed(&before) {
        return format!("it was not managed: {} {}", before["Partition"], before["TresPerNode"]);
    }
    let answer = change(cluster, "alice", job, words);
    let after = cluster.job(job).unwrap();
    let mut wrong = String::new();
    match (outcome, &answer) {
        (Refused(why), Err(said)) if said.contains(why) => wrong = changed(&before, &after),
        (InTwoSteps(gres, _), Err(said)) if said.contains(FIRST) => {
            wrong = changed(&before, &after);
            take_out(cluster, job, said);
            if wrong.is_empty() {
                wrong = match change(cluster, "alice", job, words) {
                    Ok(()) => asked_outside(&cluster.job(job).unwrap(), gres),
                    Err(said) => format!("; outside: {said}"),
                };
            }
            scontrol_as_alice(cluster, &["release", &job.to_string()]);
        }
        (Stays, Ok(())) if is_managed(&after) => {}
        (Leaves(gres, _), Ok(())) => wrong = asked_outside(&after, gres),
        _ => {
            let of = |name: &str| after.get(name).map_or("", String::as_str);
            let _ = write!(
                wrong,
                "; {answer:?}, in {} with {}, -w '{}', priority {}",
                of("Partition"),
                of("TresPerNode"),
                of("ReqNodeList"),
                of("Priority")
            );
        }
    }
    wrong
}

/// What is wrong with the job when it has run: where, and with what.
fn wrong_in_the_end(cluster: &Cluster, job: SlurmJobId, outcome: Outcome) -> String {
    if matches!(outcome, Leaves(_, "") | InTwoSteps(_, "")) {
        let state = cluster.job_field(job, "JobState").unwrap();
        return if state == "PENDING" { String::new() } else { format!("; it is {state}") };
    }
    let output = match cluster.finished_output(job, SOON) {
        Ok(output) => output,
        Err(error) => return error.to_string(),
    };
    let fields = cluster.job(job).unwrap();
    let words: BTreeMap<&str, &str> =
        output.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let (node, mark) = (words["node"], fields["AdminComment"].contains(";lease="));
    let right = match outcome {
        Refused(_) | Stays => words["shards"] == "100" && words["gpus"] == "1" && mark,
        Leaves(gres, nodes) | InTwoSteps(gres, nodes) => {
            let gpus = gres.strip_prefix("gres/gpu:").and_then(|rest| rest.split(',').next()).unwrap_or("");
            let is_where = if nodes == "w[1-2]" { node.starts_with('w') } else { node == nodes };
            words["shards"].is_empty() && words["gpus"] == gpus && is_where && !mark
        }
    };
    if right { String::new() } else { format!("; it printed {}, {}", output.trim(), fields["AdminComment"]) }
}

#[test]
fn what_users_change_ends_management_whole_or_not_at_all() {
    let spec = ClusterSpec {
        whole_gpu_node_count: 2,
        gres_extra: vec!["lscratch:1000".into()],
        slurm_conf_extra: vec!["PartitionName=other Nodes=w2 DefaultTime=10 DefMemPerCPU=1000".into()],
        bound_seconds: 120,
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::start(spec).unwrap();
    let features = "update NodeName=w[1-2] AvailableFeatures=old ActiveFeatures=old";
    cluster.scontrol(&features.split(' ').collect::<Vec<_>>()).unwrap();
    cluster.start_pillion().unwrap();
    cluster.scontrol(&["update", "NodeName=n[1-2]", "State=DRAIN", "Reason=test"]).unwrap();
    let script = "echo node=$SLURMD_NODENAME gpus=$SLURM_GPUS_ON_NODE shards=$SLURM_SHARDS_ON_NODE";
    let mut wrong = Vec::new();
    let mut jobs = Vec::new();
    for (arguments, words, outcome) in &ROWS {
        let arguments: Vec<&str> = arguments.split(' ').chain(["--colocate", "-t5"]).collect();
        let job = cluster.submit_as("alice", script, &arguments).unwrap();
        jobs.push(job);
        let at_once = wrong_at_once(&cluster, job, words, *outcome);
        if !at_once.is_empty() {
            println!("at once: {words}: {at_once}");
        }
        wrong.push(at_once);
    }
    strangers(&cluster, jobs[0]);
    nobody_gets_in(&cluster);
    wait_until_queue_is(&cluster, &jobs);
    cluster.scontrol(&["update", "NodeName=n[1-2]", "State=RESUME"]).unwrap();
    for (((arguments, words, outcome), job), wrong) in ROWS.iter().zip(&jobs).zip(&mut wrong) {
        if wrong.is_empty() {
            *wrong = wrong_in_the_end(&cluster, *job, *outcome);
        }
        let shown = if wrong.is_empty() { "ok" } else { wrong };
        println!("{arguments:32} {words:32} {shown}");
    }
    let failed: Vec<&str> = ROWS
        .iter()
        .zip(&wrong)
        .filter(|(_, wrong)| !wrong.is_empty())
        .map(|((_, words, _), _)| *words)
        .collect();
    assert!(failed.is_empty(), "these changes went wrong, see above: {failed:?}");
}

/// What others may not do to a job of alice's.
fn strangers(cluster: &Cluster, job: SlurmJobId) {
    let before = cluster.job(job).unwrap();
    for words in ["Comment=x", "StartTime=now", "Gres=gpu:1", "Gres=shard:g1:1", "Partition=gpu"] {
        assert!(change(cluster, "bob", job, words).is_err(), "bob: {words}");
    }
    let after = cluster.job(job).unwrap();
    for name in ["Partition", "TresPerNode", "AdminComment", "Comment"] {
        assert_eq!(before.get(name), after.get(name), "{name}");
    }
}

/// A job of everyday's does not get into the pool by a change.
fn nobody_gets_in(cluster: &Cluster) {
    let job = cluster.submit_as("bob", "true", &["--gres=gpu:1", "-H"]).unwrap();
    for (words, why) in
        [("Partition=shared", "write --colocate"), ("Gres=shard:g1:10", SHARDS), ("Gres=shard:1", SHARDS)]
    {
        let said = change(cluster, "bob", job, words).unwrap_err();
        assert!(said.contains(why), "{words}: {said}");
    }
    let fields = cluster.job(job).unwrap();
    assert_eq!((fields["Partition"].as_str(), fields["TresPerNode"].as_str()), ("gpu", ONE));
    cluster.program("scancel").arg(job.to_string()).stdout().unwrap();
}

/// Pillion's queue holds the jobs that stayed, and no other.
fn wait_until_queue_is(cluster: &Cluster, jobs: &[SlurmJobId]) {
    let stays = |(row, job): (&(&str, &str, Outcome), &SlurmJobId)| {
        (!matches!(row.2, Leaves(..) | InTwoSteps(..))).then(|| job.to_string())
    };
    let expected: Vec<String> = ROWS.iter().zip(jobs).filter_map(stays).collect();
    wait_for("queue of the jobs that stayed", SOON, || {
        let text = cluster.pillion_as("root", &["queue", "--noheader", "-P"])?.stdout()?;
        let mut seen: Vec<String> =
            text.lines().filter_map(|line| Some(line.split('|').next()?.to_owned())).collect();
        seen.sort_by_key(|id| id.parse::<u32>().unwrap_or_default());
        Ok(if seen == expected {
            Look::Ready(())
        } else {
            Look::NotYet(format!("{seen:?}, not {expected:?}"))
        })
    })
    .unwrap();
}
