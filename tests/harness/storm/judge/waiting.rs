//! Nobody was held back for longer than the bound while a device that fits stood free. What plain Slurm or the user himself
//! makes a job wait for does not count: holds, dependencies, throttles, the two minutes after a requeue, begin times, nodes
//! that are away.

use super::runs::{awaited, holds};
use super::{Harm, HarmKind, RECOVERY_SECONDS, clock, slurm_away};
use crate::storm::facts::{BEGIN_REFUSED, Done, Facts, Job, Span};
use crate::storm::plan::{Broken, Change, Deed, GPUS_MAX, GPUS_PER_NODE, POOL_NODES, Part};
use std::collections::BTreeMap;

/// A released job that cannot start is given back after so long.
const LEASE_SECONDS: f64 = 30.0;
/// Slurm and a busy machine, from a begin time to a start.
const START_SECONDS: f64 = 15.0;
/// Slurm holds a requeued job back for two minutes.
const REQUEUE_SECONDS: f64 = 125.0;
/// A span in which no device is free for less than this, and one in which a device is free, count as they are; a free one of
/// less is between two jobs.
const FREE_SECONDS: f64 = 0.5;

/// How long a job may stand in front of a free device. Where things are broken a leader may die just after it moved the begin
/// time ahead: one bound more.
pub(super) fn limit(facts: &Facts) -> f64 {
    let bounds = if facts.outages.is_empty() { 1.0 } else { 2.0 };
    bounds * facts.bound_seconds + LEASE_SECONDS + START_SECONDS
}

pub(super) fn judge(facts: &Facts, harms: &mut Vec<Harm>) {
    let free = Free::of(facts);
    for (index, job) in facts.jobs.iter().enumerate().filter(|(_, job)| job.is_managed) {
        let blocked = blocked(facts, job);
        let mut since = job.submitted.until;
        for (number, allocation) in job.allocations.iter().enumerate() {
            let waits = Span { from: since, until: allocation.at };
            since = allocation.until.unwrap_or(allocation.at);
            // What its node loses, Slurm requeues by itself.
            let is_its = |part| matches!(part, Part::Slurmd(node) if allocation.has(node));
            let ran = Span { from: allocation.at, until: since + 1.0 };
            if slurm_away(facts, is_its).any(|span| span.meets(&ran)) {
                since += REQUEUE_SECONDS;
            }
            // Outside the pool it waits as every job there.
            if job.start_of(number).is_some_and(|start| start.partition != "shared") {
                continue;
            }
            let longest = longest_in(&waits, free.for_job(job), &blocked);
            if let Some(span) = longest.filter(|span| span.until - span.from > limit(facts)) {
                let text = format!(
                    "waited {:.0} s in front of a free device, from {} to {}",
                    span.until - span.from,
                    clock(facts, span.from),
                    clock(facts, span.until)
                );
                harms.push(Harm { kind: HarmKind::WaitedTooLong, job: Some(index), text, excuse: None });
            }
        }
    }
}

/// How long each managed job stood in front of a free device before its start, longest first.
pub(in crate::storm) fn waits(facts: &Facts) -> Vec<(f64, &Job)> {
    let free = Free::of(facts);
    let managed = facts.jobs.iter().filter(|job| job.is_managed);
    let waits = managed.filter_map(|job| {
        let waits = Span { from: job.submitted.until, until: job.allocations.first()?.at };
        let longest = longest_in(&waits, free.for_job(job), &blocked(facts, job));
        Some((longest.map_or(0.0, |span| span.until - span.from), job))
    });
    let mut waits: Vec<(f64, &Job)> = waits.collect();
    waits.sort_by(|(first, _), (second, _)| second.total_cmp(first));
    waits
}

/// How long each device of the pool stood free between two tenants, longest first; and whether nothing was broken then.
pub(in crate::storm) fn idle(facts: &Facts) -> Vec<(f64, bool)> {
    let is_calm = |span: &Span| {
        let mut outages = facts.outages.iter().map(|outage| outage.span);
        !outages.any(|one| Span { until: one.until + RECOVERY_SECONDS, ..one }.meets(span))
    };
    let of_device = |spans: &Vec<Span>| {
        let taken = at_least(spans.iter().copied(), 1);
        let between = taken.windows(2).map(|two| Span { from: two[0].until, until: two[1].from });
        between.map(|span| (span.until - span.from, is_calm(&span))).collect::<Vec<_>>()
    };
    let mut idle: Vec<(f64, bool)> = busy_pool(facts).values().flat_map(of_device).collect();
    idle.sort_by(|(first, _), (second, _)| second.total_cmp(first));
    idle
}

/// The longest piece of a span in which a device is free and nothing blocks the job.
fn longest_in(waits: &Span, free: &[Span], blocked: &[Span]) -> Option<Span> {
    let first = free.partition_point(|span| span.until <= waits.from);
    let mut longest: Option<Span> = None;
    for span in free[first..].iter().take_while(|span| span.from < waits.until) {
        let mut from = span.from.max(waits.from);
        let until = span.until.min(waits.until);
        for block in blocked {
            if block.from >= until || block.until <= from {
                continue;
            }
            keep_longer(&mut longest, Span { from, until: block.from });
            from = from.max(block.until);
        }
        keep_longer(&mut longest, Span { from, until });
    }
    longest
}

fn keep_longer(longest: &mut Option<Span>, span: Span) {
    let length = span.until - span.from;
    if length > 0.0 && longest.is_none_or(|longest| length > longest.until - longest.from) {
        *longest = Some(span);
    }
}

/// When the job could not have started anyway, in order.
fn blocked(facts: &Facts, job: &Job) -> Vec<Span> {
    let mut spans: Vec<Span> = holds(job).collect();
    for done in job.done.iter().filter(|done| done.accepted) {
        let from = done.span.from;
        spans.extend(match done.deed {
            Deed::Requeue => Some(Span { from, until: done.span.until + REQUEUE_SECONDS }),
            Deed::Change(Change::StartIn(seconds)) => {
                Some(Span { from, until: done.span.until + f64::from(seconds) })
            }
            // Where the begin time was not taken, or before Slurm set its own, the two minutes stand.
            Deed::RequeueNow if !is_pending(done) => {
                Some(Span { from, until: done.span.until + REQUEUE_SECONDS })
            }
            _ => None,
        });
    }
    spans.extend(dependency(facts, job));
    spans.extend(throttled(facts, job));
    spans.extend(slurm_away(facts, |part| part == Part::Slurmctld));
    spans.sort_by(|first, second| first.from.total_cmp(&second.from));
    spans
}

/// Its begin time is the one that was asked for.
fn is_pending(done: &Done) -> bool {
    let was_taken = !done.said.starts_with(BEGIN_REFUSED);
    was_taken && done.after.as_ref().is_some_and(|seen| seen.state == "PENDING")
}

fn dependency(facts: &Facts, job: &Job) -> Option<Span> {
    let ends = awaited(facts, job).map(|index| {
        let other = &facts.jobs[index];
        let last = other.allocations.last();
        // One that never ran ends when it is cancelled, or does not.
        let cancelled = other.accepted(|deed| deed == Deed::Cancel).next().map(|done| done.span.until);
        last.map_or(cancelled.unwrap_or(f64::INFINITY), |last| last.until.unwrap_or(f64::INFINITY))
    });
    let until = ends.reduce(f64::max)?;
    Some(Span { from: job.submitted.from, until })
}

/// From the moment at which as many tasks ran as may, by Slurm's log.
fn throttled(facts: &Facts, job: &Job) -> Vec<Span> {
    let Some(array) = job.order.array else { return Vec::new() };
    let siblings = facts.jobs.iter().filter(|other| other.order.number == job.order.number);
    let spans = siblings
        .filter(|other| other.task != job.task)
        .flat_map(|other| &other.allocations)
        .map(|one| Span { from: one.at, until: one.until.unwrap_or(f64::INFINITY) });
    at_least(spans, array.throttle as usize)
}

/// When so many of the spans overlap.
fn at_least(spans: impl Iterator<Item = Span>, count: usize) -> Vec<Span> {
    let mut edges: Vec<(f64, bool)> =
        spans.flat_map(|span| [(span.from, true), (span.until, false)]).collect();
    edges.sort_by(|first, second| first.0.total_cmp(&second.0).then(first.1.cmp(&second.1)));
    let (mut running, mut since, mut found) = (0_usize, None, Vec::new());
    for (at, begins) in edges {
        if begins {
            running += 1;
            if running == count {
                since = Some(at);
            }
        } else {
            if running == count
                && let Some(from) = since.take()
            {
                found.push(Span { from, until: at });
            }
            running = running.saturating_sub(1);
        }
    }
    found
}

/// When so many devices of a node were free, from one on; and when the same so many were of all nodes.
struct Free {
    of_one: Vec<Vec<Span>>,
    of_all: Vec<Vec<Span>>,
}

impl Free {
    fn of(facts: &Facts) -> Self {
        let busy = busy_pool(facts);
        let counts = 1..=GPUS_MAX as usize;
        Self {
            of_one: counts.clone().map(|count| free_of_one(&busy, count)).collect(),
            of_all: counts.map(|count| free_of_all(&busy, count)).collect(),
        }
    }
    fn for_job(&self, job: &Job) -> &[Span] {
        let of = if job.order.node_count > 1 { &self.of_all } else { &self.of_one };
        &of[job.order.gpus as usize - 1]
    }
}

/// When each device of the pool was taken, or its node away.
type Busy = BTreeMap<(&'static str, u32), Vec<Span>>;

fn busy_pool(facts: &Facts) -> Busy {
    let mut busy = Busy::new();
    let devices = POOL_NODES.iter().flat_map(|node| (0..GPUS_PER_NODE).map(move |gpu| (*node, gpu)));
    busy.extend(devices.map(|device| (device, Vec::new())));
    let mut take = |node: &str, gpus: &[u32], span: Span| {
        for (device, spans) in &mut busy {
            // Where it is not known which one, it was every one.
            if device.0 == node && (gpus.is_empty() || gpus.contains(&device.1)) {
                spans.push(span);
            }
        }
    };
    for job in &facts.jobs {
        for (number, one) in job.allocations.iter().enumerate() {
            let span = Span { from: one.at, until: one.until.unwrap_or(facts.ended_at) };
            let known = |node: &str| {
                let start = job.start_of(number)?;
                job.gpus_by_node(start).find(|(own, _)| *own == node).map(|(_, gpus)| gpus)
            };
            for node in &one.nodes {
                take(node, known(node).unwrap_or_default(), span);
            }
        }
    }
    for outage in &facts.outages {
        let away = match outage.broken {
            Broken::Process(Part::Slurmd(node), _) | Broken::Drain(node) | Broken::Reserve(node) => {
                Some(node)
            }
            _ => None,
        };
        if let Some(node) = away {
            take(node, &[], Span { from: outage.span.from, until: outage.span.until + RECOVERY_SECONDS });
        }
    }
    busy
}

/// When at least so many whole devices of one node were free, on a node that was there.
fn free_of_one(busy: &Busy, count: usize) -> Vec<Span> {
    let short = POOL_NODES.iter().flat_map(|node| {
        // A device is busy from the first of overlapping spans to the last.
        let own = busy.iter().filter(|(device, _)| device.0 == *node);
        let merged = own.flat_map(|(_, spans)| at_least(spans.iter().copied(), 1));
        at_least(merged, GPUS_PER_NODE as usize - count + 1)
    });
    all_but(at_least(short, POOL_NODES.len()))
}

/// When at least so many devices were free of all nodes at once, the same ones of each.
fn free_of_all(busy: &Busy, count: usize) -> Vec<Span> {
    let of_any = (0..GPUS_PER_NODE).flat_map(|gpu| {
        let of_each = busy.iter().filter(move |(device, _)| device.1 == gpu);
        at_least(of_each.flat_map(|(_, spans)| spans.iter().copied()), 1)
    });
    all_but(at_least(of_any, GPUS_PER_NODE as usize - count + 1))
}

/// The time outside of these spans; what is too short is none.
fn all_but(mut none_free: Vec<Span>) -> Vec<Span> {
    none_free.push(Span { from: f64::INFINITY, until: f64::INFINITY });
    let mut from = f64::NEG_INFINITY;
    let mut free = Vec::new();
    for taken in none_free {
        if taken.from - from > FREE_SECONDS {
            free.push(Span { from, until: taken.from });
        }
        from = taken.until;
    }
    free
}
