//! No GPU is given out beyond what it has, and who shares one was to share it: by the jobs' own clocks.

use super::{Harm, HarmKind, clock};
use crate::storm::facts::{Facts, Span, Start};
use std::collections::BTreeMap;

/// A start that held a GPU for a while.
struct Tenancy<'f> {
    job: usize,
    start: &'f Start,
    span: Span,
    shards: u32,
}

pub(super) fn judge(facts: &Facts, harms: &mut Vec<Harm>) {
    for ((node, gpu), mut tenancies) in tenancies(facts) {
        tenancies.sort_by(|first, second| first.span.from.total_cmp(&second.span.from));
        for at in 0..tenancies.len() {
            let beside = beside(&tenancies, at);
            // At the moment of its start all of them are there.
            let shards: u32 = tenancies[at].shards + beside.iter().map(|other| other.shards).sum::<u32>();
            if shards > 100 {
                let names: Vec<&str> =
                    beside.iter().map(|other| facts.jobs[other.job].name.as_str()).collect();
                let text = format!(
                    "{node} GPU {gpu} at {}: {shards} shards in use, beside {}",
                    clock(facts, tenancies[at].span.from),
                    names.join(", ")
                );
                let job = Some(tenancies[at].job);
                harms.push(Harm { kind: HarmKind::Overbooked, job, text, excuse: None });
            }
            for other in beside {
                together(facts, &tenancies[at], other, harms);
            }
        }
    }
}

fn tenancies(facts: &Facts) -> BTreeMap<(&str, u32), Vec<Tenancy<'_>>> {
    let mut all: BTreeMap<(&str, u32), Vec<Tenancy<'_>>> = BTreeMap::new();
    for (index, job) in facts.jobs.iter().enumerate() {
        for start in &job.starts {
            let Some(span) = job.held(start) else { continue };
            // A whole GPU is all of its shards; of several there are as many of each.
            let gpu_count = u32::try_from(start.gpus.len()).unwrap_or(u32::MAX).max(1);
            let shards = start.shards.map_or(100, |all| all / gpu_count);
            for (node, gpus) in job.gpus_by_node(start) {
                for gpu in gpus {
                    let tenancy = Tenancy { job: index, start, span, shards };
                    all.entry((node, *gpu)).or_default().push(tenancy);
                }
            }
        }
    }
    all
}

/// Who was there already when the one at `at` came. In the order of begins; nobody stays for hours, so that the search goes
/// back over few.
fn beside<'t, 'f>(tenancies: &'t [Tenancy<'f>], at: usize) -> Vec<&'t Tenancy<'f>> {
    let begun = tenancies[at].span.from;
    tenancies[..at].iter().rev().take(200).filter(|other| other.span.holds(begun)).collect()
}

fn together(facts: &Facts, later: &Tenancy, earlier: &Tenancy, harms: &mut Vec<Harm>) {
    let (job, other) = (&facts.jobs[later.job], &facts.jobs[earlier.job]);
    let mut found = |kind, text| harms.push(Harm { kind, job: Some(later.job), text, excuse: None });
    let at = clock(facts, later.span.from);
    if job.order.user != other.order.user {
        let text = format!("on one GPU with {} of {} at {at}", other.name, other.order.user);
        found(HarmKind::Strangers, text);
    }
    if facts.decisions.is_empty() {
        return;
    }
    let group = |name: &str, start: &Start| {
        let is_it =
            |member: &&crate::storm::facts::Member| member.job == name && member.restarts == start.restarts;
        facts
            .decisions
            .iter()
            .rev()
            .find(|decision| decision.members.iter().any(|member| is_it(&member)))
            .map(|one| one.group)
    };
    let groups = (group(&job.name, later.start), group(&other.name, earlier.start));
    if groups.0.is_none() || groups.0 != groups.1 {
        found(HarmKind::Unplanned, format!("on one GPU with {} at {at}: decisions {groups:?}", other.name));
    }
}
