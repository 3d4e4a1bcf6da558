//! The options of `sbatch`, one row each, on real Slurm with the scheduler alive: with `--colocate` a job is managed whole
//! or left as its user wrote it, and never something in between. Each row is submitted twice, with the option and without
//! it, and Slurm's own words about the two jobs are compared: while they wait, and from inside when they run.

pub(crate) mod compare;
mod rows;

use compare::{differences, records};
use pillion_core::SlurmJobId;
use pillion_core::device::Mechanism;
use pillion_tests::cluster::Submission;
use pillion_tests::cluster::show::Fields;
use pillion_tests::cluster::spec::PoolNode;
use pillion_tests::daemons::heartbeat;
use pillion_tests::wait::{Look, wait_for, wait_until};
use pillion_tests::{Cluster, ClusterSpec};
use rows::Outcome::{Managed, Untouched};
use rows::Then::{RunsManaged, RunsSomehow, Waits};
use rows::{MANAGED, REFUSED, Row, SINCE_25_11, UNTOUCHED};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

const SOON: Duration = Duration::from_mins(1);
const ALL_ENDED: Duration = Duration::from_mins(3);

/// What management changes: the way to ask for the GPU, where and when. What is in them is looked at row by row.
const OURS: [&str; 12] = [
    "Partition",
    "AdminComment",
    "TresPerNode",
    "TresPerJob",
    "TresPerTask",
    "TresPerSocket",
    "CpusPerTres",
    "MemPerTres",
    "TresBind",
    "ReqTRES",
    "Scheduler",
    "Priority",
];

fn script() -> String {
    let inside = "env | grep -E '^(SLURM_|PILLION_D)' | sort";
    format!("{inside}; echo --; srun -n1 /bin/bash -c 'echo step gpus=$SLURM_JOB_GPUS node=$SLURMD_NODENAME'")
}

/// One submission of a row, with or without the option.
fn submit(cluster: &Cluster, row: &str, colocate: bool) -> Submission {
    let option = ["--colocate", "-o", "out-%j"];
    let words = row.split(' ').filter(|word| !word.is_empty());
    let arguments: Vec<&str> = option[usize::from(!colocate)..].iter().copied().chain(words).collect();
    cluster.try_submit_as("alice", &script(), &arguments).unwrap()
}

/// How many GPUs a request such as `gpu:h200:4` is for.
fn gpu_count(gres: &str) -> usize {
    gres.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// What is wrong with a managed job that waits, next to its twin that is not managed.
fn wrong_while_managed(plain: &[Fields], job: &[Fields], outcome: (&str, &str, &str)) -> String {
    let (field, gres, other) = outcome;
    let mut ours = OURS.to_vec();
    // What was asked for by GPU is asked for by task and node, since no GPU is asked for any more.
    for (asked, becomes) in
        [("CpusPerTres", ["CPUs/Task", "MinCPUsNode"]), ("MemPerTres", ["MinMemoryNode", "MinMemoryTRES"])]
    {
        if plain[0].contains_key(asked) {
            ours.extend(becomes);
        }
    }
    let mut wrong = differences(plain, job, &ours);
    let of = |name: &str| job[0].get(name).map_or("", String::as_str);
    let mut expect = |what: &str, holds: bool| {
        if !holds {
            let _ = write!(wrong, "; {what}");
        }
    };
    expect("it is not in partition shared", of("Partition") == "shared");
    let others = if other.is_empty() { String::new() } else { format!(",gres/{other}") };
    // Slurm writes gres: or gres/ here, by its version.
    let asks = of("TresPerNode").replace("gres:", "gres/");
    let count = gpu_count(gres);
    let of_each: Vec<&str> = asks.split(',').filter(|entry| entry.starts_with("gres/shard:")).collect();
    if count == 1 {
        expect(&format!("it asks for {asks}"), asks == format!("gres/shard:100{others}"));
    } else {
        let is_each = |entry: &&str| entry.starts_with("gres/shard:g") && entry.ends_with(":100");
        let are_whole = of_each.len() == count && of_each.iter().all(is_each);
        expect(&format!("it asks for {asks}"), are_whole && asks == format!("{}{others}", of_each.join(",")));
    }
    for name in ["TresPerJob", "TresPerSocket", "CpusPerTres", "MemPerTres", "TresBind"] {
        expect(&format!("{name}={}", of(name)), of(name).is_empty());
    }
    expect(&format!("TresPerTask={}", of("TresPerTask")), !of("TresPerTask").contains("gpu"));
    let is_several = of("AdminComment").contains(";nodes=2");
    let word = if count == 1 && !is_several { "pillion1;w=" } else { "pillion2;w=" };
    expect("its mark is not there", of("AdminComment").starts_with(word));
    let kept = format!(";field={field};gres={gres};other={other};begin=");
    expect(&format!("its mark is {}", of("AdminComment")), of("AdminComment").contains(&kept));
    expect("its begin is not ahead", of("EligibleTime") > of("SubmitTime"));
    wrong
}

/// A row, submitted both ways.
struct Pair {
    row: &'static Row,
    plain: SlurmJobId,
    job: SlurmJobId,
}

/// Submits a row twice and compares the two while they wait.
fn submit_row(cluster: &Cluster, row: &'static Row) -> Result<Pair, String> {
    let (name, outcome, _) = row;
    let plain = submit(cluster, name, false);
    let other = submit(cluster, name, true);
    let (Some(plain), Some(job)) = (plain.job, other.job) else {
        return Err(format!("refused: '{}', with --colocate '{}'", plain.said, other.said));
    };
    let (before, after) = (records(cluster, plain), records(cluster, job));
    let said: Vec<&str> = other.said.lines().filter(|line| line.contains("pillion: ")).collect();
    let wrong = match outcome {
        Managed(field, gres, others) => {
            let mut wrong = wrong_while_managed(&before, &after, (field, gres, others));
            let count = gpu_count(gres);
            let gpus = if count == 1 { "a GPU".to_owned() } else { format!("{count} GPUs") };
            let how = match (is_of_nodes(name), count) {
                (true, _) => " on each of 2 nodes, which it shares with nobody; ",
                (false, 1) => ", of its own or shared; if shared, at most ",
                (false, _) => " of one node; ",
            };
            let expected = format!("pillion: waits for {gpus}{how}");
            if said.len() != 1 || !said[0].contains(&expected) {
                let _ = write!(wrong, "; it was said {said:?}");
            }
            wrong
        }
        Untouched(why) => {
            let mut wrong = differences(&before, &after, &[]);
            // Each component of a heterogeneous job is told.
            let expected = if why.is_empty() { 0 } else { before.len() };
            let is_said = |line: &str| line.contains("left as you wrote it") && line.contains(why);
            if said.len() != expected || !said.iter().all(|line| is_said(line)) {
                let _ = write!(wrong, "; it was said {said:?}");
            }
            wrong
        }
    };
    if wrong.is_empty() { Ok(Pair { row, plain, job }) } else { Err(wrong) }
}

/// Whether a row asks for GPUs of each of two nodes.
fn is_of_nodes(name: &str) -> bool {
    name.contains("-N2")
}

/// What a job printed when it has run: its environment, without what names this very job, and its step's line.
fn ran(cluster: &Cluster, job: SlurmJobId) -> Result<(BTreeMap<String, String>, String), String> {
    let fields = cluster.job(job).map_err(|error| error.to_string())?;
    let text = cluster.job_output(job).map_err(|error| error.to_string())?.text;
    if fields["JobState"] != "COMPLETED" {
        return Err(format!("it ended {} {}: {text}", fields["JobState"], fields["ExitCode"]));
    }
    let (environment, step) = text.split_once("--\n").ok_or_else(|| format!("it printed '{text}'"))?;
    let incidental =
        ["ID", "JOBID", "NODELIST", "GTIDS", "PID", "TIME", "NODENAME", "JOB_GPUS", "NODE_ALIASES"];
    let variables = environment.lines().filter_map(|line| line.split_once('='));
    // SLURM_SPANK_..: Slurm hands the option itself on; the plugin finds it there.
    let variables = variables.filter(|(name, _)| {
        !incidental.iter().any(|end| name.ends_with(end))
            && !["SLURM_SPANK_", "SLURM_TOPOLOGY_"].iter().any(|start| name.starts_with(start))
            && !name.contains("_GROUP_")
    });
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok((variables.collect(), step.to_owned()))
}

/// Whether the agent was too slow for this start, which then runs untold: a busy machine, and no fault here.
fn was_late(cluster: &Cluster, job: SlurmJobId, node: &str) -> bool {
    let log = std::fs::read_to_string(cluster.layout().log(&format!("slurmd-{node}"))).unwrap_or_default();
    log.contains(&format!("job {job} starts without a share: the agent did not answer within"))
}

/// The GPUs of which a step told.
fn gpus_of(step: &str) -> Option<&str> {
    step.split_whitespace().find_map(|word| word.strip_prefix("gpus="))
}

/// What is wrong with two jobs of an untouched row that have run.
fn wrong_after_untouched(cluster: &Cluster, pair: &Pair) -> Result<String, String> {
    let (plain, plain_step) = ran(cluster, pair.plain)?;
    let (job, step) = ran(cluster, pair.job)?;
    let mut wrong = String::new();
    for name in plain.keys().chain(job.keys()).collect::<BTreeSet<_>>() {
        if plain.get(name) != job.get(name) {
            let _ = write!(wrong, "; inside, {name} was {:?} and is {:?}", plain.get(name), job.get(name));
        }
    }
    let has_gpu = |step: &str| gpus_of(step).is_some_and(|gpus| !gpus.is_empty());
    if step.is_empty() || has_gpu(&step) != has_gpu(&plain_step) {
        let _ = write!(wrong, "; its step printed '{step}', without the option '{plain_step}'");
    }
    Ok(wrong)
}

/// What is wrong with a managed job that has run: its GPUs, of the pool, booked as decided, and its other GRES.
fn wrong_after_managed(
    cluster: &Cluster,
    pair: &Pair,
    (gres, other): (&str, &str),
) -> Result<String, String> {
    let count = gpu_count(gres);
    let (inside, step) = ran(cluster, pair.job)?;
    let plain = if pair.row.2 == RunsManaged { None } else { Some(ran(cluster, pair.plain)?.0) };
    let fields = cluster.job(pair.job).map_err(|error| error.to_string())?;
    let mut wrong = String::new();
    let mut expect = |what: String, holds: bool| {
        if !holds {
            let _ = write!(wrong, "; {what}");
        }
    };
    let of = |name: &str| inside.get(name).map_or("", String::as_str);
    expect(format!("it ran in {}", of("SLURM_JOB_PARTITION")), of("SLURM_JOB_PARTITION") == "shared");
    expect(
        format!("it had {} shards", of("SLURM_SHARDS_ON_NODE")),
        of("SLURM_SHARDS_ON_NODE") == (count * 100).to_string(),
    );
    let mark = fields.get("AdminComment").map_or("", String::as_str);
    let is_several = is_of_nodes(pair.row.0);
    // On several nodes Slurm starts it, when it is let go.
    let released = if is_several { ";alone=1" } else { ";lease=" };
    expect(format!("it was not released by Pillion: {mark}"), mark.contains(released));
    let is_told =
        is_several || !of("PILLION_DECISION").is_empty() || was_late(cluster, pair.job, &fields["NodeList"]);
    expect("it was not told its decision".to_owned(), is_told);
    let has_all = |gpus: &str| {
        let indexes: BTreeSet<&str> = gpus.split(',').collect();
        indexes.len() == count && indexes.iter().all(|index| index.parse::<u32>().is_ok())
    };
    expect(format!("its step printed '{step}'"), gpus_of(&step).is_some_and(has_all));
    let asked = fields.get("TresPerNode").map_or("", String::as_str);
    expect(format!("it was started with {asked}"), other.is_empty() || asked.ends_with(&format!("/{other}")));
    let Some(plain) = plain else { return Ok(wrong) };
    for name in [
        "SLURM_CPUS_ON_NODE",
        "SLURM_NTASKS",
        "SLURM_CPUS_PER_TASK",
        "SLURM_MEM_PER_NODE",
        "SLURM_MEM_PER_CPU",
        "SLURM_JOB_NUM_NODES",
        "SLURM_JOB_NAME",
    ] {
        let was = plain.get(name).map_or("", String::as_str);
        // What was asked for by GPU is asked for by node.
        let by_gpu = plain.get("SLURM_MEM_PER_GPU").filter(|_| name == "SLURM_MEM_PER_NODE");
        let by_gpu = by_gpu.and_then(|mib| Some((mib.parse::<usize>().ok()? * count).to_string()));
        let was = by_gpu.as_deref().unwrap_or(was);
        expect(format!("{name} was '{was}' and is '{}'", of(name)), was == of(name));
    }
    Ok(wrong)
}

fn wrong_after(cluster: &Cluster, pair: &Pair) -> String {
    let (name, outcome, then) = pair.row;
    let result = match (then, outcome) {
        (Waits, _) => {
            let state = cluster.job_field(pair.job, "JobState").unwrap();
            Ok(if state == "PENDING" { String::new() } else { format!("it is {state}") })
        }
        (RunsSomehow, _) => ran(cluster, pair.plain).and(ran(cluster, pair.job)).map(|_| String::new()),
        (_, Managed(_, gres, other)) => wrong_after_managed(cluster, pair, (gres, other)),
        (_, Untouched(_)) => wrong_after_untouched(cluster, pair),
    };
    let mut wrong = result.unwrap_or_else(|error| error);
    if ["-x n2", "-C fast"].iter().any(|part| name.contains(part)) && matches!(outcome, Managed(..)) {
        let node = cluster.job_field(pair.job, "NodeList").unwrap();
        if node != "n1" {
            let _ = write!(wrong, "; it ran on {node}");
        }
    }
    wrong
}

/// A cluster with something for every row to ask for, and nothing running yet.
fn closed_cluster() -> Cluster {
    let mut spec = ClusterSpec {
        whole_gpu_node_count: 2,
        gres_extra: vec!["lscratch:1000".into()],
        slurm_conf_extra: vec![
            "PartitionName=brief Nodes=w[1-2] MaxTime=5 DefaultTime=5 DefMemPerCPU=1000".into(),
            "PartitionName=long Nodes=w[1-2] MaxTime=2-00:00:00 DefMemPerCPU=1000".into(),
            "PartitionName=whole Nodes=w[1-2] ExclusiveUser=YES DefaultTime=10 DefMemPerCPU=1000".into(),
            // Slurm since 25.11; earlier ones pass it over.
            "SlurmctldParameters=enable_expedited_requeue".into(),
        ],
        bound_seconds: 300,
        ..ClusterSpec::default()
    };
    spec.pool_nodes[0].features = vec!["fast".into()];
    // A model is asked for where all are of it.
    spec.pool_nodes[1] = PoolNode::new("n2", "h200", Mechanism::Mps);
    let mut cluster = Cluster::start(spec).unwrap();
    for change in [
        "update NodeName=w[1-2] AvailableFeatures=old,fast ActiveFeatures=old,fast",
        "update PartitionName=shared MaxCPUsPerNode=32",
        "create reservation ReservationName=later Users=alice Nodes=w2 StartTime=now+5hours Duration=60",
    ] {
        cluster.scontrol(&change.split(' ').collect::<Vec<_>>()).unwrap();
    }
    cluster.start_pillion().unwrap();
    // Written every few seconds: the first does not know yet what the agents have.
    wait_until("heartbeat that names the GPUs", SOON, || {
        Ok(std::fs::read_to_string(heartbeat(&cluster)).is_ok_and(|text| text.contains("h200")))
    })
    .unwrap();
    cluster
}

const PARTITIONS: [&str; 4] = ["gpu", "brief", "long", "whole"];

fn set_partitions(cluster: &Cluster, state: &str) {
    for name in PARTITIONS {
        let partition = format!("PartitionName={name}");
        cluster.scontrol(&["update", &partition, &format!("State={state}")]).unwrap();
    }
}

fn wait_until_all_ended(cluster: &Cluster, pairs: &[Pair]) {
    let jobs: BTreeSet<String> = pairs
        .iter()
        .filter(|pair| pair.row.2 != Waits)
        .flat_map(|pair| [Some(pair.plain).filter(|_| pair.row.2 != RunsManaged), Some(pair.job)])
        .flatten()
        .map(|job| job.to_string())
        .collect();
    wait_for("end of every row's jobs", ALL_ENDED, || {
        let lines = cluster.squeue("%A %F %T %r")?;
        let of_rows = lines.into_iter().filter(|line| {
            let mut ids = line.split(' ').take(2);
            ids.any(|id| jobs.contains(id))
        });
        let left: Vec<String> = of_rows
            .filter(|line| ["PENDING", "RUNNING", "COMPLETING"].iter().any(|state| line.contains(state)))
            .collect();
        Ok(if left.is_empty() { Look::Ready(()) } else { Look::NotYet(left.join(", ")) })
    })
    .unwrap();
}

/// The rows that this Slurm knows the options of.
fn rows_of(cluster: &Cluster) -> Vec<&'static Row> {
    let told = cluster.program("sinfo").arg("--version").stdout().unwrap();
    let version =
        told.trim().strip_prefix("slurm-wlm ").or(told.trim().strip_prefix("slurm ")).unwrap_or_default();
    let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
    assert!(numbers.len() >= 2, "'{told}' tells no version");
    let newer: &[Row] = if numbers[..2] >= [25, 11][..] { &SINCE_25_11 } else { &[] };
    MANAGED.iter().chain(&UNTOUCHED).chain(newer).collect()
}

#[test]
fn every_option_is_managed_whole_or_left_as_it_was_written() {
    let mut cluster = closed_cluster();
    // Nothing starts while the jobs are compared.
    set_partitions(&cluster, "DOWN");
    cluster.scontrol(&["update", "NodeName=n[1-2]", "State=DRAIN", "Reason=test"]).unwrap();
    let mut results: BTreeMap<usize, String> = BTreeMap::new();
    let mut pairs = Vec::new();
    let rows = rows_of(&cluster);
    for (index, row) in rows.iter().enumerate() {
        match submit_row(&cluster, row) {
            Ok(pair) => pairs.push(pair),
            Err(wrong) => drop(results.insert(index, wrong)),
        }
    }
    cluster.scontrol(&["update", "NodeName=n[1-2]", "State=RESUME"]).unwrap();
    set_partitions(&cluster, "UP");
    wait_until_all_ended(&cluster, &pairs);
    for pair in &pairs {
        let wrong = wrong_after(&cluster, pair);
        let index = rows.iter().position(|row| std::ptr::eq(*row, pair.row)).unwrap();
        if !wrong.is_empty() {
            results.insert(index, wrong);
        }
    }
    for (index, (name, outcome, _)) in rows.iter().enumerate() {
        let expected = match outcome {
            Managed(..) => "managed",
            Untouched(_) => "untouched",
        };
        println!("{expected:10} {name:50} {}", results.get(&index).map_or("ok", |wrong| wrong));
    }
    assert_eq!(refused_rows(&cluster), Vec::<&str>::new(), "not refused as they should be");
    idle_scheduler(&mut cluster);
    let names: Vec<&str> = results.keys().map(|index| rows[*index].0).collect();
    assert!(names.is_empty(), "these rows differ, see above: {names:?}");
}

/// What is refused leaves no job, and a sentence. Gives what was otherwise.
fn refused_rows(cluster: &Cluster) -> Vec<&'static str> {
    let is_otherwise = |(row, sentence): &&(&str, &str)| {
        let words: Vec<&str> = row.split(' ').collect();
        let before = cluster.squeue("%A").unwrap().len();
        let submission = cluster.try_submit_as("alice", &script(), &words).unwrap();
        let holds = submission.job.is_none()
            && submission.said.contains(sentence)
            && cluster.squeue("%A").unwrap().len() == before;
        let shown = if holds { "ok" } else { &format!("{:?} '{}'", submission.job, submission.said) };
        println!("refused    {row:50} {shown}");
        !holds
    };
    REFUSED.iter().filter(is_otherwise).map(|(row, _)| *row).collect()
}

/// With a scheduler that only watches, or has stopped, a job stays as its user wrote it, and the pool stays guarded.
fn idle_scheduler(cluster: &mut Cluster) {
    cluster.kill_scheduler(Signal::TERM).unwrap();
    let beat = heartbeat(cluster);
    let text = std::fs::read_to_string(&beat).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let words: Vec<&str> = first.split(' ').collect();
    assert!(words[1].starts_with("epoch=") && words[3] == "mode=active", "{first}");
    for (epoch, mode, why) in [
        (words[1], "mode=off", "only watches"),
        ("epoch=1000000000", words[3], "has stopped"),
        ("", "", "is not running"),
    ] {
        std::fs::write(&beat, format!("{} {epoch} {} {mode}\n{rest}", words[0], words[2])).unwrap();
        let plain = submit(cluster, "-H --gres=gpu:1", false).job.unwrap();
        // Held after the submission, because a hold is a reason of its own.
        let other = submit(cluster, "--gres=gpu:1 -t1", true);
        assert!(other.said.contains(why), "{why}: {}", other.said);
        let job = cluster.wait_for_job(other.job.unwrap(), &["COMPLETED"], SOON).unwrap();
        assert_eq!((job["Partition"].as_str(), job.get("AdminComment")), ("gpu", None), "{why}");
        assert_eq!(job["TresPerNode"], records(cluster, plain)[0]["TresPerNode"], "{why}");
        let refused =
            cluster.try_submit_as("alice", "true", &["-p", "shared", "--gres=gpu:1", "--colocate"]).unwrap();
        assert!(refused.job.is_none() && refused.said.contains(why), "{why}: {}", refused.said);
    }
}
