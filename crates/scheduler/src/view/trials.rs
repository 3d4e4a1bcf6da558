//! The book of trials, from what is stored and what the watch has seen: what is being tried, what was seen of pairs under their caps,
//! how sharing fared by model of device and mechanism, and who is not tried. Pure.

use super::sources::{Sources, TrialSources, active_members};
use pillion_store::{Decision, Member, StoredObservation};
use pillion_config::Watch;
use pillion_core::device::Mechanism;
use pillion_core::{GresType, NodeName, SlurmJobId};
use pillion_pairing::{Observation, TrialBook, TrialKind, TrialRecord, TrialVerdict, WaitingJob};
use std::collections::{BTreeMap, BTreeSet};

/// Whose watch has not spoken after so long says nothing any more: a counter stands still, or counts too rarely.
const OPEN_SECONDS_MAX: f64 = 900.0;

/// Two under their caps (their bits), on one model of device by one mechanism.
type Combination = (TrialKind, [Option<u64>; 2]);

/// What came of sharings of two before, the newest of each combination.
#[derive(Debug, Clone, Default)]
pub struct TrialHistory {
    horizon: u64,
    verdicts: BTreeMap<Combination, TrialVerdict>,
}

impl TrialHistory {
    /// The number of the last observation that was learnt.
    pub const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Learns observations, oldest first. Of what is not measured yet of all nothing is learnt; it comes again when it is.
    pub fn learn(&mut self, new: &[StoredObservation]) {
        for stored in new {
            self.horizon = self.horizon.max(stored.number);
            if let Some(verdict) = verdict_of(&stored.observation) {
                self.verdicts.insert(combination(&verdict), verdict);
            }
        }
    }
}

fn combination(verdict: &TrialVerdict) -> Combination {
    let caps = verdict.cap_fractions.map(|cap| cap.map(|cap| cap.value().to_bits()));
    (verdict.kind.clone(), caps)
}

fn verdict_of(seen: &Observation) -> Option<TrialVerdict> {
    let [a, b] = &seen.tenants[..] else { return None };
    let tenants = [a, b].map(|tenant| (tenant.workload.clone(), tenant.sharing.cap()));
    let speeds = if seen.fits { Some([a.speed_fraction?, b.speed_fraction?]) } else { None };
    Some(TrialVerdict::new(&*seen.device_model, seen.mechanism(), tenants, speeds))
}

type Company<'a> = Vec<(&'a Decision, &'a Member)>;

/// Everything that the planner knows of trials.
pub(super) fn book(waiting: &[WaitingJob], own: TrialSources<'_>, sources: Sources<'_>) -> TrialBook {
    let mut places: BTreeMap<(&NodeName, &GresType), Company<'_>> = BTreeMap::new();
    for (decision, member) in active_members(sources.decisions) {
        places.entry((&decision.node, &decision.gres_type)).or_default().push((decision, member));
    }
    let mut verdicts = own.history.verdicts.clone();
    let mut open = Vec::new();
    for ((node, gres_type), company) in &places {
        let [(decision, a), (other, b)] = company[..] else { continue };
        let tenants = [a, b].map(|member| (member.plan.workload.clone(), member.plan.sharing.cap()));
        let speeds = own.speeds.get(&((*node).clone(), (*gres_type).clone()));
        let speeds =
            speeds.and_then(|speeds| Some([*speeds.get(&a.plan.start)?, *speeds.get(&b.plan.start)?]));
        if speeds.is_some() {
            let verdict = TrialVerdict::new(&*decision.device_model, decision.mechanism(), tenants, speeds);
            verdicts.insert(combination(&verdict), verdict);
        } else if (decision.trial.is_some() || other.trial.is_some()) && is_awaited([a, b], sources) {
            let workloads = tenants.map(|(workload, _)| workload);
            open.push(TrialKind::new(&*decision.device_model, decision.mechanism(), workloads));
        }
    }
    let records = records(verdicts.values(), 1.0 / sources.policy.slowdown_ratio_max.value());
    TrialBook { open, verdicts: verdicts.into_values().collect(), records, excluded: excluded(waiting, own) }
}

/// Whether the watch can still be expected to speak.
fn is_awaited(company: [&Member; 2], sources: Sources<'_>) -> bool {
    let since = company.map(|member| member.started_at.map(|at| sources.scan.at.seconds_since(at)));
    since.iter().any(|seconds| seconds.is_none_or(|seconds| seconds < OPEN_SECONDS_MAX))
}

/// How sharing fared: a pair held where both were at least this fast.
fn records<'a>(verdicts: impl Iterator<Item = &'a TrialVerdict>, speed_min: f64) -> Vec<TrialRecord> {
    let mut counts: BTreeMap<(&str, Mechanism), (u32, u32)> = BTreeMap::new();
    for verdict in verdicts {
        let held =
            verdict.speed_fractions.is_some_and(|speeds| speeds.iter().all(|speed| *speed >= speed_min));
        let (seen_count, held_count) =
            counts.entry((&verdict.kind.device_model, verdict.kind.mechanism)).or_default();
        *seen_count += 1;
        *held_count += u32::from(held);
    }
    let records = counts.into_iter().map(|((device_model, mechanism), (seen_count, held_count))| {
        TrialRecord { device_model: device_model.to_owned(), mechanism, seen_count, held_count }
    });
    records.collect()
}

/// Who waits and would not be taken apart again.
fn excluded(waiting: &[WaitingJob], own: TrialSources<'_>) -> BTreeSet<SlurmJobId> {
    let acts = |job: &WaitingJob| job.partition.split(',').all(|name| own.pace.of(name) == Watch::Act);
    let is_excluded = |job: &&WaitingJob| !acts(job) || own.steadfast.contains(&job.start);
    waiting.iter().filter(is_excluded).map(|job| job.start.job_id).collect()
}

#[cfg(test)]
mod tests;
