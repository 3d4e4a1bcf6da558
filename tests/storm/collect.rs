//! Puts together what is known when the storm is over: Slurm's accounting and log, the jobs' own lines, what was done to them,
//! and what Pillion says that it decided.

use crate::faults::Seen as Sights;
use crate::lanes::{Journal, Submitted, epoch, locked};
use pillion_tests::Cluster;
use pillion_tests::error::{Result, io_error};
use pillion_tests::storm::facts::{Account, Decision, Done, Facts, Job, Member, Seen, Sight, Start};
use pillion_tests::storm::plan::{Order, Plan, USERS};
use pillion_tests::storm::slurm_log;
use pillion_tests::testbed::identity_of;
use pillion_tests::wait::{Look, wait_for};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Slurm tells its accounting within seconds, and its database within some more.
const ACCOUNTING_DEADLINE: Duration = Duration::from_mins(1);
const ACCOUNT_FIELDS: &str = "JobID,State,Start,End,TimelimitRaw";
const STATES: &str = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,S,TO";
/// The scheduler is asked for pieces of so many seconds, and for so many lines of each at most.
const PIECE_SECONDS: u32 = 300;
const LINES_MAX: &str = "10000";
/// The scheduler may just have come back.
const ANSWER_DEADLINE: Duration = Duration::from_mins(1);
/// What the harness itself puts into every user's environment.
const OF_THE_HARNESS: &str = "PILLION_SIMULATED_DEVICE";

/// All of it.
pub(crate) fn facts(
    cluster: &mut Cluster,
    plan: &Plan,
    journal: &Journal,
    seen: Sights,
    mut left: BTreeMap<String, Seen>,
    bound_seconds: f64,
) -> Result<Facts> {
    let ended_at = epoch();
    let path = cluster.layout().log("slurmctld");
    let text = std::fs::read(&path).map_err(io_error("read", &path))?;
    let mut log = slurm_log::read(&String::from_utf8_lossy(&text));
    let mut accounts = accounts(cluster, journal, &left)?;
    let mut starts = starts(cluster)?;
    let done = std::mem::take(&mut *locked(&journal.done));
    let mut jobs = Vec::new();
    let submissions = locked(&journal.submitted).clone();
    for (order, submitted) in plan.orders.iter().zip(submissions) {
        let Some(submitted) = submitted else { continue };
        for task in tasks_of(order) {
            let mut job = job(order, &submitted, task, &done);
            job.starts = starts.remove(&(order.number, task)).unwrap_or_default();
            // Slurm may have taken what its client gave up waiting for.
            if let Some(start) = job.starts.first().filter(|_| job.name.is_empty()) {
                job.name.clone_from(&start.job);
            }
            job.allocations = log.allocations.remove(&job.name).unwrap_or_default();
            job.accounts = accounts.remove(&job.name).unwrap_or_default();
            job.left = left.remove(&job.name);
            jobs.push(job);
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.name.is_empty()) {
        *counts.entry(job.name.clone()).or_default() += 1;
    }
    for job in &mut jobs {
        job.shares_number = counts.get(&job.name).is_some_and(|count| *count > 1);
    }
    let sights = |texts: BTreeSet<String>| texts.into_iter().map(|text| Sight { text }).collect();
    let span = [journal.began_at, ended_at];
    let decisions = decisions(cluster, span);
    let made_room = made_room(cluster, span);
    for job in &mut jobs {
        job.made_room = made_room.get(&job.name).copied().unwrap_or_default();
    }
    Ok(Facts {
        bound_seconds,
        jobs,
        outages: seen.outages,
        decisions,
        overbooked: sights(seen.overbooked),
        died: seen.died,
        drained: sights(seen.drained),
        log: log.lines,
        slurm_uid: identity_of("slurm")?.uid,
        began_at: journal.began_at,
        ended_at,
    })
}

fn tasks_of(order: &Order) -> Vec<Option<u32>> {
    order.array.map_or(vec![None], |array| (0..array.tasks).map(Some).collect())
}

fn job(order: &Order, submitted: &Submitted, task: Option<u32>, done: &[(usize, Option<u32>, Done)]) -> Job {
    let suffix =
        task.filter(|_| !submitted.name.is_empty()).map(|task| format!("_{task}")).unwrap_or_default();
    let mut of_job: Vec<Done> = done
        .iter()
        .filter(|(number, to, _)| *number == order.number && (to.is_none() || *to == task))
        .map(|(_, to, done)| match task {
            // What was done to the array as a whole.
            Some(task) if to.is_none() => done.of_task(&submitted.name, task),
            _ => done.clone(),
        })
        .collect();
    of_job.sort_by(|first, second| first.span.from.total_cmp(&second.span.from));
    Job {
        order: Order { after: submitted.after, ..order.clone() },
        task,
        name: format!("{}{suffix}", submitted.name),
        submitted: submitted.span,
        said: submitted.said.clone(),
        is_managed: submitted.is_managed,
        done: of_job,
        allocations: Vec::new(),
        starts: Vec::new(),
        accounts: Vec::new(),
        made_room: 0,
        shares_number: false,
        left: None,
    }
}

/// Every run of every job, by its name; waits until the accounting knows the ends of all that are gone from the queue.
fn accounts(
    cluster: &Cluster,
    journal: &Journal,
    left: &BTreeMap<String, Seen>,
) -> Result<BTreeMap<String, Vec<Account>>> {
    let since = format!("{}", (journal.began_at - 5.0).floor());
    let date = cluster.program("date").args(["-d", &format!("@{since}"), "+%FT%T"]).stdout()?;
    let mut last = BTreeMap::new();
    let waited = wait_for("the accounting of all that ended", ACCOUNTING_DEADLINE, || {
        let mut all = asked(cluster, &["--starttime", date.trim()])?;
        // Who was held while it ran counts as never eligible: it is shown only where its state is asked for.
        let of_states = ["--starttime", date.trim(), "--endtime", "now", "--state", STATES];
        for (name, accounts) in asked(cluster, &of_states)? {
            let known = all.entry(name).or_default();
            if accounts.len() > known.len() {
                *known = accounts;
            }
        }
        let open = |(name, accounts): &(&String, &Vec<Account>)| {
            !left.contains_key(*name) && accounts.last().is_some_and(|last| last.end.is_none())
        };
        let open: Vec<&str> = all.iter().filter(open).map(|(name, _)| name.as_str()).collect();
        let seen = open.join(" ");
        last.clone_from(&all);
        Ok(if seen.is_empty() { Look::Ready(()) } else { Look::NotYet(seen) })
    });
    if let Err(error) = waited {
        crate::say(&pillion_core::report(&error).clone());
    }
    Ok(last)
}

fn asked(cluster: &Cluster, which: &[&str]) -> Result<BTreeMap<String, Vec<Account>>> {
    let program = cluster.program("sacct").env("SLURM_TIME_FORMAT", "%s").args(which.iter().copied()).args([
        "--allusers",
        "--allocations",
        "--duplicates",
        "--array",
        "--noheader",
        "--parsable2",
        "--format",
        ACCOUNT_FIELDS,
    ]);
    let mut all: BTreeMap<String, Vec<Account>> = BTreeMap::new();
    for line in program.stdout()?.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [name, state, start, end, limit] = fields[..] else { continue };
        let (start, end, time_limit) = (start.parse().ok(), end.parse().ok(), limit.parse().ok());
        let account = Account { state: state.to_owned(), start, end, time_limit };
        all.entry(name.to_owned()).or_default().push(account);
    }
    Ok(all)
}

/// A job of the storm by its number, and its task where it is an array.
type NumberAndTask = (usize, Option<u32>);

/// What the jobs wrote down, by number and task, in order.
fn starts(cluster: &Cluster) -> Result<BTreeMap<NumberAndTask, Vec<Start>>> {
    let mut all: BTreeMap<NumberAndTask, Vec<Start>> = BTreeMap::new();
    for user in USERS {
        let path = cluster.home(user).join("storm.log");
        let text = std::fs::read_to_string(&path).map_err(io_error("read", &path))?;
        for line in text.lines() {
            let words: BTreeMap<&str, &str> =
                line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let word = |name: &str| words.get(name).copied().unwrap_or_default();
            let (Ok(number), Ok(at)) = (word("number").parse(), word("at").parse::<f64>()) else { continue };
            let restarts = word("restarts").parse().unwrap_or_default();
            let of_job = all.entry((number, word("task").parse().ok())).or_default();
            if word("line") == "begun" {
                of_job.push(begun(at, restarts, &words));
            } else if let Some(start) = of_job.iter_mut().rev().find(|start| start.restarts == restarts) {
                start.ended_at = Some(at);
                start.exit = word("exit").parse().ok();
            }
        }
    }
    Ok(all)
}

fn begun(at: f64, restarts: u32, words: &BTreeMap<&str, &str>) -> Start {
    let word = |name: &str| words.get(name).copied().unwrap_or_default();
    let kept = ["decision", "cap", "limit", "pipe", "ccs"];
    let job = match (word("array"), word("task")) {
        ("", _) => word("job").to_owned(),
        (array, task) => format!("{array}_{task}"),
    };
    Start {
        job,
        at,
        restarts,
        node: word("node").to_owned(),
        partition: word("partition").to_owned(),
        gpus: word("gpus").split(',').filter_map(|gpu| gpu.parse().ok()).collect(),
        shards: word("shards").parse().ok(),
        ours: word("ours").split(',').filter(|name| *name != OF_THE_HARNESS).collect::<Vec<_>>().join(","),
        words: kept.map(|name| (name.to_owned(), word(name).to_owned())).into(),
        ..Start::default()
    }
}

/// What was decided since the storm began; nothing where the scheduler does not answer, which is said.
fn decisions(cluster: &Cluster, span: [f64; 2]) -> Vec<Decision> {
    let found = told(cluster, span, &["pairs", "--all"], "decisions");
    let all: BTreeMap<u64, Decision> =
        found.iter().filter_map(decision).map(|decision| (decision.id, decision)).collect();
    all.into_values().collect()
}

/// How often each job was started again by Pillion.
fn made_room(cluster: &Cluster, span: [f64; 2]) -> BTreeMap<String, usize> {
    let found = told(cluster, span, &["events", "--kinds", "requeued"], "events");
    // The pieces have a second in common.
    let events: BTreeSet<(&str, String)> =
        found.iter().filter_map(|event| Some((event["job_id"].as_str()?, event.to_string()))).collect();
    let mut counts = BTreeMap::new();
    for (job, _) in events {
        *counts.entry(job.to_owned()).or_default() += 1;
    }
    counts
}

/// What the scheduler tells of a time, piece by piece; nothing where it does not answer, which is said.
fn told(cluster: &Cluster, [began_at, ended_at]: [f64; 2], words: &[&str], key: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut from = began_at - 5.0;
    while from < ended_at {
        let until = from + f64::from(PIECE_SECONDS);
        let asked = wait_for(&format!("the {key}"), ANSWER_DEADLINE, || {
            let time = |at: f64| {
                let date = cluster.program("date").args(["-d", &format!("@{}", at.floor()), "+%FT%T"]);
                date.stdout().map(|text| text.trim().to_owned())
            };
            let (start, end) = (time(from)?, time(until + 1.0)?);
            let words = [words, &["-S", &start, "-E", &end, "--limit", LINES_MAX, "--json"]].concat();
            let output = cluster.pillion_as("root", &words)?.output()?;
            Ok(match serde_json::from_slice::<Value>(&output.stdout) {
                Ok(value) if output.status.success() => Look::Ready(value),
                _ => Look::NotYet(String::from_utf8_lossy(&output.stderr).into_owned()),
            })
        });
        match asked {
            Ok(value) => all.extend(value[key].as_array().into_iter().flatten().cloned()),
            Err(error) => {
                crate::say(&format!("no {key} to compare with: {}", pillion_core::report(&error)));
                return Vec::new();
            }
        }
        from = until;
    }
    all
}

fn decision(value: &Value) -> Option<Decision> {
    let members = value["members"].as_array()?.iter().filter_map(|member| {
        Some(Member {
            job: member["job_id"].as_str()?.to_owned(),
            restarts: u32::try_from(member["restart_count"].as_u64()?).ok()?,
            expected: expected(value, member)?,
            state: member["state"].as_str()?.to_owned(),
            ended_at: member["ended_at_seconds"].as_f64(),
        })
    });
    Some(Decision {
        id: value["decision_id"].as_u64()?,
        group: value["group_id"].as_u64()?,
        node: value["node"].as_str()?.to_owned(),
        gpu: value["gres_type"].as_str()?.to_owned(),
        members: members.collect(),
    })
}

/// What the environment of a start is to be, by the decision alone; the words of the job's first line.
fn expected(decision: &Value, member: &Value) -> Option<BTreeMap<String, String>> {
    let mechanism = decision["mechanism"].as_str()?;
    let mib = member["memory_limit_bytes"].as_u64().map(|bytes| format!("0={}M", bytes >> 20));
    // To two places, without zeroes at the end.
    let percent = member["cap_fraction"].as_f64().map(|cap| ((cap * 1e4).round() / 1e2).to_string());
    let mode = member["ccs_mode"].as_u64().map_or_else(|| "0:1".to_owned(), |mode| format!("0:{mode}"));
    // Shards are told of each GPU.
    let gpus = decision["gres_type"].as_str()?;
    let gpu_count = gpus.split(',').count();
    let only = |holds: bool, value: Option<String>| value.filter(|_| holds).unwrap_or_default();
    let words = [
        ("node", decision["node"].as_str()?.to_owned()),
        ("gpu", gpus.replace('g', "")),
        ("shards", (member["shards"].as_u64()? * gpu_count as u64).to_string()),
        ("decision", decision["decision_id"].to_string()),
        ("cap", only(mechanism == "mps", percent)),
        ("limit", only(mechanism == "mps", mib)),
        ("ccs", only(mechanism == "ccs", Some(mode))),
        ("mechanism", mechanism.to_owned()),
    ];
    Some(words.map(|(name, value)| (name.to_owned(), value)).into())
}
