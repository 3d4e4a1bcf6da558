//! Tells of jobs that will probably run out of the device memory that they have: who is in an instance, or under a limit. Advice, once
//! a start (event `memory-growing`); nothing is done about it. `pillion acct` says how often it came true.

mod growth;

use crate::context::Context;
use crate::tick_error::TickError;
use growth::{Growth, Soon};
use pillion_core::decision::MemberState;
use pillion_core::device::TenantUse;
use pillion_core::event::EventKind;
use pillion_core::{GresType, JobStart, NodeName, UnixTime};
use pillion_slurm::Job;
use pillion_store::{Decision, Event, Member};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::info;

type Place = (NodeName, GresType);

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;
const MINUTE_SECONDS: f64 = 60.0;

pub struct Trend {
    context: Arc<Context>,
    /// Who was not told of yet.
    followed: Mutex<BTreeMap<JobStart, Followed>>,
}

#[derive(Debug, Default)]
struct Followed {
    growth: Growth,
    is_told: bool,
}

impl Trend {
    /// One that has seen nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, followed: Mutex::default() }
    }

    /// Looks once at everybody who has a bounded amount of memory.
    ///
    /// # Errors
    /// [`TickError`] where the store did not answer.
    pub async fn tick(&self) -> Result<(), TickError> {
        let context = &self.context;
        let active = Arc::clone(&context.board().active);
        let bounded = bounded(&active);
        self.lock().retain(|start, _| bounded.contains_key(start));
        if bounded.is_empty() || !context.is_leading() {
            return Ok(());
        }
        let Some(scan) = context.fresh_scan() else { return Ok(()) };
        let samples = context.agents.samples_of(bounded.values().map(|(place, _)| (&place.0, &place.1)));
        for (start, (place, member)) in &bounded {
            let (Some(sample), Some(job)) = (samples.get(place), scan.jobs.get(&start.job_id)) else {
                continue;
            };
            let is_own =
                |own: &&TenantUse| own.job_id == start.job_id && own.restart_count == start.restart_count;
            let Some(own) = sample.tenants.iter().find(is_own) else { continue };
            let Some((soon, limit_bytes)) = self.look(member, own, sample.at, time_left(job, sample.at))
            else {
                continue;
            };
            match self.tell(*start, &place.0, &detail(&soon, limit_bytes)).await {
                Ok(()) => self.lock().entry(*start).or_default().is_told = true,
                Err(error) => context.pass_over("trend", start, error)?,
            }
        }
        Ok(())
    }

    /// Whether it is to be told of now, and how much memory it has.
    fn look(
        &self,
        member: &Member,
        own: &TenantUse,
        at: UnixTime,
        time_left_seconds: Option<f64>,
    ) -> Option<(Soon, u64)> {
        let (limit_bytes, memory_bytes) = (limit(member, own)?, own.memory_bytes?);
        let mut followed = self.lock();
        let followed = followed.entry(member.plan.start).or_default();
        followed.growth.look(at, memory_bytes);
        if followed.is_told {
            return None;
        }
        Some((followed.growth.runs_out(limit_bytes, time_left_seconds)?, limit_bytes))
    }

    /// Tells it, unless whoever led before us did.
    async fn tell(&self, start: JobStart, node: &NodeName, detail: &str) -> Result<(), TickError> {
        let (context, kind) = (&self.context, EventKind::MemoryGrowing);
        let started_at = context.fresh_scan().and_then(|scan| scan.jobs.get(&start.job_id)?.started_at);
        let before = context.store.events(start.job_id).await?;
        if before.iter().any(|known| known.kind == kind && started_at.is_none_or(|began| known.at >= began)) {
            return Ok(());
        }
        info!(%start, %node, "{detail}");
        context.tally.event(&kind);
        let (at, job_id, node) = (context.now(), Some(start.job_id), Some(node.clone()));
        Ok(context.store.record_event(&Event { at, kind, job_id, node, detail: detail.to_owned() }).await?)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobStart, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who runs with an amount of memory that is not all of the device's, and where.
fn bounded(active: &[Decision]) -> BTreeMap<JobStart, (Place, &Member)> {
    let mut found = BTreeMap::new();
    for decision in active {
        for member in decision.members.iter().filter(|member| member.state == MemberState::Running) {
            let sharing = member.plan.sharing;
            if sharing.mig_slot().is_some() || sharing.memory_limit_bytes().is_some() {
                let place = (decision.node.clone(), decision.gres_type.clone());
                found.insert(member.plan.start, (place, member));
            }
        }
    }
    found
}

/// What it has: all of its instance, or a limit that holds for each of its processes, so that it says something where there is one.
fn limit(member: &Member, own: &TenantUse) -> Option<u64> {
    let plan = &member.plan;
    let limit = match plan.sharing.mig_slot() {
        Some(_) => plan.memory_bytes,
        None => plan.sharing.memory_limit_bytes().filter(|_| own.process_count == 1),
    };
    limit.filter(|bytes| *bytes > 0)
}

/// Until Slurm ends it; `None`: it does not.
fn time_left(job: &Job, now: UnixTime) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a time limit is far below 2^53 seconds")]
    let limit = job.time_limit_seconds? as f64;
    Some((limit - now.seconds_since(job.started_at?)).max(0.0))
}

/// For its user.
fn detail(soon: &Soon, limit_bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
    let (held, limit) = (soon.memory_bytes as f64 / GIB, limit_bytes as f64 / GIB);
    let a_minute = soon.bytes_per_second * MINUTE_SECONDS / MIB;
    let minutes = (soon.seconds / MINUTE_SECONDS).ceil();
    format!(
        "it holds {held:.1} of the {limit:.1} GiB of GPU memory that it has, and {a_minute:.0} MiB more each minute: at this pace it \
         runs out in {minutes:.0} min; write memory= with what it needs for the next one"
    )
}

#[cfg(test)]
mod tests;
