//! Measures first runs while they run: what the engine has to know of a workload that nobody has seen before somebody may
//! join it (docs/decisions/0016-first-runs-as-hosts.md). Decides nothing: the rule is `pillion_pairing`'s. What is seen is kept
//! in memory only: a scheduler that is started again measures anew, and until then nobody joins. Of one that was joined it stands in
//! the joiner's decision.
//!
//! ```text
//! what agents saw ─► so_far (pure): blocks of seconds ─► FirstRun on the board ─► view ─► engine
//! ```

pub(crate) mod seen;
mod so_far;

use crate::context::Context;
use crate::tick_error::TickError;
use pillion_core::decision::MemberState;
use pillion_core::family::family_of;
use pillion_core::name::KnownName;
use pillion_core::{GresType, JobStart, NodeName, UnixTime, WorkloadKey};
use pillion_pairing::{FirstRun, may_join_first_run};
use pillion_store::{Decision, Member};
use seen::{FirstRunSeen, is_first_run};
use so_far::SoFar;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::info;

type Place = (NodeName, GresType);

/// See the module.
pub struct FirstRuns {
    context: Arc<Context>,
    seen: Mutex<BTreeMap<JobStart, SoFar>>,
}

impl FirstRuns {
    /// One that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, seen: Mutex::default() }
    }

    /// Looks once at every first run that others may join one day.
    ///
    /// # Errors
    /// [`TickError`] where the store did not say what their workloads are called; they were measured all the same.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let policy = &context.settings.policy;
        let may_host = context.settings.by_job().may_host_first_runs();
        let is_wanted = may_host && !context.board().is_parting_unsafe;
        if !is_wanted || !context.is_leading() {
            self.lock().clear();
            context.board_mut().first_runs.clear();
            return Ok(());
        }
        let active = Arc::clone(&context.board().active);
        let running = first_runs(&active);
        let starts: BTreeSet<JobStart> = running.iter().map(|(_, (_, member))| member.plan.start).collect();
        self.lock().retain(|start, _| starts.contains(start));
        context.board_mut().first_runs.retain(|start, _| starts.contains(start));
        self.remember_joined(&active);
        let named = self.families(&running).await;
        let unnamed = BTreeMap::new();
        let families = named.as_ref().unwrap_or(&unnamed);
        let samples = context.agents.samples_of(running.keys().map(|(node, gres_type)| (node, gres_type)));
        for (place, sample) in &samples {
            let (decision, member) = running[place];
            let start = member.plan.start;
            let mut first = {
                let mut seen = self.lock();
                let so_far = seen.entry(start).or_insert_with(|| SoFar::new(policy.first_run_seconds_min));
                if !so_far.add(start, sample) {
                    continue;
                }
                so_far.first_run(&member.plan.workload, &decision.device_model)
            };
            // Its earlier versions and other sizes tell what to expect of it.
            first.profile.family = families.get(&member.plan.workload).cloned();
            let was_joinable = self.joinable_since(start);
            let is_joinable = may_join_first_run(&first, policy).is_ok();
            let known = FirstRunSeen {
                joinable_since: is_joinable.then(|| was_joinable.unwrap_or(sample.at)),
                first,
            };
            if is_joinable && was_joinable.is_none() {
                let (node, gres_type) = place;
                info!(%start, %node, device = %gres_type, seconds = known.first.measured_seconds, "a first run may be joined");
                context.nudges.engine.notify_one();
            }
            context.board_mut().first_runs.insert(start, Arc::new(known));
        }
        named.map(|_| ())
    }

    /// The families of their workloads, by what people call these now.
    async fn families(
        &self,
        running: &BTreeMap<Place, (&Decision, &Member)>,
    ) -> Result<BTreeMap<WorkloadKey, String>, TickError> {
        let workloads: BTreeSet<_> = running.values().map(|(_, member)| &member.plan.workload).collect();
        if workloads.is_empty() {
            return Ok(BTreeMap::new());
        }
        let workloads: Vec<WorkloadKey> = workloads.into_iter().cloned().collect();
        let names = self.context.store.workload_names(&workloads).await?;
        let family = |(workload, known): (WorkloadKey, KnownName)| {
            let family = family_of(&workload, &known.name)?;
            Some((workload, family))
        };
        Ok(names.into_iter().filter_map(family).collect())
    }

    /// Of whom others have joined, what was seen before stands in their decision: whoever begins to lead reads it there.
    fn remember_joined(&self, active: &[Decision]) {
        let mut board = self.context.board_mut();
        for (start, joined) in joined_first_runs(active) {
            board.first_runs.entry(start).or_insert_with(|| Arc::new(joined));
        }
    }

    fn joinable_since(&self, start: JobStart) -> Option<UnixTime> {
        self.context.board().first_runs.get(&start).and_then(|seen| seen.joinable_since)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobStart, SoFar>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// First runs beside which others run, with what was seen before these came.
fn joined_first_runs(active: &[Decision]) -> impl Iterator<Item = (JobStart, FirstRunSeen)> {
    let is_there = |member: &&Member| member.state == MemberState::Running;
    let joined =
        active.iter().filter(move |decision| decision.members.iter().any(|member| is_there(&member)));
    joined.filter_map(move |decision| {
        let first = FirstRun::clone(decision.first_run.as_deref()?);
        let here = active.iter().filter(|other| other.group == decision.group);
        let host =
            here.flat_map(|other| &other.members).filter(is_there).find(|member| is_first_run(member))?;
        Some((host.plan.start, FirstRunSeen { first, joinable_since: Some(decision.created_at) }))
    })
}

/// First runs that have their device to themselves, by where they run. Whoever was joined is measured no more: what was seen
/// of him alone stands.
fn first_runs(active: &[Decision]) -> BTreeMap<Place, (&Decision, &Member)> {
    let mut tenants: BTreeMap<Place, Vec<(&Decision, &Member)>> = BTreeMap::new();
    for decision in active {
        // Whoever has several devices is joined by nobody.
        let Some(only) = decision.gres_types.only() else { continue };
        for member in decision.members.iter().filter(|member| member.state == MemberState::Running) {
            let place = (decision.node.clone(), only.clone());
            tenants.entry(place).or_default().push((decision, member));
        }
    }
    let hosts = tenants.into_iter().filter_map(|(place, tenants)| {
        let first = tenants.into_iter().find(|(_, member)| is_first_run(member))?;
        Some((place, first))
    });
    hosts.collect()
}

#[cfg(test)]
mod tests;
