//! Every job ran once and to its end, or as often as it was requeued; not while it was held, cancelled or waiting for
//! another.

use super::{Harm, HarmKind, clock, slurm_away};
use crate::storm::facts::{Allocation, Done, Facts, Job, Span};
use crate::storm::plan::{After, Change, Deed, Kind, Part};
use std::collections::BTreeSet;

/// Slurm writes an end down before its log does, and a start after.
const LOG_SECONDS: f64 = 1.5;

pub(super) fn judge(facts: &Facts, harms: &mut Vec<Harm>) {
    for (index, job) in facts.jobs.iter().enumerate() {
        let mut found = |kind, text: String| harms.push(Harm { kind, job: Some(index), text, excuse: None });
        if job.name.is_empty() {
            if !slurm_away(facts, |part| part == Part::Slurmctld).any(|span| span.meets(&job.submitted)) {
                found(HarmKind::Refused, format!("sbatch said: {}", job.said));
            }
            continue;
        }
        if let Some((kind, text)) = how_it_ended(facts, job) {
            found(kind, text);
        }
        if let Some(text) = twice(facts, job) {
            found(HarmKind::RanTwice, text);
        }
        if let Some(text) = after_cancel(facts, job) {
            found(HarmKind::RanAfterCancel, text);
        }
        if let Some(text) = hold_lifted(facts, job) {
            found(HarmKind::HoldLifted, text);
        }
        if let Some(text) = dependency_broken(facts, job) {
            found(HarmKind::DependencyBroken, text);
        }
        if let Some(text) = throttle_broken(facts, job) {
            found(HarmKind::ThrottleBroken, text);
        }
    }
}

fn is_cancel(deed: Deed) -> bool {
    deed == Deed::Cancel
}

fn is_requeue(deed: Deed) -> bool {
    matches!(deed, Deed::Requeue | Deed::RequeueNow)
}

/// Whether its user wants what no node can give.
fn asks_for_the_impossible(job: &Job) -> bool {
    let changes: Vec<Change> = job
        .accepted(|_| true)
        .filter_map(|done| if let Deed::Change(change) = done.deed { Some(change) } else { None })
        .collect();
    let excluded = |node| changes.contains(&Change::ExcNode(node));
    changes.iter().any(|change| match change {
        Change::Bogus => true,
        Change::ReqNode(node) => excluded(node),
        _ => false,
    })
}

/// From a hold that was taken until its release was asked for.
pub(super) fn holds(job: &Job) -> impl Iterator<Item = Span> + '_ {
    job.accepted(|deed| deed == Deed::Hold).filter_map(|hold| {
        let has_begun = |one: &Allocation| {
            one.at <= hold.span.until && one.until.is_none_or(|until| until > hold.span.from)
        };
        if job.allocations.iter().any(has_begun) {
            return None;
        }
        let is_release = |done: &&Done| done.deed == Deed::Release && done.span.until > hold.span.from;
        let released = job.done.iter().filter(|done| done.accepted || done.is_unclear()).find(is_release);
        let until = released.map_or(f64::INFINITY, |done| done.span.from);
        (until > hold.span.until).then_some(Span { from: hold.span.until, until })
    })
}

/// Its user's, or root's, last word was a hold. One that a running job takes counts when the job is requeued.
fn is_left_held(job: &Job) -> bool {
    let said = |done: &&Done| match done.deed {
        Deed::Hold => done.accepted,
        Deed::Release => done.accepted || done.is_unclear(),
        _ => false,
    };
    job.done.iter().rfind(said).is_some_and(|done| done.deed == Deed::Hold)
}

fn others(facts: &Facts, number: usize) -> impl Iterator<Item = &Job> {
    facts.jobs.iter().filter(move |other| other.order.number == number)
}

/// What it waits for did not end well, so Slurm cancels it, as its user asked.
fn lost_its_dependency(facts: &Facts, job: &Job) -> bool {
    let Some(After::Ok(number)) = job.order.after else { return false };
    others(facts, number).any(|other| other.state() != "COMPLETED" || other.accounts.len() > 1)
}

/// Whom a job waits for, as indices of [`Facts::jobs`].
pub(super) fn awaited<'f>(facts: &'f Facts, job: &'f Job) -> impl Iterator<Item = usize> + 'f {
    let is_awaited = |other: &Job| match job.order.after {
        Some(After::Ok(number) | After::Any(number)) => other.order.number == number,
        Some(After::Singleton(_)) => {
            other.order.after == job.order.after
                && other.order.user == job.order.user
                && other.order.number < job.order.number
        }
        None => false,
    };
    facts.jobs.iter().enumerate().filter_map(move |(index, other)| is_awaited(other).then_some(index))
}

fn waits_for_a_lost_one(facts: &Facts, job: &Job) -> bool {
    awaited(facts, job).any(|other| facts.jobs[other].left.is_some())
}

fn how_it_ended(facts: &Facts, job: &Job) -> Option<(HarmKind, String)> {
    if let Some(seen) = &job.left {
        let waits_in_vain = waits_for_a_lost_one(facts, job)
            // Requeued by its user after Slurm had cancelled it for that: Slurm never lets it go.
            || (seen.reason == "DependencyNeverSatisfied" && lost_its_dependency(facts, job));
        if is_left_held(job) || asks_for_the_impossible(job) || waits_in_vain {
            return None;
        }
        let text = format!(
            "still {} ({}), in {} with priority {}, -w '{}', mark '{}', after {} starts{}",
            seen.state,
            seen.reason,
            seen.partition,
            seen.priority,
            seen.nodes,
            seen.mark,
            job.starts.len(),
            last_done(facts, job),
        );
        return Some((HarmKind::NeverRan, text));
    }
    let was_cancelled = job.accepted(is_cancel).next().is_some();
    match job.state() {
        "COMPLETED" => {
            let last = job.starts.last();
            let is_whole = last.is_some_and(|start| start.exit == Some(0));
            (!is_whole).then(|| {
                let how = last.map_or("it never got to its first line".to_owned(), |start| {
                    format!("its start at {} has no end", clock(facts, start.at))
                });
                (HarmKind::EndedWrong, format!("Slurm says COMPLETED, but {how}"))
            })
        }
        "CANCELLED" if was_cancelled || lost_its_dependency(facts, job) => None,
        // Lost before it was submitted: Slurm cancels it at once, and keeps nothing of it.
        "" if job.starts.is_empty() && lost_its_dependency(facts, job) => None,
        // What came between a cancel and its end: Slurm keeps the first. Of tasks that never began it keeps nothing.
        "" | "FAILED" | "REQUEUED" if was_cancelled => None,
        state => {
            let text = format!("it ended {state} after {} starts{}", job.starts.len(), last_done(facts, job));
            Some((HarmKind::EndedWrong, text))
        }
    }
}

/// What was done to it last.
fn last_done(facts: &Facts, job: &Job) -> String {
    let said = |done: &Done| {
        let who = if done.by_root { "root" } else { job.order.user };
        let answer = if done.accepted { "taken" } else { "refused" };
        format!("; {} by {who} at {} ({answer})", done.deed, clock(facts, done.span.from))
    };
    job.done.iter().rev().take(3).rev().map(said).collect()
}

fn twice(facts: &Facts, job: &Job) -> Option<String> {
    let mut counts = BTreeSet::new();
    if let Some(start) = job.starts.iter().find(|start| !counts.insert(start.restarts)) {
        let at = clock(facts, start.at);
        return Some(format!("two starts with restart count {}, the second at {at}", start.restarts));
    }
    let requeues = job.accepted(is_requeue).count();
    // Nobody but a guest is sent away here: the watch only advises.
    let made_room = if job.order.kind == Kind::Guest { job.made_room } else { 0 };
    (job.starts.len() > 1 + requeues + made_room).then(|| {
        let at: Vec<String> = job.starts.iter().map(|start| clock(facts, start.at)).collect();
        format!(
            "started at {}, though it was requeued {requeues} times and made room {made_room} times",
            at.join(", ")
        )
    })
}

fn after_cancel(facts: &Facts, job: &Job) -> Option<String> {
    let cancel = job.accepted(is_cancel).next()?;
    let is_revived = job.accepted(is_requeue).any(|done| done.span.until > cancel.span.from);
    let start = job.allocations.iter().find(|one| one.at > cancel.span.until + 0.1)?;
    (!is_revived).then(|| {
        format!("cancelled at {}, started at {}", clock(facts, cancel.span.from), clock(facts, start.at))
    })
}

fn hold_lifted(facts: &Facts, job: &Job) -> Option<String> {
    holds(job).find_map(|hold| {
        if let Some(start) = job.allocations.iter().find(|one| hold.holds(one.at)) {
            let (held, started) = (clock(facts, hold.from), clock(facts, start.at));
            return Some(format!("held since {held}, started at {started}"));
        }
        let is_free = |done: &&Done| {
            hold.from < done.span.from
                && done.span.until < hold.until
                && done.after.as_ref().is_some_and(|seen| seen.state == "PENDING" && seen.priority != "0")
        };
        job.done.iter().find(is_free).map(|done| {
            let (held, seen) = (clock(facts, hold.from), clock(facts, done.span.until));
            format!("held since {held}, and free to start at {seen}")
        })
    })
}

fn dependency_broken(facts: &Facts, job: &Job) -> Option<String> {
    let begun = job.allocations.first()?.at;
    let has_ended = |one: &Allocation| one.until.is_some_and(|until| until <= begun + LOG_SECONDS);
    match job.order.after? {
        After::Ok(number) | After::Any(number) => {
            let running = others(facts, number).find(|other| {
                let is_over = other.name.is_empty()
                    || other.accepted(is_cancel).next().is_some()
                    || other.allocations.iter().any(has_ended);
                !is_over
            })?;
            Some(format!("started at {} before {} had ended", clock(facts, begun), running.name))
        }
        After::Singleton(name) => {
            let together = facts.jobs.iter().find(|other| {
                other.order.after == Some(After::Singleton(name))
                    && other.order.user == job.order.user
                    && other.order.number < job.order.number
                    && other.submitted.until < job.submitted.from
                    && other.allocations.iter().any(|one| one.at < begun && !has_ended(one))
            })?;
            Some(format!("singleton started at {} beside {}", clock(facts, begun), together.name))
        }
    }
}

fn throttle_broken(facts: &Facts, job: &Job) -> Option<String> {
    let throttle = job.order.array?.throttle;
    let begun = job.starts.first()?.at;
    let tasks: Vec<&str> = others(facts, job.order.number)
        .filter(|other| {
            other.starts.iter().any(|start| other.held(start).is_some_and(|held| held.holds(begun)))
        })
        .map(|other| other.name.as_str())
        .collect();
    (tasks.len() > throttle as usize)
        .then(|| format!("{} ran at {}, {throttle} may", tasks.join(", "), clock(facts, begun)))
}
