//! What one tenant's run says of a sharing: who was really beside it, and how it went. Whoever was beside changing
//! partners, or beside somebody it was not planned with, teaches nothing about anybody.

use super::speed::MeasuredSpeed;
use pillion_core::decision::MemberState;
use pillion_core::device::{COPIES_MAX, TENANTS_MAX};
use pillion_core::report::JobSummary;
use pillion_core::workload::is_session;
use pillion_core::{JobStart, UnixTime, WorkloadKey};
use pillion_pairing::CopyKind;
use pillion_slurm::Ending;
use pillion_store::{
    Decision, MeasuredRun, Member, NewObservation, SharingTenant, Store, StoreError, StoredProfile,
};
use std::collections::{BTreeMap, BTreeSet};

/// The part of its shared time that a tenant must have spent beside the same partners.
const SAME_PARTNERS_FRACTION_MIN: f64 = 0.9;

/// The part of it in which there were as many copies of one workload. Each place that is left and taken again stands free for a
/// moment, and many do while a run lasts; with one less for so long the speed of all is hardly another.
const SAME_COUNT_FRACTION_MIN: f64 = 0.8;

/// Another tenant of the device.
struct Neighbour {
    tenant: SharingTenant,
    from: UnixTime,
    /// Absent = it still runs.
    until: Option<UnixTime>,
    memory_bytes_peak: Option<u64>,
    has_failed: bool,
}

impl Neighbour {
    /// While it still runs, it was there to the end of `run`.
    fn until_in(&self, run: &JobSummary) -> UnixTime {
        self.until.unwrap_or(run.ended_at)
    }
}

/// What this run says of its sharing; `None` where it says nothing.
pub(super) async fn observe(
    store: &dyn Store,
    run: &MeasuredRun,
    measured: Option<MeasuredSpeed>,
    profiles: &[StoredProfile],
) -> Result<Option<NewObservation>, StoreError> {
    let (Some(decision), Some(own)) = (&run.decision, run.own_member()) else { return Ok(None) };
    // In an instance nobody met anybody: what its neighbours were says nothing.
    let is_walled = own.plan.sharing.mechanism().has_instances();
    // Those who share several devices met on each of them: once is enough.
    if is_walled
        || run.is_told_by_another()
        || is_session(&own.plan.workload)
        || run.summary.neighbours.is_empty()
        || !has_launched(store, run.summary.start, decision).await?
    {
        return Ok(None);
    }
    let mut neighbours = Vec::new();
    for start in &run.summary.neighbours {
        let Some(neighbour) = neighbour(store, *start, decision).await? else { return Ok(None) };
        neighbours.push(neighbour);
    }
    // What an interactive job did meanwhile is not what it does.
    if neighbours.iter().any(|neighbour| is_session(&neighbour.tenant.workload)) {
        return Ok(None);
    }
    let partners = if are_copies(own, &neighbours, &run.device_model) {
        copies(&run.summary, neighbours)
    } else {
        partners(&run.summary, neighbours)
    };
    let Some(partners) = partners else { return Ok(None) };
    let peak_of = |workload: &WorkloadKey, seen: Option<u64>| {
        let known = profiles
            .iter()
            .map(|stored| &stored.profile)
            .find(|profile| profile.workload == *workload && profile.device_model == run.device_model);
        known.and_then(|profile| profile.memory_bytes_peak).max(seen)
    };
    let fits = fits(run, own, &partners, peak_of);
    if measured.is_none() && fits {
        return Ok(None);
    }
    let (from, until) = together(&run.summary, &partners);
    let (node, gres_type) = (&run.node, &run.summary.gres_type);
    let power_watts =
        if from < until { store.power_watts_mean(node, gres_type, from, until).await? } else { None };
    Ok(Some(observation(run, (decision, own), partners, measured, power_watts, fits)))
}

fn observation(
    run: &MeasuredRun,
    (decision, own): (&Decision, &Member),
    partners: Vec<Neighbour>,
    measured: Option<MeasuredSpeed>,
    power_watts: Option<f64>,
    fits: bool,
) -> NewObservation {
    let mut tenants: Vec<SharingTenant> = partners.into_iter().map(|partner| partner.tenant).collect();
    tenants.push(tenant(own));
    tenants.sort_by_key(|tenant| tenant.start);
    NewObservation {
        group: decision.group,
        device_model: run.device_model.clone(),
        tenants,
        power_watts,
        fits,
        own: run.summary.start,
        speed_fraction: measured.map(|measured| measured.speed_fraction),
        speed_fraction_deviation: measured.and_then(|measured| measured.deviation),
        is_self_reported: measured.is_some_and(|measured| measured.is_self_reported),
    }
}

fn tenant(member: &Member) -> SharingTenant {
    SharingTenant {
        start: member.plan.start,
        workload: member.plan.workload.clone(),
        sharing: member.plan.sharing.limited_to(None),
    }
}

/// Whether every task of a start began under the decision: without it, it had neither the mechanism nor its cap.
pub(super) async fn has_launched(
    store: &dyn Store,
    start: JobStart,
    decision: &Decision,
) -> Result<bool, StoreError> {
    let launches = store.launches(start).await?;
    Ok(launches.iter().all(|launch| launch.decision_id == Some(decision.id)))
}

/// A start that was seen on the device; `None` where it was not planned into this group.
async fn neighbour(
    store: &dyn Store,
    start: JobStart,
    decision: &Decision,
) -> Result<Option<Neighbour>, StoreError> {
    let decisions = store.decisions_of(start.job_id).await?;
    let planned = decisions.iter().filter(|other| other.group == decision.group).find_map(|other| {
        let member = other.members.iter().find(|member| {
            let has_run =
                matches!(member.state, MemberState::Released | MemberState::Running | MemberState::Ended);
            member.plan.start == start && has_run
        });
        Some((other, member?))
    });
    let Some((other, member)) = planned else { return Ok(None) };
    if !has_launched(store, start, other).await? {
        return Ok(None);
    }
    let summary = store.summary(start).await?;
    let job = store.job(start.job_id).await?.filter(|job| job.restart_count == start.restart_count);
    let Some(from) = summary.as_ref().map(|summary| summary.started_at).or(member.started_at) else {
        return Ok(None);
    };
    Ok(Some(Neighbour {
        tenant: tenant(member),
        from,
        until: summary.as_ref().map(|summary| summary.ended_at),
        memory_bytes_peak: summary.and_then(|summary| summary.memory_bytes_peak),
        has_failed: job.is_some_and(|job| job.ending == Some(Ending::Failed)),
    }))
}

/// Those who were there together for nearly all of the shared time; `None` where they changed.
fn partners(run: &JobSummary, neighbours: Vec<Neighbour>) -> Option<Vec<Neighbour>> {
    if let [_] = neighbours.as_slice() {
        return Some(neighbours);
    }
    let present = spans(run, &neighbours);
    let mut seconds: BTreeMap<BTreeSet<usize>, f64> = BTreeMap::new();
    for (there, span) in present {
        *seconds.entry(there).or_default() += span;
    }
    let most = longest(seconds, SAME_PARTNERS_FRACTION_MIN)?;
    (most.len() < TENANTS_MAX as usize).then(|| {
        let chosen = neighbours.into_iter().enumerate().filter(|(index, _)| most.contains(index));
        chosen.map(|(_, neighbour)| neighbour).collect()
    })
}

/// Whether all of them, and the run itself, are copies of one workload that share the device in one way.
fn are_copies(own: &Member, neighbours: &[Neighbour], device_model: &str) -> bool {
    let kind = |tenant: &SharingTenant| CopyKind::new(&tenant.workload, device_model, tenant.sharing);
    let of_own = kind(&tenant(own));
    neighbours.iter().all(|neighbour| kind(&neighbour.tenant) == of_own)
}

/// Copies stand for each other: one that ends and whose place another takes changes nothing. As many as were there for nearly all of
/// the shared time, those that were there the longest; `None` where they were now more and now fewer.
fn copies(run: &JobSummary, neighbours: Vec<Neighbour>) -> Option<Vec<Neighbour>> {
    let mut of_each = vec![0.0; neighbours.len()];
    let mut seconds: BTreeMap<usize, f64> = BTreeMap::new();
    for (there, span) in spans(run, &neighbours) {
        for index in &there {
            of_each[*index] += span;
        }
        *seconds.entry(there.len()).or_default() += span;
    }
    // Whoever was looked at for a moment only, with one beside it, says what it says.
    let count = if neighbours.len() == 1 { 1 } else { longest(seconds, SAME_COUNT_FRACTION_MIN)? };
    let mut of_all: Vec<(f64, Neighbour)> = of_each.into_iter().zip(neighbours).collect();
    of_all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    (count < COPIES_MAX as usize)
        .then(|| of_all.into_iter().take(count).map(|(_, neighbour)| neighbour).collect())
}

/// What was so for nearly all of the time.
fn longest<K: Ord>(seconds: BTreeMap<K, f64>, fraction_min: f64) -> Option<K> {
    let total: f64 = seconds.values().sum();
    let (most, longest) = seconds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (longest > 0.0 && longest >= fraction_min * total).then_some(most)
}

/// Who was beside the run, from change to change, and for how many seconds.
fn spans(run: &JobSummary, neighbours: &[Neighbour]) -> Vec<(BTreeSet<usize>, f64)> {
    let (begin, end) = (run.started_at.seconds(), run.ended_at.seconds());
    let mut edges: Vec<f64> = neighbours
        .iter()
        .flat_map(|neighbour| [neighbour.from, neighbour.until_in(run)])
        .map(|edge| edge.seconds().clamp(begin, end))
        .collect();
    edges.sort_by(f64::total_cmp);
    let mut spans = Vec::new();
    for two in edges.windows(2) {
        let middle = f64::midpoint(two[0], two[1]);
        let there = neighbours.iter().enumerate().filter(|(_, neighbour)| {
            neighbour.from.seconds() <= middle && middle <= neighbour.until_in(run).seconds()
        });
        let present: BTreeSet<usize> = there.map(|(index, _)| index).collect();
        if !present.is_empty() {
            spans.push((present, two[1] - two[0]));
        }
    }
    spans
}

/// From when to when all of them were there.
fn together(run: &JobSummary, partners: &[Neighbour]) -> (UnixTime, UnixTime) {
    let (mut from, mut until) = (run.started_at, run.ended_at);
    for partner in partners {
        if partner.from > from {
            from = partner.from;
        }
        if partner.until_in(run) < until {
            until = partner.until_in(run);
        }
    }
    (from, until)
}

/// Whether they had room together. Slurm's own word for out of memory is about the host's; a device that is full is seen
/// as a job that fails. That it was the device is certain only where the peaks leave no other way.
fn fits(
    run: &MeasuredRun,
    own: &Member,
    partners: &[Neighbour],
    peak_of: impl Fn(&WorkloadKey, Option<u64>) -> Option<u64>,
) -> bool {
    let has_failed = run.job.ending == Some(Ending::Failed) || partners.iter().any(|one| one.has_failed);
    let others = partners.iter().map(|one| peak_of(&one.tenant.workload, one.memory_bytes_peak));
    let peaks = others.chain([peak_of(&own.plan.workload, run.summary.memory_bytes_peak)]);
    // Of whom nothing is known, nothing is certain: what is known of the others must be too much by itself.
    let need = peaks.flatten().fold(0, u64::saturating_add);
    !(has_failed && run.device_memory_bytes > 0 && need > run.device_memory_bytes)
}

#[cfg(test)]
mod tests;
