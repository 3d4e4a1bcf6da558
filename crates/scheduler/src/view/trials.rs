//! The book of trials, from what is stored and what the watch has seen: what is being tried, what was seen of pairs under their caps,
//! how sharing fared by model of device and mechanism, and who is not tried. Pure.

use super::sources::{Sources, TrialSources, active_members};
use pillion_config::Watch;
use pillion_core::device::Mechanism;
use pillion_core::{GresType, JobStart, NodeName, SlurmJobId};
use pillion_pairing::{TrialBook, TrialKind, TrialRecord, TrialVerdict, WaitingJob, user_of};
use pillion_store::{Decision, Member};
use std::collections::{BTreeMap, BTreeSet};

/// Whose watch has not spoken after so long says nothing any more: a counter stands still, or counts too rarely.
const OPEN_SECONDS_MAX: f64 = 900.0;

type Company<'a> = Vec<(&'a Decision, &'a Member)>;

/// Everything that the planner knows of trials.
pub(super) fn book(waiting: &[WaitingJob], own: TrialSources<'_>, sources: Sources<'_>) -> TrialBook {
    let mut places: BTreeMap<(&NodeName, &GresType), Company<'_>> = BTreeMap::new();
    for (decision, member) in active_members(sources.decisions) {
        for place in decision.places() {
            places.entry(place).or_default().push((decision, member));
        }
    }
    let mut verdicts = own.history.verdicts.clone();
    verdicts.extend(sources.watched.iter().map(|(key, watched)| (key.clone(), watched.verdict.clone())));
    let mut open = Vec::new();
    for ((node, gres_type), company) in &places {
        let [(decision, a), (other, b)] = company[..] else { continue };
        let workloads = [a, b].map(|member| member.plan.workload.clone());
        let judged = own.speeds.get(&((*node).clone(), (*gres_type).clone()));
        let is_judged =
            judged.is_some_and(|speeds| [a, b].iter().all(|member| speeds.contains_key(&member.plan.start)));
        if !is_judged && (decision.trial.is_some() || other.trial.is_some()) && is_awaited([a, b], sources) {
            open.push(TrialKind::new(&*decision.device_model, decision.mechanism(), workloads));
        }
    }
    let records = records(verdicts.values(), 1.0 / sources.policy.slowdown_ratio_max.value());
    TrialBook {
        open,
        verdicts: verdicts.into_values().collect(),
        records,
        excluded: excluded(waiting, own, sources.steadfast),
        ..what_is_watched(sources)
    }
}

/// What the watch sees, which counts where nothing is tried as well.
pub(super) fn what_is_watched(sources: Sources<'_>) -> TrialBook {
    let watched = sources.watched.values().map(|watched| watched.verdict.clone()).collect();
    TrialBook { watched, ..TrialBook::default() }
}

/// Whether the watch can still be expected to speak.
fn is_awaited(company: [&Member; 2], sources: Sources<'_>) -> bool {
    let since = company.map(|member| member.started_at.map(|at| sources.scan.at.seconds_since(at)));
    since.iter().any(|seconds| seconds.is_none_or(|seconds| seconds < OPEN_SECONDS_MAX))
}

/// How sharing fared: a pair held where both were at least this fast. It is the word of whoever was slower: how fast a job goes, its
/// user says.
fn records<'a>(verdicts: impl Iterator<Item = &'a TrialVerdict>, speed_min: f64) -> Vec<TrialRecord> {
    let mut counts: BTreeMap<(&str, &str, Mechanism), (u32, u32)> = BTreeMap::new();
    for verdict in verdicts {
        let held =
            verdict.speed_fractions.is_some_and(|speeds| speeds.iter().all(|speed| *speed >= speed_min));
        let slower = verdict.speed_fractions.is_some_and(|[a, b]| b < a);
        let user = user_of(&verdict.kind.workloads[usize::from(slower)]);
        let (seen_count, held_count) =
            counts.entry((user, &verdict.kind.device_model, verdict.kind.mechanism)).or_default();
        *seen_count += 1;
        *held_count += u32::from(held);
    }
    let records = counts.into_iter().map(|((user, device_model, mechanism), (seen_count, held_count))| {
        let (user, device_model) = (user.to_owned(), device_model.to_owned());
        TrialRecord { user, device_model, mechanism, seen_count, held_count }
    });
    records.collect()
}

/// Who waits and would not be taken apart again.
fn excluded(
    waiting: &[WaitingJob],
    own: TrialSources<'_>,
    steadfast: &BTreeSet<JobStart>,
) -> BTreeSet<SlurmJobId> {
    let acts = |job: &WaitingJob| match job.rules {
        Some(rules) => rules.is_parted,
        None => own.pace.of(&job.partition) == Watch::Act,
    };
    let is_excluded =
        |job: &&WaitingJob| own.is_parting_unsafe || !acts(job) || steadfast.contains(&job.start);
    waiting.iter().filter(is_excluded).map(|job| job.start.job_id).collect()
}

#[cfg(test)]
mod tests;
