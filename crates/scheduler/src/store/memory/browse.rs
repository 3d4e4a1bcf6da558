//! What people look at, from the maps: the plain meaning of what Postgres computes.

use super::state::State;
use crate::store::{Decision, DecisionFilter, Heat, HeatCell, HeatFilter, Member, Occupancy, Tenant};
use pillion_core::units::keeps_promise;
use pillion_core::{GresType, NodeName, SlurmJobId, WorkloadKey};
use std::collections::BTreeMap;

/// Sums of one cell: of slowdowns, of foretold slowdowns with their number, of energy beside and alone.
#[derive(Debug, Default)]
struct Sums {
    count: u32,
    slowdown: f64,
    predicted: (f64, u32),
    energy: (f64, f64),
    broken: u32,
}

fn mean(sum: f64, count: u32) -> Option<f64> {
    (count > 0).then(|| sum / f64::from(count))
}

impl State {
    /// What the filter asks beyond time, state and job.
    pub(super) fn is_asked_for(&self, decision: &Decision, filter: &DecisionFilter) -> bool {
        // Whoever asks as a user is told of his own members only: a filter must not find out who sat beside them.
        let is_shown = |member: &Member| filter.uid.is_none_or(|uid| member.plan.uid == uid);
        let runs = |member: &Member, workload: &String| {
            member.plan.workload.as_str() == workload && is_shown(member)
        };
        let is_beside = |beside: &String| {
            let all = || self.of_group(decision.group).flat_map(|tenancy| &tenancy.members);
            let wanted = |one: &&Member| filter.workload.as_ref().is_some_and(|workload| runs(one, workload));
            all()
                .filter(wanted)
                .any(|one| all().any(|other| other.plan.start != one.plan.start && runs(other, beside)))
        };
        (filter.uid.is_none() || decision.members.iter().any(is_shown))
            && (filter.nodes.is_empty() || filter.nodes.contains(&decision.node))
            && filter.group.is_none_or(|group| decision.group == group)
            && filter.before.is_none_or(|before| decision.id < before)
            && filter
                .workload
                .as_ref()
                .is_none_or(|workload| decision.members.iter().any(|member| runs(member, workload)))
            && filter.beside.as_ref().is_none_or(is_beside)
    }

    fn holders(&self) -> impl Iterator<Item = (&Decision, &Member)> {
        let active = self.all_decisions().filter(|decision| decision.state.is_active());
        active
            .flat_map(|decision| decision.members.iter().map(move |member| (decision, member)))
            .filter(|(_, member)| member.state.is_active())
    }

    pub(super) fn occupancy(&self) -> Vec<Occupancy> {
        let mut counts: BTreeMap<(NodeName, GresType), u32> = BTreeMap::new();
        for (decision, _) in self.holders() {
            *counts.entry((decision.node.clone(), decision.gres_type.clone())).or_default() += 1;
        }
        let row = |((node, gres_type), tenant_count)| Occupancy { node, gres_type, tenant_count };
        counts.into_iter().map(row).collect()
    }

    pub(super) fn tenants(&self, nodes: &[NodeName]) -> Vec<Tenant> {
        self.tenants_that(|decision, _| nodes.contains(&decision.node))
    }

    pub(super) fn tenancies(&self, jobs: &[SlurmJobId]) -> Vec<Tenant> {
        self.tenants_that(|_, member| jobs.contains(&member.plan.start.job_id))
    }

    fn tenants_that(&self, is_meant: impl Fn(&Decision, &Member) -> bool) -> Vec<Tenant> {
        let there = self.holders().filter(|(decision, member)| is_meant(decision, member));
        let tenant = |(decision, member): (&Decision, &Member)| {
            let plan = &member.plan;
            Tenant {
                decision_id: decision.id,
                node: decision.node.clone(),
                gres_type: decision.gres_type.clone(),
                job_id: plan.start.job_id,
                uid: plan.uid,
                user: self.jobs.get(&plan.start.job_id).map(|job| job.user.clone()),
                workload: plan.workload.clone(),
                role: plan.role,
                state: member.state,
                sharing: plan.sharing.limited_to(None),
                shards: plan.shards,
                speed_fraction: plan.estimate.as_ref().map(|estimate| estimate.speed_fraction),
                started_at: member.started_at,
            }
        };
        there.map(tenant).collect()
    }

    pub(super) fn heat(&self, filter: &HeatFilter) -> Heat {
        let is_meant = |member: &Member| {
            member.measured_speed_fraction.is_some_and(|speed| speed > 0.0)
                && member.ended_at.is_some_and(|ended| ended >= filter.since && ended < filter.until)
                && filter.workload.as_ref().is_none_or(|it| member.plan.workload.as_str() == it)
                && filter.uid.is_none_or(|uid| member.plan.uid == uid)
        };
        let mut outcomes: Vec<(&Decision, &Member)> = self
            .all_decisions()
            .flat_map(|decision| decision.members.iter().map(move |member| (decision, member)))
            .filter(|(_, member)| is_meant(member))
            .collect();
        let ended = |member: &Member| member.ended_at.map_or(0.0, pillion_core::UnixTime::seconds);
        outcomes.sort_by(|(_, a), (_, b)| ended(b).total_cmp(&ended(a)));
        outcomes.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        let mut cells: BTreeMap<(WorkloadKey, WorkloadKey), Sums> = BTreeMap::new();
        for (decision, member) in &outcomes {
            for other in self.neighbours(decision, member, filter) {
                let key = (member.plan.workload.clone(), other.plan.workload.clone());
                self.count(cells.entry(key).or_default(), decision, member);
            }
        }
        let mut cells: Vec<HeatCell> = cells.into_iter().filter_map(cell).collect();
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.outcome_count));
        let outcome_count =
            if cells.is_empty() { 0 } else { u32::try_from(outcomes.len()).unwrap_or(u32::MAX) };
        Heat { cells, outcome_count }
    }

    /// Who ran on the device at the same time.
    fn neighbours<'a>(
        &'a self,
        decision: &Decision,
        member: &'a Member,
        filter: &'a HeatFilter,
    ) -> impl Iterator<Item = &'a Member> {
        let others = self.of_group(decision.group).flat_map(|tenancy| &tenancy.members);
        others.filter(move |other| {
            let is_before_end = other.started_at.zip(member.ended_at).is_some_and(|(start, end)| start < end);
            let is_after_start =
                member.started_at.is_some_and(|start| other.ended_at.is_none_or(|end| end > start));
            let is_shown = filter.uid.is_none_or(|uid| other.plan.uid == uid);
            other.plan.start != member.plan.start && is_before_end && is_after_start && is_shown
        })
    }

    fn count(&self, sums: &mut Sums, decision: &Decision, member: &Member) {
        let speed = member.measured_speed_fraction.unwrap_or(1.0);
        sums.count += 1;
        sums.slowdown += speed.recip();
        sums.broken += u32::from(!keeps_promise(speed, member.plan.slowdown_ratio_max));
        if let Some(estimate) = member.plan.estimate.as_ref().filter(|it| it.speed_fraction > 0.0) {
            sums.predicted.0 += estimate.speed_fraction.recip();
            sums.predicted.1 += 1;
        }
        let profile = self.profiles.get(&(member.plan.workload.clone(), decision.device_model.clone()));
        let alone = profile.and_then(|stored| stored.profile.energy_joules).filter(|joules| *joules > 0.0);
        if let Some((own, alone)) = member.energy_joules.zip(alone) {
            sums.energy.0 += own;
            sums.energy.1 += alone;
        }
    }
}

fn cell(((workload, beside), sums): ((WorkloadKey, WorkloadKey), Sums)) -> Option<HeatCell> {
    Some(HeatCell {
        workload,
        beside,
        outcome_count: sums.count,
        slowdown_ratio: mean(sums.slowdown, sums.count)?,
        predicted_slowdown_ratio: mean(sums.predicted.0, sums.predicted.1),
        energy_ratio: (sums.energy.1 > 0.0).then(|| sums.energy.0 / sums.energy.1),
        promises_broken: sums.broken,
    })
}
