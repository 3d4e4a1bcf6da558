//! Tells of jobs that will probably run out of the device memory that they have: who is in an instance, or under a limit. Advice, once
//! a start (event `memory-growing`); `pillion acct` says how often it came true. Where it is all but certain, and its user lets it
//! (`restart=early`), a job is started again with more, which is `early`'s to say.

mod early;
mod growth;

use crate::analysis::mebibytes;
use crate::context::Context;
use crate::failure::requeue::comes_back_alone;
use crate::scan::mark_of;
use crate::tick_error::TickError;
use early::Case;
use growth::{Growth, Soon};
use pillion_core::decision::MemberState;
use pillion_core::device::TenantUse;
use pillion_core::event::EventKind;
use pillion_core::{GresType, JobStart, NodeName, UnixTime};
use pillion_slurm::Job;
use pillion_store::{Decision, Event, Member, Requeue, RequeueCause};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::info;

type Place = (NodeName, GresType);

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;
const MINUTE_SECONDS: f64 = 60.0;

pub struct Trend {
    context: Arc<Context>,
    followed: Mutex<BTreeMap<JobStart, Followed>>,
}

#[derive(Debug, Default)]
struct Followed {
    growth: Growth,
    is_told: bool,
    /// Slurm was asked about it, or it is intended: once a start.
    is_settled: bool,
}

/// Somebody who will probably run out, as he was seen.
struct Found<'a> {
    member: &'a Member,
    place: &'a Place,
    job: &'a Job,
    at: UnixTime,
    soon: Soon,
    limit_bytes: u64,
    is_told: bool,
    is_settled: bool,
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
            let Some(found) = self.look((member, place), own, (job, sample.at)) else { continue };
            if let Err(error) = self.see_to(&found).await {
                context.pass_over("trend", start, error)?;
            }
        }
        Ok(())
    }

    /// Whether it will probably run out of what it has.
    fn look<'a>(
        &self,
        (member, place): (&'a Member, &'a Place),
        own: &TenantUse,
        (job, at): (&'a Job, UnixTime),
    ) -> Option<Found<'a>> {
        let (limit_bytes, memory_bytes) = (limit(member, own)?, own.memory_bytes?);
        let mut followed = self.lock();
        let followed = followed.entry(member.plan.start).or_default();
        followed.growth.look(at, memory_bytes);
        let Followed { is_told, is_settled, .. } = *followed;
        let soon = followed.growth.runs_out(limit_bytes, time_left(job, at))?;
        Some(Found { member, place, job, at, soon, limit_bytes, is_told, is_settled })
    }

    /// Tells it, and has it started again where that is wanted and worth it. Each once: what failed is done at the next look.
    async fn see_to(&self, found: &Found<'_>) -> Result<(), TickError> {
        let start = found.member.plan.start;
        if !found.is_settled && self.start_again(found).await? {
            let mut followed = self.lock();
            let followed = followed.entry(start).or_default();
            (followed.is_told, followed.is_settled) = (true, true);
        } else if !found.is_told {
            self.tell(start, &found.place.0, &detail(&found.soon, found.limit_bytes)).await?;
            self.lock().entry(start).or_default().is_told = true;
        }
        Ok(())
    }

    /// Intends that it is started again with more memory, where its user lets it be ended for that. `false`: it goes on.
    async fn start_again(&self, found: &Found<'_>) -> Result<bool, TickError> {
        let (context, start, node) = (&self.context, found.member.plan.start, &found.place.0);
        let Some(memory_bytes) = self.memory_for(found) else { return Ok(false) };
        let allowed = context.slurm.allows_requeue(start.job_id).await;
        if !allowed.map_err(TickError::slurm("ask for a job"))? {
            self.lock().entry(start).or_default().is_settled = true;
            return Ok(false);
        }
        let (requeue, event) = intent(found, memory_bytes, context.now());
        if !context.store.intend_requeue(&requeue, &event).await? {
            self.lock().entry(start).or_default().is_settled = true;
            return Ok(false);
        }
        info!(%start, %node, "{}", event.detail);
        context.tally.event(&event.kind);
        context.nudges.requeue.notify_one();
        Ok(true)
    }

    fn memory_for(&self, found: &Found<'_>) -> Option<u64> {
        let (context, (node, gres_type)) = (&self.context, found.place);
        let mark = mark_of(found.job).filter(|_| context.is_active() && comes_back_alone(found.job))?;
        let (_, memory_by_device) = context.agents.reporter(node);
        early::with(&Case {
            mark,
            is_let: context.settings.restarts_by_consent,
            ran_seconds: found.at.seconds_since(found.job.started_at?),
            soon: found.soon,
            limit_bytes: found.limit_bytes,
            device_bytes: memory_by_device.get(gres_type).copied()?,
        })
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
                let place = (decision.node.clone(), decision.gres_types.first().clone());
                found.insert(member.plan.start, (place, member));
            }
        }
    }
    found
}

/// What it has: all of its instance, or a limit. That holds for each of its processes: it says something where there is one, or where
/// all have a known amount together, of which each is limited to a part.
fn limit(member: &Member, own: &TenantUse) -> Option<u64> {
    let plan = &member.plan;
    let limit = match plan.sharing.mig_slot() {
        Some(_) => plan.memory_bytes,
        None if own.process_count == 1 => plan.sharing.memory_limit_bytes(),
        None => {
            let all = plan.sharing.memory_bytes_max(plan.memory_bytes);
            all.filter(|_| all > plan.sharing.memory_limit_bytes())
        }
    };
    limit.filter(|bytes| *bytes > 0)
}

/// Until Slurm ends it; `None`: it does not.
fn time_left(job: &Job, now: UnixTime) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a time limit is far below 2^53 seconds")]
    let limit = job.time_limit_seconds? as f64;
    Some((limit - now.seconds_since(job.started_at?)).max(0.0))
}

/// The intent to start it again, and the event that tells of it.
fn intent(found: &Found<'_>, memory_bytes: u64, at: UnixTime) -> (Requeue, Event) {
    let (start, node) = (found.member.plan.start, found.place.0.clone());
    let more = mebibytes(memory_bytes);
    let detail = format!(
        "{}; it is to be ended and started again once, with at least {more}",
        detail(&found.soon, found.limit_bytes)
    );
    let event = Event {
        at,
        kind: EventKind::MemoryGrowing,
        job_id: Some(start.job_id),
        node: Some(node.clone()),
        detail,
    };
    let reason = format!("it was about to run out of device memory with {}", mebibytes(found.limit_bytes));
    let cause = RequeueCause::Growing { memory_bytes };
    (Requeue { cause, start, node, decided_at: at, reason }, event)
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
