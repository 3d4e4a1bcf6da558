//! What a job found around itself: what was decided for it and nothing else, and as its user changed it.

use super::{Harm, HarmKind, clock};
use crate::storm::facts::{Allocation, Done, Facts, Job, Start};
use crate::storm::plan::{Change, Deed, Kind};
use std::collections::BTreeMap;

/// A begin time has whole seconds.
const SECOND: f64 = 1.0;
/// An end is in the store so soon.
const END_SECONDS: f64 = 15.0;
/// Words that only a job with a share finds.
const OF_A_SHARE: [&str; 4] = ["cap", "limit", "pipe", "ccs"];

pub(super) fn judge(facts: &Facts, harms: &mut Vec<Harm>) {
    let members = members(facts);
    for (index, job) in facts.jobs.iter().enumerate() {
        for start in &job.starts {
            let mut found = |kind, text: String| {
                let text = format!("start at {}: {text}", clock(facts, start.at));
                harms.push(Harm { kind, job: Some(index), text, excuse: None });
            };
            if start.partition == "shared" {
                if let Some(text) = wrong_share(&members, job, start) {
                    found(HarmKind::WrongEnvironment, text);
                }
            } else if !start.ours.is_empty() || start.shards.is_some() {
                let text =
                    format!("in {}: it found {} and shards {:?}", start.partition, start.ours, start.shards);
                found(HarmKind::PlainTouched, text);
            }
            if let Some(text) = dropped(facts, job, start) {
                found(HarmKind::DecisionDropped, text);
            }
            if let Some(text) = not_as_changed(job, start) {
                found(HarmKind::NotAsChanged, text);
            }
        }
        if let Some(text) = other_limit(job) {
            harms.push(Harm { kind: HarmKind::NotAsChanged, job: Some(index), text, excuse: None });
        }
    }
}

/// What each start is to find, by job and restart count, with the decision's number. A start that was given up may have been
/// decided on again: the last one counts.
type Members<'f> = BTreeMap<(&'f str, u32), (u64, &'f BTreeMap<String, String>)>;

fn members(facts: &Facts) -> Members<'_> {
    let mut members = Members::new();
    for decision in &facts.decisions {
        for member in &decision.members {
            let entry =
                members.entry((&member.job, member.restarts)).or_insert((decision.id, &member.expected));
            if decision.id > entry.0 {
                *entry = (decision.id, &member.expected);
            }
        }
    }
    members
}

/// How what it ran under was given up while it ran: its place was free for others then, and nobody judged what came of it.
fn dropped(facts: &Facts, job: &Job, start: &Start) -> Option<String> {
    let id = start.word("decision");
    let decision = facts.decisions.iter().find(|decision| decision.id.to_string() == id)?;
    let member =
        decision.members.iter().find(|member| member.job == job.name && member.restarts == start.restarts)?;
    if member.state == "undone" {
        return Some(format!("it ran by decision {id}, which was given up"));
    }
    let until = job.held(start)?.until;
    let ended_at = member.ended_at.filter(|at| at + END_SECONDS < until)?;
    Some(format!("decision {id} counted as over {:.1} s before its end", until - ended_at))
}

/// What is wrong with a start in the pool.
fn wrong_share(members: &Members, job: &Job, start: &Start) -> Option<String> {
    let shards = start.shards.unwrap_or(0);
    if job.order.kind == Kind::Plain {
        return Some("a plain job in the pool".to_owned());
    }
    if start.gpus.len() != job.order.gpus as usize {
        return Some(format!("it has the GPUs {:?}", start.gpus));
    }
    let all = 100 * job.order.gpus;
    if !job.may_share() && shards != all {
        return Some(format!("{shards} shards, and it shares with nobody"));
    }
    let member = members.get(&(job.name.as_str(), start.restarts));
    if start.word("decision").is_empty() {
        let left: Vec<&str> = OF_A_SHARE.into_iter().filter(|name| !start.word(name).is_empty()).collect();
        if !left.is_empty() {
            return Some(format!("without a decision, but with {}", left.join(", ")));
        }
        let decided = member.and_then(|(_, expected)| expected.get("shards"));
        let is_right = shards == all || decided.is_some_and(|decided| *decided == shards.to_string());
        return (!is_right).then(|| format!("{shards} shards without a decision"));
    }
    // Nobody could be asked.
    if members.is_empty() {
        return None;
    }
    let Some((_, expected)) = member else {
        return Some(format!("decision {} is not known", start.word("decision")));
    };
    let printed = expected.iter().filter(|(name, _)| *name != "mechanism");
    let wrong = printed.into_iter().find_map(|(name, value)| {
        let found = match name.as_str() {
            "shards" => shards.to_string(),
            "node" => start.node.clone(),
            "gpu" => start.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            name => start.word(name).to_owned(),
        };
        (found != *value).then(|| format!("{name} is '{found}', decided was '{value}'"))
    });
    let has_pipe = !start.word("pipe").is_empty();
    wrong.or_else(|| {
        let is_mps = expected.get("mechanism").is_some_and(|mechanism| mechanism == "mps");
        (is_mps && !has_pipe).then(|| "without the pipe of its MPS".to_owned())
    })
}

/// The last change of a kind that was taken before a start; nothing where one of that kind was under way at the time.
fn last_before<'j>(
    job: &'j Job,
    start: &Start,
    is_it: impl Fn(Change) -> bool + 'j,
) -> Option<(&'j Done, Change)> {
    let begun = job.allocation_of(start).map_or(start.at, |allocation| allocation.at);
    let changes = job.done.iter().filter_map(|done| match done.deed {
        Deed::Change(Change::ReqNode(_)) if was_there(job, done) => None,
        Deed::Change(change) if done.accepted && is_it(change) => Some((done, change)),
        _ => None,
    });
    let before: Vec<_> = changes.filter(|(done, _)| done.span.from < begun).collect();
    before.last().copied().filter(|(done, _)| done.span.until < begun)
}

fn not_as_changed(job: &Job, start: &Start) -> Option<String> {
    let begun = job.allocation_of(start).map_or(start.at, |allocation| allocation.at);
    // It was seen outside the pool after something that its user did to it.
    let has_left = |done: &&Done| {
        let seen = done.after.as_ref().filter(|seen| seen.state == "PENDING");
        done.accepted && done.span.until < begun && seen.is_some_and(|seen| seen.partition != "shared")
    };
    if job.is_managed
        && start.partition == "shared"
        && let Some(done) = job.done.iter().find(has_left)
    {
        return Some(format!("it had left the pool by '{}', and ran there", done.deed));
    }
    let wrong = |change: Change, found: String| Some(format!("'{change}' was taken, and it {found}"));
    if let Some((_, change @ Change::Partition(name))) =
        last_before(job, start, |one| matches!(one, Change::Partition(_)))
        && start.partition != name
    {
        return wrong(change, format!("ran in {}", start.partition));
    }
    if let Some((_, change @ Change::Gpus(count))) =
        last_before(job, start, |one| matches!(one, Change::Gpus(_)))
        && (start.gpus.len() != count as usize || start.shards.is_some())
    {
        return wrong(change, format!("had the GPUs {:?}, shards {:?}", start.gpus, start.shards));
    }
    if let Some((_, change @ Change::ReqNode(node))) =
        last_before(job, start, |one| matches!(one, Change::ReqNode(_)))
        && !ran_on(job, start, node)
    {
        return wrong(change, format!("ran on {}", start.node));
    }
    if let Some((_, change @ Change::ExcNode(node))) =
        last_before(job, start, |one| matches!(one, Change::ExcNode(_)))
        && ran_on(job, start, node)
    {
        return wrong(change, format!("ran on {}", start.node));
    }
    let begins = |one| matches!(one, Change::StartNow | Change::StartIn(_));
    if let Some((done, change @ Change::StartIn(seconds))) = last_before(job, start, begins)
        && begun < done.span.from + f64::from(seconds) - SECOND
    {
        return wrong(change, format!("began {:.1} s later", begun - done.span.from));
    }
    None
}

/// Whether it was done while the job was on its nodes, by slurmctld's log: there Slurm takes `ReqNodeList` for the nodes that it keeps, and
/// what it asks for at its next start stays.
fn was_there(job: &Job, done: &Done) -> bool {
    let covers =
        |one: &Allocation| one.at < done.span.from && one.until.is_none_or(|until| until > done.span.until);
    job.allocations.iter().any(covers)
}

/// Whether this was one of its nodes.
fn ran_on(job: &Job, start: &Start, node: &str) -> bool {
    start.node == node || job.allocation_of(start).is_some_and(|allocation| allocation.has(node))
}

/// The time limit with which it ended is not the one that was taken last.
fn other_limit(job: &Job) -> Option<String> {
    let (wanted, _) = job
        .accepted(|deed| matches!(deed, Deed::Change(Change::TimeLimit(_))))
        .filter_map(|done| {
            if let Deed::Change(Change::TimeLimit(minutes)) = done.deed {
                Some((minutes, done))
            } else {
                None
            }
        })
        .last()?;
    let found = job.accounts.last()?.time_limit?;
    (found != wanted).then(|| format!("'TimeLimit={wanted}' was taken, and it ended with a limit of {found}"))
}
